"""What environments elsewhere send to trainers: runs, environments, groups with their bodies, batches."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def _sequence(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False)


def _run_tables() -> None:
    op.create_table(
        "trajectory_runs",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("registration", sa.Text(), nullable=True),
        sa.Column("started", sa.Boolean(), nullable=False),
        sa.Column("batches", sa.BigInteger(), nullable=False),
        sa.Column("step_before", sa.BigInteger(), nullable=False),
        sa.Column("turns", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", name="pk_trajectory_runs"),
    )
    op.create_table(
        "trajectory_feeders",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("env_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("said", sa.Text(), nullable=False),
        sa.Column("connected", sa.Boolean(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", "env_id", name="pk_trajectory_feeders"),
    )
    op.create_table(
        "trajectory_batches",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("handed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", "number", name="pk_trajectory_batches"),
    )


def upgrade() -> None:
    _run_tables()
    op.create_table(
        "trajectory_bodies",
        _sequence("body_id"),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=True),
        sa.PrimaryKeyConstraint("body_id", name="pk_trajectory_bodies"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_trajectory_bodies_digest", "trajectory_bodies", ["run", "digest", "created_at"])
    _partial_index("ix_trajectory_bodies_kept", "trajectory_bodies", ["run", "body_id"], "body IS NOT NULL")
    _partial_index("ix_trajectory_bodies_spent", "trajectory_bodies", ["run", "created_at"], "body IS NULL")
    op.create_table(
        "trajectory_groups",
        _sequence("sequence"),
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("env_id", sa.BigInteger(), nullable=True),
        sa.Column("body_id", sa.BigInteger(), nullable=False),
        sa.Column("first", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("whole", sa.Boolean(), nullable=False),
        sa.Column("passed", sa.Integer(), nullable=False),
        sa.Column("batch", sa.BigInteger(), nullable=True),
        sa.Column("place", sa.Integer(), nullable=True),
        sa.PrimaryKeyConstraint("sequence", name="pk_trajectory_groups"),
        sqlite_autoincrement=True,
    )
    in_line = ["run", "env_id", "size", "sequence", "passed", "whole"]
    _partial_index("ix_trajectory_groups_line", "trajectory_groups", in_line, "batch IS NULL")
    _partial_index("ix_trajectory_groups_batch", "trajectory_groups", ["run", "batch", "place"], "batch IS NOT NULL")
    op.create_index("ix_trajectory_groups_body", "trajectory_groups", ["body_id"])


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def downgrade() -> None:
    for table in ("groups", "bodies", "batches", "feeders", "runs"):
        op.drop_table(f"trajectory_{table}")
