"""How old samples are: the training step of leases and of Atropos' queue, the lag of groups, the limits of runs. What
was stored before has no step, and so no lag."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_COLUMNS = (
    ("leases", "step", sa.BigInteger()),
    ("groups", "lag", sa.BigInteger()),
    ("runs", "max_lag", sa.BigInteger()),
    ("trajectory_groups", "step", sa.BigInteger()),
)


def upgrade() -> None:
    for table, name, kind in _COLUMNS:
        op.add_column(table, sa.Column(name, kind, nullable=True))
    op.add_column("groups", sa.Column("stale", sa.Integer(), nullable=False, server_default=sa.text("0")))
    op.add_column("runs", sa.Column("lag_policy", sa.String(), nullable=False, server_default="flag"))
    out = sa.text("state = 'live' AND step IS NOT NULL")
    columns = ["run", "expires_at", "step"]
    op.create_index("ix_leases_live_step", "leases", columns, sqlite_where=out, postgresql_where=out)


def downgrade() -> None:
    op.drop_index("ix_leases_live_step", "leases")
    removed: dict[str, list[str]] = {"groups": ["stale"], "runs": ["lag_policy"]}
    for table, name, _ in _COLUMNS:
        removed.setdefault(table, []).append(name)
    for table, names in removed.items():
        with op.batch_alter_table(table) as altered:
            for name in names:
                altered.drop_column(name)
