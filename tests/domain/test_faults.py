"""What is wrong with a value, in words: bounds come from the type, and nothing secret or long is repeated."""

import ast
from pathlib import Path
from typing import Annotated, Literal

import pytest
import yaml
from pydantic import BaseModel, Field, JsonValue, SecretStr, ValidationError

from app.domain.faults import _PATTERNS, describe_os_error, explain_faults, explain_yaml_error
from app.domain.values import FiniteJson, Frozen, Name
from tests.support.tables import read_table

APP: Path = Path(__file__).resolve().parents[2] / "app"


class Inner(Frozen):
    difficulty: Literal["easy", "hard"] = "easy"
    count: Annotated[int, Field(ge=1, le=512)] = 1


class Outer(Frozen):
    count: Annotated[int, Field(ge=1, le=512)] | None = None
    share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.5
    words: Annotated[tuple[str, ...], Field(min_length=1, max_length=4)] = ("a",)
    name: Name = "a"
    either: Inner | str = "x"
    any: FiniteJson = None
    inside: dict[Name, Inner] = {}
    api_key: str = ""
    sealed: SecretStr = SecretStr("")
    extra_headers: dict[str, str] = {}
    many: tuple[Inner, ...] = ()


class Tables(Frozen):
    values: tuple[tuple[JsonValue, list[str]], ...]
    yaml: tuple[tuple[str, str], ...]


TABLES = read_table(__file__, "faults.yaml", Tables)


@pytest.mark.parametrize(("given", "says"), TABLES.values)
def test_the_field_what_was_given_and_what_is_wanted_are_said(given: JsonValue, says: list[str]) -> None:
    with pytest.raises(ValidationError) as raised:
        Outer.model_validate(given)
    assert [fault.sentence for fault in explain_faults(raised.value, Outer)] == says


def test_without_the_type_the_error_says_what_is_wanted() -> None:
    class Plain(BaseModel):
        count: Annotated[int, Field(ge=1)]
        words: Annotated[list[str], Field(max_length=1)]

    with pytest.raises(ValidationError) as raised:
        Plain.model_validate({"count": 0, "words": ["a", "b"]})
    assert [fault.words for fault in explain_faults(raised.value)] == [
        "0 was given; wanted is a number of at least 1",
        "a list of 2 was given; wanted is a list of at most 1 entries",
    ]


@pytest.mark.parametrize(("text", "says"), TABLES.yaml)
def test_a_text_that_is_no_yaml_is_said_without_words_of_the_parser(text: str, says: str) -> None:
    told = set()
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        with pytest.raises(yaml.YAMLError) as raised:
            yaml.load(text, loader)  # noqa: S506 - both are safe
        told.add(explain_yaml_error(raised.value))
    assert told == {says}


def test_an_error_of_the_system_has_no_number(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        (tmp_path / "none").read_text(encoding="utf-8")
    assert describe_os_error(raised.value) == f"{tmp_path}/none: no such file or folder"


def test_each_pattern_of_a_field_has_words() -> None:
    """A regular expression says nothing to whoever wrote a wrong name."""
    found = {
        keyword.value.value
        for file in APP.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") in ("Field", "StringConstraints", "Path", "Query", "Header")
        for keyword in call.keywords
        if keyword.arg == "pattern" and isinstance(keyword.value, ast.Constant)
    }
    assert found - _PATTERNS.keys() == set()
