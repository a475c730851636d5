"""One start of `process`: probes the servers, opens the output, runs the loop and handles Ctrl-C."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from rich.console import Console

from app.cli.asking import AskedGateway
from app.cli.ends import Ends
from app.cli.patience import Patience
from app.cli.playing import Player
from app.cli.prices import Prices
from app.cli.process.atropos import TRAINER, AtroposApi, AtroposQueue
from app.cli.process.journal import Journal
from app.cli.process.ledger import Registered
from app.cli.process.loop import Processing
from app.cli.process.meter import Meter
from app.cli.process.outputs import Output, opened_file
from app.cli.process.plan import Plan
from app.cli.process.progress import shown, summary
from app.cli.process.sampling import Sampler, able
from app.cli.stopping import told_to_stop
from app.domain.errors import InvalidRequest, Unavailable
from app.inference.server import InferenceServer, Sampling
from app.inference.tokenizer import LocalTokenizer


@dataclass(frozen=True)
class TrainerEnds(Ends):
    """Endpoints with the trainer's Atropos API."""

    atropos: str


@dataclass(frozen=True)
class Session:
    plan: Plan
    ends: TrainerEnds
    sampling: Sampling
    concurrency: int
    prices: Prices
    tokenizer: LocalTokenizer | None
    batches_ahead: int
    weight: float
    console: Console

    async def run(self, journal: Journal) -> bool:
        """Returns whether it was completed; False when it was stopped."""
        patience, meter = Patience(), Meter(self.prices)
        async with self.ends.clients(self.concurrency) as (gateway, policy):
            await self._require_environments(gateway)
            server = await self._server(policy)
            player = Player(server, gateway, patience, meter.asked)
            sampler = Sampler(player, self.tokenizer, self.plan.setup.group_size)
            async with self._output(journal, patience, server) as output:
                processing = Processing(self.plan, gateway, sampler, output, journal, patience, meter)
                try:
                    return await self._followed(processing, journal, meter, patience)
                finally:
                    self.console.print(meter.words, highlight=False)
                    self.console.print(summary(journal.ledger))
                    if processing.last_left_out:
                        self.console.print(
                            f"last group left out: {processing.last_left_out}", highlight=False, markup=False
                        )

    async def _require_environments(self, gateway: AskedGateway) -> None:
        """Checks the environments before any tokens are spent."""
        for member in self.plan.setup.mix:
            await gateway.environment(member.env)

    async def _server(self, client: httpx.AsyncClient) -> InferenceServer:
        line = asyncio.Semaphore(self.concurrency)
        server = InferenceServer(client, self.ends.policy, self.plan.setup.model, self.sampling, line=line)
        extensions, said = await able(server)
        if not said.has_tokens and self.tokenizer is None:
            raise InvalidRequest(f"{server.base} returns no token ids: set --tokenizer to the model's tokenizer.json")
        logprobs = "log probabilities" if said.logprobs is not None else "no log probabilities"
        ids = "token ids from the server" if said.has_tokens else "token ids from the tokenizer"
        self.console.print(f"{server.model}: {ids}, {logprobs}", highlight=False, markup=False)
        return InferenceServer(client, self.ends.policy, server.model, self.sampling, extensions, line)

    @asynccontextmanager
    async def _output(self, journal: Journal, patience: Patience, server: InferenceServer) -> AsyncIterator[Output]:
        if self.plan.setup.to == "jsonl":
            ledger = journal.ledger
            began = bool(ledger.open or ledger.outcomes)
            with opened_file(self.ends.out, began=began) as file:
                yield file
            return
        own = self.ends.atropos.startswith(self.ends.gateway.rstrip("/") + "/")
        headers = self.ends.gateway_headers if own else {}
        async with httpx.AsyncClient(base_url=self.ends.atropos, headers=headers, timeout=60.0) as client:
            yield await self._queue(AtroposApi(client), journal, patience)

    async def _queue(self, api: AtroposApi, journal: Journal, patience: Patience) -> AtroposQueue:
        env_id = await self._env_id(api, journal, patience)
        batch_size, longest = await patience.until_answered(TRAINER, api.info)
        group_size = self.plan.setup.group_size
        return AtroposQueue(api, patience, env_id, batch_size, group_size, longest, self.batches_ahead)

    async def _env_id(self, api: AtroposApi, journal: Journal, patience: Patience) -> int:
        """The environment id of an earlier start while the API knows it, else a new one."""
        known = journal.ledger.env_id
        if known is not None:
            with contextlib.suppress(Unavailable, InvalidRequest):
                await api.queued(known)
                return known
        setup = self.plan.setup
        name = setup.mix[0].env if len(setup.mix) == 1 else setup.run
        self.console.print(f"registering at {self.ends.atropos}; waiting for a trainer to start", highlight=False)
        env_id = await patience.until_answered(
            TRAINER, lambda: api.register(name, setup.group_size, self.weight, self.sampling.max_tokens)
        )
        await journal.add(Registered(env_id=env_id))
        return env_id

    async def _followed(self, processing: Processing, journal: Journal, meter: Meter, patience: Patience) -> bool:
        with shown(self.console, self.plan.limit, run=self.plan.setup.run) as bar:
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
                with told_to_stop(stop):
                    await work
            except asyncio.CancelledError:
                if not stopped:
                    raise
            finally:
                follow.cancel()
                await follow
            return not stopped
