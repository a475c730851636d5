"""What is no text of one's own about what was asked earns nothing, whatever was asked besides."""

import pytest

from app.envs.instruction_following.instructions import WritingRequest, parse_text
from app.envs.instruction_following.texts import find_prose_fault
from tests.support.tables import read_table

TABLE = read_table(__file__, "substance.yaml", tuple[tuple[str, str], ...])

REQUEST = WritingRequest(form="Write a story about", thing="violin", place="harbour", reader="", least=30)
PROMPT = f"{REQUEST.sentence} Write at least 30 words. Both words must occur, and no sentence may be said twice."
TEXT = (
    "An old violin lay in the harbour for years. Nobody knew who had left it there. On windy nights it sang by itself, "
    "and the sailors took off their caps. One morning a girl carried it home."
)
PIECES = ("An old violin lay in the harbour.", "Nobody knew why.")


def said(text: str) -> str:
    return find_prose_fault(parse_text(text), REQUEST, PROMPT)


@pytest.mark.parametrize(
    "text",
    [
        *(TEXT, TEXT.upper(), TEXT.replace(". ", ".\n- "), f"{PROMPT}\n\n{TEXT}"),
        f'{{"title": "The violin", "text": "{TEXT}"}}',
        TEXT.replace("girl", "naïve girl of 9"),
        TEXT.replace("girl", "girl whom they called Kylmari, who wasn't from Zhoravel,").replace("sailors", "Oskelds"),
        f"{TEXT} That was all. That was all.".replace("That was all", "So be"),
    ],
)
def test_a_text_is_one(text: str) -> None:
    assert said(text) == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        *TABLE,
        (" ".join(PIECES), "10 words of its own where at least 30 were asked"),
        (PROMPT, "0 words of its own where at least 30 were asked"),
        (f"{PROMPT} {PIECES[0]}", "7 words of its own where at least 30 were asked"),
        (" ".join(sorted(PROMPT.split())) + " in of a violin harbour" * 5, "only 1 word that the prompt does not have"),
        (TEXT.replace("violin", "fiddle"), "it does not mention violin"),
        (TEXT.replace("violin", "violins").replace("harbour", "port"), "it does not mention harbour and violin"),
        ("violin harbour " * 30, "only 0 words that the prompt does not have"),
        ("The violin is in the harbour now so go there soon and look. " * 6, "it says the same words over and over"),
        (f"{TEXT} {PIECES[0]} {PIECES[1]} {PIECES[0]}", "it says a sentence twice"),
        (" ".join(TEXT.replace(".", ",").split() * 2), "it is not divided into sentences"),
        (TEXT.replace("violin", "vi\u043elin"), "it does not mention violin"),
        (TEXT.replace("sang", "s\u0430ng"), "it has letters that English does not have"),
        (TEXT.replace(" ", "\u200b"), "1 word of its own where at least 30 were asked"),
        (TEXT * 200, "it is longer than 20,000 characters"),
    ],
)
def test_what_is_no_text_is_told_so(text: str, fault: str) -> None:
    assert said(text) == fault
