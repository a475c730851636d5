"""Run health: what is followed, anchors, readings beside the scores, alarms, and what judges' servers said answered."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_TABLES = ("judge_versions", "run_alarms", "health_spending", "health_readings", "run_anchors", "run_health")


def _sequence() -> "sa.Column[int]":
    kind = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    return sa.Column("sequence", kind, autoincrement=True, nullable=False)


def upgrade() -> None:
    op.add_column("runs", sa.Column("health", sa.Text(), nullable=True))
    op.add_column("runs", sa.Column("held", sa.Text(), nullable=True))
    op.create_table(
        "run_health",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("checked_sequence", sa.BigInteger(), nullable=False),
        sa.Column("checked_at", sa.BigInteger(), nullable=False),
        sa.Column("claim", sa.String(), nullable=False),
        sa.Column("claimed_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_run_health"),
    )
    op.create_table(
        "run_anchors",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("group_sequence", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", "group_sequence", name="pk_run_anchors"),
        sa.ForeignKeyConstraint(["group_sequence"], ["groups.sequence"], name="fk_run_anchors_group_sequence"),
    )
    op.create_table(
        "health_readings",
        _sequence(),
        sa.Column("reading_id", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("at_group", sa.BigInteger(), nullable=False),
        sa.Column("failed", sa.Boolean(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", sa.Float(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("judgements", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_health_readings"),
        sa.UniqueConstraint("reading_id", name="uq_health_readings_reading_id"),
    )
    op.create_index("ix_health_readings_run", "health_readings", ["run", "kind", "sequence"])
    op.create_index("ix_health_readings_group", "health_readings", ["run", "kind", "group_id", "sequence"])
    op.create_table(
        "health_spending",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("readings", sa.BigInteger(), nullable=False),
        sa.Column("tokens", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", "kind", name="pk_health_spending"),
    )
    _create_alarms()
    op.create_table(
        "judge_versions",
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("system_fingerprint", sa.String(), nullable=False),
        sa.Column("first_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("judge", "model", "system_fingerprint", name="pk_judge_versions"),
    )


def _create_alarms() -> None:
    op.create_table(
        "run_alarms",
        _sequence(),
        sa.Column("alarm_id", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("raised_at", sa.BigInteger(), nullable=False),
        sa.Column("released_at", sa.BigInteger(), nullable=True),
        sa.Column("send_at", sa.BigInteger(), nullable=True),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.PrimaryKeyConstraint("sequence", name="pk_run_alarms"),
        sa.UniqueConstraint("alarm_id", name="uq_run_alarms_alarm_id"),
    )
    op.create_index("ix_run_alarms_run", "run_alarms", ["run"])
    for name, column, where in (
        ("ix_run_alarms_standing", "series", "released_at IS NULL"),
        ("ix_run_alarms_due", "send_at", "send_at IS NOT NULL"),
    ):
        op.create_index(name, "run_alarms", [column], sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def downgrade() -> None:
    for name in _TABLES:
        op.drop_table(name)
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("held")
        runs.drop_column("health")
