"""The store as one object that `main` opens and closes: the kernel's storage ports and the parts of features.

Importing this module imports the tables of all features, since the schema, pruning and copies need them before a store
is opened."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

from app.main.features import import_modules
from app.ports.environment import Clock
from app.ports.judges import ReferenceStore
from app.store.api_keys import KeyStore
from app.store.budgets import QuotaStore
from app.store.claims import ClaimStore
from app.store.database import PREPARATIONS, Database
from app.store.groups import GroupStore, ScoringStore
from app.store.hosted_steps import SqlHostedSteps
from app.store.judge_cache import SqlJudgeCache, SqlReferenceStore
from app.store.judge_measurements import JudgeMeasurementStore
from app.store.migration import HealthCheck, migrate
from app.store.pending_groups import PendingGroupStore
from app.store.player_lines import SqlPlayerLines
from app.store.retention import RetentionStore
from app.store.rollups import StatisticsStore, write_rollups
from app.store.runs import RunStore
from app.store.table_records import metadata as metadata  # with the tables of all features
from app.store.tasks import EpisodeStore, OutcomeStore, SheetStore, TaskStore
from app.store.text_index import TextIndexStore
from app.store.views import GroupViews

_PartT = TypeVar("_PartT")

# An import with an effect: features say in these modules what their tables are and what holds for them.
import_modules("store")


class Store:
    """All storage ports of the kernel on one database, and the parts of features."""

    def __init__(self, database: Database, judgement_days: float | None) -> None:
        self._database = database
        self._parts: dict[Callable[[Database], Any], Any] = {}
        self.judge_cache = SqlJudgeCache(database, judgement_days)
        self.player_lines = SqlPlayerLines(database)
        self.hosted_steps = SqlHostedSteps(database)
        self.references: ReferenceStore = SqlReferenceStore(database)
        self.judge_measurements = JudgeMeasurementStore(database)
        self.tasks = TaskStore(database)
        self.sheets = SheetStore(database)
        self.groups = GroupStore(database)
        self.parts = PendingGroupStore(database)
        self.episodes = EpisodeStore(database)
        self.outcomes = OutcomeStore(database)
        self.scorings = ScoringStore(database)
        self.runs = RunStore(database)
        self.views = GroupViews(database)
        self.statistics = StatisticsStore(database)
        self.keys = KeyStore(database)
        self.quotas = QuotaStore(database)
        self.retention = RetentionStore(database)
        self.claims = self.part(ClaimStore)
        self.texts = TextIndexStore(database)
        self.health = HealthCheck(database)

    def part(self, kind: Callable[[Database], _PartT]) -> _PartT:
        """A feature's own storage on this database: one object of each class."""
        if kind not in self._parts:
            self._parts[kind] = kind(self._database)
        part: _PartT = self._parts[kind]
        return part

    @classmethod
    def open(
        cls,
        url: str,
        migrations: Path,
        *,
        clock: Clock | None = None,
        committed: Callable[[float], None] | None = None,
        readers: int = 4,
        judgement_days: float | None = None,
        prepare: bool = True,
    ) -> Self:
        """Migrates and opens the database. Blocking. `committed` is called with the seconds of every commit, from a
        store thread; `prepare` allows prepared statements. StoreUnavailable when the database is unavailable,
        ValueError for an invalid URL."""
        migrate(url, migrations)
        database = Database(
            url, readers=readers, clock=clock, committed=committed, prepare=prepare, complete=write_rollups
        )
        for prepare_part in PREPARATIONS:
            prepare_part(database)
        return cls(database, judgement_days)

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
