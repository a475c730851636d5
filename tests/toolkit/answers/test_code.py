"""The program that a reply commits to: one fenced block of Python."""

import time

import pytest

from app.domain.values import Frozen
from app.toolkit.answers import MOST_CHARACTERS, extract_committed_code
from tests.support.tables import read_table


class Replies(Frozen):
    """The tables of code.yaml, which says what each holds."""

    committed: tuple[str, ...]
    none: tuple[tuple[str, tuple[str, ...]], ...]
    between: tuple[tuple[str, str], ...]
    scripts: tuple[tuple[str, str | None], ...]


REPLIES = read_table(__file__, "code.yaml", Replies)


@pytest.mark.parametrize("reply", REPLIES.committed)
def test_a_program_is_committed(reply: str) -> None:
    assert extract_committed_code(reply, "f").text == "def f(x):\n    return x\n"


@pytest.mark.parametrize(
    ("reply", "flags"),
    [
        *REPLIES.none,
        ("```python\nx = '\ud800'\n```\n", ("no_answer",)),
        (f"```python\n{'#' * MOST_CHARACTERS}\n```\n", ("unreadable_answer",)),
    ],
)
def test_none_is_committed(reply: str, flags: tuple[str, ...]) -> None:
    found = extract_committed_code(reply, "f")
    assert (found.text, found.flags) == (None, flags)


@pytest.mark.parametrize(("reply", "program"), REPLIES.between)
def test_what_stands_between_fences_is_the_program(reply: str, program: str) -> None:
    assert extract_committed_code(reply, "f").text == program


@pytest.mark.parametrize(("reply", "program"), REPLIES.scripts)
def test_input_and_output_beside_a_script_are_no_second_program(reply: str, program: str | None) -> None:
    assert extract_committed_code(reply, "main").text == program


@pytest.mark.parametrize(
    "piece",
    [
        *("`", "```", "```\n", "```python\n", "~~~\n```\n", " ", "\n", "\r\n", "<think>"),
        "```python\nf = 1\n```\n",
        "f = 1\n",
    ],
)
def test_reading_takes_linear_time(piece: str) -> None:
    seconds = []
    for length in (100_000, 400_000):
        reply = piece * (length // len(piece))
        begun = time.process_time()
        extract_committed_code(reply, "f")
        seconds.append(time.process_time() - begun)
    assert seconds[1] < 8 * seconds[0] + 0.05
