"""Turns of play: players find their own alone, and nothing stays for ever."""

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.domain.errors import Conflict
from app.domain.worlds import Event, Talk, TalkLine
from app.features.play.model import Forgotten, PlayReply, PlayTurn, RememberedTurn
from app.features.play.store import PlayStore, play_turns
from app.features.worlds.store import EventStore
from app.features.worlds.store_memories import TalkStore
from app.main.store import Store
from app.store.statements import Row, insert_rows
from tests.support.databases import connected
from tests.support.store_cases import MovableClock, opened

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def turn(name: str, player: str = "one", day: int = 0) -> PlayTurn:
    said = {"character": "hob", "conversation": [{"role": "user", "content": "NUL \x00"}]}
    at = NOW + timedelta(days=day)
    return PlayTurn(turn_id=name, player=player, character="hob", world=None, moment=said, created_at=at)


def reply(name: str, text: str = "Aye. \ud800\x00", day: int = 0) -> PlayReply:
    at = NOW + timedelta(days=day)
    return PlayReply(reply_id=name, policy="warm", model="m", text=text, flags=("truncated",), created_at=at)


SIZES = (1, 3, 10, 60, 200)
LINES = (TalkLine(speaker="player", text="Hob?"),)


async def remember_in_shore(store: Store, turn: PlayTurn) -> None:
    """A world that keeps memories."""
    events = store.part(EventStore)
    await events.add_events("shore", [Event(id="rope", time=NOW, text="It broke.")])
    await events.set_memory("shore", kept=True)
    talk = Talk("shore", turn.player, "hob", None, turn.turn_id, turn.turn_id, LINES, turn.turn_id)
    await store.part(PlayStore).add(turn, [reply(f"{turn.turn_id}1")], RememberedTurn(talk, None))


async def test_alternates_stand_in_one_turn_and_one_of_them_is_better(store: Store, store_url: str) -> None:
    plays = store.part(PlayStore)
    await plays.add(turn("t"), [reply("a"), reply("b")])
    async with opened(store_url) as replica:
        await replica.part(PlayStore).add(turn("t"), [reply("c")])
    marked = [
        await plays.mark_better("one", "t", "a"),
        await plays.mark_better("one", "t", "c"),
        await plays.mark_better("one", "t", "none"),
        await plays.mark_better("two", "t", "a"),
    ]
    found = await plays.get("one", "t")
    better = reply("c").model_copy(update={"better": True})
    expected = turn("t").model_copy(update={"replies": (reply("a"), reply("b"), better)})
    assert (marked, found) == ([True, True, False, False], expected)


async def test_players_see_and_remove_their_own_alone(store: Store) -> None:
    plays = store.part(PlayStore)
    for name, player, day in (("a", "one", 0), ("b", "one", 1), ("c", "two", 2)):
        await plays.add(turn(name, player, day), [reply(f"{name}1", day=day)])
    listed = [one.turn_id for one in await plays.list_turns("one", 10)]
    removed = [await plays.remove("one", "c"), await plays.remove("one", "a")]
    removed.append(await plays.remove("one"))
    left = [await plays.get(player, name) is not None for player, name in (("one", "b"), ("two", "c"))]
    assert (listed, removed, left) == (["b", "a"], [0, 1, 1], [False, True])


async def test_what_nobody_has_asked_for_a_time_is_removed(store: Store, clock: MovableClock) -> None:
    """With what is remembered of it, and what a game told then."""
    plays = store.part(PlayStore)
    await plays.add(turn("old"), [reply("a")])
    await plays.add(turn("asked again"), [reply("b")])
    await plays.add(turn("asked again", day=5), [reply("c", day=5)])
    await remember_in_shore(store, turn("remembered", "two"))
    clock.moment = NOW
    posted = Talk("shore", "two", "hob", NOW, "posted", "posted", LINES)
    new = await store.part(TalkStore).add([posted])
    removed = await plays.prune(NOW + timedelta(days=1))
    left = [await plays.get("one", name) is not None for name in ("old", "asked again")]
    assert (new, removed, left) == (1, Forgotten(removed=2, turns=2), [False, True])
    assert await store.part(TalkStore).list_own("two", 10) == []


async def test_turns_that_are_removed_are_not_remembered(store: Store) -> None:
    for name in ("a", "b"):
        await remember_in_shore(store, turn(name))
    counts = []
    for removed in ("a", None):
        await store.part(PlayStore).remove("one", removed)
        counts.append(len(await store.part(TalkStore).list_own("one", 10)))
    assert counts == [1, 0]


async def test_what_was_asked_before_its_player_was_forgotten_is_not_kept(store: Store) -> None:
    plays = store.part(PlayStore)
    await plays.forget("one", NOW)
    with pytest.raises(Conflict, match="forgotten before the reply came"):
        await plays.add(turn("late", day=1), [reply("a")], asked_at=NOW)
    await plays.add(turn("new", day=1), [reply("b")], asked_at=NOW + timedelta(seconds=1))
    assert [one.turn_id for one in await plays.list_turns("one", 10)] == ["new"]


async def test_removed_turns_leave_no_trace_in_the_file(sqlite_url: str) -> None:
    """SQLite moves rows from page to page while others are deleted, and does not overwrite the places that they had."""
    drawn, folder = random.Random(1), Path(sqlite_url.removeprefix("sqlite:///")).parent
    said = [f"said by {player:02}." for player in range(60)]
    async with opened(sqlite_url) as store:
        plays = store.part(PlayStore)
        for gone in range(20):
            whose = [drawn.randrange(gone, len(said)) for _ in range(400)]
            rows: list[Row] = [
                {"player": str(player), "turn_id": f"{gone} {number}", "body": said[player] * drawn.choice(SIZES)}
                for number, player in enumerate(whose)
            ]
            with connected(sqlite_url) as connection:
                insert_rows(connection, play_turns, [{**row, "created_at": 0, "answered_at": 0} for row in rows])
            await plays.forget(str(gone), NOW)
        await plays.erase_removed()
        files = b"".join(path.read_bytes() for path in folder.glob("store.db*"))
    assert [text for text in said if text.encode() in files] == said[20:]


async def test_all_replicas_hash_players_alike(store: Store, store_url: str) -> None:
    async with opened(store_url) as replica:
        found = await store.part(PlayStore).load_salt(), 32
        assert found == (salt := await replica.part(PlayStore).load_salt(), len(salt))
