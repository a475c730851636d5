"""What the tools of each service do and say: tables of calls, with what the last is told and what the state is then."""

from typing import Any

import pytest
from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.calendar import CALENDAR, CalendarState
from app.envs.tool_agent.episodes import SimulatedService, build_call, carry_out
from app.envs.tool_agent.files import FILES, FilesState
from app.envs.tool_agent.orders import ORDERS, ShopState
from app.envs.tool_agent.travel import TRAVEL, TravelState
from app.toolkit.tool_calls.calls import ParsedCall
from tests.support.tables import read_table


class Case(Frozen):
    calls: tuple[dict[str, dict[str, JsonValue]], ...]
    told: JsonValue
    after: JsonValue = None

    @property
    def parsed(self) -> list[ParsedCall]:
        return [build_call(name, **arguments) for call in self.calls for name, arguments in call.items()]


class Service(Frozen):
    start: dict[str, JsonValue]
    cases: dict[str, Case]


TOO_LONG = Case(
    calls=({"create_file": {"path": "/l", "text": "x" * 4001}},), told={"error": "a file has at most 4000 characters"}
)
TABLES = read_table(__file__, "tools.yaml", dict[str, Service])
TABLES["files"].cases["created too long"] = TOO_LONG
SERVICES: dict[str, tuple[SimulatedService[Any], type[Frozen]]] = {
    "calendar": (CALENDAR, CalendarState),
    "orders": (ORDERS, ShopState),
    "files": (FILES, FilesState),
    "travel": (TRAVEL, TravelState),
}


@pytest.mark.parametrize(("service", "case"), [(name, case) for name, table in TABLES.items() for case in table.cases])
def test_what_the_tools_do_and_say(service: str, case: str) -> None:
    (played, form), table, tried = SERVICES[service], TABLES[service], TABLES[service].cases[case]
    start = form.model_validate(table.start)
    state, output = start, None
    for one in tried.parsed:
        result = carry_out(played, state, one)
        state, output = result.state, result.output
    essence = played.canonicalise(state)
    assert (output, None if essence == played.canonicalise(start) else essence) == (tried.told, tried.after)


@pytest.mark.parametrize("service", SERVICES)
def test_every_tool_is_in_its_table(service: str) -> None:
    played, _ = SERVICES[service]
    tried = {one.name for case in TABLES[service].cases.values() for one in case.parsed}
    assert tried == set(played.does) == {tool.function.name for tool in played.tools}
