"""What a source reads before anything is known about its rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Table:
    """The rows of one split; `name` is the file or split that a person would look into."""

    name: str
    rows: Sequence[Mapping[str, object]]
