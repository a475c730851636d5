"""Broken JSON of a record that can be repaired in only one way."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.json_schema.tasks.generated_records import GeneratedRecord, Level
from app.envs.json_schema.tasks.record_fields import Object, RecordFact, draw_other_fact
from app.toolkit.seeded import SeededRandom

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
    return BrokenRecord(text=text, known=tuple(fact.sentence for fact in draws.shuffled(known)))


def _set_null(draws: SeededRandom, members: Object, fact: RecordFact) -> None:
    members[fact.field.name] = draws.one((None, float("nan"), "?")) if fact.field.kind in _NUMBERS else None


def _leave_out(draws: SeededRandom, members: Object, fact: RecordFact) -> None:
    del members[fact.field.name]


def _name_twice(draws: SeededRandom, members: Object, fact: RecordFact) -> None:
    """Writes the member twice with two values; only the known facts tell which is right."""
    first, second = draws.shuffled([fact.value, draw_other_fact(draws, fact).value])
    members[fact.field.name] = first
    members[fact.field.name + _AGAIN] = second


_NUMBERS: Final = ("count", "minutes", "price")
_LOSSES: Final[Sequence[Callable[[SeededRandom, Object, RecordFact], None]]] = (_set_null, _leave_out, _name_twice)


def _write_as_text(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    members[fact.field.name] = str(fact.value)
    return True


def _write_as_said(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    """For example a date in words, or yes for true."""
    members[fact.field.name] = fact.said
    return True


def _change_case(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    text = str(fact.value)
    members[fact.field.name] = draws.one((text.title(), text.swapcase(), f" {text} "))
    return True


def _join_list(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    """A list as one text."""
    items = fact.value if isinstance(fact.value, list) else []
    members[fact.field.name] = ", ".join(map(str, items))
    return True


def _misplace_member(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    """Moves a part of an address out of the address."""
    inside = dict(fact.value) if isinstance(fact.value, dict) else {}
    name = draws.one([*inside])
    members[name] = inside.pop(name)
    members[fact.field.name] = inside
    return True


def _write_amounts_as_text(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    items = fact.value if isinstance(fact.value, list) else []
    members[fact.field.name] = [{**one, "amount": str(one["amount"])} for one in items if isinstance(one, dict)]
    return True


def _write_house_number_as_text(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    inside = dict(fact.value) if isinstance(fact.value, dict) else {}
    members[fact.field.name] = {**inside, "house_number": str(inside["house_number"])}
    return True


def _misname_member(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    """Writes the name in another style, such as camel case."""
    name = fact.field.name
    words = name.split("_")
    camel = words[0] + "".join(word.title() for word in words[1:])
    other = draws.one([said for said in (camel, name.upper(), name.replace("_", "-"), name.title()) if said != name])
    items = [(other if key == name else key, value) for key, value in members.items()]
    members.clear()
    members.update(items)
    return True


def _wrap_in_list(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    """Puts the value into a list, unless it is one."""
    if not isinstance(fact.value, list):
        members[fact.field.name] = [fact.value]
    return not isinstance(fact.value, list)


def _add_unknown_member(draws: SeededRandom, members: Object, fact: RecordFact) -> bool:
    name = draws.one([*_UNKNOWN_MEMBERS])
    new = name not in members
    members[name] = _UNKNOWN_MEMBERS[name]
    return new


Change = Callable[[SeededRandom, Object, RecordFact], bool]
"""Whether it changed anything."""

_ANY: Final[Sequence[Change]] = (_misname_member, _wrap_in_list, _add_unknown_member)
_SPOILED: Final[Mapping[str, Sequence[Change]]] = {
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
