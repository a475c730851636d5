"""The store of character sheet versions, and of the versions that epochs began with."""

from collections.abc import Sequence

from pydantic import TypeAdapter
from sqlalchemy import Connection, select

from app.domain.digests import digest_of_text
from app.domain.runs import Stream
from app.ports.store import SheetStore
from app.store.database import Database
from app.store.rows import encode_json, is_storable
from app.store.sheet_tables import editions, epochs, sheets

_DIGESTS = TypeAdapter(tuple[str, ...])


class SqlSheetStore(SheetStore):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def keep(self, environment: str, data_digest: str, texts: Sequence[str]) -> None:
        stamp = self._database.read_clock()
        await self._database.write(
            lambda connection: _keep_edition(connection, self._database, environment, data_digest, texts, stamp),
            "sheets",
        )

    async def get(self, environment: str, data_digest: str) -> tuple[str, ...] | None:
        if not is_storable(environment, data_digest):
            return None
        return await self._database.read(lambda connection: _load_edition(connection, environment, data_digest))

    async def begin_epochs(self, stream: Stream, epochs: Sequence[int], data_digest: str) -> dict[int, str]:
        if not epochs:
            return {}
        return await self._database.write(
            lambda connection: _begin_epochs(connection, self._database, stream, epochs, data_digest),
            f"epochs {stream.run}",
        )


def _keep_edition(
    connection: Connection, database: Database, environment: str, data_digest: str, texts: Sequence[str], stamp: int
) -> None:
    digests = [digest_of_text(text) for text in texts]
    bodies = dict(zip(digests, texts, strict=True))
    if bodies:
        rows = [{"digest": one, "body": bodies[one], "created_at": stamp} for one in sorted(bodies)]
        connection.execute(database.insert_new(sheets), rows)
    row = {
        "environment": environment,
        "data_digest": data_digest,
        "sheets": encode_json([*digests]),
        "created_at": stamp,
    }
    connection.execute(database.insert_new(editions), row)


def _load_edition(connection: Connection, environment: str, data_digest: str) -> tuple[str, ...] | None:
    here = (editions.c.environment == environment, editions.c.data_digest == data_digest)
    listed = connection.execute(select(editions.c.sheets).where(*here)).scalar()
    if listed is None:
        return None
    digests = _DIGESTS.validate_json(listed)
    statement = select(sheets.c.digest, sheets.c.body).where(sheets.c.digest.in_(digests))
    bodies = {one: body for one, body in connection.execute(statement)}
    return tuple(bodies[one] for one in digests)


def _begin_epochs(
    connection: Connection, database: Database, stream: Stream, begun: Sequence[int], data_digest: str
) -> dict[int, str]:
    stamp = database.read_clock()
    rows = [
        {"run": stream.run, "stream": stream.digest, "epoch": epoch, "data_digest": data_digest, "created_at": stamp}
        for epoch in sorted(set(begun))
    ]
    connection.execute(database.insert_new(epochs), rows)
    here = (epochs.c.run == stream.run, epochs.c.stream == stream.digest, epochs.c.epoch.in_(begun))
    return {epoch: one for epoch, one in connection.execute(select(epochs.c.epoch, epochs.c.data_digest).where(*here))}
