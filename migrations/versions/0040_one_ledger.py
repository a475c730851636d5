"""What judges, runs and keys have spent is in one table, and what is reserved for them in another.

They were seven: spending and reservations of each, and the runs that a key is admitted with.
"""

from typing import Final

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"
branch_labels = None
depends_on = None

IS_EXPANSION = False

_COUNTS: Final = (
    "groups",
    "readings",
    "calls",
    "unpriced_calls",
    "input_tokens",
    "output_tokens",
    "cached_input_tokens",
    "reasoning_tokens",
    "cost_usd",
    "unanswered_calls",
    "unanswered_tokens",
    "unanswered_usd",
)

_HOUR: Final = 3_600_000_000
_DAY: Final = 24 * _HOUR

_SPENT: Final = {
    "judge_spending": {
        **{name: name for name in _COUNTS},
        "kind": "'judge'",
        "account": "judge",
        "hour": "day * 24",
        "groups": "0",
        "unpriced_calls": "0",
        "first_at": f"day * {_DAY}",
        "last_at": f"day * {_DAY}",
    },
    "run_costs": {
        **{name: name for name in _COUNTS},
        "kind": "'run'",
        "account": "run",
        "environment": "environment",
        "hour": "hour",
        "first_at": "first_at",
        "last_at": "last_at",
    },
    "key_usage": {
        "kind": "'key'",
        "account": "key",
        "hour": "day * 24",
        "part": "part",
        "input_tokens": "judge_tokens",
        "cost_usd": "judge_usd",
        "requests": "requests",
        "first_at": f"day * {_DAY}",
        "last_at": f"day * {_DAY}",
    },
}
"""By table, the columns of `spending` that are not 0, and how they come from its own. Of keys it is known in sum alone
what they have used."""

_HELD: Final = {
    "judge_holds": {
        "hold": "hold",
        "kind": "'judge'",
        "account": "judge",
        "used_tokens": "used_tokens",
        "used_usd": "used_usd",
        "open_tokens": "open_tokens",
        "open_usd": "open_usd",
        "until": "until",
    },
    "run_holds": {
        "hold": "group_id",
        "kind": "'run'",
        "account": "run",
        "used_usd": "CASE WHEN settled THEN usd ELSE 0 END",
        "open_usd": "CASE WHEN settled THEN 0 ELSE usd END",
        "until": "until",
        "holder": "holder",
    },
    "key_holds": {
        "hold": "hold",
        "kind": "'key'",
        "account": "key",
        "open_tokens": "judge_tokens",
        "open_usd": "judge_usd",
        "leases": "leases",
        "until": "until",
    },
    "key_admissions": {
        "hold": "'run ' || run",
        "kind": "'key'",
        "account": "key",
        "until": "until",
    },
}


def upgrade() -> None:
    spending = op.create_table(
        "spending",
        sa.Column("kind", sa.String(), primary_key=True),
        sa.Column("account", sa.String(), primary_key=True),
        sa.Column("environment", sa.String(), primary_key=True),
        sa.Column("hour", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("part", sa.Integer(), primary_key=True, autoincrement=False),
        *(_count(name) for name in _COUNTS),
        _count("requests"),
        _count("first_at"),
        _count("last_at"),
    )
    holds = op.create_table(
        "holds",
        sa.Column("hold", sa.String(), primary_key=True),
        sa.Column("kind", sa.String(), primary_key=True),
        sa.Column("account", sa.String(), primary_key=True),
        *(_count(name) for name in ("used_tokens", "used_usd", "open_tokens", "open_usd")),
        sa.Column("leases", sa.Integer(), nullable=False),
        sa.Column("until", sa.BigInteger(), nullable=True),
        sa.Column("holder", sa.String(), nullable=True),
    )
    op.create_index("ix_holds_account", "holds", ["kind", "account"])
    for target, sources in ((spending, _SPENT), (holds, _HELD)):
        for source, columns in sources.items():
            _move(target, source, columns)


def _count(name: str) -> "sa.Column[int] | sa.Column[float]":
    return sa.Column(name, sa.Float() if name.endswith("_usd") else sa.BigInteger(), nullable=False)


def _move(target: sa.Table, source: str, columns: dict[str, str]) -> None:
    """What `columns` does not name is null where it may be, otherwise empty or 0."""
    names = [column.name for column in target.columns if column.name in columns or not column.nullable]
    values: list[sa.ColumnElement[object]] = [
        sa.literal_column(columns.get(name, "''" if name == "environment" else "0")) for name in names
    ]
    op.execute(sa.insert(target).from_select(names, sa.select(*values).select_from(sa.table(source))))
    op.drop_table(source)
