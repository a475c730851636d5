"""Each command runs in a folder of its own, and most ask one gateway."""

from pathlib import Path

import pytest

from tests.support.gateways import Gateways
from tests.support.serving import Served


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No settings file is there."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def served(gateways: Gateways) -> Served:
    return gateways.of()
