"""docs/characters.md: every character once, every field with its reader, nothing that only judges may read."""

import re
from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from app.characters.loading import parse_model
from app.characters.scenes import SceneSet
from app.characters.schema import CharacterSheet
from docs.generate import pages
from docs.parts.sheets import sheet_fields
from tests.support.packaged_arena import packaged_arena

SHEETS = packaged_arena().sheets
SCHEMA = CharacterSheet.model_json_schema()


def cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.strip("|").split(" | ")]


def marked(schema: Mapping[str, JsonValue], path: str, above: str) -> Iterator[tuple[str, str]]:
    """Fields with their audience as the JSON Schema has them, lists with `[]`."""
    properties = schema.get("properties")
    assert isinstance(properties, dict)
    for name, field in properties.items():
        assert isinstance(field, dict)
        audience = "judge" if above == "judge" else str(field["audience"])
        items = field.get("items")
        target = items if isinstance(items, dict) else field
        inner = target.get("$ref")
        here = f"{path}{name}{'[]' if inner and target is items else ''}"
        yield here, audience
        if isinstance(inner, str):
            yield from marked(definition(inner), f"{here}.", audience)


def definition(reference: str) -> Mapping[str, JsonValue]:
    found = SCHEMA["$defs"][reference.rpartition("/")[2]]
    assert isinstance(found, dict)
    return found


def test_every_field_is_listed_with_its_reader() -> None:
    listed: list[tuple[str, str]] = []
    block = ""
    for line in sheet_fields().splitlines():
        block = line.removeprefix("### ") if line.startswith("### ") else block
        if line.startswith("| `"):
            name, _, _, seen_by, _ = cells(line)
            path = f"{block}.{name.strip('`')}"
            listed.append((path, {"policy": "policy", "judges only": "judge"}[seen_by]))
    blocks = set(CharacterSheet.model_fields)
    expected = [
        (path.replace("[]", "", 1) if path.split(".")[0].endswith("[]") else path, reader)
        for path, reader in marked(SCHEMA, "", "policy")
        if path.removesuffix("[]") not in blocks
    ]
    assert listed == expected


def test_the_page_quotes_nothing_that_only_judges_may_read_and_no_secret() -> None:
    page = pages()["docs/characters.md"]
    hidden = [
        text
        for sheet in SHEETS
        for text in (
            sheet.meta.notes,
            *(secret.text for secret in sheet.secrets),
            *(term for secret in sheet.secrets for term in secret.leak_terms),
            *(fact.text for fact in sheet.lore_facts),
            *(exemplar.reply for exemplar in sheet.probes.exemplars),
            *(counter.reply for counter in sheet.voice.counter_examples),
            *sheet.probes.gold_facts,
            *sheet.probes.distractors,
        )
        if text
    ]
    assert [text for text in hidden if re.search(rf"(?<!\w){re.escape(text)}(?!\w)", page, re.IGNORECASE)] == []


def test_the_scene_that_is_shown_can_be_read() -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", pages()["docs/characters.md"], re.DOTALL)
    assert [scene.max_turns for scene in parse_model(shown, "shown", SceneSet).scenes] == [2]
