"""The one thing that each page says, and why a reply earned what it did."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest

from app.domain.judging import summarise_scores
from app.domain.runs import Alarm, RunProgress, RunState
from app.domain.scores import Criterion, Reason, Score
from app.http.viewer.sentences import (
    StepMean,
    TrendPoint,
    draw_sparkline,
    list_attention,
    tell_alarm,
    tell_character,
    tell_characters,
    tell_group,
    tell_reply,
    tell_run,
    tell_runs,
    tell_trend,
)
from app.toolkit.texts import format_age
from tests.support.tables import read_table

TOLD = read_table(__file__, "sentences.yaml", dict[str, dict[str, list[Any]]])
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def score_of(told: float | str) -> Score:
    if isinstance(told, str):
        return Score.pending() if told == "pending" else Score.unscored(cast(Reason, told))
    return Score(outcome="scored", reward=told, gate=1.0)


@pytest.mark.parametrize(("said", "told"), TOLD["groups"].items())
def test_a_group_is_told(said: str, told: list[float | str]) -> None:
    scores = [score_of(one) for one in told]
    assert tell_group(scores, summarise_scores(scores)) == said


def test_a_group_of_an_evaluation_teaches_nobody() -> None:
    pairs = [[score_of(one) for one in rewards] for rewards in ((1.0, 1.0), (0.505, 0.5))]
    assert [tell_group(scores, summarise_scores(scores), "eval") for scores in pairs] == [
        "All 2 rewards are 1.00.",
        "The best of 2 replies earned 0.51, the worst 0.50.",
    ]


@pytest.mark.parametrize(("said", "told"), TOLD["trends"].items())
def test_a_trend_is_more_than_chance(said: str, told: list[tuple[float, float | None]]) -> None:
    assert tell_trend([TrendPoint(step, step, value, reach, 8) for step, (value, reach) in enumerate(told)]) == said


@pytest.mark.parametrize(("said", "told"), TOLD["alarms"].items())
def test_an_alarm_is_told(said: str, told: list[Any]) -> None:
    fields = {"alarm_id": "a", "since_group": 268, "noticed_group": 300, "statistic": 6, "limit": 5, "evidence": "…"}
    subject = "careful" if told[0] == "leniency" else ""
    alarm = Alarm.model_validate(
        {**fields, "series": told[0], "effect": told[1], "subject": subject, "raised_at": NOON}
    )
    assert tell_alarm(alarm) == said


@pytest.mark.parametrize(("said", "told"), TOLD["runs"].items())
def test_runs_are_told(said: str, told: list[tuple[str, RunState, list[str]]]) -> None:
    assert tell_runs(told) == said


def test_what_needs_attention_follows_what_was_learnt() -> None:
    stalled = RunProgress(state="stalled", since=NOON, outstanding=0)
    finished = RunProgress(state="finished", since=NOON, outstanding=0)
    troubled, quiet = list_attention(stalled, (), 2, 100, None), list_attention(finished, (), 1, 100, None)
    assert [tell_run("learns: reward 0.20 to 0.60 from step 0 to 4", each) for each in (troubled, quiet)] == [
        "Learns: reward 0.20 to 0.60 from step 0 to 4. Needs attention: it stopped sending groups, 2 replies without a "
        "score.",
        "Learns: reward 0.20 to 0.60 from step 0 to 4. Nothing needs attention.",
    ]


def test_each_reply_is_given_one_reason() -> None:
    judged = Score(outcome="scored", reward=0.5, gate=1.0, absolute=0.5, judges=("ann",))
    noted = judged.model_copy(update={"rationale": "Speaks as she does.\nAnd knows the harbour."})
    scores = [
        (judged, False),
        (noted, False),
        (noted, True),
        (noted.model_copy(update={"criteria": (Criterion(name="action", value=0.0, weight=0.3, note="none"),)}), False),
        (Score.gated("truncated").model_copy(update={"rationale": "cut off by the token limit"}), False),
        (Score.unscored("stale"), False),
        (judged.model_copy(update={"rationale": f"{'long ' * 90}\u202e"}), False),
    ]
    reasons = [tell_reply(score, is_offline=offline) for score, offline in scores]
    assert [(one.sentence, one.more, bool(one.rationale)) for one in reasons] == [
        ("Judged 0.50 by itself.", "", False),
        ("Speaks as she does.", "", True),
        ("Judged 0.50 by itself.", "", True),
        ("Speaks as she does.", "Its action scores 0.00 (30% of the reward): none.", True),
        ("Cut off by the token limit.", "", False),
        (
            "No score: The group's lag is above its run's max_lag, and the run drops such groups.",
            "This is final.",
            False,
        ),
        (f"L{'ong ' + 'long ' * 42}long…", "", True),
    ]


def test_a_sparkline_ends_where_the_last_step_does() -> None:
    line = draw_sparkline([StepMean(0, 0.0), StepMean(10, 1.0)])
    assert line is not None
    assert (line.points, line.end, line.label) == ("2,22 94,2", (94.0, 2.0), "0.00 at step 0 to 1.00 at step 10")
    assert draw_sparkline([]) is None


@pytest.mark.parametrize(("seconds", "said"), read_table(__file__, "ages.yaml", list[tuple[float, str]]))
def test_ages_are_told_in_the_largest_unit(seconds: float, said: str) -> None:
    assert format_age(datetime.fromtimestamp(NOON.timestamp() - seconds, UTC), NOON) == said


@pytest.mark.parametrize(("said", "told"), TOLD["characters"].items())
def test_characters_are_told(said: str, told: list[Any]) -> None:
    listed, drafts = told
    assert tell_characters([name for name, _ in listed], [levels for _, levels in listed], drafts) == said


@pytest.mark.parametrize(("said", "told"), TOLD["character"].items())
def test_a_character_is_told(said: str, told: list[Any]) -> None:
    assert tell_character(*told) == said
