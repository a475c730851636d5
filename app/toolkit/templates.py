"""Prompt templates, rendered strictly in a sandbox, and the phrasings of tasks."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment
from pydantic import TypeAdapter

from app.domain.digests import digest, digest_of_text
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom

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
