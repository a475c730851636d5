"""Encodes rows as Parquet, in pieces, with a fixed schema.

Importing it takes a third of a second, so it is imported only for Parquet exports.
"""

from collections.abc import Sequence
from io import BytesIO, RawIOBase
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Union, get_args, get_origin

import pyarrow as pa
from pyarrow import json, parquet
from pydantic import BaseModel

from app.features.exports.rows import encode_json_lines

pa.set_memory_pool(pa.system_memory_pool())  # Arrow's own keeps 14 MB more for pieces as small as these

_ROW_GROUP_BYTES: Final = 2 * 1024 * 1024
"""Each row group takes 70 KB of memory until the file is closed, so pages are merged into larger ones."""
_ARROW_TYPES: Final = {str: pa.string(), bool: pa.bool_(), int: pa.int64(), float: pa.float64()}


class ParquetEncoder:
    """Writes a Parquet file in pieces. It is complete only with the last one."""

    def __init__(self, row: type[BaseModel]) -> None:
        self._schema = _build_schema(row)
        self._waiting: list[pa.Table] = []
        self._sink = _Sink()
        self._writer = parquet.ParquetWriter(self._sink, self._schema, compression="zstd")

    def encode_rows(self, rows: Sequence[BaseModel]) -> bytes:
        """Encodes rows via JSON lines, which Arrow reads by itself. From Python objects it would import pandas, which
        takes 50 MB."""
        said = encode_json_lines(rows)
        parsing = json.ParseOptions(explicit_schema=self._schema, unexpected_field_behavior="error")
        whole = json.ReadOptions(use_threads=False, block_size=len(said) + 1)
        self._waiting.append(json.read_json(BytesIO(said), whole, parsing))
        if sum(table.nbytes for table in self._waiting) >= _ROW_GROUP_BYTES:
            self._write_row_group()
        return self._sink.take_bytes()

    def finish(self) -> bytes:
        self._write_row_group()
        self._writer.close()
        return self._sink.take_bytes()

    def _write_row_group(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting.clear()


class _Sink(RawIOBase):
    """A write-only file that hands out its bytes; its position counts all bytes written."""

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

    def take_bytes(self) -> bytes:
        piece = b"".join(self._pieces)
        self._pieces.clear()
        return piece


def _build_schema(row: type[BaseModel]) -> pa.Schema:
    return pa.schema([pa.field(name, _convert_type(field.annotation)) for name, field in row.model_fields.items()])


def _convert_type(annotation: Any) -> pa.DataType:
    if annotation in _ARROW_TYPES:
        return _ARROW_TYPES[annotation]
    if get_origin(annotation) is Annotated:
        return _convert_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        (inner,) = (one for one in get_args(annotation) if one is not NoneType)
        return _convert_type(inner)
    if get_origin(annotation) is tuple:
        return pa.list_(_convert_type(get_args(annotation)[0]))
    return pa.struct(
        [pa.field(name, _convert_type(field.annotation)) for name, field in annotation.model_fields.items()]
    )
