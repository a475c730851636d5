"""What tables share: their base, columns and indexes of one make, and fixed names of constraints for migrations."""

from functools import partial
from typing import ClassVar

from sqlalchemy import BigInteger, Column, Index, Integer, MetaData, Table, event, text
from sqlalchemy.ext.declarative import DeferredReflection
from sqlmodel import SQLModel

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)


class TableRecord(DeferredReflection, SQLModel):
    """No row becomes an object, so that a start neither builds validators nor maps classes."""

    model_config = {"defer_build": True}
    metadata: ClassVar[MetaData] = metadata


def get_table(record: type[TableRecord]) -> Table:
    return metadata.tables[str(record.__tablename__)]


def build_sequence_column(name: str = "sequence") -> "Column[int]":
    """A primary key that the database counts up."""
    return Column(name, BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True)


def build_partial_index(name: str, *columns: str, where: str) -> Index:
    """PostgreSQL's dialects take long to load, and migrations, which make the tables, state its condition themselves:
    so the index learns it when somebody else makes them."""
    index = Index(name, *columns, sqlite_where=text(where))
    event.listen(metadata, "before_create", partial(_add_condition, index, where))
    return index


def _add_condition(index: Index, where: str, *_: object, **__: object) -> None:
    index.dialect_kwargs["postgresql_where"] = text(where)
