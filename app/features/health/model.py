"""What run health keeps and reads, and whom it tells."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app.domain.groups import Group
from app.domain.health_records import HealthReading, HealthState, HealthTokens
from app.domain.judging import Judgement, JudgeVersion
from app.domain.run_health import Alarm, Hold, SeriesCells
from app.domain.runs import Run


@dataclass(frozen=True)
class HealthClaim:
    """One process looks after a run at a time. `token` tells its claim from later ones."""

    run: str
    token: str


class RunHealthStore(Protocol):
    async def claim(self, seconds: float, idle_seconds: float) -> HealthClaim | None:
        """A run with new groups that nobody looks after, for so long. Fewer than a bucket of new groups wait for
        `idle_seconds`."""

    async def renew(self, claim: HealthClaim, seconds: float) -> bool:
        """False when somebody else has claimed the run since."""

    async def advance(self, claim: HealthClaim) -> HealthState:
        """Counts the run's groups that came since."""

    async def finish(self, claim: HealthClaim, state: HealthState) -> None:
        """Stores the state and gives up the claim. Without effect when somebody else has it."""

    async def get_state(self, run: str) -> HealthState: ...

    async def load_cells(self, run: str, state: HealthState) -> SeriesCells:
        """Of the full buckets."""

    async def freeze_anchors(self, run: str, count: int) -> tuple[Group, ...]:
        """The run's anchors: its first judged groups, at most a third of them of one label."""

    async def count_anchors(self, run: str) -> int: ...

    async def find_shadow_group(self, run: str) -> Group | None:
        """The newest scored group that no shadow judge has read."""

    async def list_readings(self, run: str, after: int) -> list[HealthReading]:
        """Anchor readings after this sequence, oldest first: the first of each anchor, and the newest."""

    async def add_reading(self, reading: HealthReading, judgements: Sequence[Judgement], hold: str) -> HealthReading:
        """Also adds its cost to the run's, and frees what was reserved under `hold`."""

    async def get_tokens(self, run: str) -> HealthTokens: ...

    async def add_alarm(self, run: str, alarm: Alarm, hold: Hold | None) -> bool:
        """False when it is known. With `hold` the run is held, unless it is already."""

    async def list_alarms(self, run: str, limit: int) -> list[Alarm]:
        """Newest first."""

    async def count_alarms(self) -> dict[str, int]:
        """Alarms that stand, over all runs, by series."""

    async def claim_notices(self, limit: int, seconds: float) -> list[tuple[str, Alarm, int]]:
        """Alarms that are due to be sent, with their run and the attempts so far. Nobody else gets them for so long."""

    async def settle_notice(self, alarm_id: str, retry_seconds: float | None) -> None:
        """Sent, or given up; or to be tried again after so long."""

    async def release(self, run: str) -> Run:
        """Ends the hold and releases all alarms that stand. NotFound when there is no such run."""

    async def list_versions(self, judges: Sequence[str]) -> list[JudgeVersion]:
        """Oldest first."""


class AlarmSink(Protocol):
    """Somebody outside who is told of alarms."""

    async def send(self, run: str, alarm: Alarm) -> bool:
        """Whether it was taken. Never raises."""
