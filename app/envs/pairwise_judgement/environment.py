"""Judging pairs: say for several pairs which of two answers is better, for a reason that can be checked.

    prompt   1. Passage: The mill was built in 1893, the bridge beside it in 1902. …
             Question: Which answer says nothing but what the passage says?   Answer A: …   Answer B: …      2. …
    reply    <think>A has the year of the bridge …</think> <answer>B, A, A, B</answer>
    reward   1.0   every verdict is right

How a pair was made says which answer is better. Nothing else gives it away: for every pair there is an equally likely
context of the same words in which the other answer is better. Decoys around an answer (assurances, layout, orders to
the judge) are drawn in the same way for both. A task asks for several verdicts and pays only if all are right.

Rows of configured data sets (UltraFeedback, HelpSteer2, RewardBench, data for DPO) replace the pairs: what was
preferred counts as better. `level` then has no effect.

Kinds of pairs, and what is wrong with the worse answer:

- `grounded`: it gives one thing of the passage another thing's year, name or number;
- `character`: it contradicts one line of the speaker's sheet;
- `attribution`: it gives one view to the wrong person;
- `certainty`: it is surer, or less sure, of one thing than its source;
- `tool_call`: one argument was mentioned but not meant;
- `evasion`: it answers something else, truthfully;
- `arithmetic`: it slips, or mixes up two numbers (hard ones may slip twice and be right by luck);
- `code`: it has the output of a program that differs in a character or two;
- `policy`: it decides against the rules, or refuses for a condition that is met;
- `instructions`: it breaks one rule.

The level sets how many facts, steps or rules there are. Over 8,000 pairs, shortcuts such as length, layout, assurance,
words shared with the context and orders to the judge are right for 47 to 53 of 100.

`pairs` sets how many verdicts a task asks for. Guessing earns 0.5 with 1 pair, 0.13 with 3, 0.06 with 4 (the default)
and 0.02 with 6. A judge that is right for 80 of 100 pairs earns 0.80, 0.51, 0.41 and 0.26. If a policy hardly beats
chance, begin with `{"level": "first"}`, which asks for two. To measure a judge, ask for one pair. The rationale never
says which verdict was wrong. There are no ties.
"""

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import BaseModel, Field, JsonValue

from app.domain.tasks import Dataset, Message, Task
from app.domain.values import Frozen, Split, WholeNumber
from app.envs.pairwise_judgement.pairs import (
    DIGESTS,
    KINDS,
    PairQuestion,
    PairRow,
    PreferenceRow,
    RatedRow,
    RowPairs,
    StrengthRow,
    draw_question,
)
from app.ports.environment import FreeReward
from app.toolkit.answers import strip_letter_markup
from app.toolkit.procedural import LEVELS, DatasetEnvironment, DatasetParams, Level, LevelParams, ProceduralEnvironment
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.templates import Phrasings

_BETWEEN_PARTS = re.compile(r"[,;\n][,;\s]{0,29}")
_BETWEEN_LETTERS = re.compile(r"(?<!option)(?<!answer)(?<!choice)(?<!:)\s{1,30}", re.IGNORECASE)


class PairwiseJudgementParams(LevelParams, DatasetParams):
    """The level sets how many statements an answer has (one of them may be wrong), and how often decoys such as
    assurances and orders to the judge surround it."""

    pairs: Annotated[WholeNumber, Field(ge=1, le=6)] = 4
    """Pairs in one task; of level `first` at most 2. Guessing is right in one task of 2 ** `pairs`."""


_FIRST_PAIRS: Final = 2
"""Most pairs of a `first` task."""


class PairSet(Frozen):
    questions: tuple[PairQuestion, ...]


class PairwiseJudgement(DatasetEnvironment[PairRow], ProceduralEnvironment[PairSet, PairwiseJudgementParams]):
    name: ClassVar[str] = "pairwise_judgement"
    version: ClassVar[str] = "3"
    ignores_markup: ClassVar[bool] = True
    levels: ClassVar[tuple[Level, ...]] = LEVELS
    chance: ClassVar[float] = 0.1
    phrasings: ClassVar[Phrasings] = Phrasings.read(Path(__file__).with_name("prompts.yaml"))
    data: ClassVar[Mapping[str, str]] = DIGESTS
    free_rewards: ClassVar[tuple[FreeReward, ...]] = (
        FreeReward(strategy="near_miss_case", share=None, because="A small letter names the same answer."),
    )

    row_forms: ClassVar[tuple[type[BaseModel], ...]] = (PreferenceRow, StrengthRow, RatedRow)

    def __init__(self, datasets: Mapping[str, Dataset[PairRow]] | None = None) -> None:
        super().__init__(datasets)
        self._pairs = {name: RowPairs(dataset) for name, dataset in self.datasets.items()}

    def size(self, split: Split, params: BaseModel) -> int | None:
        dataset = self.find_dataset(params)
        if dataset is None:
            return self.count_own_tasks(split, params)
        return self._pairs[dataset.name].count_pairs(split) // _parse_params(params).pairs

    def build_dataset_task(self, dataset: Dataset[PairRow], split: Split, index: int, params: BaseModel) -> Task:
        """Of pairs that follow each other."""
        count = _parse_params(params).pairs
        positions = range(index * count, (index + 1) * count)
        made = PairSet(
            questions=tuple(self._pairs[dataset.name].get_question(split, position) for position in positions)
        )
        prompt = self.phrasings.say(SeededRandom(f"{made.questions[0].matter} {index}"), **self.slots(made))
        hidden = [asked.model_copy(update={"context": "", "answers": ("", "")}) for asked in made.questions]
        return Task(
            messages=(Message(role="user", content=prompt),),
            metadata=self.metadata(made),
            reference=PairSet(questions=tuple(hidden)).model_dump(mode="json"),
        )

    def make(self, draws: SeededRandom, level: Level, params: PairwiseJudgementParams) -> PairSet:
        """Pairs of different kinds, all of them held out for testing or none, so no pair is in both splits."""
        kinds = draws.some([*KINDS], min(params.pairs, _FIRST_PAIRS) if level == "first" else params.pairs)
        questions = [draw_question(draws, kinds[0], level)]
        for kind in kinds[1:]:
            while is_held_out((other := draw_question(draws, kind, level)).matter) != is_held_out(questions[0].matter):
                pass
            questions.append(other)
        return PairSet(questions=tuple(questions))

    def key(self, made: PairSet) -> str:
        """The first pair decides the split of the task."""
        return made.questions[0].matter

    def slots(self, made: PairSet) -> Mapping[str, str | int]:
        count = len(made.questions)
        written = [_write_question(number, asked) for number, asked in enumerate(made.questions, start=1)]
        return {"pairs": "\n\n".join(written), "count": "one pair" if count == 1 else f"{count} pairs"}

    def kind(self, made: PairSet) -> object:
        return made.questions[0].kind

    def metadata(self, made: PairSet) -> dict[str, JsonValue]:
        return {"kinds": [asked.kind for asked in made.questions]}

    def fault(self, answer: str, made: PairSet) -> str:
        """Does not reveal which verdicts are wrong, or how many."""
        verdicts = _read_verdicts(answer, len(made.questions) + 1)
        if not {"A", "B"}.issuperset(verdicts):
            return "it is no list of the letters A and B"
        if len(verdicts) != len(made.questions):
            return "it has another number of verdicts than there are pairs"
        right = all(verdict == asked.verdict for verdict, asked in zip(verdicts, made.questions, strict=True))
        return "" if right else "not every verdict is right"

    def solution(self, made: PairSet) -> str:
        return ", ".join(asked.verdict for asked in made.questions)


def _parse_params(params: BaseModel) -> PairwiseJudgementParams:
    return PairwiseJudgementParams.model_validate(params, from_attributes=True)


def _read_verdicts(answer: str, most: int) -> list[str]:
    """What stands between commas and lines, or else between blanks, without the markup around each and around all: the
    first `most`, since a long answer may hold thousands."""
    parts = map(strip_letter_markup, _BETWEEN_PARTS.split(strip_letter_markup(answer)))
    each = (one for part in parts for one in ([part] if len(part) < 2 else _BETWEEN_LETTERS.split(part)))
    return [strip_letter_markup(one).upper() for one in islice(each, most)]


def _write_question(number: int, asked: PairQuestion) -> str:
    first, second = asked.answers
    return (
        f"## {number}\n{asked.context}\n\nQuestion: {asked.asks}\n\n"
        f"### {number}, answer A\n{first}\n\n### {number}, answer B\n{second}"
    )
