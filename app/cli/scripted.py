"""What the scripted policy of `atropos-envs demo` says: right answers, and such as a model in training gives."""

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml
from pydantic import JsonValue, TypeAdapter

from app.domain.tasks import Completion, FunctionCall, Message, ToolCall, ToolSpec
from app.domain.values import Frozen
from app.service.requests import HandedOut

WRONG = "I would rather not commit myself to an answer."
DONE = "All done."
MARKS = ".,;:!?'\""
_NUMBER = re.compile(r"\d+")


class Lines(Frozen):
    poor: tuple[str, ...]
    plain: tuple[str, ...]
    good: tuple[str, ...]


LINES = TypeAdapter(dict[str, Lines]).validate_python(
    yaml.safe_load(Path(__file__).with_name("demo.yaml").read_text(encoding="utf-8"))
)


def turns_of(luck: random.Random, skill: float, task: HandedOut, gold: Completion | None) -> tuple[Message, ...]:
    """What the model says, turn by turn. Without skill one of the right turns is spoilt: one with calls, if any."""
    if gold is None:
        return tuple(_said(line) for line in _lines(luck, skill, task))
    right = [message for message in gold.messages or (_said(gold.answer),) if message.role == "assistant"]
    calling = [place for place, message in enumerate(right) if message.tool_calls]
    spoilt = len(right) if luck.random() < skill else luck.choice(calling or range(len(right)))
    words = (task.messages[-1].content or "").split()
    return tuple(
        _spoilt(luck, message, task.tools, words) if place == spoilt else message for place, message in enumerate(right)
    )


def _lines(luck: random.Random, skill: float, task: HandedOut) -> list[str]:
    """One a turn, none twice as long as there are others."""
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


def _spoilt(luck: random.Random, message: Message, tools: Sequence[ToolSpec], words: Sequence[str]) -> Message:
    """Another call, another number or, where there is neither, no answer."""
    calls = message.tool_calls
    if calls:
        return _with_calls(luck, calls, words)
    said = message.content or ""
    numbers = [*_NUMBER.finditer(said)]
    if numbers:
        last = numbers[-1]
        return _said(f"{said[: last.start()]}{int(last[0]) + luck.randint(1, 9)}{said[last.end() :]}")
    if tools and luck.random() < 0.7:
        return _calling((_call(luck.choice(tools), words),))
    return _said(WRONG)


def _with_calls(luck: random.Random, calls: tuple[ToolCall, ...], words: Sequence[str]) -> Message:
    *before, last = calls  # the last is what the others prepare
    others = ((*calls, last), tuple(before), (*before, _changed(luck, last, words)))
    (chosen,) = luck.choices(others, weights=(1, 2, 6))
    return _calling(chosen) if chosen else _said(DONE)


def _changed(luck: random.Random, call: ToolCall, words: Sequence[str]) -> ToolCall:
    """The same tool with one other value, or with an argument that nobody asked for."""
    given = call.function.arguments
    arguments: dict[str, JsonValue] = {**given} if isinstance(given, dict) else {}
    if arguments and luck.random() < 0.8:
        name = luck.choice(sorted(arguments))
        arguments[name] = _other(luck, arguments[name], words)
    else:
        arguments["note"] = luck.choice(words or ["soon"])
    return call.model_copy(update={"function": FunctionCall(name=call.function.name, arguments=arguments)})


def _other(luck: random.Random, value: JsonValue, words: Sequence[str]) -> JsonValue:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value + luck.randint(1, 9)
    if isinstance(value, list):
        return value[:-1]
    if isinstance(value, str):
        return luck.choice([word.strip(MARKS) for word in words] or ["soon"])
    return None


def _call(tool: ToolSpec, words: Sequence[str]) -> ToolCall:
    """With words of the request for whatever the tool requires."""
    required = tool.function.parameters.get("required")
    names = required if isinstance(required, list) else []
    longest = sorted(dict.fromkeys(words), key=len)[::-1]
    arguments: Mapping[str, JsonValue] = {
        str(name): word.strip(MARKS) for name, word in zip(names, longest, strict=False)
    }
    return ToolCall(function=FunctionCall(name=tool.function.name, arguments=dict(arguments)))


def _calling(calls: tuple[ToolCall, ...]) -> Message:
    return Message(role="assistant", tool_calls=calls)


def _said(text: str) -> Message:
    return Message(role="assistant", content=text)
