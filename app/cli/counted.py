"""Judges for commands that ask them without a service: what they spend counts as the service's own does."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import typer

from app.judges.panels import ConfiguredPanels
from app.judges.remembered import AskingAnew
from app.main.configured import panels_of
from app.ports.runtime import Opened
from app.settings import Settings
from app.store.database import describe
from app.store.store import Store
from app.toolkit.package_data import packaged_folder


def say_store(settings: Settings) -> None:
    """On stderr, before it is opened: a file is relative to the folder one stands in. ValueError for a URL that is
    none."""
    typer.echo(f"store: {describe(settings.database_url)}", err=True)


@contextlib.asynccontextmanager
async def configured_store(settings: Settings) -> AsyncIterator[Store]:
    """Open for as long as the context lasts; says which one. StoreUnavailable when there is none."""
    say_store(settings)
    store = await asyncio.to_thread(Store.open, settings.database_url, packaged_folder("migrations"))
    try:
        yield store
    finally:
        await store.close()


@contextlib.asynccontextmanager
async def counted_panels(settings: Settings) -> AsyncIterator[ConfiguredPanels]:
    """The configured judges, open, under the same budgets as a service over the configured store, which shows what they
    spend. All are opened, since one may ask another in its place; nothing is answered from memory."""
    if not settings.judges:
        yield panels_of(settings)
        return
    async with configured_store(settings) as store:
        panels = panels_of(settings, AskingAnew(store.judge_cache))
        judges = [judge for judge in panels.judges.values() if isinstance(judge, Opened)]
        await asyncio.gather(*(judge.open() for judge in judges))
        try:
            yield panels
        finally:
            await asyncio.gather(*(judge.close() for judge in judges))
