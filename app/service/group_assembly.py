"""Groups that come in pieces: each piece takes its place, and waits until the whole is scored."""

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from app.domain.errors import GatewayError, InvalidRequest, StoreUnavailable
from app.domain.groups import Group
from app.domain.parts import GroupPart, GroupSlot, Member, Mismatch, PartRules, PendingGroup, SampleName
from app.domain.tasks import Completion
from app.ports.runtime import Observer
from app.ports.store import GroupStore, GroupToStore, PendingGroupStore
from app.service.group_scoring import STORE_RETRY_SECONDS, GroupScoring, ScoredAhead, build_reply
from app.service.request_models import GroupProblem, GroupReply
from app.service.sample_holders import SampleHolders, build_sample_key
from app.service.score_validation import AcceptedGroup
from app.service.task_cache import TaskCache

log = logging.getLogger(__name__)

POLL_SECONDS: Final = 0.2
"""How often it is looked whether another replica has closed or scored what somebody here waits for."""
IDLE_SECONDS: Final = 1.0
"""The same while nobody waits: what is over its deadline is closed then."""
HEARTBEAT_SECONDS: Final = 5.0
"""How often this process says what it still holds and scores."""
DUE_BATCH_SIZE: Final = 64

T = TypeVar("T")


@dataclass
class _GroupWatch:
    told: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: int = 0


class GroupAssembler:
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
        self._watched: dict[str, _GroupWatch] = {}
        self._woken = asyncio.Event()
        self._holders = SampleHolders()
        self._started: set[str] = set()
        self._behind: set[asyncio.Future[Any]] = set()
        self._closing = False

    async def add_piece(
        self, piece: AcceptedGroup, part: GroupPart, wait_seconds: float | None
    ) -> GroupReply | GroupProblem:
        """What there is to say of a piece when its group is scored, or when the wait is over."""
        due = _compute_due_time(wait_seconds)
        slot = await self._run_to_end(self._arrive(piece, part))
        if isinstance(slot, Mismatch):
            return GroupProblem(
                task_id=piece.group.task_id, code=InvalidRequest.code, detail=slot.detail, field=slot.field
            )
        return build_piece_reply(await self.wait_for_scores(slot, due), slot)

    async def assign_slot(
        self, pending: PendingGroup, completion: Completion, seconds: float, name: SampleName, ahead: ScoredAhead | None
    ) -> GroupSlot:
        """A place for a completion that came by itself, held until it is released. `seconds` are those that others are
        waited for. Whoever is cancelled meanwhile has left."""
        sample = build_sample_key(pending, completion)
        await self._holders.admit(sample)
        taking = asyncio.ensure_future(self._take(pending, completion, seconds, name, ahead))
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            self._holders.note_leaving(sample, self._run_in_background(self._leave(taking)))
            raise

    async def release_slot(self, slot: GroupSlot, *, answered: bool) -> None:
        """Also when whoever releases it is cancelled, and when the store is away for a moment."""
        if (sample := self._holders.release(slot)) is not None:
            settling = self._run_in_background(self._settle(slot, answered))
            if not answered:
                self._holders.note_leaving(sample, settling)
            await asyncio.shield(settling)

    async def wait_for_scores(self, slot: GroupSlot, due: float | None) -> Group:
        """The group of a slot with its scores, or as it stands when the loop's time is `due`."""
        begun = next((group for group in slot.begun if group.group_id == slot.group_id), None)
        if begun is not None and begun.outcome != "pending":
            return begun
        if not slot.open and begun is None:
            known = await self._retry_unscored(slot.group_id)
            if known.outcome != "pending":
                return known
        while (left := _compute_time_left(due)) is None or left > 0:
            flights = self._scoring.find_running([slot.group_id])
            if flights:
                done, _ = await asyncio.wait(set(flights.values()), timeout=left)
                group = next(iter(done)).result()[slot.group_id] if done else None
            else:
                await self._watch(slot.group_id, left)
                if self._scoring.find_running([slot.group_id]):
                    continue
                group = (await self._groups.find([slot.group_id])).get(slot.group_id)
            if group is not None and group.outcome != "pending":
                return group
        return (await self.find_groups([slot.group_id]))[slot.group_id]

    async def find_groups(self, group_ids: Collection[str]) -> dict[str, Group]:
        """Groups by id as they are stored, or as far as they have come."""
        found = await self._groups.find(list(group_ids))
        missing = [one for one in group_ids if one not in found]
        if missing:
            await self._close_due([])
            found |= await self._parts.load_open_groups(missing)
            found |= await self._groups.find([one for one in missing if one not in found])
        return found

    async def open(self) -> None:
        """Before anybody asks for anything: whoever held a place in an earlier life of this service has left."""
        await self._parts.forget_holders()

    async def run(self) -> None:
        """Closes what is over its deadline and takes up what nobody scores, for as long as the service runs."""
        loop = asyncio.get_running_loop()
        alive = loop.time()
        while True:
            try:
                await self._close_due(list(self._watched))
                if loop.time() >= alive:
                    alive = loop.time() + HEARTBEAT_SECONDS
                    if self._holders.slots or self._started:
                        await self._parts.renew_holds(list(self._holders.slots), list(self._started))
            except GatewayError as error:
                log.warning("groups that come in pieces wait for the store: %s", error.detail)
            except Exception:
                log.exception("looking after groups that come in pieces failed")
            self._woken.clear()
            await _wait_for(self._woken.wait(), POLL_SECONDS if self._watched else IDLE_SECONDS)
            if self._watched:
                await asyncio.sleep(POLL_SECONDS / 4)

    async def close(self) -> None:
        """Waits for what is being written behind."""
        self._closing = True
        await asyncio.gather(*self._behind, return_exceptions=True)

    async def hand_over(self, group_ids: Collection[str]) -> None:
        """To other replicas, at a stop."""
        try:
            await self._parts.hand_over(group_ids)
        except GatewayError as error:
            log.warning("%d groups wait until their scorer is missed: %s", len(group_ids), error.detail)

    async def _arrive(self, piece: AcceptedGroup, part: GroupPart) -> GroupSlot | Mismatch:
        group = piece.group
        pending = build_pending_group(group, scope=group.group_id, key=part.key, size=part.size)
        members = [
            Member(place=place, completion=completion) for place, completion in enumerate(piece.completions, part.index)
        ]
        seconds = self._rules.deadline_seconds
        slot = await self._task_cache.write_with_tasks(
            [group.task_id], lambda: self._parts.add_members(pending, group.group_id, members, seconds)
        )
        if isinstance(slot, GroupSlot):
            await self._begin(slot.begun)
        return slot

    async def mask(self, slot: GroupSlot) -> Group:
        """The group of a slot, which stays as it is from now on if it is unscored."""
        return await self._groups.mask(slot.group_id)

    async def _take(
        self, pending: PendingGroup, completion: Completion, seconds: float, name: SampleName, ahead: ScoredAhead | None
    ) -> GroupSlot:
        sample = build_sample_key(pending, completion)
        scored = None if ahead is None else ahead.judged.group
        try:
            slot = await self._task_cache.write_with_tasks(
                [pending.task_id],
                lambda: self._parts.assign_slot(pending, completion, seconds, self._rules.windows, name, scored),
            )
        except BaseException:
            self._holders.dismiss(sample)
            raise
        self._holders.hold(slot, sample)
        if ahead is not None and slot.group_id == ahead.judged.group.group_id:  # it is new
            self._scoring.record_ahead(ahead)
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
        """Scores what was just closed, and tells whoever waits for it here."""
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
            self._started.add(name)
            flight.add_done_callback(partial(self._forget_scoring, name))
        self._tell(names)

    def _forget_scoring(self, name: str, _: object) -> None:
        self._started.discard(name)

    async def _retry_unscored(self, group_id: str) -> Group:
        """A closed group as it is stored. What could not be scored is tried again when it is asked for again."""
        group = (await self._groups.find([group_id]))[group_id]
        if group.outcome == "unscored" and not group.is_final and not self._scoring.find_running([group_id]):
            (group,) = await self._groups.finish([GroupToStore(group.mark_pending())])
            if group.outcome == "pending":
                await self._start_scoring([group])
        return group

    async def _close_due(self, watched: Sequence[str]) -> None:
        look = await self._parts.get_status(watched)
        self._tell(look.ended)
        while look.due and (due := await self._parts.claim_due(DUE_BATCH_SIZE)):
            await self._begin(due)

    async def _watch(self, group_id: str, seconds: float | None) -> None:
        """Until somebody tells of the group, or the time is over."""
        watched = self._watched.setdefault(group_id, _GroupWatch())
        watched.waiting += 1
        self._woken.set()
        try:
            await _wait_for(watched.told.wait(), seconds)
        finally:
            watched.waiting -= 1
            if not watched.waiting and self._watched.get(group_id) is watched:
                del self._watched[group_id]

    def _tell(self, group_ids: Collection[str]) -> None:
        for group_id in group_ids:
            if (watched := self._watched.pop(group_id, None)) is not None:
                watched.told.set()

    async def _run_to_end(self, work: Coroutine[Any, Any, T]) -> T:
        """To its end, also when whoever waits for it has left."""
        return await asyncio.shield(self._run_in_background(work))

    def _run_in_background(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        task = asyncio.ensure_future(work)
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)
        return task


def build_piece_reply(group: Group, slot: GroupSlot) -> GroupReply:
    """The group's reply, with the rewards of these places alone."""
    whole = build_reply(group)
    mine = find_positions(group, slot)
    return whole.model_copy(
        update={
            name: tuple(getattr(whole, name)[place] for place in mine) for name in ("rewards", "scores", "advantages")
        }
    )


def find_positions(group: Group, slot: GroupSlot) -> list[int]:
    """Where the completions of these places are in the group."""
    at = {rollout.place: position for position, rollout in enumerate(group.rollouts)}
    return [at[place] for place in slot.places]


def build_pending_group(group: Group, *, scope: str, key: str, size: int) -> PendingGroup:
    """What the completions of `group` share with others that belong to them."""
    return PendingGroup(
        scope=scope,
        task_id=group.task_id,
        environment=group.environment,
        run=group.run,
        lease_id=group.lease_id,
        policy=group.policy,
        purpose=group.purpose,
        key=key,
        size=size,
        hand_out_step=group.hand_out_step,
        sender=group.sender,
    )


def _compute_due_time(seconds: float | None) -> float | None:
    return None if seconds is None else asyncio.get_running_loop().time() + seconds


def _compute_time_left(due: float | None) -> float | None:
    return None if due is None else due - asyncio.get_running_loop().time()


async def _wait_for(work: Coroutine[Any, Any, object], seconds: float | None) -> None:
    """Until the work is done or the time is over."""
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        return
