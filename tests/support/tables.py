"""Tables of values in YAML beside the test that reads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import TypeAdapter

Table = TypeVar("Table")
Given = TypeVar("Given")
Told = TypeVar("Told")


def read_table(test: str, name: str, form: type[Table]) -> Table:
    """From a file beside `test`, which is the `__file__` of who asks."""
    text = Path(test).with_name(name).read_text(encoding="utf-8")
    return TypeAdapter(form).validate_python(yaml.safe_load(text))


def unfold(table: Mapping[Told, Sequence[Given]]) -> list[tuple[Given, Told]]:
    """Pairs for `parametrize` of a table that lists under each outcome what leads to it."""
    return [(given, told) for told, every in table.items() for given in every]
