"""Rubrics of one's own: checked against the gates, and read from files with the line of every error."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, get_args

from pydantic import BaseModel, ValidationError

from app.characters.loading import read_text
from app.characters.sheet_sources import Level, SheetFinding
from app.characters.yaml_documents import BrokenYaml, YamlDocument, parse_document
from app.domain.errors import GatewayError, InvalidRequest
from app.domain.judging import Rubric
from app.domain.rubrics import OwnRubric, find_rubric_problems
from app.domain.suggestions import suggest
from app.judges.gates.gate_registry import GATES

MAX_RUBRIC_BYTES: Final = 256 * 1024
CONFIRMED_HINTS: Final = tuple(gate.flag for gate in GATES if gate.confirmed)
"""Hints whose gate closes when a defect of the rubric confirms them."""


@dataclass(frozen=True)
class RubricFile:
    """A rubric's file with all findings. `rubric` is None if one of them is an error."""

    findings: tuple[SheetFinding, ...]
    rubric: OwnRubric | None


@lru_cache(maxsize=256)
def build_sound_rubric(own: OwnRubric) -> Rubric:
    """InvalidRequest naming the field. The same object for equal rubrics, so that prompts of many groups share their
    beginning."""
    require_sound_rubric(own, "options.rubric")
    return own.build_rubric()


def require_sound_rubric(own: OwnRubric, field: str) -> None:
    """InvalidRequest naming the part of `field` that is wrong."""
    for problem in find_rubric_problems(own, CONFIRMED_HINTS):
        if problem.level == "error":
            steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in problem.at)
            raise InvalidRequest(problem.message, field="".join((field, *steps)))


def load_rubric(path: Path) -> OwnRubric:
    """ValueError with the first error: file, line and key."""
    read = read_rubric(path)
    if read.rubric is None:
        first = next(finding for finding in read.findings if finding.level == "error")
        place = f"{first.file}, line {first.line}" if first.line else first.file
        raise ValueError(": ".join(filter(None, (place, first.field, first.message))))
    return read.rubric


def read_rubric(path: Path) -> RubricFile:
    """Never raises for invalid content."""
    name = str(path)
    try:
        document = parse_document(read_text(path, MAX_RUBRIC_BYTES), path.name)
        own = OwnRubric.model_validate(document.value)
    except BrokenYaml as error:
        message = error.detail.removeprefix(f"{path.name}: ")
        return RubricFile((_build_finding(name, error.line or 0, "", message),), None)
    except ValidationError as error:
        return RubricFile(_explain_fields(name, document, error), None)
    except GatewayError as error:
        return RubricFile((_build_finding(name, 0, "", error.detail),), None)
    except OSError as error:
        return RubricFile((_build_finding(name, 0, "", error.strerror or str(error)),), None)
    found = [
        _build_finding(name, document.find_line(one.at), _format_path(one.at), one.message, one.level)
        for one in find_rubric_problems(own, CONFIRMED_HINTS)
    ]
    broken = any(finding.level == "error" for finding in found)
    return RubricFile(tuple(sorted(found, key=lambda one: (one.line, one.level))), None if broken else own)


def _explain_fields(name: str, document: YamlDocument, error: ValidationError) -> tuple[SheetFinding, ...]:
    """By line; unknown keys before missing ones, since those may be the same, misspelt."""
    found = []
    listed = error.errors(include_url=False, include_input=False, include_context=False)
    for one in sorted(listed, key=lambda one: one["type"] == "missing"):
        at = tuple(step for step in one["loc"] if step != "[key]")
        message = one["msg"].removeprefix("Value error, ")
        if one["type"] in ("model_type", "dict_type"):
            message = "should be a mapping of keys to values"
        if one["type"] == "extra_forbidden":
            message = f"there is no key {at[-1]!r}{suggest(str(at[-1]), _list_keys(at[:-1]))}"
        found.append(_build_finding(name, document.find_line(at), _format_path(at), " ".join(message.split())))
    return tuple(sorted(found, key=lambda finding: finding.line))


def _list_keys(at: Sequence[str | int]) -> list[str]:
    """The keys that a place in a rubric may have."""
    model: type[BaseModel] = OwnRubric
    for step in at:
        field = model.model_fields.get(str(step))
        if field is not None:
            model = next(_iterate_models(field.annotation), model)
    return list(model.model_fields)


def _iterate_models(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _iterate_models(inner)


def _build_finding(file: str, line: int, field: str, message: str, level: Level = "error") -> SheetFinding:
    return SheetFinding(file=file, line=line, field=field, level=level, message=message)


def _format_path(at: Sequence[str | int]) -> str:
    return ".".join(map(str, at))
