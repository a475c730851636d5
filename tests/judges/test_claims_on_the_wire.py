"""A judge that misquotes is asked once more, and is no judge if it does so again."""

import asyncio
import json
from collections.abc import Sequence

import pytest

from app.domain.judging import Candidate, Claim, Judgement, JudgeRequest, Probes, SourceEvent
from app.envs.npc_arena.environment import NpcArena
from app.judges.chat_judge import ChatJudge
from tests.support.chat_server import Received, Reply, serving
from tests.support.judge_cases import completion, config

SAID = "The barge sank at the landing, aye."
HELD = Claim(quote="The barge sank", source="barge", source_quote="went down")


def claimed(quote: str, source: str | None, proof: str) -> str:
    rubric = NpcArena.rubric
    assert rubric is not None
    entry = {
        "candidate": "A",
        "evidence": [],
        "claims": [{"quote": quote, "source": source, "source_quote": proof}],
        "defects": [],
        "scores": {criterion.name: 4 for criterion in rubric.criteria},
        "note": "",
    }
    return json.dumps({"verdicts": [entry]})


GOOD = claimed("The barge sank", "barge", "went down")
MISQUOTED = claimed("The ferry sank", "barge", "went down")
MISTAKEN = claimed("The barge sank", "bell", "went down")


def asked(answers: Sequence[str]) -> tuple[Judgement, list[Received]]:
    rubric = NpcArena.rubric
    assert rubric is not None
    request = JudgeRequest(
        rubric=rubric,
        document={},
        probes=Probes(),
        sources=(SourceEvent(id="barge", text="The levy barge went down."),),
        candidates=(Candidate(id="A", text=SAID),),
    )

    def script(number: int, received: Received) -> Reply:
        return completion(answers[number])

    async def once(url: str) -> Judgement:
        judge = ChatJudge(config(url))
        try:
            return await judge.judge(request)
        finally:
            await judge.close()

    with serving(script) as server:
        return asyncio.run(once(server.url)), server.received


@pytest.mark.parametrize("wrong", [MISQUOTED, MISTAKEN], ids=["the reply", "the event"])
def test_a_misquote_is_sent_back_once(wrong: str) -> None:
    judgement, received = asked((wrong, GOOD))
    correction = received[1].messages[-1]["content"]
    assert (judgement.verdicts[0].claims, judgement.error, len(received), "a claim of candidate A" in correction) == (
        (HELD,),
        None,
        2,
        True,
    )


def test_a_judge_that_misquotes_again_has_not_judged() -> None:
    judgement, received = asked((MISQUOTED, MISQUOTED))
    assert (judgement.failure, judgement.verdicts, len(received)) == ("unusable", (), 2)
