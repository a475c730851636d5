"""Rows of what judges were asked and answered."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from app.domain.digests import digest_of_text
from app.domain.exports import ExportRequest, LeftOut, StoredGroup, StoredReading
from app.domain.judging import Judgement
from app.domain.values import FiniteNumber
from app.service.exports.chat_messages import ExportedMessage, replace_lone_surrogates
from app.service.exports.row_models import RowOrigin, build_origin


class JudgementRow(RowOrigin):
    """One reading. `messages` and `answer` are a conversation to train another judge on."""

    purpose: str
    judged_for: str
    """`score`, or `calibration` for a reading beside replies of known level."""
    judge: str
    model_name: str
    """The judge's model."""
    messages: tuple[ExportedMessage, ...]
    """The judge's prompt. For a reward model: the conversation with the reply."""
    answer: str
    """The judge's answer, word for word. For a reward model: the reward by candidate, as JSON."""
    candidates: tuple[str, ...]
    """Ids of the candidates, in presentation order."""
    input_tokens: int
    output_tokens: int
    calls: int
    """Requests to the judge; 0 if the answer came from the cache. Then the first row has the cost."""
    cost_usd: FiniteNumber | None
    latency_seconds: FiniteNumber
    prompt_digest: str
    """Digest of the prompt and the judge."""
    reading: str
    """Cache key of the answer: a digest of the question."""
    scoring_id: str
    """Id of the rescoring that the reading belongs to; empty for the group's own scores."""
    scoring_digest: str
    """Digest of the scoring rule, for the group's own scores; empty for a rescoring."""


class ReadingFilter:
    """Selects the readings of a request, and counts by reason those that are in no row. An answer that several groups
    or scorings took from the cache is one row."""

    def __init__(self, wanted: ExportRequest, not_for_training: Collection[str]) -> None:
        self._wanted = wanted
        self._not_for_training = (
            frozenset() if wanted.offline_judge else frozenset(not_for_training) - {wanted.judge or ""}
        )
        self._taken: set[str] = set()
        self.left_out: Counter[LeftOut] = Counter()

    def select_rows(self, page: Sequence[StoredGroup]) -> Iterator[JudgementRow]:
        for stored in page:
            for reading in stored.readings:
                refusal = self._find_refusal(reading.judgement)
                if refusal is None:
                    yield _build_row(stored, reading)
                else:
                    self.left_out[refusal] += 1

    def _find_refusal(self, judgement: Judgement) -> LeftOut | None:
        if judgement.judge in self._not_for_training:
            return "offline_judge"
        if self._wanted.judge not in (None, judgement.judge):
            return "other_judge"
        if judgement.reduced is not None:
            return "reduced"
        if (
            judgement.purpose == "references"
            or judgement.error is not None
            or not judgement.prompt
            or not judgement.raw
        ):
            return "no_answer"
        mark = digest_of_text(f"{judgement.reading or judgement.prompt_digest} {judgement.raw}")
        if mark in self._taken:
            return "duplicate"
        self._taken.add(mark)
        return None


def _build_row(stored: StoredGroup, reading: StoredReading) -> JudgementRow:
    judgement = reading.judgement
    return JudgementRow(
        **dict(build_origin(stored)),
        purpose=stored.group.purpose,
        judged_for=judgement.purpose,
        judge=judgement.judge,
        model_name=judgement.model,
        messages=_read_messages(judgement.prompt),
        answer=replace_lone_surrogates(judgement.raw),
        candidates=judgement.order,
        input_tokens=judgement.input_tokens,
        output_tokens=judgement.output_tokens,
        calls=judgement.calls,
        cost_usd=judgement.cost_usd,
        latency_seconds=judgement.latency_seconds,
        prompt_digest=judgement.prompt_digest,
        reading=judgement.reading,
        scoring_id=reading.scoring_id,
        scoring_digest="" if reading.scoring_id else _find_scoring_digest(stored),
    )


def _find_scoring_digest(stored: StoredGroup) -> str:
    return next((one.score.scoring_digest for one in stored.group.rollouts if one.score.scoring_digest), "")


def _read_messages(prompt: str) -> tuple[ExportedMessage, ...]:
    """A prompt is stored as a list of messages, or as a list with such a list for each candidate."""
    try:
        listed: object = json.loads(prompt)
    except ValueError:
        listed = None
    if isinstance(listed, list) and listed and all(isinstance(one, list) for one in listed):
        listed = [message for one in listed for message in one]
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        return (ExportedMessage(role="user", content=replace_lone_surrogates(prompt)),)
    return tuple(
        ExportedMessage(role=str(one.get("role")), content=replace_lone_surrogates(str(one.get("content"))))
        for one in listed
    )
