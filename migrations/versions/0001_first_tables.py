"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_id", name="pk_api_keys"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )
    op.create_table(
        "contexts",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("stream", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "stream", "epoch", "index", name="pk_contexts"),
    )
    op.create_table(
        "idempotency_keys",
        sa.Column("key_digest", sa.String(), nullable=False),
        sa.Column("body_digest", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("key_digest", name="pk_idempotency_keys"),
    )
    op.create_table(
        "prompts",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_prompts"),
    )
    op.create_table(
        "runs",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("strict", sa.Boolean(), nullable=False),
        sa.Column("options", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_runs"),
    )
    op.create_table(
        "streams",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("split", sa.String(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("params_digest", sa.String(), nullable=False),
        sa.Column("select", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("handed_out", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", "digest", name="pk_streams"),
    )
    op.create_table(
        "leases",
        sa.Column("lease_id", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("stream", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("split", sa.String(), nullable=False),
        sa.Column("params_digest", sa.String(), nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(["run", "stream"], ["streams.run", "streams.digest"], name="fk_leases_run"),
        sa.PrimaryKeyConstraint("lease_id", name="pk_leases"),
    )
    op.create_index(
        "ix_leases_deferred",
        "leases",
        ["run", "stream", "position"],
        sqlite_where=sa.text("state = 'deferred'"),
        postgresql_where=sa.text("state = 'deferred'"),
    )
    op.create_index(
        "ix_leases_live_expiry",
        "leases",
        ["run", "stream", "expires_at"],
        sqlite_where=sa.text("state = 'live'"),
        postgresql_where=sa.text("state = 'live'"),
    )
    op.create_index(
        "ix_leases_live_task",
        "leases",
        ["run", "environment", "split", "params_digest", "index"],
        sqlite_where=sa.text("state = 'live'"),
        postgresql_where=sa.text("state = 'live'"),
    )

    op.create_table(
        "pins",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("scoring_digest", sa.String(), nullable=False),
        sa.Column("parts", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["run"], ["runs.name"], name="fk_pins_run"),
        sa.PrimaryKeyConstraint("run", "environment", name="pk_pins"),
    )
    op.create_table(
        "tasks",
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("version", sa.String(), nullable=False),
        sa.Column("data_digest", sa.String(), nullable=False),
        sa.Column("split", sa.String(), nullable=False),
        sa.Column("index", sa.BigInteger(), nullable=False),
        sa.Column("params", sa.Text(), nullable=False),
        sa.Column("params_digest", sa.String(), nullable=False),
        sa.Column("context", sa.Text(), nullable=True),
        sa.Column("prompt_digest", sa.String(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["prompt_digest"], ["prompts.digest"], name="fk_tasks_prompt_digest"),
        sa.PrimaryKeyConstraint("task_id", name="pk_tasks"),
    )
    op.create_table(
        "groups",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("scored", sa.Integer(), nullable=False),
        sa.Column("unscored", sa.Integer(), nullable=False),
        sa.Column("mean", sa.Float(), nullable=True),
        sa.Column("std", sa.Float(), nullable=True),
        sa.Column("reward_sum", sa.Float(), nullable=False),
        sa.Column("absolute_sum", sa.Float(), nullable=False),
        sa.Column("absolute_count", sa.Integer(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_groups_task_id"),
        sa.PrimaryKeyConstraint("sequence", name="pk_groups"),
        sa.UniqueConstraint("group_id", name="uq_groups_group_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_groups_environment", "groups", ["environment", "sequence"])
    op.create_index(
        "ix_groups_eval",
        "groups",
        ["sequence"],
        sqlite_where=sa.text("purpose = 'eval'"),
        postgresql_where=sa.text("purpose = 'eval'"),
    )
    op.create_index(
        "ix_groups_open",
        "groups",
        ["outcome", "sequence"],
        sqlite_where=sa.text("outcome <> 'scored'"),
        postgresql_where=sa.text("outcome <> 'scored'"),
    )
    op.create_index("ix_groups_run", "groups", ["run", "sequence"])
    op.create_index("ix_groups_task", "groups", ["task_id", "sequence"])

    op.create_table(
        "judgements",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("group_sequence", sa.BigInteger(), nullable=False),
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("prompt_digest", sa.String(), nullable=True),
        sa.Column("answer", sa.Text(), nullable=False),
        sa.Column("input_tokens", sa.Integer(), nullable=False),
        sa.Column("output_tokens", sa.Integer(), nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("latency_seconds", sa.Float(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["group_sequence"], ["groups.sequence"], name="fk_judgements_group_sequence"),
        sa.ForeignKeyConstraint(["prompt_digest"], ["prompts.digest"], name="fk_judgements_prompt_digest"),
        sa.PrimaryKeyConstraint("sequence", name="pk_judgements"),
    )
    op.create_index("ix_judgements_group_sequence", "judgements", ["group_sequence"])

    op.create_table(
        "rollouts",
        sa.Column("group_sequence", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("rollout_id", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("gate", sa.Float(), nullable=True),
        sa.Column("absolute", sa.Float(), nullable=True),
        sa.Column("relative", sa.Float(), nullable=True),
        sa.Column("score", sa.Text(), nullable=False),
        sa.Column("completion", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["group_sequence"], ["groups.sequence"], name="fk_rollouts_group_sequence"),
        sa.PrimaryKeyConstraint("group_sequence", "position", name="pk_rollouts"),
    )
    op.create_table(
        "scores",
        sa.Column("group_sequence", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("ordinal", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["group_sequence", "position"],
            ["rollouts.group_sequence", "rollouts.position"],
            name="fk_scores_group_sequence",
        ),
        sa.PrimaryKeyConstraint("group_sequence", "position", "ordinal", name="pk_scores"),
        sqlite_with_rowid=False,
    )


def downgrade() -> None:
    op.drop_table("scores")
    op.drop_table("rollouts")
    op.drop_table("judgements")
    op.drop_table("groups")
    op.drop_table("tasks")
    op.drop_table("pins")
    op.drop_table("leases")
    op.drop_table("streams")
    op.drop_table("runs")
    op.drop_table("prompts")
    op.drop_table("idempotency_keys")
    op.drop_table("contexts")
    op.drop_table("api_keys")
