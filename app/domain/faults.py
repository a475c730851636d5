"""What is wrong with a value, in words of ours: the field, what was given, what is wanted, and the nearest known name.

Validators, parsers and the operating system speak of Python's types, patterns and error numbers. All that is shown of
them passes through here: bodies, params, sheets, settings and commands.
"""

import errno
import inspect
import re
import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import yaml
from pydantic import AliasChoices, BaseModel, JsonValue, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from app.domain.errors import InvalidValue
from app.domain.values import suggest

FieldPath = tuple[str | int, ...]

_MOST_PATH: Final = 300
_MOST_GIVEN: Final = 60
_MOST_CHOICES: Final = 12
_MOST_KNOWN: Final = 40
"""Known names that are listed in place of one that is near to none."""
_MOST_NAME: Final = 100
"""Characters of a name for which a near one is looked for, which takes the longer the longer it is."""
MOST_FAULTS: Final = 8
"""That one sentence names."""
MOST_EXPLAINED: Final = 100
"""Of a list of thousands, which a small body can cause, the others are only counted."""


def make_printable(text: str, limit: int = _MOST_PATH) -> str:
    """Makes text from outside safe to repeat: printable, encodable and short."""
    clean = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text[:limit])
    return clean if len(text) <= limit else f"{clean}…"


def format_field_path(location: Sequence[str | int]) -> str:
    """Formats `("body", "groups", 0, "text")` as `body.groups[0].text`."""
    parts = [f"[{part}]" if isinstance(part, int) else f".{part}" for part in location]
    return make_printable("".join(parts).removeprefix("."))


@dataclass(frozen=True)
class Fault:
    location: FieldPath
    """As pydantic has it, with the names of the alternatives that it tried."""
    path: FieldPath
    """Where it stands in what was given."""
    kind: str
    """Pydantic's name of the error."""
    words: str
    """Without the field."""

    @property
    def dotted(self) -> str:
        return ".".join(map(str, self.path))

    @property
    def sentence(self) -> str:
        field = format_field_path(self.path)
        return f"`{field}`: {self.words}" if field else self.words


Said = ValidationError | Sequence[Mapping[str, Any]]
"""An error of pydantic's, or a list of the same form."""


def explain_faults(
    said: Said, kind: object = None, *, noun: str = "field", quotes: bool = True, base: FieldPath = ()
) -> tuple[Fault, ...]:
    """Unknown names before missing ones, which may be the same, misspelt. `kind`: the type that was validated, where
    the caller knows it: it has the known names and the bounds. `noun`: what a name stands for. Without `quotes` nothing
    is repeated that a stranger chose. `base`: where in the request the value stands."""
    items = said.errors(include_url=False) if isinstance(said, ValidationError) else said
    explain = partial(_explain, kind=kind, noun=noun, quotes=quotes, base=base)
    found = [explain(item) for item in items[:MOST_EXPLAINED]]
    found += [Fault(tuple(one["loc"]), tuple(one["loc"]), str(one["type"]), "wrong") for one in items[MOST_EXPLAINED:]]
    around = {fault.path[:depth] for fault in found for depth in range(len(fault.path))}
    faults = {(fault.path, fault.words): fault for fault in reversed(found) if not _repeats(fault, around)}
    has_unknown = any(fault.kind == "extra_forbidden" for fault in found)
    return tuple(sorted(reversed(faults.values()), key=lambda fault: has_unknown and fault.kind == "missing"))


def _repeats(fault: Fault, around: Collection[FieldPath]) -> bool:
    """Whether something inside of it was blamed already: pydantic counts only the valid entries of a list, and of a
    value that may be several things it names all."""
    has_alternatives = tuple(step for step in fault.location if step != _OF_A_KEY) != fault.path
    return fault.path in around and (fault.kind == "too_short" or has_alternatives)


def describe_faults(said: Said, kind: object = None, *, noun: str = "field", base: FieldPath = ()) -> str:
    """All in one line, up to a number of them."""
    faults = explain_faults(said, kind, noun=noun, base=base)
    more = f" (and {len(faults) - MOST_FAULTS} more)" if len(faults) > MOST_FAULTS else ""
    return "; ".join(fault.sentence for fault in faults[:MOST_FAULTS]) + more


def build_refusal(said: Said, kind: object = None, *base: str | int, noun: str = "field") -> InvalidValue:
    """Of the first fault."""
    first = explain_faults(said, kind, noun=noun, base=base)[0]
    return InvalidValue(first.words, field=first.dotted or None)


def _explain(item: Mapping[str, Any], *, kind: object, noun: str, quotes: bool, base: FieldPath) -> Fault:
    location, error, context = tuple(item["loc"]), str(item["type"]), item.get("ctx") or {}
    place = _Place.find(kind, location, is_open=error in ("extra_forbidden", "missing"))
    words = _find_words(error, item, context, place, quotes=quotes)
    if error == "extra_forbidden":
        known = context.get("known") or place.known
        words = explain_unknown(str(location[-1]), known, noun)
        if not quotes:
            words, place = f"it has an unknown {noun}", _Place(place.path[:-1], ())
    elif words is None:
        wanted = place.describe() or _describe_by_error(error, context, str(item.get("msg", "")))
        words = f"wanted is {wanted}"
        if error == "missing":
            words = "missing" if wanted == _ANYTHING else f"missing; {words}"
        elif quotes and "input" in item and not place.is_secret:
            # A text in the place of an object may be a whole key or address, which has no name yet.
            is_other = isinstance(item["input"], str) and wanted == _OBJECT
            words = f"{'text' if is_other else quote(item['input'])} was given; {words}"
    return Fault((*base, *location), (*base, *place.path), error, words)


def _find_words(
    error: str, item: Mapping[str, Any], context: Mapping[str, Any], place: "_Place", *, quotes: bool
) -> str | None:
    """Of errors that are in words already, or that need none about a type."""
    message = str(item.get("msg", ""))
    if error in ("value_error", "assertion_error"):
        words = _tidy(message.removeprefix("Value error, ").removeprefix("Assertion failed, "))
        gives = quotes and words.startswith("wanted ") and "input" in item and not place.is_secret
        return f"{quote(item['input'])} was given; {words}" if gives else words
    if error == "json_invalid":
        return f"not JSON: {_explain_json(str(context.get('error', message)))}"
    if error == "union_tag_invalid":
        return f"{quote(context.get('tag'))} was given for {context.get('discriminator')}; wanted is one of " + str(
            context.get("expected_tags")
        )
    if error not in _WANTED and not message.startswith(_PYDANTIC):
        return _tidy(message)
    return None


def _tidy(words: str) -> str:
    return make_printable(" ".join(words.split()), 600)


def explain_unknown(name: str, known: Sequence[str], noun: str) -> str:
    near = suggest(name, known) if len(name) <= _MOST_NAME else ""
    if near or not known or len(known) > _MOST_KNOWN:
        return f"unknown {noun}{near}"
    return f"unknown {noun}; known are {', '.join(f'`{one}`' for one in known)}"


def quote(value: object) -> str:
    """What was given, short: control characters are shown, and collections by their size."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        # an integer may have more digits than Python writes
        is_huge = isinstance(value, int) and value.bit_length() > 256
        return "a number of more than 77 digits" if is_huge else make_printable(str(value), _MOST_GIVEN)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str):
        size = f" ({len(value)} characters)" if len(value) > _MOST_GIVEN else ""
        return f'"{make_printable(value, _MOST_GIVEN)}"{size}' if value else "an empty text"
    if isinstance(value, Mapping | BaseModel):
        return "an object"
    if isinstance(value, Sequence | set | frozenset):
        return f"a list of {len(value)}" if value else "an empty list"
    return make_printable(str(value), _MOST_GIVEN)


# Where a value stands, by the types.

_SECRET: Final = re.compile(r"key|password|secret|token|credentials?|authorization|cookie|url|dsn", re.IGNORECASE)


_OF_A_KEY: Final = "[key]"
"""Pydantic's last step where the name of an entry is wrong."""


_ALTERNATIVE: Final = re.compile(r"(constrained-)?(str|int|float|bool|dict|list|tuple)$|[a-z-]+\[|function-")
"""A step that names one of several types which pydantic tried, and not a field."""


@dataclass(frozen=True)
class _Place:
    path: FieldPath
    """Without the alternatives that pydantic tried."""
    kinds: tuple[object, ...]
    """The types that may stand there, with what bounds them as `Annotated`. Empty where they are not known."""
    known: tuple[str, ...] = ()
    """The names that may stand in its place."""

    @classmethod
    def find(cls, kind: object, location: FieldPath, *, is_open: bool) -> "_Place":
        """`is_open`: the last step is a name, whether it is known or not."""
        if kind is None:
            return cls(tuple(step for step in location if step != _OF_A_KEY), ())
        kinds, path, known = tuple(_unfold(kind)), list[str | int](), tuple[str, ...]()
        is_key = location[-1:] == (_OF_A_KEY,)
        steps = location[:-1] if is_key else location
        for number, step in enumerate(steps, 1):
            is_last = number == len(steps)
            has_choice = sum(each is not NoneType for each in kinds) > 1
            if has_choice and _ALTERNATIVE.match(str(step)):
                continue
            below = [one for each in kinds for one in _step_into(each, step, into_key=is_key and is_last)]
            if below or not has_choice or (is_open and is_last):
                known = tuple(name for each in kinds for name in list_names(each))
                path.append(step)
                kinds = tuple(below)
        return cls(tuple(path), kinds, known)

    @property
    def is_secret(self) -> bool:
        names = [part for part in self.path if isinstance(part, str)]
        is_named = any(_SECRET.fullmatch(word) for word in (names[-1].split("_") if names else ()))
        return (
            is_named or "headers" in (name.rpartition("_")[2] for name in names) or SecretStr in map(_strip, self.kinds)
        )

    def describe(self) -> str | None:
        """None where one of the types has no words."""
        words = [_describe_kind(kind) for kind in self.kinds if kind is not NoneType]
        if not words or None in words:
            return None
        return " or ".join(dict.fromkeys(str(one) for one in words))


def list_names(kind: object) -> tuple[str, ...]:
    """Of the fields of a model."""
    model = _strip(kind)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return ()
    return tuple(name for field, info in model.model_fields.items() for name in _list_aliases(field, info))


def _list_aliases(name: str, field: FieldInfo) -> tuple[str, ...]:
    alias = field.validation_alias or field.alias
    if isinstance(alias, AliasChoices):
        return tuple(one for one in alias.choices if isinstance(one, str))
    return (alias,) if isinstance(alias, str) else (name,)


def _unfold(kind: object, marks: tuple[object, ...] = ()) -> Iterator[object]:
    """The alternatives of a type, each with the marks of what is around it."""
    if isinstance(kind, FieldInfo):
        yield from _unfold(kind.annotation, (*marks, *kind.metadata))
    elif isinstance(alias := getattr(kind, "__value__", None), UnionType) and kind is not JsonValue:
        yield from _unfold(alias, marks)
    elif get_origin(kind) is Annotated:
        inner, *more = get_args(kind)
        spread = [mark for one in more for mark in (one.metadata if isinstance(one, FieldInfo) else (one,))]
        yield from _unfold(inner, (*marks, *spread))
    elif get_origin(kind) in (Union, UnionType):
        for one in get_args(kind):
            yield from _unfold(one, marks)
    else:
        yield Annotated[kind, *marks] if marks and kind is not NoneType else kind


def _strip(kind: object) -> object:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _step_into(kind: object, step: str | int, *, into_key: bool) -> Iterator[object]:
    kind = _strip(kind)
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        for name, field in kind.model_fields.items():
            if step == name or step in _list_aliases(name, field):
                yield from _unfold(field)
                return
        extra = inspect.get_annotations(kind).get("__pydantic_extra__")
        kind = extra if kind.model_config.get("extra") == "allow" else None
    origin, arguments = get_origin(kind), get_args(kind)
    if not isinstance(origin, type):
        return
    if issubclass(origin, Mapping):
        yield from _unfold(arguments[0 if into_key else 1])
    elif isinstance(step, int) and issubclass(origin, Sequence | set | frozenset):
        is_fixed = origin is tuple and arguments[-1] is not ...
        yield from _unfold(arguments[min(step, len(arguments) - 1)] if is_fixed else arguments[0])


# What is wanted, by the type, and by the error where the type is not known.

_ANYTHING: Final = "another value"
_OBJECT: Final = "an object of names and values"
_NOUNS: Final[Mapping[object, str]] = MappingProxyType(
    {
        bool: "true or false",
        int: "a whole number",
        float: "a number",
        str: "text",
        SecretStr: "text",
        bytes: "text",
        Path: "a path",
        datetime: "a time, such as 2030-01-31T12:00:00Z",
        date: "a date, such as 2030-01-31",
    }
)


def _describe_kind(kind: object) -> str | None:
    marks: dict[str, Any] = {}
    for mark in get_args(kind)[1:] if get_origin(kind) is Annotated else ():
        for name in ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern"):
            if (value := getattr(mark, name, None)) is not None:
                marks[name] = value
    kind = _strip(kind)
    if get_origin(kind) is Literal:
        return _list_choices(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _list_choices([one.value for one in kind])
    origin = get_origin(kind) or kind
    if not isinstance(origin, type):
        return None
    if issubclass(origin, BaseModel | Mapping):
        return _OBJECT
    if issubclass(origin, list | tuple | set | frozenset) or origin is Sequence:
        return f"a list{_describe_size(marks, 'entries')}"
    noun = _NOUNS.get(origin)
    return None if noun is None else _describe_bounded(noun, marks)


def _describe_bounded(noun: str, marks: Mapping[str, Any]) -> str:
    if "pattern" in marks:
        return _PATTERNS.get(getattr(marks["pattern"], "pattern", marks["pattern"]), _OTHER_FORM)
    return f"{noun}{_describe_range(marks)}{_describe_size(marks, 'characters')}"


def _list_choices(choices: Sequence[object]) -> str:
    named = [f"`{one}`" if isinstance(one, str) else quote(one) for one in choices]
    if len(named) > _MOST_CHOICES:
        return f"one of {', '.join(named[:_MOST_CHOICES])} and {len(named) - _MOST_CHOICES} more"
    return " or ".join([", ".join(named[:-1]), named[-1]] if len(named) > 1 else named)


_MOST_BOUND: Final = 10**9
"""A bound beyond it helps nobody who gave a wrong number."""


def _describe_range(marks: Mapping[str, Any]) -> str:
    low, above, high, below = (
        None if bound is None or abs(bound) > _MOST_BOUND else f"{bound:.16g}"
        for bound in map(marks.get, ("ge", "gt", "le", "lt"))
    )
    if low is not None and high is not None:
        return f" from {low} to {high}"
    least = f"of at least {low}" if low is not None else f"above {above}" if above is not None else ""
    most = f"at most {high}" if high is not None else f"below {below}" if below is not None else ""
    if most and not least:
        return f" of {most}" if high is not None else f" {most}"
    return f" {least} and {most}" if most else f" {least}" if least else ""


def _describe_size(marks: Mapping[str, Any], noun: str) -> str:
    least, most = marks.get("min_length") or 0, marks.get("max_length")
    if most is None:
        return f" of at least {least} {noun}" if least > 1 else " that is not empty" if least else ""
    if least == most:
        return f" of {most} {noun}"
    return f" of {least} to {most} {noun}" if least else f" of at most {most} {noun}"


_PYDANTIC: Final = (
    "Input should",
    "String should",
    "List should",
    "Tuple should",
    "Extra inputs",
    "Field required",
    "Value should",
    "Object should",
    "Unable to",
    "Data should",
    "Dictionary should",
    "Set should",
    "Unexpected",
    "Missing required",
    "JSON input",
)
"""How pydantic's own sentences begin."""

_WANTED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "missing": _ANYTHING,
        "extra_forbidden": "",
        **dict.fromkeys(("int_type", "int_parsing", "int_from_float", "int_parsing_size"), "a whole number"),
        **dict.fromkeys(("float_type", "float_parsing"), "a number"),
        "finite_number": "a finite number",
        **dict.fromkeys(("bool_type", "bool_parsing"), "true or false"),
        **dict.fromkeys(("string_type", "string_sub_type", "bytes_type"), "text"),
        "string_unicode": "text without lone surrogates",
        **dict.fromkeys(("list_type", "tuple_type", "set_type", "frozen_set_type", "iterable_type"), "a list"),
        **dict.fromkeys(
            (
                "dict_type",
                "mapping_type",
                "model_type",
                "model_attributes_type",
                "dataclass_type",
                "dataclass_exact_type",
            ),
            _OBJECT,
        ),
        **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), _NOUNS[datetime]),
        **dict.fromkeys(("date_type", "date_parsing", "date_from_datetime_parsing"), _NOUNS[date]),
        "timezone_aware": "a time with its zone, such as 2030-01-31T12:00:00Z",
        **dict.fromkeys(("json_type", "invalid_key"), "text"),
        "none_required": "null",
        "path_type": "a path",
        **dict.fromkeys(("url_type", "url_parsing", "url_scheme"), "a web address, such as https://host/path"),
        **dict.fromkeys(("greater_than_equal", "greater_than", "less_than_equal", "less_than"), "a number"),
        **dict.fromkeys(("string_too_short", "string_too_long"), "text"),
        **dict.fromkeys(("too_short", "too_long"), "a list"),
        "string_pattern_mismatch": "",
        **dict.fromkeys(("literal_error", "enum"), ""),
        "union_tag_not_found": _OBJECT,
    }
)
"""By pydantic's name of the error, where the type is not known."""


def _describe_by_error(error: str, context: Mapping[str, Any], message: str) -> str:
    if error in ("literal_error", "enum"):
        return re.sub(r"'([^']*)'", r"`\1`", str(context.get("expected", _ANYTHING)))
    if error == "string_pattern_mismatch":
        return _describe_bounded("text", context)
    if error == "multiple_of":
        return f"a multiple of {context.get('multiple_of')}"
    noun = _WANTED.get(error)
    if noun is None:
        return _tidy(re.sub(r"^\w+ should (?:be |have )?", "", message)) or _ANYTHING
    return noun + _describe_range(context) + _describe_size(context, "characters" if noun == "text" else "entries")


_OTHER_FORM: Final = "text of another form; the documentation of the field shows one"
_IDENTIFIER: Final = "a-z, 0-9 and _, with a letter first, at most 40 characters"
_LINE: Final = "one line without control characters"
_FIRST: Final = "with a letter or digit first"
_PERSON: Final = f"a name of letters, digits, spaces and . _ @ -, {_FIRST}, at most 64 characters"

_PATTERNS: Final[Mapping[str, str]] = MappingProxyType(
    {
        r"^[a-z0-9][a-z0-9_-]{0,63}$": f"a name of a-z, 0-9, _ and -, {_FIRST}, at most 64 characters",
        r"^[a-z][a-z0-9_]{0,39}$": f"a name of {_IDENTIFIER}",
        r"^[a-z]{2}$": "a language of two letters, such as `en`",
        r"^(https?://[^\s\"'<>]+)?$": "a web address, such as https://host/path",
        r"^[\x21-\x7e]+$": "visible ASCII characters without spaces",
        "^(train|eval)$": "`train` or `eval`",
        "^(turn|raw)$": "`turn` or `raw`",
        r"^[^\x00-\x1f\x7f]*$": _LINE,
        r"\S": "text that is not blank",
        r"^-?[0-9]+\.\.-?[0-9]+$": "two whole numbers with two dots between them, such as `2..9`",
        r"^\w+ = \w+((?: [-+] \w+)+|(?: [*/] \w+)+)$": "a formula, such as `total = price * count`",
        r"^[a-zA-Z_][a-zA-Z0-9_]{1,60}$": "a name of letters, digits and _, no digit first, from 2 to 61 characters",
        r"^[a-z_]+$": "a name of a-z and _",
        r"^\w[\w .-]*$": f"a name of letters, digits, spaces and _ . -, {_FIRST}",
        r"^[a-z][a-z0-9_]*$": "a name of a-z, 0-9 and _, with a letter first",
        r"^group_[0-9a-f]{32}-[0-9]{1,4}$": "a rollout's id: `group_`, 32 digits of 0-9a-f, a hyphen and a number",
        r"^task_[0-9a-f]{32}$": "a task's id: `task_` and 32 digits of 0-9a-f",
        r"^lease_[0-9a-f]{32}$": "a lease's id: `lease_` and 32 digits of 0-9a-f",
        r"^group_[0-9a-f]{32}$": "a group's id: `group_` and 32 digits of 0-9a-f",
        r"^[0-9a-f]{64}$": "64 digits of 0-9a-f",
        r"^[A-Za-z0-9.-]+$": "a version of letters, digits, dots and hyphens, such as `2024-10-21`",
        r"^[A-Za-z][A-Za-z0-9-]{0,99}$": "a header's name, such as `X-Forwarded-User`",
        r"^[a-z0-9][a-z0-9_.-]{0,99}\*?$": "a name of a-z, 0-9, _ . and -, or the beginning of one with `*` behind it",
        r"^[a-z0-9][a-z0-9_-]{0,63}\*?$|^\*$": "a run's name, the beginning of one with `*` behind it, or `*`",
        r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$": f"an id of letters, digits and . _ : -, {_FIRST}",
        r"^(?:scenes/)?[a-z0-9][a-z0-9_-]{0,63}\.yaml$": "a file's name, such as `hob.yaml` or `scenes/hob.yaml`",
        r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$": f"a name of letters, digits and _ . -, {_FIRST}",
        r"^[A-Za-z0-9][A-Za-z0-9 ._@-]{0,63}$": _PERSON,
    }
)
"""What a text of each pattern is."""


# Parsers and the operating system.


def _explain_json(said: str) -> str:
    """`EOF while parsing a list at line 1 column 5`, or `Expecting value: line 1 column 2 (char 1)`."""
    place = re.search(r"line (\d+) column (\d+)", said)
    where = f"line {place[1]}, column {place[2]}" if place else "it cannot be read"
    return f"{where}: it ends too early" if said.startswith("EOF") else where


def explain_json_error(error: ValueError | RecursionError) -> str:
    """Where a text stops being JSON."""
    return "nested too deeply" if isinstance(error, RecursionError) else _explain_json(str(error))


def find_yaml_line(error: Exception) -> int | None:
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return None if mark is None else mark.line + 1


_YAML_WORDS: Final = (
    (r"mapping values are not allowed", "a text that holds ': ' must be in quotes, as in key: \"text: more text\""),
    (
        r"cannot start any token",
        "a line must not begin with a tab, nor a text with this character unless it is in quotes",
    ),
    (r"unexpected end of stream|quoted scalar", "a quote is not closed"),
    (r"',' or|flow (?:node|sequence|mapping)|node content", "a [ or { is not closed, or an entry in it is missing"),
    (r"expected ':'", "a key has no ': ' behind it"),
    (
        r"block end|expected key|'-' indicator|block (?:mapping|sequence|collection)",
        "the indentation does not fit the lines above",
    ),
    (r"unknown escape", "a \\ in double quotes begins no known character; use single quotes"),
    (r"constructor for the tag|tag", "tags, which begin with !, are not accepted"),
    (r"alias|anchor", "anchors and aliases are not accepted"),
    (r"special characters|control characters", "it holds a control character"),
    (r"document start|single document", "a second document begins here: a file holds one"),
)
"""By what is found in the words of PyYAML or libyaml."""


def explain_yaml_error(error: Exception) -> str:
    """Why a text is no YAML, without its line."""
    if not isinstance(error, yaml.YAMLError):
        return _tidy(str(error))
    said = " ".join(str(part) for part in (getattr(error, "problem", None), getattr(error, "context", None)) if part)
    said = said or str(error)
    return next((words for pattern, words in _YAML_WORDS if re.search(pattern, said)), "it cannot be read as YAML")


_OS_WORDS: Final[Mapping[int, str]] = MappingProxyType(
    {
        errno.ENOENT: "no such file or folder",
        errno.EACCES: "no permission",
        errno.EPERM: "no permission",
        errno.EISDIR: "it is a folder, not a file",
        errno.ENOTDIR: "a part of its path is no folder",
        errno.EEXIST: "it exists already",
        errno.ENOTEMPTY: "the folder is not empty",
        errno.ENAMETOOLONG: "the name is too long",
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EROFS: "the disk can only be read",
        errno.EIO: "the disk failed",
        errno.ECONNREFUSED: "nothing listens there",
        errno.ECONNRESET: "the connection was closed",
        errno.EPIPE: "the connection was closed",
        errno.EHOSTUNREACH: "no way leads to the host",
        errno.ENETUNREACH: "no way leads to the network",
        errno.ETIMEDOUT: "no answer in time",
        errno.EADDRINUSE: "the port is in use",
        errno.EADDRNOTAVAIL: "this machine has no such address",
    }
)


def explain_os_error(error: OSError) -> str:
    """Without the file, which callers name."""
    if isinstance(error, socket.gaierror):
        return "no host has this name"
    known = _OS_WORDS.get(error.errno or 0)
    return known or (error.strerror or str(error) or type(error).__name__).lower()


def describe_os_error(error: OSError) -> str:
    """With the file, where there is one."""
    name = error.filename2 or error.filename
    return explain_os_error(error) if name is None else f"{make_printable(str(name))}: {explain_os_error(error)}"


def explain_connection(error: Exception) -> str:
    """Why a server could not be asked. Clients wrap the system's error in others of theirs."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and (cause.errno or isinstance(cause, socket.gaierror)):
            return explain_os_error(cause)
        cause = cause.__cause__ or cause.__context__
    return _tidy(re.sub(r"\[Errno -?\d+\] ", "", str(error))) or type(error).__name__
