"""Which instructions go together, and the texts that prove it."""

from functools import cache
from itertools import combinations

import pytest

from app.envs.instruction_following.assignments import KINDS, Assignment, add_gold, draw_assignment, find_faults
from app.envs.instruction_following.counted_kinds import WordsAtLeast, WordsAtMost
from app.envs.instruction_following.instructions import draw_request, is_conflict, parse_text
from app.envs.instruction_following.texts import find_prose_fault
from app.toolkit.seeded import SeededRandom
from tests.support.tables import read_table
from tests.support.tiers import examples

DRAWN, PROVED = examples(3_000, fewest=600), examples(400, fewest=60)


@cache
def drawn() -> list[Assignment]:
    return [
        draw_assignment(SeededRandom(f"any {number}"), 1 + number % 5, number % 3 % (1 + number % 5))
        for number in range(DRAWN)
    ]


@pytest.mark.parametrize("pair", read_table(__file__, "contradictions.yaml", list[str]))
def test_what_contradicts_itself_is_never_asked(pair: str) -> None:
    one, other = (KINDS[kind] for kind in pair.split())
    assert (is_conflict(one, other), is_conflict(other, one)) == (True, True)


@pytest.mark.parametrize(
    "pair",
    [
        *("words_exactly acrostic", "no_letter no_commas", "json_only words_exactly", "title bullets"),
        *("lines lower_case", "forbidden_words included_words", "quoted paragraphs"),
        "sentences_exactly words_exactly",
    ],
)
def test_what_goes_together_may_be_asked(pair: str) -> None:
    one, other = (KINDS[kind] for kind in pair.split())
    assert (is_conflict(one, other), is_conflict(other, one)) == (False, False)


def test_what_is_barred_is_something_that_another_decides_or_adds() -> None:
    decided = {aspect for kind in KINDS.values() for aspect in kind.claims | kind.adds}
    assert {aspect for kind in KINDS.values() for aspect in kind.bars} - decided == set()


def test_what_is_drawn_is_as_much_as_was_asked_for_of_every_kind_and_without_conflict() -> None:
    numbers = [(len(made.instructions), sum(one.hard for one in made.instructions)) for made in drawn()]
    pairs = [pair for made in drawn() for pair in combinations(made.instructions, 2)]
    clashing = [pair for pair in pairs if is_conflict(type(pair[0]), type(pair[1]))]
    assert numbers == [(1 + number % 5, number % 3 % (1 + number % 5)) for number in range(DRAWN)]
    assert (clashing, {one.kind for made in drawn() for one in made.instructions}) == ([], {*KINDS})


def test_most_of_what_is_drawn_can_be_followed_and_what_is_proved_is() -> None:
    texts = [
        add_gold(made, SeededRandom(str(number)), made.request.sentence) for number, made in enumerate(drawn()[:PROVED])
    ]
    golds = [made for made in texts if made is not None]
    wrong = [made for made in golds if any(find_faults(parse_text(made.gold), made.instructions))]
    lacks = [
        said for made in golds if (said := find_prose_fault(parse_text(made.gold), made.request, made.request.sentence))
    ]
    assert (wrong, lacks, len(golds) > 0.7 * PROVED) == ([], [], True)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_alone_can_be_followed(kind: str) -> None:
    found = []
    for number in range(15):
        draws = SeededRandom(f"{kind} {number}")
        request = draw_request(draws)
        made = Assignment(request=request, instructions=(KINDS[kind].draw(draws, request),), asked=("",))
        found.append(add_gold(made, draws, request.sentence))
    assert sum(made is not None for made in found) >= 10


def test_what_cannot_be_followed_is_not_proved() -> None:
    request = draw_request(SeededRandom("one"))
    both = (WordsAtLeast(count=90), WordsAtMost(count=80))
    made = Assignment(request=request, instructions=both, asked=("", ""))
    assert add_gold(made, SeededRandom("one"), request.sentence) is None
