"""What commands say that they will take, counted by hand."""

from collections.abc import Sequence

import pytest

from app.cli.costs import (
    CostEstimate,
    JudgingCost,
    add_up_costs,
    bound_prompt_tokens,
    estimate_readings,
    estimate_sampling,
)
from app.cli.policies import PolicyPrices
from app.domain.judging import Mode
from app.domain.tasks import FunctionSpec, Message, ToolSpec
from app.inference.wire import Usage
from app.service.requests import HandedOutTask
from tests.support.playground import handed_out


def task(number: int = 0, text: str = "x" * 40, turns: int = 1, tools: tuple[ToolSpec, ...] = ()) -> HandedOutTask:
    return handed_out(number, messages=(Message(role="user", content=text),), tools=tools, max_turns=turns)


def of(
    owed: Sequence[tuple[HandedOutTask, int]],
    prices: PolicyPrices | None = None,
    judging: Sequence[JudgingCost] = (),
) -> CostEstimate:
    return estimate_sampling(owed, 100, 4, prices or PolicyPrices(), judging)


def test_each_attempt_pays_for_its_prompt() -> None:
    """Forty letters are at most twenty tokens, and what a message has beside them 21."""
    estimate = of([(task(1), 4), (task(2), 2)], PolicyPrices(10.0, 20.0))
    counts = (estimate.tasks, estimate.attempts, estimate.calls)
    usage = Usage(prompt_tokens=6 * 41, completion_tokens=600)
    assert (counts, estimate.usage, estimate.usd, estimate.seconds) == ((2, 6, 6), usage, 0.01446, 3.0)


def test_a_price_that_is_not_known_leaves_the_whole_unknown() -> None:
    """Nothing is asked of a policy whose attempts only need scoring."""
    owed, priced = [(task(), 2)], PolicyPrices(10.0, 0.0)
    most = [
        of(owed, priced, [STERN, STERN]).most_usd,
        of(owed, priced).most_usd,
        of([], None, [STERN]).most_usd,
        of(owed, None, [STERN]).most_usd,
        of(owed, priced, [STERN, FREE]).most_usd,
    ]
    assert most == [pytest.approx(0.00882), 0.00082, 0.004, None, None]


def test_every_turn_of_an_episode_pays_for_what_was_said_before() -> None:
    """Prompts of three turns: 41, 41 + 100, 41 + 200."""
    estimate = of([(task(turns=3), 2)])
    assert (estimate.calls, estimate.usage) == (6, Usage(prompt_tokens=2 * 423, completion_tokens=600))


def test_many_prompts_are_counted_on_some() -> None:
    """Every third of 500 is counted; those are a little longer than the rest."""
    owed = [(task(number, "x" * (40 if number % 3 else 80)), 1) for number in range(500)]
    estimate = of(owed)
    assert (estimate.usage.prompt_tokens, estimate.counted) == (
        500 * 61,
        "without a tokenizer, on 167 of the tasks",
    )


def test_tools_are_part_of_the_prompt() -> None:
    tool = ToolSpec(function=FunctionSpec(name="look", description="Look around.", parameters={}))
    assert bound_prompt_tokens(task(tools=(tool,))) > bound_prompt_tokens(task()) + 10


READINGS: dict[tuple[Mode, int, int, int], tuple[int, int]] = {
    ("listwise", 1, 1, 1): (1, 1),
    ("listwise", 8, 1, 1): (2, 4),
    ("listwise", 17, 1, 1): (6, 12),
    ("listwise", 8, 1, 2): (1, 2),
    ("listwise", 8, 1, 4): (1, 1),
    ("pointwise", 4, 3, 1): (12, 12),
    ("pairwise", 4, 1, 2): (12, 12),
    ("pairwise", 1, 5, 1): (1, 1),
    ("listwise", 0, 1, 1): (0, 0),
}


@pytest.mark.parametrize("asked", READINGS)
def test_readings_of_a_group(asked: tuple[Mode, int, int, int]) -> None:
    assert estimate_readings(*asked) == READINGS[asked]


STERN = JudgingCost(
    judge="stern", calls=(2, 4), input_tokens=(1_000, 2_000), output_tokens=(65, 130), usd=(0.002, 0.004)
)
FREE = JudgingCost(judge="free", calls=(1, 1), input_tokens=(500, 500), output_tokens=(65, 65), usd=None)
KNOWN = JudgingCost(judge="", calls=(600, 600), input_tokens=None, output_tokens=None, usd=(2.714, 2.714))


@pytest.mark.parametrize(
    ("told", "words"),
    [
        (
            STERN.scale(10).describe(),
            "20 to 40 calls to stern, about 10,000 to 20,000 prompt tokens and 650 to 1,300 completion tokens, about "
            "0.0200 to 0.0400 US dollars",
        ),
        (FREE.describe(), "1 calls to free, about 500 prompt tokens and 65 completion tokens, an unknown price"),
        (KNOWN.describe(at_most=True), "at most 600 calls, 2.71 US dollars"),
    ],
)
def test_a_cost_in_words(told: str, words: str) -> None:
    assert told == words


def test_what_is_not_known_of_one_judge_is_not_known_of_all() -> None:
    counted = KNOWN.model_copy(update={"input_tokens": (500, 500), "output_tokens": (65, 65)})
    whole = JudgingCost(judge="", calls=(1200, 1200), input_tokens=None, output_tokens=None, usd=(5.428, 5.428))
    assert [add_up_costs([KNOWN, counted]), KNOWN.scale(2)] == [whole, whole]


def test_costs_of_judges_add_up_and_one_without_a_price_leaves_it_unknown() -> None:
    both = JudgingCost(judge="", calls=(3, 5), input_tokens=(1_500, 2_500), output_tokens=(130, 195), usd=None)
    assert (add_up_costs([STERN, FREE]), add_up_costs([STERN, STERN]).usd) == (both, (0.004, 0.008))
