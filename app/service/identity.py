"""Ids of tasks, groups and streams: digests of everything that defines them."""

from collections.abc import Iterable, Mapping, Sequence

from pydantic import JsonValue

from app.domain.digests import canonical_json, digest
from app.domain.groups import Group
from app.domain.runs import Policy, Purpose, Stream
from app.domain.tasks import Completion, TaskKey
from app.domain.values import Split


def compute_task_id(key: TaskKey) -> str:
    return "task_" + digest(key.model_dump(mode="json"))


def build_stream(
    run: str,
    environment: str,
    split: Split,
    params: dict[str, JsonValue],
    select: Mapping[str, tuple[JsonValue, ...]],
    weights: Mapping[str, Mapping[str, float]] | None = None,
) -> Stream:
    chosen: list[object] = [{key: normalise_values(values) for key, values in select.items()}]
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


def normalise_values(values: Iterable[JsonValue]) -> list[JsonValue]:
    """Distinct values in a fixed order. 1 and 1.0 are equal; 1, "1" and true are different."""
    by_text = {canonical_json(plain): plain for plain in map(_normalise_numbers, values)}
    return [by_text[text] for text in sorted(by_text)]


def _normalise_numbers(value: JsonValue) -> JsonValue:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_normalise_numbers(item) for item in value]
    return {key: _normalise_numbers(item) for key, item in value.items()} if isinstance(value, dict) else value


def compute_group_id(
    task: str, holder: str, policy: Policy | None, purpose: Purpose, completions: Sequence[Completion]
) -> str:
    """The id that identifies retries of a group. `holder` is the lease, else the run, else empty."""
    return "group_" + digest(
        [task, holder, _list_policy_parts(policy), purpose, [completion.identity for completion in completions]]
    )


def compute_part_group_id(task: str, holder: str, policy: Policy | None, purpose: Purpose, key: str) -> str:
    """The id of a group sent in pieces, independent of its completions."""
    return "group_" + digest(["part", task, holder, _list_policy_parts(policy), purpose, key])


def compute_scope(group: Group, key: str, size: int) -> str:
    """The scope of a sample. Samples without a position join the same group if their scopes are equal."""
    shared = [group.environment, group.task_id, group.run, _list_policy_parts(group.policy), group.purpose]
    return digest(["sample", *shared, key, size])


def _list_policy_parts(policy: Policy | None) -> list[str | int | None] | None:
    return None if policy is None else [policy.model, policy.step]
