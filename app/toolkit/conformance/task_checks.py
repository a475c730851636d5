"""Checks of tasks: deterministic, distinct, separate splits, no leaked answers."""

import inspect
import json
from collections.abc import AsyncIterator
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.domain.values import Name
from app.toolkit.conformance.findings import ConformanceFinding
from app.toolkit.conformance.subject import (
    SPLITS,
    CheckDepth,
    CheckSubject,
    compute_sample_digest,
    format_prompt,
    shorten_reply,
)

DISTINCT: Final = 0.98
"""Minimum fraction of distinct prompts."""
MOST_LABELS: Final = 100
"""Maximum number of label values."""
LABELLED: Final = 200
"""Number of tasks whose labels are counted."""
_PURE = (
    "Take all randomness from `app.toolkit.seeded.SeededRandom`, seeded with split, params and index. Time, `random`, "
    "`hash` and the order of sets differ between processes."
)


async def says_what_it_is(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    kind = type(subject.environment)
    try:
        TypeAdapter(Name).validate_python(kind.name)
    except ValidationError:
        yield ConformanceFinding(
            task="",
            expected="a name of lower-case letters, digits, - and _, since it is part of URLs",
            came=repr(kind.name),
            mend="Rename it.",
        )
    if not getattr(kind, "version", ""):
        yield ConformanceFinding(task="", expected="a version", came="none", mend='Set `version`, such as "1".')
    module = inspect.getmodule(kind)
    if module is None or not (module.__doc__ or "").strip():
        yield ConformanceFinding(
            task="",
            expected="a module docstring, whose first paragraph is the description in the catalogue",
            came="none",
            mend="Describe the task, an example of prompt, reply and reward, and what earns nothing.",
        )
    if not 0 <= kind.chance < 1:
        yield ConformanceFinding(
            task="", expected="`chance` in [0, 1)", came=str(kind.chance), mend="It is a fraction of tasks."
        )
    for split in SPLITS:
        size = subject.environment.size(split, kind.Params())
        if size is not None and size < 1:
            yield ConformanceFinding(
                task="",
                expected=f"tasks in {split}",
                came=f"size {size}",
                mend="Return None from `size` for an endless split.",
            )


async def the_same_bytes(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for split in SPLITS:
        for one, again in zip(
            subject.make_tasks(split, subject.depth.sample), subject.remake_sample(split), strict=False
        ):
            if one.task.model_dump_json() != again.task.model_dump_json():
                yield ConformanceFinding(
                    task=str(one),
                    expected="the same task from the same index every time",
                    came=f"{shorten_reply(format_prompt(one.task))}, then {shorten_reply(format_prompt(again.task))}",
                    mend=_PURE,
                )
    told = {} if subject.elsewhere is None else await subject.elsewhere()
    for split, elsewhere in told.items():
        if elsewhere != compute_sample_digest(subject.environment, split):
            yield ConformanceFinding(
                task=f"{split} 0 to {CheckDepth.sample - 1}",
                expected="the same tasks in every process",
                came="different tasks in a separate process",
                mend=_PURE,
            )


async def splits_stay_apart(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    train = {format_prompt(one.task): one for one in subject.make_tasks("train")}
    for one in subject.make_tasks("test"):
        if format_prompt(one.task) in train:
            yield ConformanceFinding(
                task=str(one),
                expected="no prompt in both splits",
                came=f"{train[format_prompt(one.task)]} has the same prompt: {shorten_reply(format_prompt(one.task))}",
                mend="Derive the split from the content with `app.toolkit.seeded.draw_apart`, which "
                "`app.toolkit.procedural` uses with `key`. Equal keys share a split; a key must hold everything that "
                "makes two tasks different.",
            )


async def tasks_differ(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    tasks = subject.make_tasks("train")
    distinct = len({format_prompt(one.task) for one in tasks})
    if distinct < DISTINCT * len(tasks):
        yield ConformanceFinding(
            task="",
            expected=f"{DISTINCT:.0%} of {len(tasks):,} prompts distinct",
            came=f"{distinct:,}",
            mend="Add variety: larger numbers, longer lists, more parts, several phrasings.",
        )


async def the_answer_is_hidden(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    for one in subject.make_sample():
        public = json.dumps([one.task.metadata, [tool.model_dump(mode="json") for tool in one.task.tools]])
        secret = json.dumps(one.task.reference)
        if len(secret) > 4 and secret.strip('"') in public:
            yield ConformanceFinding(
                task=str(one),
                expected="metadata and tools without the reference",
                came=f"metadata {shorten_reply(json.dumps(one.task.metadata))}",
                mend="Metadata are public. Put everything that reveals the answer into `reference`.",
            )


async def labels_agree(subject: CheckSubject) -> AsyncIterator[ConformanceFinding]:
    environment, params = subject.environment, subject.environment.Params()
    sample = subject.make_sample()
    for one in sample:
        said = one.task.metadata.get(environment.stats_label or "")
        label = environment.label(one.split, one.index, params)
        if label != said:
            yield ConformanceFinding(
                task=str(one),
                expected=f"`label` equal to {environment.stats_label!r} in the metadata",
                came=f"{label!r} and {said!r}",
                mend="`label` must return the value that `task` writes to the metadata.",
            )
    values = {one.task.metadata.get(environment.stats_label or "") for one in subject.make_tasks("train", LABELLED)} - {
        None
    }
    if environment.stats_label is not None and not 0 < len(values) <= MOST_LABELS:
        yield ConformanceFinding(
            task="",
            expected=f"tasks with 1 to {MOST_LABELS} different values of {environment.stats_label!r} in their metadata",
            came=str(len(values)),
            mend="Set `stats_label` to a metadata key with few values, such as a level or a kind of task.",
        )
