"""Worlds as files, and the one that ships."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.characters.archives import WorldFile, parse_world, read_world
from app.characters.loading import read_sheets
from app.characters.schema import CharacterSheet
from app.domain.errors import RequestRefused
from app.domain.worlds import Lorebook, LoreEntry
from app.toolkit.templates import find_packaged_folder
from tests.architecture.test_house import ROOT
from tests.support.tables import read_table

TABLE = read_table(__file__, "world_faults.yaml", tuple[tuple[str, str, str], ...])

REEDGATE = ROOT / "app/envs/npc_arena/worlds/reedgate.yaml"

SHORT = Path(__file__).with_name("short_world.yaml").read_text(encoding="utf-8")


def test_a_file_and_what_it_says() -> None:
    assert parse_world(SHORT, "short.yaml").model_dump(mode="json", exclude_defaults=True) == read_table(
        __file__, "loaded_world.yaml", dict[str, Any]
    )


def test_the_example_of_the_page_can_be_loaded() -> None:
    page = (ROOT / "docs/world_files.md").read_text(encoding="utf-8")
    world = parse_world(page.split("```yaml\n")[1].split("```")[0], "page.yaml")
    branches = [(branch.world, len(branch.events)) for branch in world.branches]
    assert (len(world.events), branches, list(world.lorebooks)) == (3, [("my_world-again", 1)], ["coast"])


def test_the_page_has_every_field_that_decides_whether_an_entry_comes_up() -> None:
    page = (ROOT / "docs/world_files.md").read_text(encoding="utf-8").split("## When an entry")[1]
    fields = {*LoreEntry.model_fields, *Lorebook.model_fields} - {"id", "content", "name", "description", "extensions"}
    assert {name for name in fields if f"`{name}`" not in page} == {"entries"}


@pytest.mark.parametrize(("old", "new", "refusal"), TABLE)
def test_what_is_wrong_has_its_line(old: str, new: str, refusal: str) -> None:

    said = refused(lambda: parse_world(SHORT.replace(old, new), "short.yaml"))
    assert (old in SHORT, said.startswith("short.yaml"), refusal in said) == (True, True, True), said


def refused(read: Callable[[], WorldFile]) -> str:
    with pytest.raises(RequestRefused) as caught:
        read()
    return caught.value.detail


def test_a_file_may_be_too_large(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (8 * 1024 * 1024 + 1))
    assert refused(lambda: read_world(path)) == "large.yaml: larger than 8388608 bytes"


def test_what_the_world_that_ships_names_is_there_and_what_is_not_public_has_terms() -> None:
    world = read_world(REEDGATE)
    told = {event.id for event in world.events} | {event.id for one in world.branches for event in one.events}
    named = {*world.withdrawn, *(name for event in world.events for name in event.supersedes)}
    hidden = [event.id for event in world.events if event.visibility != "public" and not event.leak_terms]
    known = [set(event.visibility) for event in world.events if event.visibility != "public"]
    alone = [not any(names & {sheet.meta.id, *sheet.identity.circles} for names in known) for sheet in sheets()]
    assert (named - told, hidden, any(alone)) == (set(), [], False)


def test_no_public_news_says_what_some_may_not_know() -> None:
    world = read_world(REEDGATE)
    public = " ".join(event.text for event in world.events if event.visibility == "public").casefold()
    terms = [(event.id, term) for event in world.events for term in event.leak_terms]
    assert [(event, term) for event, term in terms if term.casefold() in public] == []


def sheets() -> list[CharacterSheet]:
    folder = find_packaged_folder("character_sheets")
    return [sheet for sheet in read_sheets(folder) if sheet.meta.world == "drowned_coast"]
