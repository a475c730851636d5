"""What the settings decide about the application."""

import pytest

from app.main.application import count_workers
from app.sandbox.workers import choose_size
from app.settings import Settings


@pytest.mark.parametrize(
    ("workers", "processes", "expected"),
    [(None, 1, choose_size()), (choose_size() + 5, 1, choose_size() + 5), (7, 2, 4), (2, 2, 2), (1, 1, 2)],
)
def test_there_are_as_many_workers_as_the_settings_say_and_one_for_authors_beside_that_for_models(
    workers: int | None, processes: int, expected: int
) -> None:
    settings = Settings(database_url="postgresql://localhost/atropos", workers=workers, processes=processes)
    assert count_workers(settings) == expected
