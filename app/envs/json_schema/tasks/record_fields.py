"""The kinds of record members: their schema, their values, and the values in words."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue, TypeAdapter

from app.domain.digests import digest_of_model
from app.domain.values import Frozen
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom

# fmt: off
Kind = Literal[
    "name", "code", "choice", "date", "time", "count", "minutes", "price", "flag",
    "words", "goods", "address", "contact", "period",
]
# fmt: on
Object = dict[str, JsonValue]


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
    form: Object
    """Its schema, which depends on field and style only."""
    value: JsonValue
    said: str
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
WORDS_DIGEST: Final = digest_of_model(_WORDS)
STYLES: Final = 3
_FIRST_DAY: Final = date(2024, 1, 1)
_DATES: Final = (
    ("a date as YYYY-MM-DD", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "%Y-%m-%d"),
    ("a date as DD.MM.YYYY", "^[0-9]{2}[.][0-9]{2}[.][0-9]{4}$", "%d.%m.%Y"),
    ("a date as MM/DD/YYYY", "^[0-9]{2}/[0-9]{2}/[0-9]{4}$", "%m/%d/%Y"),
)

DrawnValue = tuple[Object, JsonValue, str]
"""Schema, value, and the value in words."""


def draw_fact(draws: SeededRandom, field: RecordField, style: int) -> RecordFact:
    """Facts of the same field and style differ only in their value."""
    form, value, said = _KINDS[field.kind](draws, field, style)
    sentence = draws.one(field.denies if value is False else field.says).replace("{value}", said)
    return RecordFact(field=field, style=style, form=form, value=value, said=said, sentence=sentence)


def draw_other_fact(draws: SeededRandom, fact: RecordFact) -> RecordFact:
    """A fact of the same field and style with another value."""
    while (other := draw_fact(draws, fact.field, fact.style)).value == fact.value:
        pass
    return other


def draw_person(draws: SeededRandom) -> str:
    return f"{draws.one(_WORDS.first_names)} {draws.one(_WORDS.last_names)}"


def draw_day(draws: SeededRandom) -> date:
    return _FIRST_DAY + timedelta(days=draws.below(1500))


def write_date(one: date) -> str:
    return f"{one.day} {_WORDS.months[one.month - 1]} {one.year}"


def join_words(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def build_object_schema(properties: Mapping[str, JsonValue], required: Sequence[str] | None = None) -> Object:
    """The schema of an object with exactly these members; all are required unless `required` names some."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*(properties if required is None else required)],
        "additionalProperties": False,
    }


def _draw_name(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    name = draw_person(draws)
    return {"type": "string", "minLength": 1}, name, name


def _draw_code(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    code = f"{draws.one('ABCDEFGHKLMNPRSTUVWXYZ')}-{100 + draws.below(900)}"
    return {"type": "string", "pattern": "^[A-Z]-[0-9]{3}$"}, code, code


def _draw_choice(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    said = draws.one(field.choices)
    return {"enum": [_make_token(choice, style) for choice in field.choices]}, _make_token(said, style), said


def _make_token(choice: str, style: int) -> str:
    return (choice, choice.replace(" ", "_").upper(), choice.replace(" ", "_"))[style]


def _draw_date(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    one = draw_day(draws)
    return _build_date_schema(style), one.strftime(_DATES[style][2]), write_date(one)


def _build_date_schema(style: int) -> Object:
    description, pattern, _ = _DATES[style]
    return {"type": "string", "description": description, "pattern": pattern}


def _draw_time(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    hour, quarter = draws.one([*range(6, 12), *range(13, 22)]), draws.below(4)
    of_day = "morning" if hour < 12 else "afternoon" if hour < 18 else "evening"
    to_name = _WORDS.numbers[(hour + (quarter == 3) - 1) % 12 + 1]
    phrase = ("{} o'clock", "a quarter past {}", "half past {}", "a quarter to {}")[quarter].format(to_name)
    said = draws.one((f"{phrase} in the {of_day}", f"{(hour - 1) % 12 + 1}:{15 * quarter:02} in the {of_day}"))
    if style == 2:
        form: Object = {"type": "string", "description": "HHMM, 24 hours", "pattern": "^[0-2][0-9][0-5][0-9]$"}
        return form, f"{hour:02}{15 * quarter:02}", said
    form = {"type": "string", "description": "HH:MM, 24 hours", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}
    return form, f"{hour:02}:{15 * quarter:02}", said


def _draw_count(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    number = field.low + field.step * draws.below((field.high - field.low) // field.step + 1)
    step: Object = {"multipleOf": field.step} if field.step > 1 else {}
    said = _WORDS.numbers[number] if number < len(_WORDS.numbers) and draws.chance(50) else str(number)
    return {"type": "integer", "minimum": field.low, "maximum": field.high, **step}, number, said


def _draw_minutes(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    hours, quarter = draws.below(4), 1 + draws.below(3)
    said = f"{hours} hour{'s' * (hours > 1)} and {15 * quarter} minutes" if hours else f"{15 * quarter} minutes"
    form: Object = {"type": "integer", "description": "in minutes", "multipleOf": 15, "exclusiveMinimum": 0}
    return form, 60 * hours + 15 * quarter, said


def _draw_price(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    cents = 100 * (field.low + draws.below(field.high - field.low)) + 25 * draws.below(4)
    euros, rest = divmod(cents, 100)
    said = draws.one((f"{euros} euros and {rest} cents", f"{euros}.{rest} euros")) if rest else f"{euros} euros"
    if style == 2:
        return {"type": "integer", "description": "in cents", "minimum": 0, "multipleOf": 25}, cents, said
    return {"type": "number", "description": "in euros", "minimum": 0}, cents / 100, said


def _draw_flag(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    true = draws.chance(50)
    return {"type": "boolean"}, true, "yes" if true else "no"


def _draw_words(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    some = draws.some(field.choices, 1 + draws.below(3))
    items: Object = {"enum": [_make_token(choice, style) for choice in field.choices]}
    form: Object = {"type": "array", "items": items, "minItems": 1, "uniqueItems": True}
    return form, [_make_token(one, style) for one in some], join_words(some)


def _draw_goods(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    some = [(name, 1 + draws.below(9)) for name in draws.some(_WORDS.goods, 1 + draws.below(3))]
    article: Object = {"type": "string", "minLength": 1}
    amount: Object = {"type": "integer", "minimum": 1}
    form: Object = {
        "type": "array",
        "items": build_object_schema({"article": article, "amount": amount}),
        "minItems": 1,
    }
    value: list[JsonValue] = [{"article": name, "amount": number} for name, number in some]
    return form, value, join_words([f"{number} × {name}" for name, number in some])


def _draw_address(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    street, house, city = draws.one(_WORDS.streets), 1 + draws.below(99), draws.one(_WORDS.places)
    code = str(10_000 + draws.below(89_999))
    text: Object = {"type": "string", "minLength": 1}
    postcode: Object = {"type": "string", "pattern": "^[0-9]{5}$"}
    number: Object = {"type": "integer", "minimum": 1}
    form = build_object_schema({"street": text, "house_number": number, "postcode": postcode, "city": text})
    value: Object = {"street": street, "house_number": house, "postcode": code, "city": city}
    return form, value, f"{house} {street}, {code} {city}"


def _draw_contact(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    mail: Object = {"type": "string", "pattern": "^[^@]+@[^@]+$"}
    line: Object = {"type": "string", "description": "without spaces", "pattern": "^[+][0-9]{8,14}$"}
    by_mail, by_line = (
        build_object_schema({"by": {"const": "email"}, "to": mail}),
        build_object_schema({"by": {"const": "phone"}, "line": line}),
    )
    form: Object = {"anyOf": [by_line, by_mail]}
    if draws.chance(50):
        address = f"{draw_person(draws).replace(' ', '.').lower()}@example.org"
        return form, {"by": "email", "to": address}, f"by e-mail to {address}"
    parts = [f"+{30 + draws.below(60)}", *(str(10 + draws.below(90)) for _ in range(4))]
    return form, {"by": "phone", "line": "".join(parts)}, f"by telephone on {' '.join(parts)}"


def _draw_period(draws: SeededRandom, field: RecordField, style: int) -> DrawnValue:
    shape = _DATES[style][2]
    form: Object = {
        "description": "one day, or the first and the last of several",
        "anyOf": [
            _build_date_schema(style),
            build_object_schema({"from": _build_date_schema(style), "until": _build_date_schema(style)}),
        ],
    }
    first = draw_day(draws)
    last = first + timedelta(days=1 + draws.below(40))
    if draws.chance(40):
        return form, first.strftime(shape), f"for the one day of {write_date(first)}"
    value: Object = {"from": first.strftime(shape), "until": last.strftime(shape)}
    return form, value, f"from {write_date(first)} until {write_date(last)}"


_KINDS: Final[Mapping[Kind, Callable[[SeededRandom, RecordField, int], DrawnValue]]] = {
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
