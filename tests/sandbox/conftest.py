"""One jail for the programs of a module."""

from collections.abc import Iterator

import pytest

from tests.support.jailed import GUARDS, Jails, jails


@pytest.fixture(scope="module", params=GUARDS)
def jailed(request: pytest.FixtureRequest) -> Iterator[Jails]:
    with jails(request.param) as made:
        yield made
