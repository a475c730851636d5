r"""Math: solve problems with exact answers in LaTeX, from algebra to calculus.

    prompt   Rationalize the denominator of $\frac{6}{\sqrt{3}}$ and simplify. … put the final answer into \boxed{}.
    reply    <think>6 / 3 is 2.</think> Multiplying by $\sqrt3$ leaves $2\sqrt{3}$: \boxed{2\sqrt{3}}
    reward   1.0   the last box outside the thinking holds an answer that is equal, exact and worked out

Also paid: `\boxed{\sqrt{3} \cdot 2}`, `\boxed{x = 2\sqrt3}`. Not paid: the problem itself in the
box (`\boxed{\frac{6}{\sqrt{3}}}`), `\boxed{2 \cdot 3}` for 6, decimals that are only near, boxes of which one is
wrong, an answer outside a box. `app.toolkit.math_answers` has the whole rule; what its parser cannot decide is decided
by math-verify, in a worker that can be killed.

Rows of configured data sets (MATH, DeepScaleR, AIME and the like) replace the tasks; `level` and `topic` then have no
effect. Without them there are 47 kinds of problem in eleven topics; `first` has sums of two small numbers.

**Which answer counts.** Every `\boxed{}` outside the thinking that holds anything. Several boxes are right if all are;
values with names may have a box each. An empty box is ignored. The right answer decides how a reply is read: `1,234`
is one number if the answer is a number, and two if it is a set.

- A rational number: equal numerals (`1/2`, `0.5`, `50\%`, `x = \frac12`, `6\text{ cm}`), not `2+4`, `3!`, `\sqrt{36}`.
- Roots, pi, e, logarithms: equal and worked out (`2\sqrt3`, `\frac{6}{\sqrt{3}}`), no decimals, no `\sqrt{4+8}`.
- An expression: equal, worked out, in the same variables and the form asked for (*expanded*, *factored*, *reduced*,
  *simplified*, *lowest terms*).
- A set or solutions: the same elements in any order, each once. A pair: in its order, or with names. Intervals: also as
  inequalities, but not as the one that was asked. A matrix: `pmatrix`, `bmatrix` or `array` with the same entries.

*Worked out* means: no sum or product of two rational numbers, no power or root that comes out even, no `i^2`, no
`0 \cdot x`, and no function of a number that is not in a right answer. So some right answers are refused, such as
`6 \pm 2` for 4 and 8.

**How reliable it is.** Of 733 awkward answers 3 right ones are refused and no wrong one is paid; math-verify alone
refuses 13 % and pays 32 %. Of 3,111 pairs in forms of data sets 19 equal ones are unpaid and no unequal one is paid.

**Hostile answers.** More than 1,000 characters, text that the reader does not understand, far more roots than needed,
or a value that differs at three places earn 0 at once. About one awkward answer in ten needs a worker (3 seconds of
processor time, 512 MB). One that exceeds the limits twice is `unscored` (`verifier_killed`).

**Rows of data sets** are read by the look of their right answer. Words are compared as words, letters alone too (`VI`
is not `IV`). Values with names are compared by name, without names by order. A list is right in any order unless the
problem asks for one. A right answer with a unit is right without it or with it written otherwise, and wrong with
another unit; nothing is converted. A per cent sign is ignored, though `82\%` is right for `\frac{41}{50}`. An answer
that is not worked out itself may be written in any equal way. Equations may swap their sides but not be rearranged. A
formula copied word for word from the problem is no answer, unless it is the right one. Beside that:

- A name before one value counts where both have one and the problem has it: `x = 4` is not `y = 4`; `x_1` may be `x`.
- Commas, semicolons, "and" and "or" separate parts, which may be pairs; where order or names count, "or" is wrong.
- Words between numbers count, and nothing is multiplied there: `4 to 3` is not `3 to 4`, but `3:19` where a ratio is
  asked for is `3 \text{ to } 19`. A vector may have round or angle brackets.
- Intervals may be inequalities, sets or words: `m \ge 2`, `\mathbb{R} \setminus \{2\}`, `]1, 2[`, "all real numbers".
- Letters under roots may count as positive: `1/\sqrt{m}` for `\sqrt{1/m}`, but not `\sqrt{x^2}` for `x`.
- In a base above ten small letters are digits, and the base may be a word. `\dots` and `...` are the same, and so are
  `\varnothing` and `\{\}`. An infinity is right by its sign. `1 \pm \sqrt2` are two values.
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
