"""Episodes of a model that works on a simulated service, replayed from their transcript."""

import json
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import JsonValue

from app.domain.tasks import FunctionCall, Message, ToolCall, Turn
from app.envs.tool_agent.services.service import Scenario, Service, carried_out, tools_of
from app.toolkit.replay import replayed, turn_after
from app.toolkit.tool_calls.formats.format import ToolFormat
from app.toolkit.tool_calls.formats.registry import FORMATS
from app.toolkit.tool_calls.reading import message_calls
from app.toolkit.tool_calls.values import Call

MOST_TURNS: Final = 20
"""Most replies of the model, with or without calls."""

MOST_CALLS: Final = 40
MOST_REPLIED: Final = 2_000
"""Characters of the replies to one wish that are searched for answers: reciting everything does not count."""

_NUMBER_GROUP: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
MOST_ALIKE: Final = 20
"""Most different values in the answer's form (amounts, times, numbers) in those replies; more are a list of guesses."""

_DIGITS: Final = re.compile(r"\d+")
_WORD: Final = re.compile(r"(?<!\w)-?\d+(?:\.\d+)*|\d+(?:\.\d+)*|\w+")


@dataclass(frozen=True, slots=True)
class Replayed:
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
    service: Service[Any], scenario: Scenario[Any], messages: Sequence[Message], form: ToolFormat | None
) -> Replayed:
    """From everything after the prompt. InvalidRequest naming `messages[i]` for the first that is out of turn, is not
    what the service or the user said there, or comes after the end."""
    start = Replayed(scenario.start, ((),), calls=0, errors=0, turns=0, done=False)
    return replayed(start, lambda now, message: _turn(service, scenario, now, message, form), messages)


def next_turn(
    service: Service[Any], scenario: Scenario[Any], messages: Sequence[Message], form: ToolFormat | None
) -> Turn:
    """What follows the model's last message. InvalidRequest as `replay`, and when that message is missing."""
    return turn_after(replay(service, scenario, messages, form), messages)


def reached(service: Service[Any], scenario: Scenario[Any], episode: Replayed) -> bool:
    """Whether the state is exactly what the wishes lead to."""
    state = scenario.start
    for call in (call for wish in scenario.wishes for call in wish.calls):
        state = carried_out(service, state, call).state
    return service.essence(episode.state) == service.essence(state)


def answered(scenario: Scenario[Any], episode: Replayed) -> bool:
    """Whether the replies contain every requested answer, word for word."""
    replies = [*episode.replies, *((),) * len(scenario.wishes)]
    return all(
        all(_mentions("\n".join(map(_in_words, said))[:MOST_REPLIED], answer) for answer in wish.answers)
        for wish, said in zip(scenario.wishes, replies, strict=False)
    )


def played(service: Service[Any], scenario: Scenario[Any], form: ToolFormat | None) -> tuple[Message, ...]:
    """The transcript of the known solution."""
    messages: list[Message] = []
    for wish in scenario.wishes:
        if wish.calls:
            messages.append(_calling(wish.calls, form))
            messages += replay(service, scenario, messages, form).observed
        messages.append(Message(role="assistant", content=wish.reply))
        messages += replay(service, scenario, messages, form).observed
    return tuple(messages)


def _turn(
    service: Service[Any], scenario: Scenario[Any], before: Replayed, message: Message, form: ToolFormat | None
) -> Replayed:
    reading = message_calls(message, tools_of(service), form)
    turns = before.turns + 1
    spent = turns == MOST_TURNS
    if reading.fault:
        told = () if spent else _unread(message, reading.fault)
        return Replayed(before.state, before.replies, before.calls, before.errors + 1, turns, spent, told)
    if reading.calls:
        return _called(service, before, message, reading.calls, form)
    replies = (*before.replies[:-1], (*before.replies[-1], reading.said))
    wish = len(before.replies)
    if spent or wish == len(scenario.wishes):
        return Replayed(before.state, replies, before.calls, before.errors, turns, done=True)
    says = Message(role="user", content=scenario.wishes[wish].says)
    return Replayed(before.state, (*replies, ()), before.calls, before.errors, turns, done=False, observed=(says,))


def _called(
    service: Service[Any], before: Replayed, message: Message, calls: Sequence[Call], form: ToolFormat | None
) -> Replayed:
    state, errors, told = before.state, before.errors, list[JsonValue]()
    for call in calls[: MOST_CALLS - before.calls]:
        result = carried_out(service, state, call)
        state, errors = result.state, errors + result.refused
        told.append(result.told)
    made = before.calls + len(told)
    done = before.turns + 1 == MOST_TURNS or made == MOST_CALLS
    observed = () if done else _results(message, calls, told, form)
    return Replayed(state, before.replies, made, errors, before.turns + 1, done, observed)


def _unread(message: Message, fault: str) -> tuple[Message, ...]:
    """An error for an unreadable message. Each native call gets one, since chat templates and servers require it."""
    said = f"The call cannot be read: {fault}."
    if not message.tool_calls:
        return (Message(role="user", content=said),)
    error = json.dumps({"error": said}, ensure_ascii=False)
    return tuple(
        Message(role="tool", content=error, name=call.function.name, tool_call_id=call.id)
        for call in message.tool_calls[:MOST_CALLS]
    )


def _results(
    message: Message, calls: Sequence[Call], told: Sequence[JsonValue], form: ToolFormat | None
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


def _calling(calls: Sequence[Call], form: ToolFormat | None) -> Message:
    if form is not None:
        return Message(role="assistant", content=FORMATS[form].write(calls))
    native = (
        ToolCall(id=f"call_{place}", function=FunctionCall(name=call.name, arguments=call.arguments))
        for place, call in enumerate(calls)
    )
    return Message(role="assistant", tool_calls=tuple(native))


def _in_words(reply: str) -> str:
    """Drops everything between the first and the last brace: pasted tool results do not count as answers."""
    opens, closes = reply.find("{"), reply.rfind("}")
    return f"{reply[:opens]} {reply[closes + 1 :]}" if 0 <= opens < closes else reply


def _mentions(said: str, answer: str) -> bool:
    said, answer = _folded(said), _folded(answer)
    return f" {_words(answer)} " in f" {_words(said)} " and len(_alike(answer, said)) <= MOST_ALIKE


def _alike(answer: str, said: str) -> set[str]:
    """All texts that differ from the answer only in digits."""
    form = r"\d+".join(map(re.escape, _DIGITS.split(answer)))
    return set(re.findall(rf"(?<!\w){form}(?!\w)", said))


def _folded(text: str) -> str:
    """Case-folded, without thousands separators."""
    return _NUMBER_GROUP.sub("", unicodedata.normalize("NFKC", text).casefold())


def _words(folded: str) -> str:
    """Words and numbers with one space between them."""
    return " ".join(_WORD.findall(folded))
