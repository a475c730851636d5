"""Cards come in and go out without loss, in every version and container; so do sheets."""

import json
from collections.abc import Callable, Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from app.characters.cards.files import embed_card, read_bytes
from app.characters.cards.formats import SPECS, Version
from app.characters.cards.lorebooks import read_lorebook, write_lorebook
from app.characters.cards.sheets import NATIVE, SheetNaming, build_card, dump_sheet, import_document
from app.characters.loading import parse_model, read_sheet
from app.characters.schema import CharacterSheet
from app.domain.worlds import Lorebook, LoreEntry
from app.toolkit.templates import find_packaged_folder
from tests.support.cards import BOOK_V2, BOOK_V3, V1, V2, V3, Fields, archive, image
from tests.support.tiers import examples

HOB = read_sheet(find_packaged_folder("character_sheets") / "hob_tarrant.yaml")
CARDS = {"V1": V1, "V2": V2, "V3": V3}
BOTH: tuple[Version, ...] = ("V2", "V3")


def sheet_of(card: JsonValue) -> CharacterSheet:
    content = import_document(card, SheetNaming()).content
    assert isinstance(content, CharacterSheet)
    return content


def data_of(card: JsonValue) -> Fields:
    assert isinstance(card, dict)
    data = card["data"]
    assert isinstance(data, dict)
    return data


def with_data(card: Fields, **changes: JsonValue) -> Fields:
    return {**card, "data": {**data_of(card), **changes}}


def stored(sheet: CharacterSheet) -> CharacterSheet:
    """As its file gives it back."""
    return parse_model(dump_sheet(sheet), "sheet.yaml", CharacterSheet)


CONTAINERS: Mapping[str, Callable[[bytes], bytes]] = {
    "JSON": lambda card: card,
    "PNG chara": lambda card: embed_card(image(), "a.png", "chara", card),
    "PNG ccv3": lambda card: embed_card(image(), "a.png", "ccv3", card),
    "CHARX": lambda card: archive([("card.json", card)]),
}


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("version", CARDS)
def test_a_card_comes_back_as_it_was(version: str, container: str) -> None:
    file = CONTAINERS[container](json.dumps(CARDS[version], ensure_ascii=False).encode())
    sheet = stored(sheet_of(read_bytes(file, "card").value))
    assert json.dumps(build_card(sheet)) == json.dumps(CARDS[version])


@pytest.mark.parametrize("to", BOTH)
@pytest.mark.parametrize("version", CARDS)
def test_a_card_of_another_version_brings_the_first_one_back(version: str, to: Version) -> None:
    sheet = sheet_of(CARDS[version])
    card = build_card(sheet, to)
    assert (card["spec"], card["spec_version"]) == SPECS[to]
    assert (sheet_of(card), build_card(sheet_of(card), to)) == (sheet, card)


@pytest.mark.parametrize("to", [None, *BOTH])
def test_a_sheet_comes_back_as_it_was(to: Version | None) -> None:
    book = Lorebook(
        entries=(
            LoreEntry(id="a", content="b", keys=("/c/i", "d"), regex=True, priority=2, scan_depth=3, whole_words=True),
            LoreEntry(id="e", content="f", keys=("g.",), regex=True, prevent_recursion=True, exclude_recursion=True),
        )
    )
    sheet = HOB.model_copy(update={"lorebook": book})
    card = json.loads(json.dumps(build_card(sheet, to)))
    assert (sheet_of(card), stored(sheet_of(card))) == (sheet, sheet)


REQUIRED = {
    "V2": {*data_of(V2)} - {"character_book", "unheard_of"},
    "V3": {*data_of(V2)} - {"character_book", "unheard_of"} | {"group_only_greetings"},
}


@pytest.mark.parametrize("version", BOTH)
def test_a_sheet_that_never_was_a_card_has_every_field_that_must_be_there(version: Version) -> None:
    data = data_of(build_card(HOB, version))
    assert {*data} == REQUIRED[version]
    assert (data["name"], data["first_mes"], str(data["mes_example"]).count("<START>")) == (
        "Hob Tarrant",
        HOB.scenario.greeting,
        len(HOB.voice.examples),
    )
    shown = json.dumps({name: value for name, value in data.items() if name != "extensions"})
    hidden = [*(secret.text for secret in HOB.secrets), *HOB.probes.gold_facts, HOB.meta.notes]
    assert [text for text in hidden if json.dumps(text)[1:-1] in shown] == []


def test_what_was_changed_in_the_sheet_is_in_the_card_and_the_rest_is_as_it_was() -> None:
    sheet = sheet_of(V2)
    assert sheet.lorebook is not None
    first, second = sheet.lorebook.entries
    added = LoreEntry(id="new", content="Oil.", keys=("oil",))
    entries = (first.model_copy(update={"keys": ("lantern",)}), second, added)
    changed = sheet.model_copy(
        update={
            "core": sheet.core.model_copy(update={"personality": "sour"}),
            "lorebook": sheet.lorebook.model_copy(update={"entries": entries, "token_budget": 50}),
        }
    )
    data, before = data_of(build_card(changed)), data_of(V2)
    book = data["character_book"]
    assert isinstance(book, dict)
    given = book["entries"]
    assert isinstance(given, list)
    assert isinstance(given[0], dict)
    assert {name for name in before if data[name] != before[name]} == {"personality", "character_book", "extensions"}
    assert (data["personality"], book["token_budget"], book["extensions"]) == ("sour", 50, BOOK_V2["extensions"])
    raw = BOOK_V2["entries"]
    assert isinstance(raw, list)
    assert isinstance(raw[0], dict)
    assert (given[1], given[0]["keys"], given[0]["comment"], given[0]["content"]) == (
        raw[1],
        ["lantern"],
        raw[0]["comment"],
        raw[0]["content"],
    )
    assert sheet_of(build_card(changed)) == changed


def test_an_empty_field_of_another_tool_costs_no_embedded_sheet() -> None:
    voice = HOB.voice.model_copy(update={"examples": ()})
    sheet = HOB.model_copy(update={"voice": voice, "scenario": HOB.scenario.model_copy(update={"greeting": None})})
    read = sheet_of(with_data(build_card(sheet), persona=""))
    assert read.model_copy(update={"meta": HOB.meta}) == sheet


def test_what_another_tool_changed_in_the_card_is_in_the_sheet() -> None:
    card = build_card(HOB, "V2")
    edited = with_data(card, scenario="{{char}} mends a net.", creator_notes="Mine.", tags=["net"])
    result = import_document(edited, SheetNaming())
    sheet = sheet_of(edited)
    without = {name: value for name, value in data_of(edited).items() if name != "extensions"}
    assert sheet.model_copy(update={"meta": HOB.meta, "scenario": HOB.scenario}) == HOB
    assert (sheet.scenario.situation, sheet.scenario.greeting, sheet.meta.tags, sheet.meta.licence) == (
        "Hob Tarrant mends a net.",
        HOB.scenario.greeting,
        ("net",),
        HOB.meta.licence,
    )
    assert sheet.meta.extensions["character_card/original"] == {**edited, "data": {**without, "extensions": {}}}
    assert [one.field for one in result.report.mapped] == [f"data.extensions.{NATIVE}", "data.scenario", "data.tags"]
    assert data_of(build_card(sheet))["creator_notes"] == "Mine."


def test_a_name_that_another_tool_changed_is_changed_wherever_the_card_has_it() -> None:
    sheet = sheet_of(V2).model_copy(update={"output": HOB.output})
    edited = with_data(build_card(sheet), name="Wren")
    again = import_document(edited, SheetNaming(id="wren")).content
    assert isinstance(again, CharacterSheet)
    assert (again.id, again.identity.name, again.scenario.situation, again.output, again.meta.world) == (
        "wren",
        "Wren",
        "Wren stands at the lamp with the one before you.",
        HOB.output,
        "mara_quill",
    )


def test_a_changed_card_of_the_first_version_goes_out_as_the_second() -> None:
    sheet = sheet_of(V1).model_copy(update={"output": HOB.output})
    card = build_card(sheet)
    data = data_of(card)
    assert (card["spec"], {name: data[name] for name in V1}, sheet_of(card)) == ("chara_card_v2", V1, sheet)


def test_a_book_that_was_not_changed_is_as_it_was_beside_what_was() -> None:
    sheet = sheet_of(V2).model_copy(update={"output": HOB.output})
    assert data_of(build_card(sheet))["character_book"] == BOOK_V2


@pytest.mark.parametrize(
    "book",
    [
        {"spec": "lorebook_v3", "data": BOOK_V3},
        BOOK_V2,
        {"entries": {"0": {"uid": 0, "key": ["a"], "keysecondary": [], "content": "@@depth 1\nb", "sticky": 2}}},
    ],
)
def test_a_lorebook_comes_back_as_it_was(book: Fields) -> None:
    read, _ = read_lorebook(book)
    assert write_lorebook(Lorebook.model_validate_json(read.model_dump_json())) == book


def test_a_lorebook_that_was_changed_is_written_in_the_third_form() -> None:
    read, _ = read_lorebook(BOOK_V2)
    changed = read.model_copy(update={"name": "Lanterns"})
    again = read_lorebook(write_lorebook(changed))[0]
    assert again.model_copy(update={"extensions": {}}) == changed.model_copy(update={"extensions": {}})


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    ["{{user}}: a\n{{char}}: b", "<START>", "@@depth 4\nx", "{{random:a,b}}", "{{// x}}", "/a(b|c)/i", "'\"\n: - #"]
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(TEXT, inside, max_size=3),
    max_leaves=6,
)
ENTRIES = st.fixed_dictionaries(
    {"keys": st.lists(TEXT, max_size=3), "content": TEXT, "extensions": st.dictionaries(TEXT, ANY, max_size=2)},
    optional={
        "enabled": st.booleans(),
        "insertion_order": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "use_regex": st.booleans(),
        "selective": st.booleans() | st.none(),
        "secondary_keys": st.lists(TEXT, max_size=2),
        "id": st.integers() | TEXT,
        "position": st.sampled_from(["before_char", "after_char"]),
        "priority": st.integers() | st.none(),
        "x": ANY,
    },
)
BOOKS = st.fixed_dictionaries({"entries": st.lists(ENTRIES, max_size=3)}, optional={"scan_depth": st.integers()})
DATA = st.fixed_dictionaries(
    {"name": TEXT.filter(lambda name: any(map(str.isalnum, name)))},
    optional={
        **dict.fromkeys(("description", "personality", "scenario", "first_mes", "mes_example", "creator_notes"), TEXT),
        **dict.fromkeys(("system_prompt", "nickname", "creator", "character_version"), TEXT),
        **dict.fromkeys(("tags", "alternate_greetings"), st.lists(TEXT, max_size=3)),
        "extensions": st.dictionaries(TEXT, ANY, max_size=3),
        "character_book": BOOKS,
        "x": ANY,
    },
)


@settings(max_examples=examples(100), deadline=None)
@given(data=DATA, version=st.sampled_from(BOTH), outside=st.dictionaries(TEXT, ANY, max_size=2))
def test_any_card_comes_back(data: Fields, version: Version, outside: Fields) -> None:
    spec, spec_version = SPECS[version]
    card: Fields = {**outside, "spec": spec, "spec_version": spec_version, "data": data}
    sheet = sheet_of(read_bytes(json.dumps(card).encode(), "card.json").value)
    converted = build_card(sheet, "V3" if version == "V2" else "V2")
    assert (build_card(stored(sheet)), sheet_of(json.loads(json.dumps(converted)))) == (card, sheet)
