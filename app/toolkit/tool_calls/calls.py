"""Tool calls: parsed strictly, checked against their schemas, and matched with the calls that were expected.

Calls are matched exactly, as a set in any order. Values are the same by type and by value; texts after a normalisation.
Whatever is ambiguous in a model's JSON (repeated names, NaN, two values) is an error, never a guess.
"""

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NoReturn

import jsonschema_rs
from pydantic import Field, JsonValue, ValidationError

from app.domain.tasks import ToolSpec
from app.domain.values import MEBIBYTE, FiniteJson, Frozen, remember


class ParsedCall(Frozen):
    """One call of one tool, with its arguments as values."""

    name: str
    arguments: dict[str, FiniteJson] = {}
    also: dict[str, FiniteJson] = {}
    """What arguments may mean as well: some formats write values without types, and a schema may leave types open."""


@dataclass(frozen=True, slots=True)
class CallReading:
    """The calls and text of a reply. One malformed call makes the whole reply malformed: it has a `fault` and no
    calls."""

    calls: tuple[ParsedCall, ...] = ()
    said: str = ""
    """The reply's words to the user: without thinking, without calls."""
    format: str = ""
    """Which format the calls were written in; empty where there are none."""
    fault: str = ""
    """Why the calls cannot be read, in words that quote at most a few characters of the reply; empty when they can."""


class ExpectedCall(Frozen):
    """A call that a right answer holds. `arguments` has every value that is accepted, by argument."""

    name: str
    arguments: dict[str, Annotated[tuple[JsonValue, ...], Field(min_length=1)]] = {}
    optional: frozenset[str] = frozenset()
    """Arguments that may be left out. One that the tool's schema gives a default may be left out when the default is
    among the accepted values, too."""
    needed: frozenset[str] = frozenset()
    """Arguments that may not be left out, whatever their default: a data set says so."""

    def build_minimal_call(self) -> ParsedCall:
        """The call with the first accepted value of each argument that has to be there."""
        arguments = {name: values[0] for name, values in self.arguments.items() if name not in self.optional}
        return ParsedCall(name=self.name, arguments=arguments)


# JSON from models

MOST_DIGITS: Final = 100
"""Maximum digits of an integer, since parsing takes quadratic time."""

MOST_NAME: Final = 200
"""Characters of a tool's name."""
MOST_CALLS: Final = 1_000
"""Maximum calls per reply in formats that are parsed in Python."""

BLANK: Final = " \t\r\n"
"""What JSON takes for blank."""
_ANY_BLANK: Final = re.compile(r"\s*")


class MalformedCall(ValueError):
    """An invalid call. The message quotes at most a few characters of the model."""


def read_json(text: str) -> JsonValue:
    """Malformed for what is not exactly one JSON value."""
    value, end = read_json_at(text, 0)
    if text[end:].strip(BLANK):
        raise MalformedCall("there is more than one JSON value")
    return value


def skip_blank(text: str, position: int) -> int:
    """Where the white space from `position` on ends."""
    blank = _ANY_BLANK.match(text, position)
    return position if blank is None else blank.end()


def read_json_at(text: str, start: int) -> tuple[JsonValue, int]:
    """The value at `start`, blanks before it aside, and where it ends."""
    while start < len(text) and text[start] in BLANK:
        start += 1
    try:
        value, end = _DECODER.raw_decode(text, start)
    except MalformedCall:
        raise
    except RecursionError:
        raise MalformedCall("the JSON is nested too deep") from None
    except ValueError:
        raise MalformedCall("the JSON cannot be read") from None
    return value, end


def build_call(name: object, arguments: object, also: dict[str, JsonValue] | None = None) -> ParsedCall:
    """Malformed unless `name` is a short text and `arguments` an object of bounded depth."""
    if not isinstance(name, str) or not name or len(name) > MOST_NAME:
        raise MalformedCall("a call has no name, or one that is too long")
    if not isinstance(arguments, dict):
        raise MalformedCall("the arguments are not an object")
    try:
        return ParsedCall(name=name, arguments=arguments, also=also or {})
    except ValidationError:
        raise MalformedCall("the arguments are nested too deep or hold what is no text") from None


def parse_call_object(value: JsonValue) -> ParsedCall:
    """A call as an object of `name` and `arguments`, which some models and templates name `parameters`, and some write
    as JSON within a text."""
    key = "parameters" if isinstance(value, dict) and "arguments" not in value else "arguments"
    members = require_members(value, required=("name", key), allowed=("id", "type"))
    arguments = members[key]
    return build_call(members["name"], read_json(arguments) if isinstance(arguments, str) else arguments)


def require_members(value: JsonValue, *, required: Sequence[str], allowed: Sequence[str] = ()) -> dict[str, JsonValue]:
    """`value`; Malformed unless it is an object with all of `required` and nothing beyond `allowed`."""
    if not isinstance(value, dict):
        raise MalformedCall("a call is not a JSON object")
    missing = [key for key in required if key not in value]
    if missing:
        raise MalformedCall(f"a call has no `{missing[0]}`")
    if not value.keys() <= {*required, *allowed}:
        raise MalformedCall("a call has members that its format does not know")
    return value


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise MalformedCall("an object names a member twice")
    return members


def _parse_whole_number(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise MalformedCall(f"a whole number has more than {MOST_DIGITS} digits")
    return int(digits)


def _parse_finite_number(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise MalformedCall("a number is out of range")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedCall(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_refuse_repeats,
    parse_int=_parse_whole_number,
    parse_float=_parse_finite_number,
    parse_constant=_refuse_constant,
)


# Whether a call fits the tool that it names, by JSON Schema read strictly: `true`, `"5"` and `5.0` are no integers

_MOST_QUOTED: Final = 40
"""Characters of a name that a model wrote, in words of ours."""

Schema = Mapping[str, JsonValue]


def find_parameters(name: str, tools: Sequence[ToolSpec]) -> Schema | None:
    """JSON Schema of a tool's arguments; None for a tool that is not there."""
    return next((tool.function.parameters for tool in tools if tool.function.name == name), None)


def describe_schema_fault(call: ParsedCall, tools: Sequence[ToolSpec]) -> str:
    """What is wrong with a call by the schema of its tool, naming the argument; empty for a valid one. Arguments that
    the schema does not have are wrong whatever it says of additional ones. An optional one given exactly as its default
    is right, null or of another type than stated, since many data sets have such defaults; but a text is no number and
    no truth value."""
    schema = find_parameters(call.name, tools)
    if schema is None:
        return f"there is no tool {_quote_name(call.name)}"
    members = get_members(schema)
    invented = [name for name in call.arguments if name not in members]
    if invented:
        return f"{call.name} has no argument {_quote_name(invented[0])}"
    checked = {
        name: value for name, value in call.arguments.items() if not _is_default(name, value, schema, members[name])
    }
    for error in _compile_validator(json.dumps(schema)).iter_errors(checked):
        path = error.instance_path
        return f"{call.name}: {_format_path(path)} does not fit its schema" if path else _describe_missing(call, schema)
    for name, value in checked.items():
        if _has_float_for_integer(value, members[name]):
            return f"{call.name}: {_format_path([name])} is not an integer"
    return ""


def get_members(schema: Schema) -> Mapping[str, Schema]:
    """The schemas of an object's members."""
    properties = schema.get("properties")
    members = properties if isinstance(properties, dict) else {}
    return {name: value if isinstance(value, dict) else {} for name, value in members.items()}


def get_item_schema(schema: Schema) -> Schema:
    """The schema of a list's items."""
    items = schema.get("items")
    return items if isinstance(items, dict) else {}


def _allows_type(schema: Schema, name: str) -> bool:
    """Whether a schema names a type among its own."""
    types = schema.get("type")
    return name in types if isinstance(types, list) else name == types


def _quote_name(name: str) -> str:
    """A name that a model wrote, short and without control characters."""
    return ascii(name[:_MOST_QUOTED] + ("…" if len(name) > _MOST_QUOTED else ""))


# By the schema's text, since an object cannot be the key of a cache. A validator takes 10 to 15 times as much as that.
@remember(MEBIBYTE)
def _compile_validator(schema: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.validator_for(json.loads(schema))


def _is_default(name: str, value: JsonValue, schema: Schema, described: Schema) -> bool:
    """Whether leaving an argument out, which may be, says the same."""
    required, default = schema.get("required"), described.get("default")
    may_be_left_out = not isinstance(required, list) or name not in required
    if isinstance(value, str) and any(_allows_type(described, name) for name in ("integer", "number", "boolean")):
        return False
    return may_be_left_out and "default" in described and type(value) is type(default) and value == default


def _describe_missing(call: ParsedCall, schema: Schema) -> str:
    required = schema.get("required")
    missing = [name for name in (required if isinstance(required, list) else []) if name not in call.arguments]
    return f"{call.name} lacks {missing[0]}" if missing else f"the arguments of {call.name} do not fit its schema"


def _format_path(path: Sequence[str | int]) -> str:
    return ".".join(_quote_name(step) if isinstance(step, str) else str(step) for step in path)


def _has_float_for_integer(value: JsonValue, schema: Schema) -> bool:
    if isinstance(value, float):
        return _allows_type(schema, "integer") and not _allows_type(schema, "number")
    if isinstance(value, list):
        return any(_has_float_for_integer(one, get_item_schema(schema)) for one in value)
    if isinstance(value, dict):
        inside = get_members(schema)
        return any(_has_float_for_integer(one, inside.get(name, {})) for name, one in value.items())
    return False


# When two values of an argument are the same. Of texts that are nothing but words the case does not count, nor white
# space around them; any other text is exact: `x^2` is not `x*2`, `a_b.txt` not `a-b.txt`, one zip code not another.
# `published` compares texts as the Berkeley Function-Calling Leaderboard does, for figures beside those of others.
# Lists are the same in the same order, but for those whose items are unique by their schema: those are sets.

Strictness = Literal["ours", "published"]

_WORDS: Final = re.compile(
    r"(?:[\"'(]?+(?:[^\W\d_]++(?:['-][^\W\d_]++)*+|[0-9]++(?:[.,:/-][0-9]++)*+(?:st|nd|rd|th|am|pm|%)?+)"
    r"[\"')]?+[,.;:!?]?+(?:\s++|\Z))++",
    re.IGNORECASE,
)
"""Words and numbers, with the marks of prose where prose has them: no path, address, expression or name of a file.
Nothing is tried twice, so it takes linear time."""
_CURVED: Final = str.maketrans("‘’“”", "''\"\"")
_PUBLISHED_IGNORED: Final = re.compile(r"[ ,./\-_*^]")

_EXACT: Final = {"enum", "const", "format", "pattern"}
"""Keywords of schemas whose texts are compared as they are."""

MOST_TIMES: Final = 4
MOST_MORE: Final = 200
"""How much longer a text may be for its blanks and marks: so many times, and so many characters. Folding takes time."""


def is_same_value(said: JsonValue, accepted: JsonValue, schema: Schema, strictness: Strictness = "ours") -> bool:
    if isinstance(said, bool) or isinstance(accepted, bool):
        return said is accepted
    if isinstance(accepted, int | float):
        return isinstance(said, int | float) and said == accepted and _is_whole_enough(said, accepted, schema)
    if isinstance(accepted, str):
        return isinstance(said, str) and is_same_text(
            said, accepted, exact=not _EXACT.isdisjoint(schema), strictness=strictness
        )
    if isinstance(accepted, list):
        return (
            isinstance(said, list)
            and len(said) == len(accepted)
            and _are_same_items(said, accepted, schema, strictness)
        )
    if isinstance(accepted, dict):
        return isinstance(said, dict) and _are_same_members(said, accepted, get_members(schema), strictness)
    return said is None


def is_same_text(said: str, accepted: str, *, exact: bool = False, strictness: Strictness = "ours") -> bool:
    if said == accepted or exact:
        return said == accepted
    if len(said) > MOST_TIMES * len(accepted) + MOST_MORE:
        return False
    if strictness == "published":
        folded = _fold_as_published_once(accepted)
        return folded != "" and _fold_as_published(said) == folded
    return _fold_text(said) == _fold_text_once(accepted)


def _is_whole_enough(said: float, accepted: float, schema: Schema) -> bool:
    """A float stands for a whole number only where the schema asks for numbers."""
    return isinstance(said, int) or isinstance(accepted, float) or _allows_type(schema, "number")


def _are_same_items(
    said: Sequence[JsonValue], accepted: Sequence[JsonValue], schema: Schema, strictness: Strictness
) -> bool:
    within = get_item_schema(schema)
    if schema.get("uniqueItems") is not True:
        return all(is_same_value(one, other, within, strictness) for one, other in zip(said, accepted, strict=True))
    left = [*accepted]
    for one in said:
        position = next(
            (place for place, other in enumerate(left) if is_same_value(one, other, within, strictness)), None
        )
        if position is None:
            return False
        del left[position]
    return True


def _are_same_members(
    said: Mapping[str, JsonValue],
    accepted: Mapping[str, JsonValue],
    schemas: Mapping[str, Schema],
    strictness: Strictness,
) -> bool:
    return said.keys() == accepted.keys() and all(
        is_same_value(said[name], accepted[name], schemas.get(name, {}), strictness) for name in accepted
    )


def _fold_text(text: str) -> str:
    """A single letter may be the name of a variable, which has a case."""
    plain = unicodedata.normalize("NFC", text)
    words = plain.strip().translate(_CURVED)
    if _WORDS.fullmatch(words) is None:
        return plain
    return words.casefold() if len(words) > 1 else words


def _fold_as_published(text: str) -> str:
    return _PUBLISHED_IGNORED.sub("", text).lower().replace("'", '"')


_fold_text_once = remember(MEBIBYTE)(_fold_text)
_fold_as_published_once = remember(MEBIBYTE)(_fold_as_published)
"""For right answers only: what models write may be long."""


# Whether the calls of a reply are those that were expected

MOST_COMPARED: Final = 64
"""Maximum calls compared per reply; a reply with more is wrong anyway. Pairing takes the cube of this at worst."""


@dataclass(frozen=True, slots=True)
class CallMatch:
    """`precision` is the share of the calls that were expected, `recall` that of the expected ones that were made; both
    in [0, 1], and 1 where there is nothing to count."""

    correct: bool
    precision: float
    recall: float
    fault: str
    """The first thing that is wrong, in words that do not tell the right answer; empty when nothing is."""


def match_calls(
    calls: Sequence[ParsedCall],
    expected: Sequence[ExpectedCall],
    tools: Sequence[ToolSpec],
    strictness: Strictness = "ours",
) -> CallMatch:
    compared = calls[:MOST_COMPARED]
    faults = [describe_schema_fault(call, tools) for call in compared]
    fits = [
        [not fault and _is_expected(call, one, tools, strictness) for one in expected]
        for call, fault in zip(compared, faults, strict=True)
    ]
    partners = _pair_calls(fits, len(expected))
    paired = len(partners)
    correct = paired == len(calls) == len(expected)
    return CallMatch(
        correct=correct,
        precision=paired / len(calls) if calls else float(not expected),
        recall=paired / len(expected) if expected else 1.0,
        fault="" if correct else _describe_fault(calls, faults, expected, set(partners.values())),
    )


def _is_expected(call: ParsedCall, expected: ExpectedCall, tools: Sequence[ToolSpec], strictness: Strictness) -> bool:
    """Whether a schema-valid call is this one. An omitted argument equals its default value."""
    if call.name != expected.name:
        return False
    schemas = get_members(find_parameters(call.name, tools) or {})
    for name in {*call.arguments, *expected.arguments}:
        schema = schemas.get(name, {})
        accepted = expected.arguments.get(name, ())
        may_be_left_out = name not in expected.needed and (
            name not in expected.arguments
            or name in expected.optional
            or any(_is_accepted(value, accepted, schema, strictness) for value in _list_defaults(schema))
        )
        if may_be_left_out:
            accepted = (*accepted, *_list_defaults(schema))
        if name not in call.arguments:
            if not may_be_left_out:
                return False
        elif not any(
            _is_accepted(said[name], accepted, schema, strictness)
            for said in (call.arguments, call.also)
            if name in said
        ):
            return False
    return True


def _list_defaults(schema: Schema) -> tuple[JsonValue, ...]:
    return (schema["default"],) if "default" in schema else ()


def _is_accepted(said: JsonValue, accepted: Sequence[JsonValue], schema: Schema, strictness: Strictness) -> bool:
    return any(is_same_value(said, value, schema, strictness) for value in accepted)


def _pair_calls(fits: Sequence[Sequence[bool]], width: int) -> dict[int, int]:
    """A largest matching, as call by expected one, by augmenting paths (Kuhn 1955)."""
    partner: dict[int, int] = {}

    def place_call(call: int, tried: set[int]) -> bool:
        for one in range(width):
            if fits[call][one] and one not in tried:
                tried.add(one)
                if one not in partner or place_call(partner[one], tried):
                    partner[one] = call
                    return True
        return False

    for call in range(len(fits)):
        place_call(call, set())
    return partner


def _describe_fault(
    calls: Sequence[ParsedCall], faults: Sequence[str], expected: Sequence[ExpectedCall], right: set[int]
) -> str:
    if not expected:
        return "no tool fits, and there is a call"
    if not calls:
        return "there is no call"
    for number, fault in enumerate(faults):
        if fault:
            return fault
        if number not in right:
            return f"the call of {_quote_name(calls[number].name)} is not what was asked for, or one too many"
    return "calls are missing"
