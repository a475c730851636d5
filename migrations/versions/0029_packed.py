"""Long completions, judges' prompts and judges' answers, packed."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_TABLES = {"rollouts": "completion", "judgements": "answer", "prompts": "body"}


def upgrade() -> None:
    for name in _TABLES:
        op.add_column(name, sa.Column("packed", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Refused where texts would be lost with the column."""
    for name, text in _TABLES.items():
        packed = sa.text(f"SELECT 1 FROM {name} WHERE {text} = '' AND packed IS NOT NULL LIMIT 1")  # noqa: S608  # ours
        if op.get_bind().execute(packed).first() is not None:
            raise RuntimeError(f"{name} has packed rows, which a schema before 0029 cannot hold")
    for name in _TABLES:
        with op.batch_alter_table(name) as table:
            table.drop_column("packed")
