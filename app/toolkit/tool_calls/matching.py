"""Whether the calls of a reply are those that were expected: the same set, in any order."""

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from app.domain.tasks import ToolSpec
from app.toolkit.tool_calls.calls import ExpectedCall, ParsedCall
from app.toolkit.tool_calls.schemas import Schema, describe_schema_fault, find_parameters, get_members, quote_name
from app.toolkit.tool_calls.value_equality import is_same_value

MOST_COMPARED = 64
"""Maximum calls compared per reply; a reply with more is wrong anyway."""


@dataclass(frozen=True, slots=True)
class CallMatch:
    """`precision` is the share of the calls that were expected, `recall` that of the expected ones that were made; both
    in [0, 1], and 1 where there is nothing to count."""

    correct: bool
    precision: float
    recall: float
    fault: str
    """The first thing that is wrong, in words that do not tell the right answer; empty when nothing is."""


def match_calls(calls: Sequence[ParsedCall], expected: Sequence[ExpectedCall], tools: Sequence[ToolSpec]) -> CallMatch:
    compared = calls[:MOST_COMPARED]
    faults = [describe_schema_fault(call, tools) for call in compared]
    fits = [
        [not fault and _is_expected(call, one, tools) for one in expected]
        for call, fault in zip(compared, faults, strict=True)
    ]
    partners = _pair_calls(fits, len(expected))
    paired = len(partners)
    correct = paired == len(calls) == len(expected)
    return CallMatch(
        correct=correct,
        precision=paired / len(calls) if calls else float(not expected),
        recall=paired / len(expected) if expected else 1.0,
        fault="" if correct else _describe_fault(calls, faults, expected, set(partners.values())),
    )


def _is_expected(call: ParsedCall, expected: ExpectedCall, tools: Sequence[ToolSpec]) -> bool:
    """Whether a schema-valid call is this one. An omitted argument equals its default value."""
    if call.name != expected.name:
        return False
    schemas = get_members(find_parameters(call.name, tools) or {})
    for name in {*call.arguments, *expected.arguments}:
        schema = schemas.get(name, {})
        accepted = expected.arguments.get(name, ())
        may_be_left_out = name not in expected.needed and (
            name not in expected.arguments
            or name in expected.optional
            or any(_is_accepted(value, accepted, schema) for value in _list_defaults(schema))
        )
        if may_be_left_out:
            accepted = (*accepted, *_list_defaults(schema))
        if name not in call.arguments:
            if not may_be_left_out:
                return False
        elif not _is_accepted(call.arguments[name], accepted, schema):
            return False
    return True


def _list_defaults(schema: Schema) -> tuple[JsonValue, ...]:
    return (schema["default"],) if "default" in schema else ()


def _is_accepted(said: JsonValue, accepted: Sequence[JsonValue], schema: Schema) -> bool:
    return any(is_same_value(said, value, schema) for value in accepted)


def _pair_calls(fits: Sequence[Sequence[bool]], width: int) -> dict[int, int]:
    """A largest matching, as call by expected one, by augmenting paths (Kuhn 1955)."""
    partner: dict[int, int] = {}

    def place_call(call: int, tried: set[int]) -> bool:
        for one in range(width):
            if fits[call][one] and one not in tried:
                tried.add(one)
                if one not in partner or place_call(partner[one], tried):
                    partner[one] = call
                    return True
        return False

    for call in range(len(fits)):
        place_call(call, set())
    return partner


def _describe_fault(
    calls: Sequence[ParsedCall], faults: Sequence[str], expected: Sequence[ExpectedCall], right: set[int]
) -> str:
    if not expected:
        return "no tool fits, and there is a call"
    if not calls:
        return "there is no call"
    for number, fault in enumerate(faults):
        if fault:
            return fault
        if number not in right:
            return f"the call of {quote_name(calls[number].name)} is not what was asked for, or one too many"
    return "calls are missing"
