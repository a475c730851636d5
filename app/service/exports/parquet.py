"""Rows as Parquet, piece by piece, with a schema that no row can change.

Importing it takes a third of a second, so only those who export Parquet wait for it.
"""

from collections.abc import Sequence
from io import BytesIO, RawIOBase
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import pyarrow as pa
from pyarrow import json, parquet
from pydantic import BaseModel

from app.service.exports.lines import lines

pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps 14 MB more for pieces as small as these

ROW_GROUP_BYTES: Final = 2 * 1024 * 1024
"""Until the file is closed each row group takes 70 KB of memory, so pages are put together to some of a size."""
_PLAIN: Final = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}


class ParquetEncoder:
    """A file in pieces, whole only with the last."""

    def __init__(self, row: type[BaseModel]) -> None:
        self._schema = schema_of(row)
        self._waiting: list[pa.Table] = []
        self._sink = _Sink()
        self._writer = parquet.ParquetWriter(self._sink, self._schema, compression="zstd")

    def add(self, rows: Sequence[BaseModel]) -> bytes:
        """By way of JSON lines, which Arrow reads by itself: from Python's objects it would have pandas help, and that
        takes 50 MB."""
        said = lines(rows)
        parsing = json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="error")
        whole = json.ReadOptions(use_threads=False, block_size=len(said) + 1)
        self._waiting.append(json.read_json(BytesIO(said), whole, parsing))
        if sum(table.nbytes for table in self._waiting) >= ROW_GROUP_BYTES:
            self._write()
        return self._sink.taken()

    def end(self) -> bytes:
        self._write()
        self._writer.close()
        return self._sink.taken()

    def _write(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting.clear()


class _Sink(RawIOBase):
    """Where a writer believes a file to be: what was taken out still counts for its place in it."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._written = 0

    def writable(self) -> bool:
        return True

    def write(self, piece: Any) -> int:
        self._pieces.append(bytes(piece))
        self._written += len(self._pieces[-1])
        return len(self._pieces[-1])

    def tell(self) -> int:
        return self._written

    def taken(self) -> bytes:
        piece = b"".join(self._pieces)
        self._pieces.clear()
        return piece


def schema_of(row: type[BaseModel]) -> pa.Schema:
    return pa.schema([pa.field(name, _type(field.annotation)) for name, field in row.model_fields.items()])


def _type(annotation: Any) -> pa.DataType:
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if get_origin(annotation) is Annotated:
        return _type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        (inner,) = (one for one in get_args(annotation) if one is not NoneType)
        return _type(inner)
    if get_origin(annotation) is tuple:
        return pa.list_(_type(get_args(annotation)[0]))
    return pa.struct([pa.field(name, _type(field.annotation)) for name, field in annotation.model_fields.items()])
