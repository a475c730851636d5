"""Searches events: which ones a character may know at a time, and which near ones are withheld."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sqlalchemy import Connection

from app.domain.worlds import Event, EventSearch, FoundEvent, HiddenMatch, Obstacle, SearchFindings, SearchWay
from app.store.event_candidates import (
    COMMON_TERM_COUNT,
    SearchCandidates,
    SearchContext,
    find_candidates,
    find_windows,
)
from app.store.event_index import EventIndexes
from app.store.event_rows import StoredEvent, load_newest_events, load_valid_events
from app.store.prepared_statements import PreparedStatement, build_dialect_sql, format_integers
from app.store.rows import from_micros, to_micros
from app.store.world_branches import LineageLevel

MAX_HIDDEN: Final = 32
MAX_SECRET_MATCHES: Final = 32
"""Maximum number of non-public events found by terms: hidden ones, and those that many names may know."""
MAX_HIDDEN_PER_REASON: Final = 12
"""Maximum number of events hidden for the same reason."""
WIDENING_FACTOR: Final = 4
"""Factor by which the search is widened, once, if too many matches are withheld."""


@dataclass(frozen=True)
class Obstruction:
    reason: Obstacle
    by: str | None = None


def search_events(
    connection: Connection, indexes: EventIndexes, levels: Sequence[LineageLevel], wanted: EventSearch
) -> SearchFindings:
    as_of = _resolve_as_of(connection, levels, wanted)
    if as_of is None:
        return SearchFindings(as_of=None)
    scene = SearchContext(levels, as_of, wanted.names, wanted.terms)
    index = indexes.open(connection, [level.number for level in levels])
    found = find_candidates(index, scene, wanted.most)
    matching = found.matching
    looked = _SearchPass(connection, scene, found, wanted.most)
    if not looked.has_enough(wanted.most):
        most = wanted.most * WIDENING_FACTOR
        wider = replace(found, windows=find_windows(index, scene, matching.by_importance, most))
        looked = _SearchPass(connection, scene, wider, most)
    return SearchFindings(
        as_of=from_micros(as_of),
        visible=looked.list_visible(wanted.most),
        hidden=looked.list_hidden(),
        frequencies=matching.frequencies,
        events=matching.events,
        common=COMMON_TERM_COUNT,
    )


def _resolve_as_of(connection: Connection, levels: Sequence[LineageLevel], wanted: EventSearch) -> int | None:
    if wanted.as_of is not None:
        return to_micros(wanted.as_of)
    return next((one.time for one in load_newest_events(connection, levels, 1)), None)


class _SearchPass:
    """One search pass: up to `most` events per way of finding them, and the obstructions of each."""

    def __init__(self, connection: Connection, scene: SearchContext, found: SearchCandidates, most: int) -> None:
        window, matching = found.windows, found.matching
        self._scene, self._matching, self._most = scene, matching, most
        best, secrets = (
            _rank_by_score(matching.scores)[:most],
            _rank_by_score(matching.hidden)[: min(most, MAX_SECRET_MATCHES)],
        )
        self._events = load_valid_events(
            connection, scene.levels, {*window.newest, *window.important, *best, *secrets, *found.around}
        )
        widely_known = [one for one in secrets if self._is_known_by_searcher(one)]
        scores = {**matching.scores, **{one: matching.hidden[one] for one in widely_known}}
        self._ways: dict[SearchWay, list[int]] = {
            "newest": list(window.newest),
            "important": list(window.important),
            "text": _rank_by_score({one: scores[one] for one in {*best, *widely_known}}),
        }
        self._obstacles = _find_obstructions(connection, scene, self._events)

    def has_enough(self, wanted: int) -> bool:
        return all(
            len(found) < self._most or len(self._drop_obstructed(found)) >= wanted for found in self._ways.values()
        )

    def list_visible(self, wanted: int) -> tuple[FoundEvent, ...]:
        """Visible events, newest first."""
        ways: dict[int, set[SearchWay]] = {}
        for way, found in self._ways.items():
            for sequence in self._drop_obstructed(found)[:wanted]:
                ways.setdefault(sequence, set()).add(way)
        chosen = sorted(ways, key=lambda one: (self._events[one].time, one), reverse=True)
        return tuple(FoundEvent(self._events[one].event, frozenset(ways[one])) for one in chosen)

    def list_hidden(self) -> tuple[HiddenMatch, ...]:
        """Hidden events, by matching terms first, then by distance in time."""
        kinds: Counter[str] = Counter()
        found: list[HiddenMatch] = []
        for sequence in sorted(self._obstacles, key=self._compute_distance):
            obstacle = self._obstacles[sequence]
            kinds[obstacle.reason] += 1
            if kinds[obstacle.reason] <= MAX_HIDDEN_PER_REASON and len(found) < MAX_HIDDEN:
                found.append(HiddenMatch(self._events[sequence].event, obstacle.reason, obstacle.by))
        return tuple(found)

    def _compute_distance(self, sequence: int) -> tuple[float, int, int]:
        matching = max(self._matching.scores.get(sequence, 0.0), self._matching.hidden.get(sequence, 0.0))
        return -matching, abs(self._events[sequence].time - self._scene.as_of), sequence

    def _drop_obstructed(self, found: Sequence[int]) -> list[int]:
        return [one for one in found if one in self._events and one not in self._obstacles]

    def _is_known_by_searcher(self, sequence: int) -> bool:
        known = self._events.get(sequence)
        return known is not None and known.time <= self._scene.as_of and _is_visible_to(known.event, self._scene.names)


def _rank_by_score(scores: Mapping[int, float]) -> list[int]:
    """Sequences by score; of equal scores the latest added first."""
    ordered = sorted(((score, sequence) for sequence, score in scores.items()), reverse=True)
    return [sequence for _, sequence in ordered]


def _is_visible_to(event: Event, names: frozenset[str]) -> bool:
    return event.visibility == "public" or not names.isdisjoint(event.visibility)


_SELECT_SUCCESSORS: Final = PreparedStatement(
    build_dialect_sql(
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


def _find_obstructions(
    connection: Connection, scene: SearchContext, found: Mapping[int, StoredEvent]
) -> dict[int, Obstruction]:
    obstacles: dict[int, Obstruction] = {}
    for sequence, one in found.items():
        if one.time > scene.as_of:
            obstacles[sequence] = Obstruction("future")
        elif not _is_visible_to(one.event, scene.names):
            obstacles[sequence] = Obstruction("not_visible")
    open_ = {one.event.id: one for sequence, one in found.items() if sequence not in obstacles}
    successors = _find_successors(connection, scene, open_)
    for event_id, one in open_.items():
        obstacle = (
            Obstruction("superseded", successors[event_id]) if event_id in successors else _check_validity(one, scene)
        )
        if obstacle is not None:
            obstacles[one.sequence] = obstacle
    return obstacles


def _find_successors(connection: Connection, scene: SearchContext, found: Collection[str]) -> dict[str, str]:
    """For each event id, the newest superseding event that the asker knows."""
    if not found:
        return {}
    postgres = connection.dialect.name == "postgresql"
    ids = json.dumps(sorted(found))
    worlds = format_integers((level.number for level in scene.levels), postgres=postgres)
    ids = f"{{{ids[1:-1]}}}" if postgres else ids
    ran = _SELECT_SUCCESSORS.run(connection, worlds=worlds, ids=ids, as_of=scene.as_of)
    rows: list[tuple[str, int]] = json.loads(ran.scalar_one())
    known = load_valid_events(connection, scene.levels, {sequence for _, sequence in rows})
    heard = [
        (known[sequence], former)
        for former, sequence in rows
        if sequence in known
        and _is_visible_to(known[sequence].event, scene.names)
        and known[sequence].event.id != former
    ]
    heard.sort(key=lambda row: (row[0].time, row[0].sequence))
    return {former: successor.event.id for successor, former in heard}


def _check_validity(one: StoredEvent, scene: SearchContext) -> Obstruction | None:
    event = one.event
    if event.valid_from is not None and to_micros(event.valid_from) > scene.as_of:
        return Obstruction("not_yet_valid")
    if event.valid_to is not None and to_micros(event.valid_to) <= scene.as_of:
        return Obstruction("no_longer_valid")
    return None
