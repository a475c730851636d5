"""The base class of tables. Constraints have fixed names, so that migrations can refer to them."""

from typing import ClassVar

from sqlalchemy import MetaData, Table
from sqlmodel import SQLModel

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
    }
)


class TableRecord(SQLModel):
    """No row is validated, so that a start builds none of the validators."""

    model_config = {"defer_build": True}
    metadata: ClassVar[MetaData] = metadata


def get_table(record: type[TableRecord]) -> Table:
    return metadata.tables[str(record.__tablename__)]
