"""A form of ten fields writes a sheet without errors, and reads back what it wrote."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.characters.schema import LANGUAGES, suggest_language
from app.characters.sheet_checks import ScenesOutline, SheetCheckContext, build_source, check_sources
from app.characters.sheet_forms import (
    QUESTIONS,
    RATINGS,
    ExampleLine,
    FormFault,
    SheetForm,
    find_form_faults,
    name_character,
    name_form_field,
    read_sheet_form,
    write_sheet,
)
from app.domain.errors import InvalidRequest, TooLarge
from app.judges.gate_checks import SCRIPTS
from app.judges.gates import WORD_GATE_LANGUAGES
from app.toolkit.templates import find_packaged_folder
from tests.support.tables import read_table

LISTS = ("wants", "knows", "must_not_know", "limits")
TYPED = st.text(st.characters(codec="utf-8"), max_size=60)
SAID = TYPED.filter(lambda text: bool(text.strip()))
LINE = st.builds(ExampleLine, player=SAID, reply=SAID) | st.sampled_from(QUESTIONS).map(
    lambda question: ExampleLine(player=question)
)
LINES = st.lists(LINE, min_size=3, max_size=3).map(tuple)
FORMS = st.builds(
    SheetForm,
    name=SAID,
    who=SAID,
    voice=TYPED,
    lines=LINES,
    **dict.fromkeys(LISTS, TYPED),
    language=st.sampled_from(["en", "de", "no", "xx"]),
    rating=st.sampled_from(RATINGS),
)


@given(FORMS)
@settings(max_examples=300)
def test_every_filled_form_writes_a_sheet_without_errors_and_reads_it_back(form: SheetForm) -> None:
    character = name_character(form)
    text = write_sheet(form, character)
    result = check_sources([build_source(Path(f"{character}.yaml"), text)], SheetCheckContext())
    read: Any = read_sheet_form(text, character)
    again = SheetForm.model_validate(read["result"])
    assert (find_form_faults(form), result.errors, write_sheet(again, character)) == ((), 0, text)


def test_faults_name_their_fields() -> None:
    form = SheetForm(
        name=" ",
        lines=(ExampleLine(player="", reply="Aye."), ExampleLine(player="Where is the boat?")),
        wants="a\n" * 51,
        limits=f"{'a' * 3000}\n" * 7,
        language="English",
        rating="all",
    )
    fields = ["name", "who", "lines.0.player", "lines.1.reply", "wants", "limits", "language", "rating"]
    assert [one.field for one in find_form_faults(form)] == fields
    labels = ["Name", "Who", "Three example lines", "Three example lines", "Wants", "Limits", "Language", "Rating"]
    assert [one.label for one in find_form_faults(form)] == labels
    with pytest.raises(InvalidRequest, match="name is missing"):
        write_sheet(form, "mara")
    spelled = SheetForm(name="Mara", who="x", **dict.fromkeys(LISTS, ("\x01" * 4000 + "\n") * 5))
    with pytest.raises(TooLarge):
        write_sheet(spelled, "mara")


@pytest.mark.parametrize(
    ("replies", "read"),
    [
        ({2: "No."}, (("Who are you?", ""), ("What brings you here?", ""), ("Can you help me?", "No."))),
        ({0: "Hob.", 2: "No."}, (("Where is it?", "Hob."), ("What brings you here?", ""), ("Can you help me?", "No."))),
        ({0: "Hob."}, (("Where is it?", "Hob."), ("What brings you here?", ""), ("Can you help me?", ""))),
    ],
)
def test_lines_keep_their_order_and_their_questions(replies: dict[int, str], read: tuple[tuple[str, str], ...]) -> None:
    asked = ("Where is it?" if 0 in replies else QUESTIONS[0], *QUESTIONS[1:])
    lines = tuple(ExampleLine(player=asked[at], reply=replies.get(at, "")) for at in range(3))
    found: Any = read_sheet_form(write_sheet(SheetForm(name="Mara", who="x", lines=lines), "mara"), "mara")
    assert tuple((one["player"], one["reply"]) for one in found["result"]["lines"]) == read


def test_fields_of_a_sheet_are_called_as_in_the_form() -> None:
    fields = ("core.goals", "core.goals.0", "voice.examples[1].reply", "voice.markers", "meta.id", "core.goalsome")
    assert [name_form_field(field) for field in fields] == ["Wants", "Wants", "Three example lines", "", "", ""]


def test_a_sheet_that_says_more_than_a_form_holds_is_no_form() -> None:
    text = (find_packaged_folder("character_sheets") / "hob_tarrant.yaml").read_text(encoding="utf-8")
    assert read_sheet_form(text, "hob_tarrant") == {"result": None}


@pytest.mark.parametrize(
    ("who", "added", "is_form"),
    read_table(__file__, "comments.yaml", list[tuple[str, str, bool]]),
)
def test_a_comment_is_more_than_a_form_holds(who: str, added: str, is_form: bool) -> None:
    written = write_sheet(SheetForm(name="Mara", who=who), "mara")
    read: Any = read_sheet_form(written.replace("voice:\n", f"{added}voice:\n"), "mara")
    assert (read["result"] is not None) == is_form


@pytest.mark.parametrize(
    ("word", "said"),
    [*read_table(__file__, "typed_languages.yaml", list[tuple[str, str]]), ("e" * 10**6, "")],
)
def test_what_is_typed_for_a_language_leads_to_its_code(word: str, said: str) -> None:
    faults = find_form_faults(SheetForm(name="Mara", who="x", language=word))
    wanted = f"wanted is a language of two letters, such as `en`{said}"
    assert (suggest_language(word), faults) == (said, () if len(word) == 2 else (FormFault("language", wanted),))


def test_an_unknown_language_is_a_warning_at_its_field() -> None:
    text = write_sheet(SheetForm(name="Mara", who="x", language="jp"), "mara")
    generic = SheetCheckContext(scene_sets=(ScenesOutline(character=None, language="en", kinds=()),))
    found = check_sources([build_source(Path("mara.yaml"), text)], generic).findings
    assert [(one.level, one.message) for one in found if one.field == "voice.language"] == [
        ("warning", "'jp' is no language that gates and judges know; Japanese is `ja`")
    ]


def test_all_languages_that_gates_know_have_names() -> None:
    assert set(SCRIPTS) | set(WORD_GATE_LANGUAGES) <= set(LANGUAGES)
