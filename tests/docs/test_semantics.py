"""docs/semantics.md, row by row, against the real service over HTTP."""

import asyncio
import contextlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue, TypeAdapter

from tests.support.notation import (
    REFERENCE,
    Call,
    Claim,
    Fields,
    Items,
    Plain,
    Row,
    Sent,
    Unreadable,
    Value,
    claim,
    reference,
    rows_of,
    sent,
)
from tests.support.playground import World, gateway

Scope = Mapping[str, JsonValue]
"""The replies so far, by name."""


def references_in(path: str, scope: Scope) -> str:
    """A path with the references in it replaced by what they stand for."""
    return REFERENCE.sub(lambda found: str(evaluated(reference(found), scope)), path)


def evaluated(node: Value, scope: Scope) -> JsonValue:
    """What it stands for, given the replies so far."""
    if isinstance(node, Plain):
        return node.value
    if isinstance(node, Items):
        return [evaluated(one, scope) for one in node.values]
    if isinstance(node, Fields):
        return {name: evaluated(one, scope) for name, one in node.values}
    if isinstance(node, Call):
        return _called(node.function, [evaluated(one, scope) for one in node.arguments])
    if node.name not in scope:
        raise Unreadable(f"nothing is called ${node.name}")
    return _followed(scope[node.name], node.steps)


def _followed(found: JsonValue, steps: tuple[str | int, ...]) -> JsonValue:
    for place, step in enumerate(steps):
        if step == "*" and isinstance(found, list):
            return [_followed(one, steps[place + 1 :]) for one in found]
        match found, step:
            case list(), int():
                found = found[step]
            case dict(), str():
                found = found[step]
            case _:
                raise Unreadable(f"{step!r} does not lead anywhere in {found!r}")
    return found


def _called(function: str, arguments: list[JsonValue]) -> JsonValue:
    first, *others = arguments
    if function == "answers" and isinstance(first, dict):
        return {
            "task_id": first["task_id"],
            "lease_id": first["lease_id"],
            "completions": [{"text": text} if isinstance(text, str) else text for text in others],
        }
    if function == "text":
        return json.dumps(first, ensure_ascii=False)
    if isinstance(first, list):
        if function == "count":
            return len(first) if not others else first.count(others[0])
        if function == "set":
            return [json.loads(one) for one in sorted({json.dumps(one, sort_keys=True) for one in first})]
    raise Unreadable(f"{function} of {arguments!r}")


def holds(relation: str, left: JsonValue, right: JsonValue) -> bool:
    if relation in {"==", "!="}:
        return same(left, right) == (relation == "==")
    if relation in {"has", "has no"}:
        return part_of(right, left) == (relation == "has")
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise Unreadable(f"only numbers are compared by {relation}: {left!r}, {right!r}")
    return left < right if relation == "<" else left > right


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
ROWS = rows_of(PAGE)
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
                await (self._remark(request) if request.startswith("(") else self._send(sent(request)))
        finally:
            await self._running.aclose()

    async def _start(self) -> None:
        self._client = await self._running.enter_async_context(gateway(self._world, self._database))

    async def _send(self, request: Sent) -> None:
        replies = await asyncio.gather(*(self._sent(request) for _ in range(request.times)))
        self.replies[request.name] = list(replies) if request.times > 1 else replies[0]

    async def _sent(self, request: Sent) -> JsonValue:
        response: httpx.Response = await self._client.request(
            request.method,
            references_in(request.path, self.replies),
            json=None if request.body is None else evaluated(request.body, self.replies),
            headers={} if request.key is None else {"Idempotency-Key": request.key},
        )
        assert response.status_code == request.status, response.text
        return REPLY.validate_json(response.content)

    async def _remark(self, remark: str) -> None:
        for pattern, act in self._remarks.items():
            if found := re.fullmatch(rf"\({pattern}\)", remark):
                await act(found[1] if found.groups() else "")
                return
        raise Unreadable(f"not a remark: {remark}")

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
        if how not in changes:
            raise Unreadable(f"not a way to restart: {how}")
        await self._running.aclose()
        for name, value in changes[how].items():
            setattr(self._world, name, value)
        await self._start()


def checked(one: Claim, replies: dict[str, JsonValue]) -> tuple[bool, JsonValue, JsonValue]:
    left, right = evaluated(one.left, replies), evaluated(one.right, replies)
    return holds(one.relation, left, right), left, right


@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row.section}: {row.rule}") for row in ROWS])
def test_a_row_holds(row: Row, database: Path) -> None:
    performance = Performance(database)
    claims = [claim(text) for text in row.holds]
    asyncio.run(performance.play(row))
    for text, one in zip(row.holds, claims, strict=True):
        held, left, right = checked(one, performance.replies)
        assert held, f"{text}\n  left:  {left!r}\n  right: {right!r}"


def test_every_line_of_the_tables_is_a_row_and_every_section_has_some() -> None:
    sections = [line.removeprefix("## ") for line in PAGE.splitlines() if line.startswith("## ")]
    explained, *ruled = sections
    counts = {section: sum(row.section == section for row in ROWS) for section in sections}
    lines = PAGE.split("\n## Tasks\n")[1].splitlines()
    tables = sum(line == "|---|---|---|" for line in lines)
    assert (explained, counts[explained]) == ("How to read the tables", 0)
    assert min(counts[section] for section in ruled) > 0
    assert sum(line.startswith("|") for line in lines) == len(ROWS) + 2 * tables
    assert (len(ROWS), tables) == (sum(counts.values()), len(ruled))
