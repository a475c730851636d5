"""Task families of the package reasoning-gym: arithmetic, logic, puzzles, graphs and more, with its own scorers.

    prompt   State the final answer to the following problem: 26 + 14 - 57 = … between <answer> and </answer>.
    reply    <think>26 + 14 is 40.</think> <answer>-17</answer>
    reward   1.0   the family's scorer calls the answer wholly right

The package is an optional extra: `pip install 'atropos-environments[reasoning-gym]'`. Without it the environment
answers 503 with this command. Its dependency pycosat may need a C compiler (`apt-get install build-essential
python3-dev`).

Partial credit of a scorer counts as 0, since scorers give it to form, to texts that hold the right answer, and to
guesses. So does a list of candidates. Scorers run in workers, which make the row again from its seed. Where a scorer
takes too long or fails, the reply is `unscored`; where it fails as it does for a text that is no answer, 0.

    params   {"families": {"chain_sum": 2, "games": 1}, "level": "easy", "config": {"chain_sum": {"max_terms": 4}}}

- `families`: names with weights, or a list. A category (`games`) shares its weight among its families.
- `level`: by the package's curricula. A family without that level keeps its first one; the metadata name the actual
  one.
- `config`: fields of a family's configuration, up to the larger of the default and the value of the hardest level.

The text of a question decides its split. A family is served if, at its default configuration, its scorer runs no answer
as Python, no guess is right in more than 28 % of the tasks, and no list of candidates, near miss or invented answer is
paid. At other levels the sum or product of two numbers of the question may be right more often (73 % in
`decimal_chain_sum` at `easy`, which asks for it). Where the installed version asks another question for a seed, the
reply is `unscored`.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import ClassVar, Final, Self, cast

from pydantic import BaseModel, Field, JsonValue

from app.domain.errors import InvalidRequest, PackageMissing, ScoringFailed
from app.domain.scores import Score
from app.domain.tasks import LARGE_TEXT, Completion, Limits, Message, Task
from app.domain.values import Frozen, Split, digest
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
from app.ports.environment import Datasets, Environment, FreeReward, RefusedSpelling, Tools
from app.toolkit.answers import extract_committed, score_without_answer
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.texts import run_in_turn

_INSTRUCTION: Final = "Put the final answer, in the form that is asked for, between <answer> and </answer>."
_LIMITS: Final = Limits(seconds=10, cpu_seconds=3, memory_mb=512)
"""Limits for one answer. Making the row again and scoring take a few milliseconds."""
MISSING: Final = "the package reasoning-gym is not installed: pip install 'atropos-environments[reasoning-gym]'"
_SEEDS: Final = 2**30
_MOST_DRAWN: Final = 30
"""Times the rows that are drawn on average until one is for testing."""

_VALUE: Final = re.compile(r"\d+(?:[.,]\d+)*|[^\W\d_]+")


class PackageTask(Frozen):
    family: str
    level: PackageLevel
    config: str
    seed: int
    question: str
    """Digest of the question."""
    answer: str | None = Field(repr=False)
    """The package's own answer, if it has one."""


@dataclass(frozen=True)
class DrawnRow:
    seed: int
    question: str
    answer: str | None


class ReasoningGym(Environment):
    name: ClassVar[str] = "reasoning_gym"
    version: ClassVar[str] = "2"
    Params: ClassVar[type[BaseModel]] = ReasoningGymParams
    stats_label: ClassVar[str | None] = "family"
    costly_first_task: ClassVar[bool] = True
    chance: ClassVar[float] = 0.02
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="constant", share=0.25, because="Some families count things, and few counts are frequent."),
        FreeReward(
            strategy="prompt_features",
            share=0.28,
            because="The sum or product of two numbers of the prompt is right in `chain_sum` and `lcm` at times; "
            "elsewhere the prompt tells the family, and so what is frequent.",
        ),
        FreeReward(strategy="echo", share=0.04, because="In `rearc`, what is asked for may stand in the question."),
        FreeReward(
            strategy="near_miss_digit", share=0.01, because="A puzzle of `cryptarithm` may have several right answers."
        ),
        FreeReward(
            strategy="near_miss_token",
            share=0.06,
            because="`\\frac` is as right as `\\dfrac` in `fraction_simplification`, and a puzzle of `cryptarithm` may "
            "have several right answers.",
        ),
        FreeReward(strategy="near_miss_case", share=None, because="Many scorers of words ignore case."),
    )
    refused_spellings: ClassVar[tuple[RefusedSpelling, ...]] = (
        RefusedSpelling(
            kinds=("number", "fraction", "percent", "letter", "formula", "text", "json", "other line ends"),
            because="The package's own scorers decide, so that no answer is paid here that is not paid elsewhere.",
        ),
    )
    test_size: ClassVar[int] = 1_000

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        if not is_installed():
            raise PackageMissing(f"reasoning_gym: {MISSING}")
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
        )
        return Task(
            messages=(Message(role="user", content=f"{row.question.rstrip()}\n\n{_INSTRUCTION}"),),
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
    """The first one that is drawn whose question is for the split and whose answer can be committed. Seeds differ
    between the splits, too."""
    seed, made = f"reasoning_gym {family} {level} {config} {index} {split}", FAMILIES[family]
    for attempt in range(_MOST_DRAWN * made.held_out):
        number = 2 * SeededRandom(f"{seed} {attempt}").below(_SEEDS) + (split == "test")
        question, answer = cast("list[str]", MAKE_ROW(family, level, config, number, made.shared))
        apart = is_held_out(f"{family} {question}", made.held_out) == (split == "test")
        if apart and (answer is None or extract_committed(f"<answer>{answer}</answer>").text == answer.strip()):
            return DrawnRow(number, question, answer)
    detail = f"{family} has too few different tasks to keep train and test apart"
    raise InvalidRequest(detail, field=f"params.config.{family}")


def _list_arguments(asked: PackageTask) -> tuple[JsonValue, ...]:
    made = FAMILIES[asked.family]
    return asked.family, asked.level, asked.config, asked.seed, made.shared, [*made.malformed], asked.question


async def _score_reply(reply: str, asked: PackageTask, tools: Tools) -> Score:
    large = len(reply) > LARGE_TEXT
    committed = await run_in_turn("answers", extract_committed, reply) if large else extract_committed(reply)
    if committed.text is None:
        return score_without_answer(committed)
    try:
        value = await tools.workers.run(SCORE_ANSWER, *_list_arguments(asked), committed.text, limits=_LIMITS)
    except ScoringFailed as error:
        return Score.from_error(error)
    return _build_score(cast("float", value), asked, committed.text)


def _build_score(value: float, asked: PackageTask, answer: str) -> Score:
    if value < 1.0:
        return Score.exact(False, rationale="the answer is not right")
    wrong = _find_excess(answer, asked)
    return Score.exact(not wrong, rationale=wrong or "correct")


def _find_excess(answer: str, asked: PackageTask) -> str:
    """What is wrong with an answer that the scorer pays."""
    demand, right = FAMILIES[asked.family].demand, asked.answer
    if right is None or demand == "none":
        return ""
    if demand == "no_more_words":
        more = len(_VALUE.findall(answer)) > len(_VALUE.findall(right))
        return "more than one answer was given" if more else ""
    return "" if _squeeze(answer) == _squeeze(right) else "the answer is right in part"


def _squeeze(text: str) -> str:
    return "".join(text.split()).casefold()
