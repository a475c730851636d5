"""Every kind of instruction: replies next to its border, its wordings, and what reading them costs."""

import pytest
from pydantic import JsonValue, TypeAdapter, ValidationError

from app.domain.values import Frozen
from app.envs.instruction_following.assignments import KINDS, AnyInstruction
from app.envs.instruction_following.instructions import WORDINGS, Instruction, draw_request, parse_text
from app.toolkit.seeded import SeededRandom
from tests.support.tables import read_table
from tests.support.tiers import examples


class Case(Frozen):
    asked: dict[str, JsonValue]
    followed: tuple[str, ...]
    broken: dict[str, str]


CASES = read_table(__file__, "instructions.yaml", dict[str, tuple[Case, ...]])
ONE = TypeAdapter[Instruction](AnyInstruction)
UNITS = (
    *("a. ", "e\u0301\u0323", "*a ", "* ", "[", "(a", "x.\n\n"),
    *('"', "{", "\ufdfa", "🙂", "\ud800", "\x00", "Part 1\n"),
)
LONG = examples(100_000, fewest=1_000)


def some(kind: type[Instruction], count: int) -> list[Instruction]:
    draws = [SeededRandom(f"{kind} {number}") for number in range(count)]
    return [kind.draw(one, draw_request(one)) for one in draws]


@pytest.mark.parametrize("kind", KINDS)
def test_replies_next_to_the_border(kind: str) -> None:
    assert any(case.broken for case in CASES[kind])
    for case in CASES[kind]:
        one = ONE.validate_python({"kind": kind, **case.asked})
        found = {reply: one.find_fault(parse_text(reply)) for reply in (*case.followed, *case.broken)}
        assert found == {**dict.fromkeys(case.followed, ""), **case.broken}


@pytest.mark.parametrize("kind", KINDS)
def test_every_wording_says_all_that_is_asked(kind: str) -> None:
    one = some(KINDS[kind], 1)[0]
    slots = {name: str(value) for name, value in one.build_slots().items()}
    said = [text.format_map(one.build_slots()) for text in WORDINGS[kind]]
    assert [[name for name, value in slots.items() if value not in text] for text in said] == [[]] * len(said)
    assert {one.phrase_request(SeededRandom(str(number))) for number in range(40)} == set(said)


@pytest.mark.parametrize("kind", KINDS)
def test_an_instruction_is_read_back_as_it_was(kind: str) -> None:
    drawn = some(KINDS[kind], 20)
    assert [ONE.validate_python(ONE.dump_python(one, mode="json")) for one in drawn] == drawn


@pytest.mark.parametrize("value", [{"kind": "sonnet"}, {}, 7, {"kind": "no_commas", "count": 1}])
def test_what_is_no_instruction_is_not_read(value: object) -> None:
    with pytest.raises(ValidationError):
        ONE.validate_python(value)


@pytest.mark.deep
@pytest.mark.parametrize("kind", KINDS)
def test_no_text_is_too_long_or_too_strange(kind: str) -> None:
    (one,) = some(KINDS[kind], 1)
    assert [type(one.find_fault(parse_text(unit * LONG))) for unit in UNITS] == [str] * len(UNITS)
