"""Groups that come in pieces over HTTP: from many connections at once, in any order, more than once, too late. The rest
is in docs/semantics.md."""

import asyncio
import contextlib
import sqlite3
from datetime import timedelta
from pathlib import Path

import httpx
from pydantic import JsonValue

from app.service.requests import GroupReply, HandedOutTask
from tests.http.api.asking import answer, collect, score, take, tell
from tests.support.playground import World, gateway, until


def piece(task: HandedOutTask, index: int, *texts: str, size: int, key: str = "k") -> dict[str, JsonValue]:
    return answer(task, *texts, part={"key": key, "index": index, "size": size})


async def scored(client: httpx.AsyncClient, *groups: object, wait: float | None = None) -> GroupReply:
    """What is told of the last."""
    return (await score(client, *groups, wait=wait))[-1]


def count_pieces(database: Path) -> int:
    """Completions that wait for the others of their groups."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("SELECT count(*) FROM part_members").fetchone()[0])


async def test_a_part_that_is_none_is_refused(client: httpx.AsyncClient) -> None:
    part: dict[str, JsonValue] = {"key": "k", "index": 0, "size": 1}
    wrong: list[dict[str, JsonValue]] = [
        {"key": ""},
        {"key": "k" * 201},
        {"index": -1},
        {"index": True},
        {"size": 0},
        {"size": 257},
        {"size": None},
    ]
    sent = piece(await take(client), 0, "1", size=1)
    replies = [await client.post("/score", json={"groups": [sent | {"part": part | one}]}) for one in wrong]
    fields = [(reply.status_code, reply.json()["errors"][0]["field"]) for reply in replies]
    assert fields == [(422, f"body.groups[0].part.{name}") for one in wrong for name in one]


async def test_evaluations_may_come_in_pieces_and_stay_out_of_the_figures(client: httpx.AsyncClient) -> None:
    task = (await take(client, "arena")).model_copy(update={"lease_id": None})
    pieces = [piece(task, place, text, size=2) for place, text in enumerate(("0.8", "0.2"))]
    replies = await tell(client, *pieces, purpose="eval")
    assert [reply.rewards for reply in replies if isinstance(reply, GroupReply)] == [(0.8,), (0.2,)]
    assert (await client.get("/stats")).json()["rows"] == []


async def test_what_could_not_be_scored_is_tried_again_when_a_piece_comes_again(client: httpx.AsyncClient) -> None:
    task = await take(client, "flaky")
    pieces = [piece(task, place, text, size=2) for place, text in enumerate(("once", "0.5"))]
    failed = await tell(client, *pieces)
    again = await scored(client, pieces[0])
    whole = (await collect(client, again.group_id))[0]
    assert [reply.rewards for reply in failed if isinstance(reply, GroupReply)] == [(None,), (0.5,)]
    assert (again.outcome, again.rewards, whole.rewards) == ("scored", (1,), (1, 0.5))


async def test_who_hangs_up_leaves_its_piece_behind(client: httpx.AsyncClient, database: Path) -> None:
    task = await take(client)
    gone = asyncio.ensure_future(scored(client, piece(task, 0, "1", size=2)))
    await until(lambda: count_pieces(database) == 1)
    gone.cancel()
    await asyncio.gather(gone, return_exceptions=True)
    last = await scored(client, piece(task, 1, "0", size=2))
    assert ((await collect(client, last.group_id))[0].rewards, last.mean) == ((1, 0), 0.5)


async def test_groups_are_looked_after_while_what_was_interrupted_goes_on(database: Path) -> None:
    world = World()
    async with gateway(world, database) as client:
        task = await take(client, "slow")
        await scored(client, piece(task, 0, "1", size=1), wait=0.0)
    async with gateway(world, database) as client:
        await until(lambda: world.scorings["slow"] == 2)
        await scored(client, piece(await take(client), 1, "1", size=3), wait=0.0)
        world.moment += timedelta(seconds=60)
        await until(lambda: world.scorings["toy"] == 1)
    assert (world.scorings["slow"], world.scorings["toy"]) == (2, 1)
