"""What is remembered of a player: found by words and time among their own, in a world and its past."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.domain.errors import Conflict
from app.domain.worlds import Event, Talk, TalkLine, TalkSearch
from app.features.worlds.store import EventStore
from app.features.worlds.store_memories import TalkStore
from app.main.store import Store

NOON = datetime(1312, 4, 3, 12, tzinfo=UTC)


def talk(text: str, world: str = "shore", player: str = "ada", character: str = "hob", hours: float = 0) -> Talk:
    lines = (TalkLine(speaker="player", text=text), TalkLine(speaker="npc", text="Aye. \x00"))
    return Talk(world, player, character, NOON + timedelta(hours=hours), text, f"place of {text}", lines)


@pytest.fixture
async def talks(store: Store) -> TalkStore:
    """Of `shore`, where two players spoke in the morning and one in the evening, and of a game saved there at noon."""
    events, talks = store.part(EventStore), store.part(TalkStore)
    await events.add_events("shore", [Event(id="rope", time=NOON + timedelta(hours=9), text="It broke.")])
    await events.set_memory("shore", kept=True)
    await talks.add([talk("My horse is lame.", hours=-3), talk("The horse is sold.", hours=6)])
    await talks.add([talk("I owe the smith.", player="tom"), talk("Salt is dear.", character="ottoline")])
    await events.branch("saved", "shore", NOON)
    await talks.add([talk("The horse is well.", "saved", hours=1)])
    return talks


async def find(talks: TalkStore, **asked: Any) -> list[str]:
    usual: Mapping[str, Any] = {"world": "shore", "player": "ada", "character": "hob", "terms": ("horse",)}
    findings, found = await talks.search(TalkSearch(**{**usual, **asked}))
    assert [one.event.text for one in findings.visible] == ["\n".join(line.text for line in one.lines) for one in found]
    return [one.lines[0].text for one in found]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, ["My horse is lame.", "The horse is sold."]),
        ({"as_of": NOON}, ["My horse is lame."]),
        ({"world": "saved"}, ["My horse is lame.", "The horse is well."]),
        ({"player": "tom", "terms": ("horse", "smith")}, ["I owe the smith."]),
        ({"player": "eve"}, []),
        ({"character": "ottoline"}, ["Salt is dear."]),
        ({"places": frozenset({"place of My horse is lame."})}, ["The horse is sold."]),
        ({"until": NOON}, []),
        ({"world": "nowhere"}, []),
        ({"world": "\x00"}, []),
    ],
)
async def test_a_player_s_own_talk_is_found_where_and_when_it_was_heard(
    talks: TalkStore, asked: dict[str, Any], found: list[str]
) -> None:
    assert await find(talks, **asked) == found


async def test_a_rare_word_finds_what_is_long_ago(talks: TalkStore) -> None:
    """Words that very many have find nothing more than what is newest."""
    await talks.add([talk("My lantern is in the mill.", hours=-5)])
    await talks.add([talk(f"The horse eats. {number}", hours=number / 1000) for number in range(300)])
    found = [await find(talks, terms=terms) for terms in (("horse", "lantern"), ("horse",))]
    assert [("My lantern is in the mill." in texts, len(texts)) for texts in found] == [(True, 33), (False, 32)]


async def test_who_keeps_no_memories_takes_none(talks: TalkStore, store: Store) -> None:
    """What a branch remembers of its parent's past goes with the parent's memories alone."""
    events = store.part(EventStore)
    await events.set_memory("shore", kept=False)
    with pytest.raises(Conflict, match="keeps no memories"):
        await talks.add([talk("Again.")])
    left = [await find(talks), await find(talks, world="saved")]
    await events.close("saved")
    with pytest.raises(Conflict, match="is closed"):
        await talks.add([talk("Again.", "saved")])
    with pytest.raises(Conflict, match="is closed"):
        await events.set_memory("saved", kept=False)
    assert left == [[], ["The horse is well."]]
