"""Plug-ins that import from where things were go on working for a release, and are warned."""

import importlib
import sys

import pytest

from app.moved import MOVED


@pytest.mark.parametrize(
    ("module", "name", "place"), [(m, n, p) for m, names in MOVED.items() for n, p in names.items()]
)
def test_an_old_import_gives_the_same_object_and_warns(module: str, name: str, place: str) -> None:
    sys.modules.pop(module, None)
    with pytest.warns(DeprecationWarning, match=f"{module} has moved: import from app\\."):
        old = importlib.import_module(module)
    home, _, current = place.rpartition(".")
    assert getattr(old, name) is getattr(importlib.import_module(home), current)


def test_other_names_are_as_absent_as_ever() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("app.word_problems")
