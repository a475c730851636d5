"""What the service does from its start to its end beside answering: reads data, takes up work, closes what it holds.

It answers at once, and says by `/readyz` that it is not ready. Data is read behind the first requests, each configured
data set by itself. Then what a restart interrupted is taken up, and the lasting work begins: groups that come in
pieces, statistics, pruning, the text index, and what features add. At the end what may still make work is closed before
what does the work, and the store last of all."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from fastapi import FastAPI

from app.datasets.configured_datasets import ConfiguredDatasets
from app.envs.foreign.contract import ForeignServer
from app.features.contract import FeatureParts
from app.http.api.environment_routes import Examples
from app.judges.offline import NAME as OFFLINE
from app.main.store import Store
from app.ports.environment import ManagedResource
from app.ports.judges import Panels
from app.ports.players import PlayerModel
from app.ports.retrieval import Retriever
from app.ports.tracing import Tracer
from app.sandbox.isolation import probe_isolation
from app.sandbox.programs import JailedPrograms
from app.sandbox.workers import ProcessWorkers, WorkersPart
from app.service.background import Pruner, PruneSchedule, ReduceSchedule, TextIndexer, clear_pieces_for_ever, repeat
from app.service.catalogue import Catalogue
from app.service.gateway import list_judges
from app.service.hosted import HostedEpisodes, ServerWatch
from app.service.pending_groups import GroupAssembler
from app.service.rescoring import Rescorer
from app.service.scoring import GroupScoring
from app.settings import Settings

log = logging.getLogger(__name__)

_COUNTED_AT_ONCE = 20
"""Groups that are counted by one write, for which other writes wait."""
_COUNT_SECONDS = 60.0
"""How often a service looks for groups that are not counted: one of the release before may share the store."""
_UNCOUNTED = "stored groups could not be counted into the statistics"
_ISOLATION_SECONDS = 2.0
"""The longest that readiness waits for the isolation to be tried, which takes less than one on an idle machine."""
_HELD_BACK_SECONDS = 30.0
"""The longest that a process lets others take its connections while it reads data."""
_READY_POLL_SECONDS = 0.02
_METRICS_SECONDS = 5.0
"""How old the state of another process may be in what `/metrics` shows."""


def list_judged_offline(catalogue: Catalogue, panels: Panels) -> tuple[str, ...]:
    """The environments that the offline judge scores by default."""
    entries = list_judges(catalogue, panels)
    return tuple(name for entry in entries if entry.name == OFFLINE for name in entry.environments)


@contextlib.contextmanager
def _calling_on_stop(stop: Callable[[], None]) -> Iterator[None]:
    """At the signals that end the service `stop` is called, before the server waits for the requests under way. Where
    the service does not run in the main thread nobody sends it signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def handle(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        former = before[signal.Signals(number)]  # of the server, which is told as always
        if callable(former):
            former(number, frame)

    told = [number for number, former in before.items() if callable(former)]
    for number in told:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number in told:
            signal.signal(number, before[number])


@dataclass(frozen=True)
class ServiceLifespan:
    settings: Settings
    catalogue: Catalogue
    panels: Panels
    assembler: GroupAssembler
    group_scoring: GroupScoring
    rescorer: Rescorer
    store: Store
    parts: Sequence[FeatureParts]
    list_texts: Callable[[], Mapping[str, str]]
    """What stands in place of files of character sheets."""
    workers: ProcessWorkers
    authors: WorkersPart
    programs: JailedPrograms
    retriever: Retriever
    players: Sequence[PlayerModel]
    foreign: Sequence[ForeignServer]
    watch: ServerWatch
    """Over those."""
    elsewhere: HostedEpisodes
    examples: Examples
    refresh_metrics: Callable[[], None]
    tracer: Tracer | None = None

    @contextlib.asynccontextmanager
    async def run(self, _: FastAPI) -> AsyncIterator[None]:
        judges = self.panels.judges.values()
        added = (one for part in self.parts for one in part.held)
        held = [
            one
            for one in (*judges, *self.players, *self.foreign, self.retriever, *added)
            if isinstance(one, ManagedResource)
        ]
        await asyncio.gather(*(one.open() for one in held))
        await self.assembler.open()
        if judged_offline := list_judged_offline(self.catalogue, self.panels):
            log.warning(
                "the offline judge, which has no model and is not for training, scores %s; configure a judge under "
                "`judges` and name it in `environments.<name>.judges`",
                ", ".join(judged_offline),
            )
        opening = asyncio.create_task(self._open_gateway())
        if self.settings.processes > 1:
            await self._wait_until_ready()
        with _calling_on_stop(self.authors.end):
            yield
        self.authors.end()
        opening.cancel()
        await asyncio.gather(opening, return_exceptions=True)
        # From here on the order counts: groups in hand still need judges, workers and the store.
        await self.assembler.close()
        await self.assembler.hand_over(await self.group_scoring.close())
        for part in self.parts:
            if part.close is not None:
                await part.close()
        await self.rescorer.close()
        await self.elsewhere.close()
        await self.workers.close()
        await self.programs.close()
        await asyncio.gather(*(one.close() for one in held))
        await self.store.close()
        if self.tracer is not None:
            await asyncio.to_thread(self.tracer.close)

    async def _wait_until_ready(self) -> None:
        """No connection comes to this process meanwhile: the others, of which one may be ready, take them all."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_HELD_BACK_SECONDS):
                while not self.catalogue.ready:  # noqa: ASYNC110  # a plain flag, for some tenths of a second
                    await asyncio.sleep(_READY_POLL_SECONDS)

    async def _open_gateway(self) -> None:
        """Reads the data, each configured data set by itself, so that a slow one holds up no other environment. Then
        takes up what a restart interrupted. Groups that come in pieces, pruning and what features do for ever run
        beside that: what was interrupted may take long, and replicas may always have more of it."""
        catalogue, chosen = self.catalogue, self.settings.datasets
        folders = {"character_sheets": self.settings.character_sheets}
        written = {"character_sheets": self.list_texts}
        datasets = ConfiguredDatasets(chosen, folders=folders, written=written, hub_cache=self.settings.cache_dir)
        for load in (part.load for part in self.parts if part.load is not None):
            await load()
        trying = asyncio.create_task(self._try_isolation())
        slow = {name for name in catalogue.classes if chosen.get(name)} | {one.name for one in self.foreign}
        reading = [asyncio.to_thread(catalogue.open, datasets, {name}) for name in sorted(slow)]
        configured = asyncio.ensure_future(asyncio.gather(*reading))
        try:
            await asyncio.to_thread(catalogue.open, datasets, catalogue.classes.keys() - slow)
            await asyncio.wait({trying}, timeout=_ISOLATION_SECONDS)
            await asyncio.wait({configured}, timeout=self.settings.ready_after_data)
            catalogue.ready = True
            lasting = self.assembler.run(), repeat(self._count_groups, _COUNT_SECONDS, _UNCOUNTED)
            pruning = self._prune(), self._reduce(), clear_pieces_for_ever(self.store.parts)
            added = [run() for part in self.parts for run in part.lasting]
            indexing = self._index_texts()
            tending = self.elsewhere.sweep_for_ever(), self.watch.run()
            background = *lasting, *pruning, *added, *tending, indexing, self._share_metrics()
            await asyncio.gather(self._take_up(trying, configured), *background)
        finally:
            trying.cancel()
            configured.cancel()

    async def _take_up(self, *needed: Awaitable[object]) -> None:
        """What was interrupted is not given up because nobody knows yet whether it may be run, or from which data."""
        outcomes = await asyncio.gather(*needed, return_exceptions=True)
        resumed = self.group_scoring.resume(), self.examples.prepare()
        for outcome in (*outcomes, *await asyncio.gather(*resumed, return_exceptions=True)):
            if isinstance(outcome, Exception):
                log.error("start-up work failed", exc_info=outcome)

    async def _index_texts(self) -> None:
        if self.settings.index_texts:
            await TextIndexer(self.store.texts, self.store.claims, lambda: self.store.views.last_text_search).run()

    async def _count_groups(self) -> None:
        """Counts groups that were stored before there were statistics, beside everything else."""
        if waiting := await self.store.views.count_uncounted():
            log.info("counting %d stored groups into the statistics", waiting)
            while await self.store.statistics.count_groups(_COUNTED_AT_ONCE):
                pass
            log.info("the statistics include all stored groups")

    async def _prune(self) -> None:
        chosen = self.settings.retention
        if chosen.older_than_days is not None:
            schedule = PruneSchedule(
                older_than_seconds=chosen.older_than_days * 86_400,
                runs=chosen.runs,
                purposes=chosen.purposes,
            )
            await Pruner(self.store.retention, self.store.claims).prune_by_schedule(schedule)

    async def _reduce(self) -> None:
        chosen = self.settings.retention.keep
        schedule = ReduceSchedule(keep=chosen.level, older_than_seconds=chosen.after_hours * 3600)
        await Pruner(self.store.retention, self.store.claims).reduce_by_schedule(schedule)

    async def _share_metrics(self) -> None:
        """Where several processes serve, any may be asked for the metrics of all, also of one that has ended."""
        try:
            while self.settings.processes > 1:
                self.refresh_metrics()
                await asyncio.sleep(_METRICS_SECONDS)
        finally:
            self.refresh_metrics()

    async def _try_isolation(self) -> None:
        """Where an environment runs programs: whether they can be kept apart here, found out while data is read."""
        catalogue = self.catalogue
        if any(environment.runs_programs for environment in catalogue.classes.values()):
            isolation = await probe_isolation(self.programs)
            catalogue.set_isolation(isolation, weak_will_do=self.settings.programs.allow_weak_isolation)
