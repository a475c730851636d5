"""A database of its own for each test that starts a gateway in this process."""

from pathlib import Path

import pytest


@pytest.fixture
def database(tmp_path: Path, migrated_file: Path) -> Path:
    path = tmp_path / "store.db"
    path.write_bytes(migrated_file.read_bytes())
    return path
