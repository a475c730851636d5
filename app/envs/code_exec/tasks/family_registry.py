"""All families by name."""

from collections.abc import Mapping
from functools import cache

from app.domain.digests import digest
from app.envs.code_exec.tasks.families import Family, read_families
from app.envs.code_exec.tasks.references import (
    dates,
    formats,
    grids,
    lists,
    machines,
    numbers,
    ordering,
    searches,
    strings,
)
from app.toolkit.procedural import LEVELS, Level

_MODULES = (strings, lists, machines, numbers, dates, grids, formats, machines, ordering, searches)


@cache
def read_all_families() -> Mapping[str, Family]:
    """By name. Checking their specifications takes a while, and most services ask for no programs."""
    return {family.name: family for module in _MODULES for family in read_families(module)}


@cache
def group_by_level() -> Mapping[Level, tuple[Family, ...]]:
    families = read_all_families().values()
    return {level: tuple(family for family in families if family.spec.level == level) for level in LEVELS}


@cache
def digest_families() -> str:
    """Of all that tasks and their tests are made from. Reading the source of every function takes a while."""
    return digest(
        [[family.spec.model_dump(mode="json"), family.solution({})] for family in read_all_families().values()]
    )
