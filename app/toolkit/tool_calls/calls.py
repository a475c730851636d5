"""Parsed calls and expected calls."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, JsonValue

from app.domain.values import FiniteJson, Frozen


class ParsedCall(Frozen):
    """One call of one tool, with its arguments as values."""

    name: str
    arguments: dict[str, FiniteJson] = {}


@dataclass(frozen=True, slots=True)
class CallReading:
    """The calls and text of a reply. One malformed call makes the whole reply malformed: it has a `fault` and no
    calls."""

    calls: tuple[ParsedCall, ...] = ()
    said: str = ""
    """The reply's words to the user: without thinking, without calls."""
    format: str = ""
    """Which format the calls were written in; empty where there are none."""
    fault: str = ""
    """Why the calls cannot be read, in words that quote at most a few characters of the reply; empty when they can."""


class ExpectedCall(Frozen):
    """A call that a right answer holds. `arguments` has every value that is accepted, by argument."""

    name: str
    arguments: dict[str, Annotated[tuple[JsonValue, ...], Field(min_length=1)]] = {}
    optional: frozenset[str] = frozenset()
    """Arguments that may be left out. One that the tool's schema gives a default may be left out when the default is
    among the accepted values, too."""
    needed: frozenset[str] = frozenset()
    """Arguments that may not be left out, whatever their default: a data set says so."""

    def build_minimal_call(self) -> ParsedCall:
        """The call with the first accepted value of each argument that has to be there."""
        kept = {name: values[0] for name, values in self.arguments.items() if name not in self.optional}
        return ParsedCall(name=self.name, arguments=kept)
