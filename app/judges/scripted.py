"""A judge with scripted verdicts, for tests and demonstrations."""

import random
from collections.abc import Callable, Mapping
from typing import Final

from app.domain.digests import digest, digest_of_text
from app.domain.judging import Judgement, JudgeRequest, Verdict
from app.judges.offline import rank_candidates

Script = Callable[[JudgeRequest, int], Mapping[str, float] | str]
"""From a request and the number of earlier requests: a quality in [0, 1] per candidate id, or an error message."""

MODEL: Final = "scripted-1"


class ScriptedJudge:
    """Gives every criterion the script's quality, and ranks by it. `requests` records all requests."""

    model = MODEL

    def __init__(self, script: Script, name: str = "scripted") -> None:
        self.name = name
        self.digest = digest([MODEL, name])
        self.requests: list[JudgeRequest] = []
        self._script = script

    async def judge(self, request: JudgeRequest) -> Judgement:
        said = self._script(request, len(self.requests))
        self.requests.append(request)
        order = tuple(candidate.id for candidate in request.candidates)
        if isinstance(said, str):
            return Judgement(judge=self.name, model=self.model, order=order, error=said)
        return Judgement(
            judge=self.name,
            model=self.model,
            order=order,
            verdicts=tuple(
                Verdict(candidate=name, scores={criterion.name: said[name] for criterion in request.rubric.criteria})
                for name in order
            ),
            ranking=rank_candidates({name: said[name] for name in order}),
        )


def score_by_text(qualities: Mapping[str, float], otherwise: float = 0.0) -> Script:
    """A fixed quality per text, at any position."""
    return lambda request, _: {
        candidate.id: qualities.get(candidate.text, otherwise) for candidate in request.candidates
    }


def score_by_position(request: JudgeRequest, count: int) -> Mapping[str, float]:
    """Prefers earlier positions, regardless of the texts."""
    return {candidate.id: 1.0 / (slot + 1) for slot, candidate in enumerate(request.candidates)}


def score_equally(request: JudgeRequest, count: int) -> Mapping[str, float]:
    return {candidate.id: 0.5 for candidate in request.candidates}


def score_randomly(seed: int) -> Script:
    """Random qualities, repeatable by seed."""

    def score_request(request: JudgeRequest, count: int) -> Mapping[str, float]:
        order = "\n".join(candidate.text for candidate in request.candidates)
        chance = random.Random(f"{seed} {count} {digest_of_text(order)}")  # noqa: S311
        return {candidate.id: chance.random() for candidate in request.candidates}

    return score_request


def fail_requests(words: str = "the judge is out", first: int | None = None) -> Script:
    """Fails always, or only for the `first` requests and is indifferent afterwards."""
    return lambda request, count: words if first is None or count < first else score_equally(request, count)


def fail_requests_at(places: frozenset[int], otherwise: Script) -> Script:
    """Fails at the given requests, counted from 0."""
    return lambda request, count: "the judge is out" if count in places else otherwise(request, count)
