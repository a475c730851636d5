"""Records: a schema, a text that contains the facts, and broken JSON that can be repaired in only one way.

A record consists of facts. Each has a field of one kind, which gives its schema, its value, and the value in words. The
text states every fact once, among sentences that the schema does not ask for; some facts are stated wrongly and then
corrected. Broken JSON has faults of syntax and values that can be told from what is left, and members that have lost
their value, for which the facts are given apart.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue, TypeAdapter

from app.domain.values import Frozen, digest, digest_of_model
from app.toolkit.procedural import Level
from app.toolkit.seeded import SeededRandom
from app.toolkit.templates import read_packaged_data

# The kinds of members.

# fmt: off
Kind = Literal[
    "name", "code", "choice", "date", "time", "count", "minutes", "price", "flag",
    "words", "goods", "address", "contact", "period",
]
# fmt: on
_Object = dict[str, JsonValue]


class RecordField(Frozen):
    name: str
    kind: Kind
    says: tuple[str, ...]
    """Sentences with `{value}`."""
    denies: tuple[str, ...] = ()
    """Sentences for a flag that is false."""
    choices: tuple[str, ...] = ()
    low: int = 1
    high: int = 100
    step: int = 1


class RecordFact(Frozen):
    field: RecordField
    style: int
    form: _Object
    """Its schema, which depends on field and style only."""
    value: JsonValue
    words: str
    """The value in words."""
    sentence: str


class _Vocabulary(Frozen):
    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    places: tuple[str, ...]
    streets: tuple[str, ...]
    goods: tuple[str, ...]
    months: tuple[str, ...]
    numbers: tuple[str, ...]


_WORDS: Final = read_packaged_data(Path(__file__).with_name("words.yaml"), TypeAdapter(_Vocabulary))
STYLES: Final = 3
_FIRST_DAY: Final = date(2024, 1, 1)
_DATES: Final = (
    ("a date as YYYY-MM-DD", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "%Y-%m-%d"),
    ("a date as DD.MM.YYYY", "^[0-9]{2}[.][0-9]{2}[.][0-9]{4}$", "%d.%m.%Y"),
    ("a date as MM/DD/YYYY", "^[0-9]{2}/[0-9]{2}/[0-9]{4}$", "%m/%d/%Y"),
)

_DrawnValue = tuple[_Object, JsonValue, str]
"""Schema, value, and the value in words."""


def draw_fact(draws: SeededRandom, field: RecordField, style: int) -> RecordFact:
    """Facts of the same field and style differ only in their value."""
    form, value, words = _KINDS[field.kind](draws, field, style)
    sentence = draws.one(field.denies if value is False else field.says).replace("{value}", words)
    return RecordFact(field=field, style=style, form=form, value=value, words=words, sentence=sentence)


def draw_other_fact(draws: SeededRandom, fact: RecordFact) -> RecordFact:
    """A fact of the same field and style with another value."""
    while (other := draw_fact(draws, fact.field, fact.style)).value == fact.value:
        pass
    return other


def _draw_person(draws: SeededRandom) -> str:
    return f"{draws.one(_WORDS.first_names)} {draws.one(_WORDS.last_names)}"


def _draw_day(draws: SeededRandom) -> date:
    return _FIRST_DAY + timedelta(days=draws.below(1500))


def _write_date(one: date) -> str:
    return f"{one.day} {_WORDS.months[one.month - 1]} {one.year}"


def _join_words(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _build_object_schema(properties: Mapping[str, JsonValue], required: Sequence[str] | None = None) -> _Object:
    """The schema of an object with exactly these members; all are required unless `required` names some."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*(properties if required is None else required)],
        "additionalProperties": False,
    }


def _draw_name(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    name = _draw_person(draws)
    return {"type": "string", "minLength": 1}, name, name


def _draw_code(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    code = f"{draws.one('ABCDEFGHKLMNPRSTUVWXYZ')}-{100 + draws.below(900)}"
    return {"type": "string", "pattern": "^[A-Z]-[0-9]{3}$"}, code, code


def _draw_choice(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    words = draws.one(field.choices)
    return {"enum": [_make_token(choice, style) for choice in field.choices]}, _make_token(words, style), words


def _make_token(choice: str, style: int) -> str:
    return (choice, choice.replace(" ", "_").upper(), choice.replace(" ", "_"))[style]


def _draw_date(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    one = _draw_day(draws)
    return _build_date_schema(style), one.strftime(_DATES[style][2]), _write_date(one)


def _build_date_schema(style: int) -> _Object:
    description, pattern, _ = _DATES[style]
    return {"type": "string", "description": description, "pattern": pattern}


def _draw_time(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    hour, quarter = draws.one([*range(6, 12), *range(13, 22)]), draws.below(4)
    of_day = "morning" if hour < 12 else "afternoon" if hour < 18 else "evening"
    to_name = _WORDS.numbers[(hour + (quarter == 3) - 1) % 12 + 1]
    phrase = ("{} o'clock", "a quarter past {}", "half past {}", "a quarter to {}")[quarter].format(to_name)
    words = draws.one((f"{phrase} in the {of_day}", f"{(hour - 1) % 12 + 1}:{15 * quarter:02} in the {of_day}"))
    if style == 2:
        form: _Object = {"type": "string", "description": "HHMM, 24 hours", "pattern": "^[0-2][0-9][0-5][0-9]$"}
        return form, f"{hour:02}{15 * quarter:02}", words
    form = {"type": "string", "description": "HH:MM, 24 hours", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}
    return form, f"{hour:02}:{15 * quarter:02}", words


def _draw_count(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    number = field.low + field.step * draws.below((field.high - field.low) // field.step + 1)
    step: _Object = {"multipleOf": field.step} if field.step > 1 else {}
    words = _WORDS.numbers[number] if number < len(_WORDS.numbers) and draws.chance(50) else str(number)
    return {"type": "integer", "minimum": field.low, "maximum": field.high, **step}, number, words


def _draw_minutes(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    hours, quarter = draws.below(4), 1 + draws.below(3)
    words = f"{hours} hour{'s' * (hours > 1)} and {15 * quarter} minutes" if hours else f"{15 * quarter} minutes"
    form: _Object = {"type": "integer", "description": "in minutes", "multipleOf": 15, "exclusiveMinimum": 0}
    return form, 60 * hours + 15 * quarter, words


def _draw_price(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    cents = 100 * (field.low + draws.below(field.high - field.low)) + 25 * draws.below(4)
    euros, rest = divmod(cents, 100)
    words = draws.one((f"{euros} euros and {rest} cents", f"{euros}.{rest} euros")) if rest else f"{euros} euros"
    if style == 2:
        return {"type": "integer", "description": "in cents", "minimum": 0, "multipleOf": 25}, cents, words
    return {"type": "number", "description": "in euros", "minimum": 0}, cents / 100, words


def _draw_flag(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    true = draws.chance(50)
    return {"type": "boolean"}, true, "yes" if true else "no"


def _draw_words(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    some = draws.some(field.choices, 1 + draws.below(3))
    items: _Object = {"enum": [_make_token(choice, style) for choice in field.choices]}
    form: _Object = {"type": "array", "items": items, "minItems": 1, "uniqueItems": True}
    return form, [_make_token(one, style) for one in some], _join_words(some)


def _draw_goods(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    some = [(name, 1 + draws.below(9)) for name in draws.some(_WORDS.goods, 1 + draws.below(3))]
    article: _Object = {"type": "string", "minLength": 1}
    amount: _Object = {"type": "integer", "minimum": 1}
    form: _Object = {
        "type": "array",
        "items": _build_object_schema({"article": article, "amount": amount}),
        "minItems": 1,
    }
    value: list[JsonValue] = [{"article": name, "amount": number} for name, number in some]
    return form, value, _join_words([f"{number} × {name}" for name, number in some])


def _draw_address(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    street, house, city = draws.one(_WORDS.streets), 1 + draws.below(99), draws.one(_WORDS.places)
    code = str(10_000 + draws.below(89_999))
    text: _Object = {"type": "string", "minLength": 1}
    postcode: _Object = {"type": "string", "pattern": "^[0-9]{5}$"}
    number: _Object = {"type": "integer", "minimum": 1}
    form = _build_object_schema({"street": text, "house_number": number, "postcode": postcode, "city": text})
    value: _Object = {"street": street, "house_number": house, "postcode": code, "city": city}
    return form, value, f"{house} {street}, {code} {city}"


def _draw_contact(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    mail: _Object = {"type": "string", "pattern": "^[^@]+@[^@]+$"}
    line: _Object = {"type": "string", "description": "without spaces", "pattern": "^[+][0-9]{8,14}$"}
    by_mail, by_line = (
        _build_object_schema({"by": {"const": "email"}, "to": mail}),
        _build_object_schema({"by": {"const": "phone"}, "line": line}),
    )
    form: _Object = {"anyOf": [by_line, by_mail]}
    if draws.chance(50):
        address = f"{_draw_person(draws).replace(' ', '.').lower()}@example.org"
        return form, {"by": "email", "to": address}, f"by e-mail to {address}"
    parts = [f"+{30 + draws.below(60)}", *(str(10 + draws.below(90)) for _ in range(4))]
    return form, {"by": "phone", "line": "".join(parts)}, f"by telephone on {' '.join(parts)}"


def _draw_period(draws: SeededRandom, field: RecordField, style: int) -> _DrawnValue:
    shape = _DATES[style][2]
    form: _Object = {
        "description": "one day, or the first and the last of several",
        "anyOf": [
            _build_date_schema(style),
            _build_object_schema({"from": _build_date_schema(style), "until": _build_date_schema(style)}),
        ],
    }
    first = _draw_day(draws)
    last = first + timedelta(days=1 + draws.below(40))
    if draws.chance(40):
        return form, first.strftime(shape), f"for the one day of {_write_date(first)}"
    value: _Object = {"from": first.strftime(shape), "until": last.strftime(shape)}
    return form, value, f"from {_write_date(first)} until {_write_date(last)}"


_KINDS: Final[Mapping[Kind, Callable[[SeededRandom, RecordField, int], _DrawnValue]]] = {
    "name": _draw_name,
    "code": _draw_code,
    "choice": _draw_choice,
    "date": _draw_date,
    "time": _draw_time,
    "count": _draw_count,
    "minutes": _draw_minutes,
    "price": _draw_price,
    "flag": _draw_flag,
    "words": _draw_words,
    "goods": _draw_goods,
    "address": _draw_address,
    "contact": _draw_contact,
    "period": _draw_period,
}


# Records with their texts.


class _RecordSubject(Frozen):
    title: str
    openings: tuple[str, ...]
    asides: tuple[str, ...]
    """True sentences that belong to no record, with slots `{name}`, `{date}`, `{time}` and `{count}`."""
    fields: tuple[RecordField, ...]


class GeneratedRecord(Frozen):
    facts: tuple[RecordFact, ...]
    """The facts that the text contains and the schema asks for."""
    form: _Object
    """The schema. It also has optional members of which nothing is known."""
    value: _Object
    text: str
    """The source text."""


class _RecordSize(Frozen):
    plain: int
    nested: int
    unknown: int
    """Members of the schema without a value in the text."""
    beside: int
    """Facts in the text that the schema does not ask for."""
    corrected: int
    """Facts that the text first states wrongly and then corrects."""


_SUBJECTS: Final = read_packaged_data(Path(__file__).with_name("records.yaml"), TypeAdapter(tuple[_RecordSubject, ...]))
_SIZES: Final[Mapping[Level, _RecordSize]] = {
    "first": _RecordSize(plain=1, nested=0, unknown=0, beside=0, corrected=0),
    "easy": _RecordSize(plain=3, nested=0, unknown=0, beside=0, corrected=0),
    "medium": _RecordSize(plain=4, nested=1, unknown=1, beside=1, corrected=0),
    "hard": _RecordSize(plain=5, nested=3, unknown=2, beside=2, corrected=1),
}
_NESTED: Final[frozenset[Kind]] = frozenset(("words", "goods", "address", "contact", "period"))
_HOURS: Final = ("five o'clock", "six in the evening", "noon")

DIGESTS: Final[Mapping[str, str]] = {
    "subjects": digest([subject.model_dump(mode="json") for subject in _SUBJECTS]),
    "words": digest_of_model(_WORDS),
}


def draw_record(draws: SeededRandom, level: Level) -> GeneratedRecord:
    subject, size = draws.one(_SUBJECTS), _SIZES[level]
    plain = draws.shuffled([field for field in subject.fields if field.kind not in _NESTED])
    nested = draws.shuffled([field for field in subject.fields if field.kind in _NESTED])
    asked = [*plain[: size.plain], *nested[: size.nested]]
    left = draws.shuffled([*plain[size.plain :], *nested[size.nested :]])
    unknown, beside = left[: size.unknown], left[size.unknown : size.unknown + size.beside]
    facts, empty, idle = (
        [draw_fact(draws, field, draws.below(STYLES)) for field in fields] for fields in (asked, unknown, beside)
    )
    facts = draws.shuffled(facts)
    optional = [fact.field.name for fact in facts if level in ("medium", "hard") and draws.chance(30)]
    required = [fact.field.name for fact in facts if fact.field.name not in optional]
    properties = {fact.field.name: fact.form for fact in draws.shuffled([*facts, *empty])}
    return GeneratedRecord(
        facts=tuple(facts),
        form={
            "title": subject.title,
            **_build_object_schema(properties, [name for name in properties if name in required]),
        },
        value={name: fact.value for name in properties for fact in facts if fact.field.name == name},
        text=_write_text(draws, subject, size, facts, empty, idle),
    )


def _write_text(
    draws: SeededRandom,
    subject: _RecordSubject,
    size: _RecordSize,
    facts: Sequence[RecordFact],
    empty: Sequence[RecordFact],
    idle: Sequence[RecordFact],
) -> str:
    """States every fact once, among sentences that the schema does not ask for. A wrong statement is corrected in the
    next sentence."""
    wrong = {fact.field.name for fact in facts[: size.corrected]}
    sentences = [_write_corrected_fact(draws, fact) if fact.field.name in wrong else fact.sentence for fact in facts]
    sentences += [fact.sentence for fact in idle]
    sentences += [f"As to “{_write_label(fact)}”, nothing is known yet." for fact in empty if draws.chance(50)]
    if size.beside or draws.chance(50):
        sentences.append(_draw_aside(draws, subject))
    return " ".join([draws.one(subject.openings), *draws.shuffled(sentences)])


def _write_corrected_fact(draws: SeededRandom, fact: RecordFact) -> str:
    put_right = draws.one(("No, that was wrong:", "That has changed since:", "This was a mistake; correctly:"))
    return f"{draw_other_fact(draws, fact).sentence} {put_right} {fact.sentence}"


def _write_label(fact: RecordFact) -> str:
    return fact.field.name.replace("_", " ")


def _draw_aside(draws: SeededRandom, subject: _RecordSubject) -> str:
    values = {
        "name": _draw_person(draws),
        "date": _write_date(_draw_day(draws)),
        "time": draws.one(_HOURS),
        "count": str(2 + draws.below(9)),
    }
    return draws.one(subject.asides).format_map(values)


# Broken JSON.

_AGAIN: Final = "\x00"
"""Marks the second of two members with the same name, until the JSON is written."""

_UNKNOWN_MEMBERS: Final[Mapping[str, JsonValue]] = {
    "checked_by": "desk 3",
    "version": 2,
    "remarks": "",
    "source": "form",
}
_REMARKS: Final = ("// to be checked", "// as told", "/* entered by hand */", "# see the form")


class BrokenRecord(Frozen):
    text: str
    known: tuple[str, ...]
    """Sentences with the facts that the text has lost, and others."""


class _FaultPlan(Frozen):
    syntax: int
    values: int
    lost: int
    """Members whose value is no longer in the text."""


_PLANS: Final[Mapping[Level, tuple[_FaultPlan, ...]]] = {
    "first": (_FaultPlan(syntax=1, values=0, lost=0),),
    "easy": (
        _FaultPlan(syntax=1, values=0, lost=0),
        _FaultPlan(syntax=0, values=1, lost=0),
        _FaultPlan(syntax=1, values=1, lost=0),
    ),
    "medium": (_FaultPlan(syntax=2, values=2, lost=0), _FaultPlan(syntax=1, values=1, lost=1)),
    "hard": (_FaultPlan(syntax=3, values=2, lost=1), _FaultPlan(syntax=2, values=2, lost=2)),
}


def break_record(draws: SeededRandom, made: GeneratedRecord, level: Level) -> BrokenRecord:
    plan, members = draws.one(_PLANS[level]), dict(made.value)
    facts = draws.shuffled(made.facts)
    lost, others = facts[: plan.lost], facts[plan.lost :]
    for fact in lost:
        draws.one(_LOSSES)(draws, members, fact)
    todo = plan.values
    for fact in others:
        if todo:
            todo -= draws.one([*_SPOILED.get(fact.field.kind, ()), *_ANY])(draws, members, fact)
    # json writes the mark of a second name as an escape, which is then cut out
    text = json.dumps(members, indent=draws.one((1, 2, 4)), ensure_ascii=False).replace(json.dumps(_AGAIN)[1:-1], "")
    for change_text in draws.some(_SYNTAX, plan.syntax):
        text = change_text(draws, text)
    telling = [*lost, *(others[:1] if lost else ())]
    return BrokenRecord(text=text, known=tuple(fact.sentence for fact in draws.shuffled(telling)))


def _set_null(draws: SeededRandom, members: _Object, fact: RecordFact) -> None:
    members[fact.field.name] = draws.one((None, float("nan"), "?")) if fact.field.kind in _NUMBERS else None


def _leave_out(draws: SeededRandom, members: _Object, fact: RecordFact) -> None:
    del members[fact.field.name]


def _name_twice(draws: SeededRandom, members: _Object, fact: RecordFact) -> None:
    """Writes the member twice with two values; only the known facts tell which is right."""
    first, second = draws.shuffled([fact.value, draw_other_fact(draws, fact).value])
    members[fact.field.name] = first
    members[fact.field.name + _AGAIN] = second


_NUMBERS: Final = ("count", "minutes", "price")
_LOSSES: Final[Sequence[Callable[[SeededRandom, _Object, RecordFact], None]]] = (_set_null, _leave_out, _name_twice)


def _write_as_text(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    members[fact.field.name] = str(fact.value)
    return True


def _write_as_said(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    """For example a date in words, or yes for true."""
    members[fact.field.name] = fact.words
    return True


def _change_case(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    text = str(fact.value)
    members[fact.field.name] = draws.one((text.title(), text.swapcase(), f" {text} "))
    return True


def _join_list(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    """A list as one text."""
    items = fact.value if isinstance(fact.value, list) else []
    members[fact.field.name] = ", ".join(map(str, items))
    return True


def _misplace_member(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    """Moves a part of an address out of the address."""
    inside = dict(fact.value) if isinstance(fact.value, dict) else {}
    name = draws.one([*inside])
    members[name] = inside.pop(name)
    members[fact.field.name] = inside
    return True


def _write_amounts_as_text(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    items = fact.value if isinstance(fact.value, list) else []
    members[fact.field.name] = [{**one, "amount": str(one["amount"])} for one in items if isinstance(one, dict)]
    return True


def _write_house_number_as_text(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    inside = dict(fact.value) if isinstance(fact.value, dict) else {}
    members[fact.field.name] = {**inside, "house_number": str(inside["house_number"])}
    return True


def _misname_member(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    """Writes the name in another style, such as camel case."""
    name = fact.field.name
    words = name.split("_")
    camel = words[0] + "".join(word.title() for word in words[1:])
    other = draws.one([style for style in (camel, name.upper(), name.replace("_", "-"), name.title()) if style != name])
    items = [(other if key == name else key, value) for key, value in members.items()]
    members.clear()
    members.update(items)
    return True


def _wrap_in_list(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    """Puts the value into a list, unless it is one."""
    if not isinstance(fact.value, list):
        members[fact.field.name] = [fact.value]
    return not isinstance(fact.value, list)


def _add_unknown_member(draws: SeededRandom, members: _Object, fact: RecordFact) -> bool:
    name = draws.one([*_UNKNOWN_MEMBERS])
    new = name not in members
    members[name] = _UNKNOWN_MEMBERS[name]
    return new


_Change = Callable[[SeededRandom, _Object, RecordFact], bool]
"""Whether it changed anything."""

_ANY: Final[Sequence[_Change]] = (_misname_member, _wrap_in_list, _add_unknown_member)
_SPOILED: Final[Mapping[str, Sequence[_Change]]] = {
    **{kind: (_write_as_text,) * 3 for kind in _NUMBERS},
    "flag": (_write_as_said, _write_as_said, _write_as_text),
    "choice": (_change_case,) * 3,
    "date": (_write_as_said,) * 3,
    "words": (_join_list,) * 3,
    "address": (_misplace_member, _misplace_member, _write_house_number_as_text),
    "goods": (_write_amounts_as_text,) * 3,
}


def _add_trailing_comma(draws: SeededRandom, text: str) -> str:
    lines = text.split("\n")
    last = [
        number
        for number, line in enumerate(lines[:-1])
        if line[-1] not in ",{[" and not _is_member_line(lines[number + 1])
    ]
    if last:
        lines[draws.one(last)] += ","
    return "\n".join(lines)


def _drop_comma(draws: SeededRandom, text: str) -> str:
    lines = text.split("\n")
    ends = [
        number for number, line in enumerate(lines[:-1]) if line.endswith(",") and _is_member_line(lines[number + 1])
    ]
    if ends:
        number = draws.one(ends)
        lines[number] = lines[number][:-1]
    return "\n".join(lines)


def _drop_bracket(draws: SeededRandom, text: str) -> str:
    """Drops the closing bracket of the whole, or of a list or object in it."""
    lines = text.split("\n")
    ends = [number for number, line in enumerate(lines) if line.strip().rstrip(",") in ("]", "}")]
    if ends:
        del lines[draws.one([ends[-1], draws.one(ends)])]
    return "\n".join(lines)


def _use_single_quotes(draws: SeededRandom, text: str) -> str:
    return text.replace('"', "'")


def _use_python_literals(draws: SeededRandom, text: str) -> str:
    """Python's literals instead of JSON's; if the text has none, names without quotation marks."""
    named = re.sub(r"\b(true|false|null)\b", lambda word: {"null": "None"}.get(word[0], word[0].title()), text)
    return named if named != text else _unquote_names(draws, text)


def _unquote_names(draws: SeededRandom, text: str) -> str:
    return re.sub(r"""(?m)^(\s*)["']([\w-]+)["']:""", r"\1\2:", text)


def _add_remark(draws: SeededRandom, text: str) -> str:
    lines = text.split("\n")
    lines[draws.below(len(lines))] += f"  {draws.one(_REMARKS)}"
    return "\n".join(lines)


def _add_assignment(draws: SeededRandom, text: str) -> str:
    return f"record = {text};"


_SYNTAX: Final[Sequence[Callable[[SeededRandom, str], str]]] = (
    *(_add_trailing_comma, _drop_comma, _drop_bracket, _use_single_quotes),
    *(_use_python_literals, _unquote_names, _add_remark, _add_assignment),
)


def _is_member_line(line: str) -> bool:
    return line.strip()[:1] not in ("]", "}")
