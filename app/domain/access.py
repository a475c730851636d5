"""Keys: who may call the service, for what, and for which runs, environments, data sets and worlds.

A key opens scopes, is bound to names or to the beginnings of names, and has quotas. Only the digest of its secret is
kept. The caller of a request is in its context, and tasks inherit it: turns and accounts go by that, access does not.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal, Self, get_args

from pydantic import Field, model_validator

from app.domain.budgets import NO_QUOTAS, KeyQuotas
from app.domain.errors import Forbidden
from app.domain.values import Frozen, Name

AccessScope = Literal["read", "train", "label", "talk", "play", "author", "metrics", "admin"]
"""`read`: what is stored; `train`: hand out, step, score; `label`: label blind; `talk`: talk to characters, of players;
`play`: write what happens in worlds, of games; `author`: sheets, lorebooks, drafts, closing of worlds; `metrics`;
`admin`: keys, and everything else."""
ACCESS_SCOPES: Final[tuple[AccessScope, ...]] = get_args(AccessScope)

KeyDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the secret, in hexadecimal.")]
Scopes = Annotated[tuple[AccessScope, ...], Field(min_length=1, max_length=len(ACCESS_SCOPES))]
_SCOPES_OF_THE_SERVICE: Final[frozenset[AccessScope]] = frozenset({"metrics", "admin"})
"""They open what belongs to no run, so that a bound key cannot have them."""
_MOST_NAMED: Final = 20
_RESERVED: Final = frozenset({"settings", "generated"})
"""Names under which keys that are not in the list are logged."""


def fold_person(name: str) -> str | None:
    """The name by which a person whom a proxy names is known: proxies write one person now with capitals, now without,
    and a key holds for both. None for a name of the service's own keys."""
    # Letters such as the long s fold to ASCII: whoever has them in their name is not who has the plain ones.
    known = "".join(
        letter if (folded := letter.casefold()).isascii() and not letter.isascii() else folded for letter in name
    )
    return None if known in _RESERVED else known


def generate_key() -> str:
    """A new key of 256 random bits."""
    return f"gw_{secrets.token_urlsafe(32)}"


def compute_key_digest(key: str) -> str:
    """SHA-256 in hexadecimal: keys are random, so a slow hash would add nothing. A dictionary finds it: how long that
    takes tells of a digest's bits, which nobody can choose, and not of the key's."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


NamePattern = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]{0,99}\*?$", max_length=100)]
Patterns = Annotated[tuple[NamePattern, ...], Field(max_length=100)]


class KeyBounds(Frozen):
    """What a key is bound to. An empty list binds nothing; with `*` at its end a name stands for all that begin so."""

    runs: Patterns = ()
    """Runs and Atropos queues, also before they exist."""
    environments: Patterns = ()
    datasets: Patterns = ()
    """Data sets whose tasks it is handed and may score; `built-in` is an environment's own tasks."""
    worlds: Patterns = ()
    """Where runs are bound and worlds are not: worlds with the names of its runs."""

    @property
    def is_open(self) -> bool:
        return self == KeyBounds()

    @property
    def world_patterns(self) -> tuple[str, ...]:
        return self.worlds or self.runs

    def allows_run(self, run: str | None) -> bool:
        return _matches(run, self.runs)

    def allows_environment(self, environment: str) -> bool:
        return _matches(environment, self.environments)

    def allows_dataset(self, dataset: str | None) -> bool:
        return _matches(dataset, self.datasets)

    def allows_world(self, world: str) -> bool:
        return _matches(world, self.world_patterns)

    def allows_group(self, run: str | None, environment: str) -> bool:
        return self.allows_run(run) and self.allows_environment(environment)

    def require_run(self, run: str | None, field: str = "run") -> None:
        if not self.allows_run(run):
            raise Forbidden(_explain_bound("run", run, self.runs), field=field)

    def require_environment(self, environment: str | None, field: str | None = None) -> None:
        if not _matches(environment, self.environments):
            raise Forbidden(_explain_bound("environment", environment, self.environments), field=field)

    def require_dataset(self, dataset: str | None, field: str) -> None:
        if not self.allows_dataset(dataset):
            raise Forbidden(_explain_bound("data set", dataset, self.datasets), field=field)

    def require_world(self, world: str, field: str | None = None) -> None:
        if not self.allows_world(world):
            raise Forbidden(_explain_bound("world", world, self.world_patterns), field=field)


def _matches(name: str | None, patterns: tuple[str, ...]) -> bool:
    if not patterns:
        return True
    return name is not None and any(name.startswith(one[:-1]) if one.endswith("*") else name == one for one in patterns)


def _explain_bound(what: str, name: str | None, patterns: tuple[str, ...]) -> str:
    listed = ", ".join(patterns)
    return f"this key is bound to {what}s {listed}: " + (
        f"name one of them; {name!r} is none" if name is not None else "name one of them"
    )


UNBOUND: Final = KeyBounds()


@dataclass(frozen=True)
class Caller:
    """Who a request comes from: a key, or a person whom a proxy names."""

    name: str
    scopes: frozenset[AccessScope]
    bounds: KeyBounds = UNBOUND
    quotas: KeyQuotas = NO_QUOTAS

    def has(self, scope: AccessScope) -> bool:
        return scope in self.scopes or "admin" in self.scopes


current_caller: Final[ContextVar[Caller | None]] = ContextVar("current_caller", default=None)
"""The caller for whom this task works, which tasks that it starts inherit. Turns and accounts go by it; access does
not."""


def name_current_caller() -> str:
    """The name of the key for which this task works; empty where none is known."""
    caller = current_caller.get()
    return "" if caller is None else caller.name


@contextmanager
def work_for(caller: Caller | None) -> Iterator[None]:
    """Inside, this context works for that caller."""
    token = current_caller.set(caller)
    try:
        yield
    finally:
        current_caller.reset(token)


def find_bounds(caller: Caller | None) -> KeyBounds:
    """The bounds of a caller. Without one no key is needed, and nobody is bound."""
    return UNBOUND if caller is None else caller.bounds


class AccessKey(Frozen):
    """A named key. Of its secret only the digest is kept."""

    name: Name
    scopes: Scopes
    bounds: KeyBounds = UNBOUND
    quotas: KeyQuotas = NO_QUOTAS
    hint: str
    """The secret's first characters, or its digest's where the secret was never here."""
    created_at: datetime
    created_by: str
    expires_at: datetime | None = None
    rotated_at: datetime | None = None
    rotated_by: str | None = None
    grace_until: datetime | None = None
    """Until then the secret before the last rotation works too."""
    revoked_at: datetime | None = None
    revoked_by: str | None = None
    narrowed: bool = False
    """Schema 0043 made its scope `play` into `talk`, and no admin has set its scopes since."""

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def caller(self) -> Caller:
        return Caller(self.name, frozenset(self.scopes), self.bounds, self.quotas)


class StoredKey(AccessKey):
    """With its digests, for those who check secrets. It is never shown."""

    digest: KeyDigest
    former_digest: KeyDigest | None = None
    """Of the secret before the last rotation."""

    @property
    def without_digests(self) -> AccessKey:
        return AccessKey.model_validate(self.model_dump(exclude={"digest", "former_digest"}))

    def list_digests(self, now: datetime) -> tuple[str, ...]:
        """Those of the secrets that work now."""
        if not self.is_valid(now):
            return ()
        in_grace = self.former_digest is not None and self.grace_until is not None and now < self.grace_until
        return (self.digest, self.former_digest) if in_grace and self.former_digest else (self.digest,)


@dataclass(frozen=True)
class SignIn:
    """A browser in which a person gave a key. It ends with the secret that was given: a rotated key ends it."""

    digest: str
    """Of the cookie's random value."""
    key_digest: str
    expires_at: datetime


def require_fitting_scopes(scopes: Scopes, bounds: KeyBounds) -> None:
    """ValueError for a scope that a key with these bounds cannot have."""
    unfit = sorted(_SCOPES_OF_THE_SERVICE & set(scopes))
    if unfit and not bounds.is_open:
        raise ValueError(f"a key with bounds cannot have the scope {unfit[0]!r}, which is of the whole service")


def name_narrowed(keys: Iterable[AccessKey]) -> str:
    """A sentence about those whose `play` became `talk`; empty where there is none. One that is revoked needs none."""
    named = sorted((key for key in keys if key.narrowed and key.revoked_at is None), key=lambda key: key.name)
    if not named:
        return ""
    more = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    commands = ", ".join(f"`{_write_opening(key)}`" for key in named[:_MOST_NAMED])
    return (
        "the scope `play` became `talk`. These commands keep all scopes of a key and give `play` back, for a game that "
        f"writes events with it; without `--scope play` they only end this message: {commands}{more}"
    )


def _write_opening(key: AccessKey) -> str:
    """With all scopes: those that are not named end."""
    return " ".join(["atropos-envs keys open", key.name, *(f"--scope {scope}" for scope in (*key.scopes, "play"))])


class KeyOptions(Frozen):
    """What whoever makes a key chooses."""

    name: Name
    scopes: Scopes = ("read", "train")
    bounds: KeyBounds = UNBOUND
    quotas: KeyQuotas = NO_QUOTAS
    expires_at: datetime | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name in _RESERVED:
            raise ValueError(f"the name {self.name!r} is taken by the service")
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise ValueError("expires_at needs a time zone, such as 2027-01-31T00:00:00Z")
        require_fitting_scopes(self.scopes, self.bounds)
        return self


class KeyScopes(Frozen):
    """What a key opens from now on."""

    scopes: Scopes


class DeclaredKey(KeyOptions):
    """A key as a file declares it."""

    digest: KeyDigest


class AdminAction(Frozen):
    """An entry of the audit. It holds no secret and no digest."""

    at: datetime
    by: str
    """The name of a key, or `command line`."""
    action: Literal["create", "change", "rotate", "revoke"]
    key: str
    before: AccessKey | None = None
    after: AccessKey | None = None
