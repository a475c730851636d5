"""The offline judge behind its gates, on characters, scenes and templates that nothing was tuned on."""

from collections.abc import Callable

import pytest

from app.judges.gold_cases import MUTATIONS
from app.judges.meta_evaluation import CheckReport
from docs.parts.offline_judge import on_what_ships, on_what_was_set_aside
from tests.support.tables import read_table

DECIDABLE = read_table(__file__, "decidable.yaml", set[str])
LEAST = 0.9
# Both reports are made once, which takes half a minute.
pytestmark = pytest.mark.xdist_group("offline_judge_reports")
REPORTS = [pytest.param(on_what_ships, marks=pytest.mark.slow), on_what_was_set_aside]


@pytest.mark.parametrize("checked", REPORTS)
def test_what_words_decide_is_decided(checked: Callable[[], CheckReport]) -> None:
    behind = {figure.mutation: figure.behind_gates.value for figure in checked().mutations if figure.decidable}
    assert ({kind for kind, value in behind.items() if value is None or value < LEAST}, set(behind)) == (
        set(),
        DECIDABLE,
    )


@pytest.mark.parametrize("checked", REPORTS)
@pytest.mark.parametrize("name", ["padding is better", "injection succeeds"])
def test_neither_padding_nor_orders_ever_win(checked: Callable[[], CheckReport], name: str) -> None:
    """By the judge alone, as if there were no gates."""
    figure = next(figure for figure in checked().figures if figure.name == name)
    assert (figure.value, figure.trials > 0) == (0.0, True)


def test_the_rest_is_measured_as_well() -> None:
    measured = {figure.mutation for figure in on_what_was_set_aside().mutations}
    without = {mutation.name for mutation in MUTATIONS} - measured
    assert without == {"absent_event"}, "no scene there has a counterfactual"
