"""The calendar as a service."""

from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.calendar.operations import OPERATIONS
from app.envs.tool_agent.services.calendar.scenarios import KINDS
from app.envs.tool_agent.services.calendar.state import Diary
from app.envs.tool_agent.services.figures import AS_WRITTEN
from app.envs.tool_agent.services.service import Operation, Scenario
from app.toolkit.seeded import Draws


class Calendar:
    name: Final = "calendar"
    rules: Final = (
        "The calendar holds one event at a time. People are invited by their e-mail address. Cancel or move nothing "
        f"that the user did not name, and invite nobody else. {AS_WRITTEN}"
    )

    @property
    def operations(self) -> tuple[Operation[Diary], ...]:
        return OPERATIONS

    def essence(self, state: Diary) -> JsonValue:
        events = sorted(state.events, key=lambda one: (one.date, one.start))
        return [[one.date, one.start, one.minutes, one.title, *sorted(one.guests)] for one in events]

    def scenario(self, draws: Draws) -> Scenario[Diary]:
        return draws.one(KINDS)(draws)
