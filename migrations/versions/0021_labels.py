"""People's labels, the queue that asks for them, and the agreement that a run asks of its judges."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

IS_EXPANSION = True

SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column("runs", sa.Column("min_agreement", sa.Float(), nullable=True))
    op.create_table(
        "labels",
        sa.Column("sequence", SEQUENCE, autoincrement=True, nullable=False),
        sa.Column("label_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("labeller", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=True),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("lease_id", sa.String(), nullable=True),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("source_digest", sa.String(), nullable=True),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sa.UniqueConstraint("label_id"),
        sa.UniqueConstraint("source_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_labels_group", "labels", ["group_id", "labeller"])
    op.create_index("ix_labels_kind", "labels", ["kind", "environment", "sequence"])
    op.create_table(
        "label_leases",
        sa.Column("sequence", SEQUENCE, autoincrement=True, nullable=False),
        sa.Column("lease_id", sa.String(), nullable=False),
        sa.Column("labeller", sa.String(), nullable=False),
        sa.Column("group_id", sa.String(), nullable=False),
        sa.Column("environment", sa.String(), nullable=False),
        sa.Column("run", sa.String(), nullable=True),
        sa.Column("arm", sa.String(), nullable=False),
        sa.Column("second", sa.Boolean(), nullable=False),
        sa.Column("wanted", sa.Integer(), nullable=False),
        sa.Column("draw", sa.Text(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sa.UniqueConstraint("lease_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_label_leases_group", "label_leases", ["group_id"])
    op.create_index("ix_label_leases_labeller", "label_leases", ["labeller", "state"])
    op.create_index("ix_label_leases_stratum", "label_leases", ["environment", "run"])


def downgrade() -> None:
    op.drop_table("label_leases")
    op.drop_table("labels")
    with op.batch_alter_table("runs") as runs:
        runs.drop_column("min_agreement")
