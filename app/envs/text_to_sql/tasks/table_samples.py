"""Sample rows of each table for the prompt."""

from typing import Final

from app.envs.text_to_sql.tasks.database_schemas import DatabaseSchema, SchemaTable
from app.envs.text_to_sql.tasks.row_generation import Cell, Rows

SHOWN: Final = 3


def write_samples(schema: DatabaseSchema, rows: Rows) -> str:
    return "\n\n".join(_write_sample(table, rows) for table in schema.tables)


def _write_sample(table: SchemaTable, rows: Rows) -> str:
    names = [table.key, *([table.label.name] if table.has_label else [])]
    names += [link.name for link in table.links] + [column.name for column in table.columns]
    lines = [" | ".join(map(_write_cell, row)) for row in rows[table.name][:SHOWN]]
    return "\n".join([f"{table.name}:", " | ".join(names), *lines])


def _write_cell(cell: Cell) -> str:
    return "NULL" if cell is None else str(cell)
