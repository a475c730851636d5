"""What the offline judge makes of events by words alone: what is taken up, passed over or given away."""

import asyncio

import pytest
from pydantic import JsonValue

from app.domain.judging import Candidate, Claim, JudgeRequest, Probes, SourceEvent, Verdict
from app.envs.npc_arena.environment import NpcArena
from app.judges.gates import GATES
from app.judges.offline import OfflineJudge
from tests.support.tables import read_table

HINT = next(gate.notices for gate in GATES if gate.flag == "may_know_withheld")
BARGE = SourceEvent(id="barge", text="The levy barge went down at the landing with nine oxen.")
DOCUMENT: dict[str, JsonValue] = read_table(__file__, "mentioned_document.yaml", dict[str, JsonValue])


def judged(
    *texts: str, sources: tuple[SourceEvent, ...] = (BARGE,), hints: tuple[str, ...] = ()
) -> tuple[Verdict, ...]:
    rubric = NpcArena.rubric
    assert rubric is not None
    request = JudgeRequest(
        rubric=rubric,
        document=DOCUMENT,
        probes=Probes(),
        sources=sources,
        language="en",
        candidates=tuple(Candidate(id=f"c{place}", text=text, hints=hints) for place, text in enumerate(texts)),
    )
    return asyncio.run(OfflineJudge().judge(request)).verdicts


def grounding(verdict: Verdict) -> float | None:
    return verdict.scores["event_grounding"]


def codes(verdict: Verdict) -> list[str]:
    return [defect.code for defect in verdict.defects]


TAKES_UP = "Nine oxen, ferryman or not. Down with the levy barge."
PASSES_OVER = "The ferryman says the ford is slow, and fog comes early to the ferry steps."


def test_an_event_is_taken_up_or_passed_over() -> None:
    """By words that it has and the line has not; words of the line may stand in any reply."""
    verdicts = judged(TAKES_UP, PASSES_OVER, "The levy barge, you say, and who drowned.")
    assert [codes(verdict) for verdict in verdicts] == [[], ["ignores_event"], ["ignores_event"]]


def test_claims_are_verbatim_and_name_their_event() -> None:
    told, asked, denied = judged(TAKES_UP, "Nine oxen?", PASSES_OVER)
    assert (told.claims, asked.claims, denied.claims) == (
        (Claim(quote="Nine oxen, ferryman or not.", source="barge", source_quote=BARGE.text),),
        (),
        (),
    )


def test_without_events_the_criterion_does_not_apply() -> None:
    without, with_one = (judged("The ford is slow.", sources=sources)[0] for sources in ((), (BARGE,)))
    assert ("event_grounding" in without.scores, grounding(without), grounding(with_one) is None) == (True, None, False)


@pytest.mark.parametrize(
    ("text", "hints", "reported"),
    [
        ("It was poison in his cup.", (HINT,), True),
        ("Poisons, in his cup.", (HINT,), True),
        ("It was poison in his cup.", (), False),
        ("Was it poison?", (HINT,), False),
        ("I know nothing of poison.", (HINT,), False),
        ("The cup was pewter.", (HINT,), False),
    ],
    ids=["told", "plural", "not noticed", "asked", "denied", "another word"],
)
def test_a_withheld_term_is_confirmed_where_it_is_stated(text: str, hints: tuple[str, ...], reported: bool) -> None:
    verdict = judged(text, hints=hints)[0]
    found = [defect.quote for defect in verdict.defects if defect.code == "knows_withheld"]
    assert found == ([text] if reported else [])
