"""Why rewards are low, and which beginnings of a run are alarming."""

import pytest

from app.domain.judging import summarise_scores
from app.domain.low_rewards import explain_low_rewards, judge_beginning
from app.domain.rollups import Rollup, RollupKey, measure_scores, merge_measures
from app.domain.scores import REASON_WORDS, Score
from app.domain.values import Frozen
from tests.support.tables import read_table


class Case(Frozen):
    groups: dict[int, tuple[str, ...]]
    told: tuple[str, ...]


CASES = read_table(__file__, "low_rewards.yaml", dict[str, Case])


def read_score(text: str) -> Score:
    given, *flags = text.split()
    if given == "gate":
        return Score.gated(*flags)
    if given in REASON_WORDS:
        return Score.model_validate({"outcome": "unscored", "reason": given})
    return Score(outcome="scored", reward=float(given), gate=1.0, absolute=float(given), flags=tuple(flags))


def count(case: Case) -> Rollup:
    groups = [tuple(map(read_score, texts)) for times, texts in case.groups.items() for _ in range(times)]
    measures = [measure_scores(scores, summarise_scores(scores)) for scores in groups]
    return Rollup(RollupKey("run", "", "a", "train"), merge_measures(measures))


@pytest.mark.parametrize("name", CASES)
def test_the_commonest_causes_are_told_with_their_counts(name: str) -> None:
    found = explain_low_rewards(count(CASES[name]), max_tokens=48)
    assert sorted(one.sentence for one in found) == sorted(CASES[name].told)


def test_an_evaluation_compares_nothing_and_a_gateway_knows_no_limit_of_tokens() -> None:
    equal, cut = count(CASES["nothing to compare"]), count(CASES["cut off"])
    assert (explain_low_rewards(equal, purpose="eval"), explain_low_rewards(cut)[0].sentence) == (
        (),
        "20 of 40 replies were cut off before their end.",
    )


def test_a_beginning_without_anything_to_learn_is_alarming() -> None:
    causes = {name: judge_beginning(count(case)) for name, case in CASES.items()}
    assert {name: found and found.evidence.partition(".")[0] for name, found in causes.items() if found} == read_table(
        __file__, "low_rewards_told.yaml", dict[str, str]
    )
