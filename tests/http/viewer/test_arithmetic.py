"""The reward on a group's page follows from what else stands there, for every way of judging."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from app.domain.groups import GroupDetail
from app.domain.judging import Rubric
from tests.support.judged_groups import RUBRIC, make_judged_group
from tests.support.outline import page
from tests.support.sample_views import gsm8k_group, npc_group, viewer_app

Interval = tuple[float, float]


@dataclass
class ShownSum:
    """What a person reads of one reward: texts by part, in order."""

    how: str
    slots: str = ""
    parts: dict[str, list[str]] = field(default_factory=dict)


class SumReader(HTMLParser):
    """The sums of a page. Only what is shown is read: texts of the elements that hold the parts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.sums: list[ShownSum] = []
        self._part = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value or "" for name, value in attrs}
        if tag == "details" and named.get("class") == "sum":
            self.sums.append(ShownSum(named["data-how"]))
        self._part = named.get("data-part", "")

    def handle_endtag(self, tag: str) -> None:
        self._part = ""

    def handle_data(self, data: str) -> None:
        if self._part and self.sums:
            self.sums[-1].parts.setdefault(self._part, []).append(data)


def read(text: str) -> Interval:
    """What a rounded number may have been."""
    half = 0.5 * 10.0 ** -len(text.partition(".")[2]) if "." in text else 0.0
    return float(text) - half, float(text) + half


def times(one: Interval, other: Interval) -> Interval:
    ends = [a * b for a in one for b in other]
    return min(ends), max(ends)


def plus(*terms: Interval) -> Interval:
    return sum(low for low, _ in terms), sum(high for _, high in terms)


def work_out(shown: ShownSum) -> Interval:
    """The reward, from everything but the reward."""
    parts = shown.parts
    if "value" in parts:
        pairs = zip(parts["value"], parts["weight"], strict=True)
        absolute = plus(*(times(read(value), read(weight)) for value, weight in pairs if value != "n/a"))
    elif "absolute" in parts:
        absolute = read(parts["absolute"][0])
    else:
        absolute = (0.0, 0.0)
    (gate,) = parts["gate"]
    mixed = absolute
    if shown.how != "none" and "absolute-weight" in parts:
        mixed = plus(
            times(read(parts["absolute-weight"][0]), absolute),
            times(read(parts["relative-weight"][0]), work_out_relative(shown, absolute)),
        )
    if "cap" in parts:
        low, high = read(parts["cap"][0])
        mixed = min(low, mixed[0]), min(high, mixed[1])
    return times(read(gate), mixed)


def work_out_relative(shown: ShownSum, absolute: Interval) -> Interval:
    if shown.how == "alone":
        return absolute
    if shown.how == "unknown":
        return read(shown.parts["relative"][0])
    shares = list(zip(map(read, shown.parts["standing"]), map(read, shown.parts["reliability"]), strict=True))
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


def list_sums(client: TestClient, detail: GroupDetail) -> list[ShownSum]:
    return SumReader(client.get(f"/view/groups/{detail.group.group_id}").text).sums


@pytest.mark.parametrize("start", range(0, 200, 40))
def test_each_reward_is_what_the_page_adds_up_to(start: int) -> None:
    worked_out = 0
    details = {seed: make_judged_group(seed) for seed in range(start, start + 40)}
    client = TestClient(viewer_app([*details.values()], find_rubric=find_rubric))
    for seed, detail in details.items():
        rewards = {round(reward, 4) for score in detail.group.scores if (reward := score.reward) is not None}
        shown = list_sums(client, detail)
        assert {float(one.parts["reward"][0]) for one in shown} == rewards, seed
        for one in shown:
            assert one.how in {"shrunk", "alone"}, seed
            low, high = work_out(one)
            least, most = read(one.parts["reward"][0])
            assert low <= most + 1e-12, (seed, one)
            assert high >= least - 1e-12, (seed, one)
            assert high - low < 0.001, (seed, one)
            worked_out += 1
    assert worked_out > 100


def test_where_the_rubric_is_gone_the_page_says_so_and_still_adds_up() -> None:
    detail = make_judged_group(1)
    client = TestClient(viewer_app([detail]))
    html = client.get(f"/view/groups/{detail.group.group_id}")
    assert "is not known any more" in page(html).words()
    for one in list_sums(client, detail):
        low, high = work_out(one)
        reward = read(one.parts["reward"][0])
        assert (one.how, low <= reward[1], high >= reward[0]) == ("unknown", True, True)


def test_what_a_verifier_gave_adds_up_too() -> None:
    detail = gsm8k_group(1)
    for one in list_sums(TestClient(viewer_app([detail])), detail):
        low, high = work_out(one)
        assert low <= float(one.parts["reward"][0]) <= high


def test_a_gated_reply_says_why_and_a_score_of_old_that_its_weight_is_unknown() -> None:
    words = page(TestClient(viewer_app([npc_group(1)])).get(f"/view/groups/group_{1:032x}")).words()
    assert "reward = gate 0 = 0.0000 Speaks as an assistant." in words
    assert "the weight of the relative part was not stored then" in words


def test_the_best_stands_beside_the_next() -> None:
    detail = make_judged_group(1)
    words = page(TestClient(viewer_app([detail], find_rubric=find_rubric)).get(f"/view/groups/{detail.group.group_id}"))
    rewards = sorted({score.reward or 0.0 for score in detail.group.scores}, reverse=True)
    assert f"by +{rewards[0] - rewards[1]:.4f}" in words.words()
