"""Simulated services, and episodes of a model that works on one.

A service is operations on a frozen state, and scenarios with a known solution: an initial state and wishes of a user.
An episode is replayed from its transcript, so any replica can serve any turn. What counts is its end state, and whether
the replies give the answers that were asked for, and not a list of candidates:

    answer 11:30      "Board lunch starts at 11:30."                  given
                      "It is moved from 10:30 to 11:30."              given, if the user or a change named 10:30
                      "Candidates: 08:30, 10:30, 11:30"               not given: 08:30 is another time
    answer Umbrella   "It was the Umbrella, not the Desk lamp."       not given: another name of the same kind

Values that may stand beside an answer: those in the user's own words, in the calls that fulfil the wishes and their
results, answers that were given before, and what a scenario names in `beside`.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

from pydantic import JsonValue, TypeAdapter

from app.domain.tasks import FunctionCall, FunctionSpec, Message, ToolCall, ToolSpec, Turn
from app.domain.values import Frozen, Split
from app.toolkit.replay import build_turn, list_stages, replay_episode, replay_for_score
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.templates import read_packaged_data
from app.toolkit.tool_calls.calls import ParsedCall, describe_schema_fault
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat
from app.toolkit.tool_calls.replies import read_message_calls

StateT = TypeVar("StateT", bound=Frozen)


class _Identified(Protocol):
    @property
    def id(self) -> str: ...


IdentifiedT = TypeVar("IdentifiedT", bound=_Identified)

Arguments = Mapping[str, Any]
"""Arguments that are valid by the tool's schema; defaults are not filled in."""


class OperationRefused(Exception):
    """The service refuses a call and leaves the state unchanged; the message says why."""


Operation = Callable[[StateT, Arguments], tuple[StateT, JsonValue]]
"""What a tool does. It is pure: it returns the new state and the result, or raises if the call is refused."""


@dataclass(frozen=True, slots=True)
class UserWish:
    """What the user says, the calls that fulfil it, and the reply that ends the turn. The replies to the wish must
    contain all of `answers`, and no other value of their kind but known ones and those in `beside`."""

    says: str
    calls: tuple[ParsedCall, ...]
    reply: str
    answers: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """What an honest reply may mention although neither the user nor what was changed says it."""


@dataclass(frozen=True, slots=True)
class ServiceScenario(Generic[StateT]):
    """An initial state and the user's wishes, which come one by one; a later wish may change an earlier one. Doing
    nothing never fulfils a scenario."""

    kind: str
    start: StateT
    wishes: tuple[UserWish, ...]


class _ToolTexts(Frozen):
    description: str
    required: tuple[str, ...] = ()
    properties: dict[str, JsonValue] = {}
    """Schemas of the arguments; there are no others."""

    def build_spec(self, name: str) -> ToolSpec:
        parameters: dict[str, JsonValue] = {
            "type": "object",
            "properties": self.properties,
            "required": [*self.required],
            "additionalProperties": False,
        }
        return ToolSpec(function=FunctionSpec(name=name, description=self.description, parameters=parameters))


class ServiceTexts(Frozen):
    """The YAML file beside a service. Its digest is no part of task ids: who changes a text raises the version of the
    environment."""

    rules: str
    tools: dict[str, _ToolTexts]
    pools: dict[str, tuple[str, ...]]
    """Names of things that are drawn."""
    wishes: dict[str, dict[str, tuple[str, ...]]]
    """By kind of scenario and turn: ways to say the wish, with `{slots}`."""
    notices: dict[str, str] = {}
    """By day."""

    def say(self, draws: SeededRandom, kind: str, turn: str, **values: str | int) -> str:
        return draws.one(self.wishes[kind][turn]).format_map(values)


def read_service_texts(module: str) -> ServiceTexts:
    """Of the service in this file."""
    return read_packaged_data(Path(module).with_suffix(".yaml"), TypeAdapter(ServiceTexts))


AS_WRITTEN: Final = (
    "In replies, write amounts, days, times, names and numbers exactly as the tools write them. Where you are asked "
    "for one of them, give that one, and no others of the tools' results that you neither changed nor were asked "
    "about: an answer among others is none."
)
"""The last sentences of a service's rules."""


class SayWish(Protocol):
    """Says the wish of a turn, with these values in its slots."""

    def __call__(self, turn: str, /, **values: str | int) -> str: ...


DrawnScenario = tuple[StateT, tuple[UserWish, ...]]
"""The initial state and the wishes."""


@dataclass(frozen=True)
class SimulatedService(Generic[StateT]):
    """The prompt contains `rules`; breaking them leads to a wrong end state. Different scenarios begin with different
    words of the user.

    `does` has a function for each tool of the texts, and `kinds` draw scenarios. `canonicalise` makes the form of a
    state that is equal for equivalent states: without identifiers that depend on the order of creation."""

    name: str
    texts: ServiceTexts
    does: Mapping[str, Operation[StateT]]
    canonicalise: Callable[[StateT], JsonValue]
    kinds: Mapping[str, Callable[[SeededRandom, SayWish], DrawnScenario[StateT]]]

    @property
    def rules(self) -> str:
        return f"{self.texts.rules} {AS_WRITTEN}"

    @cached_property
    def tools(self) -> tuple[ToolSpec, ...]:
        return tuple(tool.build_spec(name) for name, tool in self.texts.tools.items())

    def draw_scenario(self, draws: SeededRandom) -> ServiceScenario[StateT]:
        """Pure."""
        kind, draw = draws.one(tuple(self.kinds.items()))
        start, wishes = draw(draws, partial(self.texts.say, draws, kind))
        return ServiceScenario(kind, start, wishes)


@dataclass(frozen=True, slots=True)
class OperationResult(Generic[StateT]):
    state: StateT
    output: JsonValue
    refused: bool = False


_MOST_WORDS: Final = 200
"""Characters of a refusal."""
_MOST_SHOWN: Final = 40
"""Characters of an unknown identifier that a refusal quotes."""


def carry_out(service: SimulatedService[StateT], state: StateT, call: ParsedCall) -> OperationResult[StateT]:
    """The state after a call; after a refused call the old state with an error."""
    fault = describe_schema_fault(call, service.tools)
    if fault:
        return OperationResult(state, {"error": fault}, refused=True)
    try:
        after, output = service.does[call.name](state, call.arguments)
    except OperationRefused as reason:
        return OperationResult(state, {"error": str(reason)[:_MOST_WORDS]}, refused=True)
    return OperationResult(after, output)


def find_by_id(things: Iterable[IdentifiedT], identity: str, noun: str) -> IdentifiedT:
    """The thing with this identifier. The call is refused if there is none."""
    for one in things:
        if one.id == identity:
            return one
    raise OperationRefused(f"there is no {noun} {identity[:_MOST_SHOWN]!a}")


def build_call(name: str, /, **arguments: JsonValue) -> ParsedCall:
    return ParsedCall(name=name, arguments=arguments)


# Scenarios by index.

TEST_SIZE: Final = 400
_MOST_DRAWS: Final = 500
"""Far more attempts than a scenario of the right split needs."""


def find_scenario(
    services: Sequence[SimulatedService[Any]], split: Split, index: int
) -> tuple[SimulatedService[Any], ServiceScenario[Any]]:
    """Pure. Services take turns. The first thing that the user says decides the split."""
    service = services[index % len(services)]
    for attempt in range(_MOST_DRAWS):
        scenario = service.draw_scenario(SeededRandom(f"{service.name} {split} {index} {attempt}"))
        if is_held_out(scenario.wishes[0].says) == (split == "test"):
            return service, scenario
    raise ValueError(f"{service.name} has no scenario for {split}")


# Days, times and amounts, as tools and users write them.

_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)


def format_time(minutes: int) -> str:
    """HH:MM of minutes after midnight."""
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def parse_time(time: str) -> int:
    """Minutes after midnight. The call is refused if it is not a time of day."""
    hours, minutes = int(time[:2]), int(time[3:])
    if hours > 23 or minutes > 59:
        raise OperationRefused(f"{time} is no time of day")
    return hours * 60 + minutes


def check_day(text: str) -> str:
    """The day, if it exists. The call is refused otherwise."""
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        raise OperationRefused(f"{text[:10]} is no day of the calendar") from None


def add_days(day: str, days: int) -> str:
    return (date.fromisoformat(day) + timedelta(days=days)).isoformat()


def write_day(day: str) -> str:
    """`2026-03-05` as a user says it: 5 March 2026."""
    return f"{int(day[8:])} {_MONTHS[int(day[5:7]) - 1]} {day[:4]}"


def format_euros(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


# Answers.

MOST_REPLIED: Final = 2_000
"""Characters of the replies to one wish that are searched for answers: reciting everything does not count."""

_NUMBER_GROUP: Final = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DIGITS: Final = re.compile(r"\d+")
_WORD: Final = re.compile(r"\w+")
_FALSE: Final = "(?:wrong|false|untrue|incorrect|not (?:true|so|right|correct))"
_WRONG: Final = re.compile(rf"\b(?:that|this|which) (?:is|was) {_FALSE}\b|(?:^|[.!?]\s)\s*is {_FALSE}\b")
"""Said of what stands before it."""
_DENIES: Final = re.compile(
    rf"^\W*not (?:the|it|that|this|you|your)\b[^:]*$|\banything but\b|\b(?:is|are|was|were) {_FALSE}\b"
)
_NOT_BEFORE: Final = re.compile(r"(?:\bnot|\bnever|n['’]t)(?: (?:the|an?|at|on|in|for|to|by))?\W{0,4}$")
"""Right before a value; `not only 5` is none, since a word is between."""
_ENDS: Final = re.compile(r"[.;!?](?=\s|$)|\n")
_ITEM: Final = re.compile(r"^\W*\d{1,2}[.)]")
_JOINED: Final = re.compile(r"(?:[\s,/|&*•\"'`]|\b(?:and|or|the|an?|either|maybe|perhaps|possibly|else)\b)*")
"""What joins the items of a list, and says nothing of them."""


@dataclass(frozen=True, slots=True)
class FoundValue:
    value: str
    start: int
    end: int


class AnswerKind:
    """The values that an answer could be confused with: texts that differ from it in digits only, and values that the
    service holds in the same place."""

    def __init__(self, answer: str, service_values: JsonValue) -> None:
        self.answer = _normalise_value(answer)
        names = {answer, *_find_rivals(answer, service_values)}
        patterns = [_build_digit_variant_pattern(one) if _DIGITS.search(one) else _write_name(one) for one in names]
        # of two names that begin alike the longer one is tried first
        longest_first = sorted(set(patterns), key=lambda one: (-len(one), one))
        self._pattern = re.compile("|".join(longest_first))

    def find(self, text: str) -> list[FoundValue]:
        """In a text that `normalise_text` has returned, in order, without overlaps."""
        matches = self._pattern.finditer(text)
        return [FoundValue(_normalise_value(one[0]), one.start(), one.end()) for one in matches]


def gives_answers(reply: str, answers: Sequence[str], context: str, service_values: JsonValue) -> bool:
    """Whether `said` contains every answer and no other value of an answer's kind but those in `known`, none of them
    in a list with the answer. `held` is what the service holds."""
    reply, context = _normalise_text(_strip_pasted_results(reply)[:MOST_REPLIED]), _normalise_text(context)
    accepted = {_normalise_value(one) for one in answers}
    return all(_gives_answer(reply, AnswerKind(one, service_values), accepted, context) for one in answers)


def _gives_answer(reply: str, kind: AnswerKind, accepted: set[str], context: str) -> bool:
    values = {one.value for one in kind.find(reply)}
    others = values - accepted
    if kind.answer not in values or (others and not others <= {one.value for one in kind.find(context)}):
        return False
    sentences = [(sentence, kind.find(sentence)) for sentence in _ENDS.split(reply)]
    # "A starts at 9:00. B starts at 11:30." is a list too, of sentences that say the same of an answer and of a value
    frames = [
        (_blank_values(sentence, matches), {one.value for one in matches}) for sentence, matches in sentences if matches
    ]
    if _WRONG.search(reply) or any(_is_denied(sentence, matches, accepted) for sentence, matches in sentences):
        return False
    of_answers = {frame for frame, values in frames if values <= accepted}
    repeated = of_answers & {frame for frame, values in frames if values - accepted}
    return not repeated and not any(_has_list(sentence, matches, accepted) for sentence, matches in sentences)


def _is_denied(sentence: str, matches: Sequence[FoundValue], accepted: set[str]) -> bool:
    """Whether a sentence with an answer says that it is not so."""
    answers = [one for one in matches if one.value in accepted]
    return bool(answers) and (
        _DENIES.search(sentence) is not None or any(_NOT_BEFORE.search(sentence, 0, one.start) for one in answers)
    )


def _blank_values(sentence: str, matches: Sequence[FoundValue]) -> str:
    """What is said of the values: the same of two in two sentences is a list."""
    ends = [0, *(one.end for one in matches)]
    starts = [*(one.start for one in matches), len(sentence)]
    words = "_".join(sentence[end:start] for end, start in zip(ends, starts, strict=True))
    return " ".join(_WORD.findall(_ITEM.sub("", words)))


def _has_list(sentence: str, matches: Sequence[FoundValue], accepted: set[str]) -> bool:
    """Whether an answer and another value stand side by side with only commas and the like between them."""
    return any(
        (one.value in accepted) != (other.value in accepted) and _JOINED.fullmatch(sentence, one.end, other.start)
        for one, other in pairwise(matches)
    )


def _find_rivals(answer: str, service_values: JsonValue) -> set[str]:
    """All values under a key that holds the answer; of files, those with the same ending; of numbers, none: their form
    tells them."""
    ending = _find_ending(answer)
    if _DIGITS.search(answer) and not ending.isalpha():
        return set()
    leaves = list(_list_values(service_values))
    keys = {key for key, value in leaves if value.casefold() == answer.casefold()}
    return {value for key, value in leaves if key in keys and _WORD.search(value) and _find_ending(value) == ending}


def _list_values(service_values: JsonValue, key: str = "") -> Iterator[tuple[str, str]]:
    """Texts with their keys. A text of several lines counts line by line, a path by its last name."""
    if isinstance(service_values, dict):
        for name, value in service_values.items():
            yield from _list_values(value, name)
    elif isinstance(service_values, list):
        for value in service_values:
            yield from _list_values(value, key)
    elif isinstance(service_values, str):
        for line in service_values.splitlines():
            yield key, line.rpartition("/")[2] if line.startswith("/") else line


def _find_ending(value: str) -> str:
    stem, dot, ending = value.rpartition(".")
    return ending if stem and dot and " " not in value else ""


def _build_digit_variant_pattern(value: str) -> str:
    """A pattern of all texts that differ from the value in digits only; digits after the first ones are as many."""
    value = _normalise_value(value)
    first, *others = _DIGITS.split(value)
    runs = [rf"\d{{{len(run)}}}" for run in _DIGITS.findall(value)]
    runs[0] = r"\d+"
    form = re.escape(first) + "".join(run + re.escape(other) for run, other in zip(runs, others, strict=True))
    # no part of a longer number, time or amount; a minus sign makes another number, a hyphen after a word does not
    opens = r"(?<!\d)(?<!\d[.:])(?<!(?<!\w)-)" if not first else r"(?<![^\W_])"
    closes = r"(?!\d)(?![.:]\d)" if not others[-1] else r"(?![^\W_])"
    return f"{opens}{form}{closes}"


def _write_name(value: str) -> str:
    words = r"\W{1,3}".join(map(re.escape, _WORD.findall(_normalise_value(value))))
    return rf"(?<![^\W_]){words}(?![^\W_])"


def _strip_pasted_results(reply: str) -> str:
    """Drops everything between the first and the last brace: pasted tool results do not count as answers."""
    opens, closes = reply.find("{"), reply.rfind("}")
    return f"{reply[:opens]} {reply[closes + 1 :]}" if 0 <= opens < closes else reply


def _normalise_text(text: str) -> str:
    """Case-folded, without thousands separators."""
    return _NUMBER_GROUP.sub("", unicodedata.normalize("NFKC", text).casefold())


def _normalise_value(value: str) -> str:
    """Values with digits as they are written; of names only the words."""
    value = _normalise_text(value)
    return value if _DIGITS.search(value) else " ".join(_WORD.findall(value))


# Episodes.

MOST_TURNS: Final = 20
"""Most replies of the model, with or without calls."""

MOST_CALLS: Final = 40
"""Most calls of an episode: those beyond are not carried out, and end it."""


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


def reward_progress(
    service: SimulatedService[Any], scenario: ServiceScenario[Any], messages: Sequence[Message], form: ToolFormat | None
) -> list[float]:
    """For each message of the model how far its calls went. Half of the reward is shared among the states that the
    known solution passes through, up to the wish that the user has said. A message earns the shares of the states that
    it comes past, once, and only if it changes something."""
    ways = _list_ways(service, scenario)
    share = 0.5 / max(1, sum(map(len, ways)))
    rewards: list[float] = []
    passed, state, heard = 0, scenario.start, 1
    start, move = _start_episode(scenario), partial(_apply_message, service, scenario, form)
    for episode in list_stages(start, move, messages):
        reached = passed
        if episode.state != state:
            way = [after for wish in ways[:heard] for after in wish]
            now = service.canonicalise(episode.state)
            reached = next((place for place in range(len(way), passed, -1) if way[place - 1] == now), passed)
        rewards.append(share * (reached - passed))
        passed, state, heard = reached, episode.state, len(episode.replies)
    return rewards


def _list_ways(service: SimulatedService[Any], scenario: ServiceScenario[Any]) -> list[list[JsonValue]]:
    """For each wish the states that its calls lead through."""
    ways: list[list[JsonValue]] = []
    state = scenario.start
    for wish in scenario.wishes:
        way: list[JsonValue] = []
        for call in wish.calls:
            after = carry_out(service, state, call).state
            if after != state:
                way.append(service.canonicalise(after))
            state = after
        ways.append(way)
    return ways


def has_reached_goal(service: SimulatedService[Any], scenario: ServiceScenario[Any], episode: ToolEpisode) -> bool:
    """Whether the state is exactly what the wishes lead to."""
    state = scenario.start
    for call in (call for wish in scenario.wishes for call in wish.calls):
        state = carry_out(service, state, call).state
    return service.canonicalise(episode.state) == service.canonicalise(state)


def has_answered(service: SimulatedService[Any], scenario: ServiceScenario[Any], episode: ToolEpisode) -> bool:
    """Whether the replies give every requested answer, word for word, and no list of candidates."""
    replies = [*episode.replies, *((),) * len(scenario.wishes)]  # none to wishes that the episode never came to
    service_values, context, state = scenario.start.model_dump(mode="json"), "", scenario.start
    for wish, texts in zip(scenario.wishes, replies, strict=False):
        changes, state = _tell_changes(service, state, wish.calls)
        context = "\n".join((context, wish.says, *changes, *wish.beside))
        if not gives_answers("\n".join(texts), wish.answers, context, service_values):
            return False
        context = "\n".join((context, *wish.answers))
    return True


def _tell_changes(service: SimulatedService[Any], state: Any, calls: Sequence[ParsedCall]) -> tuple[list[str], Any]:
    """Arguments and results of the calls that change something, and the state after them."""
    changes = list[str]()
    for call in calls:
        result = carry_out(service, state, call)
        if result.state != state:
            changes.append(json.dumps([call.arguments, result.output], ensure_ascii=False))
        state = result.state
    return changes, state


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
    reading = read_message_calls(message, service.tools, form)
    turns = before.turns + 1
    spent = turns == MOST_TURNS  # nothing is observed after the last turn
    if reading.fault:
        observed = () if spent else _report_unreadable(message, reading.fault)
        return ToolEpisode(before.state, before.replies, before.calls, before.errors + 1, turns, spent, observed)
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
    state, errors, outputs = before.state, before.errors, list[JsonValue]()
    for call in calls[: MOST_CALLS - before.calls]:
        result = carry_out(service, state, call)
        state, errors = result.state, errors + result.refused
        outputs.append(result.output)
    made = before.calls + len(outputs)
    done = before.turns + 1 == MOST_TURNS or made == MOST_CALLS
    observed = () if done else _build_results(message, calls, outputs, form)
    return ToolEpisode(state, before.replies, made, errors, before.turns + 1, done, observed)


def _report_unreadable(message: Message, fault: str) -> tuple[Message, ...]:
    """An error for an unreadable message. Each native call gets one, since chat templates and servers require it."""
    text = f"The call cannot be read: {fault}."
    if not message.tool_calls:
        return (Message(role="user", content=text),)
    error = json.dumps({"error": text}, ensure_ascii=False)
    return tuple(
        Message(role="tool", content=error, name=call.function.name, tool_call_id=call.id)
        for call in message.tool_calls[:MOST_CALLS]
    )


def _build_results(
    message: Message, calls: Sequence[ParsedCall], outputs: Sequence[JsonValue], form: ToolFormat | None
) -> tuple[Message, ...]:
    """Results as tool messages, or as one user message if the tools are in the prompt."""
    texts = [json.dumps(one, ensure_ascii=False) for one in outputs]
    if form is not None:
        lines = [f"{call.name}: {text}" for call, text in zip(calls, texts, strict=True)]
        return (Message(role="user", content="\n".join(["Results:", *lines])),)
    identities = [call.id for call in message.tool_calls] or [None] * len(calls)
    return tuple(
        Message(role="tool", content=text, name=call.name, tool_call_id=identity)
        for call, text, identity in zip(calls, texts, identities, strict=True)
    )


def _build_call_message(calls: Sequence[ParsedCall], form: ToolFormat | None) -> Message:
    if form is not None:
        return Message(role="assistant", content=FORMATS[form].write(calls))
    native = (
        ToolCall(id=f"call_{number}", function=FunctionCall(name=call.name, arguments=call.arguments))
        for number, call in enumerate(calls)
    )
    return Message(role="assistant", tool_calls=tuple(native))
