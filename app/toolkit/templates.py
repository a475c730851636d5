"""Prompt templates, rendered strictly in a sandbox, and the phrasings of tasks."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TypeVar

import jinja2
import yaml
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import TypeAdapter, ValidationError

from app.domain.values import digest, digest_of_text
from app.toolkit.seeded import SeededRandom

# Bundled data files

DataT = TypeVar("DataT")

_Loader: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_APP = Path(__file__).resolve().parents[1]


def find_packaged_folder(name: str) -> Path:
    """A bundled folder: inside an installed package, beside it in a checkout."""
    packaged = _APP / "_packaged" / name
    return packaged if packaged.is_dir() else _APP.parent / name


def read_packaged_data(path: Path, shape: TypeAdapter[DataT]) -> DataT:
    """Reads a bundled YAML file. pydantic.ValidationError, with a note that names the file, when it does not match
    `shape`."""
    try:
        return shape.validate_python(read_yaml(path))
    except ValidationError as error:
        error.add_note(f"in {path.name}")
        raise


def read_yaml(path: Path) -> object:
    """What stands in a YAML file of ours: by libyaml where it is, which takes a tenth of the time."""
    return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)  # noqa: S506 - a safe loader


# Templates and phrasings

_jinja = ImmutableSandboxedEnvironment(
    undefined=jinja2.StrictUndefined,
    autoescape=False,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=False,
)


class Template:
    """A bundled template. Text of players and models is only ever passed as a value."""

    def __init__(self, source: str) -> None:
        self._source = source
        self.digest = digest_of_text(source)

    @classmethod
    def read(cls, path: Path) -> "Template":
        return cls(path.read_text(encoding="utf-8"))

    @cached_property
    def _template(self) -> jinja2.Template:
        """Compiled by its first use: a start needs none."""
        return _jinja.from_string(self._source)

    def render(self, **values: object) -> str:
        """jinja2.UndefinedError when the template names a value that is not given."""
        return self._template.render(**values)


class Phrasings:
    """Phrasings of a prompt: bundled texts with `{slots}`. Values are never read as templates."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = tuple(texts)
        self.digest = digest(list(self._texts))

    @classmethod
    def read(cls, path: Path) -> "Phrasings":
        """A YAML list of texts. ValueError for anything else."""
        return cls(read_packaged_data(path, TypeAdapter(tuple[str, ...])))

    def say(self, draws: SeededRandom, **values: str | int) -> str:
        """Fills a random phrasing. KeyError when a slot has no value."""
        return draws.one(self._texts).format_map(values)
