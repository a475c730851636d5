"""Calls the retriever with a deadline, validates its answer, and applies the failure policy."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal, TypeVar

from app.domain.errors import InvalidRequest, RequestRefused, RetrieverFailed, Unavailable
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
from app.domain.worlds import RetrievalExplanation
from app.ports.retrieval import ExplainingRetriever, Retriever
from app.ports.runtime import Observer
from app.ports.tracing import open_span

log = logging.getLogger(__name__)

MAX_CONCURRENT_QUERIES = 16
"""Maximum number of concurrent queries per batch."""

NOT_ASKED_DETAIL = "the retriever failed for another task of this batch and was not asked again"

OnFailure = Literal["refuse", "without"]
AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True)
class RetrievalPolicy:
    """`on_failure`: `refuse` raises RetrieverFailed; `without` returns an empty context with the reason.
    `deadline_seconds` is the total time of one query, including retries."""

    on_failure: OnFailure = "refuse"
    deadline_seconds: float = 2.0


class RetrievalService:
    def __init__(self, retriever: Retriever, observer: Observer, policy: RetrievalPolicy | None = None) -> None:
        self._retriever = retriever
        self._observer = observer
        self._policy = policy or RetrievalPolicy()

    async def retrieve(self, query: ContextQuery, field: str) -> Context:
        """Retrieves one context. RetrieverFailed under the policy `refuse`; InvalidRequest naming `<field>.<part>`."""
        try:
            return await self._retrieve_checked(query)
        except InvalidRequest as error:
            raise InvalidRequest(error.detail, field=f"{field}.{error.field}" if error.field else field) from error
        except RetrieverFailed as error:
            if self._policy.on_failure == "refuse":
                raise
            return Context(failure=error.detail)

    async def retrieve_all(self, queries: Sequence[ContextQuery], field: str) -> list[Context]:
        """Contexts in query order. After a failure no more queries are sent, so that a hanging retriever delays a batch
        no longer than a single task."""
        contexts = [Context(failure=NOT_ASKED_DETAIL) for _ in queries]
        left = list(enumerate(queries))[::-1]
        failed = asyncio.Event()

        async def process_queries() -> None:
            while left and not failed.is_set():
                place, query = left.pop()
                contexts[place] = await self.retrieve(query, field)
                if contexts[place].failure is not None:
                    failed.set()

        asking = [asyncio.ensure_future(process_queries()) for _ in queries[:MAX_CONCURRENT_QUERIES]]
        try:
            await asyncio.gather(*asking)
        finally:
            for one in asking:
                one.cancel()
        return contexts

    async def explain(self, query: ContextQuery) -> RetrievalExplanation:
        """The result with reasons; only the context if the retriever cannot explain. RetrieverFailed under any policy;
        InvalidRequest naming the part of the query."""
        if isinstance(self._retriever, ExplainingRetriever):
            return await self._await_within_deadline(_call_retriever(self._retriever.explain, query))
        context = await self._retrieve_checked(query)
        return RetrievalExplanation(as_of=context.as_of, budget_tokens=query.budget_tokens, context=context)

    async def _retrieve_checked(self, query: ContextQuery) -> Context:
        with open_span("retrieve", {"atropos.retriever": type(self._retriever).__name__}) as span:
            context = await self._retrieve_in_time(query)
            counts = {"passages": len(context.passages), "withheld": len(context.withheld)}
            span.describe({f"atropos.{name}": count for name, count in counts.items()})
            return context

    async def _retrieve_in_time(self, query: ContextQuery) -> Context:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            answer = _validate_context(
                await self._await_within_deadline(_call_retriever(self._retriever.retrieve, query))
            )
        except RetrieverFailed as error:
            self._observer.record_retrieval(loop.time() - began, failed=True)
            log.warning("retrieval failed: %s", error.detail)
            raise
        context, future = withhold_future(answer, query.as_of)
        self._observer.record_retrieval(loop.time() - began, failed=False, future=future)
        if future:
            log.warning("withheld %d passages later than the requested time", future)
        return context

    async def _await_within_deadline(self, asked: Coroutine[None, None, AnswerT]) -> AnswerT:
        """Awaits a coroutine up to the deadline. A cancelled one that keeps running is not awaited."""
        seconds = self._policy.deadline_seconds
        asking = asyncio.ensure_future(asked)
        try:
            done, _ = await asyncio.wait({asking}, timeout=seconds)
        finally:
            if not asking.done():
                asking.add_done_callback(_discard_result)
                asking.cancel()
        if not done:
            raise RetrieverFailed(f"the retriever gave no answer within {seconds:g} seconds")
        if asking.cancelled():
            raise RetrieverFailed("the retriever gave up")
        return asking.result()


async def _call_retriever(ask: Callable[[ContextQuery], Awaitable[AnswerT]], query: ContextQuery) -> AnswerT:
    try:
        return await ask(query)
    except (RequestRefused, Unavailable):
        raise
    except (Exception, SystemExit) as error:  # a class of the operator's may raise whatever it likes
        log.exception("the retriever raised an exception")
        raise RetrieverFailed(f"the retriever broke: {type(error).__name__}") from error


def withhold_future(context: Context, as_of: datetime | None) -> tuple[Context, int]:
    """Withholds passages later than `as_of` or the context's own time, and counts them."""
    known = [moment for moment in (as_of, context.as_of) if moment is not None]
    if not known:
        return context, 0
    now = min(known)
    late = [passage for passage in context.passages if passage.time is not None and passage.time > now]
    told = tuple(passage for passage in context.passages if passage not in late)
    withheld = (*context.withheld, *map(_withhold_passage, late))
    return context.model_copy(update={"passages": told, "withheld": withheld, "as_of": now}), len(late)


def _withhold_passage(passage: Passage) -> Withheld:
    return Withheld(id=passage.id, reason="future", text=passage.text)


def _validate_context(context: object) -> Context:
    """Checks that a context can be stored and sent, and that its times have time zones."""
    if not isinstance(context, Context):
        raise RetrieverFailed(f"the retriever gave no Context but {type(context).__name__}")
    if context.failure is not None:
        raise RetrieverFailed(context.failure)
    try:
        context.model_dump_json(warnings="error")
    except ValueError:  # lone surrogates, and what went around validation
        raise RetrieverFailed("the retriever gave a Context that cannot be written as JSON") from None
    times = [context.as_of, *(passage.time for passage in context.passages)]
    if any(moment is not None and moment.tzinfo is None for moment in times):
        raise RetrieverFailed("the retriever gave a time without its zone")
    return context


def _discard_result(asking: "asyncio.Future[AnswerT]") -> None:
    """Discards the late result or error of a cancelled call."""
    if not asking.cancelled():
        asking.exception()
