"""The queue of groups between external environments and trainers."""

from collections.abc import Collection, Sequence
from functools import lru_cache

from sqlalchemy import BindParameter, Connection, bindparam, delete, func, insert, select, update

from app.domain.trajectories import (
    BatchFormer,
    BatchNotReady,
    EnvClient,
    EnvRegistration,
    PackedGroup,
    QueueLag,
    TrainerRegistration,
    TrajectoryBacklog,
    TrajectoryBatch,
    TrajectoryRun,
)
from app.ports.trajectories import TrajectoryQueue
from app.store.database import Database, insert_new
from app.store.inserts import insert_rows
from app.store.prepared_statements import PreparedStatement
from app.store.rows import Row, encode_json, from_micros, is_storable
from app.store.trajectory_batches import delete_delivered, find_sent, hand_out_batch, mark_sent, return_to_queue
from app.store.trajectory_rows import load_backlog, load_lag, load_run, load_run_state, lock_run
from app.store.trajectory_tables import batches, bodies, env_clients, trajectory_groups, trajectory_runs

DUPLICATE_WINDOW_SECONDS = 300
"""How long duplicates of a group are recognised. Atropos environments stop retrying after about 30 seconds."""

ENV_ID_LIMIT = 2**31
"""Groups with a larger environment id are queued without an environment."""

MAX_GROUPS_PER_STATEMENT = 500
"""Maximum number of groups per statement, since the number of parameters is limited."""


_INSERT_RUN = PreparedStatement(
    lambda postgres: insert_new(trajectory_runs, postgres).values(
        _build_parameters("run", "started", "batches", "step_before", "turns", "created_at")
    )
)


_SELECT_STEP = PreparedStatement(
    lambda _: select((trajectory_runs.c.step_before + trajectory_runs.c.batches).label("step")).where(
        trajectory_runs.c.run == bindparam("run"), trajectory_runs.c.registration.is_not(None)
    )
)


def _build_parameters(*names: str) -> dict[str, BindParameter[object]]:
    return {name: bindparam(name) for name in names}


class SqlTrajectoryQueue(TrajectoryQueue):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def register(self, run: str, registration: TrainerRegistration) -> None:
        await self._database.write(
            lambda connection: _register_trainer(connection, self._database, run, registration), _build_order_key(run)
        )

    async def join(self, run: str, joining: EnvRegistration) -> EnvClient | None:
        return await self._database.write(
            lambda connection: _add_client(connection, self._database, run, joining), _build_order_key(run)
        )

    async def leave(self, run: str, env_id: int) -> bool:
        return await self._database.write(
            lambda connection: _update_clients(connection, run, [env_id], {"connected": False}) > 0,
            _build_order_key(run),
        )

    async def record_heartbeat(self, run: str, env_id: int) -> None:
        stamp = self._database.read_clock()
        await self._database.write(
            lambda connection: _update_clients(connection, run, [env_id], {"seen_at": stamp}), _build_order_key(run)
        )

    async def add(self, run: str, groups: Sequence[PackedGroup]) -> int:
        return await self._database.write(
            lambda connection: _add_groups(connection, self._database, run, groups), _build_order_key(run)
        )

    async def take_batch(
        self, run: str, life: str, sent: Collection[int], form: BatchFormer
    ) -> TrajectoryBatch | BatchNotReady | None:
        def take_next(connection: Connection) -> TrajectoryBatch | BatchNotReady | None:
            row = lock_run(connection, self._database, run)
            known_since = self._database.read_clock() - DUPLICATE_WINDOW_SECONDS * 1_000_000
            delete_delivered(connection, run, find_sent(connection, run).union(sent), known_since)
            return None if row is None else hand_out_batch(connection, self._database, row, life, form)

        return await self._database.write(take_next, _build_order_key(run))

    async def record_sent(self, run: str, numbers: Collection[int]) -> None:
        await self._database.write(lambda connection: mark_sent(connection, run, numbers), _build_order_key(run))

    async def return_batch(self, run: str, number: int) -> None:
        await self._database.write(lambda connection: return_to_queue(connection, run, number), _build_order_key(run))

    async def get_run(self, run: str, life: str) -> TrajectoryRun:
        if not is_storable(run):
            return TrajectoryRun(run=run)
        return await self._database.read(lambda connection: load_run_state(connection, self._database, run, life))

    async def get_backlog(self, run: str) -> TrajectoryBacklog | None:
        def load_queue(connection: Connection) -> TrajectoryBacklog | None:
            row = load_run(connection, run)
            return None if row is None else load_backlog(connection, self._database, row)

        return await self._database.read(load_queue)

    async def get_lag(self, run: str) -> QueueLag:
        return await self._database.read(lambda connection: load_lag(connection, run))

    async def get_newest_group_body(self, run: str) -> bytes | None:
        newest = (
            select(bodies.c.body)
            .where(bodies.c.run == run, bodies.c.body.is_not(None))
            .order_by(bodies.c.body_id.desc())
            .limit(1)
        )
        return await self._database.read(lambda connection: connection.execute(newest).scalar())

    async def reset(self, run: str) -> None:
        await self._database.write(lambda connection: _delete_run(connection, run), _build_order_key(run))

    async def list_runs(self, limit: int) -> list[str]:
        named = select(trajectory_runs.c.run).order_by(trajectory_runs.c.run).limit(limit)
        return await self._database.read(lambda connection: list(connection.execute(named).scalars()))


def _build_order_key(run: str) -> str:
    return f"trajectories {run}"


def _ensure_run(connection: Connection, database: Database, run: str) -> None:
    stamp = database.read_clock()
    _INSERT_RUN.run(connection, run=run, started=False, batches=0, step_before=0, turns="{}", created_at=stamp)


def _register_trainer(connection: Connection, database: Database, run: str, registration: TrainerRegistration) -> None:
    _ensure_run(connection, database, run)
    said = registration.model_dump_json()
    here = select(trajectory_runs).where(trajectory_runs.c.run == run).with_for_update()
    row = connection.execute(here).mappings().one()
    if row["registration"] != said:
        begins = {"registration": said, "step_before": registration.starting_step - row["batches"]}
        connection.execute(update(trajectory_runs).where(trajectory_runs.c.run == run).values(begins))


def _add_client(connection: Connection, database: Database, run: str, joining: EnvRegistration) -> EnvClient | None:
    row = lock_run(connection, database, run)
    if row is None or not row.started:
        return None
    mine = (env_clients.c.run == run,)
    env_id = connection.execute(select(func.count()).select_from(env_clients).where(*mine)).scalar_one()
    wanted = f"{joining.desired_name}_"
    names = (one.name for one in row.env_clients if one.registration.desired_name == joining.desired_name)
    name = f"{wanted}{sum(1 for _ in names)}"
    stamp = database.read_clock()
    values = {
        "run": run,
        "env_id": env_id,
        "name": encode_json(name),
        "said": joining.model_dump_json(),
        "connected": True,
        "seen_at": stamp,
    }
    connection.execute(insert(env_clients).values(values))
    return EnvClient(env_id=env_id, name=name, registration=joining, connected=True, seen_at=from_micros(stamp))


def _update_clients(connection: Connection, run: str, env_ids: Collection[int], values: dict[str, int | bool]) -> int:
    known = sorted(env_id for env_id in env_ids if 0 <= env_id < ENV_ID_LIMIT)
    statement = update(env_clients).where(env_clients.c.run == run, env_clients.c.env_id.in_(known)).values(values)
    return connection.execute(statement).rowcount


def _add_groups(connection: Connection, database: Database, run: str, groups: Sequence[PackedGroup]) -> int:
    new = 0
    for start in range(0, len(groups), MAX_GROUPS_PER_STATEMENT):
        new += _add_chunk(connection, database, run, groups[start : start + MAX_GROUPS_PER_STATEMENT])
    return new


def _add_chunk(connection: Connection, database: Database, run: str, groups: Sequence[PackedGroup]) -> int:
    """Adds many groups with the same number of statements as one."""
    stamp = database.read_clock()
    firsts: dict[str, PackedGroup] = {}
    for group in groups:
        firsts.setdefault(group.digest, group)
    known = _find_body_ids(connection, run, firsts, stamp - DUPLICATE_WINDOW_SECONDS * 1_000_000)
    new = {digest: group for digest, group in firsts.items() if digest not in known}
    if new:
        _ensure_run(connection, database, run)
        insert_rows(connection, bodies, [_build_body_row(run, group, stamp) for group in new.values()])
        ids = _find_body_ids(connection, run, new, stamp)
        step = next((row.step for row in _SELECT_STEP.run(connection, run=run)), None)
        insert_rows(
            connection,
            trajectory_groups,
            [_build_queue_row(run, group, ids[digest], step) for digest, group in new.items()],
        )
    return len(new)


def _find_body_ids(connection: Connection, run: str, digests: Collection[str], since: int) -> dict[str, int]:
    """Ids of the existing bodies, by digest."""
    sought = dict(zip(_name_digest_parameters(len(digests)), digests, strict=True))
    found = _prepare_body_query(len(digests)).run(connection, run=run, since=since, **sought)
    return {row.digest: row.body_id for row in found}


@lru_cache(maxsize=64)
def _prepare_body_query(count: int) -> PreparedStatement:
    among = bodies.c.digest.in_([bindparam(name) for name in _name_digest_parameters(count)])
    here = (bodies.c.run == bindparam("run"), among, bodies.c.created_at >= bindparam("since"))
    return PreparedStatement(lambda _: select(bodies.c.digest, bodies.c.body_id).where(*here))


def _name_digest_parameters(count: int) -> list[str]:
    return [f"digest_{number}" for number in range(count)]


def _build_body_row(run: str, group: PackedGroup, stamp: int) -> Row:
    return {"run": run, "digest": group.digest, "created_at": stamp, "body": group.body}


def _build_queue_row(run: str, group: PackedGroup, body_id: int, step: int | None) -> Row:
    return {
        "run": run,
        "env_id": _validate_env_id(group.env_id),
        "body_id": body_id,
        "first": 0,
        "size": group.size,
        "whole": True,
        "passed": 0,
        "batch": None,
        "place": None,
        "step": step,
    }


def _validate_env_id(env_id: int | None) -> int | None:
    return env_id if env_id is not None and 0 <= env_id < ENV_ID_LIMIT else None


def _delete_run(connection: Connection, run: str) -> None:
    for table in (trajectory_groups, bodies, batches, env_clients, trajectory_runs):
        connection.execute(delete(table).where(table.c.run == run))
