"""Access to bundled data files."""

from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import TypeAdapter

DataT = TypeVar("DataT")

_Loader: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_APP = Path(__file__).resolve().parents[1]


def find_packaged_folder(name: str) -> Path:
    """A bundled folder: inside an installed package, beside it in a checkout."""
    packaged = _APP / "_packaged" / name
    return packaged if packaged.is_dir() else _APP.parent / name


def read_packaged_data(path: Path, shape: TypeAdapter[DataT]) -> DataT:
    """Reads a bundled YAML file. pydantic.ValidationError when it does not match `shape`."""
    return shape.validate_python(read_yaml(path))


def read_yaml(path: Path) -> object:
    """What stands in a YAML file of ours: by libyaml where it is, which takes a tenth of the time."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader
