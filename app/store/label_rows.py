"""Converts labels, leases and labelled groups to rows and back."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from random import SystemRandom
from typing import Final, cast

from pydantic import JsonValue
from sqlalchemy import ColumnElement, Connection, RowMapping, func, select, union_all

from app.domain.groups import Group
from app.domain.labels import (
    ItemCandidate,
    Label,
    LabelLease,
    LabelledGroupRecord,
    QueueDraw,
    QueueStratum,
    TargetReason,
)
from app.domain.scores import Score
from app.store.group_places import open_stretch
from app.store.group_rows import load_groups
from app.store.label_tables import labels
from app.store.rows import decode, encode, from_micros, to_micros
from app.store.scoring_store import load_scorings
from app.store.tables import groups, rollouts

TOP_SHARE: Final = 0.1
"""Groups whose best reward is among so many of the highest are targets."""
SORTED_UP_TO: Final = 4096
"""So many groups are sorted at random. From more, some are drawn by number."""
MOST_PROBES: Final = 1_000
"""Numbers that are drawn at once, at most."""
PROBE_ROUNDS: Final = 32
NEAR: Final = 16
"""Groups of a stretch: few stretches are read quickly, many show more of a run."""
FARTHEST: Final = 10_000
"""Numbers that a stretch goes over, past groups of others and past those whose texts are gone."""
SPARE: Final = 1.3
"""How many more numbers are drawn than would do on average."""
_FLAGS: Final[Mapping[str, TargetReason]] = {
    "judges_disagree": "judges_disagree",
    "position_dominated": "judges_disagree",
    "low_signal": "low_signal",
}


def build_label_row(label: Label) -> dict[str, str | int | float | bytes | None]:
    return {
        "label_id": label.label_id,
        "kind": label.kind,
        "state": label.state,
        "labeller": label.labeller,
        "group_id": label.group_id,
        "environment": label.environment,
        "run": label.run,
        "lease_id": None if label.draw is None else label.draw.lease_id,
        "body": encode(label),
        "source_digest": None,
        "created_at": to_micros(label.created_at),
    }


def parse_label(body: str) -> Label:
    return decode(Label, body)


def parse_lease(row: RowMapping) -> LabelLease:
    plain = {name: row[name] for name in ("lease_id", "labeller", "group_id", "environment", "run", "wanted", "state")}
    moments = {"expires_at": from_micros(row["expires_at"])}
    return LabelLease.model_validate(plain | moments | {"draw": decode(QueueDraw, row["draw"])})


def draw_sequences(
    connection: Connection, stratum: QueueStratum, scored: ColumnElement[bool], wanted: ColumnElement[bool], most: int
) -> list[int]:
    """At most so many of the wanted groups among the scored ones of a stratum, each with the same chance. In a large
    stratum some are drawn with those that follow, which lie beside them: to read as many from all over a large store
    takes long, and so does to sort all its groups at random."""
    if stratum.population > SORTED_UP_TO:
        drawn = _draw_stretches(connection, stratum, scored, -(-most // NEAR), min(NEAR, most))
        found = connection.execute(select(groups.c.sequence).where(wanted, groups.c.sequence.in_(drawn))).scalars()
        if listed := sorted(found):
            return SystemRandom().sample(listed, min(most, len(listed)))
    return [*connection.execute(select(groups.c.sequence).where(wanted).order_by(func.random()).limit(most)).scalars()]


def _draw_stretches(
    connection: Connection, stratum: QueueStratum, scored: ColumnElement[bool], count: int, near: int
) -> set[int]:
    """So many groups that are drawn, each with the next ones. The first has none before it: a number before it begins
    a stretch as well, of which only the end has groups."""
    here = open_stretch(connection, environment=stratum.environment, run=stratum.run)
    any_of_them = select(groups.c.sequence).where(*here.match()).limit(1)
    first, last = (
        connection.execute(any_of_them.order_by(*here.order(rising=rising))).scalar() for rising in (True, False)
    )
    if first is None or last is None:
        return set()
    numbers = range(first - near + 1, last + 1)
    begins = _draw_begins(connection, scored, numbers, first, stratum.population / len(numbers), count)
    stretches = [
        select(groups.c.sequence)
        .where(*here.narrow(after=max(begin, first) - 1, before=begin + FARTHEST).match(), scored)
        .order_by(*here.order(rising=True))
        .limit(near - max(0, first - begin))
        .subquery()
        for begin in begins
    ]
    return set(connection.execute(union_all(*map(select, stretches))).scalars()) if stretches else set()


def _draw_begins(
    connection: Connection, scored: ColumnElement[bool], numbers: range, first: int, share: float, count: int
) -> list[int]:
    """Numbers are drawn, and those kept that are scored groups, or before the first. `share` of them seem to be."""
    kept, drawn_in_all, chance = set[int](), 0, SystemRandom()
    for _ in range(PROBE_ROUNDS):
        # Each number costs a read somewhere else, so hardly more are drawn than seem to be needed.
        probes = min(MOST_PROBES, len(numbers), max(count, round(SPARE * (count - len(kept)) / share)))
        drawn = chance.sample(numbers, probes)
        stored = select(groups.c.sequence).where(scored, groups.c.sequence.in_(drawn))
        kept.update(connection.execute(stored).scalars(), (one for one in drawn if one < first))
        if len(kept) >= count:
            break
        drawn_in_all += probes
        share = max(1, len(kept)) / drawn_in_all
    return chance.sample(sorted(kept), min(count, len(kept)))


def load_candidates(connection: Connection, sequences: Sequence[int]) -> list[ItemCandidate]:
    """These groups, with what makes them targets among one another."""
    listed = select(groups.c.sequence, groups.c.group_id, groups.c.low_signal).where(groups.c.sequence.in_(sequences))
    rows = connection.execute(listed).all()
    reasons: defaultdict[int, set[TargetReason]] = defaultdict(set)
    best: dict[int, float] = {}
    members = select(rollouts.c.group_sequence, rollouts.c.reward, rollouts.c.gate, rollouts.c.score)
    for sequence, reward, gate, score in connection.execute(members.where(rollouts.c.group_sequence.in_(sequences))):
        best[sequence] = max(best.get(sequence, 0.0), reward or 0.0)
        reasons[sequence] |= {"gated"} if gate == 0 else _read_reasons(score)
    top = sorted(best.values(), reverse=True)[: max(1, round(TOP_SHARE * len(best)))]
    for row in rows:
        reasons[row.sequence] |= {"low_signal"} if row.low_signal else set()
        if top and best.get(row.sequence, 0.0) >= top[-1] > 0:
            reasons[row.sequence].add("top_reward")
    return [ItemCandidate(group_id=row.group_id, reasons=tuple(sorted(reasons[row.sequence]))) for row in rows]


def _read_reasons(text: str) -> set[TargetReason]:
    if '"flags"' not in text and '"cap"' not in text:  # most are spared the parsing
        return set()
    score: Mapping[str, JsonValue] = json.loads(text)
    found = {_FLAGS[flag] for flag in cast("list[str]", score.get("flags") or []) if flag in _FLAGS}
    return found | ({"capped"} if score.get("cap") is not None else set())


def load_records(
    connection: Connection, judge: str, environments: Sequence[str], run: str | None
) -> list[LabelledGroupRecord]:
    """Groups with labels from the queue that this judge has scored, in the order of their first labels."""
    wanted = [labels.c.kind == "queue", labels.c.state == "live", labels.c.environment.in_(environments)]
    wanted += [] if run is None else [labels.c.run == run]
    by_group: defaultdict[str, list[Label]] = defaultdict(list)
    for body in connection.execute(select(labels.c.body).where(*wanted).order_by(labels.c.sequence)).scalars():
        label = parse_label(body)
        by_group[label.group_id or ""].append(label)
    found: list[LabelledGroupRecord] = []
    ids = list(by_group)
    for start in range(0, len(ids), 500):
        here = groups.c.group_id.in_(ids[start : start + 500])
        alone: dict[str, Sequence[Score]] = {}
        for scoring in load_scorings(connection, here):
            if scoring.judges == (judge,):
                alone[scoring.group_id] = scoring.scores
        for group in load_groups(connection, here):
            record = _build_record(group, by_group[group.group_id], judge, alone.get(group.group_id))
            found += [] if record is None else [record]
    places = {group_id: place for place, group_id in enumerate(ids)}
    return sorted(found, key=lambda one: places[one.labels[0].group_id or ""])


def _build_record(
    group: Group, made: Sequence[Label], judge: str, alone: Sequence[Score] | None
) -> LabelledGroupRecord | None:
    """The judge's own scores where there are any, else those of the panel that it was in."""
    panels = {score.judges for score in group.scores if score.judges}
    own = panels == {(judge,)}
    if not own and alone is None and not any(judge in names for names in panels):
        return None
    scores = group.scores if own or alone is None else alone
    ids = [rollout.rollout_id for rollout in group.rollouts]
    scored = [(rollout_id, score) for rollout_id, score in zip(ids, scores, strict=True) if score.reward is not None]
    return LabelledGroupRecord(
        task_id=group.task_id,
        labels=tuple(made),
        rewards={rollout_id: score.reward for rollout_id, score in scored if score.reward is not None},
        absolutes={rollout_id: score.absolute for rollout_id, score in scored if score.absolute is not None},
        levels={
            rollout_id: {one.name: one.value for one in score.criteria if one.value is not None}
            for rollout_id, score in scored
        },
        gated=tuple(rollout_id for rollout_id, score in scored if score.gate == 0),
        capped=tuple(rollout_id for rollout_id, score in scored if score.cap is not None),
        with_others=not own and alone is None,
    )
