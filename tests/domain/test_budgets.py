"""One rule for all limits: now, once others turn out cheaper than reserved, or never."""

from datetime import UTC, datetime

import pytest

from app.domain.budgets import (
    NO_AMOUNT,
    Amount,
    BudgetAnswer,
    BudgetConfig,
    BudgetState,
    KeyQuotas,
    QuotaUse,
    Reservation,
    admit,
)
from app.domain.judging import Spending
from app.domain.values import Frozen
from tests.support.tables import read_table

UNTIL = datetime(2026, 1, 2, tzinfo=UTC)


class Tables(Frozen):
    """The tables of budgets.yaml, which says what each holds."""

    limits: tuple[tuple[float | None, float, float, float, BudgetAnswer], ...]
    quotas: tuple[tuple[tuple[str, float, float, float, float], bool], ...]


TABLES = read_table(__file__, "budgets.yaml", Tables)


@pytest.mark.parametrize(("limit", "spent", "held", "wanted", "answer"), TABLES.limits)
def test_a_limit_admits(limit: float | None, spent: float, held: float, wanted: float, answer: BudgetAnswer) -> None:
    assert admit(limit, spent=spent, held=held, wanted=wanted) == answer


def test_the_tightest_limit_of_a_judge_decides() -> None:
    state = BudgetState(total=Spending(input_tokens=60, cost_usd=0.5), open=Amount(30, 0.25))
    hold = Reservation("a", "j", used=Amount(), open=Amount(20, 0.25), seconds=60.0)
    limits = [{"usd": 1.0}, {"usd": 1.0, "tokens": 100}, {"usd": 1.0, "tokens": 79}]
    answers = [state.admit(hold, BudgetConfig(**one)).admits for one in limits]  # type: ignore[arg-type]
    assert answers == ["now", "later", "never"]


def test_nothing_begins_once_a_limit_of_a_run_or_key_is_reached_even_if_it_is_expected_to_be_free() -> None:
    group = BudgetState(total=Spending(cost_usd=1.0)).admit_group(NO_AMOUNT, 1.0)
    used = QuotaUse(quota="judge_usd_per_day", limit=1.0, used=1.0, held=0.0, until=UNTIL)
    assert (group, used.admit(0.0)) == ("never", "never")


@pytest.mark.parametrize(("use", "frees_itself"), TABLES.quotas, ids=str)
def test_a_quota_has_room_again_soon_where_what_is_held_may_make_it(
    use: tuple[str, float, float, float, float], frees_itself: bool
) -> None:
    quota, limit, used, held, wanted = use
    assert quota in KeyQuotas.model_fields
    subject = QuotaUse.model_validate(
        {"quota": quota, "limit": limit, "used": used, "held": held, "until": UNTIL, "wanted": wanted}
    )
    assert subject.frees_itself == frees_itself
