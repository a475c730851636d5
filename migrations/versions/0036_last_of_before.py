"""The schema of stores that 0037 lifts. A new store passes it without a table."""

revision = "0036"
down_revision = None
branch_labels = None
depends_on = None

IS_EXPANSION = False


def upgrade() -> None:
    """Every store has either this schema or none."""
