"""Every simulated service, in the order in which they take turns."""

from typing import Any, Final

from app.envs.tool_agent.services.calendar.service import Calendar
from app.envs.tool_agent.services.files.service import Files
from app.envs.tool_agent.services.orders.service import Orders
from app.envs.tool_agent.services.service import Service
from app.envs.tool_agent.services.travel.service import Travel

SERVICES: Final[tuple[Service[Any], ...]] = (Calendar(), Orders(), Files(), Travel())
