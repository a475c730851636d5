"""Worlds and their events for the pages. All text is untrusted: games wrote it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from app.domain.worlds import Event, World
from app.toolkit.display import Excerpt, cut_excerpt, escape_invisible, format_time, scale_heat

VISIBLE_CHARACTERS: Final = 400
"""Characters of an event that are shown before folding."""
MAX_NAMES: Final = 12
"""Maximum number of names in a list."""


@dataclass(frozen=True)
class WorldNode:
    """A world with its branches."""

    world: World
    branches: tuple["WorldNode", ...]


@dataclass(frozen=True)
class EventLine:
    """One event. `importance` is out of 10; `facts` are its other fields as (name, value)."""

    id: str
    time: str
    hour: str
    kind: str
    text: Excerpt
    known_to: str
    everybody: bool
    importance: int
    heat: int
    facts: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class EventDay:
    date: str
    lines: tuple[EventLine, ...]


def build_tree(worlds: Sequence[World]) -> tuple[WorldNode, ...]:
    """The trees of worlds. A world whose parent is not given is a root."""
    names = {world.name for world in worlds}
    below: dict[str | None, list[World]] = {}
    for world in worlds:
        below.setdefault(world.parent if world.parent in names else None, []).append(world)
    return tuple(_build_node(world, below) for world in below.get(None, ()))


def _build_node(world: World, below: Mapping[str | None, Sequence[World]]) -> WorldNode:
    """Recursive; the store limits the depth of branches."""
    return WorldNode(world, tuple(_build_node(branch, below) for branch in below.get(world.name, ())))


def find_family(name: str, worlds: Sequence[World]) -> tuple[WorldNode, ...]:
    """The tree with the world; empty if it has no relatives."""
    return tuple(node for node in build_tree(worlds) if node.branches and _contains_world(node, name))


def _contains_world(node: WorldNode, name: str) -> bool:
    return node.world.name == name or any(_contains_world(branch, name) for branch in node.branches)


def group_by_day(events: Sequence[Event]) -> tuple[EventDay, ...]:
    """Groups events by day, in the given order."""
    lines = map(build_event_line, events)
    return tuple(EventDay(date, tuple(some)) for date, some in groupby(lines, key=lambda line: line.time[:10]))


def build_event_line(event: Event) -> EventLine:
    time = format_time(event.time)
    return EventLine(
        id=event.id,
        time=time,
        hour=time[11:],
        kind=escape_invisible(event.kind or ""),
        text=cut_excerpt(event.text, VISIBLE_CHARACTERS),
        known_to=_describe_audience(event.visibility),
        everybody=event.visibility == "public",
        importance=event.importance,
        heat=scale_heat(event.importance / 10),
        facts=tuple((name, escape_invisible(value)) for name, value in _list_facts(event) if value),
    )


def _describe_audience(visibility: str | Sequence[str]) -> str:
    if visibility == "public":
        return "everybody"
    return _join_names(visibility) or "nobody"


def _list_facts(event: Event) -> tuple[tuple[str, str], ...]:
    return (
        ("actors", _join_names(event.actors)),
        ("at", event.location or ""),
        ("tags", _join_names(event.tags)),
        ("holds from", format_time(event.valid_from)),
        ("holds until", format_time(event.valid_to)),
        ("in place of", _join_names(event.supersedes)),
        ("given away by", _join_names(event.leak_terms)),
    )


def _join_names(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return escape_invisible(", ".join(names[:MAX_NAMES])) + (f" and {more} more" if more > 0 else "")
