"""What a program can learn of the place where it runs."""

from tests.architecture.test_house import ROOT
from tests.support.jailed import Jails
from tests.support.tables import read_table

PROGRAMS = read_table(__file__, "hidden_places.yaml", dict[str, str])


def test_frames_show_no_path_of_ours(jailed: Jails) -> None:
    assert jailed.said(PROGRAMS["frames"]) == ["", "<jail>", "<program>", "<string>"]


def test_no_object_holds_a_path_of_ours(jailed: Jails) -> None:
    assert jailed.said(PROGRAMS["reached"], str(ROOT)) == []


LOOKS = "import os\ndef f(path): return [os.path.exists(path), os.access(path, os.F_OK), os.path.lexists(path)]"


def test_only_without_namespaces_are_the_machine_s_files_there_to_be_looked_at(jailed: Jails) -> None:
    """The page on isolation says so. What is in them is never to be read."""
    there = not jailed.programs.walls.namespaces
    assert jailed.said(LOOKS, "/etc/passwd") == [there] * 3
