"""Judges for commands that run without a service, under the service's budgets."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import typer

from app.judges.caching_judge import WriteOnlyMemory
from app.judges.panels import ConfiguredPanels
from app.main.components import build_panels
from app.ports.runtime import ManagedResource
from app.settings import Settings
from app.store.database import describe
from app.store.store import Store
from app.toolkit.package_data import find_packaged_folder


def say_store(settings: Settings) -> None:
    """On stderr, before it is opened: a file is relative to the folder one stands in. ValueError for a URL that is
    none."""
    typer.echo(f"store: {describe(settings.database_url)}", err=True)


@contextlib.asynccontextmanager
async def open_configured_store(settings: Settings) -> AsyncIterator[Store]:
    """The configured store, closed at exit; prints which one. StoreUnavailable when it cannot be opened."""
    say_store(settings)
    store = await asyncio.to_thread(
        Store.open,
        settings.database_url,
        find_packaged_folder("migrations"),
        prepare=settings.database_prepared_statements,
    )
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def open_judge_panels(settings: Settings, *, reuse: bool = False) -> AsyncIterator[ConfiguredPanels]:
    """The configured judges, opened, with budgets and spending in the configured store. All of them are opened, since
    one may be the fallback of another. The judge cache is written, and read only with `reuse`."""
    if not settings.judges:
        yield build_panels(settings)
        return
    async with open_configured_store(settings) as store:
        panels = build_panels(settings, store.judge_cache if reuse else WriteOnlyMemory(store.judge_cache))
        judges = [judge for judge in panels.judges.values() if isinstance(judge, ManagedResource)]
        await asyncio.gather(*(judge.open() for judge in judges))
        try:
            yield panels
        finally:
            await asyncio.gather(*(judge.close() for judge in judges))
