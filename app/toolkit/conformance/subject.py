"""What is examined: an environment, opened twice, with what it scores with."""

import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from app.domain.digests import digest
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Split
from app.ports.environment import Environment, Tools
from app.toolkit.seeded import Draws

SPLITS: Final[tuple[Split, ...]] = ("train", "test")
LOW: Final = 0.35
"""What a judged completion that deserves nothing may earn at most: gates do not see everything a judge does."""


@dataclass(frozen=True)
class Depth:
    """How much is looked at."""

    tasks: int = 1_000
    """Of each split."""
    scored: int = 1_000
    """Of these, whose right answers are scored, their own and another's."""
    sample: int = 12
    """Tasks where each is looked at closely, and where judges score."""
    texts: int = 2_000
    """Texts that nobody meant."""


@dataclass(frozen=True)
class Numbered:
    split: Split
    index: int
    task: Task

    def __str__(self) -> str:
        return f"{self.split} {self.index}"


@dataclass(frozen=True)
class Met:
    """What another task's right answer earned."""

    one: Numbered
    other: Numbered
    reward: float | None


class Broke(Exception):
    """The environment raised. `where` is the task, or empty."""

    def __init__(self, error: Exception, doing: str, where: str) -> None:
        place = traceback.extract_tb(error.__traceback__)[-1]
        self.where = where
        self.doing = doing
        self.said = f"{type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
        super().__init__(self.said)


def nobody_watches() -> None:
    pass


Elsewhere = Callable[[], Awaitable[Mapping[Split, str]]]
"""By split, the `digest_of_sample` that another process comes to."""


class Subject:
    """`again` is the same environment, opened a second time. `watch` is called for each completion that is scored."""

    def __init__(
        self,
        environment: Environment,
        again: Environment,
        tools: Tools,
        depth: Depth | None = None,
        watch: Callable[[], None] = nobody_watches,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        """`elsewhere` is None where no other process is asked."""
        self.elsewhere = elsewhere
        self.environment = environment
        self.again = again
        self.depth = depth or Depth()
        self._tools = tools
        self._watch = watch
        self._tasks: dict[Split, list[Numbered]] = {split: [] for split in SPLITS}
        self._met: list[Met] | None = None

    def using(self, tools: Tools) -> "Subject":
        """The same with other tools, and with the tasks that were made so far."""
        other = copy(self)
        other._tools = tools
        return other

    @property
    def judged(self) -> bool:
        return self.environment.rubric is not None

    @property
    def most(self) -> float:
        """That a reply may earn which deserves nothing."""
        return LOW if self.judged else 0.0

    def tasks(self, split: Split, count: int | None = None) -> list[Numbered]:
        """The first of the split: as many as the depth says, or `count` of these. Broke when one cannot be made."""
        made = self._tasks[split]
        most = self.depth.tasks if count is None else min(count, self.depth.tasks)
        made.extend(self._made(self.environment, split, range(len(made), most)))
        return made[:most]

    def sample(self, count: int | None = None) -> list[Numbered]:
        """The first few of both splits."""
        return [one for split in SPLITS for one in self.tasks(split, count or self.depth.sample)]

    def remade(self, split: Split) -> list[Numbered]:
        """The same sample as the second opening makes it."""
        return list(self._made(self.again, split, range(self.depth.sample)))

    @cached_property
    def episodes(self) -> list[Numbered]:
        """Tasks of several turns, where there is a parameter `turns` those that it brings."""
        asked = {"turns": "multi"} if "turns" in self.environment.Params.model_fields else {}
        return list(self._made(self.environment, "train", range(self.depth.sample), asked))

    async def score(self, one: Numbered, replies: Sequence[str | Completion]) -> list[Score]:
        """As one group. Broke when the environment raises."""
        group = [Completion(text=reply) if isinstance(reply, str) else reply for reply in replies]
        try:
            scores = await self.environment.score(one.task, group, self._tools)
        except Exception as error:  # whatever an environment may raise
            raise Broke(error, f"scoring {excerpt(replies[0])}", str(one)) from error
        for _ in scores:
            self._watch()
        return scores

    async def strangers(self) -> list[Met]:
        """Each task with the right answer of another one, drawn at random, which may be of the same. Scored once."""
        if self._met is None:
            self._met = [met for split in SPLITS for met in await self._strangers(split)]
        return self._met

    async def _strangers(self, split: Split) -> list[Met]:
        known = [
            (one, gold)
            for one in self.tasks(split, self.depth.scored)
            if (gold := self.environment.gold(one.task)) is not None
        ]
        order = Draws(f"strangers {split}").shuffled(known) if len(known) > 1 else []
        met: list[Met] = []
        for (one, _), (other, foreign) in zip(order, [*order[1:], *order[:1]], strict=True):
            (score,) = await self.score(one, [foreign])
            met.append(Met(one, other, score.reward))
        return met

    def _made(
        self, environment: Environment, split: Split, indexes: range, asked: dict[str, str] | None = None
    ) -> Iterator[Numbered]:
        index = indexes.start
        try:
            params = environment.Params.model_validate(asked or {})
            size = environment.size(split, params)
            for index in indexes if size is None else range(indexes.start, min(indexes.stop, size)):
                yield Numbered(split, index, environment.task(split, index, params))
        except Exception as error:  # whatever an environment may raise
            raise Broke(error, "making a task", f"{split} {index}") from error


def digest_of_sample(environment: Environment, split: Split, count: int = Depth.sample) -> str:
    """Of the first tasks of a split as they are handed out and kept."""
    params = environment.Params()
    size = environment.size(split, params)
    indexes = range(count if size is None else min(count, size))
    return digest([environment.task(split, index, params).model_dump(mode="json") for index in indexes])


def prompt_of(task: Task) -> str:
    return "\n".join(message.content or "" for message in task.messages)


def excerpt(reply: str | Completion | Message) -> str:
    """On one line, and short."""
    text = reply if isinstance(reply, str) else reply.content or "" if isinstance(reply, Message) else _text(reply)
    shown = " ".join(ascii(text)[1:-1].split())
    return f"{shown[:60]}… ({len(text):,} characters)" if len(shown) > 80 else f"{shown!r}"


def _text(completion: Completion) -> str:
    return completion.answer if completion.text is not None else f"messages ending in {completion.answer}"
