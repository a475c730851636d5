"""Searches events: which ones a character may know at a time, and which near ones are withheld."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from app.domain.worlds import Event, EventSearch, Findings, Found, Hidden, Obstacle, Way
from app.store.event_candidates import COMMON, Matches, Scene, matches, near, windows
from app.store.event_rows import Stored, newest, standing
from app.store.lineages import Level
from app.store.prepared import Prepared
from app.store.rows import from_micros, to_micros
from app.store.seeks import by_dialect, listed

MOST_HIDDEN: Final = 32
MOST_SECRETS: Final = 32
"""Maximum number of non-public events found by terms: hidden ones, and those that many names may know."""
MOST_OF_A_KIND: Final = 12
"""Maximum number of events hidden for the same reason."""
WIDER: Final = 4
"""Factor by which the search is widened, once, if too many matches are withheld."""


@dataclass(frozen=True)
class Obstructed:
    reason: Obstacle
    by: str | None = None


def search(connection: Connection, levels: Sequence[Level], wanted: EventSearch) -> Findings:
    as_of = _moment(connection, levels, wanted)
    if as_of is None:
        return Findings(as_of=None)
    scene = Scene(levels, as_of, wanted.names, wanted.terms)
    matching = matches(connection, scene)
    around = near(connection, scene)
    for most in (wanted.most, wanted.most * WIDER):
        looked = _Look(connection, scene, matching, around, most)
        if looked.enough(wanted.most):
            break
    return Findings(
        as_of=from_micros(as_of),
        visible=looked.visible(wanted.most),
        hidden=looked.hidden(),
        frequencies=matching.frequencies,
        events=matching.events,
        common=COMMON,
    )


def _moment(connection: Connection, levels: Sequence[Level], wanted: EventSearch) -> int | None:
    if wanted.as_of is not None:
        return to_micros(wanted.as_of)
    return next((one.time for one in newest(connection, levels, 1)), None)


class _Look:
    """One search pass: up to `most` events per way of finding them, and the obstructions of each."""

    def __init__(
        self, connection: Connection, scene: Scene, matching: Matches, around: Sequence[int], most: int
    ) -> None:
        window = windows(connection, scene, matching.by_importance, most)
        self._scene, self._matching, self._most = scene, matching, most
        best, secrets = _best(matching.scores)[:most], _best(matching.hidden)[: min(most, MOST_SECRETS)]
        self._events = standing(connection, scene.levels, {*window.newest, *window.important, *best, *secrets, *around})
        widely_known = [one for one in secrets if self._could_know(one)]
        scores = {**matching.scores, **{one: matching.hidden[one] for one in widely_known}}
        self._ways: dict[Way, list[int]] = {
            "newest": list(window.newest),
            "important": list(window.important),
            "text": _best({one: scores[one] for one in {*best, *widely_known}}),
        }
        self._obstacles = _obstacles(connection, scene, self._events)

    def enough(self, wanted: int) -> bool:
        return all(len(found) < self._most or len(self._told(found)) >= wanted for found in self._ways.values())

    def visible(self, wanted: int) -> tuple[Found, ...]:
        """Visible events, newest first."""
        ways: dict[int, set[Way]] = {}
        for way, found in self._ways.items():
            for sequence in self._told(found)[:wanted]:
                ways.setdefault(sequence, set()).add(way)
        chosen = sorted(ways, key=lambda one: (self._events[one].time, one), reverse=True)
        return tuple(Found(self._events[one].event, frozenset(ways[one])) for one in chosen)

    def hidden(self) -> tuple[Hidden, ...]:
        """Hidden events, by matching terms first, then by distance in time."""
        kinds: Counter[str] = Counter()
        found: list[Hidden] = []
        for sequence in sorted(self._obstacles, key=self._distance):
            obstacle = self._obstacles[sequence]
            kinds[obstacle.reason] += 1
            if kinds[obstacle.reason] <= MOST_OF_A_KIND and len(found) < MOST_HIDDEN:
                found.append(Hidden(self._events[sequence].event, obstacle.reason, obstacle.by))
        return tuple(found)

    def _distance(self, sequence: int) -> tuple[float, int, int]:
        matching = max(self._matching.scores.get(sequence, 0.0), self._matching.hidden.get(sequence, 0.0))
        return -matching, abs(self._events[sequence].time - self._scene.as_of), sequence

    def _told(self, found: Sequence[int]) -> list[int]:
        return [one for one in found if one in self._events and one not in self._obstacles]

    def _could_know(self, sequence: int) -> bool:
        known = self._events.get(sequence)
        return known is not None and known.time <= self._scene.as_of and _may_know(known.event, self._scene.names)


def _best(scores: Mapping[int, float]) -> list[int]:
    """Sequences by score; of equal scores the latest added first."""
    ordered = sorted(((score, sequence) for sequence, score in scores.items()), reverse=True)
    return [sequence for _, sequence in ordered]


def _may_know(event: Event, names: frozenset[str]) -> bool:
    return event.visibility == "public" or not names.isdisjoint(event.visibility)


_SUCCESSORS: Final = Prepared(
    by_dialect(
        """
        SELECT CAST(coalesce(json_agg(json_build_array(superseded, sequence)), '[]') AS text) FROM event_successions
        WHERE world = ANY(CAST(:worlds AS bigint[])) AND superseded = ANY(CAST(:ids AS text[])) AND time <= :as_of
        """,
        """
        SELECT json_group_array(json_array(superseded, sequence)) FROM event_successions
        WHERE world IN (SELECT value FROM json_each(:worlds)) AND superseded IN (SELECT value FROM json_each(:ids))
        AND time <= :as_of
        """,
    )
)


def _obstacles(connection: Connection, scene: Scene, found: Mapping[int, Stored]) -> dict[int, Obstructed]:
    obstacles: dict[int, Obstructed] = {}
    for sequence, one in found.items():
        if one.time > scene.as_of:
            obstacles[sequence] = Obstructed("future")
        elif not _may_know(one.event, scene.names):
            obstacles[sequence] = Obstructed("not_visible")
    open_ = {one.event.id: one for sequence, one in found.items() if sequence not in obstacles}
    successors = _successors(connection, scene, open_)
    for event_id, one in open_.items():
        obstacle = Obstructed("superseded", successors[event_id]) if event_id in successors else _invalid(one, scene)
        if obstacle is not None:
            obstacles[one.sequence] = obstacle
    return obstacles


def _successors(connection: Connection, scene: Scene, found: Collection[str]) -> dict[str, str]:
    """For each event id, the newest superseding event that the asker knows."""
    if not found:
        return {}
    postgres = connection.dialect.name == "postgresql"
    ids = json.dumps(sorted(found))
    worlds = listed((level.number for level in scene.levels), postgres=postgres)
    ids = f"{{{ids[1:-1]}}}" if postgres else ids
    ran = _SUCCESSORS.run(connection, worlds=worlds, ids=ids, as_of=scene.as_of)
    rows: list[tuple[str, int]] = json.loads(ran.scalar_one())
    known = standing(connection, scene.levels, {sequence for _, sequence in rows})
    heard = [
        (known[sequence], former)
        for former, sequence in rows
        if sequence in known and _may_know(known[sequence].event, scene.names) and known[sequence].event.id != former
    ]
    heard.sort(key=lambda row: (row[0].time, row[0].sequence))
    return {former: successor.event.id for successor, former in heard}


def _invalid(one: Stored, scene: Scene) -> Obstructed | None:
    event = one.event
    if event.valid_from is not None and to_micros(event.valid_from) > scene.as_of:
        return Obstructed("not_yet_valid")
    if event.valid_to is not None and to_micros(event.valid_to) <= scene.as_of:
        return Obstructed("no_longer_valid")
    return None
