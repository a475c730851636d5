"""What a run keeps of its scored groups, and what stands for the parts that are not kept."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"
branch_labels = None
depends_on = None

IS_EXPANSION = True


def upgrade() -> None:
    op.add_column("runs", sa.Column("keep", sa.Text(), nullable=True))
    op.add_column("groups", sa.Column("reduced", sa.Integer(), nullable=True))
    op.add_column("rollouts", sa.Column("reduced", sa.Text(), nullable=True))
    op.add_column("judgements", sa.Column("reduced", sa.Text(), nullable=True))


def downgrade() -> None:
    for name, column in (("judgements", "reduced"), ("rollouts", "reduced"), ("groups", "reduced"), ("runs", "keep")):
        with op.batch_alter_table(name) as table:
            table.drop_column(column)
