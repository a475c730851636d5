"""Groups that come in pieces, and single samples of trainers that know no groups.

`GroupAssembler` puts groups together: all completions arrive in one way, wait in one, and get one form of reply.
`SampleService` answers trainers that send one completion a request.

A group in pieces is closed in the transaction that brings its last completion, or that finds its time over, and is
stored there as pending. From then on it is an ordinary group: whoever closed it scores it, another replica takes it up
when that one is not heard of any more (`GroupAssembler.run`), and every piece waits until the whole is scored.

A piece names its position, so that a repeat is recognised. A sample names none, and siblings may say the same; a repeat
is told from a sibling by who has left without an answer (docs/decisions.md#0021). A sample is held from its arrival
until it is answered or its client hangs up. One that says the same as a member whose client has left takes over its
place.
"""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Collection, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from app.domain.errors import GatewayError, InvalidRequest, StoreUnavailable
from app.domain.groups import Group
from app.domain.parts import MAX_GROUP_SIZE, MAX_KEY_LENGTH, Arrival, GroupPart, GroupSlot, PartRules
from app.domain.runs import Policy, Purpose
from app.domain.tasks import Completion
from app.domain.values import is_encodable
from app.ports.environment import Observer
from app.ports.tracing import note_work
from app.service.access import QuotaService
from app.service.requests import GroupReply, GroupToScore, ScoreRequest, compute_scope
from app.service.runs import RunRegistry
from app.service.scoring import (
    POLL_SECONDS,
    STORE_RETRY_SECONDS,
    AcceptedGroup,
    GroupScoring,
    ScoreValidator,
    build_reply,
)
from app.service.task_cache import TaskCache
from app.store.budgets import JudgingDemand, JudgingRequest, NoRoom
from app.store.group_rows import GroupToStore
from app.store.groups import GroupStore
from app.store.pending_groups import PendingGroupStore

# Samples that are held here

DISCONNECT_TURNS: Final = 16
"""Turns of the event loop within which a disconnect that has arrived is acted on. It takes four from the end of an HTTP
connection to the release of its sample."""

SampleKey = tuple[str, str]
"""Equal for a sample that is sent again, and for siblings that say the same."""


def _build_sample_key(sample: Arrival) -> SampleKey:
    return sample.scope, sample.completions[0].answer


class SampleHolders:
    """Which samples of this process hold a place in a group, are about to get one, or have just left theirs."""

    def __init__(self) -> None:
        self._slots: dict[GroupSlot, SampleKey] = {}
        self._present: Counter[SampleKey] = Counter()
        """How many came and have not been released."""
        self._leaving: dict[SampleKey, set[asyncio.Future[Any]]] = {}
        """Writes to the store, under way, that one has left."""

    @property
    def slots(self) -> Collection[GroupSlot]:
        return self._slots.keys()

    async def admit(self, sample: SampleKey) -> None:
        """Returns when those who said the same and have left before are written down as gone, so that this one takes
        over their place. A client that asks again as soon as it hangs up is read in the same turn of a busy event loop
        as its own disconnect, which takes more turns to be acted on."""
        others = self._present[sample]
        self._present[sample] += 1
        try:
            for _ in range(DISCONNECT_TURNS if others else 0):
                await asyncio.sleep(0)
            if leaving := self._leaving.get(sample):
                await asyncio.wait(leaving)
        except BaseException:
            self.dismiss(sample)
            raise

    def dismiss(self, sample: SampleKey) -> None:
        self._present[sample] -= 1
        if not self._present[sample]:
            del self._present[sample]

    def hold(self, slot: GroupSlot, sample: SampleKey) -> None:
        self._slots[slot] = sample

    def release(self, slot: GroupSlot) -> SampleKey | None:
        """The sample that held it, if one did."""
        sample = self._slots.pop(slot, None)
        if sample is not None:
            self.dismiss(sample)
        return sample

    def note_leaving(self, sample: SampleKey, writing: "asyncio.Future[Any]") -> None:
        self._leaving.setdefault(sample, set()).add(writing)
        writing.add_done_callback(lambda _: self._forget_leaving(sample, writing))

    def _forget_leaving(self, sample: SampleKey, writing: "asyncio.Future[Any]") -> None:
        writes = self._leaving[sample]
        writes.discard(writing)
        if not writes:
            del self._leaving[sample]


# Groups in pieces

log = logging.getLogger(__name__)

_IDLE_SECONDS: Final = 1.0
"""Interval of the looks while nobody waits: groups past their deadline are closed then too."""
_HEARTBEAT_SECONDS: Final = 5.0
"""How often this process says what it still holds and scores. One that is not heard of for three of these is gone."""
_DUE_BATCH_SIZE: Final = 64

WorkT = TypeVar("WorkT")


@dataclass
class _GroupWatch:
    """Those who wait for one group."""

    ended: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0


class GroupAssembler:
    """Puts groups together from pieces and samples, and sees that each is scored."""

    def __init__(
        self,
        *,
        parts: PendingGroupStore,
        groups: GroupStore,
        scoring: GroupScoring,
        task_cache: TaskCache,
        observer: Observer,
        rules: PartRules,
    ) -> None:
        self._parts = parts
        self._groups = groups
        self._scoring = scoring
        self._task_cache = task_cache
        self._observer = observer
        self._rules = rules
        self._watches: dict[str, _GroupWatch] = {}
        self._wake = asyncio.Event()
        """Set when somebody begins to wait, so that `run` looks soon."""
        self._holders = SampleHolders()
        self._scoring_here: set[str] = set()
        """Ids of closed groups for which this process sends heartbeats."""
        self._background: set[asyncio.Future[Any]] = set()
        self._closing = False

    async def score_piece(self, piece: AcceptedGroup, part: GroupPart, wait_seconds: float | None) -> GroupReply:
        """The reply to a piece when its group is scored, or when the wait is over. InvalidRequest where it does not fit
        the group that it names."""
        due = None if wait_seconds is None else asyncio.get_running_loop().time() + wait_seconds
        arrival = Arrival(
            piece.group,
            piece.completions,
            scope=piece.group.group_id,
            key=part.key,
            size=part.size,
            seconds=part.deadline_seconds or self._rules.deadline_seconds,
            place=part.index,
            closes=part.closes,
        )
        slot = await self.assign_slot(arrival)
        return build_slot_reply(await self.wait_for_scores(slot, due), slot)

    async def assign_slot(
        self, arrival: Arrival, judged: GroupToStore | None = None, asked: JudgingRequest | None = None
    ) -> GroupSlot:
        """Places for completions. The place of a sample is held until it is released, and whoever is cancelled
        meanwhile has left. `judged` is the scored group of a sample that is judged alone, and `asked` what a sample
        demands of quotas: NoRoom where they have none."""
        if arrival.names_group:  # a repeat is known by its places, whoever has left
            return await asyncio.shield(self._run_in_background(self._take(arrival, None, None)))
        sample = _build_sample_key(arrival)
        await self._holders.admit(sample)
        # Shielded: the store may have given the place when the client hangs up, and then it must be released.
        taking = asyncio.ensure_future(self._take(arrival, judged, asked))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._holders.note_leaving(sample, self._run_in_background(self._leave(taking)))
            raise

    async def release_slot(self, slot: GroupSlot, *, answered: bool) -> None:
        """Ends a hold, also when the caller is cancelled, and when the store is away for a moment."""
        if (sample := self._holders.release(slot)) is not None:
            settling = self._run_in_background(self._settle(slot, answered))
            if not answered:
                self._holders.note_leaving(sample, settling)
            await asyncio.shield(settling)

    async def wait_for_scores(self, slot: GroupSlot, due: float | None) -> Group:
        """The group of a slot with its scores, or as it stands when the loop's time is `due`."""
        # A group of one may have been stored with its score.
        begun = next((group for group in slot.begun if group.group_id == slot.group_id), None)
        if begun is not None and begun.outcome != "pending":
            return begun
        if not slot.open and begun is None:
            closed = await self._retry_unscored(slot.group_id)
            if closed.outcome != "pending":
                return closed
        while (left := _compute_time_left(due)) is None or left > 0:
            flights = self._scoring.find_running([slot.group_id])
            if flights:
                done, _ = await asyncio.wait(set(flights.values()), timeout=left)
                group = next(iter(done)).result()[slot.group_id] if done else None
            else:
                await self._watch(slot.group_id, left)
                if self._scoring.find_running([slot.group_id]):  # its result needs no read
                    continue
                group = (await self._groups.find([slot.group_id])).get(slot.group_id)
            if group is not None and group.outcome != "pending":
                return group
        return (await self.find_groups([slot.group_id]))[slot.group_id]

    async def find_groups(self, group_ids: Collection[str]) -> dict[str, Group]:
        """Groups by id as they are stored, or as far as they have come."""
        groups = await self._groups.find(list(group_ids))
        missing = [name for name in group_ids if name not in groups]
        if missing:
            await self._close_due([])
            groups |= await self._parts.load_open_groups(missing)
            # Again, for those that were closed between the two reads.
            groups |= await self._groups.find([name for name in missing if name not in groups])
        return groups

    async def open(self) -> None:
        """Call it before any request: whoever held a place in an earlier life of this service has left."""
        await self._parts.forget_holders()

    async def run(self) -> None:
        """Closes what is over its deadline and takes up what nobody scores, for as long as the service runs."""
        loop = asyncio.get_running_loop()
        alive = loop.time()
        while True:
            try:
                await self._close_due(list(self._watches))
                if loop.time() >= alive:
                    alive = loop.time() + _HEARTBEAT_SECONDS
                    if self._holders.slots or self._scoring_here:
                        await self._parts.renew_holds(list(self._holders.slots), list(self._scoring_here))
            except GatewayError as error:
                log.warning("groups that come in pieces wait for the store: %s", error.detail)
            except Exception:
                log.exception("looking after groups that come in pieces failed")
            self._wake.clear()
            await _wait_for(self._wake.wait(), POLL_SECONDS if self._watches else _IDLE_SECONDS)
            if self._watches:  # those who begin to wait together are looked up together
                await asyncio.sleep(POLL_SECONDS / 4)

    async def close(self) -> None:
        """Waits for what is being written in the background."""
        self._closing = True
        await asyncio.gather(*self._background, return_exceptions=True)

    async def hand_over(self, group_ids: Collection[str]) -> None:
        """Leaves these groups to other replicas, at a stop."""
        try:
            await self._parts.hand_over(group_ids)
        except GatewayError as error:
            log.warning("%d groups wait until their scorer is missed: %s", len(group_ids), error.detail)

    async def mask(self, slot: GroupSlot) -> Group:
        """The group of a slot, which stays as it is from now on if it is unscored."""
        return await self._groups.mask(slot.group_id)

    async def _take(self, arrival: Arrival, judged: GroupToStore | None, asked: JudgingRequest | None) -> GroupSlot:
        try:
            slot = await self._task_cache.write_with_tasks(
                [arrival.group.task_id], lambda: self._parts.assign_slot(arrival, self._rules.windows, asked)
            )
        except BaseException as error:
            if not arrival.names_group:
                self._holders.dismiss(_build_sample_key(arrival))
            if isinstance(error, NoRoom):
                await self._begin(error.begun)
            raise
        if slot.holder:
            self._holders.hold(slot, _build_sample_key(arrival))
        if judged is not None and slot.group_id == judged.group.group_id:  # no repeat, which has another id
            self._scoring.record([judged])
        await self._begin(slot.begun)
        return slot

    async def _leave(self, taking: "asyncio.Future[GroupSlot]") -> None:
        slot = await taking
        await self.release_slot(slot, answered=False)

    async def _settle(self, slot: GroupSlot, answered: bool) -> None:
        for pause in (*STORE_RETRY_SECONDS, None):
            try:
                return await self._parts.release_slot(slot, answered=answered)
            except StoreUnavailable:
                if pause is None or self._closing:
                    return log.error("who held a place has left, and that could not be written: %s", slot.group_id)
                await asyncio.sleep(pause)

    async def _begin(self, groups: Sequence[Group]) -> None:
        """Scores what was just closed, and wakes those who wait for it here."""
        for group in groups:
            self._observer.record_closed_group(group.environment, group.flags)
        if pending := [group for group in groups if group.outcome == "pending"]:
            await self._start_scoring(pending)

    async def _start_scoring(self, groups: Sequence[Group]) -> None:
        names = [group.group_id for group in groups]
        try:
            await self._scoring.start(groups)
        except Exception:
            return log.exception("closed groups wait until they are taken up again: %s", ", ".join(names))
        for name, flight in self._scoring.find_running(names).items():
            self._scoring_here.add(name)
            flight.add_done_callback(partial(self._forget_scoring, name))
        self._wake_waiters(names)

    def _forget_scoring(self, name: str, _: object) -> None:
        self._scoring_here.discard(name)

    async def _retry_unscored(self, group_id: str) -> Group:
        """A closed group as it is stored. What could not be scored is tried again when it is asked for again."""
        group = (await self._groups.find([group_id]))[group_id]
        if group.outcome == "unscored" and not group.is_final and not self._scoring.find_running([group_id]):
            (group,) = await self._groups.finish([GroupToStore(group.mark_pending())])
            if group.outcome == "pending":
                await self._start_scoring([group])
        return group

    async def _close_due(self, watched: Sequence[str]) -> None:
        status = await self._parts.get_status(watched)
        self._wake_waiters(status.ended)
        while status.due and (due := await self._parts.claim_due(_DUE_BATCH_SIZE)):
            await self._begin(due)

    async def _watch(self, group_id: str, seconds: float | None) -> None:
        """Waits until the group is scored somewhere, or is being scored here, or the time is over."""
        watch = self._watches.setdefault(group_id, _GroupWatch())
        watch.waiting += 1
        self._wake.set()
        try:
            await _wait_for(watch.ended.wait(), seconds)
        finally:
            watch.waiting -= 1
            # Another watch may stand there: one that was woken is taken out at once.
            if not watch.waiting and self._watches.get(group_id) is watch:
                del self._watches[group_id]

    def _wake_waiters(self, group_ids: Collection[str]) -> None:
        for group_id in group_ids:
            if (watch := self._watches.pop(group_id, None)) is not None:
                watch.ended.set()

    def _run_in_background(self, work: Coroutine[Any, Any, WorkT]) -> "asyncio.Future[WorkT]":
        """Work that is carried through, also when whoever waits for it has left."""
        task = asyncio.ensure_future(work)
        self._background.add(task)  # the event loop alone would not keep it from being collected
        task.add_done_callback(self._background.discard)
        return task


def build_slot_reply(group: Group, slot: GroupSlot) -> GroupReply:
    """The group's reply, with the rewards of these places alone."""
    whole = build_reply(group)
    positions = _find_positions(group, slot)
    return whole.model_copy(
        update={
            name: tuple([getattr(whole, name)[position] for position in positions])
            for name in ("rewards", "scores", "advantages")
        }
    )


def _find_positions(group: Group, slot: GroupSlot) -> list[int]:
    """Where the completions of these places are in the group. A group that was closed incomplete has gaps."""
    positions = {rollout.place: position for position, rollout in enumerate(group.rollouts)}
    return [positions[place] for place in slot.places]


def _compute_time_left(due: float | None) -> float | None:
    return None if due is None else due - asyncio.get_running_loop().time()


async def _wait_for(work: Coroutine[Any, Any, object], seconds: float | None) -> None:
    """Waits until the work is done or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return


# Single samples

_PASSING_REASONS: Final = frozenset({"judge_failed", "environment_unavailable"})
"""Reasons that may be gone within the time that a request waits."""
_FIRST_RETRY_SECONDS: Final = 1.0
"""Each pause is twice the one before, so that a judge is paid for few answers."""


@dataclass(frozen=True)
class SampleToScore:
    """One completion, and which others it belongs to."""

    environment: str
    task_id: str
    completion: Completion
    label: str = "task_id"
    """The field of the trainer's request that names the task, for what is wrong with it."""
    run: str | None = None
    key: str = ""
    """What the trainer names its group; empty where it names none."""
    size: int = 1
    """Number of completions that belong together; 1: judged alone, at once."""
    policy: Policy | None = None
    purpose: Purpose = "train"
    needs_reward: bool = False
    """The trainer takes a number and nothing else."""
    masks_group: bool = False
    """Without a reward for one member there is none for any: all are told so, and the group is never scored again."""
    place: int | None = None
    """As in `Arrival`."""
    fingerprint: str = ""
    """As in `Arrival`."""

    def build_arrival(self, group: Group, seconds: float, judged: GroupToStore | None) -> Arrival:
        return Arrival(
            group,
            (self.completion,),
            scope=compute_scope(group, self.key, self.size),
            key=self.key,
            size=self.size,
            seconds=seconds,
            place=self.place,
            fingerprint=self.fingerprint,
            scored=None if judged is None else judged.group,
        )


class SampleService:
    """Scores samples that come one by one: they are gathered to groups, and judged together."""

    def __init__(
        self,
        validator: ScoreValidator,
        assembler: GroupAssembler,
        scoring: GroupScoring,
        runs: RunRegistry,
        quotas: QuotaService,
    ) -> None:
        self._quotas = quotas
        self._scoring = scoring
        self._runs = runs
        self._validator = validator
        self._assembler = assembler

    @asynccontextmanager
    async def score_sample(
        self, sample: SampleToScore, *, gather_seconds: float, wait_seconds: float
    ) -> AsyncIterator[GroupReply]:
        """The reply to a sample, within `wait_seconds`; its siblings are waited for until `gather_seconds` after the
        first of them. The reply is sent inside the context: leaving it normally with a score means that the reply was
        sent, leaving it otherwise that the client will ask again. A judge that is away is asked again until then, since
        these trainers give up after a few tries. NotFound, Conflict or InvalidRequest before anything is stored."""
        due = asyncio.get_running_loop().time() + wait_seconds
        note_work(sample.environment, sample.run)
        accepted, demands = await self._validate_sample(sample)
        await self._quotas.warn()
        judged = await self._judge_alone(accepted) if sample.size == 1 else None
        arrival = sample.build_arrival(accepted.group, gather_seconds, judged)
        slot = await self._assign_slot(arrival, judged, self._quotas.build_request(demands))
        answered = False
        try:
            group = await self._assembler.wait_for_scores(slot, due)
            pause = _FIRST_RETRY_SECONDS
            while _may_come_back(group, slot, sample) and asyncio.get_running_loop().time() + pause < due:
                await self._assembler.release_slot(slot, answered=False)
                await asyncio.sleep(pause)
                pause *= 2
                # A group that was scored before is stored by now.
                asked = self._quotas.build_request(demands, counted=False)
                slot = await self._assign_slot(replace(arrival, scored=None), None, asked)
                group = await self._assembler.wait_for_scores(slot, due)
            if sample.masks_group and group.outcome == "unscored":
                group = await self._assembler.mask(slot)
            reply = build_slot_reply(group, slot)
            if not _is_answered(reply, sample):  # released before it is sent, since its client may be back at once
                await self._assembler.release_slot(slot, answered=False)
            yield reply
            answered = True
        finally:  # does nothing to a slot that was released before
            await self._assembler.release_slot(slot, answered=answered)

    async def _assign_slot(
        self, arrival: Arrival, judged: GroupToStore | None, asked: JudgingRequest | None
    ) -> GroupSlot:
        try:
            return await self._assembler.assign_slot(arrival, judged, asked)
        except NoRoom as error:
            raise self._quotas.refuse(error.use) from error

    async def _judge_alone(self, accepted: AcceptedGroup) -> GroupToStore | None:
        """Scores a completion that is judged alone and at once before it is stored: its place and its scored group are
        then one transaction. None where something has to be awaited."""
        drawn = accepted.group.model_copy(update={"group_id": f"group_{secrets.token_hex(16)}"})
        return await self._scoring.score_unstored(replace(accepted, group=drawn))

    async def _validate_sample(self, sample: SampleToScore) -> tuple[AcceptedGroup, tuple[JudgingDemand, ...]]:
        if not 1 <= sample.size <= MAX_GROUP_SIZE:
            raise InvalidRequest(f"a group has from 1 to {MAX_GROUP_SIZE} completions", field="size")
        if len(sample.key) > MAX_KEY_LENGTH or not is_encodable(sample.key):
            raise InvalidRequest(f"a key is a text of at most {MAX_KEY_LENGTH} characters", field="key")
        request = _build_request(sample)
        accepted, demands = await self._validator.validate_sample(request, sample.environment, sample.size)
        group = accepted.group
        if sample.needs_reward and group.run is not None and (await self._runs.ensure(group.run)).drops_stale:
            raise InvalidRequest(
                f"run {group.run!r} has `lag_policy: drop`, which leaves groups without a reward, and this trainer "
                "takes nothing but numbers; set `flag` or `pace`",
                field="run",
            )
        return accepted, demands


def _is_answered(reply: GroupReply, sample: SampleToScore) -> bool:
    return reply.is_masked or (reply.outcome if sample.masks_group else reply.score.outcome) == "scored"


def _may_come_back(group: Group, slot: GroupSlot, sample: SampleToScore) -> bool:
    if group.outcome == "scored" or group.is_masked:
        return False
    scores = group.scores
    if not sample.masks_group:
        scores = tuple(scores[position] for position in _find_positions(group, slot))
    return any(score.reason in _PASSING_REASONS for score in scores)


def _build_request(sample: SampleToScore) -> ScoreRequest:
    try:
        group = GroupToScore(task_id=sample.task_id, completions=(sample.completion,))
        return ScoreRequest(groups=(group,), run=sample.run, policy=sample.policy, purpose=sample.purpose)
    except ValidationError as error:
        field = str(error.errors()[0]["loc"][-1])
        raise InvalidRequest(f"this is no {field} of ours", field=field) from error
