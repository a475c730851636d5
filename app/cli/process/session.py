"""One start of `process`: probes the servers, opens the output, runs the loop and handles Ctrl-C."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import httpx
from rich.console import Console

from app.cli.endpoints import Endpoints
from app.cli.episode_tokens import probe_server
from app.cli.gateway_client import GatewayClient
from app.cli.prices import PolicyPrices
from app.cli.process.atropos import TRAINER, AtroposApi, AtroposOutput
from app.cli.process.journal import Journal
from app.cli.process.ledger import AtroposRegistered
from app.cli.process.loop import ProcessRunner
from app.cli.process.meter import ProcessMeter
from app.cli.process.outputs import GroupOutput, open_jsonl_output
from app.cli.process.plan import ProcessPlan
from app.cli.process.progress import build_summary, show_progress
from app.cli.process.sampling import Sampler
from app.cli.retry import Retrier
from app.cli.rollout import RolloutPlayer
from app.cli.signals import stop_on_signals
from app.domain.errors import InvalidRequest, Unavailable
from app.inference.connection import Connection
from app.inference.server import InferenceServer, SamplingParameters
from app.inference.token_check import TokenCheckTally
from app.inference.tokenizer import LocalTokenizer
from app.inference.wire import SampledMessage


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
    prices: PolicyPrices
    tokenizer: LocalTokenizer | None
    checks_tokens: bool
    stores_tokens: bool
    batches_ahead: int
    weight: float
    console: Console

    async def run(self, journal: Journal) -> bool:
        """Returns whether it was completed; False when it was stopped."""
        patience, meter = Retrier(), ProcessMeter(self.prices)
        async with self.ends.open_clients(self.concurrency) as (gateway, policy):
            await self._require_environments(gateway)
            server = await self._prepare_server(policy)
            player = RolloutPlayer(server, gateway, patience, meter.add_usage)
            sampler = Sampler(
                player,
                self.tokenizer,
                self.plan.setup.group_size,
                self._needs_tokens,
                self.stores_tokens,
                TokenCheckTally() if self.checks_tokens else None,
            )
            async with self._open_output(journal, patience, server) as output:
                processing = ProcessRunner(self.plan, gateway, sampler, output, journal, patience, meter)
                try:
                    return await self._run_with_progress(processing, journal, meter, patience)
                finally:
                    self.console.print(meter.words, highlight=False)
                    self.console.print(build_summary(journal.ledger))
                    told = [*([] if sampler.check is None else sampler.check.lines), sampler.joins.words]
                    for line in filter(None, told):
                        self.console.print(line, highlight=False, markup=False, soft_wrap=True)
                    if processing.last_left_out:
                        self.console.print(
                            f"last group left out: {processing.last_left_out}", highlight=False, markup=False
                        )

    async def _require_environments(self, gateway: GatewayClient) -> None:
        """Checks the environments before any tokens are spent."""
        for member in self.plan.setup.mix:
            await gateway.fetch_environment(member.env)

    async def _prepare_server(self, connection: Connection) -> InferenceServer:
        line = asyncio.Semaphore(self.concurrency)
        server = InferenceServer(connection, self.plan.setup.model, self.sampling, line=line)
        extensions, said = await probe_server(server)
        if not said.has_tokens and self.tokenizer is None and self._needs_tokens:
            raise InvalidRequest(f"{server.base} returns no token ids: set --tokenizer to the model's tokenizer.json")
        if not said.has_tokens and self.checks_tokens:
            raise InvalidRequest(f"--check-tokens: {server.base} returns no token ids, so there is nothing to compare")
        self.console.print(f"{server.model}: {self._describe_tokens(said)}", highlight=False, markup=False)
        return replace(server, extensions=extensions)

    @property
    def _needs_tokens(self) -> bool:
        return self.plan.setup.to == "atropos"

    def _describe_tokens(self, said: SampledMessage) -> str:
        if not said.has_tokens and self.tokenizer is None:
            return "no token ids, so the file holds texts only; --tokenizer adds tokens"
        logprobs = "log probabilities" if said.logprobs is not None else "no log probabilities"
        return f"token ids from the {'server' if said.has_tokens else 'tokenizer'}, {logprobs}"

    @asynccontextmanager
    async def _open_output(
        self, journal: Journal, patience: Retrier, server: InferenceServer
    ) -> AsyncIterator[GroupOutput]:
        if self.plan.setup.to == "jsonl":
            ledger = journal.ledger
            began = bool(ledger.open or ledger.outcomes)
            with open_jsonl_output(self.ends.out, began=began) as file:
                yield file
            return
        own = self.ends.atropos.startswith(self.ends.gateway.rstrip("/") + "/")
        headers = self.ends.gateway_headers if own else {}
        async with httpx.AsyncClient(base_url=self.ends.atropos, headers=headers, timeout=60.0) as client:
            yield await self._connect_trainer(AtroposApi(client), journal, patience)

    async def _connect_trainer(self, api: AtroposApi, journal: Journal, patience: Retrier) -> AtroposOutput:
        env_id = await self._ensure_env_id(api, journal, patience)
        batch_size, longest = await patience.retry_until_answered(TRAINER, api.fetch_info)
        group_size = self.plan.setup.group_size
        return AtroposOutput(api, patience, env_id, batch_size, group_size, longest, self.batches_ahead)

    async def _ensure_env_id(self, api: AtroposApi, journal: Journal, patience: Retrier) -> int:
        """The environment id of an earlier start while the API knows it, else a new one."""
        known = journal.ledger.env_id
        if known is not None:
            with contextlib.suppress(Unavailable, InvalidRequest):
                await api.count_queued(known)
                return known
        setup = self.plan.setup
        name = setup.mix[0].env if len(setup.mix) == 1 else setup.run
        self.console.print(f"registering at {self.ends.atropos}; waiting for a trainer to start", highlight=False)
        env_id = await patience.retry_until_answered(
            TRAINER, lambda: api.register(name, setup.group_size, self.weight, self.sampling.max_tokens)
        )
        await journal.add(AtroposRegistered(env_id=env_id))
        return env_id

    async def _run_with_progress(
        self, processing: ProcessRunner, journal: Journal, meter: ProcessMeter, patience: Retrier
    ) -> bool:
        with show_progress(self.console, self.plan.limit, run=self.plan.setup.run) as bar:
            work = asyncio.create_task(processing.run())
            stopped = False

            def stop() -> None:
                nonlocal stopped
                if stopped:
                    work.cancel()
                    return
                stopped = True
                processing.stop()
                bar.say(
                    f"finishing {processing.in_hand} running tasks; press Ctrl-C again to leave them for the next start"
                )

            follow = asyncio.create_task(bar.follow(processing, journal.ledger, meter, patience))
            try:
                with stop_on_signals(stop):
                    await work
            except asyncio.CancelledError:
                if not stopped:
                    raise
            finally:
                follow.cancel()
                await follow
            return not stopped
