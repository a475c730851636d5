"""What the settings decide about the application."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from app.main import application
from app.sandbox.workers import ProcessWorkers, choose_size
from app.settings import Settings


@pytest.mark.parametrize(("workers", "size"), [(None, choose_size()), (choose_size() + 5, choose_size() + 5)])
def test_there_are_as_many_workers_as_the_settings_say(
    tmp_path: Path, migrated_file: Path, monkeypatch: pytest.MonkeyPatch, workers: int | None, size: int
) -> None:
    sizes = []

    def count(size: int, observe: Callable[[str, str, float], None]) -> ProcessWorkers:
        sizes.append(size)
        return ProcessWorkers(size, observe)

    async def start() -> None:
        settings = Settings(database_url=f"sqlite:///{tmp_path / 'store.db'}", workers=workers)
        app = application.create_app(settings, environments={})
        async with app.router.lifespan_context(app):
            pass

    (tmp_path / "store.db").write_bytes(migrated_file.read_bytes())
    monkeypatch.setattr(application, "ProcessWorkers", count)
    asyncio.run(start())
    assert sizes == [size]
