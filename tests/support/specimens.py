"""The specimens of the characters that ship, read once: several suites are made of them while they are collected."""

from functools import cache

from app.cli.specimens import packaged_specimens
from app.judges.corruption import Specimen


@cache
def shipped_specimens() -> tuple[Specimen, ...]:
    return packaged_specimens()
