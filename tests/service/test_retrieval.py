"""Whatever a retriever does, a batch gets its contexts or a refusal, in time."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from app.domain.errors import GatewayError, InvalidRequest, RetrieverFailed, StoreUnavailable
from app.domain.tasks import Context, ContextQuery, Passage, Withheld
from app.domain.worlds import RetrievalExplanation
from app.ports.retrieval import Retriever
from app.service.retrieval import (
    MAX_CONCURRENT_QUERIES,
    NOT_ASKED_DETAIL,
    RetrievalPolicy,
    RetrievalService,
    withhold_future,
)
from app.telemetry.metrics import NullObserver, PrometheusObserver

QUERY = ContextQuery(text="What news?", character="hob", world="valley")
LATE = "the retriever gave no answer within 0.05 seconds"
NEWS = Passage(id="news", text="It rained.", source="t")


class Doing:
    """A retriever of somebody's who does not care for types."""

    def __init__(self, what: Callable[[ContextQuery], Any]) -> None:
        self._what = what
        self.asked = 0

    def retrieve(self, query: ContextQuery) -> Any:
        self.asked += 1
        return self._what(query)


async def hangs(query: ContextQuery) -> Context:
    await asyncio.Event().wait()
    return Context()


async def hangs_on(query: ContextQuery) -> Context:
    """For a while after it was cancelled, too."""
    for _ in range(3):
        try:
            await asyncio.sleep(0.3)
        except asyncio.CancelledError:
            continue
    return Context()


async def gives_up(query: ContextQuery) -> Context:
    raise asyncio.CancelledError


async def breaks(query: ContextQuery) -> Context:
    raise ZeroDivisionError("a-secret")


async def leaves(query: ContextQuery) -> Context:
    raise SystemExit(3)


async def says_why(query: ContextQuery) -> Context:
    raise RetrieverFailed("the archive is closed")


def giving(answer: object) -> Callable[[ContextQuery], Awaitable[object]]:
    async def give(query: ContextQuery) -> object:
        return answer

    return give


def retrieval(what: Callable[[ContextQuery], Any], policy: RetrievalPolicy) -> tuple[Doing, RetrievalService]:
    retriever = Doing(what)
    return retriever, RetrievalService(cast("Retriever", retriever), NullObserver(), policy)


FAILURES = {
    "hangs": (hangs, LATE),
    "hangs on": (hangs_on, LATE),
    "gives up": (gives_up, "the retriever gave up"),
    "breaks": (breaks, "the retriever broke: ZeroDivisionError"),
    "leaves": (leaves, "the retriever broke: SystemExit"),
    "says why": (says_why, "the archive is closed"),
    "not async": (lambda query: Context(), "the retriever broke: TypeError"),
    "nothing": (giving(None), "the retriever gave no Context but NoneType"),
    "its own failure": (giving(Context(failure="asleep")), "asleep"),
    "surrogates": (
        giving(Context(passages=(Passage(id="p", text="\ud800", source="t"),))),
        "the retriever gave a Context that cannot be written as JSON",
    ),
    "unchecked": (
        giving(Context.model_construct(passages=(NEWS.model_copy(update={"text": 2}),))),
        "the retriever gave a Context that cannot be written as JSON",
    ),
    "a time without its zone": (
        giving(Context(passages=(Passage(id="p", text="p", source="t", time=datetime(1312, 4, 3)),))),
        "the retriever gave a time without its zone",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_a_failure_refuses_or_is_what_the_context_says(name: str) -> None:
    what, words = FAILURES[name]
    _, refusing = retrieval(what, RetrievalPolicy("refuse", 0.05))
    _, going_on = retrieval(what, RetrievalPolicy("without", 0.05))
    with pytest.raises(RetrieverFailed) as refused:
        await refusing.retrieve(QUERY, "params")
    assert (refused.value.detail, await going_on.retrieve(QUERY, "params")) == (words, Context(failure=words))


@pytest.mark.parametrize(
    ("error", "field"),
    [
        (InvalidRequest("no such world", field="world"), "params.world"),
        (InvalidRequest("no"), "params"),
        (StoreUnavailable("the disk is full"), None),
    ],
)
async def test_what_is_not_the_retrievers_failure_stays_what_it_is(error: GatewayError, field: str | None) -> None:
    async def refuses(query: ContextQuery) -> Context:
        raise error

    _, asking = retrieval(refuses, RetrievalPolicy("without", 0.05))
    with pytest.raises(GatewayError) as refused:
        await asking.retrieve(QUERY, "params")
    assert (type(refused.value), refused.value.detail, refused.value.field) == (type(error), error.detail, field)


def queries(count: int) -> list[ContextQuery]:
    return [QUERY.model_copy(update={"text": str(number)}) for number in range(count)]


async def test_contexts_come_in_the_order_of_the_queries() -> None:
    async def tells(query: ContextQuery) -> Context:
        await asyncio.sleep(0.001 * (int(query.text) % 3))
        return Context(passages=(Passage(id=query.text, text="-", source="t"),))

    _, asking = retrieval(tells, RetrievalPolicy())
    assert [context.passages[0].id for context in await asking.retrieve_all(queries(50), "params")] == [
        str(number) for number in range(50)
    ]


async def test_after_a_failure_nothing_more_of_a_batch_is_asked() -> None:
    without = [Context(failure=LATE)] * MAX_CONCURRENT_QUERIES + [Context(failure=NOT_ASKED_DETAIL)] * (
        100 - MAX_CONCURRENT_QUERIES
    )
    hanging, going_on = retrieval(hangs, RetrievalPolicy("without", 0.05))
    contexts = await going_on.retrieve_all(queries(100), "params")
    refused, refusing = retrieval(hangs, RetrievalPolicy("refuse", 0.05))
    with pytest.raises(RetrieverFailed):
        await refusing.retrieve_all(queries(100), "params")
    assert (contexts, hanging.asked, refused.asked) == (without, MAX_CONCURRENT_QUERIES, MAX_CONCURRENT_QUERIES)


class Explaining(Doing):
    def explain(self, query: ContextQuery) -> Any:
        return self._what(query)


async def test_reasons_are_the_retrievers_own_or_none_and_its_failure_is_always_told() -> None:
    told = Context(passages=(NEWS,), as_of=at(9))
    reasons = RetrievalExplanation(as_of=at(9), budget_tokens=7, context=Context())
    alone = RetrievalExplanation(as_of=at(9), budget_tokens=QUERY.budget_tokens, context=told)
    policy = RetrievalPolicy("without", 0.05)
    _, plain = retrieval(giving(told), policy)
    explaining = RetrievalService(cast("Retriever", Explaining(giving(reasons))), NullObserver(), policy)
    hanging = RetrievalService(cast("Retriever", Explaining(hangs)), NullObserver(), policy)
    with pytest.raises(RetrieverFailed) as refused:
        await hanging.explain(QUERY)
    assert (await plain.explain(QUERY), await explaining.explain(QUERY), refused.value.detail) == (alone, reasons, LATE)


def at(hour: int) -> datetime:
    return datetime(1312, 4, 3, hour, tzinfo=UTC)


def told(*hours: int) -> tuple[Passage, ...]:
    return tuple(Passage(id=str(hour), text=f"{hour} struck.", source="t", time=at(hour)) for hour in hours)


def withheld(hour: int) -> Withheld:
    return Withheld(id=str(hour), reason="future", text=f"{hour} struck.")


@pytest.mark.parametrize(
    ("answer", "as_of", "context", "future"),
    [
        (Context(passages=told(9, 23)), None, Context(passages=told(9, 23)), 0),
        (Context(passages=(*told(9), NEWS)), at(9), Context(passages=(*told(9), NEWS), as_of=at(9)), 0),
        (
            Context(passages=told(11, 9), withheld=(withheld(8),)),
            at(10),
            Context(passages=told(9), withheld=(withheld(8), withheld(11)), as_of=at(10)),
            1,
        ),
        (
            Context(passages=told(9, 11), as_of=at(10)),
            at(12),
            Context(passages=told(9), withheld=(withheld(11),), as_of=at(10)),
            1,
        ),
        (
            Context(passages=told(9, 11), as_of=at(12)),
            at(10),
            Context(passages=told(9), withheld=(withheld(11),), as_of=at(10)),
            1,
        ),
    ],
)
def test_what_is_later_is_withheld(answer: Context, as_of: datetime | None, context: Context, future: int) -> None:
    assert withhold_future(answer, as_of) == (context, future)


async def test_every_query_is_counted_once_by_what_became_of_it() -> None:
    observer = PrometheusObserver()
    answers = [Context(passages=told(9)), Context(passages=told(11, 12)), None]
    asking = RetrievalService(
        cast("Retriever", Doing(lambda query: giving(answers.pop())(query))), observer, RetrievalPolicy("without")
    )
    for query in [QUERY.model_copy(update={"as_of": at(10)})] * 3:
        await asking.retrieve(query, "params")
    counted = [
        observer.registry.get_sample_value(f"atropos_envs_{name}", labels)
        for name, labels in (
            ("retrievals_total", {"outcome": "answered"}),
            ("retrievals_total", {"outcome": "failed"}),
            ("retrieval_seconds_count", {}),
            ("passages_future_total", {}),
        )
    ]
    assert counted == [2, 1, 3, 2]
