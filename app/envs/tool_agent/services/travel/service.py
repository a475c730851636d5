"""The travel desk as a service."""

from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.figures import AS_WRITTEN
from app.envs.tool_agent.services.service import Operation, Scenario
from app.envs.tool_agent.services.travel.booked_journeys import BOOKED_JOURNEYS
from app.envs.tool_agent.services.travel.new_journeys import NEW_JOURNEYS
from app.envs.tool_agent.services.travel.operations import OPERATIONS
from app.envs.tool_agent.services.travel.state import Booking, Desk, Ride
from app.toolkit.seeded import Draws


class Travel:
    name: Final = "travel"
    rules: Final = (
        "You book journeys for the staff of a firm. Where a train takes at most 300 minutes, book a train; where all "
        "trains take longer, book a flight. A hotel costs at most 150.00 a night without breakfast. Bookings that are "
        "not refundable are neither changed nor cancelled. Of what fits the wish and these rules, take the cheapest "
        "unless the user wants it otherwise, book it once, and add no options that nobody asked for. Where the "
        f"rules forbid a part of a wish, do the rest of it and say what was left. {AS_WRITTEN}"
    )

    @property
    def operations(self) -> tuple[Operation[Desk], ...]:
        return OPERATIONS

    def essence(self, state: Desk) -> JsonValue:
        """What is booked, and what was cancelled though nobody pays it back."""
        held = [one for one in state.bookings if not (one.cancelled and one.refundable)]
        return [*sorted(map(_essence, held))]

    def scenario(self, draws: Draws) -> Scenario[Desk]:
        return draws.one((*NEW_JOURNEYS, *BOOKED_JOURNEYS))(draws)


def _essence(booking: Booking) -> str:
    lost = " cancelled" if booking.cancelled else ""
    what = (
        booking.trip.id if isinstance(booking, Ride) else f"{booking.hotel.id} {booking.check_in} for {booking.nights}"
    )
    return f"{what} with {'and '.join(booking.options) or 'nothing'}{lost}"
