"""Actions of a character in a scene: the tools that the policy gets, and what its calls are worth.

In play and in games a sheet's actions are offered beside the tools of the game, and nothing is expected of calls.

    sheet    actions.allowed: {name: give_item, meaning: hands a thing over, parameters: {…JSON schema…}}
    scene    acts: {state: …, right: [[{name: give_item, arguments: {item: [rope], to: [player]}}]], tempting: […]}
    reply    a line, calls, or both
    value    1 for exactly one of the right sets of calls, at most 0.5 for a part of one

Calls are verified by code alone, and the line is judged without them. A call that cannot be read is one wrong call: it
costs the action, never the line. A scene in which no call is right says `right: [[]]`.

reward = gate x min(cap, (1 - a) x line + a x action), with a = `ACTION_SHARE`; a forbidden call sets the cap.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from app.characters.schema import SAID, CharacterSheet, SheetAction, Text, drop_unsafe_keywords, require_valid_schema
from app.domain.scores import Criterion, Score
from app.domain.tasks import Completion, FunctionCall, FunctionSpec, Message, ToolCall, ToolSpec
from app.domain.values import FiniteJson, Frozen, Name, Unit
from app.toolkit.thoughts import strip_thinking
from app.toolkit.tool_calls.calls import ExpectedCall, MalformedCall, ParsedCall, describe_schema_fault, match_calls
from app.toolkit.tool_calls.formats import NO_PROSE
from app.toolkit.tool_calls.replies import convert_call, read_text_calls

ACTION: Final = "action"
"""Name of the criterion."""
ACTION_SHARE: Final = 0.3
"""The action's share of the reward. The line keeps more, since most replies are judged by how they are said."""
FORBIDDEN_CAP: Final = 0.2
"""The most that a reply with a forbidden call earns."""
_PART: Final = 0.5
"""What a part of a right set is worth at most: less than any whole, so that a policy that calls much never gains."""
_MOST_SETS: Final = 8
_MOST_CALLS: Final = 8
_BRACKETED: Final = re.compile(r"\[ ?([a-z][a-z0-9_]{0,63}) ?\](?!\()")
"""One name in brackets. Links do not match."""
NO_ARGUMENTS: Final[dict[str, JsonValue]] = {"type": "object", "properties": {}}


_MOST_GAME_SCHEMA: Final = 10_000
"""Characters of the JSON schema of one tool of a game."""
_MOST_ARGUMENTS: Final = 10_000
"""Characters of the arguments of one call that was made."""
MOST_RESULT: Final = 20_000
"""Characters of the result of a call."""
DONE: Final = "done"
"""The result of a call of which the game told none. Chat templates and servers refuse calls without one."""


def _require_checkable_tool(tool: ToolSpec) -> ToolSpec:
    name, schema = tool.function.name, tool.function.parameters
    if re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) is None:
        raise ValueError("the name must have 1 to 64 of the characters A-Z, a-z, 0-9, _ and -")
    if len(text := json.dumps(schema)) > _MOST_GAME_SCHEMA:
        raise ValueError(f"a schema of {len(text)} characters; at most {_MOST_GAME_SCHEMA} are read")
    if schema and schema.get("type") != "object":
        raise ValueError("wanted is a JSON schema of an object: `type: object` with `properties`")
    require_valid_schema(drop_unsafe_keywords(schema))
    return tool


GameTool = Annotated[ToolSpec, AfterValidator(_require_checkable_tool)]
"""A tool of a game, beside the actions of the sheet."""


def _require_short_arguments(arguments: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if len(text := json.dumps(arguments)) > _MOST_ARGUMENTS:
        raise ValueError(f"arguments of {len(text)} characters; at most {_MOST_ARGUMENTS} are read")
    return arguments


class DoneCall(Frozen):
    """A call that the character made, with what the game answered."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    arguments: Annotated[dict[str, FiniteJson], AfterValidator(_require_short_arguments)] = {}
    result: Annotated[str, Field(max_length=MOST_RESULT)] = DONE


DoneCalls = Annotated[tuple[DoneCall, ...], Field(max_length=64), SAID]


class TemptingReply(Frozen):
    """A wrong reply that a weak policy gives here, for tests of the scene."""

    say: Text
    calls: Annotated[tuple[ParsedCall, ...], Field(max_length=_MOST_CALLS)] = ()
    why: Text
    """What is wrong with it."""


class SceneActs(Frozen):
    """What the character can do in this scene, and what it should. `state` and the actions reach the policy; the rest
    is for the check of calls and for tests."""

    state: Text | None = None
    """Who and what is here, with the ids that calls name."""
    more: Annotated[tuple[SheetAction, ...], SAID] = ()
    """Actions of this scene alone, beside those of the sheet."""
    right: Annotated[
        tuple[Annotated[tuple[ExpectedCall, ...], Field(max_length=_MOST_CALLS)], ...],
        Field(min_length=1, max_length=_MOST_SETS),
    ]
    """Sets of calls, any one of which is right; an empty set where the right thing is to make no call. An argument has
    all values that are accepted: ids and numbers are compared exactly."""
    in_order: Annotated[bool, SAID] = False
    """The calls of a set count in this order alone."""
    may: Annotated[tuple[Name, ...], SAID] = ()
    """Actions whose calls neither earn nor cost anything here."""
    never: Annotated[tuple[ExpectedCall, ...], SAID] = ()
    """Forbidden calls: the whole reply is capped. Without arguments any call of that name is meant."""
    tempting: Annotated[tuple[TemptingReply, ...], Field(min_length=1)]
    """Replies that must earn less than the right one."""

    @model_validator(mode="after")
    def _require_clear_sides(self) -> Self:
        wanted = {call.name for calls in self.right for call in calls}
        if confused := wanted & {*self.may}:
            raise ValueError(f"may: {min(confused)!r} is in a right set, so it does count")
        if confused := wanted & {call.name for call in self.never if not call.arguments}:
            raise ValueError(f"never: {min(confused)!r} is in a right set")
        return self


def list_tools(sheet: CharacterSheet, acts: SceneActs) -> tuple[ToolSpec, ...]:
    """Every action of the sheet and of the scene as a tool. Those of the old form take no arguments."""
    return tuple(map(build_tool, (*sheet.actions.allowed, *acts.more)))


def build_tool(action: SheetAction) -> ToolSpec:
    meaning = f"{action.meaning} When: {action.when}" if action.when else action.meaning
    parameters = NO_ARGUMENTS if action.parameters is None else action.parameters
    return ToolSpec(function=FunctionSpec(name=action.name, description=meaning, parameters=parameters))


def offer_tools(sheet: CharacterSheet, given: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The actions of the sheet with those of the game, one of the game in place of an action of the same name. A sheet
    without typed actions keeps to brackets where the game gives no tools."""
    if not given and all(action.parameters is None for action in sheet.actions.allowed):
        return ()
    own = map(build_tool, sheet.actions.allowed)
    return tuple({tool.function.name: tool for tool in (*own, *given)}.values())


def write_reply(line: str, calls: Sequence[ParsedCall]) -> Completion:
    """A line and calls as one message, as a server answers them."""
    called = tuple(ToolCall(function=FunctionCall(name=call.name, arguments=call.arguments)) for call in calls)
    return Completion(messages=(Message(role="assistant", content=line, tool_calls=called),))


def find_acts_fault(sheet: CharacterSheet, acts: SceneActs) -> str:
    """What in a scene's `acts` does not fit the actions of the sheet, beginning with the field; empty if all does."""
    tools = list_tools(sheet, acts)
    names = [tool.function.name for tool in tools]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        return f"acts.more: {repeated!r} is an action already"
    known = frozenset(names)
    for place, calls in enumerate(acts.right):
        if len(calls) > sheet.actions.at_most:
            return (
                f"acts.right.{place}: has {len(calls)} calls, and the sheet allows {sheet.actions.at_most} in a reply"
            )
        for number, call in enumerate(calls):
            if fault := describe_schema_fault(call.build_minimal_call(), tools):
                return f"acts.right.{place}.{number}: {fault}"
    named = [*((f"may.{number}", name) for number, name in enumerate(acts.may))]
    named += [(f"never.{number}", call.name) for number, call in enumerate(acts.never)]
    unknown = next(((place, name) for place, name in named if name not in known), None)
    return "" if unknown is None else f"acts.{unknown[0]}: there is no action {unknown[1]!r}"


# Replies taken apart.


@dataclass(frozen=True)
class SpokenReply:
    line: str
    """What was said, without thinking and calls. Calls without a word are told by their meaning, between asterisks."""
    has_words: bool = True
    calls: tuple[ParsedCall, ...] = ()
    malformed: tuple[str, ...] = ()
    """Why a call cannot be read, one text for each; they quote at most a few characters of the reply."""


def read_reply(completion: Completion, tools: Sequence[ToolSpec]) -> SpokenReply:
    """Calls of the message and of its text, in any supported format, and actions in brackets, which are calls without
    arguments. A message has calls in one way: those in its text are wrong beside `tool_calls`."""
    native, malformed = _read_native_calls(completion)
    written = read_text_calls(completion.answer, tools)
    said = written.said
    if written.fault:
        malformed, said = (*malformed, written.fault), _cut_at_call(strip_thinking(completion.answer).text)
    elif native and written.calls:
        malformed = (*malformed, "there are calls both in `tool_calls` and in the text")
    known = {tool.function.name: tool.function.description for tool in tools}
    bracketed = tuple(match[1] for match in _BRACKETED.finditer(said) if match[1] in known)
    line = _BRACKETED.sub(lambda match: "" if match[1] in known else match[0], said).strip()
    calls = (*(native or written.calls), *(ParsedCall(name=name) for name in bracketed))
    told = " ".join(f"*{known[call.name]}*" for call in calls[:_MOST_CALLS] if call.name in known)
    return SpokenReply(line or told, bool(line), calls, malformed)


def _read_native_calls(completion: Completion) -> tuple[tuple[ParsedCall, ...], tuple[str, ...]]:
    """Of the last message of the assistant, each by itself: one that cannot be read leaves the others."""
    replies = [message for message in completion.messages or () if message.role == "assistant"]
    calls: list[ParsedCall] = []
    faults: list[str] = []
    for call in replies[-1].tool_calls if replies else ():
        try:
            calls.append(convert_call(call))
        except MalformedCall as fault:
            faults.append(str(fault))
    return tuple(calls), tuple(faults)


def _cut_at_call(text: str) -> str:
    """The words before what may be a call. Nothing behind it is read: it could be the rest of that call."""
    begins = NO_PROSE.search(text)
    return text if begins is None else text[: begins.start()].rstrip(" \t\n`")


@dataclass(frozen=True)
class VerifiedAction:
    value: Unit
    note: str
    """What is wrong, in words that do not tell the right answer; empty when nothing is."""
    flags: tuple[str, ...] = ()
    is_forbidden: bool = False


def verify_calls(reply: SpokenReply, acts: SceneActs, tools: Sequence[ToolSpec]) -> VerifiedAction:
    """The value of the best right set: 1 for exactly its calls, else `_PART` times the harmonic mean of the shares of
    calls that are right and of right calls that were made. Unreadable calls count as made and wrong."""
    counted = tuple(call for call in reply.calls if call.name not in acts.may)
    is_forbidden = any(_is_never(call, acts, tools) for call in counted)
    flags = tuple(
        flag
        for flag, is_so in (
            ("malformed_call", bool(reply.malformed)),
            ("forbidden_action", is_forbidden),
            ("no_call", not counted and not reply.malformed and all(acts.right)),
        )
        if is_so
    )
    results = [_match_set(counted, len(reply.malformed), wanted, acts, tools) for wanted in acts.right]
    value, fault = max(results, key=lambda result: result[0])
    return VerifiedAction(value, reply.malformed[0] if reply.malformed else fault, flags, is_forbidden)


def _match_set(
    calls: tuple[ParsedCall, ...],
    malformed: int,
    wanted: tuple[ExpectedCall, ...],
    acts: SceneActs,
    tools: Sequence[ToolSpec],
) -> tuple[float, str]:
    matched = match_calls(calls, wanted, tools)
    if matched.correct and not malformed:
        in_turn = not acts.in_order or all(
            match_calls([call], [one], tools).correct for call, one in zip(calls, wanted, strict=True)
        )
        return (1.0, "") if in_turn else (_PART, "the calls are right, and their order is not")
    made = len(calls) + malformed
    right = round(matched.recall * len(wanted)) if wanted else 0
    return (_PART * 2 * right / (made + len(wanted)) if right else 0.0), matched.fault


def _is_never(call: ParsedCall, acts: SceneActs, tools: Sequence[ToolSpec]) -> bool:
    """Whether a forbidden call's arguments, as far as it names any, are those of this call."""
    for never in acts.never:
        named = call.model_copy(
            update={"arguments": {name: call.arguments[name] for name in never.arguments if name in call.arguments}}
        )
        is_called = call.name == never.name and not never.arguments
        if is_called or match_calls([named], [never], tools).correct:
            return True
    return False


def add_action(score: Score, verified: VerifiedAction) -> Score:
    """The score of line and calls together. Each part of the line's score and its cap is mixed with the action by one
    share, so that `Score`'s formula still holds. A line that failed a gate and one without a score stay what they
    are."""
    flags = (*score.flags, *verified.flags)
    if score.reward is None or not score.gate:
        return score.model_copy(update={"flags": flags})
    cap = None if score.cap is None else _mix(score.cap, verified)
    if verified.is_forbidden:
        cap = min(FORBIDDEN_CAP, 1.0 if cap is None else cap)
    reward = _mix(score.reward, verified)
    return score.model_copy(
        update={
            "reward": reward if cap is None else min(cap, reward),
            "absolute": None if score.absolute is None else _mix(score.absolute, verified),
            "relative": None if score.relative is None else _mix(score.relative, verified),
            "cap": cap,
            "criteria": (*_shrink_weights(score.criteria), _build_criterion(verified)),
            "flags": flags,
        }
    )


def _mix(part: Unit, verified: VerifiedAction) -> Unit:
    return (1 - ACTION_SHARE) * part + ACTION_SHARE * verified.value


def _shrink_weights(criteria: Sequence[Criterion]) -> Iterator[Criterion]:
    """Those that apply share what the action leaves, so that weights still sum to 1."""
    applying = math.fsum(one.weight for one in criteria if one.value is not None) or 1.0
    for one in criteria:
        weight = 0.0 if one.value is None else (1 - ACTION_SHARE) * one.weight / applying
        yield one.model_copy(update={"weight": weight})


def _build_criterion(verified: VerifiedAction) -> Criterion:
    return Criterion(name=ACTION, value=verified.value, weight=ACTION_SHARE, note=verified.note)
