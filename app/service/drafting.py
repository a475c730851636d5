"""Builds prompts from drafts and game moments, as for tasks, without storing anything."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import BaseModel

from app.domain.errors import EnvironmentUnavailable, GatewayError
from app.domain.tasks import Context, ContextQuery, Task
from app.ports.environment import Drafted
from app.service.catalogue import Catalogue
from app.service.retrieval import Retrieval
from app.service.shelf import placed

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Placed:
    """A draft's task with retrieved passages in its prompt. `context` is empty if nothing was retrieved."""

    task: Task
    context: Context


class Drafting:
    def __init__(self, catalogue: Catalogue, retrieval: Retrieval) -> None:
        self._catalogue = catalogue
        self._retrieval = retrieval

    def drafted(self, environment: str, draft: BaseModel) -> Drafted:
        """Builds the draft's task. InvalidRequest naming `draft.<field>`; EnvironmentUnavailable if the environment
        fails."""
        hosted = self._catalogue.hosted(environment)
        with _foreseen(environment):
            return hosted.environment.draft(draft)

    def query(self, made: Drafted) -> ContextQuery | None:
        """The retrieval query of a draft. EnvironmentUnavailable if the environment fails."""
        with _foreseen(made.environment.name):
            return made.environment.query(made.task)

    async def placed(self, made: Drafted, field: str) -> Placed:
        """Retrieves and places passages as for a task. Errors in the query name `<field>.<part of the query>`."""
        query = self.query(made)
        context = Context() if query is None else await self._retrieval.of(query, field)
        with _foreseen(made.environment.name):
            return Placed(placed(made.environment, made.task, context), context)


@contextmanager
def _foreseen(environment: str) -> Iterator[None]:
    """Passes an environment's own errors through and turns unexpected ones into EnvironmentUnavailable."""
    try:
        yield
    except GatewayError:
        raise
    except Exception as error:
        log.exception("could not build a task from a draft: %s", environment)
        raise EnvironmentUnavailable(f"{environment}: it failed on this draft; see the service log") from error
