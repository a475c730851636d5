"""Searches of random worlds, compared with what a plain reading of the rules says."""

import contextlib
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.errors import Conflict
from app.domain.worlds import Event, EventSearch, Obstacle, SearchFindings, extract_terms
from app.features.worlds.store import EventStore
from app.main.store import Store
from tests.support.tiers import examples

pytestmark = pytest.mark.dialects

BEGIN = datetime(1302, 5, 1, tzinfo=UTC)
HOURS = 40
NAMES = ("hob", "ottoline", "watch", "guild", "mill")
WORDS = ("bridge", "tower", "wolf", "grain", "fire", "橋が落ちた", "塔の鐘", "mayor", "tax", "ferry")

Reasons = Mapping[str, tuple[Obstacle, str | None]]


def at(hour: float) -> datetime:
    return BEGIN + timedelta(hours=hour)


@dataclass
class Told:
    """What was done to worlds, kept as it was said."""

    parents: dict[str, tuple[str, datetime]] = field(default_factory=dict)
    events: list[tuple[str, Event]] = field(default_factory=list)
    withdrawn: set[tuple[str, str]] = field(default_factory=set)

    def lineage(self, world: str) -> list[tuple[str, datetime]]:
        """With the last moment that each shares."""
        found = [(world, at(10_000))]
        while found[-1][0] in self.parents:
            parent, moment = self.parents[found[-1][0]]
            found.append((parent, min(moment, found[-1][1])))
        return found

    def of(self, world: str) -> list[Event]:
        """World by world, the first first, and there in the order in which they were told; what the world or its past
        withdrew is not among them."""
        lineage = self.lineage(world)
        worlds = [name for name, _ in lineage]
        nearest: dict[str, tuple[int, Event | None]] = {}
        for name, event in self.events:
            if name not in worlds or event.time > lineage[worlds.index(name)][1]:
                continue
            depth = worlds.index(name)
            if event.id not in nearest or depth < nearest[event.id][0]:
                gone = any((nearer, event.id) in self.withdrawn for nearer in worlds[: depth + 1])
                nearest[event.id] = (depth, None if gone else event)
        standing = {id(event) for _, event in nearest.values() if event is not None}
        in_order = sorted(self.events, key=lambda one: one[0])
        return [event for _, event in in_order if id(event) in standing]


def expected(told: Told, asked: EventSearch) -> tuple[list[Event], Reasons]:
    """What may be told, and why the rest may not."""
    standing, names = told.of(asked.world), asked.names
    as_of = asked.as_of or max(event.time for event in standing)
    heard = [event for event in standing if event.time <= as_of and may_know(event, names)]
    open_: list[Event] = []
    reasons: dict[str, tuple[Obstacle, str | None]] = {}
    for event in standing:
        successors = [one for one in heard if event.id in one.supersedes and one.id != event.id]
        if event.time > as_of:
            reasons[event.id] = ("future", None)
        elif not may_know(event, names):
            reasons[event.id] = ("not_visible", None)
        elif successors:
            reasons[event.id] = ("superseded", max(successors, key=lambda one: (one.time, standing.index(one))).id)
        elif event.valid_from is not None and event.valid_from > as_of:
            reasons[event.id] = ("not_yet_valid", None)
        elif event.valid_to is not None and event.valid_to <= as_of:
            reasons[event.id] = ("no_longer_valid", None)
        else:
            open_.append(event)
    return open_, reasons


def may_know(event: Event, names: frozenset[str]) -> bool:
    return event.visibility == "public" or bool(names & set(event.visibility))


def some_event(chance: random.Random, number: int) -> Event:
    hour = chance.randrange(HOURS)
    known_to = tuple(chance.sample(NAMES, chance.randint(0, 3)))
    return Event(
        id=f"e{number}",
        time=at(hour),
        text=" ".join(chance.sample(WORDS, 3)),
        visibility="public" if chance.random() < 0.5 else known_to,
        importance=chance.randint(0, 10),
        valid_from=at(hour + chance.randint(-3, 6)) if chance.random() < 0.2 else None,
        valid_to=at(hour + chance.randint(1, 9)) if chance.random() < 0.2 else None,
        supersedes=tuple(f"e{chance.randrange(30)}" for _ in range(chance.choice((0, 0, 0, 1, 2)))),
    )


async def played(store: Store, chance: random.Random, name: str) -> Told:
    """Three worlds, each branching from an earlier one; events come in any order of their times."""
    told, worlds = Told(), [f"{name}-0"]
    await store.part(EventStore).add_events(worlds[0], [])
    for number in range(1, 3):
        parent, moment = chance.choice(worlds), at(chance.randrange(HOURS))
        worlds.append(f"{name}-{number}")
        await store.part(EventStore).branch(worlds[-1], parent, moment)
        told.parents[worlds[-1]] = (parent, moment)
    for number in range(30):
        world, event = chance.choice(worlds), some_event(chance, number if chance.random() < 0.8 else number // 2)
        with contextlib.suppress(Conflict):
            if (await store.part(EventStore).add_events(world, [event])).new:
                told.events.append((world, event))
        if chance.random() < 0.15:
            world, event_id = chance.choice(worlds), f"e{chance.randrange(number + 1)}"
            if await store.part(EventStore).withdraw(world, event_id):
                told.withdrawn.add((world, event_id))
    return told


def question(chance: random.Random, name: str) -> EventSearch:
    return EventSearch(
        f"{name}-{chance.randrange(3)}",
        at(chance.randrange(HOURS)) if chance.random() < 0.9 else None,
        frozenset(chance.sample(NAMES, chance.randint(0, 3))),
        tuple(dict.fromkeys(extract_terms(" ".join(chance.sample(WORDS, 2))))),
        most=chance.choice((9, 64)),
    )


def ways(found: SearchFindings, asked: EventSearch) -> dict[str, list[str]]:
    """What was found in each way; of the text only where there is room for all."""
    seen = {way: [one.event.id for one in found.visible if way in one.ways] for way in ("newest", "important", "text")}
    seen["text"] = seen["text"] if asked.most > len(found.visible) else []
    return seen


def ways_of(open_: list[Event], asked: EventSearch, found: SearchFindings) -> dict[str, list[str]]:
    """Of equal times the last that was told is the newest."""
    newest = sorted(reversed(open_), key=lambda event: event.time, reverse=True)
    important = {event.id for event in sorted(newest, key=lambda event: -event.importance)[: asked.most]}
    matching = [event.id for event in newest if set(asked.terms) & set(extract_terms(event.searchable_text))]
    return {
        "newest": [event.id for event in newest[: asked.most]],
        "important": [event.id for event in newest if event.id in important],
        "text": matching if asked.most > len(found.visible) else [],
    }


@pytest.mark.parametrize("seed", range(examples(16, fewest=3)))
async def test_nothing_is_told_that_could_not_be_known_and_everything_that_could(store: Store, seed: int) -> None:
    chance = random.Random(seed)
    told = await played(store, chance, "w")
    for _ in range(30):
        asked = question(chance, "w")
        found = await store.part(EventStore).search(asked)
        assert found is not None
        open_, reasons = expected(told, asked)
        hidden = {one.event.id: (one.reason, one.by) for one in found.hidden}
        right = {event_id: reasons.get(event_id) for event_id in hidden}
        assert (ways(found, asked), hidden) == (ways_of(open_, asked, found), right)
