"""Math: solve problems with exact answers in LaTeX, from algebra to calculus.

    prompt   Rationalize the denominator of $\\frac{6}{\\sqrt{3}}$ and simplify. … put the final answer into \\boxed{}.
    reply    <think>6 / 3 is 2.</think> Multiplying by $\\sqrt3$ leaves $2\\sqrt{3}$: \\boxed{2\\sqrt{3}}
    reward   1.0   the last box outside the thinking holds an answer that is equal, exact and worked out

Also paid: `\\boxed{\\sqrt{3} \\cdot 2}`, `\\boxed{x = 2\\sqrt3}`. Not paid: the problem itself in the
box (`\\boxed{\\frac{6}{\\sqrt{3}}}`), `\\boxed{2 \\cdot 3}` for 6, decimals that are only near, boxes of which one is
wrong, an answer outside a box. `app.toolkit.math_answers` has the whole rule; what its parser cannot decide is decided
by math-verify, in a worker that can be killed.

With data sets configured (MATH, DeepScaleR, AIME and the like), their rows are the tasks. `level` and `topic` then
have no effect.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import BaseModel, Field, JsonValue, TypeAdapter

from app.domain.errors import InvalidRequest
from app.domain.scores import Score
from app.domain.tasks import Completion, Dataset, Message, Task
from app.domain.values import Frozen, digest
from app.envs.math.problems import FAMILIES, Topic, make_first_sum
from app.ports import RefusedSpelling, Tools
from app.toolkit.math_answers.grading import GoldAnswer, MathRow, check_answer, grade_boxed
from app.toolkit.procedural import LEVELS, DatasetEnvironment, DatasetParams, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, read_packaged_data

_FOLDER = Path(__file__).parent
_QUESTIONS = read_packaged_data(_FOLDER / "questions.yaml", TypeAdapter(dict[str, tuple[str, ...]]))
_PHRASINGS: Final = {name: Phrasings(texts) for name, texts in _QUESTIONS.items()}
INSTRUCTION = "Solve the problem. Reason step by step, and put the final answer into \\boxed{}."


class MathParams(LevelParams, DatasetParams):
    topic: Topic | Literal["mixed"] = "mixed"
    """Topic of the problems. `mixed`: all kinds of problems are equally frequent; the metadata names the topic. Level
    `first` has sums alone, of the topic `algebra`."""


class MathExercise(Frozen):
    family: str
    values: dict[str, str]
    gold: GoldAnswer = Field(repr=False)


class Math(DatasetEnvironment[MathRow], ProceduralEnvironment[MathExercise, MathParams]):
    name: ClassVar[str] = "math"
    version: ClassVar[str] = "4"
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    scores_at_once: ClassVar[bool] = False
    phrasings: ClassVar[Phrasings] = Phrasings.read(_FOLDER / "prompts.yaml")
    data: ClassVar[Mapping[str, str]] = {"questions": digest({name: list(texts) for name, texts in _QUESTIONS.items()})}
    chance: ClassVar[float] = 0.01
    refused_spellings: ClassVar[tuple[RefusedSpelling, ...]] = (
        RefusedSpelling(kinds=("fraction: expanded",), because="The prompt asks for the simplest form."),
    )

    answers_are_values: ClassVar[bool] = True
    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (MathRow,)

    def build_row_task(self, row: MathRow, dataset: Dataset[MathRow], params: BaseModel) -> Task:
        return Task(
            messages=(Message(role="system", content=INSTRUCTION), Message(role="user", content=row.task_text)),
            metadata=row.labels,
            reference=MathExercise(family="", values={}, gold=row.gold).model_dump(mode="json"),
        )

    def check_params(self, params: BaseModel) -> None:
        super().check_params(params)
        if getattr(params, "level", "") == "first" and getattr(params, "topic", "") not in ("mixed", "algebra"):
            raise InvalidRequest("level `first` has no problems but sums: topic `algebra`", field="params.topic")

    def make(self, draws: SeededRandom, level: Level, params: MathParams) -> MathExercise:
        names = [name for name, family in FAMILIES.items() if params.topic in ("mixed", family.topic)]
        family = "fractions" if level == "first" else draws.one(names)
        asked = make_first_sum(draws) if level == "first" else FAMILIES[family].make(draws, level)
        return MathExercise(family=family, values=dict(asked.values), gold=asked.gold)

    def key(self, made: MathExercise) -> str:
        return f"{made.family} {sorted(made.values.items())}"

    def slots(self, made: MathExercise) -> Mapping[str, str | int]:
        return {"question": _PHRASINGS[made.family].say(SeededRandom(self.key(made)), **made.values)}

    def metadata(self, made: MathExercise) -> dict[str, JsonValue]:
        return {"topic": FAMILIES[made.family].topic, "family": made.family}

    def solution(self, made: MathExercise) -> str:
        return made.gold.latex

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        gold = self.parse_reference(task).gold
        return list(
            await asyncio.gather(*(grade_boxed(completion.answer, gold, tools.workers) for completion in group))
        )

    def gold(self, task: Task) -> Completion | None:
        return Completion(text=f"\\boxed{{{self.solution(self.parse_reference(task))}}}")

    def equivalent(self, one: Task, other: Task) -> bool:
        first, second = self.parse_reference(one).gold, self.parse_reference(other).gold
        checked = check_answer(second.latex, first)
        return not checked.fault
