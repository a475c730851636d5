"""Drafts and moments of a game made into prompts, as tasks are, and kept nowhere."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pydantic import BaseModel

from app.domain.errors import EnvironmentUnavailable, GatewayError
from app.domain.tasks import Context, ContextQuery, Task
from app.ports.environment import Drafted
from app.service.catalogue import Catalogue
from app.service.placing import placed
from app.service.retrieval import Retrieval

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Placed:
    """`task` has what was retrieved in its prompt; `context` is empty where nothing was asked for."""

    task: Task
    context: Context


class Drafting:
    def __init__(self, catalogue: Catalogue, retrieval: Retrieval) -> None:
        self._catalogue = catalogue
        self._retrieval = retrieval

    def drafted(self, environment: str, draft: BaseModel) -> Drafted:
        """InvalidRequest naming `draft.<field>`; EnvironmentUnavailable when the environment breaks over the draft."""
        hosted = self._catalogue.hosted(environment)
        with _foreseen(environment):
            return hosted.environment.draft(draft)

    def query(self, made: Drafted) -> ContextQuery | None:
        """What is retrieved for it. EnvironmentUnavailable when the environment breaks over it."""
        with _foreseen(made.environment.name):
            return made.environment.query(made.task)

    async def placed(self, made: Drafted, field: str) -> Placed:
        """As a task is. What is wrong with a query is told of `<field>.<part of the query>`."""
        query = self.query(made)
        context = Context() if query is None else await self._retrieval.of(query, field)
        with _foreseen(made.environment.name):
            return Placed(placed(made.environment, made.task, context), context)


@contextmanager
def _foreseen(environment: str) -> Iterator[None]:
    """Lets an environment's own refusals through; of any other fault the caller learns that it is not theirs."""
    try:
        yield
    except GatewayError:
        raise
    except Exception as error:
        log.exception("could not build a task from a draft: %s", environment)
        raise EnvironmentUnavailable(f"{environment}: it failed on this draft; see the service log") from error
