"""Lines of players: the first one stays, a passing failure gives way, and each is paid for once."""

import asyncio

import pytest

from app.domain.judging import Judgement
from app.domain.players import PlayedLine, PlayerLine
from app.main.store import Store
from tests.support.store_cases import MovableClock, group, opened, record


def answer(key: str) -> Judgement:
    return Judgement(judge="player:carter", model="m", order=(), calls=1, cost_usd=0.5, purpose="player", reading=key)


def line(say: str) -> PlayedLine:
    return PlayedLine(line=PlayerLine(say=say), made=(answer("key"),))


@pytest.mark.dialects
async def test_of_two_replicas_the_first_line_stays(store: Store, store_url: str, clock: MovableClock) -> None:
    failed = PlayedLine(fault="no answer", passing=True)
    async with opened(store_url, clock) as other:
        put = [await store.player_lines.put("key", failed)]
        put += await asyncio.gather(store.player_lines.put("key", line("a")), other.player_lines.put("key", line("b")))
        put += [await other.player_lines.put("key", failed)]
        found = await other.player_lines.find_lines(["key", "none"])
    assert put[0] == failed
    assert put[1] in (line("a"), line("b"))
    assert [*put[2:], dict(found)] == [put[1], put[1], {"key": put[1]}]


@pytest.mark.dialects
async def test_answers_cost_nothing_once_a_group_has_them(store: Store) -> None:
    await store.tasks.put([record(0)])
    await store.player_lines.put("key", line("a"))
    before = await store.player_lines.find_lines(["key"])
    await store.groups.add([group(run=None, judgements=before["key"].made)])
    after = await store.player_lines.find_lines(["key"])
    assert [found["key"].made for found in (before, after)] == [(answer("key"),), (answer("key").without_cost,)]
