"""Raw rows of a data set, before validation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SplitTable:
    """The rows of one split. `name` is the file or split, for error messages."""

    name: str
    rows: Sequence[Mapping[str, object]]
