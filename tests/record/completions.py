"""Completions that every task is met with: its right answer, what is near it, and what is none."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.domain.tasks import Completion, FunctionCall, Message, Task, ToolCall
from app.ports.environment import Environment

UNKNOWN: Final = "I do not know"
SPOKEN: Final[Sequence[str]] = (
    "So you want to know about that. I have lived here long enough, and what I saw at the ferry I keep to myself.",
    "Perhaps. Sit down first, stranger, and tell me who sent you.",
    "Begin with what matters most and leave the rest for later: nobody does it all at once.",
    "As an AI language model, I cannot take part in this.",
)
"""Where no sure win exists."""
_SUM: Final = re.compile(r"\\boxed\{(.+?) \+ (.+)\}")
"""Its terms may change places, which only algebra in a worker can tell."""
CASES: Final[Mapping[str, Callable[[str], str]]] = {
    "gold while thinking": lambda text: f"<think>{text}</think>",
    "gold without its last character": lambda text: text[:-1],
    "gold and more": lambda text: f"{text}\nThat is my answer, though it might be 7.",
    "gold in capitals": str.upper,
    "gold otherwise put": lambda text: _SUM.sub(r"\\boxed{\2 + \1}", text).replace("<answer>", "<answer>0+"),
}


def right_answer(environment: Environment, task: Task, place: int) -> Completion:
    """One that is taken for it, where none is known; `place` varies which."""
    gold = environment.gold(task)
    if gold is not None:
        return gold
    if environment.rubric is not None:
        return Completion(text=SPOKEN[place % len(SPOKEN)])
    return Completion(messages=(Message(role="assistant", content="<answer>stand</answer>"),))


def completions_of(task: Task, gold: Completion, other: Completion) -> dict[str, Completion]:
    """By what they are. `other` is the right answer of another task."""
    prompt = "\n".join(message.content or "" for message in task.messages)
    multi_turn = gold.messages is not None
    return {
        "gold": gold,
        "nothing": _said("", multi_turn=multi_turn),
        "the prompt": _said(prompt, multi_turn=multi_turn),
        "another's gold": other,
        **{name: altered(gold, change) for name, change in CASES.items()},
        "not known": _said(UNKNOWN, multi_turn=multi_turn),
        "two golds": _joined(gold, other),
        "gold cut off": gold.model_copy(update={"finish_reason": "length"}),
    }


def altered(completion: Completion, change: Callable[[str], str]) -> Completion:
    """Its text, or what the model said last: the words, or the arguments of its calls."""
    if completion.text is not None:
        return completion.model_copy(update={"text": change(completion.text)})
    messages = list(completion.messages or ())
    last = max((place for place, one in enumerate(messages) if one.role == "assistant"), default=None)
    if last is None:
        return completion
    messages[last] = _changed(messages[last], change)
    return completion.model_copy(update={"messages": tuple(messages)})


def _changed(message: Message, change: Callable[[str], str]) -> Message:
    update: dict[str, object] = {"tool_calls": tuple(_call(call, change) for call in message.tool_calls)}
    if message.content is not None:
        update["content"] = change(message.content)
    return message.model_copy(update=update)


def _call(call: ToolCall, change: Callable[[str], str]) -> ToolCall:
    given = call.function.arguments
    text = given if isinstance(given, str) else json.dumps(given)
    return call.model_copy(update={"function": FunctionCall(name=call.function.name, arguments=change(text))})


def _said(text: str, *, multi_turn: bool) -> Completion:
    return Completion(messages=(Message(role="assistant", content=text),)) if multi_turn else Completion(text=text)


def _joined(one: Completion, other: Completion) -> Completion:
    if one.messages is not None and other.messages is not None:
        return Completion(messages=(*one.messages, *other.messages))
    return Completion(text=f"{one.answer}\n{other.answer}")
