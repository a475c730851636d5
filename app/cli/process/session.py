"""One start of `process`: probes the servers, opens the output, runs the loop and handles Ctrl-C.

The loop takes tasks, samples a group for each, has it scored and puts it out. Many groups are in hand at the same time.
A group without all its rewards is sent a few times, then left out: a trainer gets whole groups only. A task whose lease
expired before its scores came is parked, since the gateway hands it out again. After Ctrl-C no tasks are taken, and
those in hand are finished; after a second Ctrl-C they stay in the journal for the next start."""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import httpx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.cli.campaigns import Campaign, RewardTally
from app.cli.policies import (
    GATEWAY,
    Endpoints,
    PolicyPrices,
    RolloutPlayer,
    TaskSkipped,
    TokenCheck,
    ToolCheck,
    add_token_ids,
    build_exchanges,
    describe_missing_ids,
    gather_or_cancel,
    list_policy_waits,
    probe_server,
)
from app.cli.process.atropos import TRAINER, AtroposApi, AtroposOutput, SampledCompletion, build_group_line
from app.cli.process.journal import (
    WRITTEN,
    AtroposRegistered,
    GroupSampled,
    Journal,
    ProcessLedger,
    TaskInHand,
    TaskSettled,
    TasksTaken,
    assign_keys,
)
from app.cli.process.plan import GroupOutput, ProcessMeter, ProcessPlan, open_jsonl_output
from app.domain.errors import InvalidRequest, Unavailable, UserError
from app.inference.connection import Connection
from app.inference.policies import ChatEpisode, InferenceServer, SamplingParameters, build_sequence, build_turns
from app.inference.tokens import LocalTokenizer
from app.inference.wire import SampledMessage
from app.service.requests import GroupReply, HandedOutTask
from app.terminal.client import AnsweredTask, GatewayClient, Retrier, build_gateway_headers
from app.terminal.consoles import Standing, show_progress
from app.toolkit.texts import escape_invisible

# Sampling of groups.


@dataclass
class _JoinTally:
    """Messages, and those whose prompt rewrites what was sampled before."""

    turns: int = 0
    rewritten: int = 0

    def add_samples(self, samples: Sequence[SampledCompletion]) -> None:
        turns = [turn for sample in samples for turn in sample.turns]
        self.turns += len(turns)
        self.rewritten += sum(not turn.joined for turn in turns)

    @property
    def words(self) -> str:
        """Empty when every prompt went on from what was sampled."""
        if not self.rewritten:
            return ""
        return (
            f"prompts that rewrite what was sampled before: {self.rewritten} of {self.turns} turns; that is not trained"
        )


@dataclass(frozen=True)
class _Sampler:
    player: RolloutPlayer
    tokenizer: LocalTokenizer | None
    group_size: int
    needs_tokens: bool = True
    """False where texts alone will do: a file."""
    stores_tokens: bool = False
    """Whether the gateway gets the ids of single messages too."""
    check: TokenCheck | None = None
    joins: _JoinTally = field(default_factory=_JoinTally)

    async def sample(self, task: HandedOutTask) -> tuple[SampledCompletion, ...]:
        """`group_size` samples, without a time limit. TaskSkipped when a server refuses the task or its tokens are
        unknown; RequestRefused when every request would be refused."""
        if task.max_turns == 1:
            episodes = await self.player.sample_single(task, self.group_size)
        else:
            episodes = await gather_or_cancel([self.player.play_episode(task) for _ in range(self.group_size)])
        try:
            samples = await asyncio.to_thread(lambda: tuple(self._build_sample(task, episode) for episode in episodes))
        except UserError as error:
            raise TaskSkipped("no_tokens", str(error)) from error
        self.joins.add_samples(samples)
        if self.check is not None:
            await self.check.add_episodes(task, episodes)
        return samples

    def _build_sample(self, task: HandedOutTask, episode: ChatEpisode) -> SampledCompletion:
        completion = add_token_ids(episode) if self.stores_tokens else episode.completion
        if not self.needs_tokens and self.tokenizer is None and not all(message.has_tokens for message in episode.said):
            return SampledCompletion(completion=completion, sequence=None)
        exchanges = build_exchanges(task, episode, self.tokenizer)
        return SampledCompletion(
            completion=completion,
            sequence=build_sequence(exchanges),
            turns=build_turns(exchanges),
        )


# The loop.

LOOK_SECONDS: Final = 1.0
"""Seconds between requests for tasks when there were none."""
_LEASES: Final = "leases to expire"
"""What the progress bar says is waited for."""
_GRACE_SECONDS: Final = 5.0
"""How long a request for tasks may go on after a stop."""
_MOST_REASON: Final = 300
"""Characters of why a group has no reward."""
_MOST_IN_A_ROW: Final = 32
"""Consecutive groups left out after which the command is aborted."""


class _ProcessRunner:
    def __init__(
        self,
        plan: ProcessPlan,
        campaign: Campaign,
        sampler: _Sampler,
        output: GroupOutput,
        journal: Journal,
        meter: ProcessMeter,
        rewards: RewardTally,
    ) -> None:
        self._plan = plan
        self._campaign = campaign
        self._sampler = sampler
        self._output = output
        self._journal = journal
        self._meter = meter
        self._rewards = rewards
        self._ready: deque[TaskInHand] = deque()
        self._running: dict[asyncio.Task[None], TaskInHand] = {}
        self._parked: dict[str, TaskInHand] = {}
        """By key: scored too late, so their tasks will be leased again."""
        self._exhausted = False
        self._next_look = 0.0
        self._last_fresh = time.monotonic()
        self.last_left_out = ""

    @property
    def in_hand(self) -> int:
        return len(self._ready) + len(self._running)

    @property
    def limit_reached(self) -> bool:
        limit = self._plan.limit
        return limit is not None and self._journal.ledger.written_count >= limit

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
        if self._campaign.stop.is_set() or self._exhausted:
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
            and await self._run_unless_stopped(self._take_tasks(), _GRACE_SECONDS)
        )

    async def _run_unless_stopped(self, work: Coroutine[Any, Any, bool], grace: float) -> bool:
        doing, stop = asyncio.create_task(work), asyncio.create_task(self._campaign.stop.wait())
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
        batch = await self._campaign.patience.retry_until_answered(
            GATEWAY, lambda: self._campaign.gateway.fetch_next_batch(ask)
        )
        taken = assign_keys(self._journal.ledger, batch.tasks, cursor)
        in_hand = set(self._journal.ledger.open)
        if taken or cursor is not None:
            await self._journal.add(TasksTaken(tasks=taken, next_cursor=batch.next_cursor))
        fresh = [self._journal.ledger.open[one.key] for one in taken if one.key not in in_hand]
        again = [self._parked.pop(one.key) for one in taken if one.key in self._parked]
        self._ready.extend([*again, *fresh])
        self._exhausted = batch.exhausted
        has_work = bool(fresh or again)
        if has_work:
            self._last_fresh = time.monotonic()
        else:
            self._next_look = time.monotonic() + LOOK_SECONDS
        self._campaign.patience.note_waiting(
            _LEASES, "held by others, or for refused tasks", waits=not has_work and not self.in_hand
        )
        return has_work

    def _find_cursor(self) -> int | None:
        if not self._plan.setup.by_cursor:
            return None
        reached = self._journal.ledger.next_cursor
        return self._plan.first_cursor if reached is None else reached

    def _is_finished(self) -> bool:
        if self._ready:
            return False
        if self._campaign.stop.is_set() or self._exhausted or self.limit_reached:
            return True
        # Refused tasks are handed out again and again: after a whole lease without another there is no other.
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
        self._campaign.note_result(None)

    async def _score_in_time(self, item: TaskInHand, samples: Sequence[SampledCompletion]) -> GroupReply | None:
        """None when the lease had expired: the task is handed out again, so this group would be its second one."""
        while True:
            lease = item.task.lease_id
            reply = await self._score_samples(item, samples)
            if "late" not in reply.flags:
                return reply
            # With another lease by now, the task was taken again: its group is sent under the new one.
            if item.task.lease_id == lease:
                return None

    async def _sample_item(self, item: TaskInHand) -> tuple[SampledCompletion, ...]:
        samples = await self._sampler.sample(item.task)
        await self._journal.add(GroupSampled(key=item.key, samples=samples))
        return samples

    async def _score_samples(self, item: TaskInHand, samples: Sequence[SampledCompletion]) -> GroupReply:
        """Scores with all rewards. TaskSkipped where some cannot be had."""
        group = AnsweredTask(item.task.task_id, item.task.lease_id, [sample.completion for sample in samples])
        reply = await self._campaign.score(group)
        if "late" not in reply.flags:
            self._rewards.add_scores(reply.scores)
        if None in reply.rewards:
            reasons = sorted({score.reason for score in reply.scores if score.reason is not None})
            why = next((score.rationale for score in reply.scores if score.reason and score.rationale), "no reward")
            raise TaskSkipped(
                f"unscored ({', '.join(reasons)})", f"{reply.group_id}: {why[:_MOST_REASON]}", answered=True
            )
        return reply

    async def _settle_left_out(self, item: TaskInHand, left_out: TaskSkipped) -> None:
        never_again = not left_out.answered
        await self._journal.add(TaskSettled(key=item.key, outcome=left_out.reason, never_again=never_again))
        self.last_left_out = f"{left_out.reason}: {left_out.detail}"
        self._campaign.note_result(self.last_left_out)


# The summary.


def _build_summary(ledger: ProcessLedger) -> Table:
    table = Table("groups", "count")
    table.add_row("written", str(ledger.written_count))
    for reason, count in ledger.left_out.items():
        table.add_row(f"left out: {escape(reason)}", str(count))
    if ledger.open:
        table.add_row("running", str(len(ledger.open)))
    return table


@dataclass(frozen=True)
class TrainerEndpoints(Endpoints):
    """Endpoints with the trainer's Atropos API."""

    atropos: str


@dataclass(frozen=True)
class ProcessSession:
    plan: ProcessPlan
    ends: TrainerEndpoints
    sampling: SamplingParameters
    concurrency: int
    patience_seconds: float | None
    """None: for ever. A trainer that has not started yet is always waited for."""
    prices: PolicyPrices
    tokenizer: LocalTokenizer | None
    checks_tokens: bool
    stores_tokens: bool
    batches_ahead: int
    weight: float
    console: Console

    async def run(self, journal: Journal) -> bool:
        """Returns whether it was completed; False when it was stopped."""
        meter = ProcessMeter(self.prices)
        async with self.ends.open_clients(self.concurrency) as (gateway, policy):
            campaign = self._begin(gateway)
            await self._require_environments(gateway)
            server = await self._prepare_server(policy, campaign.patience)
            player = RolloutPlayer(
                server, gateway, campaign.patience, meter.add_usage, ToolCheck(server, self._print_line)
            )
            setup = self.plan.setup
            rewards = RewardTally(self.ends.gateway, setup.run, "train", self.sampling.limit, self._print_line)
            sampler = _Sampler(
                player,
                self.tokenizer,
                setup.group_size,
                self._needs_tokens,
                self.stores_tokens,
                TokenCheck.begin(self.tokenizer, checks=self.checks_tokens),
            )
            until_started = Retrier(waiting=campaign.patience.waiting)
            async with self._open_output(journal, until_started, server) as output:
                processing = _ProcessRunner(self.plan, campaign, sampler, output, journal, meter, rewards)
                try:
                    return await self._run_with_progress(processing, campaign, server, journal.ledger, meter)
                finally:
                    self.console.print(", ".join(meter.list_words()), highlight=False)
                    self.console.print(_build_summary(journal.ledger))
                    checked = [] if sampler.check is None else sampler.check.tally.lines
                    notices = [*checked, sampler.joins.words, server.tally.describe(), server.meter.describe()]
                    for line in filter(None, notices):
                        self._print_line(line)
                    rewards.conclude()
                    if processing.last_left_out:
                        self._print_line(f"last group left out: {processing.last_left_out}")

    def _print_line(self, line: str) -> None:
        self.console.print(escape_invisible(line), highlight=False, markup=False, soft_wrap=True)

    def _begin(self, gateway: GatewayClient) -> Campaign:
        return Campaign(
            gateway=gateway,
            patience=Retrier(ends_after=self.patience_seconds),
            run=self.plan.setup.run,
            unit="groups",
            most_in_a_row=_MOST_IN_A_ROW,
            comes_to_nothing="were left out",
            policy=self.plan.policy,
            purpose="train",
        )

    async def _run_with_progress(
        self,
        processing: _ProcessRunner,
        campaign: Campaign,
        server: InferenceServer,
        ledger: ProcessLedger,
        meter: ProcessMeter,
    ) -> bool:
        def tell() -> Standing:
            left_out = sum(ledger.left_out.values())
            words = [*meter.list_words(), f"{processing.in_hand} running"]
            words += [f"{left_out} left out"] if left_out else []
            waits = [*campaign.patience.list_waits(), *list_policy_waits(server)]
            return Standing(ledger.written_count, [*words, *waits])

        async with show_progress(self.console, self.plan.setup.run, "groups", self.plan.limit, tell) as display:
            return await campaign.follow(processing.run(), display, lambda: processing.in_hand)

    async def _require_environments(self, gateway: GatewayClient) -> None:
        """Checks the environments before any tokens are spent."""
        for member in self.plan.setup.mix:
            await gateway.fetch_environment(member.env)

    async def _prepare_server(self, connection: Connection, patience: Retrier) -> InferenceServer:
        line = asyncio.Semaphore(self.concurrency)
        server = InferenceServer(connection, self.plan.setup.model, self.sampling, line=line)
        extensions, reply = await probe_server(server, patience)
        missing = f"{server.base} {describe_missing_ids(reply)}"
        if not reply.has_tokens and self.tokenizer is None and self._needs_tokens:
            raise InvalidRequest(f"{missing}: set --tokenizer to the model's tokenizer.json")
        if not reply.has_tokens and self.checks_tokens:
            raise InvalidRequest(f"--check-tokens: {missing}, so there is nothing to compare")
        self.console.print(f"{server.model}: {self._describe_tokens(reply)}", highlight=False, markup=False)
        return replace(server, extensions=extensions)

    @property
    def _needs_tokens(self) -> bool:
        return self.plan.setup.to == "atropos"

    def _describe_tokens(self, reply: SampledMessage) -> str:
        if not reply.has_tokens and self.tokenizer is None:
            missing = describe_missing_ids(reply)
            return f"the server {missing}, so the file holds texts only; --tokenizer adds tokens"
        logprobs = "log probabilities" if reply.logprobs is not None else "no log probabilities"
        origin = "the server" if reply.has_tokens else "the tokenizer"
        if not reply.has_tokens and reply.ids is not None:
            origin = "the server, of prompts from the tokenizer"
        return f"token ids from {origin}, {logprobs}"

    @asynccontextmanager
    async def _open_output(
        self, journal: Journal, patience: Retrier, server: InferenceServer
    ) -> AsyncIterator[GroupOutput]:
        if self.plan.setup.to == "jsonl":
            with open_jsonl_output(self.ends.out, began=journal.ledger.holds_results) as file:
                yield file
            return
        # The gateway's key goes to the gateway alone.
        own = self.ends.atropos.startswith(self.ends.gateway.rstrip("/") + "/")
        headers = build_gateway_headers(self.ends.gateway_key) if own else {}
        async with httpx.AsyncClient(base_url=self.ends.atropos, headers=headers, timeout=60.0) as client:
            yield await self._connect_trainer(AtroposApi(client), journal, patience)

    async def _connect_trainer(self, api: AtroposApi, journal: Journal, patience: Retrier) -> AtroposOutput:
        env_id = await self._ensure_env_id(api, journal, patience)
        batch_size, longest = await patience.retry_until_answered(TRAINER, api.fetch_info)
        group_size = self.plan.setup.group_size
        return AtroposOutput(api, patience, env_id, batch_size, group_size, longest, self.batches_ahead)

    async def _ensure_env_id(self, api: AtroposApi, journal: Journal, patience: Retrier) -> int:
        """The environment id of an earlier start while the API knows it, else a new one."""
        env_id = journal.ledger.env_id
        if env_id is not None:
            with suppress(Unavailable, InvalidRequest):
                await api.count_queued(env_id)
                return env_id
        setup = self.plan.setup
        name = setup.mix[0].env if len(setup.mix) == 1 else setup.run
        self.console.print(f"registering at {self.ends.atropos}; waiting for a trainer to start", highlight=False)
        env_id = await patience.retry_until_answered(
            TRAINER, lambda: api.register(name, setup.group_size, self.weight, self.sampling.max_tokens)
        )
        await journal.add(AtroposRegistered(env_id=env_id))
        return env_id
