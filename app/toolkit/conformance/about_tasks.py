"""Checks of tasks: deterministic, distinct, separate splits, no leaked answers."""

import inspect
import json
from collections.abc import AsyncIterator
from typing import Final

from pydantic import TypeAdapter, ValidationError

from app.domain.values import Name
from app.toolkit.conformance.findings import Finding
from app.toolkit.conformance.subject import SPLITS, Depth, Subject, digest_of_sample, excerpt, prompt_of

DISTINCT: Final = 0.98
"""Minimum fraction of distinct prompts."""
MOST_LABELS: Final = 100
"""Maximum number of label values."""
LABELLED: Final = 200
"""Number of tasks whose labels are counted."""
_PURE = (
    "Take all randomness from `app.toolkit.seeded.Draws`, seeded with split, params and index. Time, `random`, "
    "`hash` and the order of sets differ between processes."
)


async def says_what_it_is(subject: Subject) -> AsyncIterator[Finding]:
    kind = type(subject.environment)
    try:
        TypeAdapter(Name).validate_python(kind.name)
    except ValidationError:
        yield Finding(
            task="",
            expected="a name of lower-case letters, digits, - and _, since it is part of URLs",
            came=repr(kind.name),
            mend="Rename it.",
        )
    if not getattr(kind, "version", ""):
        yield Finding(task="", expected="a version", came="none", mend='Set `version`, such as "1".')
    module = inspect.getmodule(kind)
    if module is None or not (module.__doc__ or "").strip():
        yield Finding(
            task="",
            expected="a module docstring, whose first paragraph is the description in the catalogue",
            came="none",
            mend="Describe the task, an example of prompt, reply and reward, and what earns nothing.",
        )
    if not 0 <= kind.chance < 1:
        yield Finding(task="", expected="`chance` in [0, 1)", came=str(kind.chance), mend="It is a fraction of tasks.")
    for split in SPLITS:
        size = subject.environment.size(split, kind.Params())
        if size is not None and size < 1:
            yield Finding(
                task="",
                expected=f"tasks in {split}",
                came=f"size {size}",
                mend="Return None from `size` for an endless split.",
            )


async def the_same_bytes(subject: Subject) -> AsyncIterator[Finding]:
    for split in SPLITS:
        for one, again in zip(subject.tasks(split, subject.depth.sample), subject.remade(split), strict=False):
            if one.task.model_dump_json() != again.task.model_dump_json():
                yield Finding(
                    task=str(one),
                    expected="the same task from the same index every time",
                    came=f"{excerpt(prompt_of(one.task))}, then {excerpt(prompt_of(again.task))}",
                    mend=_PURE,
                )
    told = {} if subject.elsewhere is None else await subject.elsewhere()
    for split, elsewhere in told.items():
        if elsewhere != digest_of_sample(subject.environment, split):
            yield Finding(
                task=f"{split} 0 to {Depth.sample - 1}",
                expected="the same tasks in every process",
                came="different tasks in a separate process",
                mend=_PURE,
            )


async def splits_stay_apart(subject: Subject) -> AsyncIterator[Finding]:
    train = {prompt_of(one.task): one for one in subject.tasks("train")}
    for one in subject.tasks("test"):
        if prompt_of(one.task) in train:
            yield Finding(
                task=str(one),
                expected="no prompt in both splits",
                came=f"{train[prompt_of(one.task)]} has the same prompt: {excerpt(prompt_of(one.task))}",
                mend="Derive the split from the content with `app.toolkit.seeded.drawn_apart`, which "
                "`app.toolkit.procedural` uses with `key`. Equal keys share a split; a key must hold everything that "
                "makes two tasks different.",
            )


async def tasks_differ(subject: Subject) -> AsyncIterator[Finding]:
    tasks = subject.tasks("train")
    distinct = len({prompt_of(one.task) for one in tasks})
    if distinct < DISTINCT * len(tasks):
        yield Finding(
            task="",
            expected=f"{DISTINCT:.0%} of {len(tasks):,} prompts distinct",
            came=f"{distinct:,}",
            mend="Add variety: larger numbers, longer lists, more parts, several phrasings.",
        )


async def the_answer_is_hidden(subject: Subject) -> AsyncIterator[Finding]:
    for one in subject.sample():
        public = json.dumps([one.task.metadata, [tool.model_dump(mode="json") for tool in one.task.tools]])
        secret = json.dumps(one.task.reference)
        if len(secret) > 4 and secret.strip('"') in public:
            yield Finding(
                task=str(one),
                expected="metadata and tools without the reference",
                came=f"metadata {excerpt(json.dumps(one.task.metadata))}",
                mend="Metadata are public. Put everything that reveals the answer into `reference`.",
            )


async def labels_agree(subject: Subject) -> AsyncIterator[Finding]:
    environment, params = subject.environment, subject.environment.Params()
    sample = subject.sample()
    for one in sample:
        said = one.task.metadata.get(environment.stats_label or "")
        label = environment.label(one.split, one.index, params)
        if label != said:
            yield Finding(
                task=str(one),
                expected=f"`label` equal to {environment.stats_label!r} in the metadata",
                came=f"{label!r} and {said!r}",
                mend="`label` must return the value that `task` writes to the metadata.",
            )
    values = {one.task.metadata.get(environment.stats_label or "") for one in subject.tasks("train", LABELLED)} - {None}
    if environment.stats_label is not None and not 0 < len(values) <= MOST_LABELS:
        yield Finding(
            task="",
            expected=f"tasks with 1 to {MOST_LABELS} different values of {environment.stats_label!r} in their metadata",
            came=str(len(values)),
            mend="Set `stats_label` to a metadata key with few values, such as a level or a kind of task.",
        )
