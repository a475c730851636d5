"""Progress of an evaluation: a bar on a terminal, otherwise a line from time to time."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from app.cli.evaluate.ledger import TaskProgress
from app.cli.prices import PolicyPrices
from app.cli.retry import Retrier
from app.inference.wire import Usage
from app.toolkit.display import escape_invisible

REFRESH_SECONDS: Final = 0.25
LINE_SECONDS: Final = 30.0


@dataclass
class EvaluationTally:
    """Counts of finished tasks, earlier starts included; tokens per second count this start only."""

    tasks: int
    samples: int
    threshold: float
    prices: PolicyPrices
    usage: Usage
    """Total usage over all starts."""
    done: int = 0
    measured: int = 0
    mean_sum: float = 0.0
    scored: int = 0
    passed: int = 0
    unscored: int = 0
    said: int = 0
    """Completion tokens since this start."""
    began: float = field(default_factory=time.monotonic)

    def add_usage(self, usage: Usage, seconds: float = 0.0) -> None:
        self.usage += usage
        self.said += usage.completion_tokens

    def add_item(self, item: TaskProgress) -> None:
        rewards = [reward for sample in range(self.samples) if (reward := item.find_reward(sample)) is not None]
        self.done += 1
        self.scored += len(rewards)
        self.unscored += self.samples - len(rewards)
        self.passed += sum(reward >= self.threshold for reward in rewards)
        if rewards:
            self.measured += 1
            self.mean_sum += sum(rewards) / len(rewards)

    @property
    def words(self) -> str:
        parts = (
            [f"mean {self.mean_sum / self.measured:.3f}, passed {self.passed / self.scored:.1%}"] if self.scored else []
        )
        parts += [f"{self.unscored} unscored"] if self.unscored else []
        parts += [f"{self.said / max(time.monotonic() - self.began, 1e-9):.0f} tokens/s"]
        cost = self.prices.compute_cost(self.usage)
        return ", ".join([*parts, *([] if cost is None else [f"{cost:.4f} USD"])])


class ProgressDisplay(Protocol):
    def show(self, tally: EvaluationTally, patience: Retrier) -> None: ...

    def say(self, words: str) -> None: ...


@contextmanager
def show_progress(console: Console, name: str, tally: EvaluationTally) -> Iterator[ProgressDisplay]:
    if not console.is_terminal:
        yield _ProgressLines(console)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), TextColumn("{task.fields[words]}"), console=console) as progress:
        yield _ProgressBar(progress, escape(name), tally)


async def follow_progress(shown: ProgressDisplay, tally: EvaluationTally, patience: Retrier) -> None:
    """Runs until it is cancelled."""
    with suppress(asyncio.CancelledError):
        while True:
            shown.show(tally, patience)
            await asyncio.sleep(REFRESH_SECONDS)


class _ProgressBar:
    def __init__(self, progress: Progress, name: str, tally: EvaluationTally) -> None:
        self._progress = progress
        self._bar = progress.add_task(name, total=tally.tasks, completed=tally.done, words="")

    def show(self, tally: EvaluationTally, patience: Retrier) -> None:
        words = escape(", ".join([tally.words, *describe_waiting(patience)]))
        self._progress.update(self._bar, completed=tally.done, words=words)

    def say(self, words: str) -> None:
        self._progress.console.print(words, highlight=False, markup=False)


@dataclass
class _ProgressLines:
    console: Console
    next_at: float = field(default_factory=lambda: time.monotonic() + LINE_SECONDS)

    def show(self, tally: EvaluationTally, patience: Retrier) -> None:
        if time.monotonic() >= self.next_at:
            self.next_at = time.monotonic() + LINE_SECONDS
            self.say(", ".join([f"{tally.done} of {tally.tasks} tasks", tally.words, *describe_waiting(patience)]))

    def say(self, words: str) -> None:
        self.console.print(words, highlight=False, markup=False, soft_wrap=True)


def describe_waiting(patience: Retrier) -> list[str]:
    return [f"waiting for {who}: {escape_invisible(why[:100])}" for who, why in patience.waiting.items()]
