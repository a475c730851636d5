"""Event search: which events of a world a character may know at a time, and which near ones are withheld.

The filter comes before the ranking. The index lists events in order of time under keys, and a key combines who may know
of an event (everybody, one name, or nobody in general) with a term, an importance, or nothing. So "the newest 64 that
the watch knows of at noon" is one range of the index, and its cost does not grow with what others know.

A search counts first how many events its terms and importance levels have, then takes candidates: by the rarest terms,
the newest, the most important, and hidden ones that are near. The candidates are loaded and judged by the event itself:
visibility, time, validity, withdrawals, successors. So the index can only miss an event, never reveal one. If too many
matches fall away, the windows of the newest and the most important are widened once.

Keys are hashes. The index lies in segments (`store_segments`), which are imported when there are events, since they
need NumPy.
"""

import importlib
import json
import logging
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from hashlib import blake2b
from itertools import groupby, islice
from typing import Any, Final, NamedTuple, Protocol

from sqlalchemy import Connection, exists, select

from app.domain.values import MEBIBYTE, remember
from app.domain.worlds import (
    Event,
    EventSearch,
    FoundEvent,
    HiddenMatch,
    Obstacle,
    SearchFindings,
    SearchWay,
    extract_terms,
)
from app.features.worlds.store_worlds import (
    LineageLevel,
    StoredEvent,
    compute_sequence,
    decode_event,
    events,
    find_world,
    load_newest_events,
    load_valid_events,
    segments,
    worlds,
)
from app.store.copy import rebuild_after_copy
from app.store.database import Database, prepare_on_open
from app.store.statements import PreparedStatement, build_dialect_sql, format_integers, from_micros, to_micros

log = logging.getLogger(__name__)


# Keys: who may know of an event, and what can be asked of it.

_PUBLIC_SCOPE: Final = "*"
_PRIVATE_SCOPE: Final = "-"
"""Scope of all non-public events, used to find hidden ones."""
_MAX_NAMES: Final = 16
"""An event visible to more names is indexed by terms only under _PRIVATE_SCOPE, which limits its number of rows.
Searches look there too."""


class PostingKey(NamedTuple):
    """Hashes of a scope and of what is asked of it: `feature` is a term or an importance, or 0 for all events."""

    scope: int
    feature: int


@dataclass(frozen=True)
class PostedEvent:
    """An event with its index keys."""

    sequence: int
    time: int
    keys: Sequence[tuple[int, int]]
    """Pairs as in PostingKey. Plain tuples, since an event has dozens of them."""


def index_event(sequence: int, time: int, world: int, event: Event) -> PostedEvent:
    names = () if event.visibility == "public" else sorted({_build_scope(name) for name in event.visibility})
    first = _PUBLIC_SCOPE if event.visibility == "public" else _PRIVATE_SCOPE
    scopes = [_hash_scope(world, scope) for scope in (first, *names)]
    features = [_hash_term(term) for term in dict.fromkeys(extract_terms(event.searchable_text))]
    # Under time and importance an event stands for every name, however many: only its terms are too many then.
    always = (0, _hash_importance(event.importance))
    with_terms = scopes if len(names) <= _MAX_NAMES else scopes[:1]
    keys = [(scope, feature) for scope in with_terms for feature in features]
    return PostedEvent(sequence, time, [*keys, *((scope, feature) for scope in scopes for feature in always)])


def _build_scope(name: str) -> str:
    return f"={name}"


# Cached, since the events of a world repeat their words and names.
@remember(4 * MEBIBYTE)
def _hash_term(term: str) -> int:
    return _hash_text(f"term {term}")


@remember(4 * MEBIBYTE)
def _hash_scope(world: int, scope: str) -> int:
    return _hash_text(f"scope {world} {scope}")


@lru_cache(maxsize=16)
def _hash_importance(importance: int) -> int:
    return _hash_text(f"importance {importance}")


def _hash_text(text: str) -> int:
    """A 64-bit hash. Collisions are harmless: every match is checked again."""
    digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


@dataclass(frozen=True)
class PostingQuery:
    """A query for events of `world` under `key` with times up to `until`."""

    world: int
    key: PostingKey
    until: int


@dataclass(frozen=True)
class PostingSeek:
    """Queries that are answered together: `most` of each, newest first, or with `after` the first after it."""

    queries: Sequence[PostingQuery]
    most: int
    after: int | None = None


PostingHits = list[tuple[int, int]]
"""Pairs of time and sequence."""


class PostingIndex(Protocol):
    def count(self, seeks: Sequence[PostingSeek]) -> list[list[int]]:
        """Number of events per query, counted up to `most`."""

    def find(self, seeks: Sequence[PostingSeek]) -> list[PostingHits]:
        """The events of each seek: newest first, or with `after` oldest first. May contain duplicates."""


# Searches.


@dataclass(frozen=True)
class _SearchContext:
    """The asker, the terms, and the time of a search in microseconds since 1970."""

    levels: Sequence[LineageLevel]
    as_of: int
    names: frozenset[str]
    terms: Sequence[str]

    @property
    def scopes(self) -> tuple[str, ...]:
        return (_PUBLIC_SCOPE, *sorted(_build_scope(name) for name in self.names))

    def build_queries(self, scopes: Iterable[str], feature: int = 0, *, later: bool = False) -> list[PostingQuery]:
        """One for each world of the lineage and each scope. `later`: also of events after the time of the search."""
        return [
            PostingQuery(level.number, PostingKey(_hash_scope(level.number, scope), feature), until)
            for level in self.levels
            for until in [level.until if later else min(level.until, self.as_of)]
            for scope in scopes
        ]


@dataclass(frozen=True)
class _TermMatches:
    """Matches of the terms. `scores` are of visible events, `hidden` of events that are private or later."""

    frequencies: Mapping[str, int]
    events: int
    scores: Mapping[int, float]
    hidden: Mapping[int, float]
    by_importance: Sequence[int]
    """Lower bounds of the number of events per importance level, 10 first."""


@dataclass(frozen=True)
class _SearchWindows:
    """Sequences of the newest and the most important events, best first."""

    newest: Sequence[int]
    important: Sequence[int]


@dataclass(frozen=True)
class _SearchCandidates:
    matching: _TermMatches
    windows: _SearchWindows
    around: Sequence[int]
    """Private or later events that are near by time or importance."""


_MAX_HIDDEN: Final = 32
"""Maximum number of hidden events that a search returns."""
_MAX_SECRET_MATCHES: Final = 32
"""Maximum number of non-public events found by terms: hidden ones, and those that many names may know."""
_MAX_HIDDEN_PER_REASON: Final = 12
"""Maximum number of events hidden for the same reason."""
_WIDENING_FACTOR: Final = 4
"""Factor by which the search is widened, once, if too many matches are withheld."""


@dataclass(frozen=True)
class _Obstruction:
    reason: Obstacle
    by: str | None = None


def search_events(
    connection: Connection, indexes: "EventIndexes", levels: Sequence[LineageLevel], search: EventSearch
) -> SearchFindings:
    as_of = _resolve_as_of(connection, levels, search)
    if as_of is None:
        return SearchFindings(as_of=None)
    scene = _SearchContext(levels, as_of, search.names, search.terms)
    index = indexes.open(connection, [level.number for level in levels])
    candidates = _find_candidates(index, scene, search.most)
    matching = candidates.matching
    result = _SearchPass(connection, scene, candidates, search.most)
    if not result.has_enough(search.most):
        most = search.most * _WIDENING_FACTOR
        wider = replace(candidates, windows=_find_windows(index, scene, matching.by_importance, most))
        result = _SearchPass(connection, scene, wider, most)
    return SearchFindings(
        as_of=from_micros(as_of),
        visible=result.list_visible(search.most),
        hidden=result.list_hidden(),
        frequencies=matching.frequencies,
        events=matching.events,
        common=COMMON_TERM_COUNT,
    )


def _resolve_as_of(connection: Connection, levels: Sequence[LineageLevel], search: EventSearch) -> int | None:
    if search.as_of is not None:
        return to_micros(search.as_of)
    return next((one.time for one in load_newest_events(connection, levels, 1)), None)


class _SearchPass:
    """One search pass: up to `most` events per way of finding them, and the obstructions of each."""

    def __init__(self, connection: Connection, scene: _SearchContext, candidates: _SearchCandidates, most: int) -> None:
        window, matching = candidates.windows, candidates.matching
        self._scene, self._matching, self._most = scene, matching, most
        best = _rank_by_score(matching.scores)[:most]
        secrets = _rank_by_score(matching.hidden)[: min(most, _MAX_SECRET_MATCHES)]
        self._events = load_valid_events(
            connection, scene.levels, {*window.newest, *window.important, *best, *secrets, *candidates.around}
        )
        # Terms of an event that more than _MAX_NAMES may know stand in the private scope alone, the asker's own too.
        widely_known = [one for one in secrets if self._is_known_by_searcher(one)]
        scores = {**matching.scores, **{one: matching.hidden[one] for one in widely_known}}
        self._ways: dict[SearchWay, list[int]] = {
            "newest": list(window.newest),
            "important": list(window.important),
            "text": _rank_by_score({one: scores[one] for one in {*best, *widely_known}}),
        }
        self._obstacles = _find_obstructions(connection, scene, self._events)

    def has_enough(self, most: int) -> bool:
        """Whether each way led to `most` visible events, or to all that there are."""
        return all(
            len(sequences) < self._most or len(self._drop_obstructed(sequences)) >= most
            for sequences in self._ways.values()
        )

    def list_visible(self, most: int) -> tuple[FoundEvent, ...]:
        """Visible events, newest first."""
        ways: dict[int, set[SearchWay]] = {}
        for way, sequences in self._ways.items():
            for sequence in self._drop_obstructed(sequences)[:most]:
                ways.setdefault(sequence, set()).add(way)
        chosen = sorted(ways, key=lambda one: (self._events[one].time, one), reverse=True)
        return tuple(FoundEvent(self._events[one].event, frozenset(ways[one])) for one in chosen)

    def list_hidden(self) -> tuple[HiddenMatch, ...]:
        """Hidden events, by matching terms first, then by distance in time."""
        kinds: Counter[str] = Counter()
        matches: list[HiddenMatch] = []
        for sequence in sorted(self._obstacles, key=self._compute_distance):
            obstacle = self._obstacles[sequence]
            kinds[obstacle.reason] += 1
            if kinds[obstacle.reason] <= _MAX_HIDDEN_PER_REASON and len(matches) < _MAX_HIDDEN:
                matches.append(HiddenMatch(self._events[sequence].event, obstacle.reason, obstacle.by))
        return tuple(matches)

    def _compute_distance(self, sequence: int) -> tuple[float, int, int]:
        matching = max(self._matching.scores.get(sequence, 0.0), self._matching.hidden.get(sequence, 0.0))
        return -matching, abs(self._events[sequence].time - self._scene.as_of), sequence

    def _drop_obstructed(self, sequences: Sequence[int]) -> list[int]:
        return [one for one in sequences if one in self._events and one not in self._obstacles]

    def _is_known_by_searcher(self, sequence: int) -> bool:
        stored = self._events.get(sequence)
        return (
            stored is not None and stored.time <= self._scene.as_of and _is_visible_to(stored.event, self._scene.names)
        )


def _rank_by_score(scores: Mapping[int, float]) -> list[int]:
    """Sequences by score; of equal scores the latest added first."""
    ordered = sorted(((score, sequence) for sequence, score in scores.items()), reverse=True)
    return [sequence for _, sequence in ordered]


def _is_visible_to(event: Event, names: frozenset[str]) -> bool:
    return event.visibility == "public" or not names.isdisjoint(event.visibility)


def _find_obstructions(
    connection: Connection, scene: _SearchContext, candidates: Mapping[int, StoredEvent]
) -> dict[int, _Obstruction]:
    obstacles: dict[int, _Obstruction] = {}
    for sequence, one in candidates.items():
        if one.time > scene.as_of:
            obstacles[sequence] = _Obstruction("future")
        elif not _is_visible_to(one.event, scene.names):
            obstacles[sequence] = _Obstruction("not_visible")
    open_ = {one.event.id: one for sequence, one in candidates.items() if sequence not in obstacles}
    successors = _find_successors(connection, scene, open_)
    for event_id, one in open_.items():
        obstacle = (
            _Obstruction("superseded", successors[event_id]) if event_id in successors else _check_validity(one, scene)
        )
        if obstacle is not None:
            obstacles[one.sequence] = obstacle
    return obstacles


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


def _find_successors(connection: Connection, scene: _SearchContext, event_ids: Collection[str]) -> dict[str, str]:
    """For each event id, the newest superseding event that the asker knows."""
    if not event_ids:
        return {}
    postgres = connection.dialect.name == "postgresql"
    ids = json.dumps(sorted(event_ids))
    worlds = format_integers((level.number for level in scene.levels), postgres=postgres)
    # A list of JSON strings in braces is an array of texts in PostgreSQL's own notation.
    ids = f"{{{ids[1:-1]}}}" if postgres else ids
    result = _SELECT_SUCCESSORS.run(connection, worlds=worlds, ids=ids, as_of=scene.as_of)
    rows: list[tuple[str, int]] = json.loads(result.scalar_one())
    valid = load_valid_events(connection, scene.levels, {sequence for _, sequence in rows})
    # An event is superseded only for those who know of its successor.
    heard = [
        (valid[sequence], former)
        for former, sequence in rows
        if sequence in valid
        and _is_visible_to(valid[sequence].event, scene.names)
        and valid[sequence].event.id != former
    ]
    heard.sort(key=lambda row: (row[0].time, row[0].sequence))
    return {former: successor.event.id for successor, former in heard}


def _check_validity(one: StoredEvent, scene: _SearchContext) -> _Obstruction | None:
    event = one.event
    if event.valid_from is not None and to_micros(event.valid_from) > scene.as_of:
        return _Obstruction("not_yet_valid")
    if event.valid_to is not None and to_micros(event.valid_to) <= scene.as_of:
        return _Obstruction("no_longer_valid")
    return None


# Candidates of a search, by the index alone.

_MAX_SEARCH_TERMS: Final = 64
"""Maximum number of terms of a search."""
COMMON_TERM_COUNT: Final = 256
"""From this many events on a term counts as common, and counting stops."""
_MAX_COUNT_PER_IMPORTANCE: Final = 64
"""Counting of events per importance level stops here."""
_MAX_EVENT_COUNT: Final = 1024
"""Counting of all events stops here."""
_IMPORTANCE_LEVELS: Final = range(10, -1, -1)
_MAX_NEAR: Final = 16
"""Maximum number of hidden events per way of finding them."""
_MAX_NEAR_PER_TERM: Final = 32
_HIGH_IMPORTANCE: Final = (10, 9, 8)
"""Importance levels at which a hidden event counts as near."""
_HIDDEN_SCOPES: Final = (_PRIVATE_SCOPE,)
_ALL_SCOPES: Final = (_PUBLIC_SCOPE, _PRIVATE_SCOPE)


@dataclass(frozen=True)
class _TermCounts:
    """Lower bounds of how many events have each term, are of each importance level, and are there at all."""

    visible: Mapping[str, int]
    hidden: Mapping[str, int]
    by_importance: Sequence[int]
    events: int


def _find_candidates(index: PostingIndex, scene: _SearchContext, most: int) -> _SearchCandidates:
    """`most` bounds the windows only."""
    counts = _count_terms(index, scene)
    rarest, rarest_hidden = _select_rarest_terms(counts.visible), _select_rarest_terms(counts.hidden)
    later = [term for term, count in counts.visible.items() if count < COMMON_TERM_COUNT or term in rarest]
    # One call of the index for all kinds of seeks: each looks into every segment.
    seeks = {
        "visible": _seek_terms(scene, rarest, scene.scopes, COMMON_TERM_COUNT),
        "hidden": _seek_terms(scene, rarest_hidden, _HIDDEN_SCOPES, _MAX_NEAR_PER_TERM),
        "later": _seek_later_terms(scene, later),
        "windows": _seek_windows(scene, counts.by_importance, most),
        "around": _seek_hidden_nearby(scene),
    }
    results = iter(index.find([seek for each in seeks.values() for seek in each]))
    hits = {kind: list(islice(results, len(each))) for kind, each in seeks.items()}
    matching = _match_terms(
        counts,
        {term: _distinct(one) for term, one in zip(rarest, hits["visible"], strict=True)},
        {term: _distinct(one) for term, one in zip(rarest_hidden, hits["hidden"], strict=True)},
        {term: _distinct(one) for term, one in zip(later, hits["later"], strict=True)},
    )
    secret, *grave, coming = hits["around"]
    around = [one for each in ([secret], grave, [coming]) for one in _extract_sequences(*each)[:_MAX_NEAR]]
    return _SearchCandidates(matching, _list_windows(hits["windows"], most), around)


def _find_windows(
    index: PostingIndex, scene: _SearchContext, by_importance: Sequence[int], most: int
) -> _SearchWindows:
    """The `most` newest and the `most` important events that the asker may know."""
    return _list_windows(index.find(_seek_windows(scene, by_importance, most)), most)


def _count_terms(index: PostingIndex, scene: _SearchContext) -> _TermCounts:
    terms = scene.terms[:_MAX_SEARCH_TERMS]
    visible = _seek_terms(scene, terms, scene.scopes, COMMON_TERM_COUNT)
    hidden = _seek_terms(scene, terms, _HIDDEN_SCOPES, COMMON_TERM_COUNT)
    levels = [
        PostingSeek(scene.build_queries(scene.scopes, _hash_importance(importance)), _MAX_COUNT_PER_IMPORTANCE)
        for importance in _IMPORTANCE_LEVELS
    ]
    everything = PostingSeek(scene.build_queries(scene.scopes), _MAX_EVENT_COUNT)
    *counts, of_everything = index.count([*visible, *hidden, *levels, everything])
    totals = [min(COMMON_TERM_COUNT, sum(each)) for each in counts[: 2 * len(terms)]]
    return _TermCounts(
        visible=dict(zip(terms, totals, strict=False)),
        hidden=dict(zip(terms, totals[len(terms) :], strict=True)),
        # The largest count of one scope, not the sum: an event stands in the scope of each name that may know it.
        by_importance=[max(each, default=0) for each in counts[2 * len(terms) :]],
        events=sum(of_everything),
    )


_MAX_RARE_TERMS: Final = 16
"""Maximum number of terms, rarest first, that find events."""
_MAX_HITS: Final = 1000
"""Maximum number of hits of all terms together; the rarest terms come first."""
_FALLBACK_TERMS: Final = 4
"""How many terms are used if all of them are common."""


def _select_rarest_terms(frequencies: Mapping[str, int]) -> list[str]:
    """Common terms only where all are common: what "the" finds is no better than the newest events."""
    by_rarity = sorted((term for term, count in frequencies.items() if count), key=lambda term: frequencies[term])
    rarest: list[str] = []
    hits = 0
    for term in islice(by_rarity, _MAX_RARE_TERMS):
        hits += frequencies[term]
        if rarest and (frequencies[term] >= COMMON_TERM_COUNT or hits > _MAX_HITS):
            break
        rarest.append(term)
    return rarest if not rarest or frequencies[rarest[0]] < COMMON_TERM_COUNT else by_rarity[:_FALLBACK_TERMS]


def _match_terms(
    counts: _TermCounts,
    visible: Mapping[str, set[int]],
    hidden: Mapping[str, set[int]],
    later: Mapping[str, set[int]],
) -> _TermMatches:
    weights = {
        term: _compute_rarity(count + counts.hidden[term], counts.events) for term, count in counts.visible.items()
    }
    frequencies = {**counts.visible, **{term: len(sequences) for term, sequences in visible.items()}}
    uncommon = [one for one in later.items() if frequencies[one[0]] < COMMON_TERM_COUNT]
    return _TermMatches(
        frequencies=frequencies,
        events=counts.events,
        scores=_sum_scores(visible.items(), weights),
        hidden=_sum_scores([*hidden.items(), *uncommon], weights),
        by_importance=counts.by_importance,
    )


def _compute_rarity(frequency: int, events: int) -> float:
    """The weight of a term, as in BM25."""
    return math.log(1 + max(0.0, events - frequency + 0.5) / (frequency + 0.5))


def _sum_scores(matches: Iterable[tuple[str, Iterable[int]]], weights: Mapping[str, float]) -> dict[int, float]:
    scores: defaultdict[int, float] = defaultdict(float)
    for term, sequences in matches:
        for sequence in sequences:
            scores[sequence] += weights[term]
    return dict(scores)


def _seek_terms(scene: _SearchContext, terms: Sequence[str], scopes: Sequence[str], most: int) -> list[PostingSeek]:
    return [PostingSeek(scene.build_queries(scopes, _hash_term(term)), most) for term in terms]


def _seek_later_terms(scene: _SearchContext, terms: Sequence[str]) -> list[PostingSeek]:
    return [
        PostingSeek(scene.build_queries(_ALL_SCOPES, _hash_term(term), later=True), _MAX_NEAR, scene.as_of)
        for term in terms
    ]


def _seek_windows(scene: _SearchContext, by_importance: Sequence[int], most: int) -> list[PostingSeek]:
    seeks, enough = [PostingSeek(scene.build_queries(scene.scopes), most)], 0
    for importance, count in zip(_IMPORTANCE_LEVELS, by_importance, strict=True):
        if enough < most:
            seeks.append(PostingSeek(scene.build_queries(scene.scopes, _hash_importance(importance)), most))
        enough += count
    return seeks


def _seek_hidden_nearby(scene: _SearchContext) -> list[PostingSeek]:
    return [
        PostingSeek(scene.build_queries(_HIDDEN_SCOPES), _MAX_NEAR),
        *(
            PostingSeek(scene.build_queries(_HIDDEN_SCOPES, _hash_importance(importance)), _MAX_NEAR)
            for importance in _HIGH_IMPORTANCE
        ),
        PostingSeek(scene.build_queries(_ALL_SCOPES, later=True), _MAX_NEAR, scene.as_of),
    ]


def _list_windows(hits: Sequence[PostingHits], most: int) -> _SearchWindows:
    latest, *levels = hits
    return _SearchWindows(newest=_extract_sequences(latest)[:most], important=_extract_sequences(*levels)[:most])


def _distinct(hits: PostingHits) -> set[int]:
    return {sequence for _, sequence in hits}


def _extract_sequences(*hits: PostingHits) -> list[int]:
    """Distinct sequences, in order."""
    return list(dict.fromkeys(sequence for each in hits for _, sequence in each))


# The index: segments.


class EventIndexes:
    """Opens the index. Segments that were read stay with it."""

    def open(self, connection: Connection, worlds: Collection[int]) -> PostingIndex:
        """The index of these worlds, as it is now."""
        index: PostingIndex = _import_segments().SegmentIndex(connection, self._cache, worlds)
        return index

    @cached_property
    def _cache(self) -> Any:
        return _import_segments().SegmentCache()


def add_postings(connection: Connection, posted: Sequence[PostedEvent]) -> None:
    """Call with their worlds locked."""
    for world, added in groupby(posted, key=lambda one: find_world(one.sequence)):
        _import_segments().insert_segment(connection, world, list(added))


def remove_postings(connection: Connection, posted: PostedEvent) -> None:
    """Call with its world locked."""
    _import_segments().insert_segment(connection, find_world(posted.sequence), [], [posted])


def _import_segments() -> Any:
    """NumPy takes long to import, and a service without events does without it."""
    return importlib.import_module("app.features.worlds.store_segments")


# The index of worlds that have none, written from their events: PostgreSQL had rows in place of segments up to schema
# 0037, and a copy of a store takes no index along.

_EVENTS_AT_ONCE: Final = 1000


def _index_on_open(database: Database) -> None:
    """Blocking. Each world is one transaction, so a start that is interrupted goes on where it was."""
    numbers = database.read_blocking(_list_worlds_without_index)
    if numbers:
        log.info("events of %d worlds are indexed, which takes some 15 s for 100,000 events", len(numbers))
    for number in numbers:
        database.write_blocking(partial(_index_world, number=number))


def _index_events(connection: Connection) -> None:
    for number in _list_worlds_without_index(connection):
        _index_world(connection, number)


def _list_worlds_without_index(connection: Connection) -> list[int]:
    has_events, has_index = worlds.c.events > 0, exists().where(segments.c.world == worlds.c.number)
    return list(connection.execute(select(worlds.c.number).where(has_events, ~has_index)).scalars())


def _index_world(connection: Connection, number: int) -> None:
    # Replicas start together: one of them indexes, and the others find that it did.
    connection.execute(select(worlds.c.number).where(worlds.c.number == number).with_for_update())
    if connection.execute(select(segments.c.number).where(segments.c.world == number).limit(1)).first():
        return
    position = compute_sequence(number, 0)
    while True:
        rows_left = (events.c.sequence >= position, events.c.sequence < compute_sequence(number + 1, 0))
        page = select(events.c.sequence, events.c.time, events.c.withdrawn, events.c.body).where(*rows_left)
        rows = connection.execute(page.order_by(events.c.sequence).limit(_EVENTS_AT_ONCE)).all()
        if not rows:
            return
        posted = [
            index_event(sequence, time, number, decode_event(body))
            for sequence, time, withdrawn, body in rows
            if not withdrawn
        ]
        # Also where all are withdrawn: an empty segment says that the world has its index.
        _import_segments().insert_segment(connection, number, posted)
        position = rows[-1].sequence + 1


rebuild_after_copy(_index_events, ("event_segments", "event_segment_pages"))
prepare_on_open(_index_on_open)
