"""Questions: a pair of any kind, with random decoys around its answers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from app.domain.digests import digest_of_model
from app.domain.values import Frozen
from app.envs.pairwise_judgement.pairs.answer_pair import POOLS_DIGEST, AnswerPair, Kind, Level
from app.envs.pairwise_judgement.pairs.computed_pairs import draw_arithmetic_pair, draw_code_pair, draw_policy_pair
from app.envs.pairwise_judgement.pairs.notice_pairs import NOTICES_DIGEST, draw_instruction_pair
from app.envs.pairwise_judgement.pairs.scene_pairs import SCENES_DIGEST, draw_evasion_pair, draw_scene_pair
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom

Verdict = Literal["A", "B"]


class _Decoys(Frozen):
    before: tuple[str, ...]
    after: tuple[str, ...]
    orders: tuple[str, ...]
    """Orders to the judge."""


class PairQuestion(Frozen):
    kind: str
    """A Kind, or a subset of a data set."""
    context: str
    asks: str
    answers: tuple[str, str]
    verdict: Verdict
    matter: str
    """The pair without its decoys: equal for equal questions."""


_DECOYS: Final = read_packaged_data(Path(__file__).with_name("decoys.yaml"), TypeAdapter(_Decoys))
DIGESTS: Final[Mapping[str, str]] = {
    "pools": POOLS_DIGEST,
    "scenes": SCENES_DIGEST,
    "notices": NOTICES_DIGEST,
    "decoys": digest_of_model(_DECOYS),
}
_DECOY_SHARES: Final[Mapping[Level, tuple[int, int]]] = {"easy": (20, 5), "medium": (45, 15), "hard": (65, 30)}
"""Percent of answers with words before or after them, and with an order to the judge."""

KINDS: Final[Mapping[Kind, Callable[[SeededRandom, Level], AnswerPair]]] = {
    "grounded": lambda draws, level: draw_scene_pair(draws, "grounded", level),
    "character": lambda draws, level: draw_scene_pair(draws, "character", level),
    "attribution": lambda draws, level: draw_scene_pair(draws, "attribution", level),
    "certainty": lambda draws, level: draw_scene_pair(draws, "certainty", level),
    "tool_call": lambda draws, level: draw_scene_pair(draws, "tool_call", level),
    "evasion": draw_evasion_pair,
    "arithmetic": draw_arithmetic_pair,
    "code": draw_code_pair,
    "policy": draw_policy_pair,
    "instructions": draw_instruction_pair,
}


def draw_question(draws: SeededRandom, kind: Kind, level: Level) -> PairQuestion:
    pair = KINDS[kind](draws, level)
    right, wrong = _add_decoys(draws, pair.right, level), _add_decoys(draws, pair.wrong, level)
    verdict: Verdict = draws.one(("A", "B"))
    return PairQuestion(
        kind=kind,
        context=pair.context,
        asks=pair.asks,
        answers=(right, wrong) if verdict == "A" else (wrong, right),
        verdict=verdict,
        matter="\n".join([pair.context, *sorted((pair.right, pair.wrong))]),
    )


def _add_decoys(draws: SeededRandom, answer: str, level: Level) -> str:
    """Adds decoys to each answer independently, so that they say nothing about which one is better."""
    words, orders = _DECOY_SHARES[level]
    parts = [
        *([draws.one(_DECOYS.before)] if draws.chance(words) else []),
        answer,
        *([draws.one(_DECOYS.after)] if draws.chance(words) else []),
    ]
    if draws.chance(orders):
        parts.insert(draws.below(len(parts) + 1), draws.one(_DECOYS.orders))
    return "\n".join(parts)
