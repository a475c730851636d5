"""Rows of preference data sets: which answer is better, which rows are left out, and that no position pays."""

from collections import Counter

import pytest
from pydantic import JsonValue, ValidationError

from app.domain.tasks import LEFT_OUT, Dataset
from app.domain.values import Frozen
from app.envs.pairwise_judgement.environment import PairwiseJudgement, PairwiseJudgementParams
from app.envs.pairwise_judgement.pairs import PairRow, PreferenceRow, RatedRow, RowPairs, StrengthRow
from tests.support.tables import read_table

CHAT: JsonValue = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Yes?"}]


def _dataset(*rows: PairRow) -> Dataset[PairRow]:
    return Dataset(name="default", origin="acme/pairs", digest="d", splits={"train": rows})


def _answer(text: str) -> list[JsonValue]:
    return [*CHAT, {"role": "user", "content": "Name a prime."}, {"role": "assistant", "content": text}]  # type: ignore[misc]


class Tables(Frozen):
    """The tables of pair_rows.yaml, which says what each holds."""

    better: tuple[tuple[PreferenceRow | StrengthRow, str, str, str], ...]
    left_out: tuple[tuple[dict[str, JsonValue], str], ...]


TABLES = read_table(__file__, "pair_rows.yaml", Tables)


@pytest.mark.parametrize(
    ("row", "context", "better", "worse"),
    [
        *TABLES.better,
        (
            PreferenceRow.model_validate({"chosen": _answer("7"), "rejected": _answer("9"), "messages": CHAT}),
            "user: Hi.\n\nassistant: Yes?\n\nuser: Name a prime.",
            "7",
            "9",
        ),
    ],
)
def test_the_preferred_answer_is_the_better_one(
    row: PreferenceRow | StrengthRow, context: str, better: str, worse: str
) -> None:
    asked = row.question
    by_verdict = asked.answers if asked.verdict == "A" else asked.answers[::-1]
    assert (asked.context, by_verdict) == (context, (better, worse))


@pytest.mark.parametrize(("columns", "reason"), TABLES.left_out)
def test_rows_without_a_preference_are_left_out(columns: dict[str, JsonValue], reason: str) -> None:
    with pytest.raises(ValidationError) as left_out:
        PreferenceRow.model_validate(columns)
    assert [(one["type"], one["msg"]) for one in left_out.value.errors()] == [(LEFT_OUT, reason)]


def test_a_row_without_a_prompt_is_broken() -> None:
    with pytest.raises(ValidationError, match="there is no prompt"):
        PreferenceRow(chosen="a", rejected="b")


def test_of_rated_answers_two_that_follow_each_other_are_compared_and_none_twice() -> None:
    rated = [("p", 1), ("p", 3), ("p", 0), ("q", 2), ("q", 2), ("r", 4), ("s", 0), ("s", 1)]
    rows = [
        RatedRow(prompt=prompt, response=f"{place}", helpfulness=rating) for place, (prompt, rating) in enumerate(rated)
    ]
    pairs = RowPairs(_dataset(*rows))
    found = [pairs.get_question("train", place) for place in range(pairs.count_pairs("train"))]
    better = [asked.answers["AB".index(asked.verdict)] for asked in found]
    assert ([asked.context for asked in found], better) == (["p", "s"], ["1", "7"])


def test_the_text_of_a_pair_decides_its_places_so_none_of_them_pays() -> None:
    rows = [PreferenceRow(prompt=f"Name number {n}.", chosen=f"{n}", rejected=f"{n + 1}") for n in range(2_000)]
    counted = Counter(row.question.verdict for row in rows)
    again = Counter(row.question.verdict for row in rows)
    assert (counted == again, 900 < counted["A"] < 1_100) == (True, True)


def test_a_task_has_as_many_rows_as_pairs_and_hides_what_is_right() -> None:
    rows = [PreferenceRow(prompt=f"Q{n}.", chosen=f"good {n}", rejected=f"bad {n}") for n in range(7)]
    environment = PairwiseJudgement({"default": _dataset(*rows)})
    params = PairwiseJudgementParams(pairs=3)
    tasks = [environment.task("train", index, params) for index in range(environment.size("train", params) or 0)]
    prompts = [str(task.messages[0].content) for task in tasks]
    assert [[n for n in range(7) if f"Q{n}." in prompt and f"good {n}" in prompt] for prompt in prompts] == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    assert ["good" in str(task.reference) for task in tasks] == [False, False]
    assert environment.size("test", params) == 0
