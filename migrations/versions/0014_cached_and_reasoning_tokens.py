"""What judges cost tells cached and reasoning tokens apart."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_COLUMNS = ("cached_input_tokens", "reasoning_tokens")


def upgrade() -> None:
    for name in _COLUMNS:
        op.add_column("judge_spending", sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0")))


def downgrade() -> None:
    with op.batch_alter_table("judge_spending") as spending:
        for name in _COLUMNS:
            spending.drop_column(name)
