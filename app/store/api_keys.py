"""The store of API key digests."""

from sqlalchemy import select

from app.store.database import Database
from app.store.tables import api_keys


class SqlApiKeyStore:
    """API key digests. Blocking, since they are needed at start, before there is an event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def list_digests(self) -> tuple[str, ...]:
        """Oldest first."""
        statement = select(api_keys.c.digest).order_by(api_keys.c.key_id)
        return self._database.read_blocking(lambda connection: tuple(connection.execute(statement).scalars()))

    def add(self, digest: str) -> None:
        """Stores a digest, the hexadecimal SHA-256 of the secret. An existing one is unchanged."""
        row = {"digest": digest, "created_at": self._database.read_clock()}
        statement = self._database.insert_new(api_keys)
        self._database.write_blocking(lambda connection: connection.execute(statement, row))
