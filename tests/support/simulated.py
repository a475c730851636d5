"""What simulated services do, as tables of calls say it."""

from typing import Any

from pydantic import JsonValue

from app.envs.tool_agent.services.service import Service, carried_out
from app.toolkit.tool_calls.values import Call

Case = tuple[tuple[Call, ...], JsonValue, JsonValue]
"""Calls, what the last of them is told, and what the state is then: None for what it was."""


def worked(service: Service[Any], start: Any, calls: tuple[Call, ...]) -> tuple[JsonValue, JsonValue]:
    state, told = start, None
    for one in calls:
        result = carried_out(service, state, one)
        state, told = result.state, result.told
    essence = service.essence(state)
    return told, None if essence == service.essence(start) else essence


def tried(table: dict[str, Case]) -> set[str]:
    """The tools that a table calls."""
    return {one.name for calls, _, _ in table.values() for one in calls}


def tools(service: Service[Any]) -> set[str]:
    return {operation.spec.function.name for operation in service.operations}


def error(text: str) -> JsonValue:
    return {"error": text}
