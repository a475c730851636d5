"""Rubrics of one's own: what is wrong is said with its line and key, and what ships stays what it is."""

from pathlib import Path

import pytest

from app.domain.values import digest_of_model
from app.envs.npc_arena.environment import DEFAULT_RUBRIC, NpcArena
from app.judges.prompts import load_rubric, read_rubric

SHIPPED = DEFAULT_RUBRIC.read_text(encoding="utf-8")
SHORT = """\
name: plain
version: "1"
instructions: Compare the replies.
criteria:
  - name: voice
    weight: 0.5
    description: Is it the voice of the sheet?
    anchors: {0: never, 1: hardly, 2: partly, 3: mostly, 4: always}
  - name: wit
    weight: 0.5
    requires: {criterion: voice, at_least: 0.5}
    description: Is it funny?
    anchors: {0: never, 1: hardly, 2: at times, 3: often, 4: at its best}
defects:
  - {code: knows, cap: 0.3, confirms: may_know_withheld, description: It knows too much.}
"""


def test_the_shipped_rubric_is_the_same_when_it_is_given() -> None:
    assert NpcArena.rubric is not None
    assert digest_of_model(load_rubric(DEFAULT_RUBRIC).build_rubric()) == digest_of_model(NpcArena.rubric)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("weight: 0.5", "weigth: 0.5", "6 criteria.0.weigth: there is no key 'weigth'; did you mean 'weight'?"),
        ("cap: 0.3", "capp: 0.3", "15 defects.0.capp: there is no key"),
        ("at_least", "at_lest", "11 criteria.1.requires.at_lest: there is no key"),
        ("cap: 0.3", "cap: 3", "15 defects.0.cap: Input should be less than or equal to 1"),
        ("criterion: voice", "criterion: voise", "11 criteria.1.requires.criterion: there is no criterion 'voise'"),
        ("criterion: voice", "criterion: wit", "11 criteria.1.requires.criterion: a criterion cannot require itself"),
        ("name: wit", "name: voice", "9 criteria.1.name: 'voice' is there more than once"),
        ("may_know_withheld", "may_know", "14 defects: no defect confirms the hint 'may_know_withheld'"),
        ("may_know_withheld", "may_refuse", "15 defects.0.confirms: there is no hint of a gate 'may_refuse'"),
        ("confirms: may_know_withheld, ", "", "14 defects: no defect confirms the hint 'may_know_withheld'"),
        ("{0: never, ", "{", "8 criteria.0.anchors: there is no anchor 0"),
        ("2: partly, 3: mostly, 4: always", "4: always", "8 criteria.0.anchors: no anchor for 2, 3"),
        ("4: always", "5: always", "8 criteria.0.anchors.5: Input should be less than or equal to 4"),
        ("weight: 0.5", "weight: 0.4", "4 criteria: the weights add up to 0.9, not 1"),
        ("defects:", "claims: {criterion: wit, unsupported: lie}\ndefects:", "14 claims.unsupported: there is no"),
        ("cap: 0.3", "bounds: {criterion: charm, at_most: 0.5}", "15 defects.0.bounds.criterion: there is no"),
        (SHORT, "- 1\n", "1 : should be a mapping of keys to values"),
        (SHORT, "a: [", "2 : while parsing a flow"),
    ],
)
def test_what_is_wrong_is_said_with_its_line_and_key(tmp_path: Path, old: str, new: str, says: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SHORT.replace(old, new, 1), encoding="utf-8")
    found = [f"{one.line} {one.field}: {one.message}" for one in read_rubric(file).findings]
    assert [one for one in found if one.startswith(says)], found


def test_a_rubric_without_weight_is_refused_and_a_sound_one_is_not(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(SHORT, encoding="utf-8")
    sound = read_rubric(file)
    file.write_text(SHORT.replace("weight: 0.5", "weight: 0"), encoding="utf-8")
    empty = read_rubric(file)
    assert (sound.findings, sound.rubric is None, empty.rubric is None) == ((), False, True)


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.yaml: No such file"):
        load_rubric(tmp_path / "nowhere.yaml")
