"""Groups scored anew, and the judgements made for that."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "scorings",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("scoring_id", sa.String(), nullable=False),
        sa.Column("group_sequence", sa.BigInteger(), nullable=False),
        sa.Column("scoring_digest", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("head", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["group_sequence"], ["groups.sequence"], name="fk_scorings_group_sequence"),
        sa.PrimaryKeyConstraint("sequence", name="pk_scorings"),
        sa.UniqueConstraint("scoring_id", name="uq_scorings_scoring_id"),
    )
    op.create_index("ix_scorings_group_sequence", "scorings", ["group_sequence"])
    op.create_table(
        "rescores",
        sa.Column("scoring_sequence", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("gate", sa.Float(), nullable=True),
        sa.Column("absolute", sa.Float(), nullable=True),
        sa.Column("relative", sa.Float(), nullable=True),
        sa.Column("score", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["scoring_sequence"], ["scorings.sequence"], name="fk_rescores_scoring_sequence"),
        sa.PrimaryKeyConstraint("scoring_sequence", "position", name="pk_rescores"),
        sqlite_with_rowid=False,
    )
    # With the reference in the column's own definition SQLite need not rebuild the table, which may be large.
    of_scoring = sa.ForeignKey("scorings.sequence", name="fk_judgements_scoring_sequence")
    op.add_column(
        "judgements", sa.Column("scoring_sequence", sa.BigInteger(), of_scoring, nullable=True), inline_references=True
    )


def downgrade() -> None:
    with op.batch_alter_table("judgements") as judgements:
        judgements.drop_column("scoring_sequence")
    op.drop_table("rescores")
    op.drop_table("scorings")
