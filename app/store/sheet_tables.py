"""Tables of character sheets, their versions, and the versions that epochs use."""

from sqlalchemy import BigInteger, Text
from sqlmodel import Field

from app.store.table_records import TableRecord, get_table


class SheetTable(TableRecord, table=True):
    """A character sheet as JSON, stored once per digest of `body`."""

    __tablename__ = "sheets"
    digest: str = Field(primary_key=True)
    body: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class EditionTable(TableRecord, table=True):
    """One version of an environment's sheets: a JSON list of their digests, in order."""

    __tablename__ = "editions"
    environment: str = Field(primary_key=True)
    data_digest: str = Field(primary_key=True)
    sheets: str = Field(sa_type=Text)
    created_at: int = Field(sa_type=BigInteger)


class EpochTable(TableRecord, table=True):
    """The version that an epoch of a stream began with."""

    __tablename__ = "epochs"
    run: str = Field(primary_key=True)
    stream: str = Field(primary_key=True)
    epoch: int = Field(primary_key=True, sa_type=BigInteger)
    data_digest: str
    created_at: int = Field(sa_type=BigInteger)


sheets = get_table(SheetTable)
editions = get_table(EditionTable)
epochs = get_table(EpochTable)
