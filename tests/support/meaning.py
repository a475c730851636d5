"""What the values in docs/semantics.md stand for, and when a claim about them holds."""

import json
from collections.abc import Mapping

from pydantic import JsonValue

from tests.support.notation import REFERENCE, Call, Fields, Items, Plain, Unreadable, Value, reference

Scope = Mapping[str, JsonValue]
"""The replies so far, by name."""


def references_in(path: str, scope: Scope) -> str:
    """A path with the references in it replaced by what they stand for."""
    return REFERENCE.sub(lambda found: str(evaluated(reference(found), scope)), path)


def evaluated(node: Value, scope: Scope) -> JsonValue:
    """What it stands for, given the replies so far."""
    if isinstance(node, Plain):
        return node.value
    if isinstance(node, Items):
        return [evaluated(one, scope) for one in node.values]
    if isinstance(node, Fields):
        return {name: evaluated(one, scope) for name, one in node.values}
    if isinstance(node, Call):
        return _called(node.function, [evaluated(one, scope) for one in node.arguments])
    if node.name not in scope:
        raise Unreadable(f"nothing is called ${node.name}")
    return _followed(scope[node.name], node.steps)


def _followed(found: JsonValue, steps: tuple[str | int, ...]) -> JsonValue:
    for place, step in enumerate(steps):
        if step == "*" and isinstance(found, list):
            return [_followed(one, steps[place + 1 :]) for one in found]
        match found, step:
            case list(), int():
                found = found[step]
            case dict(), str():
                found = found[step]
            case _:
                raise Unreadable(f"{step!r} does not lead anywhere in {found!r}")
    return found


def _called(function: str, arguments: list[JsonValue]) -> JsonValue:
    first, *others = arguments
    if function == "answers" and isinstance(first, dict):
        return {
            "task_id": first["task_id"],
            "lease_id": first["lease_id"],
            "completions": [{"text": text} if isinstance(text, str) else text for text in others],
        }
    if function == "text":
        return json.dumps(first, ensure_ascii=False)
    if isinstance(first, list):
        if function == "count":
            return len(first) if not others else first.count(others[0])
        if function == "set":
            return [json.loads(one) for one in sorted({json.dumps(one, sort_keys=True) for one in first})]
    raise Unreadable(f"{function} of {arguments!r}")


def holds(relation: str, left: JsonValue, right: JsonValue) -> bool:
    if relation in {"==", "!="}:
        return same(left, right) == (relation == "==")
    if relation in {"has", "has no"}:
        return part_of(right, left) == (relation == "has")
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise Unreadable(f"only numbers are compared by {relation}: {left!r}, {right!r}")
    return left < right if relation == "<" else left > right


def same(one: JsonValue, other: JsonValue) -> bool:
    """Equal, numbers to four decimal places."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other) < 5e-5
    return one == other


def part_of(part: JsonValue, whole: JsonValue) -> bool:
    """Fields of an object, an element of a list, or letters of a text. Lists within objects have the same length."""
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(name in whole and part_of(inner, whole[name]) for name, inner in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return len(whole) == len(part) and all(map(part_of, part, whole))
    if isinstance(whole, list):
        return any(part_of(part, one) for one in whole)
    if isinstance(whole, str) and isinstance(part, str):
        return part in whole
    return same(part, whole)
