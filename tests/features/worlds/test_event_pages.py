"""Worlds, events and what would be told of them, before any HTML."""

from datetime import UTC, datetime, timedelta

import pytest

from app.domain.tasks import Context
from app.domain.worlds import Event, HiddenEvent, RankedEvent, RecalledLore, RetrievalExplanation, World
from app.features.worlds.pages import (
    MAX_NAMES,
    EventDay,
    HiddenLine,
    LoreLine,
    RankedLine,
    Recall,
    ScorePart,
    WorldNode,
    build_event_line,
    build_recall,
    build_tree,
    find_family,
    group_by_day,
)

NINE = datetime(1312, 4, 3, 9, 15, tzinfo=UTC)


def world(name: str, parent: str | None = None) -> World:
    return World(name=name, parent=parent, branched_at=None if parent is None else NINE, created_at=NINE)


def event(identity: str, days: int = 0, **more: object) -> Event:
    return Event.model_validate({"id": identity, "time": NINE - timedelta(days=days), "text": identity} | more)


COAST, LOADED, AGAIN, ALONE = (world("coast"), world("loaded", "coast"), world("again", "loaded"), world("alone"))
FAMILY = WorldNode(COAST, (WorldNode(LOADED, (WorldNode(AGAIN, ()),)),))


def test_branches_stand_below_what_they_branch_off() -> None:
    """Also where the parent is on another page. A family is all that shares a past."""
    found = [find_family(name, [AGAIN, ALONE, COAST, LOADED]) for name in ("again", "coast", "alone")]
    assert (build_tree([AGAIN, ALONE, COAST, LOADED]), build_tree([AGAIN, LOADED]), found) == (
        (WorldNode(ALONE, ()), FAMILY),
        (WorldNode(LOADED, (WorldNode(AGAIN, ()),)),),
        [(FAMILY,), (FAMILY,), ()],
    )


def test_events_stand_by_day_in_the_order_given() -> None:
    two, one, before = event("two"), event("one"), event("before", days=1)
    assert group_by_day([two, one, before]) == (
        EventDay("1312-04-03", (build_event_line(two), build_event_line(one))),
        EventDay("1312-04-02", (build_event_line(before),)),
    )


@pytest.mark.parametrize(
    ("visibility", "shown", "everybody"),
    [
        ("public", "everybody", True),
        ([], "nobody", False),
        (["hob", "the\u202eferry"], "hob, the⟨U+202E⟩ferry", False),
        ([f"n{i}" for i in range(MAX_NAMES + 3)], ", ".join(f"n{i}" for i in range(MAX_NAMES)) + " and 3 more", False),
    ],
)
def test_a_line_says_who_may_know_it(visibility: object, shown: str, everybody: bool) -> None:
    line = build_event_line(event("rope", visibility=visibility))
    assert (line.known_to, line.everybody) == (shown, everybody)


def test_what_else_was_said_of_an_event_is_told_where_it_was_said() -> None:
    line = build_event_line(event("rope", valid_to=NINE, supersedes="old", location="Reedgate", importance=10))
    found = line.facts, line.importance, line.heat
    assert found == ((("at", "Reedgate"), ("holds until", "1312-04-03 09:15:00"), ("in place of", "old")), 10, 10)


def ranked(one: Event, told: bool) -> RankedEvent:
    return RankedEvent(
        event=one, recency=1, importance=0.5, relevance=0.25, score=1.75, ways=("newest", "text"), tokens=12, told=told
    )


def test_a_recall_parts_what_is_told_from_what_is_not() -> None:
    told, left, kept = event("told"), event("left"), event("kept")
    explained = RetrievalExplanation(
        as_of=NINE,
        events=(ranked(told, True), ranked(left, False)),
        lore=(RecalledLore(lorebook="coast", entry="toll", because="`toll`", tokens=9, told=True),),
        hidden=(HiddenEvent(event=kept, reason="superseded", by="told"), HiddenEvent(event=left, reason="future")),
        budget_tokens=600,
        context=Context(),
    )
    parts = (
        ScorePart("recency", 1.0, 10, "1.00"),
        ScorePart("importance", 0.5, 5, "0.50"),
        ScorePart("relevance", 0.25, 2, "0.25"),
    )
    assert build_recall(explained) == Recall(
        as_of="1312-04-03 09:15:00",
        told=(RankedLine(build_event_line(told), parts, "1.75", "new, words", 12, True),),
        left_out=(RankedLine(build_event_line(left), parts, "1.75", "new, words", 12, False),),
        lore=(LoreLine("coast", "toll", "`toll`", 9, True),),
        hidden=(
            HiddenLine(build_event_line(kept), "superseded", "told"),
            HiddenLine(build_event_line(left), "later than as_of", ""),
        ),
        used=21,
        budget=600,
    )
