"""Ids of tasks, groups and streams: digests of everything that defines them."""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from app.domain.digests import canonical_json, digest
from app.domain.groups import Group
from app.domain.runs import Policy, Purpose, Stream
from app.domain.tasks import Completion, TaskKey
from app.domain.values import Split


def task_id(key: TaskKey) -> str:
    return "task_" + digest(key.model_dump(mode="json"))


def stream_of(
    run: str,
    environment: str,
    split: Split,
    params: dict[str, JsonValue],
    select: Mapping[str, tuple[JsonValue, ...]],
    weights: Mapping[str, Mapping[str, float]] | None = None,
) -> Stream:
    chosen: list[object] = [{key: distinct(values) for key, values in select.items()}]
    if weights:
        chosen.append({key: dict(values) for key, values in weights.items()})
    return Stream(
        run=run,
        environment=environment,
        split=split,
        params=params,
        select=dict(select),
        digest=digest([environment, split, params, *chosen]),
    )


def distinct(values: Iterable[JsonValue]) -> list[JsonValue]:
    """Distinct values in a fixed order. 1 and 1.0 are equal; 1, "1" and true are different."""
    by_text = {canonical_json(plain): plain for plain in map(_plain, values)}
    return [by_text[text] for text in sorted(by_text)]


def _plain(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def group_id(task: str, holder: str, policy: Policy | None, purpose: Purpose, completions: Sequence[Completion]) -> str:
    """The id that identifies retries of a group. `holder` is the lease, else the run, else empty."""
    return "group_" + digest([task, holder, _trained(policy), purpose, [completion.said for completion in completions]])


def part_group_id(task: str, holder: str, policy: Policy | None, purpose: Purpose, key: str) -> str:
    """The id of a group sent in pieces, independent of its completions."""
    return "group_" + digest(["part", task, holder, _trained(policy), purpose, key])


def scope_of(group: Group, key: str, size: int) -> str:
    """The scope of a sample. Samples without a position join the same group if their scopes are equal."""
    shared = [group.environment, group.task_id, group.run, _trained(group.policy), group.purpose]
    return digest(["sample", *shared, key, size])


def _trained(policy: Policy | None) -> list[str | int | None] | None:
    return None if policy is None else [policy.model, policy.step]
