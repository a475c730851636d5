"""A gateway at which authors write."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.api.test_editions import Place, place


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Place]:
    async with place(tmp_path) as here:
        yield here
