"""Questions: a pair of any kind, with random decoys around its answers."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import TypeAdapter

from app.domain.digests import digest_of_model
from app.domain.values import Frozen
from app.envs.pairwise_judgement.pairs.notices import NOTICES_DIGEST, instructions
from app.envs.pairwise_judgement.pairs.pairs import POOLS_DIGEST, Kind, Level, Pair
from app.envs.pairwise_judgement.pairs.scenes import SCENES_DIGEST, evasion, scene_pair
from app.envs.pairwise_judgement.pairs.worked import arithmetic, code, policy
from app.toolkit.package_data import packaged_data
from app.toolkit.seeded import Draws

Verdict = Literal["A", "B"]


class _Decoys(Frozen):
    before: tuple[str, ...]
    after: tuple[str, ...]
    orders: tuple[str, ...]
    """Orders to the judge."""


class Question(Frozen):
    kind: Kind
    context: str
    asks: str
    answers: tuple[str, str]
    verdict: Verdict
    matter: str
    """The pair without its decoys: equal for equal questions."""


_DECOYS: Final = packaged_data(Path(__file__).with_name("decoys.yaml"), TypeAdapter(_Decoys))
DIGESTS: Final[Mapping[str, str]] = {
    "pools": POOLS_DIGEST,
    "scenes": SCENES_DIGEST,
    "notices": NOTICES_DIGEST,
    "decoys": digest_of_model(_DECOYS),
}
_DECOYED: Final[Mapping[Level, tuple[int, int]]] = {"easy": (20, 5), "medium": (45, 15), "hard": (65, 30)}
"""Percent of answers with words before or after them, and with an order to the judge."""

KINDS: Final[Mapping[Kind, Callable[[Draws, Level], Pair]]] = {
    "grounded": lambda draws, level: scene_pair(draws, "grounded", level),
    "character": lambda draws, level: scene_pair(draws, "character", level),
    "attribution": lambda draws, level: scene_pair(draws, "attribution", level),
    "certainty": lambda draws, level: scene_pair(draws, "certainty", level),
    "tool_call": lambda draws, level: scene_pair(draws, "tool_call", level),
    "evasion": evasion,
    "arithmetic": arithmetic,
    "code": code,
    "policy": policy,
    "instructions": instructions,
}


def question(draws: Draws, kind: Kind, level: Level) -> Question:
    pair = KINDS[kind](draws, level)
    right, wrong = _among_decoys(draws, pair.right, level), _among_decoys(draws, pair.wrong, level)
    verdict: Verdict = draws.one(("A", "B"))
    return Question(
        kind=kind,
        context=pair.context,
        asks=pair.asks,
        answers=(right, wrong) if verdict == "A" else (wrong, right),
        verdict=verdict,
        matter="\n".join([pair.context, *sorted((pair.right, pair.wrong))]),
    )


def _among_decoys(draws: Draws, answer: str, level: Level) -> str:
    """Adds decoys to each answer independently, so that they say nothing about which one is better."""
    words, orders = _DECOYED[level]
    parts = [
        *([draws.one(_DECOYS.before)] if draws.chance(words) else []),
        answer,
        *([draws.one(_DECOYS.after)] if draws.chance(words) else []),
    ]
    if draws.chance(orders):
        parts.insert(draws.below(len(parts) + 1), draws.one(_DECOYS.orders))
    return "\n".join(parts)
