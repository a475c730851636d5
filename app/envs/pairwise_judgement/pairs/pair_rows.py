"""Rows of preference data sets, as pairs of which one answer is better.

    PreferenceRow      prompt, chosen, rejected: UltraFeedback-binarized, RewardBench (1 and 2), and data for DPO
    StrengthRow        prompt, response_1, response_2, preference_strength: the preferences of HelpSteer2 and 3
    RatedRow           prompt, response, helpfulness: HelpSteer2, where rows of one prompt follow each other

What people or models preferred is taken as it is. Rows without a preference are left out.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.domain.digests import digest
from app.domain.sources import Dataset, leave_out
from app.domain.values import Split
from app.envs.pairwise_judgement.pairs.pair_questions import PairQuestion, Verdict
from app.toolkit.seeded import SeededRandom

ASKS = "Which answer is the better reply to the last message?"
TIES = "Ties"
"""A subset of RewardBench 2 in which several answers are right."""

Turn = Mapping[str, Any]


class _PublishedRow(BaseModel):
    model_config = ConfigDict(frozen=True)


def _read_answer(value: object) -> object:
    """Of a whole conversation, the last message answers; of a list of texts, the first is taken."""
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        last = value[-1]
        return last.get("content") if isinstance(last, Mapping) else value[0]
    return value


Answer = Annotated[str, BeforeValidator(_read_answer)]


class PreferenceRow(_PublishedRow):
    prompt: str | tuple[Turn, ...] = ""
    chosen: Answer
    rejected: Answer
    subset: str = ""
    score_chosen: float | None = None
    score_rejected: float | None = None
    conversation: Annotated[tuple[Turn, ...], Field(alias="messages")] = ()

    @model_validator(mode="before")
    @classmethod
    def _keep_conversation(cls, row: Any) -> Any:
        """The turns before the last of `chosen` are the conversation, where it is a whole one."""
        chosen = row.get("chosen") if isinstance(row, Mapping) else None
        if isinstance(chosen, Sequence) and chosen and isinstance(chosen[-1], Mapping):
            return {**row, "messages": tuple(chosen[:-1])}
        return {name: value for name, value in row.items() if name != "messages"} if isinstance(row, Mapping) else row

    @model_validator(mode="after")
    def _require_preference(self) -> Self:
        if not self.context:
            raise ValueError("there is no prompt")
        if self.subset == TIES:
            raise leave_out("several of its answers are right")
        if self.chosen.strip() == self.rejected.strip():
            raise leave_out("both answers are the same")
        if self.score_chosen is not None and self.score_chosen == self.score_rejected:
            raise leave_out("both answers have the same score")
        return self

    @property
    def context(self) -> str:
        return _write_conversation(self.conversation or self.prompt)

    @property
    def question(self) -> PairQuestion:
        return build_question(self.context, self.chosen, self.rejected, self.subset)


class StrengthRow(_PublishedRow):
    """`preference_strength` is -3 to 3; above 0 the second answer is better."""

    prompt: Annotated[str, Field(min_length=1)]
    response_1: str
    response_2: str
    preference_strength: int

    @model_validator(mode="after")
    def _require_preference(self) -> Self:
        if self.preference_strength == 0 or self.response_1.strip() == self.response_2.strip():
            raise leave_out("neither answer is preferred")
        return self

    @property
    def question(self) -> PairQuestion:
        better, worse = self.response_2, self.response_1
        if self.preference_strength < 0:
            better, worse = worse, better
        return build_question(_write_conversation(self.prompt), better, worse, "")


class RatedRow(_PublishedRow):
    """One answer with its rating; the next row may have another answer to the same prompt."""

    prompt: Annotated[str, Field(min_length=1)]
    response: str
    helpfulness: float

    def compare(self, other: "RatedRow") -> PairQuestion | None:
        """None for another prompt, for equal ratings and for equal answers."""
        same = self.prompt == other.prompt and self.response.strip() != other.response.strip()
        if not same or self.helpfulness == other.helpfulness:
            return None
        better, worse = (self, other) if self.helpfulness > other.helpfulness else (other, self)
        return build_question(_write_conversation(self.prompt), better.response, worse.response, "")


PairRow = PreferenceRow | StrengthRow | RatedRow


class RowPairs:
    """The pairs of a data set, by split."""

    def __init__(self, dataset: Dataset[PairRow]) -> None:
        """Reads every row where two of them make a pair."""
        self._rows = dataset.splits
        self._places = {split: _find_pairs(rows) for split, rows in dataset.splits.items()}

    def count_pairs(self, split: Split) -> int:
        return len(self._places.get(split, ()))

    def get_question(self, split: Split, place: int) -> PairQuestion:
        rows, index = self._rows[split], self._places[split][place]
        row = rows[index]
        if not isinstance(row, RatedRow):
            return row.question
        question = row.compare(_as_rated(rows[index + 1]))
        if question is None:
            raise ValueError("these rows were a pair when they were read")
        return question


def _find_pairs(rows: Sequence[PairRow]) -> Sequence[int]:
    """Indexes of rows, of two that are compared that of the first. No row is in two pairs."""
    if not rows or not isinstance(rows[0], RatedRow):
        return range(len(rows))
    found: list[int] = []
    for index in range(len(rows) - 1):
        taken = bool(found) and found[-1] == index - 1
        if not taken and _as_rated(rows[index]).compare(_as_rated(rows[index + 1])) is not None:
            found.append(index)
    return found


def _as_rated(row: PairRow) -> RatedRow:
    if not isinstance(row, RatedRow):
        raise TypeError("a data set has rows of one form")
    return row


def build_question(context: str, better: str, worse: str, kind: str) -> PairQuestion:
    """Which answer is A is left to the text of the pair."""
    matter = digest([context, better, worse])
    verdict: Verdict = SeededRandom(matter).one(("A", "B"))
    answers = (better, worse) if verdict == "A" else (worse, better)
    return PairQuestion(
        kind=kind or "preference", context=context, asks=ASKS, answers=answers, verdict=verdict, matter=matter
    )


def _write_conversation(turns: str | Sequence[Turn]) -> str:
    if isinstance(turns, str):
        return turns.strip()
    if len(turns) == 1:
        return str(turns[0].get("content") or "").strip()
    return "\n\n".join(f"{turn.get('role', 'user')}: {turn.get('content') or ''}" for turn in turns).strip()
