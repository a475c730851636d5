"""Base class of environments with procedurally generated tasks.

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
from app.toolkit.answers.committed import grade_committed, map_completions
from app.toolkit.seeded import SeededRandom, draw_apart
from app.toolkit.templates import Phrasings

Level = Literal["easy", "medium", "hard"]
LEVELS: tuple[Level, ...] = get_args(Level)


class LevelParams(Frozen):
    level: Level | Literal["mixed"] = "mixed"
    """Difficulty of tasks. `mixed`: a third of each level; the metadata name the level for statistics and
    `select.target_pass_rate`."""


MadeT = TypeVar("MadeT", bound=Frozen)
ParamsT = TypeVar("ParamsT", bound=LevelParams)


class ProceduralEnvironment(Environment, Generic[MadeT, ParamsT]):
    """Subclass it as `Generated[Puzzle, Params]`. `Puzzle` holds the whole task and is its hidden reference. `Params`
    holds the options of callers (`Levelled` if there are no others)."""

    Made: ClassVar[type[Frozen]]
    phrasings: ClassVar[Phrasings]
    data: ClassVar[Mapping[str, str]] = {}
    """Digests of word lists and other data, by name."""
    test_size: ClassVar[int] = 1_000
    stats_label: ClassVar[str | None] = "level"
    scores_at_once: ClassVar[bool] = True

    def __init_subclass__(cls, **rest: Any) -> None:
        super().__init_subclass__(**rest)
        for base in cls.__dict__.get("__orig_bases__", ()):
            if get_origin(base) is ProceduralEnvironment:
                cls.Made, cls.Params = get_args(base)

    @abstractmethod
    def make(self, draws: SeededRandom, level: Level, params: ParamsT) -> MadeT:
        """Generates a task. Pure: all randomness comes from `draws`. Called until the task is in the wanted split."""

    def key(self, made: MadeT) -> str:
        """Equal for equivalent tasks; decides the split. By default all of `made`."""
        return made.model_dump_json()

    @abstractmethod
    def slots(self, made: MadeT) -> Mapping[str, str | int]:
        """Values for the slots of a phrasing. `number`, unique per task, is added automatically."""

    def wording(self, made: MadeT) -> Phrasings:
        """Override it to use several phrasings, and add their digests to `data`."""
        return self.phrasings

    def metadata(self, made: MadeT) -> dict[str, JsonValue]:
        """Public metadata besides the level."""
        return {}

    def turns(self, made: MadeT) -> int:
        """Maximum turns of an episode."""
        return 1

    def fault(self, answer: str, made: MadeT) -> str:
        """Describes what is wrong with a committed answer, without revealing the right one; empty when it is right.
        `answer` is untrusted and at most 10,000 characters long. Required unless `score` is overridden."""
        raise NotImplementedError

    @abstractmethod
    def solution(self, made: MadeT) -> str:
        """A right answer, without tags."""

    @property
    def digests(self) -> Mapping[str, str]:
        return {"prompts": self.phrasings.digest, **self.data}

    def size(self, split: Split, params: BaseModel) -> int | None:
        return self.test_size if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = cast("ParamsT", self.Params.model_validate(params, from_attributes=True))
        level = self.level(split, index, chosen)
        seed = f"{self.name} {chosen.model_dump_json(exclude={'dataset'})} {index}"
        made = self.draw_content(seed, split, level, chosen)
        values = {"number": 2 * index + (split == "test"), **self.slots(made)}
        prompt = self.wording(made).say(SeededRandom(f"{seed} {split}"), **values)
        return Task(
            messages=(Message(role="user", content=prompt),),
            max_turns=self.turns(made),
            metadata={"level": level, **self.metadata(made)},
            reference=made.model_dump(mode="json"),
        )

    def draw_content(self, seed: str, split: Split, level: Level, params: ParamsT) -> MadeT:
        """Pure. Override it to defer work until the task's split is known."""
        return draw_apart(seed, split == "test", lambda draws: self.make(draws, level, params), self.key)

    def level(self, split: Split, index: int, params: LevelParams) -> Level:
        return SeededRandom(f"{self.name} {split} {index}").one(LEVELS) if params.level == "mixed" else params.level

    def label(self, split: Split, index: int, params: BaseModel) -> str | None:
        if self.stats_label == "level":
            return self.level(split, index, LevelParams.model_validate({"level": getattr(params, "level", "mixed")}))
        return super().label(split, index, params)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        made = self.parse_reference(task)
        return await map_completions(
            group, lambda one: grade_committed(one.answer, lambda answer: self.fault(answer, made))
        )

    def gold(self, task: Task) -> Completion | None:
        return Completion(text=f"<answer>{self.solution(self.parse_reference(task))}</answer>")

    def equivalent(self, one: Task, other: Task) -> bool:
        first, second = self.parse_reference(one), self.parse_reference(other)
        return self.key(first) == self.key(second) or self.solution(first) == self.solution(second)

    def parse_reference(self, task: Task) -> MadeT:
        return cast("MadeT", self.Made.model_validate(task.reference))
