"""The stored queue of Atropos groups: bodies, places in the queue, and batches that were handed out.

A group's text is compressed in `trajectory_bodies` and read only when it is handed out; the rows that are counted and
ordered are small. A body's digest stays for some minutes after its delivery, so that an environment that posts again
after a timeout does not queue its group twice.

A batch that was handed out has a holder: the process that is sending it, nobody (its reply broke off), or `sent`. The
next request deletes what was sent and hands out again what has no living holder. On SQLite another process's batches
are its own former life's; on PostgreSQL they may be in transit, so they are given a minute.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from pydantic import TypeAdapter
from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Index,
    LargeBinary,
    RowMapping,
    Text,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlmodel import Field

from app.features.atropos.model import (
    BatchFormer,
    BatchNotReady,
    BatchPart,
    BatchPlan,
    EnvClient,
    EnvRegistration,
    PackedGroup,
    QueueCount,
    QueuedGroup,
    QueueLag,
    TrainerRegistration,
    TrajectoryBacklog,
    TrajectoryBatch,
    TrajectoryRun,
)
from app.store.database import Database, StorePart, insert_new, reads, writes
from app.store.statements import PreparedStatement, Row, encode_json, from_micros, insert_rows, is_storable
from app.store.table_records import TableRecord, build_partial_index, build_sequence_column, get_table


class TrajectoryRunTable(TableRecord, table=True):
    """`batches` counts formed batches; the trainer's step is `step_before` plus that. `turns` is a JSON object."""

    __tablename__ = "trajectory_runs"
    run: str = Field(primary_key=True)
    registration: str | None = Field(default=None, sa_type=Text)
    started: bool
    batches: int = Field(sa_type=BigInteger)
    step_before: int = Field(sa_type=BigInteger)
    turns: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class EnvClientTable(TableRecord, table=True):
    """A registered environment of a run. `said` is its registration as JSON."""

    __tablename__ = "trajectory_feeders"
    run: str = Field(primary_key=True)
    env_id: int = Field(primary_key=True, sa_type=BigInteger)
    name: str = Field(sa_type=Text)
    said: str = Field(sa_type=Text)
    connected: bool
    seen_at: int = Field(sa_type=BigInteger)


class TrajectoryBodyTable(TableRecord, table=True):
    """A compressed group. After delivery the body is deleted; the row stays for a while to recognise duplicates."""

    __tablename__ = "trajectory_bodies"
    __table_args__ = (
        Index("ix_trajectory_bodies_digest", "run", "digest", "created_at"),
        build_partial_index("ix_trajectory_bodies_kept", "run", "body_id", where="body IS NOT NULL"),
        build_partial_index("ix_trajectory_bodies_spent", "run", "created_at", where="body IS NULL"),
        {"sqlite_autoincrement": True},
    )
    body_id: int = Field(sa_column=build_sequence_column("body_id"))
    run: str
    digest: str
    created_at: int = Field(sa_type=BigInteger)
    body: bytes | None = Field(default=None, sa_type=LargeBinary)


class TrajectoryGroupTable(TableRecord, table=True):
    """Sequences `first` to `first + size` of a body, queued or in a batch. Rows are small, since they are counted
    often."""

    __tablename__ = "trajectory_groups"
    __table_args__ = (
        build_partial_index(
            "ix_trajectory_groups_line", "run", "env_id", "size", "sequence", "passed", "whole", where="batch IS NULL"
        ),
        build_partial_index("ix_trajectory_groups_batch", "run", "batch", "place", where="batch IS NOT NULL"),
        Index("ix_trajectory_groups_body", "body_id"),
        {"sqlite_autoincrement": True},
    )
    sequence: int = Field(sa_column=build_sequence_column("sequence"))
    run: str
    env_id: int | None = Field(default=None, sa_type=BigInteger)
    body_id: int = Field(sa_type=BigInteger)
    first: int
    size: int
    whole: bool
    passed: int
    batch: int | None = Field(default=None, sa_type=BigInteger)
    place: int | None = None
    step: int | None = Field(default=None, sa_type=BigInteger)
    """The trainer's step when the group was posted; null before one had registered."""


class TrajectoryBatchTable(TableRecord, table=True):
    """A batch that was handed out and is not confirmed. `holder` identifies the process that handed it out,
    or says that it was sent."""

    __tablename__ = "trajectory_batches"
    run: str = Field(primary_key=True)
    number: int = Field(primary_key=True, sa_type=BigInteger)
    holder: str
    handed_at: int = Field(sa_type=BigInteger)


trajectory_runs = get_table(TrajectoryRunTable)
env_clients = get_table(EnvClientTable)
bodies = get_table(TrajectoryBodyTable)
trajectory_groups = get_table(TrajectoryGroupTable)
batches = get_table(TrajectoryBatchTable)
DUPLICATE_WINDOW_SECONDS = 300
"""How long duplicates of a group are recognised. Atropos environments stop retrying after about 30 seconds."""
_ENV_ID_LIMIT = 2**31
"""Groups with a larger environment id are queued without an environment."""
MAX_GROUPS_PER_STATEMENT = 500
"""Maximum number of groups per statement, since the number of parameters is limited."""


def _build_order_key(run: str, *_: object) -> str:
    return f"trajectories {run}"


class TrajectoryQueue(StorePart):
    """Queues of groups from external environments to trainers, one per run."""

    @writes(_build_order_key)
    def register(self, connection: Connection, run: str, registration: TrainerRegistration) -> None:
        """Registers a trainer. A different registration replaces the old one and resets the step; the queue stays."""
        _ensure_run(connection, self.database, run)
        text = registration.model_dump_json()
        here = select(trajectory_runs).where(trajectory_runs.c.run == run).with_for_update()
        row = connection.execute(here).mappings().one()
        # The same trainer again, as after a timeout, goes on where it was; another registration begins at its own step.
        if row["registration"] != text:
            begins = {"registration": text, "step_before": registration.starting_step - row["batches"]}
            connection.execute(update(trajectory_runs).where(trajectory_runs.c.run == run).values(begins))

    @writes(_build_order_key)
    def join(self, connection: Connection, run: str, joining: EnvRegistration) -> EnvClient | None:
        """Registers an environment; None before a trainer has requested a batch."""
        row = _lock_run(connection, self.database, run)
        if row is None or not row.started:
            return None
        mine = (env_clients.c.run == run,)
        env_id = connection.execute(select(func.count()).select_from(env_clients).where(*mine)).scalar_one()
        namesakes = sum(one.registration.desired_name == joining.desired_name for one in row.env_clients)
        name = f"{joining.desired_name}_{namesakes}"
        stamp = self.database.read_clock()
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

    @writes(_build_order_key)
    def leave(self, connection: Connection, run: str, env_id: int) -> bool:
        """Marks an environment as disconnected. Returns whether it exists."""
        return _update_clients(connection, run, [env_id], {"connected": False}) > 0

    @writes(_build_order_key)
    def record_heartbeat(self, connection: Connection, run: str, env_id: int) -> None:
        """Records a heartbeat of an environment."""
        _update_clients(connection, run, [env_id], {"seen_at": self.database.read_clock()})

    @writes(_build_order_key)
    def add(self, connection: Connection, run: str, groups: Sequence[PackedGroup]) -> int:
        """Adds groups and returns how many are new. Digests seen within the last minutes are duplicates."""
        new = 0
        for start in range(0, len(groups), MAX_GROUPS_PER_STATEMENT):
            new += _add_chunk(connection, self.database, run, groups[start : start + MAX_GROUPS_PER_STATEMENT])
        return new

    @writes(_build_order_key)
    def take_batch(
        self, connection: Connection, run: str, life: str, sent: Collection[int], form: BatchFormer
    ) -> TrajectoryBatch | BatchNotReady | None:
        """The next batch, or one that was not delivered; None without a trainer. `life` identifies this process: an
        unconfirmed batch of another process counts as not delivered. `sent` are batches that now count as delivered;
        so do those that any process has recorded."""
        row = _lock_run(connection, self.database, run)
        known_since = self.database.read_clock() - DUPLICATE_WINDOW_SECONDS * 1_000_000
        _delete_delivered(connection, run, _find_sent(connection, run).union(sent), known_since)
        return None if row is None else _hand_out_batch(connection, self.database, row, life, form)

    @writes(_build_order_key)
    def record_sent(self, connection: Connection, run: str, numbers: Collection[int]) -> None:
        """Records that these batches went out in full. They are delivered when any process is asked for the next."""
        statement = update(batches).where(batches.c.run == run, batches.c.number.in_(sorted(numbers)))
        connection.execute(statement.values(holder=_SENT))

    @writes(_build_order_key)
    def return_batch(self, connection: Connection, run: str, number: int) -> None:
        """Marks a batch that could not be sent, so that it is handed out again."""
        statement = update(batches).where(batches.c.run == run, batches.c.number == number)
        connection.execute(statement.values(holder=""))

    @reads
    def get_run(self, connection: Connection, run: str, life: str) -> TrajectoryRun:
        if not is_storable(run):
            return TrajectoryRun(run=run)
        row = connection.execute(select(trajectory_runs).where(trajectory_runs.c.run == run)).mappings().first()
        if row is None:
            return TrajectoryRun(run=run)
        groups = trajectory_groups.c
        numbers = select(batches.c.number).where(*_match_undelivered(self.database, run, life))
        lost = list(connection.execute(numbers).scalars())
        counted = select(groups.env_id, groups.size, func.count()).where(groups.run == run)
        counted = counted.group_by(groups.env_id, groups.size)
        counts = [tuple(each) for each in connection.execute(counted.where(_IS_WAITING))]
        if lost:
            counts += [tuple(each) for each in connection.execute(counted.where(groups.batch.in_(lost)))]
        registered = row["registration"]
        return TrajectoryRun(
            run=run,
            registration=None if registered is None else TrainerRegistration.model_validate_json(registered),
            started=row["started"],
            step=row["step_before"] + row["batches"] - len(lost),
            env_clients=_load_clients(connection, run),
            queue_counts=tuple(QueueCount(*each) for each in counts),
            undelivered=len(lost),
        )

    @reads
    def get_backlog(self, connection: Connection, run: str) -> TrajectoryBacklog | None:
        """The input for forming the next batch; None without a trainer."""
        row = _load_run(connection, run)
        return None if row is None else _load_backlog(connection, self.database, row)

    @reads
    def get_lag(self, connection: Connection, run: str) -> QueueLag:
        """How long the groups in the queue have waited, in the trainer's steps."""
        runs, groups = trajectory_runs.c, trajectory_groups.c
        lag = runs.step_before + runs.batches - groups.step
        counted = [case((lag >= 0, one)) for one in (literal_column("1"), lag)]
        statement = (
            select(func.count(counted[0]), func.sum(counted[1]), func.max(counted[1]), func.count(case((lag < 0, 1))))
            .select_from(trajectory_groups.join(trajectory_runs, runs.run == groups.run))
            .where(groups.run == run, _IS_WAITING, groups.step.is_not(None))
        )
        count, total, largest, older = connection.execute(statement).one()
        return QueueLag(count, float(total / count) if count else None, largest, older)

    @reads
    def get_newest_group_body(self, connection: Connection, run: str) -> bytes | None:
        """The body of the newest group; None when the run had none."""
        newest = (
            select(bodies.c.body)
            .where(bodies.c.run == run, bodies.c.body.is_not(None))
            .order_by(bodies.c.body_id.desc())
            .limit(1)
        )
        return connection.execute(newest).scalar()

    @writes(_build_order_key)
    def reset(self, connection: Connection, run: str) -> None:
        """Deletes everything about the run."""
        for table in (trajectory_groups, bodies, batches, env_clients, trajectory_runs):
            connection.execute(delete(table).where(table.c.run == run))

    @reads
    def list_runs(self, connection: Connection, limit: int) -> list[str]:
        """By name."""
        named = select(trajectory_runs.c.run).order_by(trajectory_runs.c.run).limit(limit)
        return list(connection.execute(named).scalars())


# Runs, environments, and the state of a queue.

_SENT = "sent"
"""The holder of a batch whose reply went out in full, whatever becomes of the process that sent it."""
IN_TRANSIT_SECONDS = 60
"""On PostgreSQL: how long a batch handed out by another process counts as in transit."""
_NAME = TypeAdapter(str)
_TURNS = TypeAdapter(dict[int, float])
_NO_ENVIRONMENT_KEY = -1
"""The key in `turns` for groups without an environment."""
_IS_WAITING = trajectory_groups.c.batch.is_(None)


@dataclass(frozen=True)
class TrajectoryRunRow:
    """A run with a registered trainer."""

    run: str
    registration: TrainerRegistration
    started: bool
    batches: int
    step_before: int
    turns: Mapping[int | None, float]
    env_clients: tuple[EnvClient, ...]


def _lock_run(connection: Connection, database: Database, run: str) -> TrajectoryRunRow | None:
    """The run, locked until the transaction ends; None without a trainer."""
    if database.postgres:
        connection.execute(select(trajectory_runs.c.run).where(trajectory_runs.c.run == run).with_for_update())
    return _load_run(connection, run)


def _load_run(connection: Connection, run: str) -> TrajectoryRunRow | None:
    row = connection.execute(select(trajectory_runs).where(trajectory_runs.c.run == run)).mappings().first()
    if row is None or row["registration"] is None:
        return None
    turns = {
        None if key == _NO_ENVIRONMENT_KEY else key: turn for key, turn in _TURNS.validate_json(row["turns"]).items()
    }
    return TrajectoryRunRow(
        run=run,
        registration=TrainerRegistration.model_validate_json(row["registration"]),
        started=row["started"],
        batches=row["batches"],
        step_before=row["step_before"],
        turns=turns,
        env_clients=_load_clients(connection, run),
    )


def _load_clients(connection: Connection, run: str) -> tuple[EnvClient, ...]:
    rows = connection.execute(
        select(env_clients).where(env_clients.c.run == run).order_by(env_clients.c.env_id)
    ).mappings()
    return tuple(_parse_client(row) for row in rows)


def _parse_client(row: RowMapping) -> EnvClient:
    return EnvClient(
        env_id=row["env_id"],
        name=_NAME.validate_json(row["name"]),
        registration=EnvRegistration.model_validate_json(row["said"]),
        connected=row["connected"],
        seen_at=from_micros(row["seen_at"]),
    )


def _load_backlog(connection: Connection, database: Database, row: TrajectoryRunRow) -> TrajectoryBacklog:
    """The queue of a run. Reads, per environment and size, only what could fit into one batch plus one group."""
    groups = trajectory_groups.c
    here = (groups.run == row.run, _IS_WAITING)
    size = max(1, row.registration.batch_size)
    rank = func.row_number().over(partition_by=(groups.env_id, groups.size), order_by=groups.sequence)
    ranked = select(
        groups.sequence, groups.env_id, groups.size, groups.passed, groups.whole, rank.label("place")
    ).where(*here)
    inner = ranked.subquery("ranked")
    chosen = (
        select(inner.c.sequence, inner.c.env_id, inner.c.size, inner.c.passed, inner.c.whole)
        .where((inner.c.place - 1) * inner.c.size <= size)
        .order_by(inner.c.sequence)
    )
    return TrajectoryBacklog(
        batch_size=row.registration.batch_size,
        waiting=tuple(QueuedGroup(*queued) for queued in connection.execute(chosen)),
        sequences=connection.execute(select(func.coalesce(func.sum(groups.size), 0)).where(*here)).scalar_one(),
        env_clients=row.env_clients,
        turns=row.turns,
        now=from_micros(database.read_clock()),
    )


def _match_undelivered(database: Database, run: str, life: str) -> tuple[ColumnElement[bool], ...]:
    """Conditions for batches that must be handed out again."""
    mine = (batches.c.run == run, batches.c.holder.not_in([life, _SENT]))
    if not database.postgres:
        return mine
    arrived_by = database.read_clock() - IN_TRANSIT_SECONDS * 1_000_000
    return (*mine, (batches.c.handed_at <= arrived_by) | (batches.c.holder == literal_column("''")))


# Registration.


def _build_parameters(*names: str) -> dict[str, BindParameter[object]]:
    return {name: bindparam(name) for name in names}


_INSERT_RUN = PreparedStatement(
    lambda postgres: insert_new(trajectory_runs, postgres).values(
        _build_parameters("run", "started", "batches", "step_before", "turns", "created_at")
    )
)


def _ensure_run(connection: Connection, database: Database, run: str) -> None:
    stamp = database.read_clock()
    _INSERT_RUN.run(connection, run=run, started=False, batches=0, step_before=0, turns="{}", created_at=stamp)


def _update_clients(connection: Connection, run: str, env_ids: Collection[int], values: dict[str, int | bool]) -> int:
    possible = sorted(env_id for env_id in env_ids if 0 <= env_id < _ENV_ID_LIMIT)
    statement = update(env_clients).where(env_clients.c.run == run, env_clients.c.env_id.in_(possible)).values(values)
    return connection.execute(statement).rowcount


# Groups that are posted.

_SELECT_STEP = PreparedStatement(
    lambda _: select((trajectory_runs.c.step_before + trajectory_runs.c.batches).label("step")).where(
        trajectory_runs.c.run == bindparam("run"), trajectory_runs.c.registration.is_not(None)
    )
)


def _add_chunk(connection: Connection, database: Database, run: str, groups: Sequence[PackedGroup]) -> int:
    """Adds many groups with the same number of statements as one."""
    stamp = database.read_clock()
    firsts: dict[str, PackedGroup] = {}
    for group in groups:
        firsts.setdefault(group.digest, group)
    stored = _find_body_ids(connection, run, firsts, stamp - DUPLICATE_WINDOW_SECONDS * 1_000_000)
    new = {digest: group for digest, group in firsts.items() if digest not in stored}
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
    parameters = dict(zip(_name_digest_parameters(len(digests)), digests, strict=True))
    rows = _prepare_body_query(len(digests)).run(connection, run=run, since=since, **parameters)
    return {row.digest: row.body_id for row in rows}


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
    return env_id if env_id is not None and 0 <= env_id < _ENV_ID_LIMIT else None


# Batches: undelivered ones first, then new ones. Delivered batches are deleted.


def _hand_out_batch(
    connection: Connection, database: Database, row: TrajectoryRunRow, life: str, form: BatchFormer
) -> TrajectoryBatch | BatchNotReady:
    """Hands out one batch within the transaction of `connection`, which has locked the run."""
    if not row.started:
        _update_run(connection, row.run, {"started": True})
    again = _hand_out_again(connection, database, row.run, life)
    if again is not None:
        return again
    formed = form(_load_backlog(connection, database, row))
    if isinstance(formed, BatchNotReady):
        return formed
    if not formed.shares:  # of a pure function: cannot happen, and would be an endless row of empty batches
        raise ValueError("a batch without groups")
    number = row.batches + 1
    _assign_groups(connection, row.run, number, formed)
    connection.execute(insert(batches).values(run=row.run, number=number, holder=life, handed_at=database.read_clock()))
    _update_run(connection, row.run, {"batches": number, "turns": _encode_turns(formed.turns)})
    return TrajectoryBatch(number, _load_parts(connection, row.run, number), again=False)


def _hand_out_again(connection: Connection, database: Database, run: str, life: str) -> TrajectoryBatch | None:
    """The first batch whose delivery is not known, if there is one."""
    lost = select(batches.c.number).where(*_match_undelivered(database, run, life)).order_by(batches.c.number).limit(1)
    number = connection.execute(lost).scalar()
    if number is None:
        return None
    mine = (batches.c.run == run, batches.c.number == number)
    held = {"holder": life, "handed_at": database.read_clock()}
    connection.execute(update(batches).where(*mine).values(held))
    return TrajectoryBatch(number, _load_parts(connection, run, number), again=True)


def _update_run(connection: Connection, run: str, values: Mapping[str, object]) -> None:
    connection.execute(update(trajectory_runs).where(trajectory_runs.c.run == run).values(values))


def _encode_turns(turns: Mapping[int | None, float]) -> str:
    return encode_json({str(_NO_ENVIRONMENT_KEY if key is None else key): turn for key, turn in turns.items()})


def _assign_groups(connection: Connection, run: str, number: int, formed: BatchPlan) -> None:
    groups = trajectory_groups
    taken = {share.sequence: share.size for share in formed.shares}
    statement = select(groups).where(groups.c.run == run, groups.c.sequence.in_(taken))
    rows = {row["sequence"]: row for row in connection.execute(statement).mappings()}
    for place, share in enumerate(formed.shares):
        _assign_slice(connection, rows[share.sequence], share.size, number, place)
    if formed.passed_over is not None:
        first = update(groups).where(groups.c.sequence == formed.passed_over)
        connection.execute(first.values(passed=groups.c.passed + 1))


def _assign_slice(connection: Connection, row: RowMapping, size: int, number: int, place: int) -> None:
    """Assigns the whole row, or its first `size` sequences, and leaves the rest in the queue."""
    groups = trajectory_groups
    here = update(groups).where(groups.c.sequence == row["sequence"])
    if size == row["size"]:
        connection.execute(here.values(batch=number, place=place))
        return
    rest = {"first": row["first"] + size, "size": row["size"] - size, "whole": False, "passed": 0}
    connection.execute(here.values(rest))
    piece = {name: row[name] for name in ("run", "env_id", "body_id", "first", "passed", "step")}
    connection.execute(insert(groups).values({**piece, "size": size, "whole": False, "batch": number, "place": place}))


def _load_parts(connection: Connection, run: str, number: int) -> tuple[BatchPart, ...]:
    groups = trajectory_groups.c
    statement = (
        select(bodies.c.body, groups.first, groups.size, groups.whole)
        .select_from(trajectory_groups.join(bodies, bodies.c.body_id == groups.body_id))
        .where(groups.run == run, groups.batch == number)
        .order_by(groups.place)
    )
    return tuple(BatchPart(*part) for part in connection.execute(statement))


def _find_sent(connection: Connection, run: str) -> set[int]:
    sent = select(batches.c.number).where(batches.c.run == run, batches.c.holder == _SENT)
    return set(connection.execute(sent).scalars())


def _delete_delivered(connection: Connection, run: str, numbers: Collection[int], known_since: int) -> None:
    """Deletes delivered batches. Digests of their groups stay until they are older than `known_since`, and the body of
    the run's newest group stays as an example."""
    if not numbers:
        return
    groups = trajectory_groups
    gone = (groups.c.run == run, groups.c.batch.in_(numbers))
    ids = set(connection.execute(select(groups.c.body_id).where(*gone)).scalars())
    connection.execute(delete(groups).where(*gone))
    connection.execute(delete(batches).where(batches.c.run == run, batches.c.number.in_(numbers)))
    if ids:
        _delete_bodies(connection, run, max(ids), known_since)


def _delete_bodies(connection: Connection, run: str, last: int, known_since: int) -> None:
    has_body = bodies.c.body.is_not(None)
    newest = connection.execute(select(func.max(bodies.c.body_id)).where(bodies.c.run == run, has_body)).scalar()
    unneeded = (
        bodies.c.run == run,
        has_body,
        bodies.c.body_id <= last,
        bodies.c.body_id != newest,
        ~exists().where(trajectory_groups.c.body_id == bodies.c.body_id),
    )
    connection.execute(update(bodies).where(*unneeded).values(body=None))
    connection.execute(delete(bodies).where(bodies.c.run == run, ~has_body, bodies.c.created_at < known_since))
