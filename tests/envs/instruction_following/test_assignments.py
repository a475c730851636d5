"""Which instructions go together, and the texts that prove it."""

from collections import Counter
from functools import cache
from itertools import combinations, product

import pytest

from app.envs.instruction_following.assignments import KINDS, Assignment, add_gold, draw_assignment, find_faults
from app.envs.instruction_following.counted_kinds import (
    Acrostic,
    Digits,
    ForbiddenWords,
    IncludedWords,
    LowerCase,
    NoCommas,
    NoLetter,
    NumberWords,
    RisingSentences,
    SentencesExactly,
    UpperCase,
    WordsAtLeast,
    WordsAtMost,
    WordsExactly,
    WordTimes,
)
from app.envs.instruction_following.instructions import PARTS, Instruction, draw_request, is_conflict, parse_text
from app.envs.instruction_following.layout_kinds import (
    Bullets,
    EndsWith,
    FirstWord,
    JsonOnly,
    LineCount,
    NumberedList,
    Paragraphs,
    Quoted,
    RepeatedRequest,
    Sections,
    StartsWith,
    Title,
)
from app.envs.instruction_following.texts import find_prose_fault
from app.toolkit.seeded import SeededRandom


@cache
def drawn() -> list[Assignment]:
    return [
        draw_assignment(SeededRandom(f"any {number}"), 1 + number % 5, number % 3 % (1 + number % 5))
        for number in range(3_000)
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (WordsAtLeast, WordsAtMost),
        (WordsExactly, WordsAtLeast),
        (LowerCase, UpperCase),
        (StartsWith, FirstWord),
        (Title, Quoted),
        (Paragraphs, LineCount),
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
    assert (is_conflict(one, other), is_conflict(other, one)) == (True, True)


@pytest.mark.parametrize(
    ("one", "other"),
    [(WordsExactly, Acrostic), (NoLetter, NoCommas), (JsonOnly, WordsExactly), (Title, Bullets), (LineCount, LowerCase),
     (ForbiddenWords, IncludedWords), (Quoted, Paragraphs), (SentencesExactly, WordsExactly)],
)  # fmt: skip
def test_what_goes_together_may_be_asked(one: type[Instruction], other: type[Instruction]) -> None:
    assert (is_conflict(one, other), is_conflict(other, one)) == (False, False)


def test_what_is_barred_is_something_that_another_decides_or_adds() -> None:
    decided = {aspect for kind in KINDS.values() for aspect in kind.claims | kind.adds}
    assert {aspect for kind in KINDS.values() for aspect in kind.bars} - decided == set()


def test_nothing_is_drawn_that_conflicts() -> None:
    clashing = [
        (one.kind, other.kind)
        for made in drawn()
        for one, other in combinations(made.instructions, 2)
        if is_conflict(type(one), type(other))
    ]
    assert clashing == []


def test_as_many_are_drawn_as_are_asked_for_and_as_many_hard_ones() -> None:
    numbers = [(len(made.instructions), sum(one.hard for one in made.instructions)) for made in drawn()]
    assert numbers == [(1 + number % 5, number % 3 % (1 + number % 5)) for number in range(3_000)]


def test_every_kind_is_drawn_and_requests_differ() -> None:
    kinds = Counter(one.kind for made in drawn() for one in made.instructions)
    assert (kinds.keys() == KINDS.keys(), min(kinds.values()) > 30) == (True, True)
    assert len({made.request.sentence for made in drawn()}) > 2_900


def test_most_of_what_is_drawn_can_be_followed_and_what_is_proved_is() -> None:
    texts = [
        add_gold(made, SeededRandom(str(number)), made.request.sentence) for number, made in enumerate(drawn()[:400])
    ]
    golds = [made for made in texts if made is not None]
    wrong = [made for made in golds if any(find_faults(parse_text(made.gold), made.instructions))]
    lacks = [
        said for made in golds if (said := find_prose_fault(parse_text(made.gold), made.request, made.request.sentence))
    ]
    assert (wrong, lacks, len(golds) > 280) == ([], [], True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_alone_can_be_followed(kind: str) -> None:
    found = []
    for number in range(30):
        draws = SeededRandom(f"{kind} {number}")
        request = draw_request(draws)
        made = Assignment(request=request, instructions=(KINDS[kind].draw(draws, request),), asked=("",))
        found.append(add_gold(made, draws, request.sentence))
    assert sum(made is not None for made in found) >= 20


def test_what_cannot_be_followed_is_not_proved() -> None:
    request = draw_request(SeededRandom("one"))
    both = (WordsAtLeast(count=90), WordsAtMost(count=80))
    made = Assignment(request=request, instructions=both, asked=("", ""))
    assert add_gold(made, SeededRandom("one"), request.sentence) is None


def test_requests_are_sentences() -> None:
    request = draw_request(SeededRandom("one")).model_copy(
        update={"form": "Write a poem about", "thing": "oar", "place": "mill", "reader": ", for children"}
    )
    assert request.sentence == "Write a poem about an oar in a mill, for children."


def test_what_a_request_is_about_is_one_word_that_has_no_second_meaning() -> None:
    about = [*PARTS.things, *PARTS.places]
    assert [word for word in about if parse_text(word).bare != (word,)] == []
    assert [word for word, count in Counter(about).items() if count > 1] == []
    assert len(list(product(PARTS.things, PARTS.places))) > 5_000
