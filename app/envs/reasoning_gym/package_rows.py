"""Rows of the package and their scores. Imports the package, so it is itself imported only when a task is needed."""

import copy
import dataclasses
import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from types import ModuleType
from typing import Any, Final

from pydantic import JsonValue

_DRAWING: Final = (
    *("matplotlib", "matplotlib.animation", "matplotlib.collections", "matplotlib.pyplot"),
    *("mpl_toolkits", "mpl_toolkits.mplot3d"),
)


class _MissingModule(ModuleType):
    """Everything may be imported from it."""

    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):
            raise AttributeError(name)


@contextmanager
def _without_drawing() -> Iterator[None]:
    """Imports find nothing in place of matplotlib, with which a dependency of the package draws. It needs a folder to
    write to, which a worker may not have, and half of the time of all imports."""
    missing = {name: _MissingModule(name) for name in _DRAWING if name not in sys.modules}
    sys.modules.update(missing)
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


with _without_drawing():
    from reasoning_gym.factory import CURRICULA, DATASETS

_LEVELS: Final = {"easy": 0, "medium": 1, "hard": 2}
"""Levels of the package's curricula."""
_ROUNDING: Final = 1e-9
"""Values above 1 by so much are sums of fractions."""
_OURS: Final = frozenset({"seed", "size"})


def make_row(family: str, level: str, config: str, seed: int, shared: bool) -> list[str | None]:
    """The question and its answer; None where the package knows none. `config` is a JSON object of other values than
    those of the level."""
    entry = _make_entry(family, level, config, seed, shared)[1]
    return [str(entry["question"]), None if entry["answer"] is None else str(entry["answer"])]


def score_answer(
    family: str, level: str, config: str, seed: int, shared: bool, malformed: list[str], question: str, answer: str
) -> float:
    """The scorer's value, from 0 to 1. `malformed`: names of what the scorer raises for texts that are not in the form
    of an answer. `question` is the digest of the question that was asked. Raises where the package is at fault: where
    it asks something else now, where its scorer raises anything else or for its own answer too, or gives no value."""
    dataset, entry = _make_entry(family, level, config, seed, shared)
    if digest_question(str(entry["question"])) != question:
        raise ValueError(
            "the installed version of reasoning-gym asks another question than the one that was handed out"
        )
    try:
        value = _score_entry(dataset, entry, answer)
    except Exception as error:
        if type(error).__name__ not in malformed or entry["answer"] is None:
            raise
        _score_entry(dataset, entry, str(entry["answer"]))
        return 0.0
    if not 0 <= value <= 1 + _ROUNDING:
        raise ValueError(f"the scorer of {family} gives {value}")
    return min(value, 1.0)


def check_config(family: str, level: str, hardest: str, config: str) -> list[str] | None:
    """The field and what is wrong with it. The field is the first one when it cannot be told. `hardest`: the level
    whose values are the largest that are allowed."""
    values = json.loads(config)
    base = _build_level_config(family, level)
    hard = _build_level_config(family, hardest)
    for name, value in values.items():
        if name in _OURS or name not in {field.name for field in dataclasses.fields(base)}:
            return [name, f"{family} has no such field: {', '.join(list_fields(family))}"]
        if wrong := _find_fault(value, getattr(base, name), getattr(hard, name)):
            return [name, wrong]
    try:
        _build_config(family, level, config)
    except (AssertionError, ValueError, TypeError) as error:
        named = [name for name in values if name in str(error)]
        return [named[0] if named else next(iter(values)), str(error) or f"{family} does not accept this value"]
    return None


def list_fields(family: str) -> list[str]:
    """The names of the fields that may be configured."""
    return [field.name for field in dataclasses.fields(DATASETS[family][1]) if field.name not in _OURS]


def digest_question(question: str) -> str:
    return hashlib.sha256(question.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _score_entry(dataset: Any, entry: dict[str, Any], answer: str) -> float:
    """Scorers may change what they are given."""
    return float(dataset.score_answer(answer, copy.deepcopy(entry)))


@lru_cache(maxsize=64)
def _make_entry(family: str, level: str, config: str, seed: int, shared: bool) -> tuple[Any, dict[str, Any]]:
    if shared:
        dataset = copy.copy(_open_shared(family, level, config))
        dataset.seed = seed
    else:
        dataset = DATASETS[family][0](dataclasses.replace(_build_config(family, level, config), seed=seed))
    return dataset, dataset[0]


@lru_cache(maxsize=64)
def _open_shared(family: str, level: str, config: str) -> Any:
    """Reads the words or fonts of a family once. Its rows depend on `seed` alone."""
    return DATASETS[family][0](_build_config(family, level, config))


@lru_cache(maxsize=256)
def _build_config(family: str, level: str, config: str) -> Any:
    built = dataclasses.replace(_build_level_config(family, level), **json.loads(config))
    if hasattr(built, "validate"):
        built.validate()
    return built


@lru_cache(maxsize=512)
def _build_level_config(family: str, level: str) -> Any:
    if level == "default" or family not in CURRICULA:
        return DATASETS[family][1](size=1, seed=0)
    curriculum = CURRICULA[family]()
    curriculum.set_global_level(_LEVELS[level])
    return curriculum.generate_configuration({"size": 1, "seed": 0})


def _find_fault(value: JsonValue, base: Any, hard: Any) -> str:
    """What is wrong with a value. Numbers go up to the larger one of both levels, and items of lists are those that
    stand there or smaller numbers, so that no task takes much longer than one of the hardest level."""
    if isinstance(base, list | tuple):
        return _find_fault_of_list(value, [*base, *(hard if isinstance(hard, list | tuple) else ())])
    if isinstance(base, bool) or isinstance(value, bool):
        return "" if isinstance(base, bool) and isinstance(value, bool) else "should be of the same type as the default"
    if isinstance(base, int | float) and isinstance(value, int | float):
        if isinstance(base, int) and not isinstance(value, int):
            return "should be a whole number"
        most = max(base, hard if isinstance(hard, int | float) else base, *([1.0] if isinstance(base, float) else []))
        least = -max(abs(most), abs(base))
        return "" if least <= value <= most else f"should be between {least} and {most}"
    return "" if value in (base, hard) else f"cannot be changed from {base!r}"


def _find_fault_of_list(value: JsonValue, allowed: list[Any]) -> str:
    if not isinstance(value, list) or not value or len(value) > len(allowed):
        return f"should be a list of 1 to {len(allowed)} items"
    numbers = [item for item in allowed if isinstance(item, int | float) and not isinstance(item, bool)]
    for item in value:
        small = bool(numbers) and isinstance(item, int | float) and min(numbers) <= item <= max(numbers)
        if not small and item not in allowed:
            return f"{item!r} is none of {', '.join(map(str, allowed))}"[:200]
    return ""
