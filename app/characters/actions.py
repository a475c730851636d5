"""Actions of a character in a scene: the tools that the policy gets, and what its calls are worth.

In play and in games a sheet's actions are offered beside the tools of the game, and nothing is expected of calls.

    sheet    actions.allowed: {name: give_item, meaning: hands a thing over, parameters: {…JSON schema…}}
    scene    acts: {state: …, right: [[{name: give_item, arguments: {item: [rope], to: [player]}}]], tempting: […]}
    reply    a line, calls, or both
    value    1 for exactly one of the right sets of calls, at most 0.5 for a part of one

Calls are verified by code alone, and the line is judged without them. A call that cannot be read is one wrong call: it
costs the action, never the line. A scene in which no call is right says `right: [[]]`. Whether the words tell of a deed
that no call does is not looked for: words for deeds are in every honest line, too. Such a reply lacks the call.

reward = gate x min(cap, (1 - a) x line + a x action), with a = `ACTION_SHARE`. A defect of the line and a forbidden
call each set a cap; the lower counts. The line of a reply of calls alone is worth 0, and no judge reads it.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Self

from pydantic import AfterValidator, Field, JsonValue, model_validator

from app.characters.schema import SAID, Actions, SheetAction, Text, drop_unsafe_keywords, require_valid_schema
from app.domain.scores import ACTION, FORBIDDEN_CAP, Score, VerifiedPart, add_part
from app.domain.tasks import Completion, FunctionCall, FunctionSpec, Message, ToolCall, ToolSpec
from app.domain.values import FiniteJson, Frozen, Name
from app.toolkit.thoughts import shows_thought, strip_leading_thoughts, strip_thinking
from app.toolkit.tool_calls.calls import (
    CallReading,
    ExpectedCall,
    MalformedCall,
    ParsedCall,
    Schema,
    describe_schema_fault,
    find_parameters,
    get_members,
    is_same_value,
    match_calls,
)
from app.toolkit.tool_calls.formats import NO_PROSE
from app.toolkit.tool_calls.loose_calls import read_loose_calls
from app.toolkit.tool_calls.replies import convert_call, read_text_calls

ACTION_SHARE: Final = 0.3
"""The action's share of the reward. The line keeps more, since most replies are judged by how they are said."""
_PART: Final = 0.5
"""What a part of a right set is worth at most: less than any whole, so that a policy that calls much never gains."""
_MOST_SETS: Final = 8
_MOST_CALLS: Final = 8
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
    """Actions whose calls neither earn nor cost anything here, within the sheet's limit on calls in a reply."""
    never: Annotated[tuple[ExpectedCall, ...], SAID] = ()
    """Forbidden calls: the whole reply is capped. Arguments that are not named here may have any value."""
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

    @property
    def named_actions(self) -> tuple[tuple[str, str], ...]:
        """Every action that the scene names, as field and name."""
        right = [
            (f"right.{place}.{number}", call.name)
            for place, calls in enumerate(self.right)
            for number, call in enumerate(calls)
        ]
        may = [(f"may.{number}", name) for number, name in enumerate(self.may)]
        return (*right, *may, *((f"never.{number}", call.name) for number, call in enumerate(self.never)))


def list_tools(actions: Actions, acts: SceneActs) -> tuple[ToolSpec, ...]:
    """Every action of the sheet and of the scene as a tool. Those of the old form take no arguments."""
    return tuple(map(build_tool, (*actions.allowed, *acts.more)))


def build_tool(action: SheetAction) -> ToolSpec:
    meaning = f"{action.meaning.rstrip('.')}. When: {action.when}" if action.when else action.meaning
    parameters = NO_ARGUMENTS if action.parameters is None else action.parameters
    return ToolSpec(function=FunctionSpec(name=action.name, description=meaning, parameters=parameters))


def offer_tools(actions: Actions, given: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """The actions of the sheet with those of the game, one of the game in place of an action of the same name. A sheet
    without typed actions keeps to brackets where the game gives no tools."""
    if not given and all(action.parameters is None for action in actions.allowed):
        return ()
    own = map(build_tool, actions.allowed)
    return tuple({tool.function.name: tool for tool in (*own, *given)}.values())


def write_calls(calls: Sequence[ParsedCall | DoneCall]) -> tuple[ToolCall, ...]:
    return tuple(ToolCall(function=FunctionCall(name=call.name, arguments=call.arguments)) for call in calls)


def write_reply(line: str, calls: Sequence[ParsedCall | DoneCall]) -> Completion:
    """A line and calls as one message, as a server answers them."""
    return Completion(messages=(Message(role="assistant", content=line, tool_calls=write_calls(calls)),))


# What authors may get wrong.


@dataclass(frozen=True)
class SceneFault:
    field: str
    """Within the scene: `acts.right.0.1.arguments.item`."""
    words: str

    def __str__(self) -> str:
        return f"{self.field}: {self.words}"


def find_acts_fault(actions: Actions, acts: SceneActs) -> SceneFault | None:
    """The first thing in a scene's `acts` that does not fit the actions of the sheet, so that no reply could be right
    or a call could not be forbidden."""
    return next(_find_acts_faults(actions, acts), None)


def _find_acts_faults(actions: Actions, acts: SceneActs) -> Iterator[SceneFault]:
    tools = list_tools(actions, acts)
    if not tools:
        yield SceneFault("acts", "neither the sheet nor `more` has an action")
    own = [action.name for action in actions.allowed]
    for number, action in enumerate(acts.more):
        if action.name in (*own, *(earlier.name for earlier in acts.more[:number])):
            yield SceneFault(f"acts.more.{number}.name", f"{action.name!r} is an action already")
    known = {tool.function.name for tool in tools}
    for where, name in acts.named_actions:
        if name not in known:
            yield SceneFault(f"acts.{where}", f"neither the sheet nor `more` has an action {name!r}")
    for place, calls in enumerate(acts.right):
        if len(calls) > actions.at_most:
            words = f"{len(calls)} calls, but the sheet's actions.at_most is {actions.at_most}"
            yield SceneFault(f"acts.right.{place}", words)
        for number, call in enumerate(calls):
            yield from _find_call_faults(f"acts.right.{place}.{number}", call, acts, tools)
    for number, call in enumerate(acts.never):
        yield from _find_unknown_arguments(f"acts.never.{number}", call, tools)


def _find_call_faults(
    place: str, expected: ExpectedCall, acts: SceneActs, tools: Sequence[ToolSpec]
) -> Iterator[SceneFault]:
    """With each accepted value in turn: one that the tool refuses could never be right."""
    first = expected.build_minimal_call()
    if fault := describe_schema_fault(first, tools):
        yield SceneFault(place, fault)
    if _is_forbidden(first, acts, tools):
        yield SceneFault(place, "this call is in `never`, too")
    for name, values in expected.arguments.items():
        for value in values:
            call = first.model_copy(update={"arguments": {**first.arguments, name: value}})
            if fault := describe_schema_fault(call, tools):
                yield SceneFault(f"{place}.arguments.{name}", fault)


def _find_unknown_arguments(place: str, never: ExpectedCall, tools: Sequence[ToolSpec]) -> Iterator[SceneFault]:
    members = get_members(find_parameters(never.name, tools) or {})
    for name in never.arguments:
        if name not in members:
            yield SceneFault(f"{place}.arguments.{name}", f"{never.name} has no such argument")


def find_untold(actions: Actions, acts: SceneActs, exemplar: str | None) -> Iterator[SceneFault]:
    """Replies of the scene's author that the check of calls does not tell apart as they are meant, in a scene without
    another fault: an exemplar that is not right with the right calls, and tempting replies whose calls are right. One
    of words alone, where no call is right, is for judges to tell."""
    tools = list_tools(actions, acts)
    gold = [call.build_minimal_call() for call in acts.right[0]]
    verified = verify_calls(read_reply(write_reply(exemplar or "", gold), tools), acts, tools, actions.at_most)
    if exemplar is not None and verified.value < 1.0:
        yield SceneFault(
            "exemplar", f"with the right calls it earns {verified.value:.2f} of the action: {verified.note}"
        )
    for number, tempting in enumerate(acts.tempting):
        reply = read_reply(write_reply(tempting.say, tempting.calls), tools)
        if reply.calls and verify_calls(reply, acts, tools, actions.at_most).value == 1.0:
            yield SceneFault(f"acts.tempting.{number}", "its calls are right, so the reply is paid for them")


# Replies taken apart.


@dataclass(frozen=True)
class SpokenReply:
    line: str
    """What was said, without thinking and calls."""
    calls: tuple[ParsedCall, ...] = ()
    malformed: tuple[str, ...] = ()
    """Why a call cannot be read, one text for each; they quote at most a few characters of the reply."""

    @property
    def is_silent(self) -> bool:
        """Whether there are calls and no words."""
        return not self.line and bool(self.calls or self.malformed)


def read_reply(completion: Completion, tools: Sequence[ToolSpec]) -> SpokenReply:
    """Calls of the message and of its text, in any supported format, and as weaker models write them: an object of name
    and arguments among the words, `ACTION: name {…}`, `{"say": …, "action": …}`, and actions in brackets. A message has
    calls in one way, but for names in brackets, which are calls without arguments."""
    known = frozenset(tool.function.name for tool in tools)
    native, malformed = _read_native_calls(completion)
    written = read_text_calls(completion.answer, tools)
    if written.fault:
        malformed = (*malformed, written.fault)
    loose = read_loose_calls(_find_words(completion.answer, written), known)
    typed = (*written.calls, *loose.calls)
    if native and typed:
        malformed = (*malformed, "there are calls both in `tool_calls` and in the text")
    malformed = (*malformed, *loose.faults)
    calls = (*(native or typed), *loose.bracketed)
    # JSON can hold halves of characters, which are no text.
    return SpokenReply(loose.said.encode(errors="replace").decode(), calls, malformed)


def _find_words(answer: str, written: CallReading) -> str:
    """The text without calls of a supported format. Where there are none, it is what gates and judges read of any
    reply, so that they see thoughts and tokens in the wrong place."""
    read = strip_leading_thoughts(answer)
    if written.format != "harmony" and shows_thought(read):
        return read
    if written.fault:
        return _cut_at_call(strip_thinking(answer).text)
    return written.said if written.calls else read


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


def verify_calls(reply: SpokenReply, acts: SceneActs, tools: Sequence[ToolSpec], at_most: int) -> VerifiedPart:
    """The value of the best right set: 1 for exactly its calls, else `_PART` times the harmonic mean of the shares of
    calls that are right and of right calls that were made. Calls that cannot be read, and those of `may` beyond
    `at_most` calls in all, count as made and wrong."""
    forbidden = [_is_forbidden(call, acts, tools) for call in reply.calls]
    is_forbidden = any(forbidden)
    counted = tuple(
        call for call, is_so in zip(reply.calls, forbidden, strict=True) if is_so or call.name not in acts.may
    )
    idle = len(reply.calls) - len(counted)
    wrong = len(reply.malformed) + min(idle, max(0, len(reply.calls) - at_most))
    results = [_match_set(counted, wrong, wanted, acts, tools) for wanted in acts.right]
    value, note = max(results, key=lambda result: result[0])
    if value < 1.0 and reply.malformed:
        note = reply.malformed[0]
    flags = {
        "malformed_call": bool(reply.malformed),
        "forbidden_action": is_forbidden,
        "no_call": not counted and not reply.malformed and all(acts.right),
        "no_words": reply.is_silent,
    }
    said = tuple(flag for flag, is_so in flags.items() if is_so)
    return VerifiedPart(ACTION, ACTION_SHARE, value, note, said, FORBIDDEN_CAP if is_forbidden else None)


def _match_set(
    calls: tuple[ParsedCall, ...],
    wrong: int,
    wanted: tuple[ExpectedCall, ...],
    acts: SceneActs,
    tools: Sequence[ToolSpec],
) -> tuple[float, str]:
    matched = match_calls(calls, wanted, tools)
    if matched.correct and not wrong:
        in_turn = not acts.in_order or all(
            match_calls([call], [one], tools).correct for call, one in zip(calls, wanted, strict=True)
        )
        if not in_turn:
            return _PART, "the calls are right, and their order is not"
        return 1.0, "the calls are right" if wanted else "there is rightly no call"
    made = len(calls) + wrong
    right = round(matched.recall * len(wanted)) if wanted else 0
    value = _PART * 2 * right / (made + len(wanted)) if right else 0.0
    return value, matched.fault or "there are more calls than the character may make in a reply"


def _is_forbidden(call: ParsedCall, acts: SceneActs, tools: Sequence[ToolSpec]) -> bool:
    """Whether a forbidden call's arguments, as far as it names any, are those of this call, whatever else it has."""
    schemas = get_members(find_parameters(call.name, tools) or {})
    return any(
        call.name == never.name
        and all(_is_any_of(call, name, accepted, schemas.get(name, {})) for name, accepted in never.arguments.items())
        for never in acts.never
    )


def _is_any_of(call: ParsedCall, name: str, accepted: Sequence[JsonValue], schema: Schema) -> bool:
    """An argument that is left out says its default."""
    said = [made[name] for made in (call.arguments, call.also) if name in made] or [schema.get("default")]
    return any(is_same_value(one, value, schema) for one in said for value in accepted)


def score_silence(verified: VerifiedPart) -> Score:
    """The score of calls without words. A judge would take the mere name of a deed for a line."""
    says = f"Nothing is said, so the action alone counts, {ACTION_SHARE:.0%} of the reward: {verified.note}."
    unsaid = Score(outcome="scored", reward=0.0, gate=1.0, absolute=0.0, rationale=says)
    return add_part(unsaid, verified)
