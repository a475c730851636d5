"""The index of texts is written behind everything else."""

import pytest

from app.service.background import BUSY_PAUSES, INDEXER_PAUSES, compute_rest


@pytest.mark.parametrize(
    ("share", "rest"),
    [(0.0, 0.0), (0.4, 0.0), (0.6, BUSY_PAUSES - INDEXER_PAUSES), (1.5, BUSY_PAUSES - INDEXER_PAUSES)],
)
def test_a_busy_process_is_left_alone_for_longer(share: float, rest: float) -> None:
    batch, passed = 0.02, 0.02 * INDEXER_PAUSES
    assert compute_rest(batch, share * passed, passed) == pytest.approx(rest * batch)


def test_a_pause_that_was_long_enough_by_itself_is_not_made_longer() -> None:
    assert compute_rest(0.02, used=1.0, passed=1.0) == 0.0
