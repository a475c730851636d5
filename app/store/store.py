"""The store as one object that `main` opens and closes."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Self

from sqlalchemy import Connection, select, text
from sqlalchemy.exc import SQLAlchemyError

from app.domain.errors import StoreUnavailable
from app.ports.retrieval import Events, Lorebooks
from app.ports.runtime import Clock
from app.ports.store import Exports, Groups, Health, Outcomes, Parts, Runs, Scorings, Sheets, Tasks, Views
from app.ports.trajectories import TrajectoryQueue
from app.store.database import Database
from app.store.events import StoredEvents
from app.store.exports import StoredExports
from app.store.groups import StoredGroups
from app.store.judge_cache import KEEP_ALL, Keeping, StoredJudgeCache
from app.store.keys import StoredKeys
from app.store.lorebooks import StoredLorebooks
from app.store.migration import migrate
from app.store.parts import StoredParts
from app.store.pass_rates import StoredOutcomes
from app.store.runs import StoredRuns
from app.store.scorings import StoredScorings
from app.store.sheets import StoredSheets
from app.store.tables import runs
from app.store.tasks import StoredTasks
from app.store.trajectories import StoredTrajectories
from app.store.views import StoredViews

HEALTH_SECONDS = 5.0


class StoredHealth(Health):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def check(self) -> None:
        try:
            async with asyncio.timeout(HEALTH_SECONDS):
                await self._database.write(_touch)
                await self._database.read(lambda connection: connection.execute(select(runs.c.name).limit(1)).all())
        except SQLAlchemyError as error:
            raise StoreUnavailable("the database schema is not the one that the service expects") from error
        except TimeoutError as error:
            raise StoreUnavailable(f"the store did not answer within {HEALTH_SECONDS:.0f} seconds") from error


def _touch(connection: Connection) -> None:
    """A real write that changes nothing, to detect a full disk or a read-only replica."""
    connection.execute(text("UPDATE alembic_version SET version_num = version_num"))


class Store:
    """All storage ports on one database."""

    def __init__(self, database: Database, judgements: Keeping) -> None:
        self._database = database
        self.judge_cache = StoredJudgeCache(database, judgements)
        self.tasks: Tasks = StoredTasks(database)
        self.sheets: Sheets = StoredSheets(database)
        self.events: Events = StoredEvents(database)
        self.lorebooks: Lorebooks = StoredLorebooks(database)
        self.groups: Groups = StoredGroups(database)
        self.parts: Parts = StoredParts(database)
        self.outcomes: Outcomes = StoredOutcomes(database)
        self.scorings: Scorings = StoredScorings(database)
        self.runs: Runs = StoredRuns(database)
        self.views: Views = StoredViews(database)
        self.exports: Exports = StoredExports(database)
        self.trajectories: TrajectoryQueue = StoredTrajectories(database)
        self.keys = StoredKeys(database)
        self.health: Health = StoredHealth(database)

    @classmethod
    def open(
        cls,
        url: str,
        migrations: Path,
        *,
        clock: Clock | None = None,
        committed: Callable[[float], None] | None = None,
        readers: int = 4,
        judgements: Keeping = KEEP_ALL,
    ) -> Self:
        """Migrates and opens the database. Blocking. `committed` is called with the seconds of every commit, from a
        store thread. StoreUnavailable when the database is unavailable, ValueError for an invalid URL."""
        migrate(url, migrations)
        return cls(Database(url, readers=readers, clock=clock, committed=committed), judgements)

    @property
    def depth(self) -> int:
        """Number of queued writes."""
        return self._database.writer.depth

    async def close(self) -> None:
        """Commits all accepted writes, then closes. Later calls get StoreUnavailable."""
        await self._database.close()
