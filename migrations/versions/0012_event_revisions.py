"""Events that were told can be corrected."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_BRANCHES = sa.text("parent IS NOT NULL")


def upgrade() -> None:
    op.add_column("events", sa.Column("revision", sa.Integer(), nullable=False, server_default=sa.text("1")))
    op.create_index("ix_worlds_parent", "worlds", ["parent"], sqlite_where=_BRANCHES, postgresql_where=_BRANCHES)
    op.create_index("ix_event_withdrawals_sequence", "event_withdrawals", ["sequence"])


def downgrade() -> None:
    op.drop_index("ix_event_withdrawals_sequence", "event_withdrawals")
    op.drop_index("ix_worlds_parent", "worlds")
    with op.batch_alter_table("events") as events:
        events.drop_column("revision")
