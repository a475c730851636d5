"""The travel service: its tools and its rules. The tools can do more than the rules allow."""

from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.figures import AS_WRITTEN, DATE, real_day
from app.envs.tool_agent.services.service import Arguments, Operation, Refused, Scenario, tool
from app.envs.tool_agent.services.travel_booked_journeys import BOOKED_JOURNEYS
from app.envs.tool_agent.services.travel_new_journeys import NEW_JOURNEYS
from app.envs.tool_agent.services.travel_state import MOST_SHOWN, Booking, Desk, Hotel, Ride, Stay, Trip
from app.toolkit.seeded import Draws

CITY: Final[JsonValue] = {"type": "string", "description": "Name of the city"}
BOOKING: Final[JsonValue] = {"type": "string", "description": "Identifier of the booking"}
TRIP: Final[JsonValue] = {"type": "string", "description": "Identifier of the trip"}
NIGHTS: Final[JsonValue] = {"type": "integer", "minimum": 1, "maximum": 30}


def _search_trips(state: Desk, arguments: Arguments) -> tuple[Desk, JsonValue]:
    found = [
        one
        for one in state.trips
        if _same(one.origin, arguments["origin"])
        and _same(one.destination, arguments["destination"])
        and one.date == real_day(arguments["date"])
        and one.mode == arguments.get("mode", one.mode)
    ]
    return state, {"trips": [one.shown() for one in sorted(found, key=lambda one: one.departs)]}


def _search_hotels(state: Desk, arguments: Arguments) -> tuple[Desk, JsonValue]:
    return state, {"hotels": [one.shown() for one in state.hotels if _same(one.city, arguments["city"])]}


def _list_bookings(state: Desk, arguments: Arguments) -> tuple[Desk, JsonValue]:
    return state, {"bookings": [one.shown() for one in state.bookings if not one.cancelled]}


def _book_trip(state: Desk, arguments: Arguments) -> tuple[Desk, JsonValue]:
    ride = Ride(id=state.next_id, trip=_trip(state, arguments["trip_id"]))
    return state.with_new(ride), ride.shown()


def _book_hotel(state: Desk, arguments: Arguments) -> tuple[Desk, JsonValue]:
    hotel = _hotel(state, arguments["hotel_id"])
    stay = Stay(id=state.next_id, hotel=hotel, check_in=real_day(arguments["check_in"]), nights=arguments["nights"])
    return state.with_new(stay), stay.shown()


def _change_trip(state: Desk, arguments: Arguments) -> tuple[Desk, JsonValue]:
    ride, trip = state.booking(arguments["booking_id"]), _trip(state, arguments["trip_id"])
    if not isinstance(ride, Ride):
        raise Refused(f"{ride.id} is a hotel")
    if (trip.mode, trip.origin, trip.destination) != (ride.trip.mode, ride.trip.origin, ride.trip.destination):
        raise Refused(f"{ride.id} is a {ride.trip.mode} from {ride.trip.origin} to {ride.trip.destination}")
    changed = ride.model_copy(update={"trip": trip})
    return state.with_changed(changed), changed.shown()


def _change_stay(state: Desk, arguments: Arguments) -> tuple[Desk, JsonValue]:
    stay = state.booking(arguments["booking_id"])
    if not isinstance(stay, Stay):
        raise Refused(f"{stay.id} is a {stay.trip.mode}")
    changed = stay.model_copy(
        update={
            "check_in": real_day(arguments.get("check_in", stay.check_in)),
            "nights": arguments.get("nights", stay.nights),
        }
    )
    return state.with_changed(changed), changed.shown()


def _add_option(state: Desk, arguments: Arguments) -> tuple[Desk, JsonValue]:
    booking, option = state.booking(arguments["booking_id"]), arguments["option"]
    if option != booking.offers:
        raise Refused(f"{booking.id} can be had with {booking.offers}, not with {option}")
    if option in booking.options:
        raise Refused(f"{booking.id} is with {option} already")
    changed = booking.model_copy(update={"options": (option,)})
    return state.with_changed(changed), changed.shown()


def _cancel_booking(state: Desk, arguments: Arguments) -> tuple[Desk, JsonValue]:
    booking = state.booking(arguments["booking_id"])
    told: JsonValue = {"cancelled": booking.id, "paid_back": booking.refundable}
    return state.with_changed(booking.model_copy(update={"cancelled": True})), told


def _same(city: str, named: str) -> bool:
    return city.casefold() == named.casefold().strip()


def _trip(state: Desk, identity: str) -> Trip:
    for one in state.trips:
        if one.id == identity:
            return one
    raise Refused(f"there is no trip {identity[:MOST_SHOWN]!a}")


def _hotel(state: Desk, identity: str) -> Hotel:
    for one in state.hotels:
        if one.id == identity:
            return one
    raise Refused(f"there is no hotel {identity[:MOST_SHOWN]!a}")


OPERATIONS: Final = (
    Operation(
        tool(
            "search_trips",
            "Trains and flights of one day from one city to another, by departure.",
            ("origin", "destination", "date"),
            origin=CITY,
            destination=CITY,
            date=DATE,
            mode={"type": "string", "enum": ["train", "flight"], "description": "Both if left out"},
        ),
        _search_trips,
    ),
    Operation(
        tool("search_hotels", "Hotels of a city. They always have a room.", ("city",), city=CITY), _search_hotels
    ),
    Operation(tool("list_bookings", "Everything that is booked, with what it costs."), _list_bookings),
    Operation(tool("book_trip", "Book a train or a flight, without options.", ("trip_id",), trip_id=TRIP), _book_trip),
    Operation(
        tool(
            "book_hotel",
            "Book a hotel, without options.",
            ("hotel_id", "check_in", "nights"),
            hotel_id={"type": "string", "description": "Identifier of the hotel"},
            check_in=DATE,
            nights=NIGHTS,
        ),
        _book_hotel,
    ),
    Operation(
        tool(
            "change_trip",
            "Take another train or flight between the same cities instead. Options stay.",
            ("booking_id", "trip_id"),
            booking_id=BOOKING,
            trip_id=TRIP,
        ),
        _change_trip,
    ),
    Operation(
        tool(
            "change_stay",
            "Give a booked hotel another first day or another number of nights.",
            ("booking_id",),
            booking_id=BOOKING,
            check_in=DATE,
            nights=NIGHTS,
        ),
        _change_stay,
    ),
    Operation(
        tool(
            "add_option",
            "Add a seat to a train, luggage to a flight, or breakfast to all nights of a hotel.",
            ("booking_id", "option"),
            booking_id=BOOKING,
            option={"type": "string", "enum": ["seat", "luggage", "breakfast"]},
        ),
        _add_option,
    ),
    Operation(
        tool("cancel_booking", "Cancel a booking for good.", ("booking_id",), booking_id=BOOKING), _cancel_booking
    ),
)


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
        """Current bookings, and cancelled ones that are not refundable."""
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
