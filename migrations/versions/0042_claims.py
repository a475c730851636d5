"""Who has which work is a table of claims: jobs, looks after runs, and items of the queue of labels."""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"
branch_labels = None
depends_on = None

IS_EXPANSION = False

_LIFTS: Final = (
    "INSERT INTO claims (kind, name, holder, until, released_at) "
    "SELECT 'job', job, holder, held_until, ended_at FROM job_turns",
    "INSERT INTO claims (kind, name, holder, until, released_at) "
    "SELECT 'run_health', run, claim, claimed_until, 0 FROM run_health WHERE claimed_until > 0",
    "INSERT INTO claims (kind, name, holder, until, released_at) "
    "SELECT CASE WHEN second THEN 'second_label' ELSE 'label' END, group_id, lease_id, expires_at, 0 "
    "FROM label_leases WHERE sequence IN "
    "(SELECT max(sequence) FROM label_leases WHERE state = 'live' GROUP BY group_id, second)",
)


def upgrade() -> None:
    op.create_table(
        "claims",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=False),
        sa.Column("released_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("kind", "name", name="pk_claims"),
    )
    for lift in _LIFTS:
        op.execute(lift)
    op.drop_table("job_turns")
    op.drop_column("run_health", "claim")
    op.drop_column("run_health", "claimed_until")
    op.drop_column("label_leases", "expires_at")
