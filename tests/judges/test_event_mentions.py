"""What the offline judge makes of events by words alone: what is taken up, made up, passed over or given away."""

import asyncio

import pytest
from pydantic import JsonValue

from app.domain.judging import Candidate, Claim, JudgeRequest, Probes, SourceEvent, Verdict
from app.envs.npc_arena.environment import NpcArena
from app.judges.gates import GATES
from app.judges.offline import OfflineJudge

HINT = next(gate.notices for gate in GATES if gate.flag == "may_know_withheld")
BARGE = SourceEvent(id="barge", text="The levy barge went down at the landing with nine oxen.")
DOCUMENT: dict[str, JsonValue] = {
    "character_sheet": {
        "name": "Hob",
        "role": "ferryman of the ford",
        "knows": ["the ford is slow", "fog comes early"],
    },
    "scene": {"location": "the ferry steps"},
    "withheld_events": [{"id": "duke", "text": "The duke is poisoned.", "leak_terms": ["poison"]}],
    "conversation": [{"speaker": "player", "text": "What of the levy barge, ferryman? Who drowned?"}],
}


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
MAKES_UP = "This morning a dragon burned Ebbwick church, priest and all. Ask the ferryman of the levy barge."


def test_taking_up_is_worth_more_than_passing_over_and_that_more_than_making_up() -> None:
    verdicts = judged(TAKES_UP, PASSES_OVER, MAKES_UP)
    first, second, third = (grounding(verdict) or 0.0 for verdict in verdicts)
    assert (first > second > third > 0.0, [codes(verdict) for verdict in verdicts]) == (
        True,
        [[], ["ignores_event"], ["ignores_event", "invented_event"]],
    )


def test_claims_are_verbatim_and_name_their_event() -> None:
    taken, _, made = judged(TAKES_UP, PASSES_OVER, MAKES_UP)
    assert (taken.claims, made.claims) == (
        (Claim(quote="Nine oxen, ferryman or not.", source="barge", source_quote=BARGE.text),),
        (Claim(quote="This morning a dragon burned Ebbwick church, priest and all.", source=None),),
    )


@pytest.mark.parametrize(
    ("text", "claims"),
    [
        ("Did a dragon burn Ebbwick church this morning?", 0),
        ("No dragon burned Ebbwick church this morning.", 0),
        ("A dragon burned Ebbwick church.", 0),
        ("This morning fog came early to the ford.", 0),
        ("A dragon burned Ebbwick church an hour ago.", 1),
    ],
    ids=["asked", "denied", "no time", "known words", "told"],
)
def test_only_what_is_told_of_lately_in_unknown_words_is_made_up(text: str, claims: int) -> None:
    assert len(judged(text)[0].claims) == claims


def test_where_nothing_happened_and_nothing_is_claimed_the_criterion_does_not_apply() -> None:
    quiet = judged("The ford is slow.", "Fog, early.", sources=())
    one_claims = judged("The ford is slow.", MAKES_UP, sources=())
    assert ([grounding(each) for each in quiet], [grounding(each) is None for each in one_claims]) == (
        [None, None],
        [False, False],
    )


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
    assert (found, verdict.scores["knowledge_boundary"] == 0.0 or not reported) == ([text] if reported else [], True)
