"""What a program can learn of the place where it runs."""

from tests.architecture.test_house import ROOT
from tests.support.jailed import Jails

FRAMES = """
import sys, traceback
def f():
    frame, files = sys._getframe().f_back, set()
    while frame:
        files |= {frame.f_code.co_filename, str(frame.f_globals.get('__file__', ''))}
        frame = frame.f_back
    return sorted(files | {line.filename for line in traceback.extract_stack()})
"""
REACHED = """
import gc, sys, types
def f(part):
    things, texts = [sys.modules, sys.path, *gc.get_objects()], set()
    for thing in things:
        near = gc.get_referents(thing)
        codes = [one for one in near if isinstance(one, types.CodeType)]
        texts |= {one for one in near if isinstance(one, str)} | {code.co_filename for code in codes}
    return sorted(text[:200] for text in texts if part in text and text != part)
"""


def test_frames_show_no_path_of_ours(jailed: Jails) -> None:
    assert jailed.said(FRAMES) == ["", "<jail>", "<program>", "<string>"]


def test_no_object_holds_a_path_of_ours(jailed: Jails) -> None:
    assert jailed.said(REACHED, str(ROOT)) == []


LOOKS = "import os\ndef f(path): return [os.path.exists(path), os.access(path, os.F_OK), os.path.lexists(path)]"


def test_only_without_namespaces_are_the_machine_s_files_there_to_be_looked_at(jailed: Jails) -> None:
    """The page on isolation says so. What is in them is never to be read."""
    there = not jailed.programs.walls.namespaces
    assert jailed.said(LOOKS, "/etc/passwd") == [there] * 3
