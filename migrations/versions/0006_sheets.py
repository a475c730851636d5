"""Character sheets by digest, the editions they make up, and what epochs began with."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sheets",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sheets"),
    )
    op.create_table(
        "editions",
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("data_digest", sa.String(), nullable=False),
        sa.Column("sheets", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("environment", "data_digest", name="pk_editions"),
    )
    op.create_table(
        "epochs",
        sa.Column("run", sa.String(), nullable=False),
        sa.Column("stream", sa.String(), nullable=False),
        sa.Column("epoch", sa.BigInteger(), nullable=False),
        sa.Column("data_digest", sa.String(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("run", "stream", "epoch", name="pk_epochs"),
    )


def downgrade() -> None:
    op.drop_table("epochs")
    op.drop_table("editions")
    op.drop_table("sheets")
