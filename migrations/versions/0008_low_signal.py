"""Which groups teach nothing: their rewards hardly differ, or judges could not agree on an order."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

LOW_SIGNAL_STD = 0.01
"""As it was when groups came to have the column."""

GROUPS = sa.table(
    "groups",
    sa.column("sequence", sa.BigInteger()),
    sa.column("outcome", sa.String()),
    sa.column("std", sa.Float()),
    sa.column("low_signal", sa.Integer()),
)
ROLLOUTS = sa.table(
    "rollouts",
    sa.column("group_sequence", sa.BigInteger()),
    sa.column("relative", sa.Float()),
    sa.column("score", sa.Text()),
)


def upgrade() -> None:
    op.add_column("groups", sa.Column("low_signal", sa.Integer(), nullable=False, server_default=sa.text("0")))
    flagged = sa.exists().where(
        ROLLOUTS.c.group_sequence == GROUPS.c.sequence,
        ROLLOUTS.c.relative == 0.5,
        ROLLOUTS.c.score.contains('"low_signal"', autoescape=True),
    )
    compared = sa.and_(GROUPS.c.outcome != "pending", GROUPS.c.std.is_not(None))
    op.execute(
        sa.update(GROUPS).where(compared, sa.or_(GROUPS.c.std < LOW_SIGNAL_STD, flagged)).values({"low_signal": 1})
    )


def downgrade() -> None:
    with op.batch_alter_table("groups") as groups:
        groups.drop_column("low_signal")
