"""The environments as the service opens them without any settings, and the params under which they are looked at."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.tasks import Task
from app.domain.values import Split
from app.main.components import discover
from app.ports.environment import Environment
from app.service.catalogue import ServedEnvironment
from app.toolkit.conformance.subject import SPLITS

LOOKED_AT = 200
"""Tasks of each block."""
LESS_LOOKED_AT = 50
"""Of each block whose choice is of something else than a level."""


@dataclass(frozen=True)
class Block:
    """An environment's tasks of one split under one choice of params."""

    hosted: ServedEnvironment
    split: Split
    choice: str
    params: BaseModel

    @property
    def environment(self) -> Environment:
        return self.hosted.environment

    @property
    def name(self) -> str:
        return f"{self.hosted.name}/{self.split}/{self.choice}"

    def indexes(self, most: int = LOOKED_AT) -> range:
        most = most if self.choice.startswith(("default", "level=")) else min(most, LESS_LOOKED_AT)
        size = self.environment.size(self.split, self.params)
        return range(most if size is None else min(most, size))

    def task(self, index: int) -> Task:
        return self.environment.task(self.split, index, self.params)


@lru_cache(maxsize=1)
def all_hosted() -> Mapping[str, ServedEnvironment]:
    """Opened once, by name."""
    nothing = ConfiguredDatasets({})
    return {name: ServedEnvironment.from_environment(kind.open(nothing)) for name, kind in sorted(discover().items())}


def blocks_of(hosted: ServedEnvironment) -> Iterator[Block]:
    for choice, params in _choices(hosted.environment.Params):
        for split in SPLITS:
            yield Block(hosted, split, choice, params)


def _choices(model: type[BaseModel]) -> Iterator[tuple[str, BaseModel]]:
    """The default params, and for each field that takes a few words only each of these words."""
    default = model()
    yield "default", default
    for name, field in model.model_fields.items():
        for word in _words(field.annotation):
            if word != getattr(default, name):
                yield f"{name}={word}", model.model_validate({name: word})


def _words(annotation: Any) -> Sequence[str]:
    """Those that a field takes; none where it takes anything else too."""
    if get_origin(annotation) is Literal:
        return [str(word) for word in get_args(annotation)]
    if get_origin(annotation) is not Union:
        return []
    found = [_words(option) for option in get_args(annotation)]
    return [word for words in found for word in words] if all(found) else []
