"""What simulated services do, as tables of calls say it."""

from typing import Any

from pydantic import JsonValue

from app.envs.tool_agent.episodes import SimulatedService, carry_out
from app.toolkit.tool_calls.calls import ParsedCall

Case = tuple[tuple[ParsedCall, ...], JsonValue, JsonValue]
"""Calls, what the last of them is told, and what the state is then: None for what it was."""


def worked(service: SimulatedService[Any], start: Any, calls: tuple[ParsedCall, ...]) -> tuple[JsonValue, JsonValue]:
    state, told = start, None
    for one in calls:
        result = carry_out(service, state, one)
        state, told = result.state, result.output
    essence = service.canonicalise(state)
    return told, None if essence == service.canonicalise(start) else essence


def tried(table: dict[str, Case]) -> set[str]:
    """The tools that a table calls."""
    return {one.name for calls, _, _ in table.values() for one in calls}


def tools(service: SimulatedService[Any]) -> set[str]:
    return {operation.spec.function.name for operation in service.operations}


def error(text: str) -> JsonValue:
    return {"error": text}
