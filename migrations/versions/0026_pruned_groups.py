"""What pruned groups added up to, their ids, and the indexes by which prompts that nothing needs any more are found."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
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
        "pruned_groups",
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("pruned_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", name="pk_pruned_groups"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_judgements_prompt_digest", "judgements", ["prompt_digest"])
    op.create_index("ix_tasks_prompt_digest", "tasks", ["prompt_digest"])
    has_scoring = sa.text("scoring_sequence IS NOT NULL")
    op.create_index(
        "ix_judgements_scoring",
        "judgements",
        ["scoring_sequence"],
        sqlite_where=has_scoring,
        postgresql_where=has_scoring,
    )


def downgrade() -> None:
    op.drop_index("ix_judgements_scoring", "judgements")
    op.drop_index("ix_tasks_prompt_digest", "tasks")
    op.drop_index("ix_judgements_prompt_digest", "judgements")
    op.drop_table("pruned_groups")
    op.drop_table("sealed_task_rollups")
    op.drop_table("sealed_rollups")
