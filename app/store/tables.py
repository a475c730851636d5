"""Table classes. They never leave the store.

Moments are microseconds since 1970 in UTC. Columns that may hold a model's or a player's words are JSON texts with NUL
and lone surrogates escaped, which both databases accept; everything else is an identifier of ours. Where a long text is
`packed`, its own column is empty.
"""

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, Integer, LargeBinary, String, Text, text
from sqlmodel import Field

import app.store.author_tables  # so that whoever has these tables has all
import app.store.event_tables
import app.store.health_tables
import app.store.judge_tables
import app.store.label_tables
import app.store.lease_tables
import app.store.part_tables
import app.store.play_tables
import app.store.retention_tables
import app.store.rollup_tables
import app.store.sheet_tables
import app.store.text_tables
import app.store.trajectory_tables  # noqa: F401
from app.store.table_records import TableRecord, build_partial_index, build_sequence_column, get_table
from app.store.table_records import metadata as metadata


class PromptTable(TableRecord, table=True):
    """A prompt of a policy or a judge, stored once per digest of `body`."""

    __tablename__ = "prompts"
    digest: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)
    packed: bytes | None = Field(default=None, sa_type=LargeBinary)
    """Of judges' prompts alone: whoever scores needs those of tasks, services of the schema before too."""


class TaskTable(TableRecord, table=True):
    __tablename__ = "tasks"
    __table_args__ = (
        Index("ix_tasks_prompt", "prompt_digest"),
        build_partial_index("ix_tasks_label", "label", "environment", where="label IS NOT NULL"),
        build_partial_index("ix_tasks_scene", "scene", "task_id", "label", where="scene IS NOT NULL"),
    )
    task_id: str = Field(primary_key=True)
    environment: str
    version: str
    data_digest: str
    split: str
    index: int = Field(sa_type=BigInteger)
    params: str = Field(sa_type=Text)
    params_digest: str
    context: str | None = Field(default=None, sa_type=Text)
    prompt_digest: str = Field(foreign_key="prompts.digest")
    title: str = Field(sa_type=Text)
    """JSON string: the last user message of the prompt, shortened."""
    created_at: int = Field(sa_type=BigInteger)
    label: str | None = Field(default=None, sa_type=Text)
    """JSON string: the label by which statistics are broken down."""
    dataset: str | None = Field(default=None, sa_type=Text)
    """JSON string: the name of the data set that the task is from."""
    scene: str | None = Field(default=None, sa_type=Text)
    """JSON string: the name of the scene that it plays in."""


class RunTable(TableRecord, table=True):
    __tablename__ = "runs"
    name: str = Field(primary_key=True)
    seed: int = Field(sa_type=BigInteger)
    strict: bool
    options: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)
    budget_usd: float | None = None
    max_lag: int | None = Field(default=None, sa_type=BigInteger)
    lag_policy: str = Field(sa_column=Column(String(), nullable=False, server_default="flag"))
    health: str | None = Field(default=None, sa_type=Text)
    held: str | None = Field(default=None, sa_type=Text)
    min_agreement: float | None = None
    keep: str | None = Field(default=None, sa_type=Text)
    """What stays of its scored groups, if it says so."""


class PinTable(TableRecord, table=True):
    __tablename__ = "pins"
    run: str = Field(primary_key=True, foreign_key="runs.name")
    environment: str = Field(primary_key=True)
    version: str
    scoring_digest: str
    parts: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class GroupTable(TableRecord, table=True):
    """A group, with counts and sums over its rollouts, so that statistics need not read them."""

    __tablename__ = "groups"
    __table_args__ = (
        Index("ix_groups_environment", "environment", "sequence"),
        Index("ix_groups_run", "run", "sequence"),
        Index("ix_groups_run_environment", "run", "environment", "sequence"),
        Index("ix_groups_task", "task_id", "sequence"),
        Index("ix_groups_created_at", "created_at", "sequence"),
        build_partial_index("ix_groups_open", "outcome", "sequence", where="outcome <> 'scored'"),
        build_partial_index("ix_groups_open_run", "run", "outcome", "sequence", where="outcome <> 'scored'"),
        build_partial_index(
            "ix_groups_open_environment", "environment", "outcome", "sequence", where="outcome <> 'scored'"
        ),
        build_partial_index("ix_groups_eval", "sequence", where="purpose = 'eval'"),
        build_partial_index("ix_groups_eval_run", "run", "sequence", where="purpose = 'eval'"),
        build_partial_index("ix_groups_eval_environment", "environment", "sequence", where="purpose = 'eval'"),
        build_partial_index("ix_groups_uncounted", "sequence", where="counted = 0"),
        {"sqlite_autoincrement": True},
    )
    sequence: int = Field(sa_column=build_sequence_column())
    group_id: str = Field(unique=True)
    task_id: str = Field(foreign_key="tasks.task_id")
    environment: str
    run: str | None
    step: int | None = Field(sa_type=BigInteger)
    purpose: str
    outcome: str
    size: int
    scored: int
    unscored: int
    mean: float | None
    std: float | None
    reward_sum: float
    """Sum over scored rollouts."""
    absolute_sum: float
    """Sum of gate x absolute over the `absolute_count` scored rollouts with an absolute part."""
    absolute_count: int
    head: str = Field(sa_type=Text)
    """Policy, lease id and flags."""
    created_at: int = Field(sa_type=BigInteger)
    low_signal: int = Field(sa_column=Column(Integer(), nullable=False, server_default=text("0")))
    """1 if the group is scored and has a low signal."""
    counted: int = Field(sa_column=Column(Integer(), nullable=False, server_default=text("0")))
    """1 if rollups include the group."""
    lag: int | None = Field(default=None, sa_type=BigInteger)
    stale: int = Field(sa_column=Column(Integer(), nullable=False, server_default=text("0")))
    """1 if the group is flagged `stale`."""
    reduced: int | None = None
    """The bits of parts that are not kept, as in `reduced_parts`; null where all are."""


class RolloutTable(TableRecord, table=True):
    __tablename__ = "rollouts"
    group_sequence: int = Field(primary_key=True, foreign_key="groups.sequence", sa_type=BigInteger)
    position: int = Field(primary_key=True)
    rollout_id: str
    outcome: str
    reason: str | None
    reward: float | None
    gate: float | None
    absolute: float | None
    relative: float | None
    calibrated: float | None = None
    calibrated_error: float | None = None
    uncalibrated: str | None = None
    score: str = Field(sa_type=Text)
    completion: str = Field(sa_type=Text)
    reduced: str | None = Field(default=None, sa_type=Text)
    """What stands for parts of the completion that are not kept."""
    packed: bytes | None = Field(default=None, sa_type=LargeBinary)


class ScoreTable(TableRecord, table=True):
    """One criterion of a scored rollout, for means. The whole score is in `rollouts.score`."""

    __tablename__ = "scores"
    __table_args__ = (
        ForeignKeyConstraint(["group_sequence", "position"], ["rollouts.group_sequence", "rollouts.position"]),
        {"sqlite_with_rowid": False},
    )
    group_sequence: int = Field(primary_key=True, sa_type=BigInteger)
    position: int = Field(primary_key=True)
    ordinal: int = Field(primary_key=True)
    name: str
    value: float | None
    weight: float


class ScoringTable(TableRecord, table=True):
    """A new scoring of a group. The original scores stay in `rollouts`."""

    __tablename__ = "scorings"
    sequence: int = Field(sa_column=build_sequence_column())
    scoring_id: str = Field(unique=True)
    group_sequence: int = Field(foreign_key="groups.sequence", sa_type=BigInteger, index=True)
    scoring_digest: str
    outcome: str
    head: str = Field(sa_type=Text)
    """Options, judges, mode and flags."""
    created_at: int = Field(sa_type=BigInteger)


class RescoreTable(TableRecord, table=True):
    """The score of one rollout in a new scoring."""

    __tablename__ = "rescores"
    __table_args__ = ({"sqlite_with_rowid": False},)
    scoring_sequence: int = Field(primary_key=True, foreign_key="scorings.sequence", sa_type=BigInteger)
    position: int = Field(primary_key=True)
    outcome: str
    reason: str | None
    reward: float | None
    gate: float | None
    absolute: float | None
    relative: float | None
    calibrated: float | None = None
    calibrated_error: float | None = None
    uncalibrated: str | None = None
    score: str = Field(sa_type=Text)


class IdempotencyKeyTable(TableRecord, table=True):
    """Used idempotency keys. Only digests are stored, since clients choose the keys."""

    __tablename__ = "idempotency_keys"
    key_digest: str = Field(primary_key=True)
    body_digest: str
    created_at: int = Field(sa_type=BigInteger)


class ApiKeyTable(TableRecord, table=True):
    """`digest` is the SHA-256 of the secret. The secret itself is not stored."""

    __tablename__ = "api_keys"
    key_id: int = Field(sa_column=build_sequence_column("key_id"))
    digest: str = Field(unique=True)
    created_at: int = Field(sa_type=BigInteger)


class NamedKeyTable(TableRecord, table=True):
    """`digest` is the SHA-256 of the present secret. `body` is the whole key as JSON, without any secret."""

    __tablename__ = "named_keys"
    name: str = Field(primary_key=True)
    digest: str = Field(unique=True)
    body: str = Field(sa_type=Text)


class AdminActionTable(TableRecord, table=True):
    """What was done to keys, by whom. Entries are never changed."""

    __tablename__ = "admin_actions"
    __table_args__ = ({"sqlite_autoincrement": True},)
    sequence: int = Field(sa_column=build_sequence_column())
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class SignInTable(TableRecord, table=True):
    """Browsers in which a person gave a key: digests of the cookie's value and of the key."""

    __tablename__ = "sign_ins"
    digest: str = Field(primary_key=True)
    key_digest: str
    expires_at: int = Field(sa_type=BigInteger)


class KeyUsageTable(TableRecord, table=True):
    """What a key has used on a UTC day, counted from 1970, in parts: each process adds to its own, so that none waits
    for another's."""

    __tablename__ = "key_usage"
    key: str = Field(primary_key=True)
    day: int = Field(primary_key=True, sa_type=BigInteger)
    part: int = Field(primary_key=True)
    requests: int = Field(sa_type=BigInteger)
    judge_tokens: int = Field(sa_type=BigInteger)
    judge_usd: float


class KeyHoldTable(TableRecord, table=True):
    """What is reserved for a leased task until its group is scored. `hold` is the lease, or stands for a batch until
    `until`, while its tasks are made."""

    __tablename__ = "key_holds"
    hold: str = Field(primary_key=True)
    key: str = Field(index=True)
    leases: int
    judge_tokens: int = Field(sa_type=BigInteger)
    judge_usd: float
    until: int | None = Field(default=None, sa_type=BigInteger)


class KeyAdmissionTable(TableRecord, table=True):
    """Until when groups of a run that have no lease are scored for a key, whatever it uses. An empty run stands for
    none."""

    __tablename__ = "key_admissions"
    key: str = Field(primary_key=True)
    run: str = Field(primary_key=True)
    until: int = Field(sa_type=BigInteger)


class SchemaSupportTable(TableRecord, table=True):
    """One row: the oldest schema whose service runs on this one."""

    __tablename__ = "schema_support"
    oldest: str = Field(primary_key=True)


prompts = get_table(PromptTable)
tasks = get_table(TaskTable)
runs = get_table(RunTable)
pins = get_table(PinTable)
groups = get_table(GroupTable)
rollouts = get_table(RolloutTable)
scores = get_table(ScoreTable)
scorings = get_table(ScoringTable)
rescores = get_table(RescoreTable)
idempotency_keys = get_table(IdempotencyKeyTable)
api_keys = get_table(ApiKeyTable)
named_keys = get_table(NamedKeyTable)
key_usage = get_table(KeyUsageTable)
key_holds = get_table(KeyHoldTable)
key_admissions = get_table(KeyAdmissionTable)
admin_actions = get_table(AdminActionTable)
sign_ins = get_table(SignInTable)
