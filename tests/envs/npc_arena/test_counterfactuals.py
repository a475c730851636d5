"""Scenes that differ by one event: what is right in one is wrong in the other."""

import pytest
from pydantic import ValidationError

from app.characters.scenes import SceneSet
from app.cli.judges import load_packaged_specimens
from app.judges.gold_cases import GoldCase

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
TALK = [{"when": "today", "lines": [{"speaker": "player", "text": "She sank."}]}]
ONE_LESS = {**FACTUAL, "id": "afloat", "counterfactual_of": "sunk", "visible": [FACTUAL["visible"][1]]}  # type: ignore[index]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"counterfactual_of": "nowhere"}, "afloat: counterfactual_of must name another scene of this file"),
        ({"counterfactual_of": "afloat"}, "afloat: counterfactual_of must name another scene of this file"),
        ({"player": "Is she sunk?"}, "afloat: differs from sunk in player too"),
        ({"split": "train"}, "afloat: differs from sunk in split too"),
        ({"visible": []}, "afloat: visible must be that of sunk without one event"),
        ({"visible": [], "earlier": TALK}, "afloat: differs from sunk in both earlier and visible"),
        ({"visible": FACTUAL["visible"]}, "afloat: visible must be that of sunk without one event"),
    ],
)
def test_a_counterfactual_differs_by_one_event_or_by_what_was_said(changed: dict[str, object], words: str) -> None:
    SceneSet.model_validate({"character": "hob", "scenes": [FACTUAL, ONE_LESS]})
    SceneSet.model_validate(
        {"character": "hob", "scenes": [FACTUAL, {**ONE_LESS, "visible": FACTUAL["visible"], "earlier": TALK}]}
    )
    with pytest.raises(ValidationError, match=words):
        SceneSet.model_validate({"character": "hob", "scenes": [FACTUAL, {**ONE_LESS, **changed}]})


def test_no_reply_is_exemplary_for_every_character() -> None:
    with pytest.raises(ValidationError, match="sunk: an exemplar needs a scene file with a character"):
        SceneSet.model_validate({"scenes": [{**FACTUAL, "exemplar": "Aye."}]})


def compare_mentions(there: GoldCase, gone: GoldCase) -> tuple[bool, set[str], bool, bool]:
    wanted, banned = set(there.cast.scene.probes.must_mention), set(gone.cast.scene.probes.must_not_mention)
    event = next(event for event in there.cast.scene.visible if event not in gone.cast.scene.visible)
    return (
        wanted & banned != set(),
        banned & set(there.probes.must_not_mention),
        event.text in there.prompt,
        event.text in gone.prompt,
    )


def test_what_should_be_mentioned_in_one_must_not_be_in_the_other() -> None:
    """In all that ship."""
    by_scene = {specimen.cast.scene.id: specimen for specimen in load_packaged_specimens()}
    pairs = {
        name: compare_mentions(by_scene[gone.cast.scene.counterfactual_of], gone)
        for name, gone in by_scene.items()
        if gone.cast.scene.counterfactual_of is not None
    }
    assert (len(pairs) >= 6, pairs) == (True, dict.fromkeys(pairs, (True, set(), True, False)))
