"""Multiple choice: answer a question with the letter of the one right option.

    prompt   Lena is taller than Ivo. Rosa is taller than Lena. … Who comes second?   A. Ivo   B. Lena   C. Rosa …
    reply    <think>Rosa, Lena, Ivo.</think> <answer>B</answer>
    reward   1.0   that letter

Questions are generated: units, dates, sets, orders and tables. The right option has any position with equal chance. The
answer is drawn first, evenly among the options, and the question is built around it: the kind of question, the lengths
of its lists, the rank of an option among the others and how often it is mentioned say nothing about which one is right.
So whatever does not work the question out is right in one of n tasks with n options. Only a single letter counts, not a
word that begins with it, two letters, or the text of the option.

With data sets configured (MMLU, MMLU-Pro, ARC, GPQA and their like; `app.envs.mcqa.choice_rows`), their rows are the
tasks, with up to 26 options. There the place of the right option may be uneven, as the data set has it: a policy that
always says C may earn more than its share. `shuffle_options` puts an end to that.
"""

import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field, JsonValue

from app.domain.digests import digest_of_model
from app.domain.sources import Dataset
from app.domain.tasks import Message, Task
from app.domain.values import Frozen, Split, WholeNumber
from app.envs.mcqa.choice_rows import ChoiceRow, UnorderedChoiceRow, shuffle_options
from app.envs.mcqa.generated_questions import MATERIAL, MOST_OPTIONS, draw_question
from app.ports.environment import FreeReward
from app.toolkit.answers.choices import LETTERS, find_choice_fault, list_options
from app.toolkit.dataset_tasks import DatasetEnvironment, DatasetParams
from app.toolkit.procedural import Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import Phrasings

_FOLDER = Path(__file__).parent


class McqaParams(LevelParams, DatasetParams):
    """`level` and `options` are those of the tasks without a data set."""

    options: Annotated[WholeNumber, Field(ge=3, le=MOST_OPTIONS)] = 5
    shuffle_options: Annotated[bool, Field(exclude_if=operator.not_)] = False
    """Of rows of a data set: their options in another order, which the row alone decides. Generated tasks are always
    shuffled."""


class ChoiceQuestion(Frozen):
    topic: str
    text: str
    options: tuple[str, ...]
    right: int
    """Index of the right option, from 0."""


class Mcqa(DatasetEnvironment[ChoiceRow | UnorderedChoiceRow], ProceduralEnvironment[ChoiceQuestion, McqaParams]):
    name: ClassVar[str] = "mcqa"
    version: ClassVar[str] = "3"
    phrasings: ClassVar[Phrasings] = Phrasings.read(_FOLDER / "prompts.yaml")
    data: ClassVar[Mapping[str, str]] = {"material": digest_of_model(MATERIAL)}
    stats_label: ClassVar[str | None] = "topic"
    chance: ClassVar[float] = 0.2
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(
            strategy="constant",
            share=0.25,
            because="One letter of five is right, and a topic has few tasks, so that luck shows.",
        ),
        FreeReward(strategy="near_miss_case", share=None, because="A small letter names the same option."),
    )

    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (ChoiceRow, UnorderedChoiceRow)

    def build_own_task(self, split: Split, index: int, params: BaseModel) -> Task:
        if getattr(params, "shuffle_options", False):
            params = params.model_copy(update={"shuffle_options": False})
        return super().build_own_task(split, index, params)

    def build_row_task(
        self,
        row: ChoiceRow | UnorderedChoiceRow,
        dataset: Dataset[ChoiceRow | UnorderedChoiceRow],
        params: BaseModel,
    ) -> Task:
        options = row.options
        if getattr(params, "shuffle_options", False):
            options = shuffle_options(row.question, options)
        made = ChoiceQuestion(topic=row.topic, text=row.question, options=options.texts, right=options.right)
        prompt = self.phrasings.say(SeededRandom(self.key(made)), **self.slots(made))
        return Task(
            messages=(Message(role="user", content=prompt),),
            metadata={"topic": row.topic} if row.topic else {},
            reference=made.model_dump(mode="json"),
        )

    def make(self, draws: SeededRandom, level: Level, params: McqaParams) -> ChoiceQuestion:
        asked = draw_question(draws, params.options, level)
        options = draws.shuffled(asked.options)
        right = options.index(asked.options[0])
        return ChoiceQuestion(topic=asked.topic, text=asked.text, options=tuple(options), right=right)

    def key(self, made: ChoiceQuestion) -> str:
        return made.text

    def slots(self, made: ChoiceQuestion) -> Mapping[str, str | int]:
        return {"question": made.text, "options": list_options(made.options)}

    def metadata(self, made: ChoiceQuestion) -> dict[str, JsonValue]:
        return {"topic": made.topic}

    def fault(self, answer: str, made: ChoiceQuestion) -> str:
        return find_choice_fault(answer, self.solution(made))

    def solution(self, made: ChoiceQuestion) -> str:
        return LETTERS[made.right]
