"""Worlds and their events for the pages. All text is untrusted: games wrote it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from app.domain.worlds import Event, World
from app.toolkit.display import Excerpt, day_and_time, excerpt, heat, visible

AT_ONCE: Final = 400
"""Characters of an event that are shown before folding."""
MOST_NAMES: Final = 12
"""Maximum number of names in a list."""


@dataclass(frozen=True)
class Node:
    """A world with its branches."""

    world: World
    branches: tuple["Node", ...]


@dataclass(frozen=True)
class Line:
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
class Day:
    date: str
    lines: tuple[Line, ...]


def tree_of(worlds: Sequence[World]) -> tuple[Node, ...]:
    """The trees of worlds. A world whose parent is not given is a root."""
    names = {world.name for world in worlds}
    below: dict[str | None, list[World]] = {}
    for world in worlds:
        below.setdefault(world.parent if world.parent in names else None, []).append(world)
    return tuple(_node(world, below) for world in below.get(None, ()))


def _node(world: World, below: Mapping[str | None, Sequence[World]]) -> Node:
    """Recursive; the store limits the depth of branches."""
    return Node(world, tuple(_node(branch, below) for branch in below.get(world.name, ())))


def family_of(name: str, worlds: Sequence[World]) -> tuple[Node, ...]:
    """The tree with the world; empty if it has no relatives."""
    return tuple(node for node in tree_of(worlds) if node.branches and _holds(node, name))


def _holds(node: Node, name: str) -> bool:
    return node.world.name == name or any(_holds(branch, name) for branch in node.branches)


def days_of(events: Sequence[Event]) -> tuple[Day, ...]:
    """Groups events by day, in the given order."""
    lines = map(line_of, events)
    return tuple(Day(date, tuple(some)) for date, some in groupby(lines, key=lambda line: line.time[:10]))


def line_of(event: Event) -> Line:
    time = day_and_time(event.time)
    return Line(
        id=event.id,
        time=time,
        hour=time[11:],
        kind=visible(event.kind or ""),
        text=excerpt(event.text, AT_ONCE),
        known_to=_known_to(event.visibility),
        everybody=event.visibility == "public",
        importance=event.importance,
        heat=heat(event.importance / 10),
        facts=tuple((name, visible(value)) for name, value in _facts(event) if value),
    )


def _known_to(visibility: str | Sequence[str]) -> str:
    if visibility == "public":
        return "everybody"
    return _listed(visibility) or "nobody"


def _facts(event: Event) -> tuple[tuple[str, str], ...]:
    return (
        ("actors", _listed(event.actors)),
        ("at", event.location or ""),
        ("tags", _listed(event.tags)),
        ("holds from", day_and_time(event.valid_from)),
        ("holds until", day_and_time(event.valid_to)),
        ("in place of", _listed(event.supersedes)),
        ("given away by", _listed(event.leak_terms)),
    )


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMES
    return visible(", ".join(names[:MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
