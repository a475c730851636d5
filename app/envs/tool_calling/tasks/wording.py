"""Draws values for a tool's arguments, and the sentence that asks for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from app.envs.tool_calling.tasks.apis import PART, SLOT, Argument, Domain, Tool, Value
from app.toolkit.seeded import Draws
from app.toolkit.tool_calls.values import ExpectedCall

PART_SHARE = 60
"""Percent of optional parts that are included."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A sentence and the one call that it asks for."""

    text: str
    tool: Tool
    arguments: Mapping[str, JsonValue]

    @property
    def expected(self) -> ExpectedCall:
        return ExpectedCall(name=self.tool.name, arguments={name: (value,) for name, value in self.arguments.items()})


def asked(domain: Domain, tool: Tool, draws: Draws) -> Asked:
    """A request for one call. Arguments that the sentence does not mention are not in the call."""
    return _said(domain, tool, draws.one(tool.asks), draws)


def asked_without(domain: Domain, tool: Tool, draws: Draws) -> tuple[str, str]:
    """A request that cannot be met, and the required argument that it lacks. The tool must have such requests."""
    incomplete = draws.one(tool.incomplete)
    return _said(domain, tool, incomplete.text, draws).text, incomplete.lacks


def _said(domain: Domain, tool: Tool, template: str, draws: Draws) -> Asked:
    text = PART.sub(lambda part: part[1] if draws.chance(PART_SHARE) else "", template)
    values = {
        name: _drawn(tool.arguments[name], domain, draws) for name in tool.arguments if name in SLOT.findall(text)
    }
    return Asked(
        text=SLOT.sub(lambda slot: values[slot[1]].said, text),
        tool=tool,
        arguments={name: value.value for name, value in values.items()},
    )


def _drawn(argument: Argument, domain: Domain, draws: Draws) -> Value:
    if argument.range is not None:
        return _in_range(argument.range, draws)
    choices = domain.pools[argument.pool] if argument.pool is not None else argument.values
    if argument.listed is None:
        return _worded(draws.one(choices))
    least, most = argument.listed
    chosen = [_worded(one) for one in draws.some(choices, least + draws.below(most - least + 1))]
    return Value(value=[one.value for one in chosen], said=_in_line([one.said for one in chosen]))


def _worded(choice: Value | JsonValue) -> Value:
    return choice if isinstance(choice, Value) else Value(value=choice, said=str(choice))


def _in_range(bounds: Sequence[float], draws: Draws) -> Value:
    """Computed in hundredths, so that text and value agree exactly."""
    low, high, step = (round(bound * 100) for bound in (*bounds, 1)[:3])
    hundredths = low + step * draws.below((high - low) // step + 1)
    number = hundredths // 100 if all(float(bound).is_integer() for bound in bounds) else hundredths / 100
    return Value(value=number, said=str(number))


def _in_line(said: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
