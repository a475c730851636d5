"""Environments that read tool calls: tasks and scores per second of one core, and how long hostile texts take.

Times are this process's own processor time, so that a busy machine changes them little. The longest of all kinds of
text is the least of three readings. `python -m benchmarks.calls [--record]` takes two minutes.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from app.cli.serve import tune_garbage_collection
from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Completion, FunctionCall, Message, Task, ToolCall
from app.main.components import discover
from app.ports.environment import Environment, Tools
from app.service.judging import NoPanel
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat, read_text_calls
from benchmarks.hostile_texts import TOOLS, hostile_texts
from benchmarks.results import BenchmarkFigure, count_rounds, run, tell_progress

ENVIRONMENTS = ("tool_calling", "tool_agent")
ROUNDS = 3
TASKS = 2_000
HOSTILE = 2_000
GROUP_SIZE = 8
PIECES = 40
LENGTH = 100_000
LONG_TASKS = 4
"""For which texts of that length are scored."""
DOUBLED = 12
"""How many of the slowest texts are read again at twice the length."""


@dataclass(frozen=True)
class Rates:
    tasks_per_second: float
    scores_per_second: float
    """Of right answers, all completions of a group different."""
    p99_seconds: float
    """Of scoring one hostile completion of up to some thousand characters."""
    slowest_seconds: float
    """Of scoring one hostile text of LENGTH characters, as the reply or as each text in right calls."""


@dataclass(frozen=True)
class Slow:
    kind: str
    form: ToolFormat | None
    seconds: float
    growth: float
    """Time at twice the length, as a multiple."""


def measure() -> list[BenchmarkFigure]:
    tune_garbage_collection()  # as the service does it
    environments = [discover()[name].open(ConfiguredDatasets({})) for name in ENVIRONMENTS]
    found: dict[str, list[Rates]] = {name: [] for name in ENVIRONMENTS}
    for _ in count_rounds("tool calls", ROUNDS):
        for environment in environments:
            found[environment.name].append(_rates(environment))
    tell_progress("hostile texts in every format")
    rates = [figure for name, rounds in found.items() for figure in _list_rates(name, rounds)]
    return [*_list_slowest(find_slowest()), *rates]


def find_slowest() -> tuple[Slow, ...]:
    """What takes longest to read, of all kinds in all formats, longest first."""
    once, twice = hostile_texts(LENGTH), hostile_texts(2 * LENGTH)
    took = [(_reading(text, form), kind, form) for kind, text in once.items() for form in (None, *FORMATS)]
    worst = sorted(took, key=lambda one: -one[0])[:DOUBLED]
    found = (_grown(kind, form, once[kind], twice[kind]) for _, kind, form in worst)
    return tuple(sorted(found, key=lambda slow: -slow.seconds))


def _grown(kind: str, form: ToolFormat | None, once: str, twice: str) -> Slow:
    seconds = min(_reading(once, form) for _ in range(3))
    return Slow(kind, form, seconds, min(_reading(twice, form) for _ in range(3)) / seconds)


def _reading(text: str, form: ToolFormat | None) -> float:
    return _timed(lambda: read_text_calls(text, TOOLS, form))


def _rates(environment: Environment) -> Rates:
    params = environment.Params()
    began = time.process_time()
    tasks = [environment.task("train", index, params) for index in range(TASKS)]
    made = time.process_time() - began
    right = [(task, _different(environment.gold(task))) for task in tasks]
    began = time.process_time()
    for task, group in right:
        _score(environment, task, group)
    scored = time.process_time() - began
    took = sorted(_timed(_scoring(environment, *one)) for one in _hostile(tasks))
    longest = max(_timed(_scoring(environment, *one)) for one in _long(environment, tasks[:LONG_TASKS]))
    return Rates(TASKS / made, TASKS * GROUP_SIZE / scored, took[int(0.99 * HOSTILE)], longest)


def _different(gold: Completion | None) -> Sequence[Completion]:
    """Right answers, told apart by what no scorer reads."""
    if gold is None:
        return ()
    return [gold.model_copy(update={"extra": {"place": place}}) for place in range(GROUP_SIZE)]


def _hostile(tasks: Sequence[Task]) -> Iterator[tuple[Task, Completion]]:
    """Seeded medleys of pieces of calls, as a text or as what a model said in its turn."""
    pieces = [text[:200] for text in hostile_texts(1_000).values()]
    luck = random.Random(0)
    for place in range(HOSTILE):
        text = "".join(luck.choices(pieces, k=luck.randint(1, PIECES)))
        said = Completion(messages=(Message(role="assistant", content=text),))
        yield tasks[place % len(tasks)], said if place % 2 else Completion(text=text)


def _long(environment: Environment, tasks: Sequence[Task]) -> Iterator[tuple[Task, Completion]]:
    texts = hostile_texts(LENGTH).values()
    for task in tasks:
        gold = environment.gold(task)
        messages = () if gold is None else gold.messages or ()
        for text in texts:
            yield task, Completion(text=text)
            if messages:
                yield task, Completion(messages=tuple(_swollen(message, text) for message in messages))


def _swollen(message: Message, text: str) -> Message:
    return message.model_copy(update={"tool_calls": tuple(_with_text(call, text) for call in message.tool_calls)})


def _with_text(call: ToolCall, text: str) -> ToolCall:
    given = call.function.arguments
    known = given if isinstance(given, dict) else {}
    swollen = {name: text if isinstance(value, str) else value for name, value in known.items()}
    return call.model_copy(update={"function": FunctionCall(name=call.function.name, arguments=swollen)})


def _scoring(environment: Environment, task: Task, completion: Completion) -> Callable[[], object]:
    return lambda: _score(environment, task, [completion])


def _score(environment: Environment, task: Task, group: Sequence[Completion]) -> None:
    asyncio.run(environment.score(task, group, Tools(panel=NoPanel())))


def _timed(does: Callable[[], object]) -> float:
    began = time.process_time()
    does()
    return time.process_time() - began


def _list_rates(name: str, rounds: Sequence[Rates]) -> Iterator[BenchmarkFigure]:
    row, p99 = f"`{name}`", [one.p99_seconds * 1e3 for one in rounds]
    made, scored = [one.tasks_per_second for one in rounds], [one.scores_per_second for one in rounds]
    yield BenchmarkFigure.of(row, made, column="tasks made a second")
    yield BenchmarkFigure.of(row, scored, column="right completions scored a second")
    what = f"{HOSTILE:,} hostile completions, 99 of 100"
    yield BenchmarkFigure.of(row, p99, "ms", at_most=20, column=what)
    longest = [one.slowest_seconds * 1e3 for one in rounds]
    yield BenchmarkFigure.of(row, longest, "ms", column=f"{LENGTH:,} characters, the slowest")


def _list_slowest(slow: Sequence[Slow]) -> Iterator[BenchmarkFigure]:
    kinds = f"{len(hostile_texts(100))} kinds in {len(FORMATS) + 1} ways"
    what = f"reading {LENGTH:,} hostile characters, the slowest of {kinds}"
    yield BenchmarkFigure.of(what, [slow[0].seconds * 1e3], "ms", at_most=50)
    steepest = max(one.growth for one in slow)
    yield BenchmarkFigure.of(f"the {DOUBLED} slowest at twice the length, at most", [steepest], "times", at_most=2.5)


if __name__ == "__main__":
    run("calls", measure)
