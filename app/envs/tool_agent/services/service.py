"""What every simulated service is made of: operations on a frozen state, and scenarios with a known way through."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import JsonValue

from app.domain.tasks import FunctionSpec, ToolSpec
from app.domain.values import Frozen
from app.toolkit.seeded import Draws
from app.toolkit.tool_calls.schemas import schema_fault
from app.toolkit.tool_calls.values import Call

StateT = TypeVar("StateT", bound=Frozen)

Arguments = Mapping[str, Any]
"""Of a call that is valid by its tool's schema, defaults not filled in."""


class Refused(Exception):
    """What a service says instead of doing something; it has done nothing."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[StateT]):
    """One tool. `does` is pure: the new state, and what the model is told; Refused when it cannot be done."""

    spec: ToolSpec
    does: Callable[[StateT, Arguments], tuple[StateT, JsonValue]]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user says, the calls that fulfil it, and a reply that ends the turn. Every one of `answers` has to be in
    the replies that follow the wish."""

    says: str
    calls: tuple[Call, ...]
    reply: str
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario(Generic[StateT]):
    """A state to start from and what the user wants, one wish after the other's reply; later ones may change what an
    earlier one asked for. Doing nothing never fulfils it."""

    kind: str
    start: StateT
    wishes: tuple[Wish, ...]


class Service(Protocol[StateT]):
    """`rules` are told to the model; whoever breaks them does not reach the goal."""

    @property
    def name(self) -> str: ...

    @property
    def rules(self) -> str: ...

    @property
    def operations(self) -> tuple[Operation[StateT], ...]: ...

    def essence(self, state: StateT) -> JsonValue:
        """All that counts of a state, equal for states that nobody could tell apart: no identifiers that depend on the
        order in which things were made."""

    def scenario(self, draws: Draws) -> Scenario[StateT]:
        """Pure. What the user says first differs wherever scenarios differ."""


@dataclass(frozen=True, slots=True)
class Result(Generic[StateT]):
    state: StateT
    told: JsonValue
    refused: bool = False


MOST_WORDS: Final = 200


def tools_of(service: Service[Any]) -> tuple[ToolSpec, ...]:
    return tuple(operation.spec for operation in service.operations)


def carried_out(service: Service[StateT], state: StateT, call: Call) -> Result[StateT]:
    """The state after a call, or as it was with the error that the model is told."""
    fault = schema_fault(call, tools_of(service))
    if fault:
        return Result(state, {"error": fault}, refused=True)
    does = next(operation.does for operation in service.operations if operation.spec.function.name == call.name)
    try:
        after, told = does(state, call.arguments)
    except Refused as reason:
        return Result(state, {"error": str(reason)[:MOST_WORDS]}, refused=True)
    return Result(after, told)


def tool(name: str, description: str, /, required: tuple[str, ...] = (), **properties: JsonValue) -> ToolSpec:
    """A tool whose arguments have these schemas, and no others."""
    parameters: dict[str, JsonValue] = {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }
    return ToolSpec(function=FunctionSpec(name=name, description=description, parameters=parameters))


def call(name: str, /, **arguments: JsonValue) -> Call:
    return Call(name=name, arguments=arguments)
