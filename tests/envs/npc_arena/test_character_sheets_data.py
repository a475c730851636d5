"""The sheets and scenes that ship: whole, varied, and without a word of what only judges may see in any prompt."""

import re
import unicodedata
from functools import lru_cache

from app.characters.casting import build_gate_facts
from app.domain.tasks import Task
from app.domain.values import canonical_json
from app.envs.npc_arena.environment import NpcArenaParams
from app.judges.gate_wordings import Reply
from app.judges.gates import find_failed_gates
from tests.support.packaged_arena import SPLITS, packaged_arena
from tests.support.packaged_arena import packaged_tasks as tasks

SHEETS = {sheet.id: sheet for sheet in packaged_arena().sheets}


@lru_cache(2)
def folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def names(text: str, term: str) -> bool:
    wanted, within = unicodedata.normalize("NFKC", term).casefold(), folded(text)
    return wanted in within and re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", within) is not None


def public(task: Task) -> str:
    return "\n".join([*(message.content or "" for message in task.messages), canonical_json(task.metadata)])


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
        terms = [term for secret in cast.sheet.secrets for term in secret.leak_terms]
        leaks += [(task.metadata["scene"], term) for term in terms if names(rest, term)]
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
