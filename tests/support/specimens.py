"""The specimens of the characters that ship, read once: several suites are made of them while they are collected."""

from functools import cache

from app.cli.judge_questions import load_packaged_specimens
from app.judges.gold_cases import GoldCase


@cache
def shipped_specimens() -> tuple[GoldCase, ...]:
    return load_packaged_specimens()
