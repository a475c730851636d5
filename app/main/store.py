"""The store as one object that `main` opens and closes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Self

from app.features.atropos.model import TrajectoryQueue
from app.features.atropos.store import SqlTrajectoryQueue
from app.features.authoring.service import AuthoredStore
from app.features.authoring.store import SqlAuthoredStore
from app.features.exports.store import SqlExportStore
from app.features.health.model import RunHealthStore
from app.features.health.store import IS_ANCHOR, SqlRunHealthStore
from app.features.labels.store import IS_LABELLED, SqlLabelQueue, SqlLabelStore
from app.features.play.store import SqlPlayStore
from app.features.worlds.store import SqlEventStore
from app.features.worlds.store_search import convert_postings, index_events
from app.features.worlds.store_worlds import SqlLorebookStore
from app.ports.environment import Clock
from app.ports.judges import ReferenceStore
from app.ports.play import PlayStore
from app.ports.retrieval import EventStore, LorebookStore
from app.ports.store import (
    EpisodeStore,
    ExportStore,
    GroupStore,
    GroupViews,
    HealthCheck,
    LabelQueue,
    LabelStore,
    OutcomeStore,
    PendingGroupStore,
    QuotaStore,
    RetentionStore,
    RunStore,
    ScoringStore,
    SheetStore,
    StatisticsStore,
    TaskStore,
    TextIndexStore,
)
from app.store.api_keys import SqlApiKeyStore
from app.store.budgets import SqlQuotaStore
from app.store.copy import rebuild_after_copy
from app.store.database import Database
from app.store.groups import SqlGroupStore, SqlScoringStore
from app.store.judge_cache import KEEP_ALL, CacheRetention, SqlJudgeCache, SqlReferenceStore
from app.store.migration import SqlHealthCheck, migrate
from app.store.pending_groups import SqlPendingGroupStore
from app.store.retention import SqlRetentionStore, keep_groups
from app.store.rollups import SqlStatisticsStore, write_rollups
from app.store.runs import SqlRunStore
from app.store.table_records import metadata as metadata  # with the tables of all features
from app.store.tasks import SqlEpisodeStore, SqlOutcomeStore, SqlSheetStore, SqlTaskStore
from app.store.text_index import SqlTextIndexStore
from app.store.views import SqlGroupViews

keep_groups("labelled", IS_LABELLED)
keep_groups("anchor", IS_ANCHOR)
rebuild_after_copy(index_events)


class Store:
    """All storage ports on one database."""

    def __init__(self, database: Database, judgements: CacheRetention) -> None:
        self._database = database
        self.judge_cache = SqlJudgeCache(database, judgements)
        self.references: ReferenceStore = SqlReferenceStore(database)
        self.tasks: TaskStore = SqlTaskStore(database)
        self.sheets: SheetStore = SqlSheetStore(database)
        self.authored: AuthoredStore = SqlAuthoredStore(database)
        self.events: EventStore = SqlEventStore(database)
        self.lorebooks: LorebookStore = SqlLorebookStore(database)
        self.groups: GroupStore = SqlGroupStore(database)
        self.parts: PendingGroupStore = SqlPendingGroupStore(database)
        self.episodes: EpisodeStore = SqlEpisodeStore(database)
        self.outcomes: OutcomeStore = SqlOutcomeStore(database)
        self.scorings: ScoringStore = SqlScoringStore(database)
        self.runs: RunStore = SqlRunStore(database)
        self.views: GroupViews = SqlGroupViews(database)
        self.statistics: StatisticsStore = SqlStatisticsStore(database)
        self.exports: ExportStore = SqlExportStore(database)
        self.label_queue: LabelQueue = SqlLabelQueue(database)
        self.labels: LabelStore = SqlLabelStore(database)
        self.trajectories: TrajectoryQueue = SqlTrajectoryQueue(database)
        self.keys = SqlApiKeyStore(database)
        self.quotas: QuotaStore = SqlQuotaStore(database)
        self.run_health: RunHealthStore = SqlRunHealthStore(database)
        self.play: PlayStore = SqlPlayStore(database)
        self.retention: RetentionStore = SqlRetentionStore(database)
        self.texts: TextIndexStore = SqlTextIndexStore(database)
        self.health: HealthCheck = SqlHealthCheck(database)

    @classmethod
    def open(
        cls,
        url: str,
        migrations: Path,
        *,
        clock: Clock | None = None,
        committed: Callable[[float], None] | None = None,
        readers: int = 4,
        judgements: CacheRetention = KEEP_ALL,
        prepare: bool = True,
    ) -> Self:
        """Migrates and opens the database. Blocking. `committed` is called with the seconds of every commit, from a
        store thread; `prepare` allows prepared statements. StoreUnavailable when the database is unavailable,
        ValueError for an invalid URL."""
        migrate(url, migrations)
        database = Database(
            url, readers=readers, clock=clock, committed=committed, prepare=prepare, complete=write_rollups
        )
        convert_postings(database)
        return cls(database, judgements)

    @property
    def depth(self) -> int:
        """Number of queued writes."""
        return self._database.writer.depth

    @property
    def read_depth(self) -> int:
        """Number of reads that wait for a reader."""
        return self._database.read_depth

    def find_free_space(self) -> Callable[[], float] | None:
        """Reads the free bytes beside the SQLite file; None where the data lies on a server."""
        folder = self._database.folder
        return None if folder is None else lambda: float(shutil.disk_usage(folder).free)

    async def close(self) -> None:
        """Commits all accepted writes, then closes. Later calls get StoreUnavailable."""
        await self._database.close()
