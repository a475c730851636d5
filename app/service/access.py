"""What a bound key may reach: checks the names, tasks, leases and groups of a request before it is served."""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import ceil
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, JsonValue

from app.domain.access import (
    AccessKey,
    AccessScope,
    AdminAction,
    Caller,
    DeclaredKey,
    KeyBounds,
    KeyOptions,
    SignIn,
    StoredKey,
    compute_key_digest,
    current_caller,
    generate_key,
    require_fitting_scopes,
)
from app.domain.budgets import NO_AMOUNT, Amount, Demand, KeyQuotas, KeyUsage, QuotaUse
from app.domain.errors import Conflict, InvalidRequest, NotFound, QuotaExceeded, StoreUnavailable
from app.domain.groups import TaskRecord
from app.domain.runs import ScoringOptions
from app.domain.tasks import BUILT_IN
from app.domain.values import Frozen, suggest, utc_now
from app.ports.environment import Clock
from app.ports.judges import Panels
from app.service.catalogue import Catalogue
from app.service.requests import NextBatch, NextMixedBatch, ScoreRequest
from app.service.runs import RunRegistry, bound_unknown_group
from app.service.task_cache import DealtBatch, TaskCache
from app.store.api_keys import ChangeKey, KeyStore, show_keys
from app.store.budgets import (
    HandOut,
    HandOutGrant,
    HandOutPart,
    JudgingDemand,
    JudgingGrant,
    JudgingRequest,
    QuotaStore,
    Reserved,
)
from app.store.groups import GroupStore, IdempotencyKey
from app.store.pending_groups import PendingGroupStore
from app.store.tasks import TaskStore

ItemT = TypeVar("ItemT")


class BoundsCheck:
    """What belongs to others is not there: NotFound, as for what never was. Only names that the caller itself gives are
    refused with the bounds that they are beyond: Forbidden."""

    def __init__(
        self, task_cache: TaskCache, tasks: TaskStore, groups: GroupStore, open_groups: PendingGroupStore
    ) -> None:
        self._task_cache = task_cache
        self._tasks = tasks
        self._groups = groups
        self._open_groups = open_groups

    async def check_score(self, bounds: KeyBounds, request: ScoreRequest) -> None:
        """What is stored must be of a run within the bounds, so that a group names it or a lease of it."""
        if bounds.is_open:
            return
        if request.run is not None:
            bounds.require_run(request.run)
        await self.require_tasks(bounds, [group.task_id for group in request.groups], "groups[{}].task_id")
        leases = await self._tasks.get_leases([one.lease_id for one in request.groups if one.lease_id is not None])
        for place, group in enumerate(request.groups):
            lease = None if group.lease_id is None else leases.get(group.lease_id)
            if lease is not None and not bounds.allows_run(lease.run):
                raise NotFound(
                    f"lease {group.lease_id} was not issued by this service", field=f"groups[{place}].lease_id"
                )
            if lease is None and request.run is None:
                bounds.require_run(None)

    async def require_tasks(self, bounds: KeyBounds, task_ids: Sequence[str], field: str | None = None) -> None:
        """NotFound naming `field`, where `{}` is the place, for a task of others. One that is not there passes."""
        if bounds.is_open:
            return
        records = await self._task_cache.get(list(dict.fromkeys(task_ids)))
        for place, task_id in enumerate(task_ids):
            record = records.get(task_id)
            if record is not None and not allows_task(bounds, record):
                named = None if field is None else field.format(place)
                raise NotFound(f"task {task_id} was not handed out by this service", field=named)

    async def require_group(self, bounds: KeyBounds, group_id: str) -> None:
        if await self.find_foreign(bounds, [group_id]):
            raise NotFound(f"there is no group {group_id}")

    async def find_foreign(self, bounds: KeyBounds, group_ids: Collection[str]) -> frozenset[str]:
        """Those of the groups that are others'."""
        if bounds.is_open:
            return frozenset()
        # Open ones first: one that is closed between the two reads is stored by the second.
        found = await self._open_groups.load_open_groups(list(group_ids)) | await self._groups.find(list(group_ids))
        return frozenset(
            group_id for group_id, group in found.items() if not bounds.allows_group(group.run, group.environment)
        )


def check_hand_out(bounds: KeyBounds, environment: str, run: str | None, params: Mapping[str, JsonValue]) -> None:
    bounds.require_run(run)
    bounds.require_environment(environment)
    _check_params(bounds, params, "params")


def check_mixture(bounds: KeyBounds, request: NextMixedBatch) -> None:
    bounds.require_run(request.run)
    for place, member in enumerate(request.mix):
        bounds.require_environment(member.env, f"mix[{place}].env")
        _check_params(bounds, member.params, f"mix[{place}].params")


def _check_params(bounds: KeyBounds, params: Mapping[str, JsonValue], field: str) -> None:
    """They choose a data set and a world."""
    dataset, world = params.get("dataset"), params.get("world")
    bounds.require_dataset(dataset if isinstance(dataset, str) else None, f"{field}.dataset")
    if isinstance(world, str):
        bounds.require_world(world, f"{field}.world")


def allows_task(bounds: KeyBounds, record: TaskRecord) -> bool:
    """A task is of no run: whoever may be handed it may see it."""
    world = record.key.params.get("world")
    return (
        bounds.allows_environment(record.key.environment)
        and bounds.allows_dataset(record.prompt.dataset or BUILT_IN)
        and (not isinstance(world, str) or bounds.allows_world(world))
    )


def require_named(bounds: KeyBounds, run: str | None, environment: str | None) -> None:
    """Of a request over all groups that match: it must name what the key is bound to, since a part would look like the
    whole."""
    bounds.require_run(run, "query.run")
    bounds.require_environment(environment, "query.env")


def scope_idempotency(caller: Caller | None, key: IdempotencyKey | None) -> IdempotencyKey | None:
    """Callers choose them: those of two keys never meet, whether they are bound or not."""
    if key is None or caller is None:
        return key
    return IdempotencyKey(key=f"{caller.name}:{key.key}", body_digest=key.body_digest)


async def list_within(
    read: Callable[[int, str | None], Awaitable[Sequence[ItemT]]],
    name: Callable[[ItemT], str],
    allows: Callable[[str], bool],
    limit: int,
    after: str | None,
) -> list[ItemT]:
    """A page of those that are allowed, by name."""
    found: list[ItemT] = []
    while len(found) < limit:
        page = await read(limit, after)
        found += [one for one in page if allows(name(one))]
        if len(page) < limit:
            break
        after = name(page[-1])
    return found[:limit]


# What admins do with keys. Every change is recorded with who made it.

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
        return NewSecret(key=made.without_digests, secret=secret)

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
        return NewSecret(key=changed.without_digests, secret=secret)

    async def revoke(self, name: str, by: str) -> AccessKey:
        """For good. Revoking it twice is not an error. NotFound."""

        def end(stored: StoredKey | None) -> StoredKey:
            if stored is None:
                raise NotFound(f"there is no key {name!r}")
            ended = {"revoked_at": self._clock(), "revoked_by": by}
            return stored if stored.revoked_at is not None else stored.model_copy(update=ended)

        return (await self._change(name, self._record("revoke", by, end))).without_digests

    async def limit(self, name: str, quotas: KeyQuotas, by: str) -> AccessKey:
        """Replaces all quotas of a key. NotFound; Conflict for a key that is revoked."""

        def replace_quotas(stored: StoredKey | None) -> StoredKey:
            if stored is None:
                raise NotFound(f"there is no key {name!r}")
            _refuse_revoked(stored)
            return stored.model_copy(update={"quotas": quotas})

        return (await self._change(name, self._record("change", by, replace_quotas))).without_digests

    async def open(self, name: str, scopes: Sequence[AccessScope], by: str) -> AccessKey:
        """Replaces the scopes of a key. NotFound; Conflict for a key that is revoked; InvalidRequest for a scope that
        its bounds forbid."""

        def replace_scopes(stored: StoredKey | None) -> StoredKey:
            if stored is None:
                raise NotFound(f"there is no key {name!r}")
            _refuse_revoked(stored)
            try:
                require_fitting_scopes(tuple(scopes), stored.bounds)
            except ValueError as error:
                raise InvalidRequest(str(error), field="scopes") from error
            return stored.model_copy(update={"scopes": tuple(scopes), "narrowed": False})

        return (await self._change(name, self._record("change", by, replace_scopes))).without_digests

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
            changed = stored.model_copy(update=settled | {"narrowed": False})
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
        sign_in = SignIn(compute_key_digest(value), compute_key_digest(secret), over)
        # Counted first, so that those who are refused again and again do not stand in the way of what is written.
        is_full = await self._store.has_sign_ins(sign_in.key_digest, most)
        if is_full or not await self._store.add_sign_in(sign_in, most):
            raise Conflict(f"{most} browsers are signed in with this key, which is as many as it may have")
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
                before=None if stored is None else stored.without_digests,
                after=changed.without_digests,
            )
            tell(entry)
            return changed, entry

        return change_and_record


def _refuse_revoked(key: StoredKey) -> None:
    if key.revoked_at is not None:
        raise Conflict(f"the key {key.name!r} is revoked, which is for good; make one with another name", field="name")


# Quotas of keys: they stop the handing out of tasks, and not the one group for which each lease pays.

log = logging.getLogger(__name__)

SOON_SECONDS: Final = 5
"""After so long a request is tried again that waits for the scoring of tasks."""
_USES_SECONDS: Final = 1.0
"""So long what a key has used is not added up again for the warnings in replies."""


@dataclass
class JudgingHold:
    """What is reserved for work beside the groups. It ends with its block, and with `work`: whoever asked for that may
    leave before."""

    work: asyncio.Future[Any] | None = None


@dataclass(frozen=True)
class ScoringAdmission:
    """Why groups are refused, and what was reserved for the others, by name; and the warnings of quotas that come to
    their end."""

    refused: Mapping[str, QuotaExceeded] = field(default_factory=dict)
    reserved: Mapping[str, Reserved] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


class QuotaService:
    """Counts and limits what the key of the current task uses. Without a key, or without quotas, it does nothing."""

    def __init__(
        self, store: QuotaStore, catalogue: Catalogue, panels: Panels, runs: RunRegistry, clock: Clock
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._panels = panels
        self._runs = runs
        self._clock = clock
        self._told: dict[str, tuple[datetime, KeyQuotas, tuple[str, ...]]] = {}
        """Warnings of keys, when they were read, and of which quotas."""
        self._warned: dict[tuple[str, str, bool], datetime] = {}
        self._giving_back: set[asyncio.Future[None]] = set()

    @property
    def limits(self) -> KeyQuotas | None:
        """Those of the current key; None where nothing is limited."""
        caller = current_caller.get()
        return None if caller is None or caller.quotas.is_open else caller.quotas

    async def hand_out(
        self,
        request: NextBatch | NextMixedBatch,
        counts: Mapping[str, int],
        make: Callable[[], Awaitable[DealtBatch]],
    ) -> DealtBatch:
        """The batch that `make` makes, with warnings of the key's quotas. `counts` are its tasks by environment.
        QuotaExceeded before anything is made."""
        caller = current_caller.get()
        if caller is None or caller.quotas.is_open:
            return await make()
        grant = await self._store.reserve(await self._build_hand_out(caller, request, counts))
        if grant.exceeded is not None:
            raise self._refuse(caller, grant.exceeded)
        try:
            batch = await make()
        except BaseException:
            with suppress(StoreUnavailable):
                await self._store.confirm(caller.name, grant.hold, {})
            raise
        if grant.hold:
            await self._store.confirm(caller.name, grant.hold, _list_leases(batch, grant))
        return replace(batch, warnings=self._warn(caller, grant.uses))

    async def require_request(self) -> None:
        """QuotaExceeded when the quotas are caps and no request is left: before anything is made for a request, which
        is counted with what it asks for."""
        caller = current_caller.get()
        if caller is None or not caller.quotas.hard or caller.quotas.requests_per_day is None:
            return
        usage = await self._store.load_usage(caller.name)
        if (exceeded := usage.find_exceeded(caller.quotas, Demand())) is not None:
            raise self._refuse(caller, exceeded)

    async def admit_scoring(self, demands: Sequence[JudgingDemand]) -> ScoringAdmission:
        """Which of the groups that judges score may not be judged. QuotaExceeded when the quotas are caps, and no
        request is left."""
        caller = current_caller.get()
        if caller is None or caller.quotas.is_open:
            return ScoringAdmission()
        grant = await self._admit(caller, _build_request(caller, demands))
        if grant.request is not None:
            raise self._refuse(caller, grant.request)
        try:
            warnings = await self.warn()
        except BaseException:
            await self.give_back(grant.reserved.values())
            raise
        refused = {name: self._refuse(caller, use) for name, use in grant.refused.items()}
        return ScoringAdmission(refused, grant.reserved, warnings)

    async def _admit(self, caller: Caller, asked: JudgingRequest) -> JudgingGrant:
        """Whoever is cancelled meanwhile keeps nothing: the store may have admitted it."""
        admitting = asyncio.ensure_future(self._store.admit_judging(asked))
        try:
            return await asyncio.shield(admitting)
        except asyncio.CancelledError:
            admitting.add_done_callback(lambda done: self._undo(caller, done))
            raise

    def _undo(self, caller: Caller, admitted: asyncio.Future[JudgingGrant]) -> None:
        if not admitted.cancelled() and admitted.exception() is None:
            self._start_giving_back(caller, admitted.result().reserved.values())

    def build_request(self, demands: Sequence[JudgingDemand], *, counted: bool = True) -> JudgingRequest | None:
        """What `PendingGroupStore.assign_slot` admits; None where nothing is limited."""
        caller = current_caller.get()
        if caller is None or caller.quotas.is_open:
            return None
        return replace(_build_request(caller, demands), counted=counted)

    def refuse(self, use: QuotaUse) -> QuotaExceeded:
        caller = current_caller.get()
        if caller is None:
            raise RuntimeError("only keys have quotas")
        return self._refuse(caller, use)

    async def warn(self) -> tuple[str, ...]:
        """The warnings of the key's quotas, as they were within the last second."""
        caller = current_caller.get()
        if caller is None or caller.quotas.is_open:
            return ()
        at, quotas, warnings = self._told.get(caller.name, (None, None, ()))
        if at is None or abs(self._clock() - at) >= timedelta(seconds=_USES_SECONDS) or quotas != caller.quotas:
            usage = await self._store.load_usage(caller.name)
            warnings = self._warn(caller, usage.list_uses(caller.quotas))
            self._told[caller.name] = self._clock(), caller.quotas, warnings
        return warnings

    @asynccontextmanager
    async def hold_judging(self, bound: Amount | None) -> AsyncIterator[JudgingHold]:
        """For work that nobody was promised: counts its request, and reserves what judges take for it at most; None
        where none is asked. QuotaExceeded where there is no room."""
        caller, hold = current_caller.get(), JudgingHold()
        if caller is None or caller.quotas.is_open:
            yield hold
            return
        wanted = caller.quotas.widen(bound or NO_AMOUNT)
        demand = JudgingDemand(f"work_{secrets.token_hex(16)}", "", wanted, needs_room=True)
        demands = (demand,) if bound is not None and caller.quotas.limits_judging else ()
        grant = await self._admit(caller, JudgingRequest(caller.name, caller.quotas, demands))
        if grant.exceeded is not None:
            raise self._refuse(caller, grant.exceeded)
        reserved = tuple(grant.reserved.values())
        try:
            yield hold
        finally:
            if hold.work is None or hold.work.done():
                await self.give_back(reserved)
            else:
                hold.work.add_done_callback(lambda _: self._start_giving_back(caller, reserved))

    async def count_request(self) -> None:
        """QuotaExceeded when no request is left: for one that asks no judge."""
        async with self.hold_judging(None):
            pass

    async def give_back(self, reserved: Collection[Reserved]) -> None:
        """What was reserved is free again, also where whoever waits for it is cancelled."""
        caller = current_caller.get()
        if caller is not None and reserved:
            await asyncio.shield(self._start_giving_back(caller, reserved))

    def _start_giving_back(self, caller: Caller, reserved: Collection[Reserved]) -> asyncio.Future[None]:
        giving = asyncio.ensure_future(self._give_back(caller, reserved))
        self._giving_back.add(giving)  # the event loop alone would not keep it from being collected
        giving.add_done_callback(self._giving_back.discard)
        return giving

    async def _give_back(self, caller: Caller, reserved: Collection[Reserved]) -> None:
        if reserved:
            with suppress(StoreUnavailable):  # it then ends with its time
                await self._store.give_back(caller.name, tuple(reserved))

    async def close(self) -> None:
        """Waits for what is being given back."""
        await asyncio.gather(*self._giving_back)

    def bound_unknown(self, environment: str, options: ScoringOptions, texts: Sequence[str] = ()) -> Amount | None:
        """What judging a group takes at most of which no more than these texts is known; None without judges.
        InvalidRequest naming `options.judges` when a judge is not configured."""
        if self._catalogue.get_environment_or_current(environment).environment.rubric is None:
            return None
        self._panels.build_panel(environment, options)  # which refuses judges that are none
        chosen = self._panels.resolve_options(environment, options)
        return bound_unknown_group(chosen, self._panels, texts=texts).amount

    async def load_usage(self, caller: Caller) -> KeyUsage:
        return await self._store.load_usage(caller.name)

    async def _build_hand_out(
        self, caller: Caller, request: NextBatch | NextMixedBatch, counts: Mapping[str, int]
    ) -> HandOut:
        options = await self._runs.find_options(request.run)
        parts = []
        for name, count in counts.items():
            bound = self.bound_unknown(name, options)
            parts.append(HandOutPart(name, count, None if bound is None else caller.quotas.widen(bound)))
        is_leased = request.run is not None and request.cursor is None
        return HandOut(caller.name, caller.quotas, request.run, is_leased, tuple(parts))

    def _refuse(self, caller: Caller, use: QuotaUse) -> QuotaExceeded:
        seconds = max(1, ceil((use.until - self._clock()).total_seconds()))
        return QuotaExceeded(
            f"the key {caller.name!r} has no room in a quota: {use.describe()}",
            retry_after=min(seconds, SOON_SECONDS) if use.frees_itself else seconds,
        )

    def _warn(self, caller: Caller, uses: tuple[QuotaUse, ...]) -> tuple[str, ...]:
        """Each is logged once in its time, and once more when it is passed."""
        close = [use for use in uses if use.needs_warning]
        for use in close:
            passed = use.over > 0
            if self._warned.get((caller.name, use.quota, passed)) != use.until:
                self._warned[caller.name, use.quota, passed] = use.until
                what = "is over its quota" if passed else "comes to the end of its quota"
                log.warning("the key %s %s: %s", caller.name, what, use.describe())
        return tuple(use.describe() for use in close)


def _build_request(caller: Caller, demands: Sequence[JudgingDemand]) -> JudgingRequest:
    limited = tuple(demands) if caller.quotas.limits_judging else ()
    return JudgingRequest(caller.name, caller.quotas, limited, needs_request=caller.quotas.hard)


def share_batch(request: NextMixedBatch) -> dict[str, int]:
    """Tasks by environment, as many as their weights let one expect, rounded up."""
    total = sum(member.weight for member in request.mix)
    counts: Counter[str] = Counter()
    for member in request.mix:
        counts[member.env] += ceil(request.batch_size * member.weight / total)
    return dict(counts)


def _list_leases(batch: DealtBatch, grant: HandOutGrant) -> dict[str, Amount]:
    return {
        lease.lease_id: grant.expected.get(made.record.key.environment, NO_AMOUNT)
        for made, lease in batch.tasks
        if lease is not None
    }
