"""All simulated services; tasks take them in turn."""

from typing import Any, Final

from app.envs.tool_agent.services.calendar_service import Calendar
from app.envs.tool_agent.services.files_service import Files
from app.envs.tool_agent.services.orders_service import Orders
from app.envs.tool_agent.services.service import Service
from app.envs.tool_agent.services.travel_service import Travel

SERVICES: Final[tuple[Service[Any], ...]] = (Calendar(), Orders(), Files(), Travel())
