"""The reward on a group's page follows from what else stands there, for every way of judging."""

from typing import Any

from starlette.testclient import TestClient

from app.domain.groups import GroupDetail
from app.domain.judging import Rubric
from tests.support.judged_groups import RUBRIC, make_judged_group
from tests.support.outline import page
from tests.support.sample_views import gsm8k_group, npc_group, viewer_app

Interval = tuple[float, float]


def read(text: str) -> Interval:
    """What a rounded number may have been."""
    half = 0.5 * 10.0 ** -len(text.partition(".")[2]) if "." in text else 0.0
    return float(text) - half, float(text) + half


def times(one: Interval, other: Interval) -> Interval:
    ends = [a * b for a in one for b in other]
    return min(ends), max(ends)


def plus(*terms: Interval) -> Interval:
    return sum(low for low, _ in terms), sum(high for _, high in terms)


def work_out(shown: dict[str, Any]) -> Interval:
    """The reward, from everything but the reward."""
    absolute = read(shown["absolute"] or "0")
    if shown["is_sum"] and shown["criteria"]:
        terms = [one for one in shown["criteria"] if one["value"] != "n/a"]
        absolute = plus(*(times(read(one["value"]), read(one["weight"])) for one in terms))
    mixed = absolute
    if shown["how_relative"] != "none":
        relative = times(read(shown["relative_weight"]), work_out_relative(shown, absolute))
        mixed = plus(times(read(shown["absolute_weight"]), absolute), relative)
    if shown["cap"]:
        low, high = read(shown["cap"])
        mixed = min(low, mixed[0]), min(high, mixed[1])
    return times(read(shown["gate"]), mixed)


def work_out_relative(shown: dict[str, Any], absolute: Interval) -> Interval:
    if shown["how_relative"] == "alone":
        return absolute
    if shown["how_relative"] == "unknown":
        return read(shown["relative"])
    shares = [(read(one["standing"]), read(one["reliability"])) for one in shown["shares"]]
    relatives = [plus((0.5, 0.5), times(trust, plus(standing, (-0.5, -0.5)))) for standing, trust in shares]
    trusts = [trust for _, trust in shares]
    total = plus(*trusts)
    if len(relatives) == 1:
        return relatives[0]
    if total[0] <= 0.0:
        return min(low for low, _ in relatives), max(high for _, high in relatives)
    low, high = plus(*(times(trust, relative) for trust, relative in zip(trusts, relatives, strict=True)))
    return low / total[1], high / total[0]


async def find_rubric(detail: GroupDetail) -> Rubric | None:
    return RUBRIC


def list_sums(client: TestClient, detail: GroupDetail) -> list[dict[str, Any]]:
    """Of the page's twin, which has the texts of the page."""
    why = client.get(f"/view/groups/{detail.group.group_id}?format=json").json()["why"]
    return [one for one in why["sums"] if one["gate"] != "0"]


def test_each_reward_is_what_the_page_adds_up_to() -> None:
    details = {seed: make_judged_group(seed) for seed in range(40)}
    client = TestClient(viewer_app([*details.values()], find_rubric=find_rubric))
    worked_out = 0
    for seed, detail in details.items():
        rewards = {round(reward, 4) for score in detail.group.scores if score.gate and (reward := score.reward)}
        shown = list_sums(client, detail)
        assert rewards <= {float(one["reward"]) for one in shown}, seed
        for one in shown:
            low, high = work_out(one)
            least, most = read(one["reward"])
            assert one["how_relative"] in {"shrunk", "alone"}, seed
            assert (low <= most + 1e-12, high >= least - 1e-12, high - low < 0.001) == (True, True, True), (seed, one)
            worked_out += 1
    assert worked_out > 100


def test_where_nobody_recorded_how_scores_were_made_the_page_says_so_and_still_adds_up() -> None:
    for detail in (make_judged_group(1).model_copy(update={"making": None}), gsm8k_group(1)):
        client = TestClient(viewer_app([detail]))
        words = page(client.get(f"/view/groups/{detail.group.group_id}")).words()
        assert ("was not recorded" in words) == (detail.group.environment != "gsm8k")
        for one in list_sums(client, detail):
            low, high = work_out(one)
            least, most = read(one["reward"])
            assert (low <= most, high >= least, one["reward"] in words) == (True, True, True)


def test_a_gated_reply_says_why_and_a_score_of_old_that_its_weight_is_unknown() -> None:
    words = page(TestClient(viewer_app([npc_group(1)])).get(f"/view/groups/group_{1:032x}")).words()
    assert "reward = gate 0 = 0.0000 Speaks as an assistant." in words
    assert "the weight of the relative part was not stored then" in words


def test_the_best_stands_beside_the_next() -> None:
    detail = make_judged_group(1)
    words = page(TestClient(viewer_app([detail], find_rubric=find_rubric)).get(f"/view/groups/{detail.group.group_id}"))
    rewards = sorted({score.reward or 0.0 for score in detail.group.scores}, reverse=True)
    assert f"by +{rewards[0] - rewards[1]:.4f}" in words.words()
