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
from app.service.retrieval import RetrievalService
from app.service.task_cache import place_context

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlacedDraft:
    """A draft's task with retrieved passages in its prompt. `context` is empty if nothing was retrieved."""

    task: Task
    context: Context


class DraftBuilder:
    def __init__(self, catalogue: Catalogue, retrieval: RetrievalService) -> None:
        self._catalogue = catalogue
        self._retrieval = retrieval

    def build_draft(self, environment: str, draft: BaseModel) -> Drafted:
        """Builds the draft's task. InvalidRequest naming `draft.<field>`; EnvironmentUnavailable if the environment
        fails."""
        hosted = self._catalogue.get_environment_or_current(environment)
        with _convert_unexpected_errors(environment):
            return hosted.environment.draft(draft)

    def build_query(self, made: Drafted) -> ContextQuery | None:
        """The retrieval query of a draft. EnvironmentUnavailable if the environment fails."""
        with _convert_unexpected_errors(made.environment.name):
            return made.environment.query(made.task)

    async def place_context(self, made: Drafted, field: str) -> PlacedDraft:
        """Retrieves and places passages as for a task. Errors in the query name `<field>.<part of the query>`."""
        query = self.build_query(made)
        context = Context() if query is None else await self._retrieval.retrieve(query, field)
        with _convert_unexpected_errors(made.environment.name):
            return PlacedDraft(place_context(made.environment, made.task, context), context)


@contextmanager
def _convert_unexpected_errors(environment: str) -> Iterator[None]:
    """Passes an environment's own errors through and turns unexpected ones into EnvironmentUnavailable."""
    try:
        yield
    except GatewayError:
        raise
    except Exception as error:
        log.exception("could not build a task from a draft: %s", environment)
        raise EnvironmentUnavailable(f"{environment}: it failed on this draft; see the service log") from error
