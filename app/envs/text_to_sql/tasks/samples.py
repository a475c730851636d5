"""Sample rows of each table for the prompt."""

from typing import Final

from app.envs.text_to_sql.tasks.filling import Cell, Rows
from app.envs.text_to_sql.tasks.schemas import Schema, Table

SHOWN: Final = 3


def sample_rows(schema: Schema, rows: Rows) -> str:
    return "\n\n".join(_sample(table, rows) for table in schema.tables)


def _sample(table: Table, rows: Rows) -> str:
    names = [table.key, *([table.label.name] if table.named else [])]
    names += [link.name for link in table.links] + [column.name for column in table.columns]
    lines = [" | ".join(map(_cell, row)) for row in rows[table.name][:SHOWN]]
    return "\n".join([f"{table.name}:", " | ".join(names), *lines])


def _cell(cell: Cell) -> str:
    return "NULL" if cell is None else str(cell)
