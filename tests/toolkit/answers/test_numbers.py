"""What counts as a committed number, row by row, and what no input can do to the reader."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.scores import Criterion, Score
from app.domain.values import Frozen
from app.toolkit.answers import NumberAnswer, Place, grade_number, parse_number, read_number
from tests.support.tables import read_table, unfold
from tests.support.tiers import examples


class Rows(Frozen):
    """The tables of numbers.yaml, which says what becomes of each."""

    places: tuple[str, ...]
    written: tuple[str, ...]
    values: tuple[tuple[str, Fraction], ...]
    no_number: tuple[str, ...]
    thinking: tuple[str, ...]
    nothing: tuple[str, ...]
    conflict: tuple[str, ...]
    unreadable: dict[Place, tuple[str, ...]]
    unfinished: tuple[str, ...]
    scores: tuple[tuple[str, bool, tuple[str, ...], str], ...]


ROWS = read_table(__file__, "numbers.yaml", Rows)
TOO_LONG = ("9" * 41, "9" * 5000, f"72{' ' * 300}clips")

NOTHING = NumberAnswer(None, None, ("no_answer",))
UNFINISHED = NumberAnswer(None, None, ("no_answer", "unfinished_thinking"))
CONFLICT = NumberAnswer(None, "box", ("conflicting_boxes",))


OTHERWISE = [
    *((reply, NOTHING) for reply in ROWS.nothing),
    *((reply, CONFLICT) for reply in ROWS.conflict),
    *((reply, NumberAnswer(None, place, ("unreadable_answer",))) for reply, place in unfold(ROWS.unreadable)),
    ("#### -72", NumberAnswer(Fraction(-72), "marker")),
    ("#### - 72", NumberAnswer(Fraction(-72), "marker")),
    ("The answer is \u221272.", NumberAnswer(Fraction(-72), "sentence")),
    ("The answer \u2013 after all \u2013 is here: answer: \u201372", NumberAnswer(Fraction(-72), "sentence")),
    ("\ud800 #### 72", NumberAnswer(Fraction(72), "marker")),
    ("\x00#### 72", NumberAnswer(Fraction(72), "marker")),
]


@pytest.mark.parametrize("reply", ROWS.places)
def test_commitments_are_found(reply: str) -> None:
    assert read_number(reply).value == 72


@pytest.mark.parametrize("phrase", ROWS.written)
def test_72_is_read_however_it_is_written(phrase: str) -> None:
    assert [read_number(f"\\boxed{{{phrase}}}"), read_number(f"so\n#### {phrase}\n")] == [
        NumberAnswer(parse_number(phrase), "box"),
        NumberAnswer(Fraction(72), "marker"),
    ]


@pytest.mark.parametrize(("phrase", "value"), ROWS.values)
def test_values_are_exact(phrase: str, value: Fraction) -> None:
    assert (parse_number(phrase), read_number(f"\\boxed{{{phrase}}}").value) == (value, value)


@pytest.mark.parametrize("phrase", [*ROWS.no_number, *TOO_LONG])
def test_anything_else_is_no_number(phrase: str) -> None:
    replies = (f"\\boxed{{{phrase}}}", f"#### {phrase}", f"The answer is {phrase}")
    assert [parse_number(phrase), *(read_number(reply).value for reply in replies)] == [None] * 4


def test_an_exclamation_mark_ends_a_sentence_but_is_a_factorial_in_a_box() -> None:
    assert [read_number(reply).value for reply in ("#### 5!", "The answer is 5!", r"\boxed{5!}")] == [5, 5, None]


@pytest.mark.parametrize(("reply", "reading"), OTHERWISE)
def test_what_is_read_and_where(reply: str, reading: NumberAnswer) -> None:
    assert read_number(reply) == reading


ENDS = [
    *("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|end|>", "<|return|>"),
    *("</s>", "<eos>", "<end_of_turn>", "[EOS]", "<pad>", "[PAD]", "<\uff5cend\u2581of\u2581sentence\uff5c>"),
]


@pytest.mark.parametrize("reply", ROWS.thinking)
def test_thinking_is_not_an_answer(reply: str) -> None:
    assert read_number(reply).value == 72


@pytest.mark.parametrize("reply", ROWS.unfinished)
def test_thinking_that_never_ends_commits_to_nothing(reply: str) -> None:
    assert read_number(reply) == UNFINISHED


@pytest.mark.parametrize("reply", ["<think>\\boxed{72}</think>", "#### 72</think>", "<think>#### 72</think>\nDone."])
def test_an_answer_inside_thinking_earns_nothing(reply: str) -> None:
    assert read_number(reply) == NOTHING


@pytest.mark.parametrize("token", ENDS)
@pytest.mark.parametrize("answer", ["#### 72", "\\boxed{72}", "The answer is 72", "The answer is 72."])
def test_the_reply_ends_where_the_turn_ends(answer: str, token: str) -> None:
    replies = (f"{answer}{token}", f"{answer} {token}\n", f"{answer}{token}\nNext question\n\\boxed{{5}} #### 5{token}")
    assert [read_number(reply).value for reply in replies] == [72, 72, 72]


@pytest.mark.parametrize(("reply", "correct", "flags", "rationale"), ROWS.scores)
def test_the_score_says_what_was_read(reply: str, correct: bool, flags: tuple[str, ...], rationale: str) -> None:
    value = 1.0 if correct else 0.0
    assert grade_number(reply, Fraction(72)) == Score(
        outcome="scored",
        reward=value,
        gate=1.0,
        absolute=value,
        criteria=(Criterion(name="correct", value=value, weight=1.0),),
        flags=flags,
        rationale=rationale,
    )


@given(st.integers(-(10**37), 10**37))
def test_every_integer_is_read_back(value: int) -> None:
    written = (
        *(f"{value}", f"{value:,}", f"{value}.00", f"{value}/1", f"{value:,} clips"),
        f"{value:,}".replace(",", "{,}"),
    )
    assert {parse_number(phrase) for phrase in written} == {Fraction(value)}


@given(st.fractions(max_denominator=10**12).filter(lambda value: abs(value) < 10**12))
def test_every_fraction_is_read_back(value: Fraction) -> None:
    above, below = value.as_integer_ratio()
    written = (f"{above}/{below}", f"\\frac{{{above}}}{{{below}}}", f"\\dfrac{{{above}}}{{{below}}}")
    assert {read_number(f"\\boxed{{{phrase}}}").value for phrase in written} == {value}


@given(st.integers(-(10**9), 10**9), st.integers(-(10**9), 10**9))
def test_only_the_gold_is_paid(said: int, gold: int) -> None:
    replies = (f"#### {said}", f"\\boxed{{{said:,}}}", f"The answer is {said}.")
    assert {grade_number(reply, Fraction(gold)).reward for reply in replies} == {1.0 if said == gold else 0.0}


@given(
    st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from([", ", " or ", "-", " to ", "; ", " ", " + ", ":"])
)
def test_two_numbers_are_never_one(first: int, second: int, between: str) -> None:
    assert parse_number(f"{first}{between}{second}") is None


PIECES = (
    r"\boxed{ \boxed { } { \{ \} #### # answer is answer: <think> </think> <|im_end|> \frac{ }{ 72 7 , . / - * ** $ ^",
    r"\, {,} \text{ \left ( ) ~ x = e 10^ or − ７ ٧ ½ ¬ 🎉",
)
HOSTILE = st.lists(st.sampled_from([*" ".join(PIECES).split(" "), " ", "\n", "\ud800", "\x00", "\u2009"]), max_size=60)


@given(HOSTILE)
def test_no_reply_raises(tokens: list[str]) -> None:
    reading = read_number("".join(tokens))
    assert (reading.value is None) == bool(reading.flags)


SIGNS = "½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"


@given(st.text(max_size=300))
def test_no_text_raises(text: str) -> None:
    assert parse_number(text) is None or any(character.isdecimal() or character in SIGNS for character in text)


@pytest.mark.parametrize("lead", ["#### ", "####\n", "#### **", "The answer is ", "The answer is:\n", "\\boxed{"])
@pytest.mark.parametrize("filler", [" ", "\n", "*", "_", "x = ", "("])
def test_no_number_is_read_from_its_first_digits(lead: str, filler: str) -> None:
    ends = [f"{lead}{filler * (length // len(filler))}72345 clips}}" for length in range(150, 450, 3)]
    assert {read_number(f"{end}{'.' * 500}").value for end in ends} <= {None, Fraction(72345)}


MARKS = [
    *(chr(code) for code in range(0x20, 0x7F)),
    *("\t", "\n", "\u2009", "\u00a0", "\u2013", "\u0301", "½", "７", "…", "\ud800"),
    *("\\left(", "\\quad ", "\\,", "\\text{", "\\frac{1}{", "{,}", "\\!", "\\[", "1,"),
]


@pytest.mark.slow
def test_no_run_of_marks_holds_the_reader_up() -> None:
    """180 marks of any kind, wherever a number may stand. A hundred brackets took 40 seconds once."""
    leads = ("#### ", "The answer is ", "\\boxed{", "#### 7", "#### x = ")

    def read_all(length: int) -> float:
        began = time.process_time()
        for mark in MARKS:
            for lead in leads:
                read_number(f"{lead}{(mark * length)[:length]}x7 }}")
        return time.process_time() - began

    short, long = min(read_all(20) for _ in range(3)), read_all(180)
    assert long < 100 * short


MUCH = examples(1_000_000, fewest=20_000)


@pytest.mark.deep
@pytest.mark.parametrize(
    "piece",
    [
        *("\\boxed{", "\\boxed{}", "\\boxed{72}", "\\boxed{a}", "{", "}", "{}", "####", "#### ", "####\n"),
        *("#### Step 1: a\n", "####\n\n\n", "the answer is ", "answer", "answer    ", "<think>", "</think>"),
        *("<think></think>", "<|im_end|>", "<|", "\\", " ", "\n", "7", "7,", "7 ", "*", "\\frac{", "a", "\ud800"),
    ],
)
def test_any_amount_of_anything_is_read(piece: str) -> None:
    filler = piece * (MUCH // len(piece))
    readings = [read_number(filler), read_number(f"{filler}\n#### 71"), read_number(f"\\boxed{{{filler}}}")]
    assert all((reading.value is None) == bool(reading.flags) for reading in readings)
