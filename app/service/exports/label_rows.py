"""Rows of people's labels: a row for each pair that a person ordered, in TRL's conversational preference format."""

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Final

from app.domain.digests import canonical_json
from app.domain.exports import ExportRequest, LeftOut, StoredGroup
from app.domain.labels import Label, ReplyLabel
from app.domain.values import FiniteNumber
from app.ports.labelling import LabelStore
from app.ports.store import GroupStore
from app.service.exports.chat_messages import ExportedMessage, export_messages, replace_lone_surrogates
from app.service.exports.row_models import RowOrigin, build_origin, export_completion, export_prompt, export_tools
from app.service.task_cache import TaskCache

_LABELS_A_PAGE: Final = 64
_NOWHERE: Final[dict[str, object]] = {
    **dict.fromkeys(("group_id", "task_id", "environment", "version", "split", "task_label", "run", "policy"), ""),
    "step": None,
    "lag": None,
}


class LabelRow(RowOrigin):
    """A person's choice. Imported ones have no group, and the origin of their chats."""

    label_id: str
    kind: str
    """`queue` and `own_pick` by labelling, `pair` imported, `implicit` and `edit` from chats."""
    labeller: str
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
    """Probability with which the queue chose the group; null if a person chose it."""
    source: str
    """File and line of an imported choice."""
    chosen_model: str
    rejected_model: str
    may_be_edited: bool
    """The chosen text may be the player's own."""


class LabelRows:
    """Reads the labels of a request, and counts those that order nothing."""

    def __init__(self, labels: LabelStore, groups: GroupStore, task_cache: TaskCache, wanted: ExportRequest) -> None:
        self._labels = labels
        self._groups = groups
        self._task_cache = task_cache
        self._wanted = wanted
        self.left_out: Counter[LeftOut] = Counter()

    async def read_pages(self) -> AsyncIterator[list[LabelRow]]:
        after = 0
        while page := await self._labels.list_labels(self._wanted.env, self._wanted.run, after, _LABELS_A_PAGE):
            after = page[-1][0]
            made = [label for _, label in page if self._is_in_time(label)]
            stored = await self._load_groups([label.group_id for label in made if label.group_id is not None])
            yield [row for label in made for row in self._build_rows(label, stored)]

    def _is_in_time(self, label: Label) -> bool:
        since, until = self._wanted.since, self._wanted.until
        return (since is None or label.created_at >= since) and (until is None or label.created_at < until)

    async def _load_groups(self, group_ids: list[str]) -> dict[str, StoredGroup]:
        groups = await self._groups.find(group_ids) if group_ids else {}
        records = await self._task_cache.get([group.task_id for group in groups.values()])
        found = {}
        for group_id, group in groups.items():
            task = records[group.task_id]
            if group.purpose == self._wanted.purpose and self._wanted.label in (None, task.label):
                found[group_id] = StoredGroup(sequence=0, group=group, task=task)
        return found

    def _build_rows(self, label: Label, stored: dict[str, StoredGroup]) -> Iterator[LabelRow]:
        if label.choice is not None:
            if self._wanted.purpose == "train" and self._wanted.label is None:
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


def _describe_label(label: Label) -> dict[str, object]:
    return {
        "label_id": label.label_id,
        "kind": label.kind,
        "labeller": label.labeller,
        "created_at": label.created_at.isoformat(),
        "seconds": label.seconds,
        "rubric": "" if label.rubric is None else f"{label.rubric.name} {label.rubric.version}",
        "language": label.language,
        "probability": None if label.draw is None else label.draw.probability,
    }


def _build_group_rows(label: Label, stored: StoredGroup) -> Iterator[LabelRow]:
    """Ties make no row."""
    said = {one.rollout_id: export_completion(one) for one in stored.group.rollouts}
    origin = dict(build_origin(stored)) | _describe_label(label)
    origin |= {"prompt": export_prompt(stored), "tools": export_tools(stored), "source": "", "may_be_edited": False}
    origin |= dict.fromkeys(("chosen_model", "rejected_model"), str(origin["policy"]))
    for place, tier in enumerate(label.order):
        for better, worse in ((one, other) for one in tier for after in label.order[place + 1 :] for other in after):
            yield LabelRow.model_validate(
                origin
                | {"chosen": said[better], "rejected": said[worse], "chosen_id": better, "rejected_id": worse}
                | _describe_reply("chosen", label.replies.get(better, ReplyLabel()))
                | _describe_reply("rejected", label.replies.get(worse, ReplyLabel()))
            )


def _describe_reply(side: str, said: ReplyLabel) -> dict[str, object]:
    return {f"{side}_levels": canonical_json(said.levels), f"{side}_defect": said.defect}


def _build_imported_rows(label: Label) -> Iterator[LabelRow]:
    choice = label.choice
    assert choice is not None  # noqa: S101
    origin = _NOWHERE | {"tools": "[]", "chosen_id": "", "rejected_id": ""} | _describe_label(label)
    origin |= {"source": choice.source, "chosen_model": choice.chosen_model, "may_be_edited": choice.may_be_edited}
    origin |= _describe_reply("chosen", ReplyLabel()) | _describe_reply("rejected", ReplyLabel())
    models = choice.rejected_models or ("",) * len(choice.rejected)
    for text, model in zip(choice.rejected, models, strict=False):
        yield LabelRow.model_validate(
            origin
            | {"prompt": export_messages(choice.prompt), "rejected_model": model}
            | {"chosen": _export_text(choice.chosen), "rejected": _export_text(text)}
        )


def _export_text(text: str) -> tuple[ExportedMessage, ...]:
    return (ExportedMessage(role="assistant", content=replace_lone_surrogates(text)),)
