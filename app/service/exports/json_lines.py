"""Rows as JSON lines."""

from collections.abc import Sequence

from pydantic import BaseModel


class JsonLinesEncoder:
    def encode_rows(self, rows: Sequence[BaseModel]) -> bytes:
        return encode_json_lines(rows)

    def finish(self) -> bytes:
        return b""


def encode_json_lines(rows: Sequence[BaseModel]) -> bytes:
    return b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
