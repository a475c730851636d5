"""Claims of work: who has it, and until when.

A claim has one holder, who renews it while the work goes on. What a dead holder had is free when its time is over.
`release_claim` says whether it was the holder's until then: what is stored in the same transaction on that condition
cannot come from a holder that was slow, after somebody else has taken over.
"""

import secrets
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Connection, or_, update

from app.store.database import Database, StorePart, writes
from app.store.statements import MICROSECONDS_PER_SECOND
from app.store.tables import claims

_ORDER: Final = "claims"


@dataclass(frozen=True)
class Claim:
    """`name` is what is claimed, of its kind. No two claims have one holder."""

    kind: str
    name: str
    holder: str


def build_claim(kind: str, name: str) -> Claim:
    return Claim(kind, name, secrets.token_hex(8))


def take_claim(
    connection: Connection, database: Database, claim: Claim, seconds: float, *, rest_seconds: float = 0.0
) -> bool:
    """Whether the holder has it now, for so long: it had it, or it was free, and not released for `rest_seconds`."""
    blank = {"kind": claim.kind, "name": claim.name, "holder": "", "until": 0, "released_at": 0}
    connection.execute(database.insert_new(claims), blank)
    now = database.read_lease_clock(connection)
    is_free = (claims.c.until <= now) & (claims.c.released_at <= now - _to_micros(rest_seconds))
    is_held = (claims.c.holder == claim.holder) & (claims.c.until > 0)
    taken = {"holder": claim.holder, "until": now + _to_micros(seconds)}
    return connection.execute(update(claims).where(*_match(claim), or_(is_free, is_held)).values(taken)).rowcount == 1


def renew_claim(connection: Connection, database: Database, claim: Claim, seconds: float) -> bool:
    """False where somebody else has taken it since."""
    until = database.read_lease_clock(connection) + _to_micros(seconds)
    return connection.execute(update(claims).where(*_match_held(claim)).values(until=until)).rowcount == 1


def release_claim(connection: Connection, database: Database, claim: Claim) -> bool:
    """Whether it was the holder's until now."""
    released = {"until": 0, "released_at": database.read_lease_clock(connection)}
    return connection.execute(update(claims).where(*_match_held(claim)).values(released)).rowcount == 1


def _match(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    return claims.c.kind == claim.kind, claims.c.name == claim.name


def _match_held(claim: Claim) -> tuple[ColumnElement[bool], ...]:
    """Its time may be over, but nobody else has taken it."""
    return *_match(claim), claims.c.holder == claim.holder, claims.c.until > 0


def _to_micros(seconds: float) -> int:
    return round(seconds * MICROSECONDS_PER_SECOND)


class ClaimStore(StorePart):
    """Claims that are taken, renewed and released by themselves."""

    @writes(_ORDER)
    def take(self, connection: Connection, claim: Claim, seconds: float, *, rest_seconds: float = 0.0) -> bool:
        return take_claim(connection, self.database, claim, seconds, rest_seconds=rest_seconds)

    @writes(_ORDER)
    def renew(self, connection: Connection, claim: Claim, seconds: float) -> bool:
        return renew_claim(connection, self.database, claim, seconds)

    @writes(_ORDER)
    def release(self, connection: Connection, claim: Claim) -> bool:
        return release_claim(connection, self.database, claim)
