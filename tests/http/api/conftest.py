"""A gateway of worlds on each database, and a fresh world of it for every test."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.databases import Postgres
from tests.support.sample_worlds import Told
from tests.support.serving import serving


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def worlds_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    settings: dict[str, str] = {}
    if request.param == "postgresql":
        postgres: Postgres = request.getfixturevalue("postgres")
        settings = {"ATROPOS_ENVS_DATABASE_URL": postgres.empty()}
    with serving(tmp_path_factory.mktemp("worlds"), settings=settings) as gateway:
        yield gateway.url


_numbers = itertools.count(1)


@pytest.fixture
def world(worlds_url: str) -> Told:
    """Nothing was told of it."""
    return Told(worlds_url, f"coast-{next(_numbers)}")
