"""Reading sheets and scenes that are broken or hostile, and who sees what of a sheet."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel, JsonValue, ValidationError

from app.characters.loading import MAX_FILE_BYTES, parse_yaml, read_scenes, read_sheet, read_sheets
from app.characters.scenes import Scene, SceneLine
from app.characters.schema import (
    CharacterSheet,
    LoreFact,
    SheetPart,
    build_character_cards,
    build_judge_view,
    build_policy_view,
    find_audience,
)
from app.domain.errors import GatewayError, InvalidRequest, NotFound, TooLarge
from app.domain.values import Frozen, digest_of_model
from app.toolkit.templates import find_packaged_folder
from tests.support.tables import read_table


class Tables(Frozen):
    """The tables of sheets.yaml, which says what each holds."""

    refused: tuple[tuple[dict[str, object], str], ...]
    hostile: tuple[tuple[str, str | None], ...]
    policy_view: list[str]


TABLES = read_table(__file__, "sheets.yaml", Tables)

SHIPPED = find_packaged_folder("character_sheets") / "hob_tarrant.yaml"


def sheet_data(**changes: JsonValue) -> dict[str, JsonValue]:
    return {**read_sheet(SHIPPED).model_dump(mode="json"), **changes}


def written(folder: Path, name: str, data: JsonValue | str) -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def refusal(path: Path) -> tuple[str, str | None]:
    with pytest.raises(GatewayError) as caught:
        read_sheet(path)
    return caught.value.detail, caught.value.field


def parts() -> Iterator[type[BaseModel]]:
    waiting: list[type[BaseModel]] = [CharacterSheet]
    seen: set[type[BaseModel]] = set()
    while waiting:
        part = waiting.pop()
        if part in seen:
            continue
        seen.add(part)
        yield part
        for field in part.model_fields.values():
            waiting += nested(field.annotation)


def nested(annotation: object) -> list[type[BaseModel]]:
    """A lorebook's fields are not a sheet's: it is marked as a whole."""
    if isinstance(annotation, type) and issubclass(annotation, SheetPart):
        return [annotation]
    return [found for argument in get_args(annotation) for found in nested(argument)]


def test_every_field_of_a_sheet_says_who_may_see_it() -> None:
    unmarked = [
        f"{part.__name__}.{name}"
        for part in parts()
        for name, field in part.model_fields.items()
        if find_audience(field) not in ("policy", "judge", "called_up")
    ]
    assert (unmarked, len(list(parts())) > 15, find_audience(CharacterSheet.model_fields["lorebook"])) == (
        [],
        True,
        "called_up",
    )


def test_the_policy_sees_its_secret_but_not_what_gives_it_away() -> None:
    view = build_policy_view(read_sheet(SHIPPED))
    secrets = view["secrets"]
    assert isinstance(secrets, list)
    assert [sorted(secret) for secret in secrets if isinstance(secret, dict)] == [["id", "reveal_if", "text"]] * 2
    assert sorted(view) == TABLES.policy_view


def test_judges_see_what_the_character_does_not_know_without_the_answers_that_they_are_tested_with() -> None:
    sheet = read_sheet(SHIPPED)
    shown = json.dumps(build_judge_view(sheet))
    assert ("toll bridge" in json.dumps(build_policy_view(sheet)), "toll bridge" in shown) == (False, True)
    assert (
        [exemplar.reply for exemplar in sheet.probes.exemplars if json.dumps(exemplar.reply) in shown],
        all(json.dumps(term) in shown for secret in sheet.secrets for term in secret.leak_terms),
    ) == ([], True)


def test_a_card_says_who_it_is_and_nothing_that_is_hidden() -> None:
    sheet = read_sheet(SHIPPED)
    (card,) = build_character_cards([sheet])
    assert card.model_dump() == {
        "id": "hob_tarrant",
        "name": "Hob Tarrant",
        "genre": "fantasy",
        "world": "drowned_coast",
        "language": "en",
        "role": sheet.identity.role,
        "stance": "good",
        "summary": sheet.meta.summary,
        "held_out": False,
        "digest": digest_of_model(sheet),
    }


def test_the_digest_changes_with_any_field_judge_only_ones_included() -> None:
    sheet = read_sheet(SHIPPED)
    altered = sheet.model_copy(update={"probes": sheet.probes.model_copy(update={"must_not_mention": ("x",)})})
    assert (sheet.digest == read_sheet(SHIPPED).digest, sheet.digest == altered.digest) == (True, False)


@pytest.mark.parametrize(
    ("text", "reason"),
    [*TABLES.hostile, ("[" * 200_000, "line 1: nested deeper than 32 levels"), ("a: " + "9" * 5000 + "\n", None)],
)
def test_hostile_yaml_is_refused_by_name(text: str, reason: str | None) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_yaml(text, "made_up.yaml")
    assert caught.value.detail.startswith("made_up.yaml: ")
    assert reason is None or reason in caught.value.detail


def test_plain_yaml_becomes_json_and_dates_stay_text() -> None:
    assert parse_yaml("a: [1, 2.5, yes, null, 2020-01-02]\nb: {c: 'd'}\n", "x.yaml") == {
        "a": [1, 2.5, True, None, "2020-01-02"],
        "b": {"c": "d"},
    }


@pytest.mark.parametrize(("changes", "field"), TABLES.refused)
def test_a_broken_sheet_names_the_file_and_the_field(tmp_path: Path, changes: dict[str, JsonValue], field: str) -> None:
    detail, named = refusal(written(tmp_path, "hob_tarrant.yaml", sheet_data(**changes)))
    assert (detail.startswith(f"hob_tarrant.yaml: {field}: "), named) == (True, field)


def test_ids_within_a_sheet_are_unique(tmp_path: Path) -> None:
    fact: JsonValue = {"id": "twice", "text": "t"}
    detail, _ = refusal(written(tmp_path, "hob_tarrant.yaml", sheet_data(lore_facts=[fact, fact])))
    assert "lore_facts: the id 'twice' occurs more than once" in detail


def test_files_and_folders_that_hold_no_sheet_are_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(NotFound, match=folder.name):
            read_sheets(folder)
    path = written(tmp_path, "hob_tarrant.yaml", "a: " + "x" * MAX_FILE_BYTES)
    with pytest.raises(TooLarge):
        read_sheet(path)
    path.write_bytes(b"a: \xff\xfe")
    assert refusal(path) == ("hob_tarrant.yaml: not UTF-8 at byte 3", None)
    path.unlink()
    path.mkdir()
    with pytest.raises(InvalidRequest):
        read_sheets(tmp_path)


def test_links_that_leave_the_folder_are_refused_and_links_inside_it_are_not(tmp_path: Path) -> None:
    outside = written(tmp_path, "outside.yaml", sheet_data())
    mounted = tmp_path / "mounted"
    (mounted / "..data").mkdir(parents=True)
    written(mounted / "..data", "hob_tarrant.yaml", sheet_data())
    (mounted / "hob_tarrant.yaml").symlink_to("..data/hob_tarrant.yaml")
    assert [sheet.id for sheet in read_sheets(mounted)] == ["hob_tarrant"]
    (mounted / "wren.yaml").symlink_to(outside)
    with pytest.raises(InvalidRequest, match=r"wren\.yaml: not a regular file in this folder"):
        read_sheets(mounted)


def test_a_scene_id_occurs_once_in_all_files(tmp_path: Path) -> None:
    scene: JsonValue = {"id": "a", "kind": "voice", "split": "train", "player": "Hello?"}
    for name in ("one.yaml", "two.yaml"):
        written(tmp_path, name, {"character": name[:3], "scenes": [scene]})
    with pytest.raises(InvalidRequest, match="the id 'a' occurs more than once"):
        read_scenes(tmp_path)


@pytest.mark.parametrize("speakers", [("npc",), ("player",), ("player", "player"), ("npc", "player")])
def test_a_history_alternates_and_ends_with_the_character(speakers: tuple[str, ...]) -> None:
    history = tuple(SceneLine.model_validate({"speaker": speaker, "text": "x"}) for speaker in speakers)
    with pytest.raises(ValidationError, match="history must"):
        Scene(id="a", kind="voice", split="train", player="x", history=history)


def test_lore_holds_between_its_limits() -> None:
    fact = LoreFact(
        id="x", text="t", valid_from=datetime(2020, 1, 1, tzinfo=UTC), valid_to=datetime(2021, 1, 1, tzinfo=UTC)
    )
    moments = [datetime(year, 1, 1, tzinfo=UTC) for year in (2019, 2020, 2021)]
    assert [fact.holds_at(moment) for moment in [*moments, None]] == [False, True, False, False]
