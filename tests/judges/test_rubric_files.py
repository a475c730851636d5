"""Rubrics of one's own: what is wrong is said with its line and key, and what ships stays what it is."""

from pathlib import Path

import pytest

from app.domain.values import digest_of_model
from app.envs.npc_arena.environment import DEFAULT_RUBRIC, NpcArena
from app.judges.prompts import load_rubric, read_rubric
from tests.support.tables import read_table

TABLE = read_table(__file__, "rubric_faults.yaml", tuple[tuple[str, str, str], ...])

SHORT = Path(__file__).with_name("short_rubric.yaml").read_text(encoding="utf-8")


def test_the_shipped_rubric_is_the_same_when_it_is_given() -> None:
    assert NpcArena.rubric is not None
    assert digest_of_model(load_rubric(DEFAULT_RUBRIC).build_rubric()) == digest_of_model(NpcArena.rubric)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        *TABLE,
        (SHORT, "- 1\n", "1 : a list of 1 was given; wanted is an object of names and values"),
        (SHORT, "a: [", "2 : a [ or { is not closed"),
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
    with pytest.raises(ValueError, match=r"nowhere\.yaml: no such file"):
        load_rubric(tmp_path / "nowhere.yaml")
