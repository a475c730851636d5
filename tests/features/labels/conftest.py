"""A gateway whose groups are labelled."""

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.support.labelling import labelled_gateway


@pytest.fixture
async def client(sqlite_url: str) -> AsyncIterator[httpx.AsyncClient]:
    async with labelled_gateway(sqlite_url) as client:
        yield client
