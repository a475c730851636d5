"""No run of marks holds a score up, in whatever place of a reply it stands: parsers of a model's text are linear."""

import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pytest

from app.cli.envs.check import open_tools
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import ScoringFailed
from app.domain.tasks import LARGE_TEXT, Completion, Execution, FunctionCall, Message, Program, ToolCall
from app.main.components import discover
from app.ports.environment import Environment, Tools
from app.sandbox.workers import InProcessWorkers
from app.service.judging import NoPanel
from tests.support.event_loop import finish
from tests.support.tables import read_table
from tests.support.tiers import examples

CLASSES: Final = {name: kind for name, kind in discover().items() if kind.rubric is None}
SHORT: Final = 50
"""How often a mark is repeated in the reply with which longer ones are compared."""
TIMES: Final = (200, 5_000)
"""How often it is repeated in those: an answer of the first is still read, one of the second mostly refused."""
GROUP: Final = 16
"""Replies of a group."""
SIZES: Final = (900, LARGE_TEXT // GROUP - 200, 2 * LARGE_TEXT)
"""Characters of a reply: nearly as many as an answer may have; as many as are scored in the event loop, in a group;
and so many that a thread does it."""

_LISTED: Final = read_table(__file__, "marks.yaml", dict[str, tuple[str, ...]])
MARKS: Final = (*map(chr, range(0x20, 0x7F)), *_LISTED["signs"], *_LISTED["words"])
_PAIRED: Final = (*"()[]{}<>\"'`\\ \n,.:;=+-*/^_$%#&|~!?0aA", *_LISTED["paired"])
PAIRS: Final = tuple(one + other for one in _PAIRED for other in _PAIRED if one != other)

_WRAPPERS: Final = (
    *("{}", "{}x", "<answer>{}</answer>", "<answer>({}x</answer>", "\\boxed{{{}}}", "\\boxed{{7 {}x}}", "#### {}x"),
    *("```\n{}\n```", "```python\n{}x\n```", "<tool_call>{}</tool_call>", "<think>{}", "No tool fits: {}."),
)
"""Where an answer may stand."""


class _NoSandbox:
    """What a program does is bounded by its limits: here only what is read before it runs matters."""

    async def run(self, program: Program) -> Execution:
        raise ScoringFailed("no program is run here")


@dataclass(frozen=True)
class Probe:
    """A mark, repeated, in one place of a reply."""

    mark: str
    place: str

    def build(self, gold: Completion | None, times: int) -> Completion:
        run = self.mark * times
        if self.place in _WRAPPERS:
            return Completion(text=self.place.format(run))
        if gold is None:
            return Completion(text=run)
        if gold.text is not None:
            return Completion(text=_insert(gold.text, run, self.place))
        *earlier, last = gold.messages or (Message(role="assistant", content=""),)
        if not last.tool_calls:
            written = last.model_copy(update={"content": _insert(last.content or "", run, self.place)})
            return Completion(messages=(*earlier, written))
        right = last.tool_calls[0].function
        arguments = right.arguments if isinstance(right.arguments, str) else json.dumps(right.arguments)
        call = FunctionCall(name=right.name, arguments=_insert(arguments, run, self.place))
        return Completion(
            messages=(*earlier, Message(role="assistant", content="", tool_calls=(ToolCall(function=call),)))
        )


_GOLD_PLACES: Final = ("behind the right answer", "within the right answer", "before the right answer")
PLACES: Final = (*_WRAPPERS, *_GOLD_PLACES)


def _insert(text: str, run: str, place: str) -> str:
    at = {_GOLD_PLACES[0]: len(text), _GOLD_PLACES[1]: len(text) // 2, _GOLD_PLACES[2]: 0}[place]
    return text[:at] + run + text[at:]


def list_probes(marks: Sequence[str]) -> list[Probe]:
    return [Probe(mark, place) for place in PLACES for mark in marks]


class MarkedEnvironment:
    """An environment and its first task, of which replies with marks are scored in this process."""

    def __init__(self, kind: type[Environment]) -> None:
        self.environment = kind.open(ConfiguredDatasets({}))
        self.task = self.environment.task("train", 0, self.environment.Params())
        self.gold = self.environment.gold(self.task)
        self._tools = Tools(panel=NoPanel(), workers=InProcessWorkers(), programs=_NoSandbox())

    def measure(self, probe: Probe, times: int) -> float:
        """Seconds of processor time that a score takes, what workers do included."""
        reply = probe.build(self.gold, times)
        began = time.process_time()
        finish(self.environment.score(self.task, [reply], self._tools))
        return time.process_time() - began


# How long a group holds the event loop


def draw_groups(kind: type[Environment], size: int, count: int) -> Iterator[list[Completion]]:
    """`count` groups of one place each, of replies of about `size` characters; every place as often."""
    gold, draws = MarkedEnvironment(kind).gold, random.Random(f"{kind.name} {size}")
    for number in range(count):
        probes = [Probe(mark, PLACES[number % len(PLACES)]) for mark in draws.sample((*MARKS, *PAIRS), GROUP)]
        yield [probe.build(gold, size // len(probe.mark)) for probe in probes]


def measure_hold(kind: type[Environment], groups: Sequence[Sequence[Completion]]) -> float:
    """Seconds of processor time of the longest turn of the event loop while the groups are scored."""
    marked, turns = MarkedEnvironment(kind), list[float]()

    async def time_turns() -> None:
        while True:  # a task that sleeps for no time runs once in each turn of the loop
            began = time.thread_time()
            await asyncio.sleep(0)
            turns.append(time.thread_time() - began)

    async def score() -> None:
        async with open_tools(kind) as tools:
            timing = asyncio.create_task(time_turns())
            for group in groups:
                await marked.environment.score(marked.task, group, tools)
                await asyncio.sleep(0)
            timing.cancel()

    asyncio.run(score())
    return max(turns)


LEAST = 0.02
"""Seconds: what takes less is not compared, since a pause of the collector takes as long."""
GENEROUS = 4
"""How much longer than in proportion a longer reply may take."""
TRIES = 5
LONGEST_HOLD = 0.05


@pytest.fixture(scope="module", params=sorted(CLASSES))
def marked(request: pytest.FixtureRequest) -> MarkedEnvironment:
    return MarkedEnvironment(CLASSES[request.param])


def find_slow(marked: MarkedEnvironment, probe: Probe) -> Iterator[tuple[Probe, int]]:
    for times in TIMES:
        # A second look at what seems slow: others run here too.
        if all(
            (spent := marked.measure(probe, times)) > LEAST
            and spent > marked.measure(probe, SHORT) * times / SHORT * GENEROUS
            for _ in range(TRIES)
        ):
            yield probe, times


def choose_probes(marked: MarkedEnvironment) -> list[Probe]:
    """Marks and pairs of them in each place: as many as this run looks at, and fewer where programs are read."""
    probes = list_probes((*MARKS, *PAIRS))
    count = examples(len(probes)) // (10 if marked.environment.runs_programs else 1)
    return random.Random(marked.environment.name).sample(probes, count)


def test_a_score_takes_no_more_time_than_in_proportion_to_a_run_of_marks(marked: MarkedEnvironment) -> None:
    assert [slow for probe in choose_probes(marked) for slow in find_slow(marked, probe)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CLASSES))
def test_no_group_of_marks_holds_the_event_loop(name: str) -> None:
    kind = CLASSES[name]
    groups = [group for size in SIZES for group in draw_groups(kind, size, len(PLACES))]
    held = (measure_hold(kind, groups) for _ in range(TRIES))
    assert any(one < LONGEST_HOLD for one in held)
