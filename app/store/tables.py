"""The tables of the kernel. Features have their own, and no row of either leaves the store.

Moments are microseconds since 1970 in UTC. Columns that may hold a model's or a player's words are JSON texts with NUL
and lone surrogates escaped, which both databases accept; everything else is an identifier of ours. Where a long text is
`packed`, its own column is empty. The words of texts are in `group_words`, which is not here: each database has an
index of another kind, which `group_texts` makes and fills. The criteria of scored rollouts are rows of a view,
`scores`, for whoever asks the database itself; the service asks its rollups.
"""

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, Integer, LargeBinary, String, Text, text
from sqlmodel import Field

from app.store.table_records import TableRecord, build_partial_index, build_sequence_column, get_table

# Tasks, and the prompts of policies and judges.


class PromptTable(TableRecord, table=True):
    """A prompt of a policy or a judge, stored once per digest of `body`."""

    __tablename__ = "prompts"
    digest: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)
    packed: bytes | None = Field(default=None, sa_type=LargeBinary)
    """Of judges' prompts alone: whoever scores needs those of tasks."""


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


prompts = get_table(PromptTable)
tasks = get_table(TaskTable)


# Runs, their streams, and the leases on slots of streams.


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
    characters: str = Field(sa_column=Column(String(), nullable=False, server_default="newest"))


class PinTable(TableRecord, table=True):
    __tablename__ = "pins"
    run: str = Field(primary_key=True, foreign_key="runs.name")
    environment: str = Field(primary_key=True)
    version: str
    scoring_digest: str
    parts: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class StreamTable(TableRecord, table=True):
    """`position` is the next one to hand out; `handed_out` counts leases given, repeats included."""

    __tablename__ = "streams"
    run: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    environment: str
    split: str
    params: str = Field(sa_type=Text)
    params_digest: str
    select: str = Field(sa_type=Text)
    position: int = Field(sa_type=BigInteger)
    handed_out: int = Field(sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)


class LeaseTable(TableRecord, table=True):
    """One lease. `state` is live, done, superseded, or deferred (its task is leased elsewhere)."""

    __tablename__ = "leases"
    __table_args__ = (
        ForeignKeyConstraint(["run", "stream"], ["streams.run", "streams.digest"]),
        build_partial_index("ix_leases_live_expiry", "run", "stream", "expires_at", where="state = 'live'"),
        build_partial_index(
            "ix_leases_live_task", "run", "environment", "split", "params_digest", "index", where="state = 'live'"
        ),
        build_partial_index(
            "ix_leases_live_step", "run", "expires_at", "step", where="state = 'live' AND step IS NOT NULL"
        ),
        build_partial_index("ix_leases_deferred", "run", "stream", "position", where="state = 'deferred'"),
    )
    lease_id: str = Field(primary_key=True)
    run: str
    stream: str
    environment: str
    split: str
    params_digest: str
    index: int = Field(sa_type=BigInteger)
    epoch: int = Field(sa_type=BigInteger)
    position: int = Field(sa_type=BigInteger)
    generation: int
    state: str
    expires_at: int = Field(sa_type=BigInteger)
    created_at: int = Field(sa_type=BigInteger)
    group_id: str | None = None
    step: int | None = Field(default=None, sa_type=BigInteger)
    """The training step at hand-out."""


class ContextTable(TableRecord, table=True):
    """The retrieved context of a place of a stream, frozen by its first hand-out."""

    __tablename__ = "contexts"
    run: str = Field(primary_key=True)
    stream: str = Field(primary_key=True)
    epoch: int = Field(primary_key=True, sa_type=BigInteger)
    index: int = Field(primary_key=True, sa_type=BigInteger)
    body: str = Field(sa_type=Text)


runs = get_table(RunTable)
pins = get_table(PinTable)
streams = get_table(StreamTable)
leases = get_table(LeaseTable)
contexts = get_table(ContextTable)


# Character sheets, their versions, and the versions that epochs began with.


class SheetTable(TableRecord, table=True):
    """A character sheet as JSON, stored once per digest of `body`."""

    __tablename__ = "sheets"
    digest: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class EditionTable(TableRecord, table=True):
    """One version of an environment's sheets: a JSON list of their digests, in order."""

    __tablename__ = "editions"
    environment: str = Field(primary_key=True)
    data_digest: str = Field(primary_key=True)
    sheets: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class EpochTable(TableRecord, table=True):
    """The version that an epoch of a stream began with."""

    __tablename__ = "epochs"
    run: str = Field(primary_key=True)
    stream: str = Field(primary_key=True)
    epoch: int = Field(primary_key=True, sa_type=BigInteger)
    data_digest: str
    created_at: int = Field(sa_type=BigInteger)


sheets = get_table(SheetTable)
editions = get_table(EditionTable)
epochs = get_table(EpochTable)


# Groups and their rollouts, and new scorings of them.


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
    model: str | None = Field(default=None, sa_type=Text)
    """JSON string, as `lease_id` and `sender`: clients choose them."""
    lease_id: str | None = Field(default=None, sa_type=Text)
    sender: str | None = Field(default=None, sa_type=Text)
    hand_out_step: int | None = Field(default=None, sa_type=BigInteger)
    flags: str = Field(sa_column=Column(Text(), nullable=False, server_default=text("'[]'")))
    """JSON list."""
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
    making: str | None = Field(default=None, sa_type=Text)
    """How the scores were made of the judgements; null where nobody judged, or a service of before scored."""


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


groups = get_table(GroupTable)
rollouts = get_table(RolloutTable)
scorings = get_table(ScoringTable)
rescores = get_table(RescoreTable)
idempotency_keys = get_table(IdempotencyKeyTable)


# Pending groups, whose completions arrive in pieces, and episodes whose messages do.


class PartTable(TableRecord, table=True):
    """A pending group. `state` is open, or closed once the group is stored."""

    __tablename__ = "parts"
    __table_args__ = (
        Index("uq_parts_scope_generation", "scope", "generation", unique=True),
        build_partial_index("ix_parts_due", "due", where="due IS NOT NULL"),
    )
    group_id: str = Field(primary_key=True)
    scope: str
    """Digest of what completions must share to join the same group."""
    generation: int
    """Number of this group among the successive groups of its scope."""
    key: str = Field(sa_type=Text)
    """JSON string, since clients choose it."""
    size: int
    task_id: str = Field(foreign_key="tasks.task_id")
    environment: str
    run: str | None
    model: str | None = Field(default=None, sa_type=Text)
    """JSON string, as `lease_id` and `sender`."""
    step: int | None = Field(default=None, sa_type=BigInteger)
    lease_id: str | None = Field(default=None, sa_type=Text)
    sender: str | None = Field(default=None, sa_type=Text)
    hand_out_step: int | None = Field(default=None, sa_type=BigInteger)
    purpose: str
    deadline: int = Field(sa_type=BigInteger)
    state: str
    missing: int
    """How many completions were missing when it was closed."""
    closed_at: int | None = Field(sa_type=BigInteger)
    """Time of closing; at most the deadline, even if it was closed later."""
    due: int | None = Field(sa_type=BigInteger)
    """When it needs attention: at the deadline while open, later when the scorer's heartbeat is overdue; null when
    done."""
    created_at: int = Field(sa_type=BigInteger, index=True)


class PartMemberTable(TableRecord, table=True):
    """A completion in its place. `state` describes the sender: held (waiting), left (disconnected) or answered."""

    __tablename__ = "part_members"
    __table_args__ = (
        build_partial_index("ix_part_members_unanswered", "scope", "digest", where="state <> 'answered'"),
    )
    group_id: str = Field(primary_key=True, foreign_key="parts.group_id")
    place: int = Field(primary_key=True)
    scope: str
    digest: str
    """Of the completion's content."""
    completion: str | None = Field(sa_type=Text)
    """Null once it is in a stored group."""
    own_group: str | None
    """The separate group that scores it if it came late."""
    state: str
    holder: str
    held_until: int = Field(sa_type=BigInteger)
    """While held, when the heartbeat is overdue; otherwise when the hold ended."""


class KeptEpisodeTable(TableRecord, table=True):
    """Episodes of clients that send no history. A change counts `revision` up."""

    __tablename__ = "kept_episodes"
    session: str = Field(primary_key=True)
    task_id: str
    revision: int
    body: str = Field(sa_type=Text)
    changed_at: int = Field(sa_type=BigInteger, index=True)


class PlayerLineTable(TableRecord, table=True):
    """Lines of players that models play. `body` is final but where the player's server failed. `task_id` is null in
    lines that were stored before they had one."""

    __tablename__ = "player_lines"
    key: str = Field(primary_key=True)
    task_id: str | None = None
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger, index=True)


class HostedStepTable(TableRecord, table=True):
    """Answers of others' servers to episodes that run on them. A row never changes."""

    __tablename__ = "hosted_steps"
    key: str = Field(primary_key=True)
    task_id: str
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger, index=True)


parts = get_table(PartTable)
part_members = get_table(PartMemberTable)
kept_episodes = get_table(KeptEpisodeTable)
player_lines = get_table(PlayerLineTable)
hosted_steps = get_table(HostedStepTable)


# Judgements: those of groups, the cache, and what is known of judges.


class JudgementTable(TableRecord, table=True):
    """`answer` is the judgement without its prompt, which is in `prompts`. `scoring_sequence` is null for judgements of
    the group's own scores."""

    __tablename__ = "judgements"
    __table_args__ = (
        build_partial_index("ix_judgements_reading", "reading", where="reading IS NOT NULL"),
        build_partial_index("ix_judgements_prompt", "prompt_digest", where="prompt_digest IS NOT NULL"),
        build_partial_index("ix_judgements_scoring", "scoring_sequence", where="scoring_sequence IS NOT NULL"),
    )
    sequence: int = Field(sa_column=build_sequence_column())
    group_sequence: int = Field(foreign_key="groups.sequence", sa_type=BigInteger, index=True)
    judge: str
    failed: bool
    prompt_digest: str | None = Field(foreign_key="prompts.digest")
    answer: str = Field(sa_type=Text)
    input_tokens: int
    output_tokens: int
    calls: int
    cost_usd: float | None
    latency_seconds: float
    created_at: int = Field(sa_type=BigInteger)
    scoring_sequence: int | None = Field(default=None, foreign_key="scorings.sequence", sa_type=BigInteger)
    reading: str | None = None
    """Digest of the request, as in `judge_cache`."""
    purpose: str | None = None
    """What it was for, if not for a score."""
    reduced: str | None = Field(default=None, sa_type=Text)
    """What stands for a prompt and an answer that are not kept."""
    packed: bytes | None = Field(default=None, sa_type=LargeBinary)


class JudgeCacheTable(TableRecord, table=True):
    """Usable judgements by request digest. `body` leaves out the prompt, which the caller knows."""

    __tablename__ = "judge_cache"
    reading: str = Field(primary_key=True)
    judge: str
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger, index=True)


class ReferenceTable(TableRecord, table=True):
    """The replies of known level that a judge made for a scene, as JSON. They never change."""

    __tablename__ = "calibration_references"
    scene: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class JudgeMeasurementTable(TableRecord, table=True):
    """Figures that commands measured of judges, as JSON. Measuring again replaces them."""

    __tablename__ = "judge_measurements"
    judge: str = Field(primary_key=True)
    command_digest: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)


class JudgeVersionTable(TableRecord, table=True):
    """What a judge's server said answered, as JSON texts."""

    __tablename__ = "judge_versions"
    judge: str = Field(primary_key=True)
    model: str = Field(primary_key=True)
    system_fingerprint: str = Field(primary_key=True)
    first_at: int = Field(sa_type=BigInteger)


judgements = get_table(JudgementTable)
judge_cache = get_table(JudgeCacheTable)
judge_measurements = get_table(JudgeMeasurementTable)
calibration_references = get_table(ReferenceTable)
judge_versions = get_table(JudgeVersionTable)


# What judging costs, and what is reserved for it.


class SpendingTable(TableRecord, table=True):
    """What an account has spent. An account is a judge, a run or a key, as `kind` says. Runs count by `environment` and
    hour since 1970, re-scorings and failures included; judges and keys by UTC day, of which `hour` is the first. Each
    process adds to a `part` of its own, so that none waits for another's."""

    __tablename__ = "spending"
    kind: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    environment: str = Field(primary_key=True)
    """Empty for judges and keys."""
    hour: int = Field(primary_key=True, sa_type=BigInteger)
    part: int = Field(primary_key=True)
    groups: int = Field(sa_type=BigInteger)
    readings: int = Field(sa_type=BigInteger)
    calls: int = Field(sa_type=BigInteger)
    unpriced_calls: int = Field(sa_type=BigInteger)
    input_tokens: int = Field(sa_type=BigInteger)
    output_tokens: int = Field(sa_type=BigInteger)
    cached_input_tokens: int = Field(sa_type=BigInteger)
    reasoning_tokens: int = Field(sa_type=BigInteger)
    cost_usd: float
    unanswered_calls: int = Field(sa_type=BigInteger)
    unanswered_tokens: int = Field(sa_type=BigInteger)
    unanswered_usd: float
    requests: int = Field(sa_type=BigInteger)
    """Of keys, where requests are limited."""
    first_at: int = Field(sa_type=BigInteger)
    last_at: int = Field(sa_type=BigInteger)


class HoldTable(TableRecord, table=True):
    """What is reserved on an account: `open` is what may still be spent, `used` what is spent and not written yet. Of a
    judge it is a call; once overdue it belongs to a dead process and stays, since the call may have been charged. Of a
    run it is a group that is judged. Of a key it is a batch of tasks that are made; a task that it holds, as long as
    the lease of this name; a group that no lease pays for; or, with nothing reserved, a run whose groups are scored
    without one. Of a key nothing is `used`, and `used_tokens` counts the requests for the group."""

    __tablename__ = "holds"
    __table_args__ = (Index("ix_holds_account", "kind", "account"),)
    hold: str = Field(primary_key=True)
    kind: str = Field(primary_key=True)
    account: str = Field(primary_key=True)
    used_tokens: int = Field(sa_type=BigInteger)
    used_usd: float
    open_tokens: int = Field(sa_type=BigInteger)
    open_usd: float
    leases: int
    until: int | None = Field(default=None, sa_type=BigInteger)
    holder: str | None
    """The process that judges the group; null where the system does not tell it from others. Of a lease, the group for
    which it pays; null while there is none."""


class JudgeLimitsTable(TableRecord, table=True):
    """What all processes share about one judge's limits, as one value that each exchange replaces."""

    __tablename__ = "judge_limits"
    judge: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)


spending = get_table(SpendingTable)
holds = get_table(HoldTable)
judge_limits = get_table(JudgeLimitsTable)


# Statistics: what groups add up to.


class RollupTable(TableRecord, table=True):
    """Measures of the groups of one key. A new measure is a new name in `measures`, not a new column."""

    __tablename__ = "rollups"
    __table_args__ = (
        Index("ix_rollups_environment", "series", "environment", "run"),
        Index("ix_rollups_run", "series", "run", "environment", "bucket"),
    )
    digest: str = Field(primary_key=True)
    """Of the key, which is all columns but `measures`."""
    series: str
    environment: str
    run: str | None
    purpose: str
    step: int | None = Field(sa_type=BigInteger)
    label: str | None = Field(sa_type=Text)
    """JSON string: the label of tasks, or the name of a judge or data set in their series."""
    bucket: int | None = Field(sa_type=BigInteger)
    measures: str = Field(sa_type=Text)
    """JSON object: counts, and sums as lists, by name."""


class TaskRollupTable(TableRecord, table=True):
    """What a run's training groups of one task add up to, for histograms of pass rates."""

    __tablename__ = "task_rollups"
    __table_args__ = ({"sqlite_with_rowid": False},)
    run: str = Field(primary_key=True)
    environment: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    sums: str = Field(sa_type=Text)
    """JSON list: the sums of gate x absolute."""


rollups = get_table(RollupTable)
task_rollups = get_table(TaskRollupTable)


# What is left of pruned groups, and whose turn it is to prune.


class PrunedGroupTable(TableRecord, table=True):
    """Groups that were pruned: who asks for one is told so, and none of them is scored again."""

    __tablename__ = "pruned_groups"
    __table_args__ = ({"sqlite_with_rowid": False},)
    group_id: str = Field(primary_key=True)
    pruned_at: int = Field(sa_type=BigInteger)


class SealedRollupTable(TableRecord, table=True):
    """What pruned groups added to the rollup of this digest, with the same columns."""

    __tablename__ = "sealed_rollups"
    digest: str = Field(primary_key=True)
    series: str
    environment: str
    run: str | None
    purpose: str
    step: int | None = Field(sa_type=BigInteger)
    label: str | None = Field(sa_type=Text)
    bucket: int | None = Field(sa_type=BigInteger)
    measures: str = Field(sa_type=Text)


class SealedTaskRollupTable(TableRecord, table=True):
    """What a run's pruned training groups of one task added to its sums."""

    __tablename__ = "sealed_task_rollups"
    __table_args__ = ({"sqlite_with_rowid": False},)
    run: str = Field(primary_key=True)
    environment: str = Field(primary_key=True)
    task_id: str = Field(primary_key=True)
    sums: str = Field(sa_type=Text)


class ClaimTable(TableRecord, table=True):
    """Work that one holder does at a time: `holder` has it until `until`, which is 0 once it is released."""

    __tablename__ = "claims"
    kind: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    holder: str
    until: int = Field(sa_type=BigInteger)
    released_at: int = Field(sa_type=BigInteger)
    """When a holder last ended it."""


pruned_groups = get_table(PrunedGroupTable)
sealed_rollups = get_table(SealedRollupTable)
sealed_task_rollups = get_table(SealedTaskRollupTable)
claims = get_table(ClaimTable)


# Progress of the index of texts.


class GroupTextTable(TableRecord, table=True):
    """Groups that the index has passed: it holds their words, unless they wait for it until they have scores, or since
    their texts have changed."""

    __tablename__ = "group_texts"
    __table_args__ = (build_partial_index("ix_group_texts_waiting", "sequence", where="waiting = 1"),)
    sequence: int = Field(sa_column=Column(BigInteger(), primary_key=True, autoincrement=False))
    waiting: int


class TextProgressTable(TableRecord, table=True):
    """One row: up to which sequence groups are indexed, and in which form."""

    __tablename__ = "text_progress"
    form: int = Field(sa_column=Column(Integer(), primary_key=True, autoincrement=False))
    through: int = Field(sa_type=BigInteger)


group_texts = get_table(GroupTextTable)
text_progress = get_table(TextProgressTable)


# Keys of the service, what they use, and what was done to them.


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
    __table_args__ = (
        Index("ix_sign_ins_key", "key_digest", "expires_at"),
        Index("ix_sign_ins_expires_at", "expires_at"),
    )
    digest: str = Field(primary_key=True)
    key_digest: str
    expires_at: int = Field(sa_type=BigInteger)


api_keys = get_table(ApiKeyTable)
named_keys = get_table(NamedKeyTable)
admin_actions = get_table(AdminActionTable)
sign_ins = get_table(SignInTable)


# The schema itself.


class SchemaSupportTable(TableRecord, table=True):
    """One row: the oldest schema whose service runs on this one."""

    __tablename__ = "schema_support"
    oldest: str = Field(primary_key=True)
