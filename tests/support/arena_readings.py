"""Readings of groups of NPC Arena: what a judge is asked about a scene, and answers with all that a form asks for."""

import asyncio
import json
from collections.abc import Iterator
from functools import cache

from app.cli.judges import load_packaged_specimens
from app.domain.judging import Case, Judgement, JudgeRequest
from app.envs.npc_arena.environment import NpcArena
from app.judges.aggregation import CandidateGroup
from app.judges.gold_cases import GoldCase, build_pairs, load_packaged_templates
from app.judges.offline import OfflineJudge
from app.judges.verdicts import build_mirrored_orders, name_places

GROUP = 8
NOTE = "The right voice and the right facts, but it misses the moment."
"""Of twelve words, the most that a note may have."""
SENTENCE = (
    "It answers what was meant in words that only this character has, and leaves the player something to ask next."
)
"""Of twenty words, the most that a sentence of reason may have."""
LONGEST_QUOTE = 8
"""In words."""


def iterate_requests() -> Iterator[JudgeRequest]:
    """One reading of a group of 8 for each packaged character, in its first scene: the good reply and spoilt ones."""
    first = {case.cast.sheet.id: case for case in reversed(load_packaged_specimens())}
    yield from map(build_request, first.values())


@cache
def find_case(scene: str) -> GoldCase:
    return next(case for case in load_packaged_specimens() if case.cast.scene.id == scene)


def build_request(case: GoldCase) -> JudgeRequest:
    pairs = build_pairs([case], load_packaged_templates())
    spoilt = (pair.spoilt for pair in pairs if pair.mutation != "repetition")  # three times as long as any reply
    texts = tuple(dict.fromkeys((case.clean, *spoilt, *case.rivals)))[:GROUP]
    assert NpcArena.rubric is not None
    group = CandidateGroup.from_texts(
        Case(
            key=case.cast.scene.id,
            rubric=NpcArena.rubric,
            document=case.document,
            probes=case.probes,
            gates=case.gates,
            sources=case.sources,
            candidates=texts,
        ),
        texts,
    )
    order, _ = build_mirrored_orders(case.cast.scene.id, group.texts, 0)
    return group.build_request(order, "listwise")


def judge_by_words(request: JudgeRequest) -> Judgement:
    """Defects and claims, with their quotes, as the offline judge finds them."""
    return asyncio.run(OfflineJudge().judge(request))


def to_level(score: float | None) -> int | None:
    return None if score is None else round(4 * score)


def shorten(quote: str) -> str:
    """To the most words that a quote may have."""
    return " ".join(quote.split()[:LONGEST_QUOTE])


def write_answer(request: JudgeRequest) -> str:
    """A whole answer, with a sentence for the best, the worst and each with a defect."""
    judgement = judge_by_words(request)
    letters = dict(zip(judgement.order, name_places(len(judgement.order)), strict=True))
    verdicts = {letters[verdict.candidate]: verdict for verdict in judgement.verdicts}
    explained = {letters[name] for tier in (judgement.ranking[0], judgement.ranking[-1]) for name in tier[:1]}
    explained |= {letter for letter, verdict in verdicts.items() if verdict.defects}
    levels = {
        name: None
        if first is None
        else {letter: to_level(verdict.scores[name]) for letter, verdict in verdicts.items()}
        for name, first in judgement.verdicts[0].scores.items()
    }
    return json.dumps(
        {
            "claims": [
                {
                    "candidate": letter,
                    "quote": shorten(claim.quote),
                    "source": claim.source,
                    "source_quote": shorten(claim.source_quote),
                }
                for letter, verdict in verdicts.items()
                for claim in verdict.claims
            ],
            "defects": [
                {"candidate": letter, "code": defect.code, "quote": shorten(defect.quote)}
                for letter, verdict in verdicts.items()
                for defect in verdict.defects
            ],
            "scores": levels,
            "ranking": [[letters[name] for name in tier] for tier in judgement.ranking],
            "notes": {letter: SENTENCE if letter in explained else NOTE for letter in verdicts},
        },
        ensure_ascii=False,
    )
