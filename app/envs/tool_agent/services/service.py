"""What every simulated service consists of: operations on a frozen state, and scenarios with a known solution."""

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
"""Arguments that are valid by the tool's schema; defaults are not filled in."""


class Refused(Exception):
    """The service refuses a call and leaves the state unchanged; the message says why."""


@dataclass(frozen=True, slots=True)
class Operation(Generic[StateT]):
    """One tool. `does` is pure: it returns the new state and the result, or raises if the call is refused."""

    spec: ToolSpec
    does: Callable[[StateT, Arguments], tuple[StateT, JsonValue]]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user says, the calls that fulfil it, and the reply that ends the turn. The replies to the wish must
    contain all of `answers`."""

    says: str
    calls: tuple[Call, ...]
    reply: str
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Scenario(Generic[StateT]):
    """An initial state and the user's wishes, which come one by one; a later wish may change an earlier one. Doing
    nothing never fulfils a scenario."""

    kind: str
    start: StateT
    wishes: tuple[Wish, ...]


class Service(Protocol[StateT]):
    """A simulated service. The prompt contains `rules`; breaking them leads to a wrong end state."""

    @property
    def name(self) -> str: ...

    @property
    def rules(self) -> str: ...

    @property
    def operations(self) -> tuple[Operation[StateT], ...]: ...

    def essence(self, state: StateT) -> JsonValue:
        """The canonical form of a state, equal for equivalent states: without identifiers that depend on the order of
        creation."""

    def scenario(self, draws: Draws) -> Scenario[StateT]:
        """Pure. Different scenarios begin with different words of the user."""


@dataclass(frozen=True, slots=True)
class Result(Generic[StateT]):
    state: StateT
    told: JsonValue
    refused: bool = False


MOST_WORDS: Final = 200


def tools_of(service: Service[Any]) -> tuple[ToolSpec, ...]:
    return tuple(operation.spec for operation in service.operations)


def carried_out(service: Service[StateT], state: StateT, call: Call) -> Result[StateT]:
    """The state after a call; after a refused call the old state with an error."""
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
    """A tool with exactly these arguments and their schemas."""
    parameters: dict[str, JsonValue] = {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }
    return ToolSpec(function=FunctionSpec(name=name, description=description, parameters=parameters))


def call(name: str, /, **arguments: JsonValue) -> Call:
    return Call(name=name, arguments=arguments)
