"""Tables of the index of texts.

The words themselves are in `group_words`, which is of another kind on each database, and so is made with the first.
"""

from sqlalchemy import BigInteger, Column, Integer
from sqlmodel import Field

from app.store.table_records import TableRecord, build_partial_index, get_table


class GroupTextTable(TableRecord, table=True):
    """Groups that the index has passed: it holds their words, unless they wait for it until they have scores, or since
    their texts have changed."""

    __tablename__ = "group_texts"
    __table_args__ = (build_partial_index("ix_group_texts_waiting", "sequence", where="waiting = 1"),)
    sequence: int = Field(sa_column=Column(BigInteger(), primary_key=True, autoincrement=False))
    waiting: int


class TextProgressTable(TableRecord, table=True):
    """One row: up to which sequence groups are indexed, and in which form."""

    __tablename__ = "text_progress"
    form: int = Field(sa_column=Column(Integer(), primary_key=True, autoincrement=False))
    through: int = Field(sa_type=BigInteger)


group_texts = get_table(GroupTextTable)
text_progress = get_table(TextProgressTable)
