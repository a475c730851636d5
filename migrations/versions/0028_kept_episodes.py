"""Episodes that are played over HTTP by clients that send no history."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.create_table(
        "kept_episodes",
        sa.Column("session", sa.String(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("revision", sa.Integer(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("changed_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("session", name="pk_kept_episodes"),
    )
    op.create_index("ix_kept_episodes_changed_at", "kept_episodes", ["changed_at"])


def downgrade() -> None:
    op.drop_index("ix_kept_episodes_changed_at", table_name="kept_episodes")
    op.drop_table("kept_episodes")
