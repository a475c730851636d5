"""Named keys, an audit of what was done to them, and the browsers that are signed in with one. Named keys have a table
of their own: a service of the release before lets everyone in whose digest is in `api_keys`."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"
branch_labels = None
depends_on = None

IS_EXPANSION = True

_SEQUENCE = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "named_keys",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_named_keys"),
        sa.UniqueConstraint("digest", name="uq_named_keys_digest"),
    )
    op.create_table(
        "admin_actions",
        sa.Column("sequence", _SEQUENCE, autoincrement=True, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_admin_actions"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "sign_ins",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("key_digest", sa.String(), nullable=False),
        sa.Column("expires_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sign_ins"),
    )


def downgrade() -> None:
    op.drop_table("sign_ins")
    op.drop_table("admin_actions")
    op.drop_table("named_keys")
