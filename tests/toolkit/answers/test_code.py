"""The program that a reply commits to: one fenced block of Python."""

import time

import pytest

from app.toolkit.answers import MOST_CHARACTERS, extract_committed_code

F = "def f(x):\n    return x\n"
G = "def f(x):\n    return x + 1\n"
USE = "print(f(3))\n"


def fenced(source: str, info: str = "python", marks: str = "```") -> str:
    return f"{marks}{info}\n{source}{marks}\n"


@pytest.mark.parametrize(
    "reply",
    [
        fenced(F),
        f"Here it is:\n\n{fenced(F)}\nIt returns what it is given.",
        *(fenced(F, "py"), fenced(F, "Python3"), fenced(F, "{.python}"), fenced(F, "python title=answer.py")),
        *(fenced(F, ""), fenced(F, "python", "~~~"), fenced(F, "python", "`````"), fenced(F).replace("\n", "\r\n")),
        *("   ```python\n   def f(x):\n       return x\n   ```", fenced(F).rstrip("\n"), fenced(F) + fenced(F)),
        fenced(F) + fenced(USE),
        fenced(USE) + fenced(F),
        fenced(G, "text") + fenced(F) + fenced("$ python f.py\n", "bash"),
        fenced(F) + "```python\ndef f(x):",
        f"<think>{fenced(G)}</think>{fenced(F)}",
    ],
)
def test_a_program_is_committed(reply: str) -> None:
    assert extract_committed_code(reply, "f").text == F


@pytest.mark.parametrize(
    ("reply", "flags"),
    [
        ("", ("no_answer",)),
        (F, ("no_answer",)),
        ("```python\n```", ("no_answer",)),
        (f"```python\n{F}", ("no_answer",)),
        (f"```python\n{F}~~~", ("no_answer",)),
        (f"````python\n{F}```", ("no_answer",)),
        ("```python def f(x): return x```", ("no_answer",)),
        (f"    {fenced(F)}", ("no_answer",)),
        (fenced(F, "javascript"), ("no_answer",)),
        (fenced(USE) + fenced("1 + 1\n"), ("no_answer",)),
        (fenced("x = '\ud800'\n"), ("no_answer",)),
        (fenced(F) + fenced(G), ("conflicting_answers",)),
        (fenced(F) + fenced("f = lambda x: x\n"), ("conflicting_answers",)),
        (fenced(F) + fenced("async def f(x): ...\n"), ("conflicting_answers",)),
        (fenced("#" * MOST_CHARACTERS + "\n"), ("unreadable_answer",)),
        (f"<think>{fenced(F)}", ("no_answer", "unfinished_thinking")),
        (f"<think>{fenced(F)}</think>", ("no_answer",)),
    ],
)
def test_none_is_committed(reply: str, flags: tuple[str, ...]) -> None:
    found = extract_committed_code(reply, "f")
    assert (found.text, found.flags) == (None, flags)


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        (fenced("```\ninside\n```\n", "python", "````"), "```\ninside\n```\n"),
        (fenced("~~~\n", "python"), "~~~\n"),
        (fenced('"""\n``\n"""\n'), '"""\n``\n"""\n'),
        (fenced("x = 1\n"), "x = 1\n"),
        (fenced("def g(): ...\n") + fenced("f: object = 1\n"), "f: object = 1\n"),
        (fenced("def ff(): ...\n") + fenced("class f: ...\n"), "class f: ...\n"),
    ],
)
def test_what_stands_between_fences_is_the_program(reply: str, program: str) -> None:
    assert extract_committed_code(reply, "f").text == program


SCRIPT = "total = 0\nfor line in open(0):\n    total += int(line)\nprint(total)\n"


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        (fenced(SCRIPT) + "For\n\n" + fenced("4 5\n1\n", "") + "it writes\n\n" + fenced("10\n", ""), SCRIPT),
        (fenced("7 8\n", "") + fenced(SCRIPT), SCRIPT),
        (fenced(SCRIPT, "") + fenced("YES\nNO\n", ""), SCRIPT),
        (fenced(SCRIPT) + fenced("# 4 5 gives 9\n\n# and 1 gives 1\n"), SCRIPT),
        (fenced(SCRIPT) + fenced("3 -> 4\n...\n", ""), SCRIPT),
        (fenced(SCRIPT) + fenced("print(4)\n", ""), None),  # two programs
        (fenced(SCRIPT) + fenced("n = 4\nprint(n)\n"), None),
        (fenced("4 5\n", "") + fenced("9\n", ""), None),
    ],
)
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
