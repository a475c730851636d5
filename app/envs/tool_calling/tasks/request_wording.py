"""Draws values for a tool's arguments, and the sentence that asks for them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from app.envs.tool_calling.tasks.apis import PART, SLOT, ApiArgument, ApiDomain, ApiTool, WordedValue
from app.toolkit.seeded import SeededRandom
from app.toolkit.tool_calls.calls import ExpectedCall

PART_SHARE = 60
"""Percent of optional parts that are included."""


@dataclass(frozen=True, slots=True)
class CallRequest:
    """A sentence and the one call that it asks for."""

    text: str
    tool: ApiTool
    arguments: Mapping[str, JsonValue]

    @property
    def expected(self) -> ExpectedCall:
        return ExpectedCall(name=self.tool.name, arguments={name: (value,) for name, value in self.arguments.items()})


def draw_call_request(domain: ApiDomain, tool: ApiTool, draws: SeededRandom) -> CallRequest:
    """A request for one call. Arguments that the sentence does not mention are not in the call."""
    return _write_request(domain, tool, draws.one(tool.asks), draws)


def draw_incomplete_request(domain: ApiDomain, tool: ApiTool, draws: SeededRandom) -> tuple[str, str]:
    """A request that cannot be met, and the required argument that it lacks. The tool must have such requests."""
    incomplete = draws.one(tool.incomplete)
    return _write_request(domain, tool, incomplete.text, draws).text, incomplete.lacks


def _write_request(domain: ApiDomain, tool: ApiTool, template: str, draws: SeededRandom) -> CallRequest:
    text = PART.sub(lambda part: part[1] if draws.chance(PART_SHARE) else "", template)
    values = {
        name: _draw_value(tool.arguments[name], domain, draws) for name in tool.arguments if name in SLOT.findall(text)
    }
    return CallRequest(
        text=SLOT.sub(lambda slot: values[slot[1]].said, text),
        tool=tool,
        arguments={name: value.value for name, value in values.items()},
    )


def _draw_value(argument: ApiArgument, domain: ApiDomain, draws: SeededRandom) -> WordedValue:
    if argument.range is not None:
        return _draw_in_range(argument.range, draws)
    choices = domain.pools[argument.pool] if argument.pool is not None else argument.values
    if argument.listed is None:
        return _to_worded_value(draws.one(choices))
    least, most = argument.listed
    chosen = [_to_worded_value(one) for one in draws.some(choices, least + draws.below(most - least + 1))]
    return WordedValue(value=[one.value for one in chosen], said=_join_words([one.said for one in chosen]))


def _to_worded_value(choice: WordedValue | JsonValue) -> WordedValue:
    return choice if isinstance(choice, WordedValue) else WordedValue(value=choice, said=str(choice))


def _draw_in_range(bounds: Sequence[float], draws: SeededRandom) -> WordedValue:
    """Computed in hundredths, so that text and value agree exactly."""
    low, high, step = (round(bound * 100) for bound in (*bounds, 1)[:3])
    hundredths = low + step * draws.below((high - low) // step + 1)
    number = hundredths // 100 if all(float(bound).is_integer() for bound in bounds) else hundredths / 100
    return WordedValue(value=number, said=str(number))


def _join_words(said: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(said[:-1]), said[-1])))
