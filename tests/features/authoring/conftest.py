"""A gateway at which authors write."""

import io
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.http.api.test_editions import Place, place


def pack(texts: dict[str, str]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in texts.items():
            archive.writestr(name, text)
    return content.getvalue()


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Place]:
    async with place(tmp_path) as here:
        yield here
