"""What every simulated service consists of: operations on a frozen state, and scenarios with a known solution."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import JsonValue

from app.domain.tasks import FunctionSpec, ToolSpec
from app.domain.values import Frozen
from app.toolkit.seeded import SeededRandom
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.schemas import describe_schema_fault

StateT = TypeVar("StateT", bound=Frozen)

Arguments = Mapping[str, Any]
"""Arguments that are valid by the tool's schema; defaults are not filled in."""


class OperationRefused(Exception):
    """The service refuses a call and leaves the state unchanged; the message says why."""


@dataclass(frozen=True, slots=True)
class ServiceOperation(Generic[StateT]):
    """One tool. `does` is pure: it returns the new state and the result, or raises if the call is refused."""

    spec: ToolSpec
    does: Callable[[StateT, Arguments], tuple[StateT, JsonValue]]


@dataclass(frozen=True, slots=True)
class UserWish:
    """What the user says, the calls that fulfil it, and the reply that ends the turn. The replies to the wish must
    contain all of `answers`, and no other value of their kind but known ones and those in `beside`."""

    says: str
    calls: tuple[ParsedCall, ...]
    reply: str
    answers: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """What an honest reply may mention although neither the user nor what was changed says it."""


@dataclass(frozen=True, slots=True)
class ServiceScenario(Generic[StateT]):
    """An initial state and the user's wishes, which come one by one; a later wish may change an earlier one. Doing
    nothing never fulfils a scenario."""

    kind: str
    start: StateT
    wishes: tuple[UserWish, ...]


class SimulatedService(Protocol[StateT]):
    """A simulated service. The prompt contains `rules`; breaking them leads to a wrong end state."""

    @property
    def name(self) -> str: ...

    @property
    def rules(self) -> str: ...

    @property
    def operations(self) -> tuple[ServiceOperation[StateT], ...]: ...

    def canonicalise(self, state: StateT) -> JsonValue:
        """The canonical form of a state, equal for equivalent states: without identifiers that depend on the order of
        creation."""

    def draw_scenario(self, draws: SeededRandom) -> ServiceScenario[StateT]:
        """Pure. Different scenarios begin with different words of the user."""


@dataclass(frozen=True, slots=True)
class OperationResult(Generic[StateT]):
    state: StateT
    told: JsonValue
    refused: bool = False


MOST_WORDS: Final = 200


def list_tools(service: SimulatedService[Any]) -> tuple[ToolSpec, ...]:
    return tuple(operation.spec for operation in service.operations)


def carry_out(service: SimulatedService[StateT], state: StateT, call: ParsedCall) -> OperationResult[StateT]:
    """The state after a call; after a refused call the old state with an error."""
    fault = describe_schema_fault(call, list_tools(service))
    if fault:
        return OperationResult(state, {"error": fault}, refused=True)
    does = next(operation.does for operation in service.operations if operation.spec.function.name == call.name)
    try:
        after, told = does(state, call.arguments)
    except OperationRefused as reason:
        return OperationResult(state, {"error": str(reason)[:MOST_WORDS]}, refused=True)
    return OperationResult(after, told)


def build_tool(name: str, description: str, /, required: tuple[str, ...] = (), **properties: JsonValue) -> ToolSpec:
    """A tool with exactly these arguments and their schemas."""
    parameters: dict[str, JsonValue] = {
        "type": "object",
        "properties": properties,
        "required": [*required],
        "additionalProperties": False,
    }
    return ToolSpec(function=FunctionSpec(name=name, description=description, parameters=parameters))


def build_call(name: str, /, **arguments: JsonValue) -> ParsedCall:
    return ParsedCall(name=name, arguments=arguments)
