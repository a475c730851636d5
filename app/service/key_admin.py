"""What admins do with keys. Every change is recorded with who made it."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from app.domain.access import (
    AccessKey,
    AdminAction,
    DeclaredKey,
    KeyOptions,
    SignIn,
    StoredKey,
    compute_key_digest,
    generate_key,
)
from app.domain.errors import Conflict, NotFound
from app.domain.quotas import KeyQuotas
from app.domain.suggestions import suggest
from app.domain.values import Frozen, utc_now
from app.ports.keys import ChangeKey, KeyStore, show_keys
from app.ports.runtime import Clock

HINT_LENGTH = 9
"""Characters of a secret that lists show: 36 of its 256 random bits."""

ActionName = Literal["create", "change", "rotate", "revoke"]
GraceSeconds = Annotated[
    float, Field(ge=0, le=30 * 86_400, allow_inf_nan=False, description="For so long the old secret works too.")
]


class NewSecret(Frozen):
    """A key with its secret, which is shown this once."""

    key: AccessKey
    secret: str


class KeyAdmin:
    """`changed` is called after each change, so that this process goes by it at once."""

    def __init__(self, store: KeyStore, clock: Clock = utc_now, *, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._store = store
        self._clock = clock

    async def list_keys(self) -> tuple[AccessKey, ...]:
        return show_keys(await self._store.load())

    async def create(self, options: KeyOptions, by: str) -> NewSecret:
        """Conflict for a name that a key has or had."""
        secret = generate_key()
        made = self._build(options, compute_key_digest(secret), secret[:HINT_LENGTH], by)

        def insert(stored: StoredKey | None) -> StoredKey:
            if stored is not None:
                raise Conflict(f"there is a key {options.name!r} already, or there was; choose another", field="name")
            return made

        await self._store_change(options.name, self._record("create", by, insert))
        return NewSecret(key=made.shown, secret=secret)

    async def rotate(self, name: str, grace_seconds: float, by: str) -> NewSecret:
        """NotFound; Conflict for a key that is revoked."""
        secret, now = generate_key(), self._clock()

        def replace_secret(stored: StoredKey | None) -> StoredKey:
            if stored is None:
                raise NotFound(f"there is no key {name!r}")
            _refuse_revoked(stored)
            return stored.model_copy(
                update={
                    "digest": compute_key_digest(secret),
                    "hint": secret[:HINT_LENGTH],
                    "former_digest": stored.digest,
                    "grace_until": now + timedelta(seconds=grace_seconds),
                    "rotated_at": now,
                    "rotated_by": by,
                }
            )

        changed = await self._change(name, self._record("rotate", by, replace_secret))
        return NewSecret(key=changed.shown, secret=secret)

    async def revoke(self, name: str, by: str) -> AccessKey:
        """For good. Revoking it twice is not an error. NotFound."""

        def end(stored: StoredKey | None) -> StoredKey:
            if stored is None:
                raise NotFound(f"there is no key {name!r}")
            ended = {"revoked_at": self._clock(), "revoked_by": by}
            return stored if stored.revoked_at is not None else stored.model_copy(update=ended)

        return (await self._change(name, self._record("revoke", by, end))).shown

    async def limit(self, name: str, quotas: KeyQuotas, by: str) -> AccessKey:
        """Replaces all quotas of a key. NotFound; Conflict for a key that is revoked."""

        def replace_quotas(stored: StoredKey | None) -> StoredKey:
            if stored is None:
                raise NotFound(f"there is no key {name!r}")
            _refuse_revoked(stored)
            return stored.model_copy(update={"quotas": quotas})

        return (await self._change(name, self._record("change", by, replace_quotas))).shown

    async def apply(self, declared: Sequence[DeclaredKey], by: str) -> tuple[AdminAction, ...]:
        """Makes the keys what a file says, and returns what that changed: nothing the second time. Keys that the file
        does not name stay as they are. Conflict for a key that is revoked, before anything is changed."""
        known = {key.name: key for key in (await self._store.load()).named}
        for wanted in declared:
            if wanted.name in known:
                _refuse_revoked(known[wanted.name])
        made: list[AdminAction] = []
        for wanted in declared:
            await self._store_change(wanted.name, self._record("change", by, self._declare(wanted, by), made.append))
        return tuple(made)

    def _declare(self, wanted: DeclaredKey, by: str) -> Callable[[StoredKey | None], StoredKey]:
        fresh = self._build(wanted, wanted.digest, f"sha256:{wanted.digest[:8]}", by)

        def declare(stored: StoredKey | None) -> StoredKey:
            if stored is None:
                return fresh
            _refuse_revoked(stored)
            settled = {name: getattr(wanted, name) for name in ("scopes", "bounds", "quotas", "expires_at")}
            changed = stored.model_copy(update=settled)
            if stored.digest == wanted.digest:
                return changed
            new = {"digest": wanted.digest, "hint": fresh.hint, "rotated_at": self._clock(), "rotated_by": by}
            return changed.model_copy(update={**new, "former_digest": None, "grace_until": None})

        return declare

    async def begin_sign_in(self, secret: str, hours: float, most: int) -> str:
        """The value of the cookie by which a browser is known. The caller has checked the secret. Conflict where `most`
        browsers are signed in with it."""
        value = generate_key()
        over = self._clock() + timedelta(hours=hours)
        await self._store.add_sign_in(SignIn(compute_key_digest(value), compute_key_digest(secret), over), most)
        self._changed()
        return value

    async def end_sign_in(self, value: str) -> None:
        await self._store.remove_sign_in(compute_key_digest(value))
        self._changed()

    async def list_actions(self, before: int | None, limit: int) -> list[tuple[int, AdminAction]]:
        return await self._store.list_actions(before, limit)

    async def _store_change(self, name: str, change: ChangeKey) -> StoredKey | None:
        changed = await self._store.change(name, change)
        self._changed()
        return changed

    async def _change(self, name: str, change: ChangeKey) -> StoredKey:
        changed = await self._store_change(name, change)
        if changed is None:
            raise NotFound(f"there is no key {name!r}{suggest(name, [key.name for key in await self.list_keys()])}")
        return changed

    def _build(self, options: KeyOptions, digest: str, hint: str, by: str) -> StoredKey:
        return StoredKey(
            name=options.name,
            scopes=options.scopes,
            bounds=options.bounds,
            quotas=options.quotas,
            hint=hint,
            created_at=self._clock(),
            created_by=by,
            expires_at=options.expires_at,
            digest=digest,
        )

    def _record(
        self,
        action: ActionName,
        by: str,
        change: Callable[[StoredKey | None], StoredKey],
        tell: Callable[[AdminAction], None] = lambda _: None,
    ) -> ChangeKey:
        def change_and_record(stored: StoredKey | None) -> tuple[StoredKey, AdminAction] | None:
            changed = change(stored)
            if changed == stored:
                return None
            entry = AdminAction(
                at=self._clock(),
                by=by,
                action="create" if stored is None else action,
                key=changed.name,
                before=None if stored is None else stored.shown,
                after=changed.shown,
            )
            tell(entry)
            return changed, entry

        return change_and_record


def _refuse_revoked(key: StoredKey) -> None:
    if key.revoked_at is not None:
        raise Conflict(f"the key {key.name!r} is revoked, which is for good; make one with another name", field="name")
