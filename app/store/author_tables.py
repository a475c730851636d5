"""Table of what authors wrote."""

from sqlalchemy import BigInteger, Text
from sqlmodel import Field

from app.store.table_records import TableRecord, get_table


class AuthoredTable(TableRecord, table=True):
    """Revisions of files of characters. They are never changed."""

    __tablename__ = "authored"
    file: str = Field(primary_key=True)
    revision: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    body: str | None = Field(default=None, sa_type=Text)
    """JSON string; null for a withdrawal."""
    note: str = Field(sa_type=Text)
    """JSON string."""
    author: str
    digest: str | None = None
    created_at: int = Field(sa_type=BigInteger)


authored = get_table(AuthoredTable)
