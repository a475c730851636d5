"""Exports: stored groups, readings and labels as rows of training data, streamed page by page.

Memory use does not depend on the size of an export: a page of groups is read, turned into rows and encoded before the
next one. Reading ends at the newest group of the start, so that the summary counts the same groups as the file.
Whatever is in no row is counted with its reason.
"""

import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from typing import Final, Protocol

from pydantic import BaseModel, JsonValue

from app.domain.groups import Rollout, StoredReading
from app.domain.judging import Judgement
from app.domain.labels import Label, ReplyLabel
from app.domain.tasks import Message, ToolCall
from app.domain.values import FiniteNumber, canonical_json, digest, digest_of_text, replace_lone_surrogates
from app.features.exports.model import (
    ExportFormat,
    ExportRequest,
    ExportShape,
    ExportSummary,
    LeftOut,
    StoredGroup,
)
from app.features.exports.rows import (
    DpoRow,
    ExportedMessage,
    JsonLinesEncoder,
    KtoRow,
    PrivateRow,
    RolloutRow,
    Row,
    RowOrigin,
    SftRow,
    build_origin,
    build_rollout_row,
    compute_value,
    encode_tools,
    export_completion,
    export_messages,
    export_prompt,
    export_tools,
)
from app.features.exports.store import ExportStore
from app.features.labels.store import LabelStore
from app.service.task_cache import TaskCache
from app.store.groups import GroupStore
from app.toolkit.texts import run_in_turn

# Exports as files, in pieces.

MEDIA_TYPES: Final[Mapping[ExportFormat, str]] = {
    "jsonl": "application/x-ndjson",
    "parquet": "application/vnd.apache.parquet",
}


class RowEncoder(Protocol):
    """Encodes rows as a file, in pieces."""

    def encode_rows(self, rows: Sequence[BaseModel]) -> bytes: ...

    def finish(self) -> bytes: ...


_PAGE_SIZE: Final = 64
"""Groups read per page."""


async def stream_export(
    exports: ExportStore, request: ExportRequest, last: int, not_for_training: Collection[str] = ()
) -> AsyncIterator[bytes]:
    """The export file in pieces, oldest groups first, up to sequence `last`. Scores of the judges in `not_for_training`
    are left out unless the request includes them."""
    encoder = await run_in_turn("exports", build_encoder, request.format, _choose_row_type(request))
    choice = _build_row_filter(request, not_for_training)
    async for page in _read_pages(exports, request, 0, last):
        if piece := await run_in_turn("exports", _encode_page, encoder, choice, page):
            yield piece
    if piece := await run_in_turn("exports", encoder.finish):
        yield piece


async def summarise_export(
    exports: ExportStore, request: ExportRequest, last: int, not_for_training: Collection[str] = ()
) -> ExportSummary:
    """What `stream_export` of the same arguments writes and leaves out."""
    choice = _build_row_filter(request, not_for_training)
    rows = 0
    async for page in _read_pages(exports, request, 0, last):
        rows += await run_in_turn("exports", lambda read: sum(1 for _ in choice.select_rows(read)), page)
    return ExportSummary(rows=rows, left_out=dict(sorted((+choice.left_out).items())))


def _read_pages(
    exports: ExportStore, request: ExportRequest, after: int, last: int
) -> AsyncIterator[Sequence[StoredGroup]]:
    with_readings = request.shape == "judgements"
    return exports.read_pages(request.where, after, last, _PAGE_SIZE, with_readings=with_readings)


def _build_row_filter(request: ExportRequest, not_for_training: Collection[str]) -> "_RowFilter | _ReadingFilter":
    """Selects the rows of a request page by page, and counts what it leaves out."""
    return (_ReadingFilter if request.shape == "judgements" else _RowFilter)(request, not_for_training)


def _encode_page(encoder: RowEncoder, choice: "_RowFilter | _ReadingFilter", page: Sequence[StoredGroup]) -> bytes:
    rows = [*choice.select_rows(page)]
    return encoder.encode_rows(rows) if rows else b""


def _choose_row_type(request: ExportRequest) -> type[BaseModel]:
    return PrivateRow if request.private and request.shape == "rollouts" else _ROW_TYPES[request.shape]


def build_encoder(form: ExportFormat, row: type[BaseModel]) -> RowEncoder:
    """The encoder of a format for rows of this class."""
    if form == "jsonl":
        return JsonLinesEncoder()
    # Importing Arrow takes a third of a second, so only Parquet exports do.
    encoder: RowEncoder = import_module("app.features.exports.parquet").ParquetEncoder(row)
    return encoder


# Rows of completions.


class _RowFilter:
    """Selects the rows of a request, and counts by reason the rollouts that are in none. Keeps a 16-byte digest of each
    row to skip duplicates."""

    def __init__(self, request: ExportRequest, not_for_training: Collection[str]) -> None:
        self._request = request
        self._needed = frozenset({"text"} if request.shape == "rollouts" else {"text", "thought"})
        """The parts without which there is no row."""
        self._not_for_training = (
            frozenset() if request.offline_judge else frozenset(not_for_training) - {request.judge or ""}
        )
        self._taken: set[bytes] = set()
        self.left_out: Counter[LeftOut] = Counter()

    def select_rows(self, page: Sequence[StoredGroup]) -> Iterator[Row]:
        for stored in page:
            admitted = self._admit(stored.group.rollouts)
            built = [*_build_rows(stored, self._request, admitted)]
            rows = [row for row in built if self._is_new(row)]
            self.left_out["duplicate"] += len(built) - len(rows)
            self._count_unused(admitted, built)
            yield from rows

    def _admit(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Completions that failed a gate before a judge was asked stay or go with those that were judged, so that no
        filter keeps the failures alone."""
        judged = [self._find_refusal(one) for one in rollouts if one.score.judges]
        of_group = None if None in judged else next(iter(judged), None)
        admitted = []
        for one in rollouts:
            follows = bool(judged) and one.score.gate == 0 and not one.score.judges
            refusal = of_group if follows else self._find_refusal(one)
            if refusal is None:
                admitted.append(one)
            else:
                self.left_out[refusal] += 1
        return admitted

    def _find_refusal(self, rollout: Rollout) -> LeftOut | None:
        if rollout.reduced is not None and not self._needed.isdisjoint(rollout.reduced.missing):
            return "reduced"
        if not self._not_for_training.isdisjoint(rollout.score.judges):
            return "offline_judge"
        return None if self._request.judge in (None, *rollout.score.judges) else "other_judge"

    def _count_unused(self, rollouts: Sequence[Rollout], built: Sequence[Row]) -> None:
        used = {rollout_id for row in built for rollout_id in _list_rollout_ids(row)}
        for one in rollouts:
            if one.rollout_id not in used:
                self.left_out[_explain_absence(one, self._request)] += 1

    def _is_new(self, row: Row) -> bool:
        """Whether the row is new: equal prompt, completion and label count as a duplicate."""
        if not isinstance(row, SftRow | KtoRow):
            return True
        messages = [one.model_dump(mode="json") for one in (*row.prompt, *row.completion)]
        mark = bytes.fromhex(digest([messages, row.tools, row.label if isinstance(row, KtoRow) else None]))
        new = mark not in self._taken
        self._taken.add(mark)
        return new


_SFT_THRESHOLD: Final = 0.7
_KTO_THRESHOLD: Final = 0.5
_MIN_POSITIVE_VALUE: Final = 1e-9
"""Excludes value 0: even the best of a group may be wrong or fail a gate."""
_ROUNDING_TOLERANCE: Final = 1e-9
"""Tolerance for floating-point differences such as 1.0 - 0.9 < 0.1."""
_UNDECIDED_FLAGS: Final = frozenset({"low_signal", "position_dominated"})
"""Flags of groups in which the order of two completions is uncertain."""


def _build_rows(stored: StoredGroup, request: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    """Rows of a group. `rollouts` are the ones that the request admits, in order."""
    if request.shape == "rollouts":
        indices = {one.rollout_id: index for index, one in enumerate(stored.group.rollouts)}
        yield from (
            build_rollout_row(stored, indices[one.rollout_id], one, private=request.private) for one in rollouts
        )
    elif request.shape == "sft":
        yield from _build_sft_rows(stored, request, rollouts)
    elif request.shape == "dpo":
        yield from _build_dpo_rows(stored, request, rollouts)
    else:
        yield from _build_kto_rows(stored, request, rollouts)


def _list_rollout_ids(row: Row) -> tuple[str, ...]:
    """The rollouts that a row was built from."""
    return (row.chosen_id, row.rejected_id) if isinstance(row, DpoRow) else (row.rollout_id,)


def _explain_absence(rollout: Rollout, request: ExportRequest) -> LeftOut:
    """Why an admitted rollout is in no row of its group."""
    if rollout.score.outcome != "scored":
        return rollout.score.outcome
    if request.shape == "dpo":
        return "undecided" if _UNDECIDED_FLAGS & {*rollout.score.flags} else "no_pair"
    value = compute_value(rollout)
    return "below_threshold" if value is None or value < _choose_sft_threshold(request) else "not_best"


def _list_valued_rollouts(rollouts: Sequence[Rollout]) -> list[tuple[float, Rollout]]:
    return [(value, one) for one in rollouts if (value := compute_value(one)) is not None]


def _build_sft_rows(stored: StoredGroup, request: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    least = _choose_sft_threshold(request)
    chosen = [pair for pair in _list_valued_rollouts(rollouts) if pair[0] >= least]
    if request.top_k is not None:
        chosen = sorted(chosen, key=lambda pair: -pair[0])[: request.top_k]
    for value, one in chosen:
        yield SftRow(
            **dict(build_origin(stored)),
            rollout_id=one.rollout_id,
            prompt=export_prompt(stored),
            completion=export_completion(one),
            tools=export_tools(stored),
            value=value,
        )


def _choose_sft_threshold(request: ExportRequest) -> float:
    if request.threshold is not None:
        return request.threshold
    return _SFT_THRESHOLD if request.top_k is None else _MIN_POSITIVE_VALUE


def _build_kto_rows(stored: StoredGroup, request: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    least = _KTO_THRESHOLD if request.threshold is None else request.threshold
    for value, one in _list_valued_rollouts(rollouts):
        yield KtoRow(
            **dict(build_origin(stored)),
            rollout_id=one.rollout_id,
            prompt=export_prompt(stored),
            completion=export_completion(one),
            label=value >= least,
            tools=export_tools(stored),
            value=value,
        )


def _build_dpo_rows(stored: StoredGroup, request: ExportRequest, rollouts: Sequence[Rollout]) -> Iterator[Row]:
    scored = [one for one in rollouts if one.score.reward is not None and not _UNDECIDED_FLAGS & {*one.score.flags}]
    texts = {one.rollout_id: export_completion(one) for one in scored}
    pairs = [
        (better, worse)
        for better in scored
        for worse in scored
        if _is_better_by_margin(better, worse, request.margin) and texts[better.rollout_id] != texts[worse.rollout_id]
    ]
    for better, worse in sorted(pairs, key=lambda pair: _read_reward(pair[1]) - _read_reward(pair[0]))[: request.pairs]:
        yield DpoRow(
            **dict(build_origin(stored)),
            prompt=export_prompt(stored),
            chosen=texts[better.rollout_id],
            rejected=texts[worse.rollout_id],
            tools=export_tools(stored),
            chosen_id=better.rollout_id,
            rejected_id=worse.rollout_id,
            chosen_reward=_read_reward(better),
            rejected_reward=_read_reward(worse),
        )


def _read_reward(rollout: Rollout) -> float:
    return rollout.score.reward or 0.0


def _is_better_by_margin(better: Rollout, worse: Rollout, margin: float) -> bool:
    """Whether the reward is higher by the margin, and neither value nor relative score says the opposite."""
    if _read_reward(better) - _read_reward(worse) < margin - _ROUNDING_TOLERANCE:
        return False
    values = compute_value(better), compute_value(worse)
    standings = better.score.relative, worse.score.relative
    return all(first is None or second is None or first >= second for first, second in (values, standings))


# Rows of what judges were asked and answered.


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


class _ReadingFilter:
    """Selects the readings of a request, and counts by reason those that are in no row. An answer that several groups
    or scorings took from the cache is one row."""

    def __init__(self, request: ExportRequest, not_for_training: Collection[str]) -> None:
        self._request = request
        self._not_for_training = (
            frozenset() if request.offline_judge else frozenset(not_for_training) - {request.judge or ""}
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
        if self._request.judge not in (None, judgement.judge):
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


# Rows of people's labels: one for each pair that a person ordered, in TRL's conversational preference format.

_LABELS_A_PAGE: Final = 64
_NOWHERE: Final[dict[str, object]] = {
    **dict.fromkeys(("group_id", "task_id", "environment", "version", "split", "task_label", "run", "policy"), ""),
    "step": None,
    "lag": None,
}
"""The origin of an imported choice, which is of no group."""


class LabelRow(RowOrigin):
    """A person's choice. Imported ones have no group, and the origin of their chats."""

    label_id: str
    kind: str
    """`queue` and `own_pick` by labelling, `pair` imported, `implicit` and `edit` from chats."""
    labeller: str
    """The name of a key, or one that was given where the service had no keys."""
    on_behalf_of: str
    """Whom the labeller labelled for; empty where nobody was named."""
    verified: bool
    """The labeller is a key, and no name that anybody could give."""
    prompt: tuple[ExportedMessage, ...]
    chosen: tuple[ExportedMessage, ...]
    rejected: tuple[ExportedMessage, ...]
    tools: str
    chosen_id: str
    rejected_id: str
    chosen_levels: str
    """Levels from 0 to 4 by criterion, as JSON."""
    rejected_levels: str
    chosen_defect: bool | None
    rejected_defect: bool | None
    seconds: FiniteNumber | None
    rubric: str
    language: str
    probability: FiniteNumber | None
    """Probability with which an earlier version's queue chose the group; null for labels of this version."""
    source: str
    """File and line of an imported choice."""
    chosen_model: str
    rejected_model: str
    may_be_edited: bool
    """The chosen text may be the player's own."""


class LabelRows:
    """Reads the labels of a request, and counts those that order nothing."""

    def __init__(self, labels: LabelStore, groups: GroupStore, task_cache: TaskCache, request: ExportRequest) -> None:
        self._labels = labels
        self._groups = groups
        self._task_cache = task_cache
        self._request = request
        self.left_out: Counter[LeftOut] = Counter()

    async def read_pages(self) -> AsyncIterator[list[LabelRow]]:
        after, request = 0, self._request
        while page := await self._labels.list_labels(request.environment, request.run, after, _LABELS_A_PAGE):
            after = page[-1][0]
            made = [label for _, label in page if self._is_in_time(label)]
            stored = await self._load_groups([label.group_id for label in made if label.group_id is not None])
            yield [row for label in made for row in self._build_rows(label, stored)]

    def _is_in_time(self, label: Label) -> bool:
        since, until = self._request.since, self._request.until
        return (since is None or label.created_at >= since) and (until is None or label.created_at < until)

    async def _load_groups(self, group_ids: list[str]) -> dict[str, StoredGroup]:
        groups = await self._groups.find(group_ids) if group_ids else {}
        records = await self._task_cache.get([group.task_id for group in groups.values()])
        stored = {}
        for group_id, group in groups.items():
            task = records[group.task_id]
            if group.purpose == self._request.purpose and self._request.label in (None, task.label):
                stored[group_id] = StoredGroup(sequence=0, group=group, task=task)
        return stored

    def _build_rows(self, label: Label, stored: dict[str, StoredGroup]) -> Iterator[LabelRow]:
        if label.choice is not None:
            if self._request.purpose == "train" and self._request.label is None:
                yield from _build_imported_rows(label)
            return
        group = stored.get(label.group_id or "")
        if group is None:
            return
        if group.group.lacks_text:
            self.left_out["reduced"] += 1
            return
        rows = [*_build_group_rows(label, group)]
        self.left_out["no_pair"] += not rows
        yield from rows


async def stream_labels(rows: LabelRows, form: ExportFormat) -> AsyncIterator[bytes]:
    """People's labels as a file in pieces, oldest first."""
    encoder = await run_in_turn("exports", build_encoder, form, LabelRow)
    async for page in rows.read_pages():
        if page and (piece := await run_in_turn("exports", encoder.encode_rows, page)):
            yield piece
    if piece := await run_in_turn("exports", encoder.finish):
        yield piece


async def summarise_labels(rows: LabelRows) -> ExportSummary:
    """What `stream_labels` of the same rows writes and leaves out."""
    count = 0
    async for page in rows.read_pages():
        count += len(page)
    return ExportSummary(rows=count, left_out=dict(sorted((+rows.left_out).items())))


def _describe_label(label: Label) -> dict[str, object]:
    return {
        "label_id": label.label_id,
        "kind": label.kind,
        "labeller": label.labeller,
        "on_behalf_of": label.on_behalf_of,
        "verified": label.verified,
        "created_at": label.created_at.isoformat(),
        "seconds": label.seconds,
        "rubric": "" if label.rubric is None else f"{label.rubric.name} {label.rubric.version}",
        "language": label.language,
        "probability": None if label.draw is None else label.draw.probability,
    }


def _build_group_rows(label: Label, stored: StoredGroup) -> Iterator[LabelRow]:
    """Ties make no row."""
    texts = {one.rollout_id: export_completion(one) for one in stored.group.rollouts}
    origin = dict(build_origin(stored)) | _describe_label(label)
    origin |= {"prompt": export_prompt(stored), "tools": export_tools(stored), "source": "", "may_be_edited": False}
    origin |= dict.fromkeys(("chosen_model", "rejected_model"), str(origin["policy"]))
    for rank, tier in enumerate(label.order):
        for better, worse in ((one, other) for one in tier for after in label.order[rank + 1 :] for other in after):
            yield LabelRow.model_validate(
                origin
                | {"chosen": texts[better], "rejected": texts[worse], "chosen_id": better, "rejected_id": worse}
                | _describe_reply("chosen", label.replies.get(better, ReplyLabel()))
                | _describe_reply("rejected", label.replies.get(worse, ReplyLabel()))
            )


def _describe_reply(side: str, label: ReplyLabel) -> dict[str, object]:
    return {f"{side}_levels": canonical_json(label.levels), f"{side}_defect": label.defect}


def _build_imported_rows(label: Label) -> Iterator[LabelRow]:
    choice = label.choice
    assert choice is not None  # noqa: S101
    origin = _NOWHERE | {"chosen_id": "", "rejected_id": ""} | _describe_label(label)
    origin |= {"tools": encode_tools(choice.tools)}
    origin |= {"source": choice.source, "chosen_model": choice.chosen_model, "may_be_edited": choice.may_be_edited}
    origin |= _describe_reply("chosen", ReplyLabel()) | _describe_reply("rejected", ReplyLabel())
    models = choice.rejected_models or ("",) * len(choice.rejected)
    calls = choice.rejected_calls or ((),) * len(choice.rejected)
    for text, made, model in zip(choice.rejected, calls, models, strict=False):
        yield LabelRow.model_validate(
            origin
            | {"prompt": export_messages(choice.prompt), "rejected_model": model}
            | {"chosen": _export_reply(choice.chosen, choice.chosen_calls), "rejected": _export_reply(text, made)}
        )


def _export_reply(text: str, calls: Sequence[ToolCall]) -> tuple[ExportedMessage, ...]:
    return export_messages([Message(role="assistant", content=text, tool_calls=tuple(calls))])


_ROW_TYPES: Final[Mapping[ExportShape, type[BaseModel]]] = {
    "rollouts": RolloutRow,
    "sft": SftRow,
    "dpo": DpoRow,
    "kto": KtoRow,
    "judgements": JudgementRow,
    "labels": LabelRow,
}


# What an export would hold, of a bounded number of groups.

_COUNTED: Final[tuple[ExportShape, ...]] = ("rollouts", "sft", "dpo", "kto")
"""Shapes of completions, which one reading counts."""
_SHOWN_ROWS: Final = 5


@dataclass(frozen=True)
class ExportPreview:
    """`groups` were read, the last of them with sequence `newest`. `rows` are the first ones of the wanted shape."""

    groups: int
    summaries: dict[ExportShape, ExportSummary]
    rows: tuple[dict[str, JsonValue], ...]


async def preview_export(
    exports: ExportStore, request: ExportRequest, after: int, last: int, not_for_training: Collection[str] = ()
) -> ExportPreview:
    """Of the groups after one sequence and up to another: few, since all of them are read."""
    shapes = _COUNTED if request.shape in _COUNTED else (*_COUNTED, request.shape)
    choices = {
        shape: _build_row_filter(request.model_copy(update={"shape": shape}), not_for_training) for shape in shapes
    }
    counts = dict.fromkeys(shapes, 0)
    shown: list[BaseModel] = []
    groups = 0
    async for page in _read_pages(exports, request, after, last):
        groups += len(page)
        for shape, choice in choices.items():
            rows = list(choice.select_rows(page))
            counts[shape] += len(rows)
            if shape == request.shape:
                shown += rows[: _SHOWN_ROWS - len(shown)]
    summaries = {
        shape: ExportSummary(rows=counts[shape], left_out=dict(sorted((+choices[shape].left_out).items())))
        for shape in shapes
    }
    return ExportPreview(groups, summaries, tuple(row.model_dump(mode="json") for row in shown))


async def preview_labels(labels: LabelRows, most: int) -> ExportPreview:
    """Until so many rows were read."""
    rows = 0
    shown: list[BaseModel] = []
    async for page in labels.read_pages():
        rows += len(page)
        shown += islice(page, _SHOWN_ROWS - len(shown))
        if rows >= most:
            break
    summary = ExportSummary(rows=rows, left_out=dict(sorted((+labels.left_out).items())))
    return ExportPreview(0, {"labels": summary}, tuple(row.model_dump(mode="json") for row in shown))
