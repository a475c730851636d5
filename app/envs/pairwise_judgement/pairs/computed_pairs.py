"""Pairs that can be computed: sums, programs, rules."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.domain.values import Frozen
from app.envs.pairwise_judgement.pairs.answer_pair import AnswerPair, Level, draw_two, get_words
from app.toolkit.seeded import SeededRandom

_SLIPS: Final = (-20, -10, -8, -6, -4, -2, 2, 4, 6, 8, 10, 20)
"""Only even ones: right products are mostly even, so an odd slip would often give the wrong result away."""

_STEPS: Final[Mapping[Level, int]] = {"easy": 1, "medium": 2, "hard": 3}


class _WorkingStep(Frozen):
    number: int
    more: bool


def draw_arithmetic_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    """The wrong answer adds instead of subtracting, swaps two numbers, or slips. Hard ones may slip twice, so that the
    result is right again."""
    name, thing = draws.one(get_words("person")), draws.one(get_words("thing"))
    boxes, each = 12 + draws.below(30), 16 + draws.below(30)
    steps = [_WorkingStep(number=int(one), more=draws.chance(50)) for one in _draw_different(draws, _STEPS[level] + 1)]
    where = draws.below(len(steps) - 1)
    right = _write_working(draws, boxes, each, steps)
    fault = draws.one(("slip", "turned", "swapped") if level != "hard" else ("slip", "turned", "swapped", "luck"))
    if fault == "slip":
        wrong = _write_working(draws, boxes, each, steps, {draws.below(len(steps) + 1): draws.one(_SLIPS)})
    elif fault == "luck":
        slip = draws.one(_SLIPS)
        wrong = _write_working(draws, boxes, each, steps, {where: slip, where + 1: -slip})
    elif fault == "turned":
        turned = steps[where].model_copy(update={"more": not steps[where].more})
        wrong = _write_working(draws, boxes, each, [*steps[:where], turned, *steps[where + 1 :]])
    else:
        one, other = steps[where], steps[where + 1]
        steps[where + 1] = other.model_copy(update={"more": not one.more})
        right = _write_working(draws, boxes, each, steps)
        swapped = [_WorkingStep(number=other.number, more=one.more), _WorkingStep(number=one.number, more=not one.more)]
        wrong = _write_working(draws, boxes, each, [*steps[:where], *swapped, *steps[where + 2 :]])
    told = [f"Then {step.number} are {'brought' if step.more else 'taken away'}." for step in steps]
    return AnswerPair(
        kind="arithmetic",
        context=f"{name} stores {thing} in {boxes} boxes of {each} pieces. {' '.join(told)} How many pieces are there?",
        asks="Which answer is right in every step of its working and in its result?",
        right=right,
        wrong=wrong,
    )


def _draw_different(draws: SeededRandom, count: int) -> Sequence[int]:
    """Small enough that the count never becomes negative."""
    return [12 + number for number in draws.some(range(34), count)]


def _write_working(
    draws: SeededRandom, boxes: int, each: int, steps: Sequence[_WorkingStep], slips: Mapping[int, int] | None = None
) -> str:
    """`slips`: error by step; step 0 is the product."""
    off = slips or {}
    value = boxes * each + off.get(0, 0)
    lines = [f"{boxes} × {each} = {value}."]
    for number, step in enumerate(steps, start=1):
        after = value + (step.number if step.more else -step.number) + off.get(number, 0)
        lines.append(f"{value} {'+' if step.more else '−'} {step.number} = {after}.")
        value = after
    return " ".join([*lines, draws.one((f"So there are {value}.", f"The result is {value}.", f"That makes {value}."))])


def draw_policy_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    """Whether a case meets all conditions; hard: which condition it does not meet."""
    conditions = draws.some(_CONDITIONS, _STEPS[level] + 1)
    failing, other = draws.some(range(len(conditions)), 2)
    named = level == "hard"
    granted = not named and draws.chance(50)
    rules, case = [], []
    for place, condition in enumerate(conditions):
        low, high = sorted(int(one) for one in draw_two(draws, "count"))
        broken = place == failing and not granted
        limit, actual = (low, high) if broken == condition.at_most else (high, low)
        rules.append("- " + condition.rule.format(limit=limit))
        case.append(condition.case.format(actual=actual))
    yes, no = draws.one(_GRANTED), draws.one(_DECLINED)
    right, wrong = (yes, no) if granted else (no, yes)
    if named:
        right, wrong = (
            draws.one(_NAMING_CONDITION).format(condition=conditions[place].name) for place in (failing, other)
        )
    return AnswerPair(
        kind="policy",
        context="\n".join(
            ["A shop takes goods back when all of this is so:", *rules, f"A customer: {' '.join(draws.shuffled(case))}"]
        ),
        asks="Which answer goes by the rules?",
        right=right,
        wrong=wrong,
    )


class _PolicyCondition(Frozen):
    name: str
    rule: str
    case: str
    at_most: bool = True


_CONDITIONS: Final = (
    _PolicyCondition(
        name="time", rule="It was bought at most {limit} days ago.", case="I bought it {actual} days ago."
    ),
    _PolicyCondition(
        name="price", rule="It has cost at least {limit} crowns.", case="I paid {actual} crowns.", at_most=False
    ),
    _PolicyCondition(name="use", rule="It was used for at most {limit} hours.", case="I used it for {actual} hours."),
    _PolicyCondition(name="weight", rule="It weighs at most {limit} pounds.", case="It weighs {actual} pounds."),
    _PolicyCondition(
        name="membership",
        rule="The customer has been a member for at least {limit} weeks.",
        case="I have been a member for {actual} weeks.",
        at_most=False,
    ),
    _PolicyCondition(
        name="distance", rule="It is sent from at most {limit} miles away.", case="I live {actual} miles away."
    ),
)
_GRANTED: Final = ("It can be taken back.", "The shop takes it back, by its rules.", "Yes, this one is taken back.")
_DECLINED: Final = ("It can't be taken back.", "By its rules the shop refuses it.", "No, this one is not accepted.")
_NAMING_CONDITION: Final = (
    "It is not taken back, for the condition about {condition} is not met.",
    "All conditions are met but the one about {condition}, so it is refused.",
)


class _ShownProgram(Frozen):
    source: str
    printed: str


def draw_code_pair(draws: SeededRandom, level: Level) -> AnswerPair:
    """Two programs that differ slightly, one of them shown; each answer is the output of one of them."""
    write = draws.one(_PROGRAMS)
    while True:
        shown, near = draws.shuffled(write(draws, _STEPS[level]))
        if shown.printed != near.printed:
            break
    says = ("It prints {}.", "The program prints {}.", "What comes out is {}.")
    return AnswerPair(
        kind="code",
        context=f"```python\n{shown.source}\n```",
        asks=draws.one(("Which answer says what this program prints?", "Which answer has the output right?")),
        right=draws.one(says).format(shown.printed),
        wrong=draws.one(says).format(near.printed),
    )


def _write_range_sums(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    low, divisor = 1 + draws.below(9), 2 + draws.below(3)
    high = low + divisor * (2 + steps + draws.below(3))
    return [
        _ShownProgram(
            source=f"total = 0\nfor n in range({low}, {written}):\n    if n % {divisor} == {low % divisor}:\n"
            "        total += n\nprint(total)",
            printed=str(sum(n for n in range(low, end) if n % divisor == low % divisor)),
        )
        for written, end in ((f"{high}", high), (f"{high} + 1", high + 1))
    ]


def _write_slices(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    words = draws.some(get_words("thing"), 4 + steps)
    first = draws.below(2)
    last = first + 2 + draws.below(steps + 1)
    return [
        _ShownProgram(source=f'words = {words}\nprint("-".join({written}))', printed="-".join(some))
        for written, some in (
            (f"words[{first}:{last}]", words[first:last]),
            (f"words[{first + 1}:{last + 1}]", words[first + 1 : last + 1]),
        )
    ]


def _write_doublings(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    """The bound is reached exactly, so `<` and `<=` give different results."""
    start, added = 2 + draws.below(7), draws.below(4)
    bound = start
    for _ in range(steps + 1):
        bound = 2 * bound + added
    return [
        _ShownProgram(
            source=f"x = {start}\nwhile x {sign} {bound}:\n    x = x * 2 + {added}\nprint(x)",
            printed=str(end),
        )
        for sign, end in (("<", bound), ("<=", 2 * bound + added))
    ]


def _write_counts(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    one, other = draws.some(get_words("animal"), 2)
    words = draws.shuffled([one] * (1 + draws.below(3 + steps)) + [other] * (1 + draws.below(3 + steps)))
    return [
        _ShownProgram(
            source=f"counts = {{}}\nfor word in {words}:\n    counts[word] = counts.get(word, 0) + 1\n"
            f'print(counts["{word}"])',
            printed=str(words.count(word)),
        )
        for word in (one, other)
    ]


def _write_sortings(draws: SeededRandom, steps: int) -> Sequence[_ShownProgram]:
    numbers = draws.some(range(10, 99), 4 + steps)
    return [
        _ShownProgram(
            source=f"numbers = {numbers}\nprint(sorted(numbers)[{place}])", printed=str(sorted(numbers)[place])
        )
        for place in (steps, steps - len(numbers) + 1)
    ]


_PROGRAMS: Final[Sequence[Callable[[SeededRandom, int], Sequence[_ShownProgram]]]] = (
    _write_range_sums,
    _write_slices,
    _write_doublings,
    _write_counts,
    _write_sortings,
)
