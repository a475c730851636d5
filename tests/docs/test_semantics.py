"""docs/semantics.md against the real service over HTTP: the rows of its tables, and semantics.yaml for its other rules.

Bodies and claims are JSON in which references to replies and calls are values too. Once references are calls as well,
Python reads them."""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import JsonValue, TypeAdapter

from tests.support.playground import World, gateway
from tests.support.tables import read_table

Replies = Mapping[str, Any]
"""By name."""


@dataclass(frozen=True)
class Row:
    section: str
    rule: str
    requests: tuple[str, ...]
    holds: tuple[str, ...]


def read_rows(page: str) -> Iterator[Row]:
    """Every row of the tables with the columns `rule | requests | reply holds`, in order."""
    section, inside = "", False
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("## "):
            section = line.removeprefix("## ")
        if not line.startswith("|"):
            inside = False
        elif cells == ["rule", "requests", "reply holds"]:
            inside = True
        elif inside and not set(line) <= set("|- :"):
            rule, requests, holds = cells
            yield Row(section, rule, _split(requests), _split(holds))


def _split(cell: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("`") for part in cell.split("<br>"))


REFERENCE = re.compile(r"\$(\w+)((?:\.\w+|\[(?:-?\d+|\*)\])*)")
SENT = re.compile(
    r"(?:(?P<times>\d+) times at once: )?(?P<method>GET|POST|PUT|DELETE) (?P<path>/\S*)(?: (?P<body>\{.*\}))?"
    r"(?: with Idempotency-Key (?P<key>\S+))? -> (?:(?P<status>\d{3}) )?\$(?P<name>\w+)"
)
TEXT_OR_RELATION = re.compile(r'"(?:[^"\\]|\\.)*"|' + REFERENCE.pattern + r"| (==|!=|<|>|has no|has) ")


def find(replies: Replies, name: str, steps: str) -> Any:
    """What `$name` and the `.field`, `[index]` or `[*]` behind it stand for; `[*]` is every element."""
    read = re.findall(r"\.(\w+)|\[(-?\d+|\*)\]", steps)
    return _follow(replies[name], [field or (index if index == "*" else int(index)) for field, index in read])


def _follow(found: Any, steps: Sequence[str | int]) -> Any:
    for place, step in enumerate(steps):
        if step == "*":
            return [_follow(one, steps[place + 1 :]) for one in found]
        found = found[step]
    return found


def answers(task: Mapping[str, str], *said: JsonValue) -> JsonValue:
    completions: list[JsonValue] = [{"text": one} if isinstance(one, str) else one for one in said]
    return {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": completions}


def count(found: list[JsonValue], *wanted: JsonValue) -> int:
    return found.count(*wanted) if wanted else len(found)


def sort_distinct(found: list[JsonValue]) -> JsonValue:
    return [json.loads(one) for one in sorted({json.dumps(one, sort_keys=True) for one in found})]


NAMES = {
    "answers": answers,
    "count": count,
    "set": sort_distinct,
    "text": lambda value: json.dumps(value, ensure_ascii=False),
    "true": True,
    "false": False,
    "null": None,
}


def evaluate(text: str, replies: Replies) -> Any:
    """A claim is its left side, the relation, and its right side."""

    def rewrite(found: re.Match[str]) -> str:
        name, steps, relation = found.groups()
        return f", {relation!r}, " if relation else f"find({name!r}, {steps!r})" if name else found[0]

    code = TEXT_OR_RELATION.sub(rewrite, text)
    return eval(code, {**NAMES, "find": lambda name, steps: find(replies, name, steps)})  # noqa: S307  # our own page


def holds(left: Any, relation: str, right: Any) -> bool:
    match relation:
        case "==" | "!=":
            return same(left, right) == (relation == "==")
        case "has" | "has no":
            return part_of(right, left) == (relation == "has")
    return bool(left < right if relation == "<" else left > right)


def same(one: JsonValue, other: JsonValue) -> bool:
    """Equal, numbers to four decimal places."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) < 5e-5
    return one == other


def part_of(part: JsonValue, whole: JsonValue) -> bool:
    """Fields of an object, an element of a list, or letters of a text. Lists within objects have the same length."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(name in whole and part_of(inner, whole[name]) for name, inner in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return len(whole) == len(part) and all(map(part_of, part, whole))
    if isinstance(whole, list):
        return any(part_of(part, one) for one in whole)
    if isinstance(whole, str) and isinstance(part, str):
        return part in whole
    return same(part, whole)


PAGE = (Path(__file__).parents[2] / "docs/semantics.md").read_text(encoding="utf-8")
SHOWN = [*read_rows(PAGE)]
ROWS = [*SHOWN, *read_table(__file__, "semantics.yaml", list[Row])]
REPLY = TypeAdapter[JsonValue](JsonValue)


class Performance:
    """One row being acted out: the replies so far, and the service as it is at the moment."""

    def __init__(self, database: Path) -> None:
        self.replies: dict[str, JsonValue] = {}
        self._world = World()
        self._database = database
        self._running = contextlib.AsyncExitStack()
        self._remarks: dict[str, Callable[[str], Awaitable[None]]] = {
            r"(\d+) seconds pass": self._age,
            r"scoring in slow goes on": self._go_on,
            r"the service restarts(.*)": self._restart,
        }

    async def play(self, row: Row) -> None:
        try:
            await self._start()
            for request in row.requests:
                await (self._remark(request) if request.startswith("(") else self._send(request))
        finally:
            await self._running.aclose()

    async def _start(self) -> None:
        self._client = await self._running.enter_async_context(gateway(self._world, self._database))

    async def _send(self, text: str) -> None:
        request = SENT.fullmatch(text)
        assert request is not None, text
        times = int(request["times"] or 1)
        replies = await asyncio.gather(*(self._sent(request) for _ in range(times)))
        self.replies[request["name"]] = list(replies) if times > 1 else replies[0]

    async def _sent(self, request: re.Match[str]) -> JsonValue:
        response: httpx.Response = await self._client.request(
            request["method"],
            REFERENCE.sub(lambda found: str(find(self.replies, found[1], found[2])), request["path"]),
            json=evaluate(request["body"], self.replies) if request["body"] else None,
            headers={"Idempotency-Key": request["key"]} if request["key"] else {},
        )
        assert response.status_code == int(request["status"] or 200), response.text
        return REPLY.validate_json(response.content)

    async def _remark(self, remark: str) -> None:
        for pattern, act in self._remarks.items():
            if found := re.fullmatch(rf"\({pattern}\)", remark):
                await act(found[1] if found.groups() else "")
                return
        raise ValueError(f"not a remark: {remark}")

    async def _age(self, seconds: str) -> None:
        self._world.moment += timedelta(seconds=int(seconds))

    async def _go_on(self, _: str) -> None:
        self._world.going_on.set()

    async def _restart(self, how: str) -> None:
        changes: dict[str, dict[str, object]] = {
            "": {},
            " with version 2": {"version": "2"},
            " with other data": {"data": "other"},
            " with another judge": {"judge": "reviewer"},
            " and broken can be read": {"broken": False},
            " and broken cannot be read": {"broken": True},
        }
        await self._running.aclose()
        for name, value in changes[how].items():
            setattr(self._world, name, value)
        await self._start()


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.section}: {row.rule}") for row in ROWS])
def test_a_row_holds(row: Row, database: Path) -> None:
    performance = Performance(database)
    asyncio.run(performance.play(row))
    claims = [(text, *evaluate(text, performance.replies)) for text in row.holds]
    assert [claim for claim in claims if not holds(*claim[1:])] == []


def test_every_line_of_the_tables_is_a_row_and_every_rule_has_one() -> None:
    sections = [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")]
    explained, *ruled = sections
    lines = PAGE.split("\n## Tasks\n")[1].splitlines()
    listed = {rule for line in lines for rule in re.findall("^- (.*)", line)}
    shown = {row.rule for row in SHOWN}
    tables = sum(line == "|---|---|---|" for line in lines)
    assert (explained, {row.section for row in SHOWN}) == ("How to read the tables", {*ruled})
    assert sum(line.startswith("|") for line in lines) == len(SHOWN) + 2 * tables
    assert (listed & shown, listed | shown) == (set(), {row.rule for row in ROWS})
    assert {row.section for row in ROWS} == {*ruled}
