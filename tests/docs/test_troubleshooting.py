"""The page of symptoms has every code and reason, and quotes what the service says."""

import re
from collections.abc import Iterator
from typing import get_args

from app.domain.errors import GatewayError, ScoringFailed
from app.domain.scores import Reason
from app.http.web.problems import CODES
from tests.support.serving import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ADJACENT = re.compile(r'"\s*f?"')
"""Between the parts of a text that is written over several lines."""


def list_errors(error: type[GatewayError] = GatewayError) -> Iterator[type[GatewayError]]:
    yield error
    for one in error.__subclasses__():
        yield from list_errors(one)


def list_quotes() -> list[str]:
    """What the tables quote of the service's words: the parts between what differs from case to case."""
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| "))
    quoted = [text for text in re.findall(r"`([^`]+)`", rows) if len(text.split()) > 4 and "atropos-envs" not in text]
    return [part.strip(" :;.") for text in quoted for part in text.split("…") if len(part.split()) > 2]


def test_every_reason_is_on_the_page() -> None:
    assert [reason for reason in get_args(Reason) if f"\n| `{reason}` |" not in PAGE] == []


def test_every_code_of_a_problem_is_on_the_page() -> None:
    known = {(one.status, one.code) for one in list_errors() if not issubclass(one, ScoringFailed)} | set(CODES.items())
    assert sorted(row for row in known if f"\n| {row[0]} | `{row[1]}`" not in PAGE) == []


def test_quoted_texts_are_those_of_the_service() -> None:
    source = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "app").rglob("*.py")))
    said = re.sub(r"[`{}]", "", ADJACENT.sub("", source))
    quotes = [one for one in list_quotes() if "8000" not in one and "different Python" not in one]
    assert ([one for one in quotes if one not in said], len(quotes) > 20) == ([], True)
