"""Broken JSON of a record that can be repaired in only one way."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.json_schema.tasks.fields import Fact, Object, another
from app.envs.json_schema.tasks.records import Level, Record
from app.toolkit.seeded import Draws

_AGAIN: Final = "\x00"
"""Marks the second of two members with the same name, until the JSON is written."""

_STRANGERS: Final[Mapping[str, JsonValue]] = {"checked_by": "desk 3", "version": 2, "remarks": "", "source": "form"}
_REMARKS: Final = ("// to be checked", "// as told", "/* entered by hand */", "# see the form")


class Broken(Frozen):
    text: str
    known: tuple[str, ...]
    """Sentences with the facts that the text has lost, and others."""


class _Plan(Frozen):
    syntax: int
    values: int
    lost: int
    """Members whose value is no longer in the text."""


_PLANS: Final[Mapping[Level, tuple[_Plan, ...]]] = {
    "easy": (_Plan(syntax=1, values=0, lost=0), _Plan(syntax=0, values=1, lost=0), _Plan(syntax=1, values=1, lost=0)),
    "medium": (_Plan(syntax=2, values=2, lost=0), _Plan(syntax=1, values=1, lost=1)),
    "hard": (_Plan(syntax=3, values=2, lost=1), _Plan(syntax=2, values=2, lost=2)),
}


def broken(draws: Draws, made: Record, level: Level) -> Broken:
    plan, members = draws.one(_PLANS[level]), dict(made.value)
    facts = draws.shuffled(made.facts)
    lost, rest = facts[: plan.lost], facts[plan.lost :]
    for fact in lost:
        draws.one(_LOSSES)(draws, members, fact)
    todo = plan.values
    for fact in rest:
        if todo:
            todo -= draws.one([*_SPOILED.get(fact.field.kind, ()), *_ANY])(draws, members, fact)
    text = json.dumps(members, indent=draws.one((1, 2, 4)), ensure_ascii=False).replace(json.dumps(_AGAIN)[1:-1], "")
    for change_text in draws.some(_SYNTAX, plan.syntax):
        text = change_text(draws, text)
    known = [*lost, *(rest[:1] if lost else ())]
    return Broken(text=text, known=tuple(fact.sentence for fact in draws.shuffled(known)))


def _null(draws: Draws, members: Object, fact: Fact) -> None:
    members[fact.field.name] = draws.one((None, float("nan"), "?")) if fact.field.kind in _NUMBERS else None


def _left_out(draws: Draws, members: Object, fact: Fact) -> None:
    del members[fact.field.name]


def _twice(draws: Draws, members: Object, fact: Fact) -> None:
    """Writes the member twice with two values; only the known facts tell which is right."""
    first, second = draws.shuffled([fact.value, another(draws, fact).value])
    members[fact.field.name] = first
    members[fact.field.name + _AGAIN] = second


_NUMBERS: Final = ("count", "minutes", "price")
_LOSSES: Final[Sequence[Callable[[Draws, Object, Fact], None]]] = (_null, _left_out, _twice)


def _as_text(draws: Draws, members: Object, fact: Fact) -> bool:
    members[fact.field.name] = str(fact.value)
    return True


def _as_said(draws: Draws, members: Object, fact: Fact) -> bool:
    """For example a date in words, or yes for true."""
    members[fact.field.name] = fact.said
    return True


def _in_another_case(draws: Draws, members: Object, fact: Fact) -> bool:
    text = str(fact.value)
    members[fact.field.name] = draws.one((text.title(), text.swapcase(), f" {text} "))
    return True


def _joined(draws: Draws, members: Object, fact: Fact) -> bool:
    """A list as one text."""
    items = fact.value if isinstance(fact.value, list) else []
    members[fact.field.name] = ", ".join(map(str, items))
    return True


def _misplaced(draws: Draws, members: Object, fact: Fact) -> bool:
    """Moves a part of an address out of the address."""
    inside = dict(fact.value) if isinstance(fact.value, dict) else {}
    name = draws.one([*inside])
    members[name] = inside.pop(name)
    members[fact.field.name] = inside
    return True


def _amounts_as_text(draws: Draws, members: Object, fact: Fact) -> bool:
    items = fact.value if isinstance(fact.value, list) else []
    members[fact.field.name] = [{**one, "amount": str(one["amount"])} for one in items if isinstance(one, dict)]
    return True


def _house_number_as_text(draws: Draws, members: Object, fact: Fact) -> bool:
    inside = dict(fact.value) if isinstance(fact.value, dict) else {}
    members[fact.field.name] = {**inside, "house_number": str(inside["house_number"])}
    return True


def _misnamed(draws: Draws, members: Object, fact: Fact) -> bool:
    """Writes the name in another style, such as camel case."""
    name = fact.field.name
    words = name.split("_")
    camel = words[0] + "".join(word.title() for word in words[1:])
    other = draws.one([said for said in (camel, name.upper(), name.replace("_", "-"), name.title()) if said != name])
    items = [(other if key == name else key, value) for key, value in members.items()]
    members.clear()
    members.update(items)
    return True


def _wrapped(draws: Draws, members: Object, fact: Fact) -> bool:
    """Puts the value into a list, unless it is one."""
    if not isinstance(fact.value, list):
        members[fact.field.name] = [fact.value]
    return not isinstance(fact.value, list)


def _with_stranger(draws: Draws, members: Object, fact: Fact) -> bool:
    name = draws.one([*_STRANGERS])
    new = name not in members
    members[name] = _STRANGERS[name]
    return new


Change = Callable[[Draws, Object, Fact], bool]
"""Whether it changed anything."""

_ANY: Final[Sequence[Change]] = (_misnamed, _wrapped, _with_stranger)
_SPOILED: Final[Mapping[str, Sequence[Change]]] = {
    **{kind: (_as_text,) * 3 for kind in _NUMBERS},
    "flag": (_as_said, _as_said, _as_text),
    "choice": (_in_another_case,) * 3,
    "date": (_as_said,) * 3,
    "words": (_joined,) * 3,
    "address": (_misplaced, _misplaced, _house_number_as_text),
    "goods": (_amounts_as_text,) * 3,
}


def _trailing_comma(draws: Draws, text: str) -> str:
    lines = text.split("\n")
    last = [
        number for number, line in enumerate(lines[:-1]) if line[-1] not in ",{[" and not _inside(lines[number + 1])
    ]
    if last:
        lines[draws.one(last)] += ","
    return "\n".join(lines)


def _missing_comma(draws: Draws, text: str) -> str:
    lines = text.split("\n")
    ends = [number for number, line in enumerate(lines[:-1]) if line.endswith(",") and _inside(lines[number + 1])]
    if ends:
        number = draws.one(ends)
        lines[number] = lines[number][:-1]
    return "\n".join(lines)


def _missing_bracket(draws: Draws, text: str) -> str:
    """Drops the closing bracket of the whole, or of a list or object in it."""
    lines = text.split("\n")
    ends = [number for number, line in enumerate(lines) if line.strip().rstrip(",") in ("]", "}")]
    if ends:
        del lines[draws.one([ends[-1], draws.one(ends)])]
    return "\n".join(lines)


def _single_quotes(draws: Draws, text: str) -> str:
    return text.replace('"', "'")


def _other_names(draws: Draws, text: str) -> str:
    """Python's literals instead of JSON's; if the text has none, names without quotation marks."""
    named = re.sub(r"\b(true|false|null)\b", lambda word: {"null": "None"}.get(word[0], word[0].title()), text)
    return named if named != text else _bare_names(draws, text)


def _bare_names(draws: Draws, text: str) -> str:
    return re.sub(r"""(?m)^(\s*)["']([\w-]+)["']:""", r"\1\2:", text)


def _remark(draws: Draws, text: str) -> str:
    lines = text.split("\n")
    lines[draws.below(len(lines))] += f"  {draws.one(_REMARKS)}"
    return "\n".join(lines)


def _equals_sign(draws: Draws, text: str) -> str:
    return f"record = {text};"


_SYNTAX: Final[Sequence[Callable[[Draws, str], str]]] = (
    *(_trailing_comma, _missing_comma, _missing_bracket, _single_quotes),
    *(_other_names, _bare_names, _remark, _equals_sign),
)


def _inside(line: str) -> bool:
    return line.strip()[:1] not in ("]", "}")
