"""Questions and answers: any data set whose answers code can check is an environment, without a line of code.

    prompt   Which elements make up water? … between <answer> and </answer>, in any order, separated by commas.
    reply    <think>H2O.</think> <answer>oxygen, hydrogen</answer>
    reward   1.0   the right answer by its kind: here a set

A row has a question, an answer and a kind: `exact` (one text), `number`, `math`, `choice`, `set`, `regex` (a form that
the answer must have) or `json` (by a schema); `docs/qa.md` says what is right for each. The prompt says how to commit.
Not paid: an answer that is mentioned and not committed to, two that differ, a list of candidates, a word more than the
answer.

Without a data set the tasks are made: small ones of each kind, to try everything offline.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

from pydantic import BaseModel, JsonValue, TypeAdapter

from app.domain.errors import InvalidRequest
from app.domain.scores import Score
from app.domain.tasks import Completion, Dataset, Message, Task
from app.domain.values import digest
from app.envs.qa.questions import KINDS, WORDS, AnyAnswerKey, Kind, MathAnswerKey, QaExercise, QaRow, draw_exercise
from app.ports import Tools
from app.ports.environment import FreeReward, RefusedSpelling
from app.toolkit.math_answers.grading import grade_boxed
from app.toolkit.procedural import LEVELS, DatasetEnvironment, DatasetParams, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings, read_packaged_data
from app.toolkit.thoughts import map_completions

_COMMITMENTS: Final = read_packaged_data(Path(__file__).with_name("commitments.yaml"), TypeAdapter(dict[Kind, str]))


class QaParams(LevelParams, DatasetParams):
    """`level` is that of the tasks without a data set."""

    kind: Kind | None = None
    """Without a data set: tasks of this kind alone. With one: the kind of rows that do not say theirs, by default
    `exact`."""


class Qa(DatasetEnvironment[QaRow], ProceduralEnvironment[QaExercise, QaParams]):
    name: ClassVar[str] = "qa"
    version: ClassVar[str] = "3"
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    scores_at_once: ClassVar[bool] = False
    phrasings: ClassVar[Phrasings] = Phrasings(("{question}\n\n{commitment}",))
    data: ClassVar[Mapping[str, str]] = {
        "commitments": digest({kind: _COMMITMENTS[kind] for kind in KINDS}),
        "words": digest(list(WORDS)),
    }
    stats_label: ClassVar[str | None] = "kind"
    chance: ClassVar[float] = 0.03
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="constant", share=0.11, because="Of `choice`: one option of ten is right."),
        FreeReward(
            strategy="prompt_features",
            share=0.11,
            because="Of `choice`: one option of ten is right. Of `exact`: the same words often come first.",
        ),
        FreeReward(
            strategy="echo", share=0.14, because="Of `choice`: the shortest line is an option, and one of ten is right."
        ),
        FreeReward(
            strategy="near_miss_token",
            share=0.02,
            because="Of `regex`: two values are right in each place, and another answer may hold the second one.",
        ),
        FreeReward(
            strategy="near_miss_case",
            share=None,
            because="Case does not count in the answers of `exact` and `set`, nor in the letter of an option.",
        ),
    )
    refused_spellings: ClassVar[tuple[RefusedSpelling, ...]] = (
        RefusedSpelling(
            kinds=("text: first letter's case",), because="In the forms of `regex` the case of a letter is asked for."
        ),
        RefusedSpelling(kinds=("fraction: expanded",), because="Of `math`: the prompt asks for the simplest form."),
    )
    answers_are_values: ClassVar[bool] = True
    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (QaRow,)

    def check_params(self, params: BaseModel) -> None:
        """Rows without a kind are tried with that of the params, one of each split."""
        dataset = self.find_dataset(params)
        if dataset is not None and getattr(params, "kind", None) is not None:
            for rows in filter(len, dataset.splits.values()):
                self.build_row_task(rows[0], dataset, params)

    def build_row_task(self, row: QaRow, dataset: Dataset[QaRow], params: BaseModel) -> Task:
        kind: Kind = row.kind or getattr(params, "kind", None) or "exact"
        try:
            made = QaExercise(question=row.question, right=row.build_key(kind))
        except ValueError as error:
            raise InvalidRequest(
                f"a row of {dataset.name} is not of the kind {kind}: {error}", field="params.kind"
            ) from None
        system = (Message(role="system", content=row.system),) if row.system else ()
        named: dict[str, JsonValue] = {"kind": kind, "topic": row.topic, "level": row.level}
        return Task(
            messages=(*system, Message(role="user", content=self.phrasings.say(SeededRandom(""), **self.slots(made)))),
            metadata={name: value for name, value in named.items() if value},
            reference=made.model_dump(mode="json"),
        )

    def make(self, draws: SeededRandom, level: Level, params: QaParams) -> QaExercise:
        kind = draws.one(KINDS) if params.kind is None else params.kind
        return draw_exercise(draws, kind, level)

    def slots(self, made: QaExercise) -> Mapping[str, str | int]:
        return {"question": made.question, "commitment": _COMMITMENTS[made.right.kind].format_map(made.right.slots)}

    def metadata(self, made: QaExercise) -> dict[str, JsonValue]:
        return {"kind": made.right.kind}

    def solution(self, made: QaExercise) -> str:
        return made.right.gold or made.model_dump_json()

    def gold(self, task: Task) -> Completion | None:
        gold = self.parse_reference(task).right.gold
        return None if gold is None else Completion(text=gold)

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        right: AnyAnswerKey = self.parse_reference(task).right
        if isinstance(right, MathAnswerKey):
            return list(await asyncio.gather(*(grade_boxed(one.answer, right.right, tools.workers) for one in group)))
        return await map_completions(group, lambda one: right.grade(one.answer))
