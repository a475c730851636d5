"""Turns of play: players find their own alone, and nothing stays for ever."""

from datetime import UTC, datetime, timedelta

from app.features.play.model import PlayReply, PlayTurn
from app.features.play.store import PlayStore
from app.main.store import Store
from tests.support.store_cases import opened

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def turn(name: str, player: str = "one", day: int = 0) -> PlayTurn:
    said = {"character": "hob", "conversation": [{"role": "user", "content": "NUL \x00"}]}
    at = NOW + timedelta(days=day)
    return PlayTurn(turn_id=name, player=player, character="hob", world=None, moment=said, created_at=at)


def reply(name: str, text: str = "Aye. \ud800\x00", day: int = 0) -> PlayReply:
    at = NOW + timedelta(days=day)
    return PlayReply(reply_id=name, policy="warm", model="m", text=text, flags=("truncated",), created_at=at)


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


async def test_what_nobody_has_asked_for_a_time_is_removed(store: Store) -> None:
    plays = store.part(PlayStore)
    await plays.add(turn("old"), [reply("a")])
    await plays.add(turn("asked again"), [reply("b")])
    await plays.add(turn("asked again", day=5), [reply("c", day=5)])
    removed = await plays.prune(NOW + timedelta(days=1))
    left = [await plays.get("one", name) is not None for name in ("old", "asked again")]
    assert (removed, left) == (1, [False, True])


async def test_all_replicas_hash_players_alike(store: Store, store_url: str) -> None:
    async with opened(store_url) as replica:
        found = await store.part(PlayStore).load_salt(), 32
        assert found == (salt := await replica.part(PlayStore).load_salt(), len(salt))
