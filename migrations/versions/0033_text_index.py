"""How far the index of texts is. The service writes it behind everything else, from the groups that are stored."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_WAITING = sa.text("waiting = 1")


def upgrade() -> None:
    op.create_table(
        "group_texts",
        sa.Column("sequence", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("waiting", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_group_texts"),
    )
    op.create_index(
        "ix_group_texts_waiting", "group_texts", ["sequence"], sqlite_where=_WAITING, postgresql_where=_WAITING
    )
    op.create_table(
        "text_progress",
        sa.Column("form", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("through", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("form", name="pk_text_progress"),
    )


def downgrade() -> None:
    op.execute("DROP TABLE IF EXISTS group_words")
    op.drop_table("text_progress")
    op.drop_index("ix_group_texts_waiting", "group_texts")
    op.drop_table("group_texts")
