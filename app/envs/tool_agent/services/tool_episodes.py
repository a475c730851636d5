"""Episodes of a model that works on a simulated service, replayed from their transcript."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pydantic import JsonValue

from app.domain.tasks import FunctionCall, Message, ToolCall, Turn
from app.envs.tool_agent.services.reply_answers import gives_answers
from app.envs.tool_agent.services.simulated_service import ServiceScenario, SimulatedService, carry_out, list_tools
from app.toolkit.replay import build_turn, replay_episode, replay_for_score
from app.toolkit.tool_calls.call_parsing import read_message_calls
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats.format import ToolFormat
from app.toolkit.tool_calls.formats.format_registry import FORMATS

MOST_TURNS: Final = 20
"""Most replies of the model, with or without calls."""

MOST_CALLS: Final = 40


@dataclass(frozen=True, slots=True)
class ToolEpisode:
    """The state of an episode after its transcript. `observed` is what follows the model's last message; `done` means
    that the episode is over."""

    state: Any
    replies: tuple[tuple[str, ...], ...]
    """Replies to the user by wish."""
    calls: int
    errors: int
    """Calls that the service refused or that could not be read."""
    turns: int
    done: bool
    observed: tuple[Message, ...] = ()


def replay(
    service: SimulatedService[Any], scenario: ServiceScenario[Any], messages: Sequence[Message], form: ToolFormat | None
) -> ToolEpisode:
    """From everything after the prompt. InvalidRequest naming `messages[i]` for the first that is out of turn, is not
    what the service or the user said there, or comes after the end."""
    return replay_episode(_start_episode(scenario), partial(_apply_message, service, scenario, form), messages)


def replay_to_score(
    service: SimulatedService[Any], scenario: ServiceScenario[Any], messages: Sequence[Message], form: ToolFormat | None
) -> tuple[ToolEpisode, tuple[str, ...]]:
    """As `replay`, with the score's flags: what comes after the end is ignored."""
    return replay_for_score(_start_episode(scenario), partial(_apply_message, service, scenario, form), messages)


def _start_episode(scenario: ServiceScenario[Any]) -> ToolEpisode:
    return ToolEpisode(scenario.start, ((),), calls=0, errors=0, turns=0, done=False)


def find_next_turn(
    service: SimulatedService[Any], scenario: ServiceScenario[Any], messages: Sequence[Message], form: ToolFormat | None
) -> Turn:
    """What follows the model's last message. InvalidRequest as `replay`, and when that message is missing."""
    return build_turn(replay(service, scenario, messages, form), messages)


def has_reached_goal(service: SimulatedService[Any], scenario: ServiceScenario[Any], episode: ToolEpisode) -> bool:
    """Whether the state is exactly what the wishes lead to."""
    state = scenario.start
    for call in (call for wish in scenario.wishes for call in wish.calls):
        state = carry_out(service, state, call).state
    return service.canonicalise(episode.state) == service.canonicalise(state)


def has_answered(service: SimulatedService[Any], scenario: ServiceScenario[Any], episode: ToolEpisode) -> bool:
    """Whether the replies give every requested answer, word for word, and no list of candidates."""
    replies = [*episode.replies, *((),) * len(scenario.wishes)]
    held, known, state = scenario.start.model_dump(mode="json"), "", scenario.start
    for wish, said in zip(scenario.wishes, replies, strict=False):
        done, state = _tell_changes(service, state, wish.calls)
        known = "\n".join((known, wish.says, *done, *wish.beside))
        if not gives_answers("\n".join(said), wish.answers, known, held):
            return False
        known = "\n".join((known, *wish.answers))
    return True


def _tell_changes(service: SimulatedService[Any], state: Any, calls: Sequence[ParsedCall]) -> tuple[list[str], Any]:
    """Arguments and results of the calls that change something, and the state after them."""
    told = list[str]()
    for call in calls:
        result = carry_out(service, state, call)
        if result.state != state:
            told.append(json.dumps([call.arguments, result.told], ensure_ascii=False))
        state = result.state
    return told, state


def play_solution(
    service: SimulatedService[Any], scenario: ServiceScenario[Any], form: ToolFormat | None
) -> tuple[Message, ...]:
    """The transcript of the known solution."""
    messages: list[Message] = []
    for wish in scenario.wishes:
        if wish.calls:
            messages.append(_build_call_message(wish.calls, form))
            messages += replay(service, scenario, messages, form).observed
        messages.append(Message(role="assistant", content=wish.reply))
        messages += replay(service, scenario, messages, form).observed
    return tuple(messages)


def _apply_message(
    service: SimulatedService[Any],
    scenario: ServiceScenario[Any],
    form: ToolFormat | None,
    before: ToolEpisode,
    message: Message,
) -> ToolEpisode:
    reading = read_message_calls(message, list_tools(service), form)
    turns = before.turns + 1
    spent = turns == MOST_TURNS
    if reading.fault:
        told = () if spent else _report_unreadable(message, reading.fault)
        return ToolEpisode(before.state, before.replies, before.calls, before.errors + 1, turns, spent, told)
    if reading.calls:
        return _apply_calls(service, before, message, reading.calls, form)
    replies = (*before.replies[:-1], (*before.replies[-1], reading.said))
    wish = len(before.replies)
    if spent or wish == len(scenario.wishes):
        return ToolEpisode(before.state, replies, before.calls, before.errors, turns, done=True)
    says = Message(role="user", content=scenario.wishes[wish].says)
    return ToolEpisode(before.state, (*replies, ()), before.calls, before.errors, turns, done=False, observed=(says,))


def _apply_calls(
    service: SimulatedService[Any],
    before: ToolEpisode,
    message: Message,
    calls: Sequence[ParsedCall],
    form: ToolFormat | None,
) -> ToolEpisode:
    state, errors, told = before.state, before.errors, list[JsonValue]()
    for call in calls[: MOST_CALLS - before.calls]:
        result = carry_out(service, state, call)
        state, errors = result.state, errors + result.refused
        told.append(result.told)
    made = before.calls + len(told)
    done = before.turns + 1 == MOST_TURNS or made == MOST_CALLS
    observed = () if done else _build_results(message, calls, told, form)
    return ToolEpisode(state, before.replies, made, errors, before.turns + 1, done, observed)


def _report_unreadable(message: Message, fault: str) -> tuple[Message, ...]:
    """An error for an unreadable message. Each native call gets one, since chat templates and servers require it."""
    said = f"The call cannot be read: {fault}."
    if not message.tool_calls:
        return (Message(role="user", content=said),)
    error = json.dumps({"error": said}, ensure_ascii=False)
    return tuple(
        Message(role="tool", content=error, name=call.function.name, tool_call_id=call.id)
        for call in message.tool_calls[:MOST_CALLS]
    )


def _build_results(
    message: Message, calls: Sequence[ParsedCall], told: Sequence[JsonValue], form: ToolFormat | None
) -> tuple[Message, ...]:
    """Results as tool messages, or as one user message if the tools are in the prompt."""
    texts = [json.dumps(one, ensure_ascii=False) for one in told]
    if form is not None:
        lines = [f"{call.name}: {text}" for call, text in zip(calls, texts, strict=True)]
        return (Message(role="user", content="\n".join(["Results:", *lines])),)
    given = [call.id for call in message.tool_calls] or [None] * len(calls)
    return tuple(
        Message(role="tool", content=text, name=call.name, tool_call_id=identity)
        for call, text, identity in zip(calls, texts, given, strict=True)
    )


def _build_call_message(calls: Sequence[ParsedCall], form: ToolFormat | None) -> Message:
    if form is not None:
        return Message(role="assistant", content=FORMATS[form].write(calls))
    native = (
        ToolCall(id=f"call_{place}", function=FunctionCall(name=call.name, arguments=call.arguments))
        for place, call in enumerate(calls)
    )
    return Message(role="assistant", tool_calls=tuple(native))
