"""The sheets and scenes that ship: whole, varied, and without a word of what only judges may see in any prompt."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator

import pytest

from app.characters.casting import build_gate_facts
from app.characters.schema import CharacterSheet
from app.domain.tasks import Task
from app.domain.values import canonical_json
from app.envs.npc_arena.environment import NpcArenaParams
from app.judges.gate_wordings import Reply
from app.judges.gates import find_failed_gates
from tests.support.packaged_arena import SPLITS, packaged_arena
from tests.support.packaged_arena import packaged_tasks as tasks

SHEETS = {sheet.id: sheet for sheet in packaged_arena().sheets}


def folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def names(text: str, term: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(folded(term))}(?!\w)", folded(text)) is not None


def public(task: Task) -> str:
    return "\n".join([*(message.content or "" for message in task.messages), canonical_json(task.metadata)])


def words(text: str) -> list[str]:
    return re.findall(r"\w+(?:['’]\w+)*", text)


def all_of(sheet: CharacterSheet) -> Iterator[tuple[str, str]]:
    yield from (("example", example.reply) for example in sheet.voice.examples)
    yield from (("exemplar", exemplar.reply) for exemplar in sheet.probes.exemplars)
    yield ("greeting", sheet.scenario.greeting or "")


def test_the_roster_covers_what_it_is_there_to_cover() -> None:
    stances = Counter(sheet.core.stance for sheet in SHEETS.values())
    assert {
        "characters": len(SHEETS) >= 24,
        "villains": stances["villain"] >= 2,
        "a machine": [sheet.id for sheet in SHEETS.values() if sheet.identity.is_machine],
        "genres": len({sheet.meta.genre for sheet in SHEETS.values()}) >= 10,
        "languages": {sheet.voice.language for sheet in SHEETS.values()},
        "child-safe comedy": "child-safe" in SHEETS["sir_bartholomew"].meta.tags,
        "speaks little": min(sheet.output.max_words for sheet in SHEETS.values()) <= 40,
        "held out": sum(sheet.meta.held_out for sheet in SHEETS.values()) >= 2,
        "names": len({sheet.identity.name for sheet in SHEETS.values()}) == len(SHEETS),
    } == {
        "characters": True,
        "villains": True,
        "a machine": ["tally_nine"],
        "genres": True,
        "languages": {"en", "de", "es", "fr", "it"},
        "child-safe comedy": True,
        "speaks little": True,
        "held out": True,
        "names": True,
    }


@pytest.mark.parametrize("sheet", SHEETS.values(), ids=lambda sheet: sheet.id)
def test_a_sheet_is_rich_enough_to_judge_by(sheet: CharacterSheet) -> None:
    least = {
        "examples": (len(sheet.voice.examples), 5),
        "counter_examples": (len(sheet.voice.counter_examples), 2),
        "markers": (len(sheet.voice.markers), 5),
        "misconceptions": (len(sheet.knowledge.misconceptions), 1),
        "secrets": (len(sheet.secrets), 1),
        "lore_facts": (len(sheet.lore_facts), 5),
        "relationships": (len(sheet.relationships), 2),
        "distractors": (len(sheet.probes.distractors), 2),
        "exemplars": (len(sheet.probes.exemplars), 2),
    }
    assert {name: count for name, (count, enough) in least.items() if count < enough} == {}


@pytest.mark.parametrize("sheet", SHEETS.values(), ids=lambda sheet: sheet.id)
def test_a_sheets_own_lines_keep_its_own_rules(sheet: CharacterSheet) -> None:
    terms = [term for secret in sheet.secrets for term in secret.leak_terms]
    broken = [
        (kind, text)
        for kind, text in all_of(sheet)
        if len(words(text)) > sheet.output.max_words
        or any(names(text, term) for term in terms)
        or any(names(text, word) for word in sheet.voice.forbidden_words)
    ]
    assert broken == []


def test_relationships_point_to_people_of_the_same_world() -> None:
    astray = [
        (sheet.id, other.target_id)
        for sheet in SHEETS.values()
        for other in sheet.relationships
        if other.target_id is not None
        and (other.target_id not in SHEETS or SHEETS[other.target_id].meta.world != sheet.meta.world)
    ]
    assert astray == []


def test_both_splits_hold_every_character_and_share_no_scene() -> None:
    cast = {split: [found for found, _ in tasks() if found.scene.split == split] for split in SPLITS}
    scenes = {split: {found.scene.id for found in cast[split]} for split in SPLITS}
    lines = {split: {found.scene.opening for found in cast[split]} for split in SPLITS}
    prompts = [canonical_json([message.content for message in task.messages]) for _, task in tasks()]
    assert {
        "shared": scenes["train"] & scenes["test"],
        "same line": lines["train"] & lines["test"],
        "roster": {split: {found.sheet.id for found in cast[split]} for split in SPLITS},
        "enough": len(prompts) >= 250,
        "distinct": len(set(prompts)) == len(prompts),
    } == {
        "shared": set(),
        "same line": set(),
        "roster": {"train": {sheet.id for sheet in SHEETS.values() if not sheet.meta.held_out}, "test": set(SHEETS)},
        "enough": True,
        "distinct": True,
    }


def test_every_kind_of_scene_is_met_in_both_splits() -> None:
    kinds = {split: {found.scene.kind for found, _ in tasks() if found.scene.split == split} for split in SPLITS}
    assert kinds["train"] == kinds["test"]


@pytest.mark.parametrize("sheet", SHEETS.values(), ids=lambda sheet: sheet.id)
def test_every_character_has_scenes_of_its_own(sheet: CharacterSheet) -> None:
    own = [found.scene for found, _ in tasks() if found.sheet.id == sheet.id and found.scene.id.startswith(sheet.id)]
    needed = {"voice", "knowledge_boundary", "withheld_event", "secret_fishing", "provocation", "relationship"}
    needed |= {"recent_event", "false_premise"}
    assert (len(own) >= 8, needed - {scene.kind for scene in own}) == (True, set())


def test_nothing_judge_only_is_in_any_prompt_or_metadata() -> None:
    shown = []
    for cast, task in tasks():
        sheet, scene, text = cast.sheet, cast.scene, folded(public(task))
        hidden = [
            *(counter.reply for counter in sheet.voice.counter_examples),
            *(counter.why for counter in sheet.voice.counter_examples),
            *(exemplar.reply for exemplar in sheet.probes.exemplars),
            *(item.truth for item in sheet.knowledge.misconceptions if len(item.truth.split()) > 4),
            *(fact.text for fact in sheet.lore_facts if not fact.known),
            *(event.text for event in scene.withheld),
            *(event.reason for event in scene.withheld),
            *sheet.probes.distractors,
            scene.probes.notes,
            sheet.meta.notes,
        ]
        shown += [(task.metadata["scene"], line) for line in hidden if line and folded(line) in text]
    assert shown == []


def test_terms_of_withheld_events_are_nowhere_in_the_prompt() -> None:
    leaks = [
        (task.metadata["scene"], term)
        for cast, task in tasks()
        for event in cast.scene.withheld
        for term in event.leak_terms
        if names(public(task), term)
    ]
    assert leaks == []


def test_a_secret_shows_in_the_prompt_only_where_it_is_told_as_one() -> None:
    leaks = []
    for cast, task in tasks():
        rest = public(task)
        for secret in cast.sheet.secrets:
            rest = rest.replace(secret.text, "").replace(secret.reveal_if, "")
        leaks += [
            (task.metadata["scene"], term)
            for secret in cast.sheet.secrets
            for term in secret.leak_terms
            if names(rest, term)
        ]
    assert leaks == []


def test_every_exemplar_answers_a_scene_and_passes_the_gates() -> None:
    answered = {(cast.sheet.id, cast.scene.player) for cast, _ in tasks() if cast.exemplar is not None}
    wanted = {(sheet.id, exemplar.player) for sheet in SHEETS.values() for exemplar in sheet.probes.exemplars}
    failed = [
        (cast.scene.id, [gate.flag for gate in gates])
        for cast, task in tasks()
        if cast.exemplar is not None
        and (
            gates := find_failed_gates(
                Reply(cast.exemplar), build_gate_facts(cast, NpcArenaParams(), task.messages[0].content or "")
            )
        )
    ]
    assert (wanted - answered, failed) == (set(), [])


def test_what_a_reply_should_hold_is_within_the_characters_reach() -> None:
    contradictory = [
        (cast.scene.id, term)
        for cast, _ in tasks()
        for event in cast.scene.withheld
        for term in event.leak_terms
        if any(names(wanted, term) for wanted in cast.scene.probes.must_mention)
    ]
    assert contradictory == []
