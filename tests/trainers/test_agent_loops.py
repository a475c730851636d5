"""The examples' agent loops in the trainers' own classes: episodes of several turns, against a live gateway."""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_episodes import Job, plan_jobs, read_groups, score_natively, write_rows
from tests.support.lossy_gateway import losing_replies
from tests.support.played_episodes import FAILING, REPLIES, SAID, SCENE, find_index, serving_player
from tests.support.played_episodes import PARAMS as PLAYED
from tests.support.preferring import FEWER
from tests.support.reward_trainers import Judged
from tests.support.serving import Served
from tests.trainers.conftest import away
from tests.trainers.installed import LOOPS, ROOT, do_job

OPENRLHF = ROOT / ".cache" / "openrlhf"
NEEDS = (LOOPS / ".installed", LOOPS / ".torch", OPENRLHF / ".installed")
LOGGED = {"absolute", "flagged", "unscored", "judge_usd"}


@dataclass(frozen=True)
class Player:
    """A trainer whose loop plays."""

    program: tuple[str | Path, ...]
    installed: Path
    rows: str
    end: str
    """Of a turn."""

    def params(self, environment: str) -> dict[str, object]:
        return {"tool_format": "hermes"} if (environment, self.rows) == ("tool_agent", "openrlhf_agent") else {}


VERL = Player(("verl_episodes.py",), LOOPS, "verl_agent", "<|im_end|>")
OPEN_RLHF = Player(("openrlhf_episodes.py", OPENRLHF), Path(sys.prefix), "openrlhf_agent", "\x03")
SOURCE = os.environ.get("ATROPOS_TEST_SLIME", "")
"""A checkout of slime, which is on no package index."""
SLIME = Player(("slime_episodes.py", SOURCE), LOOPS, "slime_agent", "<|im_end|>")
needs_slime = pytest.mark.skipif(not SOURCE, reason="ATROPOS_TEST_SLIME names no checkout of slime at 624b824")
every_player = pytest.mark.parametrize(
    "player",
    [
        pytest.param(VERL, id="verl"),
        pytest.param(OPEN_RLHF, id="openrlhf"),
        pytest.param(SLIME, id="slime", marks=needs_slime),
    ],
)


@dataclass(frozen=True)
class Played:
    groups: list[list[dict[str, Any]]]
    """What the trainer was given for each sample."""
    log: str


def play(
    folder: Path,
    player: Player,
    url: str,
    run: str,
    jobs: Sequence[Job],
    *,
    patience_seconds: float = 60,
    length: int = 16384,
) -> Played:
    job = {
        "gateway": url,
        "run": run,
        "groups": [asdict(one) for one in jobs],
        "patience_seconds": patience_seconds,
        "length": length,
    }
    found, log = do_job(folder, job, *player.program, installed=player.installed, seconds=900)
    assert found["left"] == 0
    return Played(found["groups"], log)


def read_transcript(rollout: dict[str, Any]) -> list[str]:
    """What the model said."""
    return [one["content"] for one in rollout["completion"]["messages"] if one["role"] == "assistant"]


@every_player
@pytest.mark.parametrize("environment", ["npc_arena", "mastermind", "tool_agent"])
def test_episodes_earn_what_they_would_natively(
    gateway: Served, tmp_path: Path, player: Player, environment: str
) -> None:
    count, run = 24, f"{player.rows}-{environment}"
    jobs = plan_jobs(tmp_path, gateway.url, player.rows, environment, count, **player.params(environment))
    with losing_replies(gateway.url, each=17) as lossy:
        played = play(tmp_path, player, lossy.url, run, jobs)
    stored = read_groups(gateway.url, run)
    natively = score_natively(gateway.url, environment, stored)
    due = [
        sorted(("".join(f"{said}{player.end}" for said in read_transcript(one)), reward) for one, reward in pairs)
        for pairs in (
            zip(group["rollouts"], rewards, strict=True) for group, rewards in zip(stored, natively, strict=True)
        )
    ]
    flags = {flag for group in stored for one in group["rollouts"] for flag in one["score"]["flags"]}
    assert sorted(sorted((one["trained"], one["reward"]) for one in group) for group in played.groups) == sorted(due)
    assert (len(stored), len({group["task_id"] for group in stored})) == (count, count)
    assert (min(lossy.lost.values()) > 0, "forged_observation" in flags) == (True, False)
    assert {one["log_probs"] for group in played.groups for one in group} == {True}
    assert all(set(one["logged"]) >= LOGGED for group in played.groups for one in group)
    criteria = {name for group in played.groups for one in group for name in one["logged"] if name[:10] == "criterion_"}
    assert (environment, bool(criteria)) != ("npc_arena", False)
    assert all(
        f"{lossy.url}/view/groups/{group['group_id']}" in json.dumps(played.groups) + played.log for group in stored
    )


@pytest.mark.parametrize("player", [VERL, pytest.param(SLIME, marks=needs_slime)], ids=["verl", "slime"])
def test_calls_beside_a_line_earn_what_they_would_natively(gateway: Served, tmp_path: Path, player: Player) -> None:
    """Of a scene with actions; OpenRLHF's rows hold no tools."""
    run = f"{player.rows}-actions"
    jobs = plan_jobs(tmp_path, gateway.url, player.rows, "npc_arena", 8, turns="single", actions="only")
    called = []
    for job in jobs:
        name = json.loads(job.row["tools"])[0]["function"]["name"]
        call = f'\n<tool_call>\n{{"name": "{name}", "arguments": {{}}}}\n</tool_call>'
        called.append(
            replace(job, replies=[[f"{turns[0]}{call * (place % 2)}"] for place, turns in enumerate(job.replies)])
        )
    played = play(tmp_path, player, gateway.url, run, called)
    stored = read_groups(gateway.url, run)
    natively = score_natively(gateway.url, "npc_arena", stored)
    scores = [one["score"] for group in stored for one in group["rollouts"]]
    earned = sorted(sorted(one["reward"] for one in group) for group in played.groups)
    assert earned == sorted(sorted(reward or 0.0 for reward in rewards) for rewards in natively)
    assert {score["criteria"][-1]["name"] for score in scores if score["gate"]} == {"action"}


@every_player
def test_tokens_are_those_of_the_chat_template(gateway: Served, tmp_path: Path, player: Player) -> None:
    jobs = plan_jobs(tmp_path, gateway.url, player.rows, "mastermind", 1)
    (group,) = play(tmp_path, player, gateway.url, f"{player.rows}-tokens", jobs).groups
    (stored,) = read_groups(gateway.url, f"{player.rows}-tokens")
    opens = "<{}>\n" if player is OPEN_RLHF else "<|im_start|>{}\n"
    expected = []
    for rollout in stored["rollouts"]:
        whole = [*jobs[0].row["prompt"], *rollout["completion"]["messages"]]
        expected.append("\n".join(opens.format(one["role"]) + one["content"] + player.end for one in whole))
    assert sorted(one["whole"] for one in group) == sorted(expected)


@every_player
def test_a_model_that_plays_the_player_is_heard_and_not_trained_on(tmp_path: Path, player: Player) -> None:
    """Where replies get lost, too: it has said its line by then. Nobody waits for a player that has failed for good."""
    said, run = [[*REPLIES], ["Nay.", *REPLIES[1:]]], f"{player.rows}-played"
    with serving_player(tmp_path) as served, losing_replies(served.url, each=3) as lossy:
        rows = []
        for scene in (SCENE, FAILING):
            chosen = ("--first", str(find_index(served.url, scene)), "--count", "1")
            rows += write_rows(tmp_path, served.url, player.rows, "npc_arena", *chosen, **PLAYED)
        group, failed = play(tmp_path, player, lossy.url, run, [Job(row, said) for row in rows]).groups
        (stored,) = [one for one in read_groups(served.url, run) if one["outcome"] == "scored"]
        natively = score_natively(served.url, "npc_arena", [stored])[0]
    heard = [[one["content"] for one in each["completion"]["messages"][1::2]] for each in stored["rollouts"]]
    spoken = ["".join(f"{reply}{player.end}" for reply in read_transcript(each)) for each in stored["rollouts"]]
    why = "no score: dropped as unscored" if player is SLIME else "no score: player_failed"
    assert sorted((one["trained"], one["reward"]) for one in group) == sorted(zip(spoken, natively, strict=True))
    assert (heard, failed, lossy.replies["score"]) == ([[*SAID]] * 2, [{"error": why}] * 2, 3)


def compare_answers(
    folder: Path, judged: Judged, player: Player, place: int, replies: Sequence[list[str]], *more: str
) -> Job:
    """Of a task whose answers are compared by length."""
    options = ("--count", "1", "--first", str(place), *more)
    (row,) = write_rows(folder, judged.gateway.url, player.rows, "rlaif", *options, preference=FEWER)
    return Job(row, [*replies])


@every_player
def test_a_judge_that_is_away_for_a_while_costs_time_and_no_reward(
    judged: Judged, tmp_path: Path, player: Player
) -> None:
    replies, run = [["Yes."], ["Yes, do."], ["Yes, do so."], ["Yes, of course, do."]], f"{player.rows}-away"
    place = 10 + [VERL, OPEN_RLHF, SLIME].index(player)  # what was judged once is remembered
    job = compare_answers(tmp_path, judged, player, place, replies)
    judged.judge.refusals = 9
    (group,) = play(tmp_path, player, judged.gateway.url, run, [job]).groups
    (stored,) = judged.groups(run)
    found = [one["reward"] for one in group], judged.judge.refusals
    assert found == (judged.native(stored["task_id"], [reply for (reply,) in replies]), 0)


@every_player
def test_a_judge_that_stays_away_teaches_nothing(judged: Judged, tmp_path: Path, player: Player) -> None:
    job, run = compare_answers(tmp_path, judged, player, 1, [["Yes."], ["Yes, do."]]), f"{player.rows}-down"
    with away(judged.judge):
        (group,) = play(tmp_path, player, judged.gateway.url, run, [job], patience_seconds=4).groups
    assert (group, [one["outcome"] for one in judged.groups(run)]) == (
        [{"error": "no score: dropped as unscored" if player is SLIME else "no score: judge_failed"}] * 2,
        ["unscored"],
    )


def test_a_sample_whose_siblings_are_lost_is_not_trained_on(judged: Judged, tmp_path: Path) -> None:
    """A script without a reply raises where verl's model server would."""
    job = compare_answers(tmp_path, judged, VERL, 2, [["Yes."], []])
    (group,) = play(tmp_path, VERL, judged.gateway.url, "alone", [job]).groups
    assert group[0] == {"error": "a sample that has lost its group has no reward"}


@every_player
def test_what_the_trainer_cuts_is_scored_as_it_stands(gateway: Served, tmp_path: Path, player: Player) -> None:
    (job,) = plan_jobs(tmp_path, gateway.url, player.rows, "mastermind", 1)
    job = replace(job, replies=[*job.replies[:3], ["<answer>ABC</answer>", "<answer>AB<cut>"]])
    length = 130 if player is not OPEN_RLHF else 130 + sum(len(one["content"]) + 12 for one in job.row["prompt"])
    (group,) = play(tmp_path, player, gateway.url, f"{player.rows}-cut", [job], length=length).groups
    (stored,) = read_groups(gateway.url, f"{player.rows}-cut")
    assert max(one["tokens"] for one in group) <= length
    assert sorted(one["reward"] for one in group) == sorted(one["score"]["reward"] for one in stored["rollouts"])
    found = group[0]["reward"], {one["completion"]["finish_reason"] for one in stored["rollouts"]}
    assert found == (1.0, {"stop", "length"})


@pytest.mark.parametrize("player", [VERL, OPEN_RLHF], ids=["verl", "openrlhf"])
def test_evaluations_are_scored_one_by_one(judged: Judged, tmp_path: Path, player: Player) -> None:
    job = compare_answers(tmp_path, judged, player, 0, [["Yes."], ["Yes, do."]], "--split", "test")
    play(tmp_path, player, judged.gateway.url, f"{player.rows}-eval", [job])
    stored = judged.groups(f"{player.rows}-eval")
    assert [(one["purpose"], len(one["rollouts"])) for one in stored] == [("eval", 1)] * 2
