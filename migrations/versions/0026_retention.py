"""Groups can be pruned: which ones were, what they had added to the statistics, and whose turn it is. Indexes by which
the last use of a prompt and of a scoring is found."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.create_table(
        "pruned_groups",
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("pruned_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", name="pk_pruned_groups"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "sealed_rollups",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("series", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("label", sa.Text(), nullable=True),
        sa.Column("bucket", sa.BigInteger(), nullable=True),
        sa.Column("measures", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sealed_rollups"),
    )
    op.create_table(
        "sealed_task_rollups",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("sums", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("run", "environment", "task_id", name="pk_sealed_task_rollups"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "job_turns",
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("held_until", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job", name="pk_job_turns"),
    )
    op.create_index("ix_tasks_prompt", "tasks", ["prompt_digest"])
    for name, column in (("ix_judgements_prompt", "prompt_digest"), ("ix_judgements_scoring", "scoring_sequence")):
        where = sa.text(f"{column} IS NOT NULL")
        op.create_index(name, "judgements", [column], sqlite_where=where, postgresql_where=where)


def downgrade() -> None:
    for name, table in (
        ("ix_judgements_scoring", "judgements"),
        ("ix_judgements_prompt", "judgements"),
        ("ix_tasks_prompt", "tasks"),
    ):
        op.drop_index(name, table)
    for table in ("job_turns", "sealed_task_rollups", "sealed_rollups", "pruned_groups"):
        op.drop_table(table)
