"""Ours and math-verify over pairs of which it is known whether they are equal: `python -m
tests.toolkit.math_answers.side_by_side`, some two minutes on two processes.

Each pair is a row of a data set and a reply, graded as the service grades them, and by math-verify alone; both in
workers that can be killed. The table has for each kind how many equal pairs were not paid and how many unequal ones
were. It ends with exit code 1 where we pay an unequal pair, or leave more than 6 % of the equal ones unpaid."""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import ValidationError

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import ScoringFailed
from app.domain.tasks import Completion, Dataset, Limits, Task
from app.domain.values import Frozen
from app.envs.math.environment import Math
from app.ports.environment import Tools, Workers
from app.sandbox.workers import ProcessWorkers
from app.service.judging import NoPanel
from app.toolkit.math_answers.grading import LazyFunction, MathRow
from tests.support.event_loop import closed_after
from tests.support.tables import read_table

MOST_UNPAID: Final = 0.06
"""Of the equal ones."""
_ALONE: Final = LazyFunction("tests.toolkit.math_answers.math_verify_alone", "says_equal")
_LIMITS: Final = Limits(seconds=20, cpu_seconds=6, memory_mb=512)
"""Twice what an answer may use in the service."""
_ROWS: Final = Dataset[MathRow](name="pairs", origin="tests/pairs", digest="1", splits={})


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


@dataclass(frozen=True)
class Graded:
    pair: Pair
    ours: bool
    """Whether it was paid."""
    math_verify: bool


@dataclass(frozen=True)
class Tally:
    equal: int
    unequal: int
    ours_unpaid: int
    ours_paid: int
    math_verify_unpaid: int
    math_verify_paid: int

    @property
    def is_good(self) -> bool:
        return self.ours_paid == 0 and self.ours_unpaid <= MOST_UNPAID * self.equal


def read_pairs(each: int | None = None) -> Iterator[Pair]:
    """Of every kind the first of the equal ones and the first of the unequal ones, or all."""
    for kind, every in read_table(__file__, "pairs.yaml", dict[str, tuple[Answers, ...]]).items():
        yield from [of.pair(kind, answer, True) for of in every for answer in of.equal][:each]
        yield from [of.pair(kind, answer, False) for of in every for answer in of.unequal][:each]


async def grade_pairs(pairs: Sequence[Pair], processes: int) -> list[Graded]:
    # few at once, so that the longest wait for a worker is short
    places = asyncio.Semaphore(2 * processes)

    async def grade(pair: Pair) -> Graded:
        async with places:
            return Graded(pair, await _is_paid(pair, workers), await _is_equal_alone(pair, workers))

    async with closed_after(ProcessWorkers(processes)) as workers:
        return await asyncio.gather(*map(grade, pairs))


async def _is_paid(pair: Pair, workers: Workers) -> bool:
    """A right answer that makes no task, and a reply that nothing could be said of, are not paid."""
    environment = Math.open(ConfiguredDatasets({}))
    try:
        task: Task = environment.build_row_task(
            MathRow(problem=pair.problem, answer=pair.gold), _ROWS, environment.Params()
        )
    except ValidationError:
        return False
    (score,) = await environment.score(task, [Completion(text=pair.reply)], Tools(panel=NoPanel(), workers=workers))
    return score.reward == 1.0


async def _is_equal_alone(pair: Pair, workers: Workers) -> bool:
    try:
        return await workers.run(_ALONE, pair.gold, pair.reply, limits=_LIMITS) is True
    except ScoringFailed:
        return False


def tally(graded: Sequence[Graded]) -> Tally:
    equal = [one for one in graded if one.pair.equal]
    unequal = [one for one in graded if not one.pair.equal]
    return Tally(
        len(equal),
        len(unequal),
        ours_unpaid=sum(not one.ours for one in equal),
        ours_paid=sum(one.ours for one in unequal),
        math_verify_unpaid=sum(not one.math_verify for one in equal),
        math_verify_paid=sum(one.math_verify for one in unequal),
    )


def format_table(graded: Sequence[Graded]) -> Iterator[str]:
    yield "| kind | equal | unpaid by us | by math-verify | unequal | paid by us | by math-verify |"
    yield f"| --- |{' ---: |' * 6}"
    for kind in dict.fromkeys(one.pair.kind for one in graded):
        yield _format_row(kind, tally([one for one in graded if one.pair.kind == kind]))
    yield _format_row("all", whole := tally(graded))
    yield (
        f"Of the equal ones unpaid: by us {whole.ours_unpaid / whole.equal:.1%}, "
        f"by math-verify {whole.math_verify_unpaid / whole.equal:.1%}. "
        f"Of the unequal ones paid: by us {whole.ours_paid / whole.unequal:.1%}, "
        f"by math-verify {whole.math_verify_paid / whole.unequal:.1%}."
    )


def _format_row(title: str, of: Tally) -> str:
    counts = (of.equal, of.ours_unpaid, of.math_verify_unpaid, of.unequal, of.ours_paid, of.math_verify_paid)
    return f"| {title} | {' | '.join(map(str, counts))} |"


def _list_wrong(graded: Sequence[Graded]) -> Iterator[str]:
    """Ours."""
    for one in graded:
        if one.ours != one.pair.equal:
            verdict = "paid, and unequal" if one.ours else "equal, and not paid"
            yield f"{verdict}: {one.pair.kind}: {one.pair.gold}  |  {one.pair.reply}  |  {one.pair.problem}"


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--wrong", action="store_true", help="each pair that we grade wrongly as well")
    graded = asyncio.run(grade_pairs([*read_pairs()], processes=2))
    lines = [*format_table(graded), *(_list_wrong(graded) if parser.parse_args(arguments).wrong else ())]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if tally(graded).is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
