"""The queue of groups between external environments and trainers."""

from collections.abc import Collection, Sequence
from functools import lru_cache

from sqlalchemy import BindParameter, Connection, bindparam, delete, func, insert, select, update

from app.domain.trajectories import (
    Feeder,
    Form,
    Handed,
    Joining,
    Line,
    NotYet,
    Packed,
    Registration,
    TrajectoryRun,
)
from app.ports.trajectories import TrajectoryQueue
from app.store.database import Database, insert_new
from app.store.prepared import Prepared
from app.store.rows import Row, encode_json, findable, from_micros, insert_rows
from app.store.trajectory_hand_out import confirm, give_back, hand_out
from app.store.trajectory_rows import line_of, load_run, locked_run, look
from app.store.trajectory_tables import batches, bodies, feeders, trajectory_groups, trajectory_runs

KNOWN_SECONDS = 300
"""How long duplicates of a group are recognised. Atropos environments stop retrying after about 30 seconds."""

MOST_ENV_ID = 2**31
"""Groups with a larger environment id are queued without an environment."""

MOST_AT_ONCE = 500
"""Maximum number of groups per statement, since the number of parameters is limited."""


_OPEN = Prepared(
    lambda postgres: insert_new(trajectory_runs, postgres).values(
        _parameters("run", "started", "batches", "step_before", "turns", "created_at")
    )
)


def _parameters(*names: str) -> dict[str, BindParameter[object]]:
    return {name: bindparam(name) for name in names}


class StoredTrajectories(TrajectoryQueue):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, run: str, registration: Registration) -> None:
        await self._database.write(
            lambda connection: _register(connection, self._database, run, registration), _order(run)
        )

    async def join(self, run: str, joining: Joining) -> Feeder | None:
        return await self._database.write(
            lambda connection: _join(connection, self._database, run, joining), _order(run)
        )

    async def leave(self, run: str, env_id: int) -> bool:
        return await self._database.write(
            lambda connection: _mark(connection, run, [env_id], {"connected": False}) > 0, _order(run)
        )

    async def seen(self, run: str, env_id: int) -> None:
        stamp = self._database.stamp()
        await self._database.write(lambda connection: _mark(connection, run, [env_id], {"seen_at": stamp}), _order(run))

    async def add(self, run: str, groups: Sequence[Packed]) -> int:
        return await self._database.write(lambda connection: _add(connection, self._database, run, groups), _order(run))

    async def take(self, run: str, life: str, sent: Collection[int], form: Form) -> Handed | NotYet | None:
        def unit(connection: Connection) -> Handed | NotYet | None:
            row = locked_run(connection, self._database, run)
            confirm(connection, run, sent, self._database.stamp() - KNOWN_SECONDS * 1_000_000)
            return None if row is None else hand_out(connection, self._database, row, life, form)

        return await self._database.write(unit, _order(run))

    async def give_back(self, run: str, number: int) -> None:
        await self._database.write(lambda connection: give_back(connection, run, number), _order(run))

    async def look(self, run: str, life: str) -> TrajectoryRun:
        if not findable([run]):
            return TrajectoryRun(run=run)
        return await self._database.read(lambda connection: look(connection, self._database, run, life))

    async def line(self, run: str) -> Line | None:
        def query(connection: Connection) -> Line | None:
            row = load_run(connection, run)
            return None if row is None else line_of(connection, self._database, row)

        return await self._database.read(query)

    async def latest(self, run: str) -> bytes | None:
        newest = (
            select(bodies.c.body)
            .where(bodies.c.run == run, bodies.c.body.is_not(None))
            .order_by(bodies.c.body_id.desc())
            .limit(1)
        )
        return await self._database.read(lambda connection: connection.execute(newest).scalar())

    async def reset(self, run: str) -> None:
        await self._database.write(lambda connection: _reset(connection, run), _order(run))

    async def runs(self, limit: int) -> list[str]:
        named = select(trajectory_runs.c.run).order_by(trajectory_runs.c.run).limit(limit)
        return await self._database.read(lambda connection: list(connection.execute(named).scalars()))


def _order(run: str) -> str:
    return f"trajectories {run}"


def _open(connection: Connection, database: Database, run: str) -> None:
    stamp = database.stamp()
    _OPEN.run(connection, run=run, started=False, batches=0, step_before=0, turns="{}", created_at=stamp)


def _register(connection: Connection, database: Database, run: str, registration: Registration) -> None:
    _open(connection, database, run)
    said = registration.model_dump_json()
    here = select(trajectory_runs).where(trajectory_runs.c.run == run).with_for_update()
    row = connection.execute(here).mappings().one()
    if row["registration"] != said:
        begins = {"registration": said, "step_before": registration.starting_step - row["batches"]}
        connection.execute(update(trajectory_runs).where(trajectory_runs.c.run == run).values(begins))


def _join(connection: Connection, database: Database, run: str, joining: Joining) -> Feeder | None:
    row = locked_run(connection, database, run)
    if row is None or not row.started:
        return None
    mine = (feeders.c.run == run,)
    env_id = connection.execute(select(func.count()).select_from(feeders).where(*mine)).scalar_one()
    wanted = f"{joining.desired_name}_"
    names = (one.name for one in row.feeders if one.said.desired_name == joining.desired_name)
    name = f"{wanted}{sum(1 for _ in names)}"
    stamp = database.stamp()
    values = {
        "run": run,
        "env_id": env_id,
        "name": encode_json(name),
        "said": joining.model_dump_json(),
        "connected": True,
        "seen_at": stamp,
    }
    connection.execute(insert(feeders).values(values))
    return Feeder(env_id=env_id, name=name, said=joining, connected=True, seen_at=from_micros(stamp))


def _mark(connection: Connection, run: str, env_ids: Collection[int], values: dict[str, int | bool]) -> int:
    known = sorted(env_id for env_id in env_ids if 0 <= env_id < MOST_ENV_ID)
    statement = update(feeders).where(feeders.c.run == run, feeders.c.env_id.in_(known)).values(values)
    return connection.execute(statement).rowcount


def _add(connection: Connection, database: Database, run: str, groups: Sequence[Packed]) -> int:
    new = 0
    for start in range(0, len(groups), MOST_AT_ONCE):
        new += _add_some(connection, database, run, groups[start : start + MOST_AT_ONCE])
    return new


def _add_some(connection: Connection, database: Database, run: str, groups: Sequence[Packed]) -> int:
    """Adds many groups with the same number of statements as one."""
    stamp = database.stamp()
    firsts: dict[str, Packed] = {}
    for group in groups:
        firsts.setdefault(group.digest, group)
    known = _body_ids(connection, run, firsts, stamp - KNOWN_SECONDS * 1_000_000)
    new = {digest: group for digest, group in firsts.items() if digest not in known}
    if new:
        _open(connection, database, run)
        insert_rows(connection, bodies, [_body(run, group, stamp) for group in new.values()])
        ids = _body_ids(connection, run, new, stamp)
        insert_rows(connection, trajectory_groups, [_in_line(run, group, ids[digest]) for digest, group in new.items()])
    return len(new)


def _body_ids(connection: Connection, run: str, digests: Collection[str], since: int) -> dict[str, int]:
    """Ids of the existing bodies, by digest."""
    sought = dict(zip(_digest_names(len(digests)), digests, strict=True))
    found = _bodies_of(len(digests)).run(connection, run=run, since=since, **sought)
    return {row.digest: row.body_id for row in found}


@lru_cache(maxsize=64)
def _bodies_of(count: int) -> Prepared:
    among = bodies.c.digest.in_([bindparam(name) for name in _digest_names(count)])
    here = (bodies.c.run == bindparam("run"), among, bodies.c.created_at >= bindparam("since"))
    return Prepared(lambda _: select(bodies.c.digest, bodies.c.body_id).where(*here))


def _digest_names(count: int) -> list[str]:
    return [f"digest_{number}" for number in range(count)]


def _body(run: str, group: Packed, stamp: int) -> Row:
    return {"run": run, "digest": group.digest, "created_at": stamp, "body": group.body}


def _in_line(run: str, group: Packed, body_id: int) -> Row:
    return {
        "run": run,
        "env_id": _known(group.env_id),
        "body_id": body_id,
        "first": 0,
        "size": group.size,
        "whole": True,
        "passed": 0,
        "batch": None,
        "place": None,
    }


def _known(env_id: int | None) -> int | None:
    return env_id if env_id is not None and 0 <= env_id < MOST_ENV_ID else None


def _reset(connection: Connection, run: str) -> None:
    for table in (trajectory_groups, bodies, batches, feeders, trajectory_runs):
        connection.execute(delete(table).where(table.c.run == run))
