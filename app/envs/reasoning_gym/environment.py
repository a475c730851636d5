"""Task families of the package reasoning-gym: arithmetic, logic, puzzles, graphs and more, with its own scorers.

    prompt   State the final answer to the following problem: 26 + 14 - 57 = … between <answer> and </answer>.
    reply    <think>26 + 14 is 40.</think> <answer>-17</answer>
    reward   1.0   the family's scorer calls the answer wholly right

The package is an optional extra, `reasoning-gym`. `families.yaml` lists its families, those that are served and those
that are not, with the reason: some scorers run the answer as Python, some pay answers that do not do the task. Part of
the credit, which scorers give to form or to a text that holds the right answer, counts as 0, unless `credit` is
`graded`; what earns up to 0.05 counts as 0 even then. Scorers run in workers, which make the row again from its seed.
A scorer that takes too long, or cannot score its own answer, leaves the reply `unscored`.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import ClassVar, Final, Self, cast

from pydantic import BaseModel, Field

from app.domain.digests import digest
from app.domain.errors import EnvironmentUnavailable, InvalidRequest, ScoringFailed
from app.domain.scores import Criterion, Score
from app.domain.tasks import LARGE_TEXT, Completion, Message, Task
from app.domain.values import Frozen, Split
from app.domain.work import Limits
from app.envs.reasoning_gym.choices import (
    CATEGORIES,
    DIGEST_QUESTION,
    FAMILIES,
    MAKE_ROW,
    SCORE_ANSWER,
    SERVED,
    PackageLevel,
    ReasoningGymParams,
    is_installed,
    resolve_level,
    write_config,
)
from app.ports.environment import Datasets, Environment, FreeReward, Tools
from app.toolkit.answers.committed import extract_committed, score_without_answer
from app.toolkit.large_texts import run_in_turn
from app.toolkit.seeded import SeededRandom, draw_apart

INSTRUCTION: Final = "Put the final answer, in the form that is asked for, between <answer> and </answer>."
LIMITS: Final = Limits(seconds=10, cpu_seconds=3, memory_mb=512)
"""Limits for one answer. Making the row again and scoring take a few milliseconds."""
MISSING: Final = "the package reasoning-gym is not installed: pip install 'atropos-environments[reasoning-gym]'"
NOT_PAID: Final = 0.05
"""Scorers give up to this to wrong answers for their form."""
SEEDS: Final = 2**30
MOST_REDRAWN: Final = 50
"""Rows whose answer cannot be committed are drawn again; about one in a hundred is, in one family."""


class PackageTask(Frozen):
    family: str
    level: PackageLevel
    config: str
    seed: int
    question: str
    """Digest of the question."""
    answer: str | None = Field(repr=False)
    """The package's own answer, if it has one."""
    graded: bool = False


@dataclass(frozen=True)
class DrawnRow:
    seed: int
    question: str
    answer: str | None


class ReasoningGym(Environment):
    name: ClassVar[str] = "reasoning_gym"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = ReasoningGymParams
    stats_label: ClassVar[str | None] = "family"
    chance: ClassVar[float] = 0.02
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="constant", share=0.25, because="Some families count things, and few counts are frequent."),
        FreeReward(
            strategy="prompt_features",
            share=0.25,
            because="Which family asks is seen from the prompt, and with it which answers are frequent.",
        ),
        FreeReward(strategy="near_miss_case", share=None, because="Many scorers of words ignore case."),
        FreeReward(
            strategy="near_miss_token",
            share=None,
            because="Scorers of sentences ignore words that say nothing, such as `and`.",
        ),
    )
    test_size: ClassVar[int] = 1_000

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        if not is_installed():
            raise EnvironmentUnavailable(f"reasoning_gym: {MISSING}")
        return cls()

    @property
    def digests(self) -> Mapping[str, str]:
        return _compute_digests()

    def size(self, split: Split, params: BaseModel) -> int | None:
        return self.test_size if split == "test" else None

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        chosen = ReasoningGymParams.model_validate(params, from_attributes=True)
        family = self._draw_family(split, index, chosen)
        level, config = resolve_level(family, chosen.level), write_config(chosen.config.get(family, {}))
        row = _draw_row(family, level, config, split, index)
        reference = PackageTask(
            family=family,
            level=level,
            config=config,
            seed=row.seed,
            question=cast("str", DIGEST_QUESTION(row.question)),
            answer=row.answer,
            graded=chosen.credit == "graded",
        )
        return Task(
            messages=(Message(role="user", content=f"{row.question.rstrip()}\n\n{INSTRUCTION}"),),
            metadata={"family": family, "category": FAMILIES[family].category, "level": level},
            reference=reference.model_dump(mode="json"),
        )

    def label(self, split: Split, index: int, params: BaseModel) -> str | None:
        return self._draw_family(split, index, ReasoningGymParams.model_validate(params, from_attributes=True))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        asked = PackageTask.model_validate(task.reference)
        return list(await asyncio.gather(*(_score_reply(one.answer, asked, tools) for one in group)))

    def gold(self, task: Task) -> Completion | None:
        answer = PackageTask.model_validate(task.reference).answer
        return None if answer is None else Completion(text=f"<answer>{answer}</answer>")

    def equivalent(self, one: Task, other: Task) -> bool:
        asked, answer = PackageTask.model_validate(one.reference), PackageTask.model_validate(other.reference).answer
        return answer is not None and SCORE_ANSWER(*_list_arguments(asked), answer.strip()) == 1.0

    def _draw_family(self, split: Split, index: int, params: ReasoningGymParams) -> str:
        draws = SeededRandom(f"{self.name} family {split} {index}")
        if not params.families:
            return draws.one(SERVED)
        names = sorted(params.families)
        chosen = draws.one([name for name in names for _ in range(params.families[name])])
        return draws.one(CATEGORIES[chosen]) if chosen in CATEGORIES else chosen


@lru_cache(maxsize=1)
def _compute_digests() -> Mapping[str, str]:
    table = {name: family.model_dump(mode="json") for name, family in FAMILIES.items()}
    return {"families": digest(table), "package": digest(version("reasoning-gym"))}


def _draw_row(family: str, level: str, config: str, split: Split, index: int) -> DrawnRow:
    """The seeds of the splits differ; so do the questions, unless the family is kept apart by seed alone."""
    shared = FAMILIES[family].shared
    seed = f"reasoning_gym {family} {level} {config} {index}"

    def draw(draws: SeededRandom) -> DrawnRow:
        for _ in range(MOST_REDRAWN):
            number = 2 * draws.below(SEEDS) + (split == "test")
            question, answer = cast("list[str]", MAKE_ROW(family, level, config, number, shared))
            if answer is None or extract_committed(f"<answer>{answer}</answer>").text == answer.strip():
                return DrawnRow(number, question, answer)
        raise ValueError(f"{family} has no answers that can be committed")

    if FAMILIES[family].apart == "seed":
        return draw(SeededRandom(f"{seed} {split}"))
    try:
        return draw_apart(seed, split == "test", draw, lambda row: f"{family} {row.question}")
    except ValueError as error:
        detail = f"{family} has too few different tasks to keep train and test apart"
        raise InvalidRequest(detail, field=f"params.config.{family}") from error


def _list_arguments(asked: PackageTask) -> tuple[str | int | bool, ...]:
    shared = FAMILIES[asked.family].shared
    return asked.family, asked.level, asked.config, asked.seed, shared, asked.question


async def _score_reply(reply: str, asked: PackageTask, tools: Tools) -> Score:
    large = len(reply) > LARGE_TEXT
    committed = await run_in_turn("answers", extract_committed, reply) if large else extract_committed(reply)
    if committed.text is None:
        return score_without_answer(committed)
    try:
        value = await tools.workers.run(SCORE_ANSWER, *_list_arguments(asked), committed.text, limits=LIMITS)
    except ScoringFailed as error:
        return Score.from_error(error)
    return _build_score(cast("float", value), asked.graded)


def _build_score(value: float, graded: bool) -> Score:
    if value == 1.0 or not graded or value <= NOT_PAID:
        return Score.exact(value == 1.0, rationale="correct" if value == 1.0 else "the answer is not right")
    return Score(
        outcome="scored",
        reward=value,
        gate=1.0,
        absolute=value,
        criteria=(Criterion(name="correct", value=value, weight=1.0),),
        rationale="the answer is right in part",
    )
