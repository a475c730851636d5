"""Rows of each public form become the groups that their authors compare."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.domain.errors import InvalidRequest
from app.evaluation.labelled_groups import LabelledReply, parse_labelled_rows
from tests.support.tables import read_table

ROWS, PLAYED_ROWS = (
    yaml.load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    for name in ("labelled_rows", "role_play")
)


def user(text: str) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}]}


def replies(*labelled: tuple[str, float]) -> tuple[LabelledReply, ...]:
    return tuple(LabelledReply(text=text, label=label) for text, label in labelled)


@pytest.mark.parametrize("given", ROWS, ids=lambda given: given["of"])
def test_a_row_becomes_a_group(given: dict[str, Any]) -> None:
    data = parse_labelled_rows([given["row"]])
    group = data.groups[0]
    wanted = (given["form"], "rlaif", user(given["asked"]), replies(*given["replies"]))
    assert (data.form, group.environment, group.draft, group.replies) == wanted


def test_what_the_authors_leave_out_is_counted() -> None:
    pairs = parse_labelled_rows(
        [
            {"prompt": "p", "chosen": "a", "rejected": "b"},
            {"prompt": "p", "chosen": "a", "rejected": "a"},
            {"prompt": "p", "chosen": "a", "rejected": "b", "score_chosen": 2.0, "score_rejected": 2.0},
        ]
    )
    steered = parse_labelled_rows(
        [
            {"prompt": "c#", "response": "C# is …", "helpfulness": 3, "verbosity": 1},
            {"prompt": "c#", "response": "A language.", "helpfulness": 1, "verbosity": 0},
            {"prompt": "hm", "response": "a", "helpfulness": 2},
            {"prompt": "hm", "response": "b", "helpfulness": 2},
            {"prompt": "one\n<extra_id_1>Assistant\ntwo", "response": "a", "helpfulness": 2},
        ]
    )
    assert (len(pairs.groups), pairs.left_out) == (
        1,
        {"both sides are the same text": 1, "both sides have the same score": 1},
    )
    assert ([group.replies for group in steered.groups], steered.left_out) == (
        [replies(("C# is …", 3), ("A language.", 1))],
        {"a conversation of several turns": 1, "no two replies of the prompt have different ratings": 2},
    )


def test_votes_on_a_pair_are_added_up() -> None:
    """Whichever reply is the first. A tie, a catch and a draw are left out."""
    texts = {"prompt": "p", "response_a": "a", "response_b": "b"}
    swapped = {"prompt": "p", "response_a": "b", "response_b": "a"}
    votes = [("s", "A", texts), ("s", "B", swapped), ("s", "B", texts), ("s", "tie", texts)]
    votes += [("even", "A", texts), ("even", "B", texts)]
    rows = [{"scenario_id": name, "model_a": "m", "model_b": "n", "winner": to, **of} for name, to, of in votes]
    data = parse_labelled_rows([*rows, rows[0] | {"is_catch": True}])
    assert ([(group.id, group.replies) for group in data.groups], data.left_out) == (
        [("s", replies(("a", 2), ("b", 1)))],
        {"a pair that tests the voter": 1, "a tie": 1, "as many votes for one reply as for the other": 2},
    )


def test_who_speaks_is_a_choice_among_profiles() -> None:
    row = {"prompt": "Ann: Hi. Character2: Aye.", "gt": "Bob", "option1": "Cid", "option1_profile": "A clerk."}
    (group,) = parse_labelled_rows([{**row, "option2": "Bob", "option2_profile": "A smith.", "option3": ""}]).groups
    preference = "Prefer the character who says the words of Character2 in this dialogue."
    wanted = user(row["prompt"]) | {"params": {"preference": preference}}
    assert (group.draft, group.replies) == (wanted, replies(("Cid\nA clerk.", 0), ("Bob\nA smith.", 1)))


def test_responses_to_one_prompt_are_compared_where_there_are_several() -> None:
    row = {"prompt": "p", "response": "a", "follow_instruction_list": [True]}
    several = parse_labelled_rows([row, {**row, "response": "b", "follow_instruction_list": [False]}])
    assert [group.replies for group in several.groups] == [replies(("a", 1), ("b", 0))]


@pytest.mark.parametrize("given", PLAYED_ROWS, ids=lambda given: given["of"])
def test_a_line_of_role_play_becomes_a_scene_with_its_dialogue(given: dict[str, Any]) -> None:
    group = parse_labelled_rows([given["row"]]).groups[0]
    sheet = group.draft["sheet"]
    assert isinstance(sheet, dict)
    (part,) = given["sheet"]
    wanted = ("npc_arena", given["id"], replies(given["reply"]), given["sheet"][part], given["scene"])
    assert (group.environment, group.id, group.replies, sheet[part], group.draft["scene"]) == wanted


REFUSED = read_table(__file__, "refused_rows.yaml", tuple[tuple[list[dict[str, object]], str], ...])


@pytest.mark.parametrize(("rows", "words"), REFUSED)
def test_rows_that_cannot_be_read_say_where(rows: list[dict[str, object]], words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_labelled_rows(rows)
    assert caught.value.detail.startswith(words), caught.value.detail
