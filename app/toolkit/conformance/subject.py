"""The environment under test, opened twice, with its tools; and what the checks of it find and measure.

Two instances of one environment, and another process, tell whether its tasks depend on anything but their index.
"""

import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import FiniteNumber, Frozen, Split, Unit, digest
from app.ports.environment import Environment, Tools
from app.toolkit.seeded import SeededRandom


class ConformanceFinding(Frozen):
    """A violation found by a check."""

    task: str
    """The task, such as `train 3`; empty if no single task is affected."""
    expected: str
    came: str
    mend: str
    """The most likely fix."""


class CheckResult(Frozen):
    """Result of one check. `applied` is false where the check does not apply."""

    name: str
    asks: str
    applied: bool
    findings: tuple[ConformanceFinding, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.findings


class Spread(Frozen):
    least: int
    median: int
    most: int


class StrategyFigure(Frozen):
    """What a strategy earns on tasks that it has not learnt from."""

    strategy: str
    variant: str
    """The one of its variants that earned most on the tasks that it has learnt from."""
    group: str
    """`all`, a level, or a value of the environment's `stats_label`."""
    tasks: int
    paid: Unit
    """Mean reward."""
    low: Unit
    """Wilson's interval of 99 %, with `high`: there are dozens of figures."""
    high: Unit
    allowed: Unit
    """What the environment states."""


class RefusalFigure(Frozen):
    """How often a right answer in another spelling or layout is refused."""

    kind: str
    tasks: int
    refused: Unit
    low: Unit
    """Wilson's interval of 95 %, with `high`."""
    high: Unit
    because: str
    """Why the environment refuses it; empty where it states nothing."""


class MeasuredRewards(Frozen):
    """Empty for judged environments."""

    strategies: tuple[StrategyFigure, ...] = ()
    refusals: tuple[RefusalFigure, ...] = ()
    not_applied: tuple[str, ...] = ()
    """Strategies that can send nothing here, such as numbers where no answer is one."""


class ConformanceFigures(Frozen):
    """Measurements. Rates are per second of processor time of this process on one core; time in workers and programs
    counts only in `score_p99_ms_by_the_clock`."""

    tasks_per_second: FiniteNumber
    gold_scores_per_second: FiniteNumber | None
    """None if no right answer is known."""
    junk_scores_per_second: FiniteNumber
    score_p99_ms: FiniteNumber
    """Processor time of scoring one completion, 99th percentile."""
    score_p99_ms_by_the_clock: FiniteNumber
    train_size: int | None
    """None for endless."""
    test_size: int | None
    looked_at: int
    """Number of training tasks behind the next figures."""
    distinct_prompts: int
    prompt_characters: Spread
    prompt_tokens: Spread
    """An estimate, without a tokenizer."""
    commonest_gold: FiniteNumber | None
    """Share of tasks with the most frequent right answer, which a constant reply would earn."""
    strangers_paid: FiniteNumber | None
    """Share of tasks solved by another task's right answer; None for judged environments."""
    chance: FiniteNumber
    """The declared maximum of that share."""
    rewards: MeasuredRewards


class ConformanceReport(Frozen):
    environment: str
    version: str
    source: str
    """The class, as `module.Name`."""
    passed: bool
    checks: tuple[CheckResult, ...]
    figures: ConformanceFigures | None
    """None if the environment raised during measurement, which counts as failed."""


SPLITS: Final[tuple[Split, ...]] = ("train", "test")
_LOW: Final = 0.35
"""Maximum reward of junk in judged environments, since gates do not catch everything."""


@dataclass(frozen=True)
class CheckDepth:
    """How many tasks and texts are checked."""

    tasks: int = 1_000
    """Tasks per split."""
    scored: int = 1_000
    """Tasks whose own and foreign right answers are scored."""
    sample: int = 12
    """Tasks for expensive checks and judged scoring."""
    texts: int = 2_000
    """Nonsense texts."""
    guessed: int = 300
    """Tasks by which strategies are chosen, and as many on which they are then measured."""
    guessed_programs: int = 20
    """As many where scoring runs programs."""


@dataclass(frozen=True)
class NumberedTask:
    split: Split
    index: int
    task: Task

    def __str__(self) -> str:
        return f"{self.split} {self.index}"


@dataclass(frozen=True)
class ForeignAnswer:
    """The reward of another task's right answer."""

    one: NumberedTask
    other: NumberedTask
    reward: float | None


class EnvironmentBroke(Exception):
    """The environment raised an exception. `where` is the task, or empty."""

    def __init__(self, error: Exception, doing: str, where: str) -> None:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        self.where = where
        self.doing = doing
        self.said = f"{type(error).__name__}: {error} ({Path(frame.filename).name}, line {frame.lineno})"
        super().__init__(self.said)


def ignore_score() -> None:
    pass


OtherProcess = Callable[[], Awaitable[Mapping[Split, str]]]
"""Computes the `digest_of_sample` of each split in another process."""


class CheckSubject:
    """`again`: the same environment, opened again. `watch`: called for each scored completion."""

    def __init__(
        self,
        environment: Environment,
        again: Environment,
        tools: Tools,
        depth: CheckDepth | None = None,
        watch: Callable[[], None] = ignore_score,
        elsewhere: OtherProcess | None = None,
    ) -> None:
        """`elsewhere` is None to skip the check in another process."""
        self.elsewhere = elsewhere
        self.environment = environment
        self.again = again
        self.depth = depth or CheckDepth()
        self._tools = tools
        self._watch = watch
        self._tasks: dict[Split, list[NumberedTask]] = {split: [] for split in SPLITS}
        self._met: list[ForeignAnswer] | None = None
        self.measured: MeasuredRewards | None = None
        """What `measure_rewards` has measured."""

    def with_tools(self, tools: Tools) -> "CheckSubject":
        """A copy with other tools and the same task cache."""
        other = copy(self)
        other._tools = tools
        return other

    @property
    def is_judged(self) -> bool:
        return self.environment.rubric is not None

    @property
    def most(self) -> float:
        """Maximum reward of a junk reply."""
        return _LOW if self.is_judged else 0.0

    def make_tasks(self, split: Split, count: int | None = None) -> list[NumberedTask]:
        """The first tasks of the split, at most `count`. Broke when one cannot be generated."""
        tasks = self._tasks[split]
        most = self.depth.tasks if count is None else min(count, self.depth.tasks)
        tasks.extend(self._iter_tasks(self.environment, split, range(len(tasks), most)))
        return tasks[:most]

    def make_sample(self, count: int | None = None) -> list[NumberedTask]:
        """The first few tasks of both splits."""
        return [one for split in SPLITS for one in self.make_tasks(split, count or self.depth.sample)]

    def remake_sample(self, split: Split) -> list[NumberedTask]:
        """The sample generated by the second instance."""
        return list(self._iter_tasks(self.again, split, range(self.depth.sample)))

    @cached_property
    def episodes(self) -> list[NumberedTask]:
        """Multi-turn tasks, with `turns=multi` where that parameter exists."""
        params = {"turns": "multi"} if "turns" in self.environment.Params.model_fields else {}
        return list(self._iter_tasks(self.environment, "train", range(self.depth.sample), params))

    async def score(self, one: NumberedTask, replies: Sequence[str | Completion]) -> list[Score]:
        """Scores the replies as one group. Broke when the environment raises."""
        group = [Completion(text=reply) if isinstance(reply, str) else reply for reply in replies]
        try:
            scores = await self.environment.score(one.task, group, self._tools)
        except Exception as error:  # whatever an environment may raise
            for reply in replies if len(replies) > 1 else ():
                await self.score(one, [reply])  # raises for the reply that broke it
            raise EnvironmentBroke(error, f"scoring {shorten_reply(replies[0])}", str(one)) from error
        for _ in scores:
            self._watch()
        return scores

    async def score_foreign_answers(self) -> list[ForeignAnswer]:
        """Scores each task with the right answer of another random task. Cached."""
        if self._met is None:
            self._met = [met for split in SPLITS for met in await self._score_split(split)]
        return self._met

    async def _score_split(self, split: Split) -> list[ForeignAnswer]:
        solved = [
            (one, gold)
            for one in self.make_tasks(split, self.depth.scored)
            if (gold := self.environment.gold(one.task)) is not None
        ]
        order = SeededRandom(f"strangers {split}").shuffled(solved) if len(solved) > 1 else []
        met: list[ForeignAnswer] = []
        for (one, _), (other, foreign) in zip(order, [*order[1:], *order[:1]], strict=True):
            (score,) = await self.score(one, [foreign])
            met.append(ForeignAnswer(one, other, score.reward))
        return met

    def _iter_tasks(
        self, environment: Environment, split: Split, indexes: range, chosen: dict[str, str] | None = None
    ) -> Iterator[NumberedTask]:
        index = indexes.start
        try:
            params = environment.Params.model_validate(chosen or {})
            size = environment.size(split, params)
            for index in indexes if size is None else range(indexes.start, min(indexes.stop, size)):
                yield NumberedTask(split, index, environment.task(split, index, params))
        except Exception as error:  # whatever an environment may raise
            raise EnvironmentBroke(error, "making a task", f"{split} {index}") from error


def compute_sample_digest(environment: Environment, split: Split, count: int = CheckDepth.sample) -> str:
    """Digest of the first tasks of a split."""
    params = environment.Params()
    size = environment.size(split, params)
    indexes = range(count if size is None else min(count, size))
    return digest([environment.task(split, index, params).model_dump(mode="json") for index in indexes])


def format_prompt(task: Task) -> str:
    return "\n".join(message.content or "" for message in task.messages)


def shorten_reply(reply: str | Completion | Message) -> str:
    """A short excerpt on one line."""
    text = (
        reply if isinstance(reply, str) else reply.content or "" if isinstance(reply, Message) else _extract_text(reply)
    )
    shown = " ".join(ascii(text)[1:-1].split())
    return f"{shown[:60]}… ({len(text):,} characters)" if len(shown) > 80 else f"{shown!r}"


def _extract_text(completion: Completion) -> str:
    return completion.answer if completion.text is not None else f"messages ending in {completion.answer}"
