"""${message}"""

import sqlalchemy as sa
from alembic import op
${imports if imports else ""}
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = None
depends_on = None

IS_EXPANSION = False
"""True if the service of the schema before runs on this one: see docs/decisions.md#0023."""


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
