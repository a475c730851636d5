"""The whole service over one store file at one moment, as a client meets it."""

import asyncio
import contextlib
import gzip
import json
import sqlite3
from collections.abc import AsyncIterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import httpx
from pydantic import JsonValue

from app.main.application import create_app
from app.settings import ProgramSettings, Settings

WAIT: Final = 60.0


@contextlib.asynccontextmanager
async def gateway(database: Path, moment: datetime) -> AsyncIterator[httpx.AsyncClient]:
    """A client of all environments, once every one of them serves. The judge without a model judges."""
    settings = Settings.model_construct(
        database_url=f"sqlite:///{database}", programs=ProgramSettings(allow_weak_isolation=True)
    )
    app = create_app(settings, clock=lambda: moment)
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=WAIT) as client,
    ):
        async with asyncio.timeout(WAIT):
            while not await _all_serve(client):  # noqa: ASYNC110  # HTTP wakes nobody
                await asyncio.sleep(0.05)
        yield client


async def _all_serve(client: httpx.AsyncClient) -> bool:
    """Also those that wait until it is known how well programs are kept apart."""
    if (await client.get("/readyz")).status_code != 200:
        return False
    return all(one["available"] for one in (await client.get("/envs")).json()["environments"])


async def answered(
    client: httpx.AsyncClient, method: str, path: str, body: JsonValue = None, headers: Mapping[str, str] | None = None
) -> JsonValue:
    """The reply as JSON with its status."""
    response = await client.request(method, path, json=body, headers=headers or {})
    reply: JsonValue = {"status": response.status_code, "reply": json.loads(response.content)}
    return reply


def packed(database: Path) -> bytes:
    """A store that nobody has open, as one small file. The same bytes for the same store."""
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.execute("VACUUM")
    connection.close()
    return gzip.compress(database.read_bytes(), mtime=0)
