"""Answers of which it is known by construction whether they equal the right one: no unequal one is paid, and nearly all
equal ones are."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from pydantic import ValidationError

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Completion, Dataset
from app.domain.values import Frozen
from app.envs.math.environment import Math
from app.ports.environment import Tools, Workers
from app.sandbox.workers import ProcessWorkers
from app.service.judging import NoPanel
from app.toolkit.math_answers.grading import MathRow
from tests.support.event_loop import closed_after
from tests.support.tables import read_table
from tests.support.tiers import is_thorough

PROCESSES: Final = 2
EACH: Final = 5
"""Equal and unequal ones of a kind that are graded; all of them by the profile `thorough`, in two minutes."""
MOST_UNPAID: Final = 0.06
"""Of the equal ones."""
ROWS: Final = Dataset[MathRow](name="pairs", origin="tests/pairs", digest="1", splits={})


@dataclass(frozen=True)
class Pair:
    kind: str
    problem: str
    gold: str
    reply: str
    equal: bool


class Answers(Frozen):
    """Of one right answer."""

    gold: str
    problem: str = "Find what is asked for."
    equal: tuple[str, ...] = ()
    unequal: tuple[str, ...] = ()
    whole_replies: bool = False
    """The answers are whole replies. Otherwise each is what stands in the box."""

    def pair(self, kind: str, answer: str, equal: bool) -> Pair:
        reply = answer if self.whole_replies else f"So the answer is $\\boxed{{{answer}}}$."
        return Pair(kind, self.problem, self.gold, reply, equal)


KINDS: Final = read_table(__file__, "pairs.yaml", dict[str, tuple[Answers, ...]])


def read_pairs(each: int | None) -> Iterator[Pair]:
    """Of every kind the first of the equal ones and the first of the unequal ones, or all."""
    for kind, every in KINDS.items():
        yield from [of.pair(kind, answer, True) for of in every for answer in of.equal][:each]
        yield from [of.pair(kind, answer, False) for of in every for answer in of.unequal][:each]


async def find_paid(pairs: Sequence[Pair]) -> list[Pair]:
    # few at once, so that the longest wait for a worker is short
    places = asyncio.Semaphore(2 * PROCESSES)

    async def grade(pair: Pair) -> bool:
        async with places:
            return await is_paid(pair, workers)

    async with closed_after(ProcessWorkers(PROCESSES)) as workers:
        paid = await asyncio.gather(*map(grade, pairs))
    return [pair for pair, is_one in zip(pairs, paid, strict=True) if is_one]


async def is_paid(pair: Pair, workers: Workers) -> bool:
    """A right answer that makes no task, and a reply that nothing could be said of, are not paid."""
    environment = Math.open(ConfiguredDatasets({}))
    try:
        task = environment.build_row_task(MathRow(problem=pair.problem, answer=pair.gold), ROWS, environment.Params())
    except ValidationError:
        return False
    (score,) = await environment.score(task, [Completion(text=pair.reply)], Tools(panel=NoPanel(), workers=workers))
    return score.reward == 1.0


def test_there_are_many_pairs_of_many_kinds_and_none_comes_twice() -> None:
    pairs = [*read_pairs(None)]
    counts = Counter((pair.kind, pair.equal) for pair in pairs)
    few = [kind for kind, _ in counts if min(counts[kind, equal] for equal in (True, False)) < 5]
    different = {(pair.kind, pair.gold, pair.reply) for pair in pairs}
    assert (len(pairs), len(counts), few, len(different)) == (3_111, 2 * 104, [], len(pairs))


@pytest.mark.slow
def test_no_unequal_pair_is_paid_and_few_equal_ones_are_not() -> None:
    pairs = [*read_pairs(None if is_thorough() else EACH)]
    paid = asyncio.run(find_paid(pairs))
    unpaid = [pair for pair in pairs if pair.equal and pair not in paid]
    assert [pair for pair in paid if not pair.equal] == []
    assert len(unpaid) <= MOST_UNPAID * sum(pair.equal for pair in pairs), unpaid
