"""Groups whose completions do not come together."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "parts",
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("task_id", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("purpose", sa.String(), nullable=False),
        sa.Column("deadline", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("missing", sa.Integer(), nullable=False),
        sa.Column("closed_at", sa.BigInteger(), nullable=True),
        sa.Column("due", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", name="pk_parts"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_parts_task_id"),
    )
    op.create_index("uq_parts_scope_generation", "parts", ["scope", "generation"], unique=True)
    op.create_index("ix_parts_created_at", "parts", ["created_at"])
    _partial_index("ix_parts_due", "parts", ["due"], "due IS NOT NULL")
    op.create_table(
        "part_members",
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("place", sa.Integer(), nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("said", sa.String(), nullable=False),
        sa.Column("completion", sa.Text(), nullable=True),
        sa.Column("own_group", sa.String(), nullable=True),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("held_until", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("group_id", "place", name="pk_part_members"),
        sa.ForeignKeyConstraint(["group_id"], ["parts.group_id"], name="fk_part_members_group_id"),
    )
    _partial_index("ix_part_members_unanswered", "part_members", ["scope", "said"], "state <> 'answered'")


def _partial_index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))


def downgrade() -> None:
    op.drop_table("part_members")
    op.drop_table("parts")
