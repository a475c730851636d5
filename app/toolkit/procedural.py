"""What environments share whose tasks are made rather than read.

Levels, splits that do not overlap, one prompt out of several phrasings, and an answer in `<answer>` tags that code
checks. An environment says how a task is made, what makes two of them the same, what stands in its prompt, what is
wrong with an answer, and what would be right. Everything else is here, and each part can be replaced.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast, get_args, get_origin

from pydantic import BaseModel, JsonValue

from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import Frozen, Split
from app.ports.environment import Environment, Tools
from app.toolkit.answers.committed import grade_committed
from app.toolkit.seeded import Draws, drawn_apart
from app.toolkit.templates import Phrasings

Level = Literal["easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = get_args(Level)


class Levelled(Frozen):
    level: Level | Literal["mixed"] = "mixed"
    """How hard tasks are. `mixed`: a third of each; the metadata say which, so that statistics and
    `select.target_pass_rate` tell them apart."""


MadeT = TypeVar("MadeT", bound=Frozen)
ParamsT = TypeVar("ParamsT", bound=Levelled)


class Generated(Environment, Generic[MadeT, ParamsT]):
    """Subclass it as `Generated[Puzzle, Params]`: the first holds all that a task consists of and is its hidden
    reference, the second is what callers may choose (`Levelled` where there is nothing else)."""

    Made: ClassVar[type[Frozen]]
    phrasings: ClassVar[Phrasings]
    data: ClassVar[Mapping[str, str]] = {}
    """Digests, by name, of word lists and the like."""
    test_size: ClassVar[int] = 1_000
    stats_label: ClassVar[str | None] = "level"

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is Generated:
                cls.Made, cls.Params = get_args(base)

    @abstractmethod
    def make(self, draws: Draws, level: Level, params: ParamsT) -> MadeT:
        """Pure: all chance comes from `draws`. Called again, with others, until the task is one of its split."""

    def key(self, made: MadeT) -> str:
        """Equal for what is the same task, however it is put: decides the split. Unless overridden, all of `made`."""
        return made.model_dump_json()

    @abstractmethod
    def slots(self, made: MadeT) -> Mapping[str, str | int]:
        """What stands in the places of a phrasing. `number` is there already: one for each task of either split."""

    def wording(self, made: MadeT) -> Phrasings:
        """Override it where kinds of task are asked for differently, and put the digests of the others in `data`."""
        return self.phrasings

    def metadata(self, made: MadeT) -> dict[str, JsonValue]:
        """Of the task, beside its level: public."""
        return {}

    def turns(self, made: MadeT) -> int:
        """At most, of an episode."""
        return 1

    def fault(self, answer: str, made: MadeT) -> str:
        """What is wrong with a committed answer, in words of ours that never say what was expected; empty when it is
        right. `answer` is untrusted and at most 10,000 characters long. Needed unless `score` is overridden."""
        raise NotImplementedError

    @abstractmethod
    def solution(self, made: MadeT) -> str:
        """A right answer, without its tags."""

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": self.phrasings.digest, **self.data}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return self.test_size if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = cast("ParamsT", self.Params.model_validate(params, from_attributes=True))
        level = self.level(split, index, chosen)
        seed = f"{self.name} {chosen.model_dump_json()} {index}"
        made = self.drawn(seed, split, level, chosen)
        values = {"number": 2 * index + (split == "test"), **self.slots(made)}
        prompt = self.wording(made).say(Draws(f"{seed} {split}"), **values)
        return Task(
            messages=(Message(role="user", content=prompt),),
            max_turns=self.turns(made),
            metadata={"level": level, **self.metadata(made)},
            reference=made.model_dump(mode="json"),
        )

    def drawn(self, seed: str, split: Split, level: Level, params: ParamsT) -> MadeT:
        """Pure. Replaced where part of the work can wait until it is known that a task is one of its split."""
        return drawn_apart(seed, split == "test", lambda draws: self.make(draws, level, params), self.key)

    def level(self, split: Split, index: int, params: Levelled) -> Level:
        return Draws(f"{self.name} {split} {index}").one(LEVELS) if params.level == "mixed" else params.level

    def label(self, split: Split, index: int, params: BaseModel) -> str | None:
        if self.stats_label == "level":
            return self.level(split, index, Levelled.model_validate({"level": getattr(params, "level", "mixed")}))
        return super().label(split, index, params)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        made = self.made(task)
        return [grade_committed(completion.answer, lambda answer: self.fault(answer, made)) for completion in group]

    def gold(self, task: Task) -> Completion | None:
        return Completion(text=f"<answer>{self.solution(self.made(task))}</answer>")

    def equivalent(self, one: Task, other: Task) -> bool:
        first, second = self.made(one), self.made(other)
        return self.key(first) == self.key(second) or self.solution(first) == self.solution(second)

    def made(self, task: Task) -> MadeT:
        return cast("MadeT", self.Made.model_validate(task.reference))
