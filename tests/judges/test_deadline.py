"""A panel before judges' servers that fail or hang: no score and never 0, and one time for the group."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest

from app.domain.budgets import BudgetConfig
from app.domain.judging import Case, GateFacts, PanelResult
from app.domain.scores import Score
from app.judges import judge_client
from app.judges.configuration import ChatJudgeConfig
from app.judges.panel import JudgePanel, build_chat_judges
from app.main.store import Store
from app.ports.environment import ManagedResource
from app.ports.judges import Judge
from tests.support.chat_server import Received, Reply, Script, serving
from tests.support.judge_cases import RUBRIC, always, completion, config, failure, verdict
from tests.support.shown_prompts import shown_to

PATIENCE = 30.0
"""Seconds after which a test that should have ended has not."""
TEXTS = ("a best", "b good", "c bad", "d worst")
GATED = "As an AI language model I cannot take part."


def ranking_by(ordering: Callable[[dict[str, str]], Sequence[str]]) -> Script:
    """The ordering gets texts by id, in the order of presentation, and returns ids, the best first."""

    def script(number: int, received: Received) -> Reply:
        names = ordering(shown_to(received).texts)
        verdicts = [verdict(name, max(0, 4 - place)) for place, name in enumerate(names)]
        return completion(json.dumps({"verdicts": verdicts, "ranking": [[name] for name in names]}))

    return script


def fairly(texts: dict[str, str]) -> Sequence[str]:
    return sorted(texts, key=lambda name: texts[name])


FAIR = ranking_by(fairly)
HANGING = always(Reply(b"", seconds=3600))
SHORT, LONG = 0.3, 1.5
"""Seconds in which a reading does not end; in which it does on any machine."""
LATE = "no verdict within the limit of "


async def asked(judges: Mapping[str, Judge], seconds: float) -> PanelResult:
    case = Case(key="k", rubric=RUBRIC, document={}, gates=GateFacts(speaker="Hob"), candidates=(*TEXTS, GATED))
    async with asyncio.timeout(PATIENCE):
        return await JudgePanel((judges["big"],), 0.5, seconds=seconds).judge(case)


async def let_go(judges: Mapping[str, Judge]) -> None:
    for judge in judges.values():
        if isinstance(judge, ManagedResource):
            await judge.close()


async def judged(seconds: float, *configs: ChatJudgeConfig, fallbacks: Mapping[str, str] | None = None) -> PanelResult:
    judges = build_chat_judges(configs, fallbacks or {}, None)
    try:
        return await asked(judges, seconds)
    finally:
        await let_go(judges)


def told(scores: tuple[Score, ...]) -> list[tuple[str | None, float | None, bool]]:
    return [(score.reason, score.reward, LATE in score.rationale) for score in scores]


NO_SCORE = [("judge_failed", None, True)] * 4 + [(None, 0.0, False)]


FAULTS: dict[str, tuple[Script, str]] = {
    "malformed JSON": (always(completion('{"verdicts": [')), "no complete JSON object in the answer"),
    "no chat completions": (always(Reply(b"<html>")), "sent something that is not JSON"),
    "down after the first order": (
        lambda number, received: FAIR(number, received) if number == 0 else failure(401),
        "the judge's server answered 401",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_the_judge_is_no_score_and_a_gated_reply_stays_0(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_client, "FIRST_PAUSE_SECONDS", 0.01)
    script, words = FAULTS[fault]
    with serving(script) as server:
        scores = (await judged(PATIENCE, config(server.url))).scores
    found = [(score.outcome, score.reason, score.reward, words in score.rationale, score.flags) for score in scores]
    gated = ("scored", None, 0.0, False, ("breaks_character",))
    assert found == [("unscored", "judge_failed", None, True, ())] * 4 + [gated]


async def test_a_budget_that_is_used_up_is_its_own_reason() -> None:
    with serving(FAIR) as server:
        scores = (await judged(PATIENCE, config(server.url, budget=BudgetConfig(tokens=10)))).scores
    assert [(score.reason, score.reward) for score in scores] == [("budget", None)] * 4 + [(None, 0.0)]
    assert server.received == []


async def test_a_judge_that_hangs_ends_with_the_time_of_the_group() -> None:
    with serving(HANGING) as server:
        assert told((await judged(SHORT, config(server.url, deadline_seconds=1.0))).scores) == NO_SCORE


async def test_so_does_a_queue_before_it() -> None:
    with serving(HANGING) as server:
        limits = config(server.url, deadline_seconds=1.0, queue_seconds=2.0, max_concurrency=1)
        result = await judged(SHORT, limits)
    assert (told(result.scores), [made.error for made in result.judgements]) == (
        NO_SCORE,
        [f"{LATE}0.3 s per group"] * 2,
    )


async def test_a_fallback_has_the_same_time() -> None:
    refusing = always(completion("I'm sorry, I can't help with that."))
    with serving(refusing) as server, serving(HANGING) as behind:
        configs = [config(server.url), config(behind.url, name="plain", deadline_seconds=2.0)]
        result = await judged(LONG, *configs, fallbacks={"big": "plain"})
        assert (told(result.scores), len(behind.received)) == (NO_SCORE, 1)


def in_doubt(number: int, received: Received) -> Reply:
    """The two readings of a group contradict each other; further ones never end."""
    if number >= 2:
        return Reply(b"", seconds=3600)
    best, *rest = fairly(shown_to(received).texts)
    return ranking_by(lambda texts: [*rest, best] if number else [best, *rest])(number, received)


async def test_doubt_has_the_same_time_and_what_was_read_stands() -> None:
    with serving(in_doubt) as server:
        result = await judged(LONG, config(server.url, deadline_seconds=2.0))
    assert [score.outcome for score in result.scores] == ["scored"] * 5
    assert [score.relative for score in result.scores[:4]] == pytest.approx([0.5, 0.657, 0.5, 0.343], abs=0.01)
    assert [made.error is None for made in result.judgements] == [True, True, False, False]


def slowly(script: Script) -> Script:
    return lambda number, received: replace(script(number, received), seconds=0.6)


async def test_an_answer_that_comes_too_late_is_kept_and_paid_for_once(store: Store) -> None:
    with serving(slowly(FAIR)) as server:
        judges = build_chat_judges([config(server.url)], {}, store.judge_cache)
        try:
            late, repeated, again = [await asked(judges, patience) for patience in (SHORT, PATIENCE, PATIENCE)]
        finally:
            await let_go(judges)
        calls = len(server.received)
    assert (told(late.scores), calls) == (NO_SCORE, 2)
    assert [[made.calls for made in result.judgements] for result in (late, repeated, again)] == [
        [0, 0],
        [1, 1],
        [0, 0],
    ]
    assert repeated.scores == again.scores


async def test_a_judge_that_breaks_off_by_itself_is_not_taken_for_late() -> None:
    class Impatient:
        name, model, digest = "big", "m", "d"

        async def judge(self, request: object) -> object:
            raise TimeoutError

    result = await asked({"big": Impatient()}, PATIENCE)  # type: ignore[dict-item]
    assert {score.rationale for score in result.scores[:4]} == {"big: the judge raised an exception; see the log"}
