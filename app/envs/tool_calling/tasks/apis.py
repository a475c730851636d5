"""Built-in APIs, with the sentences in which people ask for their tools.

Requests contain every value exactly as it has to be passed, so that only one call is right.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from app.domain.tasks import FunctionSpec, ToolSpec
from app.domain.values import FiniteJson, Frozen
from app.toolkit.package_data import read_yaml

SLOT = re.compile(r"\{(\w+)\}")
PART = re.compile(r"\[([^\[\]]+)\]")
"""An optional part of a text, with the arguments that it names."""

ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{1,60}$")]
"""Servers with OpenAI's API accept only these characters, and dashes."""


class WordedValue(Frozen):
    """A value and the words for it, if they differ from the value."""

    value: FiniteJson
    said: str


Choice = Annotated[WordedValue | FiniteJson, Field(union_mode="left_to_right")]


class ApiArgument(Frozen):
    """One argument of a tool. Its values come from `values`, a named pool, or a range of numbers."""

    schema_: Annotated[dict[str, FiniteJson], Field(alias="schema")]
    values: tuple[Choice, ...] = ()
    pool: str | None = None
    range: Annotated[tuple[float, ...], Field(min_length=2, max_length=3)] | None = None
    """Lowest, highest, and optionally the step (default 1)."""
    listed: Annotated[tuple[int, int], Field(min_length=2)] | None = None
    """The argument is a list: least and most number of different values."""
    optional: bool = False
    """The argument may be left out. So may one with a `default` in its schema."""
    missing: tuple[str, ...] = ()
    """Words that may name its absence."""

    @model_validator(mode="after")
    def _check_values(self) -> Self:
        if sum((bool(self.values), self.pool is not None, self.range is not None)) != 1:
            raise ValueError("an argument needs exactly one of values, pool and range")
        return self


class IncompleteRequest(Frozen):
    """A request that lacks a required argument."""

    text: str
    lacks: str


class ApiTool(Frozen):
    name: ToolName
    description: Annotated[str, Field(min_length=10)]
    about: Annotated[tuple[str, ...], Field(min_length=1)]
    """Lower-case words; any of them says that a tool like this one is missing."""
    arguments: dict[str, ApiArgument] = {}
    asks: Annotated[tuple[str, ...], Field(min_length=2)]
    """Sentences with every required argument as `{name}`; parts such as `[ for {days} days]` are optional."""
    incomplete: tuple[IncompleteRequest, ...] = ()
    confusable: tuple[ToolName, ...] = ()
    """Other tools that could be mistaken for this one."""

    @model_validator(mode="after")
    def _check_asks(self) -> Self:
        for text in self.asks:
            if not {*self.required} <= {*SLOT.findall(PART.sub("", text))}:
                raise ValueError(f"{self.name}: {text!r} does not name every required argument")
            self._check_slots(text)
        for one in self.incomplete:
            self._check_slots(one.text)
            if one.lacks not in self.required or one.lacks in SLOT.findall(one.text):
                raise ValueError(f"{self.name}: {one.text!r} must leave out the required argument {one.lacks}")
            if not self.arguments[one.lacks].missing:
                raise ValueError(f"{self.name}.{one.lacks} needs `missing`: words that name its absence")
        return self

    def _check_slots(self, text: str) -> None:
        unknown = set(SLOT.findall(text)) - self.arguments.keys()
        if unknown:
            raise ValueError(f"{self.name}: {text!r} names {min(unknown)}, which is not an argument")

    @property
    def required(self) -> tuple[str, ...]:
        """Arguments that every call has."""
        return tuple(
            name
            for name, argument in self.arguments.items()
            if not argument.optional and "default" not in argument.schema_
        )

    @property
    def subject(self) -> tuple[str, ...]:
        """Words for what the tool does: what its `about` and its name say."""
        return tuple(dict.fromkeys((*self.about, *(word for word in self.name.split("_")[1:] if len(word) > 3))))

    @property
    def naming_words(self) -> tuple[str, ...]:
        """All words that name the tool or its arguments."""
        return *self.about, *(word for argument in self.arguments.values() for word in argument.missing)

    @cached_property
    def spec(self) -> ToolSpec:
        properties: dict[str, JsonValue] = {name: argument.schema_ for name, argument in self.arguments.items()}
        parameters: dict[str, JsonValue] = {
            "type": "object",
            "properties": properties,
            "required": [*self.required],
            "additionalProperties": False,
        }
        return ToolSpec(function=FunctionSpec(name=self.name, description=self.description, parameters=parameters))


class ApiDomain(Frozen):
    domain: Annotated[str, Field(pattern=r"^[a-z_]+$")]
    pools: dict[str, Annotated[tuple[Choice, ...], Field(min_length=4)]] = {}
    tools: Annotated[tuple[ApiTool, ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _check_pools(self) -> Self:
        for tool in self.tools:
            for name, argument in tool.arguments.items():
                if argument.pool is not None and argument.pool not in self.pools:
                    raise ValueError(f"{tool.name}.{name}: unknown pool {argument.pool}")
        return self


def _check_tool_names(domains: tuple[ApiDomain, ...]) -> tuple[ApiDomain, ...]:
    names = [tool.name for domain in domains for tool in domain.tools]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(f"two tools have the name {min(twice)}")
    unknown = {one for domain in domains for tool in domain.tools for one in tool.confusable} - {*names}
    if unknown:
        raise ValueError(f"`confusable` names the unknown tool {min(unknown)}")
    return domains


class ApiBook(Frozen):
    """All domains, in the order of their names."""

    domains: Annotated[tuple[ApiDomain, ...], Field(min_length=1), AfterValidator(_check_tool_names)]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """From one YAML file per domain; pydantic.ValidationError where one is not a domain."""
        files = sorted(folder.glob("*.yaml"))
        return cls.model_validate({"domains": [read_yaml(file) for file in files]})

    def list_tools(self) -> Iterator[tuple[ApiDomain, ApiTool]]:
        return ((domain, tool) for domain in self.domains for tool in domain.tools)
