"""Scenes that differ by one event: what is right in one is wrong in the other."""

import pytest
from pydantic import ValidationError

from app.characters.scenes import SceneSet

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
