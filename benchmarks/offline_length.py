"""`python -m benchmarks.offline_length`: how far the offline judge pays for length, on the good replies that ship.

r is the correlation of a reply's words with its score, both less the mean of their scene: over the good replies of
other characters, which were not written for the scene, and over the beginnings of its own good reply, by sentences.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from app.cli.judges import load_packaged_specimens
from app.domain.judging import compute_absolute_score
from app.envs.npc_arena.environment import NpcArena
from app.judges.gold_cases import GoldCase, build_check_request
from app.judges.offline import OfflineJudge, split_sentences
from benchmarks.results import read_arguments
from benchmarks.simulated_judges import centre, correlate

assert NpcArena.rubric is not None
RUBRIC: Final = NpcArena.rubric


def list_rivals(gold: GoldCase) -> Sequence[str]:
    return gold.rivals


def list_beginnings(gold: GoldCase) -> Sequence[str]:
    sentences = split_sentences(gold.clean)
    return [" ".join(sentences[:count]) for count in range(1, len(sentences) + 1)]


async def measure(choose: Callable[[GoldCase], Sequence[str]]) -> dict[str, float]:
    """By criterion, and for the whole."""
    lengths: list[float] = []
    values: dict[str, list[float]] = {}
    for gold in load_packaged_specimens():
        texts = choose(gold)
        if len(texts) < 2:
            continue
        candidates = tuple(gold.build_candidate(f"c{place}", text) for place, text in enumerate(texts))
        found = await OfflineJudge().judge(build_check_request(gold, RUBRIC, candidates))
        lengths += centre([float(len(text.split())) for text in texts])
        scores = [{**each.scores, "absolute": compute_absolute_score(RUBRIC, each.scores)} for each in found.verdicts]
        for name in scores[0]:
            values.setdefault(name, []).extend(centre([score[name] or 0.0 for score in scores]))
    return {name: correlate(lengths, listed) for name, listed in values.items()}


async def report() -> None:
    for words, choose in (
        ("other characters' good replies", list_rivals),
        ("beginnings of the good reply", list_beginnings),
    ):
        print(words)
        for name, r in (await measure(choose)).items():
            print(f"  {name:28} {r:5.2f}")


if __name__ == "__main__":
    read_arguments()
    asyncio.run(report())
