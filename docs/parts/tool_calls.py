"""Formats of tool calls, what makes two values the same, and what cheap tricks earn: all from the code itself."""

import asyncio
import inspect
import json
from collections.abc import Iterator, Sequence
from functools import cache

from pydantic import JsonValue

from app.domain.tasks import Completion, FunctionCall, Message, Task, ToolCall
from app.envs.tool_calling.environment import ToolCalling, ToolCallingParams
from app.envs.tool_calling.requests import OPENS, Category, ToolRequest
from app.ports.environment import Tools
from app.service.judging import NoPanel
from app.toolkit.tool_calls.calls import ParsedCall, is_same_value
from app.toolkit.tool_calls.formats import FORMATS
from docs.markdown import code, fenced, table
from docs.parts.environments import environments

SHOWN = (
    ParsedCall(name="get_forecast", arguments={"city": "Kyoto", "days": 3}),
    ParsedCall(name="get_forecast", arguments={"city": "Oslo"}),
)

INTEGER: dict[str, JsonValue] = {"type": "integer"}
NUMBER: dict[str, JsonValue] = {"type": "number"}
TEXT: dict[str, JsonValue] = {"type": "string"}
LIST: dict[str, JsonValue] = {"type": "array", "items": TEXT}

VALUES: tuple[tuple[JsonValue, JsonValue, dict[str, JsonValue], str], ...] = (
    (" new york", "New York", TEXT, "the case of words does not count, nor white space around them"),
    ("new-york", "New York", TEXT, "every other character does"),
    ("x*2", "x^2", TEXT, "whatever is not made of words alone is exact"),
    ("report-final.txt", "report_final.txt", TEXT, ""),
    ("J.Doe@example.org", "jdoe@example.org", TEXT, ""),
    ("2134", "02134", TEXT, ""),
    ("it's", "it’s", TEXT, "quotation marks may be straight or curved"),
    ("Roma", "Rome", TEXT, "other words are other words, unless both are accepted"),
    ("Celsius", "celsius", {"enum": ["celsius"]}, "choices are exact"),
    (5, 5, INTEGER, ""),
    (5.0, 5, INTEGER, "no float is an integer"),
    (5.0, 5, NUMBER, "where the schema says number, the value counts"),
    ("5", 5, INTEGER, "no text is a number"),
    (True, 1, INTEGER, "no boolean is one"),
    (["a", "b"], ["b", "a"], LIST, "lists have an order"),
    ({"a": 1, "b": 2}, {"a": 1}, {"type": "object"}, "objects have these members and no others, at every depth"),
)


def call_formats() -> str:
    parts = []
    for name, form in FORMATS.items():
        parts += [f"{code(name)}: {_first_paragraph(form.read)}", fenced(form.write(SHOWN))]
    return "\n\n".join(parts)


def value_rules() -> str:
    rows = [
        (
            code(_json(said)),
            code(_json(right)),
            _kind(schema),
            "yes" if is_same_value(said, right, schema) else "no",
            why,
        )
        for said, right, schema, why in VALUES
    ]
    return table(("said", "right", "asked for", "the same", "since"), rows)


def tricks() -> str:
    rows = [(what, f"{_reward(task, completion):g}") for what, task, completion in _tricks()]
    return table(("reply", "earns"), rows)


def _tricks() -> Iterator[tuple[str, Task, Completion]]:
    task = _task("several")
    calls = [one.build_minimal_call() for one in ToolRequest.model_validate(task.reference).expected]
    first = calls[0]
    extra = ParsedCall(name=first.name, arguments={**first.arguments, "verbose": True})
    texts = ParsedCall(name=first.name, arguments={name: _as_text(value) for name, value in first.arguments.items()})
    offered = [ParsedCall(name=tool.function.name) for tool in task.tools]
    hermes, mistral = FORMATS["hermes"].write, FORMATS["mistral"].write
    for what, completion in (
        ("the right calls", _native(calls)),
        ("the right calls, in another order", _native(calls[::-1])),
        ("the right calls, as text", Completion(text=hermes(calls))),
        ("the right calls and one more", _native([*calls, first])),
        ("one of the right calls", _native(calls[:1])),
        ("every tool that is offered", _native(offered)),
        ("an argument that nobody asked for", _native([extra, *calls[1:]])),
        ("every value as a text", _native([texts, *calls[1:]])),
        ("the right calls within thinking", Completion(text=f"<think>{hermes(calls)}</think>Done.")),
        ("the right calls and one that is malformed", Completion(text=f"{hermes(calls)}\n<tool_call>{{</tool_call>")),
        ("the right calls in two formats", Completion(text=f"{hermes(calls)}\n{mistral(calls)}")),
        ("a refusal where tools fit", Completion(text=f"{OPENS} the request lacks everything.")),
    ):
        yield what, task, completion
    none = _task("irrelevance")
    gold = _environment().gold(none).text or ""
    request = " ".join(message.content or "" for message in none.messages)
    for what, text in (
        ("where no tool fits: the refusal that is asked for", gold),
        ("the same with a call", f"{gold}\n{hermes([ParsedCall(name=none.tools[0].function.name)])}"),
        ("the same without the words that open it", gold.removeprefix(OPENS)),
        ("the opening and the whole prompt", f"{OPENS} {request}"),
        ("the opening and nothing else", OPENS),
    ):
        yield what, none, Completion(text=text)


def _reward(task: Task, completion: Completion) -> float:
    (score,) = asyncio.run(_environment().score(task, [completion], Tools(panel=NoPanel())))
    return -1.0 if score.reward is None else score.reward


@cache
def _environment() -> ToolCalling:
    found = environments()["tool_calling"]
    if not isinstance(found, ToolCalling):
        raise TypeError("tool_calling is another environment")
    return found


def _task(category: Category) -> Task:
    return _environment().task("train", 0, ToolCallingParams(categories=(category,)))


def _native(calls: Sequence[ParsedCall]) -> Completion:
    made = (ToolCall(function=FunctionCall(name=call.name, arguments=call.arguments)) for call in calls)
    return Completion(messages=(Message(role="assistant", tool_calls=tuple(made)),))


def _as_text(value: JsonValue) -> JsonValue:
    """A text as a list, so that its type is wrong as well."""
    return [value] if isinstance(value, str) else _json(value)


def _kind(schema: dict[str, JsonValue]) -> str:
    return code(str(schema["type"])) if "type" in schema else "a choice"


def _json(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False)


def _first_paragraph(module: object) -> str:
    return (inspect.getdoc(module) or "").partition("\n\n")[0].replace("\n", " ")
