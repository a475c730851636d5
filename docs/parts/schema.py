"""Every table of the store with its columns, from the table classes."""

import ast
import inspect
import textwrap
from collections.abc import Iterator

from sqlalchemy import Column, Table

from app.main.store import metadata
from app.store.table_records import TableRecord
from docs.markdown import code, table


def schema_tables() -> str:
    """Tables by name."""
    classes = {str(one.__tablename__): one for one in _iterate_classes(TableRecord)}
    return "\n\n".join(_describe(metadata.tables[name], classes.get(name)) for name in sorted(metadata.tables))


def _iterate_classes(parent: type[TableRecord]) -> Iterator[type[TableRecord]]:
    for child in parent.__subclasses__():
        yield child
        yield from _iterate_classes(child)


def _describe(made: Table, record: type[TableRecord] | None) -> str:
    told = _read_docstrings(record) if record is not None else {}
    rows = [(code(one.name), _name_type(one), _name_role(one), told.get(one.name, "")) for one in made.columns]
    indexes = sorted(
        f"{code(str(one.name))} ({', '.join(column.name for column in one.columns)})" for one in made.indexes
    )
    parts = [f"### {made.name}", told.get("", ""), table(("column", "type", "", "holds"), rows)]
    if indexes:
        parts.append(f"Indexes: {'; '.join(indexes)}.")
    return "\n\n".join(filter(None, parts))


def _name_type(column: Column[object]) -> str:
    return str(column.type).lower() + ("" if not column.nullable else ", or null")


def _name_role(column: Column[object]) -> str:
    keys = ["key"] if column.primary_key else []
    return ", ".join([*keys, *(f"of {code(one.target_fullname)}" for one in column.foreign_keys)])


def _read_docstrings(record: type[TableRecord]) -> dict[str, str]:
    """What stands below the fields; under the empty name, what stands below the class."""
    (made,) = ast.parse(textwrap.dedent(inspect.getsource(record))).body
    if not isinstance(made, ast.ClassDef):
        raise TypeError(record.__name__)
    found = {"": " ".join((ast.get_docstring(made) or "").split())}
    for field, below in zip(made.body, made.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
        ):
            found[field.target.id] = " ".join(str(below.value.value).split())
    return found
