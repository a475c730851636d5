"""Keys of the service, browsers that are signed in with one, and the audit of what was done to keys.

Only digests of secrets are stored. A key without a name was generated at a start; a named one has bounds and quotas,
and each change of it is written with an entry of the audit, in one transaction.
"""

from sqlalchemy import Connection, delete, func, insert, select, update

from app.domain.access import AdminAction, SignIn, StoredKey
from app.domain.errors import Conflict
from app.ports.store import ChangeKey, KeyStore, KnownKeys
from app.store.database import Database
from app.store.statements import decode, encode, from_micros, to_micros
from app.store.tables import admin_actions, api_keys, named_keys, sign_ins


class SqlApiKeyStore(KeyStore):
    """What is blocking is needed at start, before there is an event loop."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def load_blocking(self) -> KnownKeys:
        return self._database.read_blocking(_load_keys)

    async def load(self) -> KnownKeys:
        return await self._database.read(_load_keys)

    def list_digests(self) -> tuple[str, ...]:
        """Of keys without a name, oldest first."""
        return self.load_blocking().generated

    def add(self, digest: str) -> None:
        """Stores the digest of a key without a name, the hexadecimal SHA-256 of the secret. An existing one is
        unchanged."""
        row = {"digest": digest, "created_at": self._database.read_clock()}
        statement = self._database.insert_new(api_keys)
        self._database.write_blocking(lambda connection: connection.execute(statement, row))

    async def change(self, name: str, change: ChangeKey) -> StoredKey | None:
        return await self._database.write(lambda connection: _change_key(connection, self._database, name, change))

    async def add_sign_in(self, sign_in: SignIn, most: int) -> None:
        row = {
            "digest": sign_in.digest,
            "key_digest": sign_in.key_digest,
            "expires_at": to_micros(sign_in.expires_at),
        }

        def write(connection: Connection) -> None:
            # First, so that those that are over do not count.
            connection.execute(delete(sign_ins).where(sign_ins.c.expires_at < self._database.read_clock()))
            mine = select(func.count()).where(sign_ins.c.key_digest == sign_in.key_digest)
            if connection.execute(mine).scalar_one() >= most:
                raise Conflict(f"{most} browsers are signed in with this key, which is as many as it may have")
            connection.execute(insert(sign_ins), row)

        await self._database.write(write)

    async def remove_sign_in(self, digest: str) -> None:
        await self._database.write(
            lambda connection: connection.execute(delete(sign_ins).where(sign_ins.c.digest == digest))
        )

    async def list_actions(self, before: int | None, limit: int) -> list[tuple[int, AdminAction]]:
        newest = select(admin_actions.c.sequence, admin_actions.c.body).order_by(admin_actions.c.sequence.desc())
        if before is not None:
            newest = newest.where(admin_actions.c.sequence < before)
        rows = await self._database.read(lambda connection: connection.execute(newest.limit(limit)).all())
        return [(sequence, decode(AdminAction, body)) for sequence, body in rows]


def _load_keys(connection: Connection) -> KnownKeys:
    named = connection.execute(select(named_keys.c.body)).scalars()
    generated = connection.execute(select(api_keys.c.digest).order_by(api_keys.c.key_id)).scalars()
    open_ones = connection.execute(select(sign_ins)).mappings()
    return KnownKeys(
        tuple(decode(StoredKey, body) for body in named),
        tuple(generated),
        tuple(SignIn(row["digest"], row["key_digest"], from_micros(row["expires_at"])) for row in open_ones),
    )


def _change_key(connection: Connection, database: Database, name: str, change: ChangeKey) -> StoredKey | None:
    mine = named_keys.c.name == name
    body = connection.execute(select(named_keys.c.body).where(mine).with_for_update()).scalar()
    stored = None if body is None else decode(StoredKey, body)
    changed = change(stored)
    if changed is None:
        return stored
    key, entry = changed
    _require_new_secret(connection, key)
    row = {"digest": key.digest, "body": encode(key)}
    if stored is not None:
        connection.execute(update(named_keys).where(mine).values(row))
    elif not connection.execute(database.insert_new(named_keys), {"name": name, **row}).rowcount:
        raise Conflict(f"another caller made the key {name!r} at the same time", field="name")
    connection.execute(insert(admin_actions), {"body": encode(entry), "created_at": database.read_clock()})
    return key


def _require_new_secret(connection: Connection, key: StoredKey) -> None:
    """One secret names one caller."""
    same = select(named_keys.c.name).where(named_keys.c.digest == key.digest, named_keys.c.name != key.name)
    if (other := connection.execute(same).scalar()) is not None:
        raise Conflict(f"the key {other!r} has the same secret", field="digest")
