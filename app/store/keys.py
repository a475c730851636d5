"""Digests of the secrets that open the service."""

from sqlalchemy import select

from app.store.database import Database
from app.store.tables import api_keys


class StoredKeys:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def api_key_digests(self) -> frozenset[str]:
        return await self._database.read(
            lambda connection: frozenset(connection.execute(select(api_keys.c.digest)).scalars())
        )

    async def add_api_key(self, digest: str) -> None:
        """`digest` is the hexadecimal SHA-256 of the secret. A known one is left as it is."""
        row = {"digest": digest, "created_at": self._database.stamp()}
        await self._database.write(
            lambda connection: connection.execute(self._database.insert_new(api_keys), row), "api_keys"
        )
