"""Which events matter most: the paper's formula against values worked out by hand, and about how long texts are."""

import math
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from app.domain.values import Frozen, estimate_tokens
from app.domain.worlds import Event
from app.rag.world_retriever import (
    MOST_TERMS,
    EventCandidate,
    RankingScores,
    compute_idf,
    extract_query_terms,
    rank_events,
)
from tests.support.tables import read_table


class Tables(Frozen):
    tokens: dict[str, int]
    terms: dict[str, tuple[str, ...]]


TABLES = read_table(__file__, "ranking.yaml", Tables)

NOON = datetime(1312, 4, 3, 12, tzinfo=UTC)


def candidate(name: str, *words: str, hours: float = 0, importance: int = 5) -> EventCandidate:
    event = Event(id=name, time=NOON - timedelta(hours=hours), text=name, importance=importance)
    return EventCandidate(event, len(words), Counter(words))


def order(*candidates: EventCandidate, **weights: float) -> list[str]:
    return [one.event.id for one, _ in rank_events(candidates, NOON, weights)]


def parts(*candidates: EventCandidate, **weights: float) -> dict[str, tuple[float, float, float, float]]:
    """By id: recency, importance, relevance, score."""
    return {
        one.event.id: (
            round(found.recency, 6),
            round(found.importance, 6),
            round(found.relevance, 6),
            round(found.score, 6),
        )
        for one, found in rank_events(candidates, NOON, weights)
    }


def test_the_sum_of_three_parts_each_scaled_over_all() -> None:
    # recency: 1, 0.995**24 = 0.886655, 0.995**240 = 0.300290; importance: 2, 10, 6
    # relevance: k1 1.2, b .75, lengths 4, 2, 3 of mean 3:
    #   mid has rope twice: 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 2 / 3)) = 1.517241
    #   old has rope once:  1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 3 / 3)) = 1.0
    new = candidate("new", "the", "sun", "is", "up", importance=2)
    mid = candidate("mid", "rope", "rope", hours=24, importance=10)
    old = candidate("old", "a", "rope", "broke", hours=240, importance=6)
    assert parts(old, new, mid, rope=1.0) == {
        "mid": (0.83801, 1.0, 1.0, 2.83801),
        "old": (0.0, 0.5, 0.659091, 1.159091),
        "new": (1.0, 0.0, 0.0, 1.0),
    }


def test_a_part_in_which_all_are_equal_counts_for_nothing() -> None:
    assert parts(candidate("a"), candidate("b", hours=10)) == {"a": (1.0, 0.0, 0.0, 1.0), "b": (0.0, 0.0, 0.0, 0.0)}
    assert parts(candidate("alone", "rope", importance=9), rope=2.0) == {"alone": (0.0, 0.0, 0.0, 0.0)}
    assert parts() == {}


def test_a_rare_term_outweighs_a_common_one() -> None:
    assert [round(compute_idf(found, 1000), 6) for found in (0, 1, 500, 1000)] == [
        round(math.log(2002), 6),
        round(math.log(1 + 999.5 / 1.5), 6),
        round(math.log(2), 6),
        round(math.log(1 + 0.5 / 1000.5), 6),
    ]
    weights = {"bridge": compute_idf(2, 1000), "market": compute_idf(700, 1000)}
    assert order(candidate("market", "market"), candidate("bridge", "bridge"), **weights) == ["bridge", "market"]


@pytest.mark.parametrize("shift", range(4))
def test_ties_go_to_the_newer_then_by_id_in_whatever_order_they_come(shift: int) -> None:
    # a and b tie in everything; c is the newest and least important, d the oldest and most important
    events = [
        candidate("b", hours=5),
        candidate("a", hours=5),
        candidate("c", hours=0, importance=0),
        candidate("d", hours=10, importance=10),
    ]
    turned = events[shift:] + events[:shift]
    assert order(*turned) == ["c", "d", "a", "b"]


def test_scores_do_not_hang_on_the_last_digit() -> None:
    assert RankingScores(0.1, 0.2, 0.3).score == RankingScores(0.3, 0.2, 0.1).score == 0.6


@pytest.mark.parametrize(("text", "expected"), [*TABLES.tokens.items()])
def test_about_how_many_tokens(text: str, expected: int) -> None:
    assert estimate_tokens(text) == expected


@pytest.mark.parametrize(("text", "asked"), [*TABLES.terms.items()])
def test_what_holds_a_sentence_together_is_not_asked_about(text: str, asked: tuple[str, ...]) -> None:
    assert extract_query_terms(text) == asked


def test_of_a_long_speech_its_end_counts() -> None:
    speech = " ".join(f"word{number}" for number in range(200))
    assert extract_query_terms(speech) == tuple(f"word{number}" for number in range(199, 199 - MOST_TERMS, -1))
