"""Rows as JSON lines."""

from collections.abc import Sequence

from pydantic import BaseModel


class LinesEncoder:
    def add(self, rows: Sequence[BaseModel]) -> bytes:
        return lines(rows)

    def end(self) -> bytes:
        return b""


def lines(rows: Sequence[BaseModel]) -> bytes:
    return b"".join(row.model_dump_json().encode() + b"\n" for row in rows)
