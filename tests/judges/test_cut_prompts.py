"""Judges whose servers cut prompts at their window, and answer as if they had read them."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from app.domain.judging import Case, Judgement, JudgeReport
from app.judges.chat_judge import ChatJudge
from app.judges.configuration import PromptCounts, parse_usage
from app.judges.panel import JudgePanel
from tests.support.chat_server import Received, Reply, Script, serving
from tests.support.event_loop import closed_after
from tests.support.judge_cases import GOOD, REQUEST, RUBRIC, completion, config
from tests.support.tables import read_table


@pytest.mark.parametrize(
    ("prompts", "window"),
    [
        ([(1000, 200), (2000, 200), (1500, 200)], 200),
        ([(1000, 200), (2000, 200)], None),
        ([(1000, 200), (1000, 200), (2000, 200)], None),
        ([(1000, 200), (1900, 200), (1500, 200)], None),
        ([(1000, 200), (2000, 200), (1500, 200), (900, 190)], 200),
        ([(1000, 200), (2000, 200), (1500, 200), (1800, 210)], None),
        ([(1000, 200), (2000, 400), (3000, 600)], None),
        ([(1000, 0), (2000, 0), (1500, 0)], None),
        ([(1000 + number, 200) for number in range(100)] + [(2000, 200)], 200),
        ([(100 * number, number) for number in range(1, 500)], None),
    ],
    ids=["cut", "two", "two lengths", "alike", "a short one", "a longer count", "read", "unknown", "many", "many read"],
)
def test_what_counts_say_of_a_window(prompts: Sequence[tuple[int, int]], window: int | None) -> None:
    counts = PromptCounts()
    for characters, tokens in prompts:
        counts.record(characters, parse_usage({"prompt_tokens": tokens, "completion_tokens": 9}))
    assert counts.window == window


CACHED_WINDOWS = read_table(
    __file__, "cached_windows.yaml", dict[str, tuple[Sequence[tuple[int, int, int]], int | None]]
)


@pytest.mark.parametrize(("prompts", "window"), CACHED_WINDOWS.values(), ids=CACHED_WINDOWS)
def test_cached_tokens_were_read_too(prompts: Sequence[tuple[int, int, int]], window: int | None) -> None:
    counts = PromptCounts()
    for characters, tokens, cached in prompts:
        counts.record(characters, parse_usage({"prompt_tokens": tokens, "cache_read_input_tokens": cached}))
    assert counts.window == window


def test_few_tokens_are_those_of_less_than_half_of_what_the_server_counts_otherwise() -> None:
    counts = PromptCounts()
    for size, tokens in ((40, 30), (4000, 1000), (8000, 1100), (8000, 900), (9000, 1000)):
        counts.record(size, parse_usage({"prompt_tokens": tokens, "completion_tokens": 9}))
    assert counts.prompts_cut == 2


def counting(window: int) -> Script:
    def script(number: int, received: Received) -> Reply:
        read = sum(len(message["content"]) for message in received.messages) // 4
        usage = {"prompt_tokens": min(read, window), "completion_tokens": 200}
        body = json.loads(completion(GOOD).body)
        return Reply(json.dumps({**body, "usage": usage}).encode())

    return script


async def judge_with_events(url: str, counts: Sequence[int] = (0, 400, 900, 9)) -> tuple[list[Judgement], JudgeReport]:
    """One judgement for each count of events in its prompt."""
    told = [REQUEST.model_copy(update={"document": {"events": ["The ferry sank."] * many}}) for many in counts]
    async with closed_after(ChatJudge(config(url, breaker_seconds=60))) as judge:
        return [await judge.judge(request) for request in told], judge.report()


def test_a_judge_that_does_not_read_is_not_believed() -> None:
    with serving(counting(300)) as server:
        made, report = asyncio.run(judge_with_events(server.url))
    cut = "the judge's server reads only 300 tokens of a prompt, whatever its length: raise its window"
    assert [(each.failure, each.error, each.calls) for each in made] == [
        (None, None, 1),
        (None, None, 1),
        ("unusable", cut, 1),
        ("unusable", cut, 0),
    ]
    assert (report.health, report.last_error) == ("out", cut)


def test_a_prompt_that_fits_is_still_sent() -> None:
    with serving(counting(2_000)) as server:
        made, _ = asyncio.run(judge_with_events(server.url, (500, 900, 1400, 0, 700)))
    assert [(each.failure, each.calls) for each in made] == [
        (None, 1),
        (None, 1),
        ("unusable", 1),
        (None, 1),
        ("unusable", 0),
    ]


def test_a_judge_that_reads_is_believed() -> None:
    with serving(counting(1_000_000)) as server:
        made, report = asyncio.run(judge_with_events(server.url))
    assert ([each.error for each in made], report.health, report.last_error) == ([None] * 4, "ok", None)


@pytest.mark.parametrize(("window", "flagged"), [(100, True), (1_000_000, False)])
async def test_few_tokens_for_a_prompt_are_flagged(window: int, flagged: bool) -> None:
    texts = ["The ferry sank.", "As you wish.", "Hm, no."]
    with serving(counting(window)) as server:
        async with closed_after(ChatJudge(config(server.url))) as judge:
            made = await JudgePanel((judge,), 0.5).judge(Case(key="k", rubric=RUBRIC, document={}, candidates=texts))
    flags = {flag for each in made.scores for flag in each.flags}
    assert ([each.outcome for each in made.scores], "prompt_cut" in flags) == (["scored"] * 3, flagged)
