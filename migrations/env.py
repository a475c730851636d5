"""How Alembic runs: on the connection it is given and in its transaction, so that a migration is whole or absent."""

from typing import Literal

from alembic import context
from alembic.autogenerate.api import AutogenContext
from sqlalchemy import Connection
from sqlmodel.sql.sqltypes import AutoString

from app.main.store import metadata


def _render(kind: str, item: object, _context: AutogenContext) -> str | Literal[False]:
    """SQLModel's own string type is a plain one."""
    return "sa.String()" if kind == "type" and isinstance(item, AutoString) else False


connection = context.config.attributes.get("connection")
if not isinstance(connection, Connection):
    raise TypeError("migrations run on an open connection: use app.store.migration.migrate")
context.configure(
    connection=connection,
    target_metadata=metadata,
    render_as_batch=connection.dialect.name == "sqlite",
    render_item=_render,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
