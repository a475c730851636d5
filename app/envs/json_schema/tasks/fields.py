"""The kinds of record members: their schema, their values, and the values in words."""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Final, Literal

from pydantic import JsonValue, TypeAdapter

from app.domain.digests import digest_of_model
from app.domain.values import Frozen
from app.toolkit.package_data import packaged_data
from app.toolkit.seeded import Draws

# fmt: off
Kind = Literal[
    "name", "code", "choice", "date", "time", "count", "minutes", "price", "flag",
    "words", "goods", "address", "contact", "period",
]
# fmt: on
Object = dict[str, JsonValue]


class Field(Frozen):
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


class Fact(Frozen):
    field: Field
    style: int
    form: Object
    """Its schema, which depends on field and style only."""
    value: JsonValue
    said: str
    """The value in words."""
    sentence: str


class _Words(Frozen):
    first_names: tuple[str, ...]
    last_names: tuple[str, ...]
    places: tuple[str, ...]
    streets: tuple[str, ...]
    goods: tuple[str, ...]
    months: tuple[str, ...]
    numbers: tuple[str, ...]


_WORDS: Final = packaged_data(Path(__file__).with_name("words.yaml"), TypeAdapter(_Words))
WORDS_DIGEST: Final = digest_of_model(_WORDS)
STYLES: Final = 3
_FIRST_DAY: Final = date(2024, 1, 1)
_DATES: Final = (
    ("a date as YYYY-MM-DD", "^[0-9]{4}-[0-9]{2}-[0-9]{2}$", "%Y-%m-%d"),
    ("a date as DD.MM.YYYY", "^[0-9]{2}[.][0-9]{2}[.][0-9]{4}$", "%d.%m.%Y"),
    ("a date as MM/DD/YYYY", "^[0-9]{2}/[0-9]{2}/[0-9]{4}$", "%m/%d/%Y"),
)

Told = tuple[Object, JsonValue, str]
"""Schema, value, and the value in words."""


def fact_of(draws: Draws, field: Field, style: int) -> Fact:
    """Facts of the same field and style differ only in their value."""
    form, value, said = _KINDS[field.kind](draws, field, style)
    sentence = draws.one(field.denies if value is False else field.says).replace("{value}", said)
    return Fact(field=field, style=style, form=form, value=value, said=said, sentence=sentence)


def another(draws: Draws, fact: Fact) -> Fact:
    """A fact of the same field and style with another value."""
    while (other := fact_of(draws, fact.field, fact.style)).value == fact.value:
        pass
    return other


def person(draws: Draws) -> str:
    return f"{draws.one(_WORDS.first_names)} {draws.one(_WORDS.last_names)}"


def day(draws: Draws) -> date:
    return _FIRST_DAY + timedelta(days=draws.below(1500))


def written(one: date) -> str:
    return f"{one.day} {_WORDS.months[one.month - 1]} {one.year}"


def listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def closed(properties: Mapping[str, JsonValue], required: Sequence[str] | None = None) -> Object:
    """The schema of an object with exactly these members; all are required unless `required` names some."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [*(properties if required is None else required)],
        "additionalProperties": False,
    }


def _name(draws: Draws, field: Field, style: int) -> Told:
    name = person(draws)
    return {"type": "string", "minLength": 1}, name, name


def _code(draws: Draws, field: Field, style: int) -> Told:
    code = f"{draws.one('ABCDEFGHKLMNPRSTUVWXYZ')}-{100 + draws.below(900)}"
    return {"type": "string", "pattern": "^[A-Z]-[0-9]{3}$"}, code, code


def _choice(draws: Draws, field: Field, style: int) -> Told:
    said = draws.one(field.choices)
    return {"enum": [_token(choice, style) for choice in field.choices]}, _token(said, style), said


def _token(choice: str, style: int) -> str:
    return (choice, choice.replace(" ", "_").upper(), choice.replace(" ", "_"))[style]


def _date(draws: Draws, field: Field, style: int) -> Told:
    one = day(draws)
    return _date_form(style), one.strftime(_DATES[style][2]), written(one)


def _date_form(style: int) -> Object:
    description, pattern, _ = _DATES[style]
    return {"type": "string", "description": description, "pattern": pattern}


def _time(draws: Draws, field: Field, style: int) -> Told:
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


def _count(draws: Draws, field: Field, style: int) -> Told:
    number = field.low + field.step * draws.below((field.high - field.low) // field.step + 1)
    step: Object = {"multipleOf": field.step} if field.step > 1 else {}
    said = _WORDS.numbers[number] if number < len(_WORDS.numbers) and draws.chance(50) else str(number)
    return {"type": "integer", "minimum": field.low, "maximum": field.high, **step}, number, said


def _minutes(draws: Draws, field: Field, style: int) -> Told:
    hours, quarter = draws.below(4), 1 + draws.below(3)
    said = f"{hours} hour{'s' * (hours > 1)} and {15 * quarter} minutes" if hours else f"{15 * quarter} minutes"
    form: Object = {"type": "integer", "description": "in minutes", "multipleOf": 15, "exclusiveMinimum": 0}
    return form, 60 * hours + 15 * quarter, said


def _price(draws: Draws, field: Field, style: int) -> Told:
    cents = 100 * (field.low + draws.below(field.high - field.low)) + 25 * draws.below(4)
    euros, rest = divmod(cents, 100)
    said = draws.one((f"{euros} euros and {rest} cents", f"{euros}.{rest} euros")) if rest else f"{euros} euros"
    if style == 2:
        return {"type": "integer", "description": "in cents", "minimum": 0, "multipleOf": 25}, cents, said
    return {"type": "number", "description": "in euros", "minimum": 0}, cents / 100, said


def _flag(draws: Draws, field: Field, style: int) -> Told:
    true = draws.chance(50)
    return {"type": "boolean"}, true, "yes" if true else "no"


def _words(draws: Draws, field: Field, style: int) -> Told:
    some = draws.some(field.choices, 1 + draws.below(3))
    items: Object = {"enum": [_token(choice, style) for choice in field.choices]}
    form: Object = {"type": "array", "items": items, "minItems": 1, "uniqueItems": True}
    return form, [_token(one, style) for one in some], listed(some)


def _goods(draws: Draws, field: Field, style: int) -> Told:
    some = [(name, 1 + draws.below(9)) for name in draws.some(_WORDS.goods, 1 + draws.below(3))]
    article: Object = {"type": "string", "minLength": 1}
    amount: Object = {"type": "integer", "minimum": 1}
    form: Object = {"type": "array", "items": closed({"article": article, "amount": amount}), "minItems": 1}
    value: list[JsonValue] = [{"article": name, "amount": number} for name, number in some]
    return form, value, listed([f"{number} × {name}" for name, number in some])


def _address(draws: Draws, field: Field, style: int) -> Told:
    street, house, city = draws.one(_WORDS.streets), 1 + draws.below(99), draws.one(_WORDS.places)
    code = str(10_000 + draws.below(89_999))
    text: Object = {"type": "string", "minLength": 1}
    postcode: Object = {"type": "string", "pattern": "^[0-9]{5}$"}
    number: Object = {"type": "integer", "minimum": 1}
    form = closed({"street": text, "house_number": number, "postcode": postcode, "city": text})
    value: Object = {"street": street, "house_number": house, "postcode": code, "city": city}
    return form, value, f"{house} {street}, {code} {city}"


def _contact(draws: Draws, field: Field, style: int) -> Told:
    mail: Object = {"type": "string", "pattern": "^[^@]+@[^@]+$"}
    line: Object = {"type": "string", "description": "without spaces", "pattern": "^[+][0-9]{8,14}$"}
    by_mail, by_line = closed({"by": {"const": "email"}, "to": mail}), closed({"by": {"const": "phone"}, "line": line})
    form: Object = {"anyOf": [by_line, by_mail]}
    if draws.chance(50):
        address = f"{person(draws).replace(' ', '.').lower()}@example.org"
        return form, {"by": "email", "to": address}, f"by e-mail to {address}"
    parts = [f"+{30 + draws.below(60)}", *(str(10 + draws.below(90)) for _ in range(4))]
    return form, {"by": "phone", "line": "".join(parts)}, f"by telephone on {' '.join(parts)}"


def _period(draws: Draws, field: Field, style: int) -> Told:
    shape = _DATES[style][2]
    form: Object = {
        "description": "one day, or the first and the last of several",
        "anyOf": [_date_form(style), closed({"from": _date_form(style), "until": _date_form(style)})],
    }
    first = day(draws)
    last = first + timedelta(days=1 + draws.below(40))
    if draws.chance(40):
        return form, first.strftime(shape), f"for the one day of {written(first)}"
    value: Object = {"from": first.strftime(shape), "until": last.strftime(shape)}
    return form, value, f"from {written(first)} until {written(last)}"


_KINDS: Final[Mapping[Kind, Callable[[Draws, Field, int], Told]]] = {
    "name": _name,
    "code": _code,
    "choice": _choice,
    "date": _date,
    "time": _time,
    "count": _count,
    "minutes": _minutes,
    "price": _price,
    "flag": _flag,
    "words": _words,
    "goods": _goods,
    "address": _address,
    "contact": _contact,
    "period": _period,
}
