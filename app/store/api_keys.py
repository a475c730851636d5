"""Keys of the service, browsers that are signed in with one, and the audit of what was done to keys.

Only digests of secrets are stored. A key without a name was generated at a start; a named one has bounds and quotas,
and each change of it is written with an entry of the audit, in one transaction. Every replica reads all keys again and
again, since admins make them, a few each; browsers come by themselves, so they are looked up by their digests.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, insert, select, update

from app.domain.access import AccessKey, AdminAction, SignIn, StoredKey
from app.domain.errors import Conflict
from app.store.database import StorePart, reads, writes
from app.store.statements import decode, encode, from_micros, lock_names, to_micros
from app.store.tables import admin_actions, api_keys, named_keys, sign_ins

ChangeKey = Callable[[StoredKey | None], tuple[StoredKey, AdminAction] | None]
"""From a key as it is stored: what it becomes, with the entry of the audit; None leaves it. It may raise."""


@dataclass(frozen=True)
class KnownKeys:
    """All keys of the store: those with names, and digests of the unnamed ones that services made for themselves."""

    named: tuple[StoredKey, ...] = ()
    generated: tuple[str, ...] = ()


def show_keys(known: KnownKeys) -> tuple[AccessKey, ...]:
    """By name, without digests."""
    return tuple(key.without_digests for key in sorted(known.named, key=lambda one: one.name))


class KeyStore(StorePart):
    """What is blocking is needed at start, before there is an event loop."""

    def load_blocking(self) -> KnownKeys:
        return self.database.read_blocking(_load_keys)

    @reads
    def load(self, connection: Connection) -> KnownKeys:
        return _load_keys(connection)

    def list_digests(self) -> tuple[str, ...]:
        """Of keys without a name, oldest first."""
        return self.load_blocking().generated

    def add(self, digest: str) -> None:
        """Stores the digest of a key without a name, the hexadecimal SHA-256 of the secret. An existing one is
        unchanged."""
        row = {"digest": digest, "created_at": self.database.read_clock()}
        statement = self.database.insert_new(api_keys)
        self.database.write_blocking(lambda connection: connection.execute(statement, row))

    @writes()
    def change(self, connection: Connection, name: str, change: ChangeKey) -> StoredKey | None:
        """Changes one key and records it, in one transaction; durable on return. Conflict for a secret that another
        key has."""
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
        elif not connection.execute(self.database.insert_new(named_keys), {"name": name, **row}).rowcount:
            raise Conflict(f"another caller made the key {name!r} at the same time", field="name")
        connection.execute(insert(admin_actions), {"body": encode(entry), "created_at": self.database.read_clock()})
        return key

    @reads
    def has_sign_ins(self, connection: Connection, key_digest: str, many: int) -> bool:
        """Whether so many browsers are signed in with the key."""
        return self._has_sign_ins(connection, key_digest, many)

    @writes(lambda sign_in, _: _name_sign_ins(sign_in))
    def add_sign_in(self, connection: Connection, sign_in: SignIn, most: int) -> bool:
        """False where the key has `most` already. Those that are over are removed."""
        lock_names(connection, [_name_sign_ins(sign_in)])  # two replicas could each add the last one
        connection.execute(delete(sign_ins).where(sign_ins.c.expires_at < self.database.read_clock()))
        if self._has_sign_ins(connection, sign_in.key_digest, most):
            return False
        row = {"digest": sign_in.digest, "key_digest": sign_in.key_digest, "expires_at": to_micros(sign_in.expires_at)}
        connection.execute(insert(sign_ins), row)
        return True

    def _has_sign_ins(self, connection: Connection, key_digest: str, many: int) -> bool:
        live = sign_ins.c.expires_at >= self.database.read_clock()
        # No more are counted: there may be any number from before there was a bound.
        first = select(sign_ins.c.expires_at).where(sign_ins.c.key_digest == key_digest, live).limit(many)
        return len(connection.execute(first).all()) >= many

    @reads
    def find_sign_ins(self, connection: Connection, digests: Sequence[str]) -> dict[str, SignIn]:
        """By digest, those that are there."""
        rows = connection.execute(select(sign_ins).where(sign_ins.c.digest.in_(digests))).mappings()
        found = (SignIn(row["digest"], row["key_digest"], from_micros(row["expires_at"])) for row in rows)
        return {one.digest: one for one in found}

    @writes()
    def remove_sign_in(self, connection: Connection, digest: str) -> None:
        connection.execute(delete(sign_ins).where(sign_ins.c.digest == digest))

    @reads
    def list_actions(self, connection: Connection, before: int | None, limit: int) -> list[tuple[int, AdminAction]]:
        """Newest first, with their sequences."""
        newest = select(admin_actions.c.sequence, admin_actions.c.body).order_by(admin_actions.c.sequence.desc())
        if before is not None:
            newest = newest.where(admin_actions.c.sequence < before)
        rows = connection.execute(newest.limit(limit))
        return [(sequence, decode(AdminAction, body)) for sequence, body in rows]


def _name_sign_ins(sign_in: SignIn) -> str:
    return f"sign-ins {sign_in.key_digest}"


def _load_keys(connection: Connection) -> KnownKeys:
    named = connection.execute(select(named_keys.c.body)).scalars()
    generated = connection.execute(select(api_keys.c.digest).order_by(api_keys.c.key_id)).scalars()
    return KnownKeys(tuple(decode(StoredKey, body) for body in named), tuple(generated))


def _require_new_secret(connection: Connection, key: StoredKey) -> None:
    """One secret names one caller."""
    same = select(named_keys.c.name).where(named_keys.c.digest == key.digest, named_keys.c.name != key.name)
    if (other := connection.execute(same).scalar()) is not None:
        raise Conflict(f"the key {other!r} has the same secret", field="digest")
