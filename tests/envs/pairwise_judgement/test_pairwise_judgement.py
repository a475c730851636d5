"""Judging pairs: what is paid, and that nothing but reading tells which answer is better."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache

import pytest

from app.envs.pairwise_judgement.environment import PairSet, PairwiseJudgement, PairwiseJudgementParams
from app.envs.pairwise_judgement.pairs import KINDS, PairQuestion
from app.toolkit.procedural import MIXED, Level
from tests.envs.replies import explain
from tests.support.tables import read_table

TABLE = read_table(__file__, "verdicts.yaml", tuple[tuple[str, str, str], ...])

PAIRWISE = PairwiseJudgement()
TASKS = 2_000
DEFAULT = PairwiseJudgementParams()
NOT_LETTERS = "it is no list of the letters A and B"
ANOTHER_NUMBER = "it has another number of verdicts than there are pairs"


def asked(verdicts: str) -> PairSet:
    one = PairQuestion(kind="code", context="", asks="", answers=("", ""), verdict="A", matter="")
    return PairSet(questions=tuple(one.model_copy(update={"verdict": verdict}) for verdict in verdicts))


@pytest.mark.parametrize(
    ("answer", "verdicts", "expected"),
    [*TABLE, ("A" + " " * 9_000 + "B", "AB", NOT_LETTERS), ("A," * 4_999 + "A", "A", ANOTHER_NUMBER)],
)
def test_all_verdicts_are_paid_together(answer: str, verdicts: str, expected: str) -> None:
    assert explain(PAIRWISE, asked(verdicts), answer) == expected


@lru_cache
def questions() -> tuple[PairQuestion, ...]:
    tasks = [PAIRWISE.task("train", index, DEFAULT) for index in range(TASKS)]
    return tuple(one for task in tasks for one in PAIRWISE.parse_reference(task).questions)


def _shared(answer: str, context: str) -> float:
    known, words = set(re.findall(r"\w+", context)), re.findall(r"\w+", answer)
    return sum(word in known for word in words) / len(words)


def _first_place(answer: str, context: str) -> float:
    """How early its words stand in what there is to go by, on the whole."""
    places = [context.find(word) for word in answer.split() if len(word) > 3 and word in context]
    return -sum(places) / (len(places) or 1)


SHALLOW: Mapping[str, Callable[[str, str], float]] = {
    "longer": lambda answer, context: len(answer),
    "more words": lambda answer, context: len(answer.split()),
    "more lines": lambda answer, context: answer.count("\n"),
    "more digits": lambda answer, context: sum(letter.isdigit() for letter in answer),
    "more capitals": lambda answer, context: sum(letter.isupper() for letter in answer),
    "more marks": lambda answer, context: sum(not (letter.isalnum() or letter.isspace()) for letter in answer),
    "more stars": lambda answer, context: answer.count("*"),
    "says not": lambda answer, context: "not" in answer.split(),
    "says no": lambda answer, context: answer.lower().startswith("no"),
    "says however": lambda answer, context: "However" in answer,
    "sure of itself": lambda answer, context: "certain" in answer or "no doubt" in answer or "expert" in answer,
    "in doubt": lambda answer, context: "mistaken" in answer or "not quite sure" in answer,
    "orders the judge": lambda answer, context: "judg" in answer or "SYSTEM" in answer or "verdict" in answer,
    "polite": lambda answer, context: "Thank" in answer or "hope" in answer,
    "shares words": _shared,
    "shares early words": _first_place,
    "later in the alphabet": lambda answer, context: ord(answer[0]),
    "the highest number": lambda answer, context: max(
        [int(word) for word in "".join(one if one.isdigit() else " " for one in answer).split()], default=0
    ),
}


def _tells(rule: Callable[[str, str], float]) -> dict[str, float]:
    """By kind, and for all, how often the answer that the rule prefers is better; where it prefers none, half."""
    points: dict[str, list[float]] = defaultdict(list)
    for one in questions():
        first, second = (rule(answer, one.context) for answer in one.answers)
        point = 0.5 if first == second else float((first > second) == (one.verdict == "A"))
        points[one.kind].append(point)
        points["all"].append(point)
    return {kind: sum(got) / len(got) for kind, got in points.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SHALLOW))
def test_nothing_shallow_tells_which_is_better(name: str) -> None:
    told = _tells(SHALLOW[name])
    assert 0.47 < told.pop("all") < 0.53
    assert {kind: round(share, 3) for kind, share in told.items() if not 0.44 < share < 0.56} == {}


@pytest.mark.slow
def test_words_of_the_answers_do_not_tell_either() -> None:
    """Learnt from most of the pairs: how much more often each word stands in the better answer. It is no help with the
    rest."""
    bags = [[Counter(re.findall(r"\w+|[^\w\s]", answer)) for answer in one.answers] for one in questions()]
    firsts = [one.verdict == "A" for one in questions()]
    weights: Counter[str] = Counter()
    learnt = len(bags) * 3 // 4
    for (first, second), is_first in zip(bags[:learnt], firsts[:learnt], strict=True):
        better, worse = (first, second) if is_first else (second, first)
        weights.update(better)
        weights.subtract(worse)
    preferred = [
        sum(weights[word] * (first[word] - second[word]) for word in first | second) > 0
        for first, second in bags[learnt:]
    ]
    right = [guess == is_first for guess, is_first in zip(preferred, firsts[learnt:], strict=True)]
    assert 0.46 < sum(right) / len(right) < 0.54


@pytest.mark.slow
def test_both_places_are_as_often_the_better_one() -> None:
    shares = {
        kind: sum(one.verdict == "A" for one in questions() if one.kind == kind)
        / sum(one.kind == kind for one in questions())
        for kind in KINDS
    }
    assert {kind: round(share, 3) for kind, share in shares.items() if not 0.45 < share < 0.55} == {}
    assert 0.48 < sum(one.verdict == "A" for one in questions()) / len(questions()) < 0.52


def test_no_pair_is_in_both_splits() -> None:
    train, test = (
        {
            one.matter
            for index in range(60)
            for one in PAIRWISE.parse_reference(PAIRWISE.task(split, index, DEFAULT)).questions
        }
        for split in ("train", "test")
    )
    assert (train & test, len(train) > 200) == (set(), True)


@pytest.mark.parametrize("pairs", [1, 3, 6])
def test_params_choose_how_many_pairs_and_their_kinds_differ(pairs: int) -> None:
    tasks = [PAIRWISE.task("train", index, PairwiseJudgementParams(pairs=pairs)) for index in range(100)]
    kinds = [task.metadata["kinds"] for task in tasks]
    assert {len({*made}) for made in kinds if isinstance(made, list)} == {pairs}
    assert {kind for made in kinds if isinstance(made, list) for kind in made} == {*KINDS}


@pytest.mark.parametrize("level", MIXED)
def test_orders_to_the_judge_come_at_every_level_on_either_side(level: Level) -> None:
    rule = SHALLOW["orders the judge"]
    made = [
        PAIRWISE.parse_reference(PAIRWISE.task("train", index, PairwiseJudgementParams(level=level))).questions
        for index in range(400)
    ]
    sides = [
        (one.verdict == "A") == (place == 0)
        for task in made
        for one in task
        for place in (0, 1)
        if rule(one.answers[place], "")
    ]
    assert 0.4 < sum(sides) / len(sides) < 0.6
