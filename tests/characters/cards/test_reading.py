"""What of a character card a sheet holds, what no prompt shows, and what is refused."""

import asyncio
import json
from itertools import pairwise
from operator import attrgetter
from typing import Any

import pytest
from pydantic import JsonValue

from app.characters.cards.sheets import ORIGINAL, SheetNaming, build_card, build_slug, import_document
from app.characters.loading import read_scenes
from app.characters.schema import CharacterSheet, VoiceExample, build_judge_view
from app.domain.errors import GatewayError
from app.domain.scores import Score
from app.domain.tasks import Completion
from app.domain.values import Frozen
from app.domain.worlds import Lorebook, LoreEntry
from app.envs.npc_arena.environment import PACKAGED_SCENES, NpcArena, NpcArenaParams
from app.ports.environment import Tools
from tests.envs.npc_arena.test_npc_arena import ScriptedPanel
from tests.support.cards import V1, V2, V3, Fields
from tests.support.tables import read_table

FOREIGN = read_table(__file__, "foreign.yaml", dict[str, Any])
ORDERS = "the author's instructions to a model; not used in any prompt"

BROKEN: JsonValue = {
    "meta": {
        **{name: "x" for name in ("id", "licence", "genre", "world", "summary")},
        "schema_version": 1,
        "extensions": {ORIGINAL: {**V1, "name": ""}},
    },
    "identity": {"name": "X"},
}


def sheet_of(card: Fields, language: str = "en") -> CharacterSheet:
    content = import_document(card, SheetNaming(language=language)).content
    assert isinstance(content, CharacterSheet)
    return content


def data_of(card: Fields) -> Fields:
    data = card["data"]
    assert isinstance(data, dict)
    return data


def of_v2(**changes: JsonValue) -> Fields:
    return {**V2, "data": {**data_of(V2), **changes}}


def arena_of(sheet: CharacterSheet) -> NpcArena:
    return NpcArena([sheet], read_scenes(PACKAGED_SCENES))


class Tables(Frozen):
    """The tables of reading.yaml, which says what each holds."""

    talk: tuple[tuple[str, tuple[tuple[str, str], ...], str | None], ...]
    slugs: tuple[tuple[str, str], ...]
    refused: tuple[tuple[JsonValue, str], ...]
    kept: dict[str, str]
    odd: tuple[tuple[dict[str, JsonValue], dict[str, object], str], ...]


TABLES = read_table(__file__, "reading.yaml", Tables)


def test_every_field_that_a_sheet_has_is_read() -> None:
    sheet = sheet_of(V3)
    wanted = read_table(__file__, "mara_quill.yaml", dict[str, Any])
    without: dict[str, set[str]] = {"meta": {"extensions"}}
    assert sheet.model_copy(update={"lorebook": None}).model_dump(
        mode="json", exclude=without
    ) == CharacterSheet.model_validate(wanted).model_dump(mode="json", exclude=without)
    assert (sheet.meta.extensions, [entry.id for entry in (sheet.lorebook or Lorebook()).entries]) == (
        {ORIGINAL: V3},
        ["one", "2"],
    )


def test_the_report_names_every_field() -> None:
    report = import_document(V3, SheetNaming()).report
    fields = [*(one.field for one in report.mapped), *(one.field for one in report.kept)]
    named = {field.removeprefix("data.").split(".")[0] for field in fields}
    assert named == {*data_of(V3), "beside"}
    assert {one.field.removeprefix("data."): one.why for one in report.kept if "[]" not in one.field} == TABLES.kept
    assert report.assumed == ("the licence is unknown: ask the card's author before you redistribute the sheet",)


@pytest.mark.parametrize("card", [V1, V2, V3], ids=["V1", "V2", "V3"])
def test_no_prompt_shows_notes_for_people_or_a_strangers_orders(card: Fields) -> None:
    sheet = sheet_of(card)
    arena = arena_of(sheet)
    shown = [json.dumps(build_judge_view(sheet))]
    shown += [
        arena.task("train", index, NpcArenaParams()).model_dump_json()
        for index in range(arena.size("train", NpcArenaParams()))
    ]
    hidden = ("NOTES-FOR-PEOPLE", "ORDERS-", "never shown")
    assert ([word for text in shown for word in hidden if word in text], len(shown) > 10) == ([], True)


def test_a_prompt_of_a_card_has_no_gaps_and_no_names_left_open() -> None:
    prompt = arena_of(sheet_of(V2)).task("train", 0, NpcArenaParams()).messages[0].content or ""
    lines = prompt.splitlines()
    gaps = [
        (line, after)
        for line, after in pairwise(lines)
        if (not line and not after.startswith("#")) or line.endswith((": ", ", ,", ": .")) or "None" in line
    ]
    assert (gaps, "{{char}}" in prompt, "{{user}}" in prompt, "" in lines) == ([], False, False, True)


def test_a_card_can_be_judged_by_the_generic_scenes() -> None:
    arena = arena_of(sheet_of(V2))
    task = arena.task("test", 0, NpcArenaParams())
    panel = ScriptedPanel()
    scores = asyncio.run(arena.score(task, [Completion(text="Hm."), Completion(text="Sit.")], Tools(panel=panel)))
    assert (
        [score.reward for score in scores],
        isinstance(scores[0], Score),
        panel.cases[0].document["character_sheet"],
    ) == (
        [0.0, 0.1],
        True,
        {**build_judge_view(arena.sheets[0]), "scenario": {"greeting": arena.sheets[0].scenario.greeting}},
    )


@pytest.mark.parametrize(
    ("examples", "expected", "rest"),
    [*TABLES.talk, ("<START>\n{{user}}: a\n{{char}}: " + "b" * 4001, (), "They: a\nYou: " + "b" * 4001)],
)
def test_talk_is_read_as_exchanges_where_it_goes_to_and_fro(
    examples: str, expected: tuple[tuple[str, str], ...], rest: str | None
) -> None:
    voice = sheet_of(of_v2(mes_example=examples)).voice
    assert (voice.examples, voice.dialogue) == (
        tuple(VoiceExample(player=player, reply=reply) for player, reply in expected),
        rest,
    )


def test_what_grows_too_long_by_a_name_is_kept_only() -> None:
    card = of_v2(name="x" * 100, mes_example="{{user}}: Hi\n{{char}}: " + "{{char}}" * 50, tags=["", "y" * 121, "z"])
    report = import_document(card, SheetNaming()).report
    said = {one.field: one.why for one in report.kept if one.field in ("data.mes_example", "data.tags")}
    assert (sheet_of(card).voice.examples, sheet_of(card).meta.tags, said) == (
        (),
        ("z",),
        {
            "data.mes_example": "an exchange is empty or too long after names are filled in",
            "data.tags": "empty tags and tags longer than 120 characters are not used",
        },
    )


def test_the_words_for_the_player_are_those_of_the_language() -> None:
    sheet = sheet_of(of_v2(first_mes="Da bist {{user}}.", scenario="{{user}}'s Haus"), "de")
    assert (sheet.scenario.greeting, sheet.scenario.situation, sheet.voice.language) == (
        "Da bist du.",
        "their Haus",
        "de",
    )


@pytest.mark.parametrize(("name", "expected"), [*TABLES.slugs, ("a" * 500, "a" * 48)])
def test_names_become_ids_that_stay_in_their_folder(name: str, expected: str) -> None:
    assert build_slug(name) == expected


@pytest.mark.parametrize(
    ("card", "field"), [*TABLES.refused, (of_v2(name=None), "data.name"), (of_v2(name={}), "data.name")]
)
def test_a_card_without_a_name_is_refused(card: JsonValue, field: str) -> None:
    with pytest.raises(GatewayError) as caught:
        import_document(card, SheetNaming())
    assert (caught.value.field, caught.value.detail.startswith(f"{field}: ")) == (field, True)


PLAIN: Fields = {"spec": "chara_card_v2", "spec_version": "2.0", "data": {"name": "Nella", "description": "Dry."}}


@pytest.mark.parametrize(
    ("changes", "becomes", "said"),
    [
        *TABLES.odd,
        (
            {"description": "y" * 40_001},
            {"core.description": "y" * 40_000},
            "data.description: what stands behind 40000 characters",
        ),
        (
            {"alternate_greetings": ["x" * 40_001, "y"]},
            {"scenario.greetings": ["x" * 40_000, "y"]},
            "data.alternate_greetings: what stands behind 40000 characters",
        ),
        (
            {"character_book": [{"keys": ["a"], "content": "b"}]},
            {"lorebook": Lorebook(entries=(LoreEntry(id="1", content="b", keys=("a",), position="after_character"),))},
            "data.character_book: a list is read as a lorebook's entries",
        ),
        (
            {"character_book": {"entries": {"0": {"key": "a", "content": "b", "position": 0}}, "scan_depth": "4"}},
            {"lorebook": Lorebook(scan_depth=4, entries=(LoreEntry(id="1", content="b", keys=("a",)),))},
            "data.character_book.scan_depth: text is read as a number",
        ),
    ],
)
def test_one_odd_field_refuses_no_card(changes: Fields, becomes: dict[str, object], said: str) -> None:
    card: Fields = {**PLAIN, "data": {**data_of(PLAIN), **changes}}
    sheet, report = sheet_of(card), import_document(card, SheetNaming()).report
    read = {path: attrgetter(path)(sheet) for path in becomes}
    found = {path: [*value] if isinstance(value, tuple) else value for path, value in read.items()}
    notes = [f"{one.field}: {one.how}" for one in report.mended]
    notes += [f"{one.field}: {one.why}" for one in report.dropped]
    assert (found, said in notes) == (becomes, True), notes
    assert (sheet.meta.extensions[ORIGINAL], build_card(sheet)) == (card, card)


def test_a_broken_sheet_in_a_card_leaves_the_card() -> None:
    report = import_document(of_v2(extensions={"npc_arena/sheet": BROKEN}), SheetNaming()).report
    said = "the original card is invalid: name: is missing"
    assert [(one.field, one.why) for one in report.dropped] == [("data.extensions.npc_arena/sheet", said)]


def test_each_field_is_named_even_if_it_is_empty() -> None:
    empty: Fields = {**dict.fromkeys(V1, ""), "name": "Nella", "system_prompt": "", "tags": [], "extensions": {}}
    report = import_document({**PLAIN, "data": empty}, SheetNaming()).report
    fields = [*(one.field for one in report.mapped), *(one.field for one in report.kept)]
    assert sorted(fields) == sorted(f"data.{name}" for name in empty)


@pytest.mark.parametrize("name", FOREIGN["characters"])
def test_characters_of_other_tools_are_read_by_their_names(name: str) -> None:
    case = FOREIGN["characters"][name]
    result = import_document(case["file"], SheetNaming())
    assert isinstance(result.content, CharacterSheet)
    sheet = result.content
    texts = {
        "description": sheet.core.description,
        "situation": sheet.scenario.situation,
        "greeting": sheet.scenario.greeting,
        "greetings": [*sheet.scenario.greetings],
        "reply": next((one.reply for one in sheet.voice.examples), None),
        "lore": [entry.content for entry in (sheet.lorebook or Lorebook()).entries],
    }
    mapped = {one.field for one in result.report.mapped}
    assert ({what: text for what, text in texts.items() if text}, {*case["mapped"]} - mapped) == (case["texts"], set())
    assert (sheet.identity.name, result.report.source, build_card(sheet)) == (
        "Nella",
        name.partition(",")[0],
        case["file"],
    )
    changed = sheet.model_copy(update={"identity": sheet.identity.model_copy(update={"faction": "keepers"})})
    assert sheet_of(build_card(changed)) == changed


@pytest.mark.parametrize("case", FOREIGN["refused"], ids=lambda case: case["says"])
def test_what_is_neither_is_refused_by_its_own_name(case: dict[str, JsonValue]) -> None:
    with pytest.raises(GatewayError) as caught:
        import_document(case["file"], SheetNaming())
    assert str(case["says"]) in caught.value.detail


def test_what_is_nested_too_deep_for_a_sheet_is_left_out() -> None:
    deep: JsonValue = 1
    for _ in range(25):
        deep = [deep]
    report = import_document(of_v2(extensions={"deep": deep}), SheetNaming()).report
    assert [(one.field, one.why) for one in report.dropped] == [
        ("the document", "what is nested deeper than 24 levels")
    ]


def test_control_characters_stay_in_the_original() -> None:
    card = of_v2(name="Ma\x00ra\nQuill\x1b[2J", description="a\x07\r\nb\tc", tags=["x\x00y"])
    sheet = sheet_of(card)
    assert (sheet.identity.name, sheet.core.description, sheet.meta.tags, sheet.meta.extensions[ORIGINAL]) == (
        "Mara Quill[2J",
        "a\nb\tc",
        ("xy",),
        card,
    )


def test_a_newer_card_is_read_as_what_is_known() -> None:
    newer = {**V3, "spec_version": "3.7"}
    report = import_document(newer, SheetNaming()).report
    assert (sheet_of(newer).identity.name, report.assumed[-1]) == (
        "Mara Quill",
        "chara_card_v3 3.7 is a newer version; it is read as V3",
    )


def test_a_sheet_in_a_strangers_card_is_said_to_be_there() -> None:
    native = {**sheet_of(V1).model_dump(mode="json"), "gates": {"disabled": ["repetition"]}}
    report = import_document(of_v2(extensions={"npc_arena/sheet": native}), SheetNaming()).report
    assert (report.source, report.mapped[0].to, report.assumed) == (
        "character card V2 with a sheet",
        "the whole sheet, including fields for judges only",
        ("the sheet disables gates: repetition",),
    )
