"""The episodes that ship: every one can be played to its end, both ways through each condition, by a good reply."""

import asyncio
import unicodedata
from collections import Counter
from collections.abc import Iterator

import pytest

from app.characters.casting import Cast
from app.domain.runs import ScoringOptions
from app.domain.tasks import Completion, Message, Task
from app.domain.values import canonical_json
from app.envs.npc_arena.environment import NpcArenaParams
from app.judges.panel import ConfiguredPanels
from app.ports.environment import Tools
from tests.support.packaged_arena import packaged_arena as arena
from tests.support.packaged_arena import packaged_tasks
from tests.support.tiers import is_quick

MULTI = NpcArenaParams(turns="multi")


def tasks() -> tuple[tuple[Cast, Task], ...]:
    return packaged_tasks("multi")


def scenes() -> dict[str, tuple[Cast, Task]]:
    return {cast.scene.id: (cast, task) for cast, task in reversed(tasks())}


def lines(cast: Cast) -> Iterator[str]:
    """In the character's voice and different from one another: the words that the sheet gives it, in turn."""
    markers, facts = cast.sheet.voice.markers, cast.sheet.probes.gold_facts
    for turn in range(cast.scene.max_turns):
        yield f"{markers[turn % len(markers)].capitalize()}. {' '.join(facts[turn % len(facts)].split()[:9])}?"


def play(task: Task, replies: Iterator[str]) -> tuple[Message, ...]:
    said: tuple[Message, ...] = ()
    for reply in replies:
        said = (*said, Message(role="assistant", content=reply))
        turn = arena().step(task, said)
        if turn.done:
            return said
        said += turn.messages
    raise AssertionError("the scene did not end within its turns")


def rewards(task: Task, *group: Completion) -> list[float]:
    tools = Tools(panel=ConfiguredPanels({}, {}).build_panel("npc_arena", ScoringOptions()))
    return [score.reward or 0.0 for score in asyncio.run(arena().score(task, group, tools))]


@pytest.mark.deep
def test_a_scene_can_be_played_to_its_end_and_pays_the_character() -> None:
    alone = [(scene, played) for scene, played in scenes().items() if played[0].scene.seat is None]
    found, played_out = {}, dict(alone[:: 4 if is_quick() else 1])
    for scene, (cast, task) in played_out.items():
        played = play(task, lines(cast))
        assistant = play(task, (f"Certainly! I'd be happy to help you with number {turn}." for turn in range(9)))
        good, bad = rewards(task, Completion(messages=played), Completion(messages=assistant))
        found[scene] = len(played) - 2 * task.max_turns, good > bad, good > 0.15
    assert found == dict.fromkeys(played_out, (-1, True, True))


def test_every_line_of_the_player_can_be_reached() -> None:
    unheard = []
    for scene, (cast, task) in scenes().items():
        for number, turn in enumerate(cast.scene.turns):
            triggers = [(reaction.any_of[-1], reaction.say) for reaction in turn.when] + [("Hm", turn.say)]
            for trigger, expected in triggers:
                said = play(task, iter([f"{trigger}."] * task.max_turns))
                # Among several characters others speak beside the player.
                if expected not in (told := said[2 * number + 1].content or "", *told.splitlines()):
                    unheard.append((scene, trigger, expected))
    assert unheard == []


def test_prompts_of_episodes_are_distinct_and_hide_what_is_to_come() -> None:
    prompts = Counter(canonical_json([message.content for message in task.messages]) for _, task in tasks())
    revealed = [
        (cast.scene.id, text)
        for cast, task in tasks()
        for turn in cast.scene.turns
        for text in (turn.say, *(reaction.say for reaction in turn.when), cast.scene.probes.notes)
        if text and text in canonical_json([message.content for message in task.messages])
    ]
    assert (max(prompts.values()), revealed) == (1, [])


def test_players_give_no_secret_away() -> None:
    given = [
        (cast.scene.id, term)
        for cast, _ in tasks()
        for turn in cast.scene.turns
        for text in (turn.say, *(reaction.say for reaction in turn.when), cast.scene.opening)
        for secret in cast.sheet.secrets
        for term in secret.leak_terms
        if f" {folded(term)} " in f" {folded(text)} "
    ]
    assert given == []


def folded(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text).casefold()
    return " ".join("".join(character if character.isalnum() else " " for character in plain).split())
