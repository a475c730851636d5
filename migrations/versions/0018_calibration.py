"""Values on the scale of replies of known level, and those replies where a judge made them. Rollouts of before have no
such value."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_COLUMNS = (
    ("rollouts", "calibrated", sa.Float),
    ("rollouts", "calibrated_error", sa.Float),
    ("rollouts", "uncalibrated", sa.String),
    ("rescores", "calibrated", sa.Float),
    ("rescores", "calibrated_error", sa.Float),
    ("rescores", "uncalibrated", sa.String),
    ("judgements", "purpose", sa.String),
)


def upgrade() -> None:
    op.create_table(
        "calibration_references",
        sa.Column("scene", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scene"),
    )
    for table, name, kind in _COLUMNS:
        op.add_column(table, sa.Column(name, kind(), nullable=True))


def downgrade() -> None:
    for table, name, _ in _COLUMNS:
        with op.batch_alter_table(table) as changed:
            changed.drop_column(name)
    op.drop_table("calibration_references")
