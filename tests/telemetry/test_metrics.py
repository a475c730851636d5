"""What Prometheus is told."""

import pytest

from app.domain.judging import Judgement
from app.domain.scores import Criterion, Score
from app.telemetry.metrics import PrometheusObserver
from tests.support.tables import read_table

SCORED = read_table(__file__, "metrics_score.yaml", Score)
JUDGEMENT = read_table(__file__, "metrics_judgement.yaml", Judgement)


def samples(observer: PrometheusObserver) -> dict[str, float]:
    """Every sample of ours but empty buckets and creation times."""
    text = observer.render_exposition()[0].decode()
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("atropos_envs_"))
    return {
        name.removeprefix("atropos_envs_"): float(value)
        for name, value in lines
        if "_bucket" not in name and "_created" not in name and float(value) != 0
    }


def test_groups_that_came_in_pieces_are_counted_by_how_they_ended() -> None:
    observer = PrometheusObserver()
    for flags in ([], ["scoring_changed"], ["partial_group", "late"], ["late"]):
        observer.record_closed_group("gsm8k", flags)
    assert samples(observer) == {
        'groups_gathered_total{env="gsm8k",how="whole"}': 2,
        'groups_gathered_total{env="gsm8k",how="partial"}': 1,
        'groups_gathered_total{env="gsm8k",how="late"}': 1,
    }


def test_a_group_is_told_by_outcome_reward_and_criterion() -> None:
    observer = PrometheusObserver()
    other = SCORED.model_copy(update={"reward": 0.75, "criteria": ()})
    observer.record_scores("npc_arena", [([SCORED, other, Score.unscored("judge_failed"), Score.pending()], 2.0)])
    assert samples(observer) == pytest.approx(
        {
            'rollouts_total{env="npc_arena",outcome="scored",reason=""}': 2,
            'rollouts_total{env="npc_arena",outcome="unscored",reason="judge_failed"}': 1,
            'rollouts_total{env="npc_arena",outcome="pending",reason=""}': 1,
            'reward_count{env="npc_arena"}': 2,
            'reward_sum{env="npc_arena"}': 1.0,
            'criterion_count{criterion="voice",env="npc_arena"}': 1,
            'criterion_sum{criterion="voice",env="npc_arena"}': 0.5,
            'group_reward_std_count{env="npc_arena"}': 1,
            'group_reward_std_sum{env="npc_arena"}': 0.5 / 2**0.5,
            'group_scoring_seconds_count{env="npc_arena"}': 1,
            'group_scoring_seconds_sum{env="npc_arena"}': 2.0,
        }
    )


def test_groups_that_teach_nothing_are_counted() -> None:
    observer = PrometheusObserver()
    wrong = Score.exact(False)
    groups = [wrong, wrong], [wrong, Score.exact(True)], [wrong], [Score.unscored("budget")] * 2
    observer.record_scores("gsm8k", [(group, 0.1) for group in groups])
    assert samples(observer)['groups_low_signal_total{env="gsm8k"}'] == 1


def test_no_reward_is_not_a_reward_of_zero() -> None:
    observer = PrometheusObserver()
    observer.record_scores("npc_arena", [([Score.unscored("budget")], 0.0)])
    assert [name for name in samples(observer) if name.startswith(("reward", "criterion", "group_reward"))] == []


def test_a_judgement_is_told_with_what_it_cost() -> None:
    observer = PrometheusObserver()
    failed = JUDGEMENT.model_copy(update={"error": "time-out", "cost_usd": None, "output_tokens": 0, "calls": 1})
    observer.record_judgements([JUDGEMENT, failed])
    who = 'judge="main",model="judge-1"'
    assert samples(observer) == {
        f'judgements_total{{{who},outcome="usable"}}': 1,
        f'judgements_total{{{who},outcome="failed"}}': 1,
        f"judge_requests_total{{{who}}}": 3,
        f"judge_seconds_count{{{who}}}": 2,
        f"judge_seconds_sum{{{who}}}": 6.0,
        f'judge_tokens_total{{{who},type="input"}}': 200,
        f'judge_tokens_total{{{who},type="output"}}': 20,
        f"judge_cost_usd_total{{{who}}}": 0.5,
    }


def test_the_store_and_the_doors_are_told_of() -> None:
    observer = PrometheusObserver()
    waiting = [1, 2, 3]
    observer.watch("db_write_queue", lambda: len(waiting))
    observer.record_commit(0.5)
    observer.record_request("/envs/{env}/score", "POST", 200, 0.25)
    before = samples(observer)
    waiting.pop()
    assert (before, samples(observer)["db_write_queue"]) == (
        {
            "db_write_queue": 3,
            "db_commit_seconds_count": 1,
            "db_commit_seconds_sum": 0.5,
            'http_requests_total{method="POST",route="/envs/{env}/score",status="200"}': 1,
            'http_request_seconds_count{method="POST",route="/envs/{env}/score"}': 1,
            'http_request_seconds_sum{method="POST",route="/envs/{env}/score"}': 0.25,
        },
        2,
    )


def test_invented_environments_do_not_grow_the_registry_for_ever() -> None:
    observer = PrometheusObserver()
    for number in range(1000):
        observer.record_refusal(f"invented_{number}", "not_found")
    counted = samples(observer)
    assert (len(counted), counted['groups_refused_total{code="not_found",env="other"}']) == (257, 744)


def test_invented_criteria_do_not_grow_the_registry_for_ever() -> None:
    observer = PrometheusObserver()
    for number in range(100):
        criterion = Criterion(name=f"mine-{number}", value=0.5, weight=1.0)
        observer.record_scores("rlaif", [([SCORED.model_copy(update={"criteria": (criterion,)})], 0.1)])
    counts = {name: count for name, count in samples(observer).items() if name.startswith("criterion_count")}
    assert (len(counts), counts['criterion_count{criterion="other",env="rlaif"}']) == (65, 36)


def test_what_trainers_post_and_ask_for_and_are_told_instead_of_no_score_is_counted() -> None:
    observer = PrometheusObserver()
    observer.groups_received(3, 1)
    observer.batch_asked("handed")
    observer.batch_asked("not_yet")
    observer.record_hand_out("gsm8k", 8)
    observer.record_hand_out("gsm8k", 4)
    observer.record_unscored_answer("slime", "rlaif", "judge_failed", "error")
    assert samples(observer) == {
        'atropos_groups_total{what="new"}': 3,
        'atropos_groups_total{what="known"}': 1,
        'atropos_batches_total{outcome="handed"}': 1,
        'atropos_batches_total{outcome="not_yet"}': 1,
        'tasks_handed_out_total{env="gsm8k"}': 12,
        'compat_unscored_total{contract="slime",env="rlaif",reason="judge_failed",told="error"}': 1,
    }
