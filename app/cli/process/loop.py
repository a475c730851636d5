"""The main loop: take tasks, sample, score, write, and journal each step."""

import asyncio
import time
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from app.cli.gateway_client import AnsweredTask, GatewayClient
from app.cli.process.atropos_groups import SampledCompletion, build_group_line
from app.cli.process.journal import Journal
from app.cli.process.ledger import WRITTEN, GroupSampled, TaskInHand, TaskSettled, TasksTaken, assign_keys
from app.cli.process.meter import ProcessMeter
from app.cli.process.outputs import GroupOutput
from app.cli.process.plan import ProcessPlan
from app.cli.process.sampling import Sampler
from app.cli.retry import Retrier
from app.cli.rollout import GATEWAY, TaskSkipped
from app.domain.errors import InvalidRequest
from app.service.request_models import GroupReply

LOOK_SECONDS: Final = 1.0
"""Seconds between requests for tasks when there were none."""
LEASES: Final = "leases to expire"
GRACE: Final = 5.0
ATTEMPTS: Final = 3
"""Scoring attempts per unscored group."""
MOST_IN_A_ROW: Final = 32
"""Consecutive groups left out after which the command is aborted."""


class ProcessRunner:
    def __init__(
        self,
        plan: ProcessPlan,
        gateway: GatewayClient,
        sampler: Sampler,
        output: GroupOutput,
        journal: Journal,
        patience: Retrier,
        meter: ProcessMeter,
        retry_seconds: float = 1.0,
    ) -> None:
        self._plan = plan
        self._gateway = gateway
        self._sampler = sampler
        self._output = output
        self._journal = journal
        self._patience = patience
        self._meter = meter
        self._retry_seconds = retry_seconds
        self._ready: deque[TaskInHand] = deque()
        self._running: dict[asyncio.Task[None], TaskInHand] = {}
        self._parked: dict[str, TaskInHand] = {}
        """By key: scored too late, so their tasks will be leased again."""
        self._stop = asyncio.Event()
        self._exhausted = False
        self._next_look = 0.0
        self._last_fresh = time.monotonic()
        self._in_a_row = 0
        self.last_left_out = ""

    @property
    def in_hand(self) -> int:
        return len(self._ready) + len(self._running)

    @property
    def limit_reached(self) -> bool:
        limit = self._plan.limit
        return limit is not None and self._journal.ledger.written_count >= limit

    def stop(self) -> None:
        """Takes no more tasks, and ends when the running ones are finished."""
        self._stop.set()

    async def run(self) -> None:
        """Returns when there is nothing left to do. RequestRefused when no task can be processed."""
        self._resume()
        try:
            while True:
                self._start()
                if self._count_room() and time.monotonic() >= self._next_look and await self._take_unless_stopped():
                    continue
                if not self._running and self._is_finished():
                    return
                await self._wait()
        finally:
            await self._cancel_running_tasks()

    def _resume(self) -> None:
        """Sampled items are scored and written again, which is safe. Items whose lease expired before sampling wait
        for a new lease."""
        for item in self._journal.ledger.open.values():
            expires = item.task.lease_expires_at
            if item.samples is None and expires is not None and expires.timestamp() < time.time():
                self._parked[item.key] = item
            else:
                self._ready.append(item)

    def _start(self) -> None:
        while self._ready and len(self._running) < self._plan.hands:
            item = self._ready.popleft()
            self._running[asyncio.create_task(self._process_item(item))] = item

    def _count_room(self) -> int:
        """Number of tasks that may be taken now."""
        if self._stop.is_set() or self._exhausted:
            return 0
        room = min(self._plan.batch_size, self._plan.hands - self.in_hand)
        if self._plan.limit is not None:
            room = min(room, self._plan.limit - self._journal.ledger.written_count - self.in_hand)
        return max(room, 0)

    async def _take_unless_stopped(self) -> bool:
        """Returns whether tasks were taken. On a stop, a pending request gets a few seconds to finish: tasks of an
        aborted request stay leased until the lease expires."""
        return bool(
            await self._run_unless_stopped(self._wait_for_room(), 0.0)
            and await self._run_unless_stopped(self._take_tasks(), GRACE)
        )

    async def _run_unless_stopped(self, work: Coroutine[Any, Any, bool], grace: float) -> bool:
        doing, stop = asyncio.create_task(work), asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({doing, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not doing.done() and grace:
                await asyncio.wait({doing}, timeout=grace)
            return doing.done() and doing.result()
        finally:
            doing.cancel()
            stop.cancel()

    async def _wait_for_room(self) -> bool:
        await self._output.wait_until_ready()
        return self._count_room() > 0

    async def _take_tasks(self) -> bool:
        room, cursor = self._count_room(), self._find_cursor()
        if not room:
            return False
        ask = self._plan.build_request(room, cursor)
        batch = await self._patience.retry_until_answered(GATEWAY, lambda: self._gateway.fetch_next_batch(ask))
        taken = assign_keys(self._journal.ledger, batch.tasks, cursor)
        known = set(self._journal.ledger.open)
        if taken or cursor is not None:
            await self._journal.add(TasksTaken(tasks=taken, next_cursor=batch.next_cursor))
        fresh = [self._journal.ledger.open[one.key] for one in taken if one.key not in known]
        again = [self._parked.pop(one.key) for one in taken if one.key in self._parked]
        self._ready.extend([*again, *fresh])
        self._exhausted = batch.exhausted
        found = bool(fresh or again)
        if found:
            self._last_fresh = time.monotonic()
        else:
            self._next_look = time.monotonic() + LOOK_SECONDS
        self._patience.note_waiting(
            LEASES, "held by others, or for refused tasks", waits=not found and not self.in_hand
        )
        return found

    def _find_cursor(self) -> int | None:
        if not self._plan.setup.by_cursor:
            return None
        reached = self._journal.ledger.next_cursor
        return self._plan.first_cursor if reached is None else reached

    def _is_finished(self) -> bool:
        if self._ready:
            return False
        if self._stop.is_set() or self._exhausted or self.limit_reached:
            return True
        waited = time.monotonic() - self._last_fresh
        return bool(self._journal.ledger.never_again) and waited > self._plan.lease_seconds + LOOK_SECONDS

    async def _wait(self) -> None:
        """Waits until a task is finished, or it is time to request tasks again."""
        if not self._running:
            await asyncio.sleep(LOOK_SECONDS / 4)
            return
        done, _ = await asyncio.wait(self._running, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            del self._running[task]
            task.result()
        if done and not self.in_hand:
            self._next_look = 0.0  # no lease of ours is open: the gateway can say whether that was all

    async def _cancel_running_tasks(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _process_item(self, item: TaskInHand) -> None:
        try:
            samples = item.samples or await self._sample_item(item)
            reply = await self._score_in_time(item, samples)
        except TaskSkipped as left_out:
            await self._settle_left_out(item, left_out)
            return
        if reply is None:
            self._parked[item.key] = item
            return
        rewards = [reward for reward in reply.rewards if reward is not None]
        parameters = self._sampler.player.server.sampling.parameters
        line = await asyncio.to_thread(build_group_line, item.task, samples, reply.group_id, rewards, parameters)
        reason = await self._output.put(line)
        if reason is not None:
            await self._settle_left_out(item, TaskSkipped(reason, item.task.task_id, answered=True))
            return
        await self._journal.add(TaskSettled(key=item.key, outcome=WRITTEN))
        self._meter.add_group(rewards)
        self._in_a_row = 0

    async def _score_in_time(self, item: TaskInHand, samples: Sequence[SampledCompletion]) -> GroupReply | None:
        """None when the lease had expired: the task is handed out again, so this group would be its second one."""
        while True:
            lease = item.task.lease_id
            reply = await self._score_samples(item, samples)
            if "late" not in reply.flags:
                return reply
            if item.task.lease_id == lease:
                return None

    async def _sample_item(self, item: TaskInHand) -> tuple[SampledCompletion, ...]:
        samples = await self._sampler.sample(item.task)
        await self._journal.add(GroupSampled(key=item.key, samples=samples))
        return samples

    async def _score_samples(self, item: TaskInHand, samples: Sequence[SampledCompletion]) -> GroupReply:
        """Scores with all rewards. Retries unscored groups a few times, then raises LeftOut."""
        group = AnsweredTask(item.task.task_id, item.task.lease_id, [sample.completion for sample in samples])
        reply = await self._request_scores(group)
        for attempt in range(1, ATTEMPTS):
            if None not in reply.rewards:
                break
            await asyncio.sleep(self._retry_seconds * 2**attempt)
            reply = await self._request_scores(group)
        if None in reply.rewards:
            reasons = sorted({score.reason for score in reply.scores if score.reason is not None})
            raise TaskSkipped(f"unscored ({', '.join(reasons)})", f"{reply.group_id} lacks rewards", answered=True)
        return reply

    async def _request_scores(self, group: AnsweredTask) -> GroupReply:
        try:
            replies = await self._patience.retry_until_answered(
                GATEWAY, lambda: self._gateway.score([group], self._plan.setup.run, self._plan.policy)
            )
        except InvalidRequest as error:
            raise TaskSkipped("gateway_refused", error.detail) from error
        if not isinstance(replies[0], GroupReply):
            raise TaskSkipped(replies[0].code, replies[0].detail)
        return replies[0]

    async def _settle_left_out(self, item: TaskInHand, left_out: TaskSkipped) -> None:
        never_again = not left_out.answered
        await self._journal.add(TaskSettled(key=item.key, outcome=left_out.reason, never_again=never_again))
        self.last_left_out = f"{left_out.reason}: {left_out.detail}"
        self._in_a_row += 1
        if self._in_a_row >= MOST_IN_A_ROW:
            raise InvalidRequest(f"{MOST_IN_A_ROW} groups in a row were left out; last reason: {self.last_left_out}")
