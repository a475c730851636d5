"""Which instructions go together, and the texts that prove it."""

from collections import Counter
from itertools import combinations, product

import pytest

from app.envs.instruction_following.constraints.assignments import Assignment, drawn_assignment, faults, proved
from app.envs.instruction_following.constraints.cases import LowerCase, UpperCase
from app.envs.instruction_following.constraints.edges import EndsWith, FirstWord, RepeatedRequest, StartsWith, Title
from app.envs.instruction_following.constraints.groups import Lines, Paragraphs, Sections
from app.envs.instruction_following.constraints.instruction import Instruction, conflict
from app.envs.instruction_following.constraints.keywords import ForbiddenWords, IncludedWords, WordTimes
from app.envs.instruction_following.constraints.kinds import KINDS
from app.envs.instruction_following.constraints.lengths import (
    RisingSentences,
    SentencesExactly,
    WordsAtLeast,
    WordsAtMost,
    WordsExactly,
)
from app.envs.instruction_following.constraints.letters import Acrostic, NoLetter
from app.envs.instruction_following.constraints.marks import Digits, NoCommas, NumberWords
from app.envs.instruction_following.constraints.reading import read
from app.envs.instruction_following.constraints.requests import PARTS, drawn_request
from app.envs.instruction_following.constraints.shapes import Bullets, JsonOnly, NumberedList, Quoted
from app.envs.instruction_following.constraints.substance import lacking
from app.toolkit.seeded import Draws

DRAWN = [
    drawn_assignment(Draws(f"any {number}"), 1 + number % 5, number % 3 % (1 + number % 5)) for number in range(3_000)
]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (WordsAtLeast, WordsAtMost),
        (WordsExactly, WordsAtLeast),
        (LowerCase, UpperCase),
        (StartsWith, FirstWord),
        (Title, Quoted),
        (Paragraphs, Lines),
        (Paragraphs, Bullets),
        (Sections, NumberedList),
        (SentencesExactly, Acrostic),
        (SentencesExactly, Title),
        (Acrostic, EndsWith),
        (RisingSentences, WordsExactly),
        (JsonOnly, Title),
        (JsonOnly, UpperCase),
        (JsonOnly, Paragraphs),
        (NumberWords, Digits),
        (NoCommas, RepeatedRequest),
        (NoLetter, RepeatedRequest),
        (IncludedWords, WordTimes),
        (NumberedList, NumberWords),
        (NoCommas, NoCommas),
    ],
)
def test_what_contradicts_itself_is_never_asked(one: type[Instruction], other: type[Instruction]) -> None:
    assert (conflict(one, other), conflict(other, one)) == (True, True)


@pytest.mark.parametrize(
    ("one", "other"),
    [(WordsExactly, Acrostic), (NoLetter, NoCommas), (JsonOnly, WordsExactly), (Title, Bullets), (Lines, LowerCase),
     (ForbiddenWords, IncludedWords), (Quoted, Paragraphs), (SentencesExactly, WordsExactly)],
)  # fmt: skip
def test_what_goes_together_may_be_asked(one: type[Instruction], other: type[Instruction]) -> None:
    assert (conflict(one, other), conflict(other, one)) == (False, False)


def test_what_is_barred_is_something_that_another_decides_or_adds() -> None:
    decided = {aspect for kind in KINDS.values() for aspect in kind.claims | kind.adds}
    assert {aspect for kind in KINDS.values() for aspect in kind.bars} - decided == set()


def test_nothing_is_drawn_that_conflicts() -> None:
    clashing = [
        (one.kind, other.kind)
        for made in DRAWN
        for one, other in combinations(made.instructions, 2)
        if conflict(type(one), type(other))
    ]
    assert clashing == []


def test_as_many_are_drawn_as_are_asked_for_and_as_many_hard_ones() -> None:
    numbers = [(len(made.instructions), sum(one.hard for one in made.instructions)) for made in DRAWN]
    assert numbers == [(1 + number % 5, number % 3 % (1 + number % 5)) for number in range(3_000)]


def test_every_kind_is_drawn_and_requests_differ() -> None:
    kinds = Counter(one.kind for made in DRAWN for one in made.instructions)
    assert (kinds.keys() == KINDS.keys(), min(kinds.values()) > 30) == (True, True)
    assert len({made.request.said for made in DRAWN}) > 2_900


def test_most_of_what_is_drawn_can_be_followed_and_what_is_proved_is() -> None:
    texts = [proved(made, Draws(str(number)), made.request.said) for number, made in enumerate(DRAWN[:400])]
    golds = [made for made in texts if made is not None]
    wrong = [made for made in golds if any(faults(read(made.gold), made.instructions))]
    lacks = [said for made in golds if (said := lacking(read(made.gold), made.request, made.request.said))]
    assert (wrong, lacks, len(golds) > 280) == ([], [], True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_alone_can_be_followed(kind: str) -> None:
    found = []
    for number in range(30):
        draws = Draws(f"{kind} {number}")
        request = drawn_request(draws)
        made = Assignment(request=request, instructions=(KINDS[kind].drawn(draws, request),), asked=("",))
        found.append(proved(made, draws, request.said))
    assert sum(made is not None for made in found) >= 20


def test_what_cannot_be_followed_is_not_proved() -> None:
    request = drawn_request(Draws("one"))
    both = (WordsAtLeast(count=90), WordsAtMost(count=80))
    made = Assignment(request=request, instructions=both, asked=("", ""))
    assert proved(made, Draws("one"), request.said) is None


def test_requests_are_sentences() -> None:
    request = drawn_request(Draws("one")).model_copy(
        update={"form": "Write a poem about", "thing": "oar", "place": "mill", "reader": ", for children"}
    )
    assert request.said == "Write a poem about an oar in a mill, for children."


def test_what_a_request_is_about_is_one_word_that_has_no_second_meaning() -> None:
    about = [*PARTS.things, *PARTS.places]
    assert [word for word in about if read(word).bare != (word,)] == []
    assert [word for word, count in Counter(about).items() if count > 1] == []
    assert len(list(product(PARTS.things, PARTS.places))) > 5_000
