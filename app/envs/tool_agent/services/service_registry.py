"""All simulated services; tasks take them in turn."""

from typing import Any, Final

from app.envs.tool_agent.services.calendar_service import CalendarService
from app.envs.tool_agent.services.files_service import FilesService
from app.envs.tool_agent.services.orders_service import OrdersService
from app.envs.tool_agent.services.simulated_service import SimulatedService
from app.envs.tool_agent.services.travel_service import TravelService

SERVICES: Final[tuple[SimulatedService[Any], ...]] = (
    CalendarService(),
    OrdersService(),
    FilesService(),
    TravelService(),
)
