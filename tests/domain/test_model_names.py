"""Names that mean one model, and names that do not."""

import pytest

from app.domain.values import is_same_model
from tests.support.tables import read_table

TABLE = read_table(__file__, "model_names.yaml", tuple[tuple[str, str, bool], ...])


@pytest.mark.parametrize(("one", "other", "same"), TABLE)
def test_names_are_compared_without_who_serves_and_how_it_is_written(one: str, other: str, same: bool) -> None:
    assert (is_same_model(one, other), is_same_model(other, one)) == (same, same)
