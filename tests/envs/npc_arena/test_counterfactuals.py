"""Scenes that differ by one event: what is right in one is wrong in the other."""

import asyncio
from functools import cache

import pytest
from pydantic import ValidationError

from app.characters.scenes import SceneSet
from app.cli.judges import load_packaged_specimens
from app.envs.npc_arena.environment import NpcArena
from app.judges.gold_cases import GoldCase, build_check_request
from app.judges.offline import OfflineJudge

MANY = 6


@cache
def found() -> tuple[tuple[GoldCase, GoldCase], ...]:
    """With the event and without it."""
    by_scene = {specimen.cast.scene.id: specimen for specimen in load_packaged_specimens()}
    return tuple(
        (by_scene[specimen.cast.scene.counterfactual_of], specimen)
        for specimen in by_scene.values()
        if specimen.cast.scene.counterfactual_of is not None
    )


def test_there_are_some_among_the_test_scenes_and_some_open_with_an_event() -> None:
    scenes = [without.cast.scene for _, without in found()]
    assert (
        len(scenes) >= MANY,
        {scene.split for scene in scenes},
        sum(scene.event is not None for scene in scenes) >= 2,
    ) == (True, {"test"}, True)


def compare_mentions(there: GoldCase, gone: GoldCase) -> tuple[bool, set[str], bool, bool]:
    wanted, banned = (
        set(there.cast.scene.probes.must_mention),
        set(gone.cast.scene.probes.must_not_mention),
    )
    event = next(event for event in there.cast.scene.visible if event not in gone.cast.scene.visible)
    return (
        wanted & banned != set(),
        banned & set(there.probes.must_not_mention),
        event.text in there.prompt,
        event.text in gone.prompt,
    )


def test_what_should_be_mentioned_in_one_must_not_be_in_the_other() -> None:
    compared = {gone.cast.scene.id: compare_mentions(there, gone) for there, gone in found()}
    assert compared == dict.fromkeys(compared, (True, set(), True, False))


def ranked(specimen: GoldCase, *texts: str) -> list[str]:
    rubric = NpcArena.rubric
    assert rubric is not None
    candidates = tuple(specimen.build_candidate(f"c{place}", text) for place, text in enumerate(texts))
    judgement = asyncio.run(OfflineJudge().judge(build_check_request(specimen, rubric, candidates)))
    return [texts[int(name[1:])] for tier in judgement.ranking for name in tier]


def test_words_alone_put_the_grounded_reply_first_with_the_event_and_last_without() -> None:
    orders = {
        gone.cast.scene.id: (ranked(there, gone.clean, there.clean), ranked(gone, there.clean, gone.clean))
        for there, gone in found()
    }
    assert orders == {
        gone.cast.scene.id: ([there.clean, gone.clean], [gone.clean, there.clean]) for there, gone in found()
    }


FACTUAL: dict[str, object] = {
    "id": "sunk",
    "kind": "recent_event",
    "split": "test",
    "player": "Is she crossing?",
    "visible": [
        {"id": "barge", "time": "today", "text": "The barge sank."},
        {"id": "bell", "time": "today", "text": "The bell rang."},
    ],
}
ONE_LESS = {**FACTUAL, "id": "afloat", "counterfactual_of": "sunk", "visible": [FACTUAL["visible"][1]]}  # type: ignore[index]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"counterfactual_of": "nowhere"}, "afloat: counterfactual_of must name another scene of this file"),
        ({"counterfactual_of": "afloat"}, "afloat: counterfactual_of must name another scene of this file"),
        ({"player": "Is she sunk?"}, "afloat: differs from sunk in player too"),
        ({"split": "train"}, "afloat: differs from sunk in split too"),
        ({"visible": []}, "afloat: visible must be that of sunk without one event"),
        ({"visible": FACTUAL["visible"]}, "afloat: visible must be that of sunk without one event"),
    ],
)
def test_a_counterfactual_differs_by_one_event_alone(changed: dict[str, object], words: str) -> None:
    SceneSet.model_validate({"character": "hob", "scenes": [FACTUAL, ONE_LESS]})
    with pytest.raises(ValidationError, match=words):
        SceneSet.model_validate({"character": "hob", "scenes": [FACTUAL, {**ONE_LESS, **changed}]})


def test_no_reply_is_exemplary_for_every_character() -> None:
    with pytest.raises(ValidationError, match="sunk: an exemplar needs a scene file with a character"):
        SceneSet.model_validate({"scenes": [{**FACTUAL, "exemplar": "Aye."}]})
