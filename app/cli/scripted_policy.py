"""The scripted policy of `atropos-envs demo`: right answers, and typical mistakes of a model in training."""

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from pydantic import JsonValue, TypeAdapter

from app.domain.tasks import Completion, FunctionCall, Message, ToolCall, ToolSpec
from app.domain.values import Frozen
from app.service.request_models import HandedOutTask

WRONG = "I would rather not commit myself to an answer."
DONE = "All done."
MARKS = ".,;:!?'\""
_NUMBER = re.compile(r"\d+")


class ScriptedLines(Frozen):
    poor: tuple[str, ...]
    plain: tuple[str, ...]
    good: tuple[str, ...]


LINES = TypeAdapter(dict[str, ScriptedLines]).validate_python(
    yaml.safe_load(Path(__file__).with_name("demo.yaml").read_text(encoding="utf-8"))
)


def script_turns(
    luck: random.Random, skill: float, task: HandedOutTask, gold: Completion | None
) -> tuple[Message, ...]:
    """Messages by turn. Without skill one of the right messages is changed: one with tool calls, if any."""
    if gold is None:
        return tuple(_build_text_message(line) for line in _choose_lines(luck, skill, task))
    right = [message for message in gold.messages or (_build_text_message(gold.answer),) if message.role == "assistant"]
    calling = [place for place, message in enumerate(right) if message.tool_calls]
    spoilt = len(right) if luck.random() < skill else luck.choice(calling or range(len(right)))
    words = (task.messages[-1].content or "").split()
    return tuple(
        _spoil_message(luck, message, task.tools, words) if place == spoilt else message
        for place, message in enumerate(right)
    )


def _choose_lines(luck: random.Random, skill: float, task: HandedOutTask) -> list[str]:
    """One line per turn, without repetition where possible."""
    known = LINES.get(task.environment, LINES["anywhere"])
    line = task.messages[-1].content or ""
    words = sorted(dict.fromkeys(line.split()), key=len)[-2:]
    said: list[str] = []
    for _ in range(task.max_turns):
        chosen = known.good if luck.random() < skill else known.plain if luck.random() < skill else known.poor
        text = luck.choice([one for one in chosen if one not in said] or chosen)
        said.append(text)
    longest = " and ".join(word.strip(MARKS) for word in words)
    return [text.replace("{words}", longest).replace("{line}", line[:60]) for text in said]


def _spoil_message(luck: random.Random, message: Message, tools: Sequence[ToolSpec], words: Sequence[str]) -> Message:
    """Changes a tool call or a number; without either, gives no answer."""
    calls = message.tool_calls
    if calls:
        return _spoil_last_call(luck, calls, words)
    said = message.content or ""
    numbers = [*_NUMBER.finditer(said)]
    if numbers:
        last = numbers[-1]
        return _build_text_message(f"{said[: last.start()]}{int(last[0]) + luck.randint(1, 9)}{said[last.end() :]}")
    if tools and luck.random() < 0.7:
        return _build_call_message((_build_call(luck.choice(tools), words),))
    return _build_text_message(WRONG)


def _spoil_last_call(luck: random.Random, calls: tuple[ToolCall, ...], words: Sequence[str]) -> Message:
    *before, last = calls  # the last is what the others prepare
    others = ((*calls, last), tuple(before), (*before, _change_call(luck, last, words)))
    (chosen,) = luck.choices(others, weights=(1, 2, 6))
    return _build_call_message(chosen) if chosen else _build_text_message(DONE)


def _change_call(luck: random.Random, call: ToolCall, words: Sequence[str]) -> ToolCall:
    """The same tool with a changed value or an extra argument."""
    given = call.function.arguments
    arguments: dict[str, JsonValue] = {**given} if isinstance(given, dict) else {}
    if arguments and luck.random() < 0.8:
        name = luck.choice(sorted(arguments))
        arguments[name] = _change_value(luck, arguments[name], words)
    else:
        arguments["note"] = luck.choice(words or ["soon"])
    return call.model_copy(update={"function": FunctionCall(name=call.function.name, arguments=arguments)})


def _change_value(luck: random.Random, value: JsonValue, words: Sequence[str]) -> JsonValue:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + luck.randint(1, 9)
    if isinstance(value, list):
        return value[:-1]
    if isinstance(value, str):
        return luck.choice([word.strip(MARKS) for word in words] or ["soon"])
    return None


def _build_call(tool: ToolSpec, words: Sequence[str]) -> ToolCall:
    """Fills required arguments with words of the request."""
    required = tool.function.parameters.get("required")
    names = required if isinstance(required, list) else []
    longest = sorted(dict.fromkeys(words), key=len)[::-1]
    arguments: Mapping[str, JsonValue] = {
        str(name): word.strip(MARKS) for name, word in zip(names, longest, strict=False)
    }
    return ToolCall(function=FunctionCall(name=tool.function.name, arguments=dict(arguments)))


def _build_call_message(calls: tuple[ToolCall, ...]) -> Message:
    return Message(role="assistant", tool_calls=calls)


def _build_text_message(text: str) -> Message:
    return Message(role="assistant", content=text)
