"""Every simulated service, in the order in which they take turns."""

from typing import Any, Final

from app.simulations.calendar.service import Calendar
from app.simulations.files.service import Files
from app.simulations.orders.service import Orders
from app.simulations.service import Service
from app.simulations.travel.service import Travel

SERVICES: Final[tuple[Service[Any], ...]] = (Calendar(), Orders(), Files(), Travel())
