"""docs/semantics.md, row by row, against the real service over HTTP."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue, TypeAdapter

from tests.support.meaning import evaluated, holds, references_in
from tests.support.notation import Claim, Row, Sent, Unreadable, claim, rows_of, sent
from tests.support.playground import World, gateway

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
def test_a_row_holds(row: Row, tmp_path: Path, migrated_file: Path) -> None:
    database = tmp_path / "store.db"
    database.write_bytes(migrated_file.read_bytes())
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
