"""The travel service: its tools and its rules. The tools can do more than the rules allow."""

from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.simulated_service import (
    Arguments,
    OperationRefused,
    ServiceOperation,
    ServiceScenario,
    build_tool,
)
from app.envs.tool_agent.services.travel_booked_journeys import BOOKED_JOURNEYS
from app.envs.tool_agent.services.travel_new_journeys import NEW_JOURNEYS
from app.envs.tool_agent.services.travel_state import (
    MOST_SHOWN,
    Booking,
    Hotel,
    HotelBooking,
    TravelState,
    Trip,
    TripBooking,
)
from app.envs.tool_agent.services.value_formats import AS_WRITTEN, DATE, check_day
from app.toolkit.seeded import SeededRandom

CITY: Final[JsonValue] = {"type": "string", "description": "Name of the city"}
BOOKING: Final[JsonValue] = {"type": "string", "description": "Identifier of the booking"}
TRIP: Final[JsonValue] = {"type": "string", "description": "Identifier of the trip"}
NIGHTS: Final[JsonValue] = {"type": "integer", "minimum": 1, "maximum": 30}


def _search_trips(state: TravelState, arguments: Arguments) -> tuple[TravelState, JsonValue]:
    found = [
        one
        for one in state.trips
        if _is_same_city(one.origin, arguments["origin"])
        and _is_same_city(one.destination, arguments["destination"])
        and one.date == check_day(arguments["date"])
        and one.mode == arguments.get("mode", one.mode)
    ]
    return state, {"trips": [one.to_observation() for one in sorted(found, key=lambda one: one.departs)]}


def _search_hotels(state: TravelState, arguments: Arguments) -> tuple[TravelState, JsonValue]:
    return state, {
        "hotels": [one.to_observation() for one in state.hotels if _is_same_city(one.city, arguments["city"])]
    }


def _list_bookings(state: TravelState, arguments: Arguments) -> tuple[TravelState, JsonValue]:
    return state, {"bookings": [one.to_observation() for one in state.bookings if not one.cancelled]}


def _book_trip(state: TravelState, arguments: Arguments) -> tuple[TravelState, JsonValue]:
    ride = TripBooking(id=state.next_id, trip=_get_trip(state, arguments["trip_id"]))
    return state.with_booking(ride), ride.to_observation()


def _book_hotel(state: TravelState, arguments: Arguments) -> tuple[TravelState, JsonValue]:
    hotel = _get_hotel(state, arguments["hotel_id"])
    stay = HotelBooking(
        id=state.next_id, hotel=hotel, check_in=check_day(arguments["check_in"]), nights=arguments["nights"]
    )
    return state.with_booking(stay), stay.to_observation()


def _change_trip(state: TravelState, arguments: Arguments) -> tuple[TravelState, JsonValue]:
    ride, trip = state.find_booking(arguments["booking_id"]), _get_trip(state, arguments["trip_id"])
    if not isinstance(ride, TripBooking):
        raise OperationRefused(f"{ride.id} is a hotel")
    if (trip.mode, trip.origin, trip.destination) != (ride.trip.mode, ride.trip.origin, ride.trip.destination):
        raise OperationRefused(f"{ride.id} is a {ride.trip.mode} from {ride.trip.origin} to {ride.trip.destination}")
    changed = ride.model_copy(update={"trip": trip})
    return state.with_changed(changed), changed.to_observation()


def _change_stay(state: TravelState, arguments: Arguments) -> tuple[TravelState, JsonValue]:
    stay = state.find_booking(arguments["booking_id"])
    if not isinstance(stay, HotelBooking):
        raise OperationRefused(f"{stay.id} is a {stay.trip.mode}")
    changed = stay.model_copy(
        update={
            "check_in": check_day(arguments.get("check_in", stay.check_in)),
            "nights": arguments.get("nights", stay.nights),
        }
    )
    return state.with_changed(changed), changed.to_observation()


def _add_option(state: TravelState, arguments: Arguments) -> tuple[TravelState, JsonValue]:
    booking, option = state.find_booking(arguments["booking_id"]), arguments["option"]
    if option != booking.offers:
        raise OperationRefused(f"{booking.id} can be had with {booking.offers}, not with {option}")
    if option in booking.options:
        raise OperationRefused(f"{booking.id} is with {option} already")
    changed = booking.model_copy(update={"options": (option,)})
    return state.with_changed(changed), changed.to_observation()


def _cancel_booking(state: TravelState, arguments: Arguments) -> tuple[TravelState, JsonValue]:
    booking = state.find_booking(arguments["booking_id"])
    told: JsonValue = {"cancelled": booking.id, "paid_back": booking.refundable}
    return state.with_changed(booking.model_copy(update={"cancelled": True})), told


def _is_same_city(city: str, named: str) -> bool:
    return city.casefold() == named.casefold().strip()


def _get_trip(state: TravelState, identity: str) -> Trip:
    for one in state.trips:
        if one.id == identity:
            return one
    raise OperationRefused(f"there is no trip {identity[:MOST_SHOWN]!a}")


def _get_hotel(state: TravelState, identity: str) -> Hotel:
    for one in state.hotels:
        if one.id == identity:
            return one
    raise OperationRefused(f"there is no hotel {identity[:MOST_SHOWN]!a}")


OPERATIONS: Final = (
    ServiceOperation(
        build_tool(
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
    ServiceOperation(
        build_tool("search_hotels", "Hotels of a city. They always have a room.", ("city",), city=CITY), _search_hotels
    ),
    ServiceOperation(build_tool("list_bookings", "Everything that is booked, with what it costs."), _list_bookings),
    ServiceOperation(
        build_tool("book_trip", "Book a train or a flight, without options.", ("trip_id",), trip_id=TRIP), _book_trip
    ),
    ServiceOperation(
        build_tool(
            "book_hotel",
            "Book a hotel, without options.",
            ("hotel_id", "check_in", "nights"),
            hotel_id={"type": "string", "description": "Identifier of the hotel"},
            check_in=DATE,
            nights=NIGHTS,
        ),
        _book_hotel,
    ),
    ServiceOperation(
        build_tool(
            "change_trip",
            "Take another train or flight between the same cities instead. Options stay.",
            ("booking_id", "trip_id"),
            booking_id=BOOKING,
            trip_id=TRIP,
        ),
        _change_trip,
    ),
    ServiceOperation(
        build_tool(
            "change_stay",
            "Give a booked hotel another first day or another number of nights.",
            ("booking_id",),
            booking_id=BOOKING,
            check_in=DATE,
            nights=NIGHTS,
        ),
        _change_stay,
    ),
    ServiceOperation(
        build_tool(
            "add_option",
            "Add a seat to a train, luggage to a flight, or breakfast to all nights of a hotel.",
            ("booking_id", "option"),
            booking_id=BOOKING,
            option={"type": "string", "enum": ["seat", "luggage", "breakfast"]},
        ),
        _add_option,
    ),
    ServiceOperation(
        build_tool("cancel_booking", "Cancel a booking for good.", ("booking_id",), booking_id=BOOKING), _cancel_booking
    ),
)


class TravelService:
    name: Final = "travel"
    rules: Final = (
        "You book journeys for the staff of a firm. Where a train takes at most 300 minutes, book a train; where all "
        "trains take longer, book a flight. A hotel costs at most 150.00 a night without breakfast. Bookings that are "
        "not refundable are neither changed nor cancelled. Of what fits the wish and these rules, take the cheapest "
        "unless the user wants it otherwise, book it once, and add no options that nobody asked for. Where the "
        f"rules forbid a part of a wish, do the rest of it and say what was left. {AS_WRITTEN}"
    )

    @property
    def operations(self) -> tuple[ServiceOperation[TravelState], ...]:
        return OPERATIONS

    def canonicalise(self, state: TravelState) -> JsonValue:
        """Current bookings, and cancelled ones that are not refundable."""
        held = [one for one in state.bookings if not (one.cancelled and one.refundable)]
        return [*sorted(map(_canonicalise_booking, held))]

    def draw_scenario(self, draws: SeededRandom) -> ServiceScenario[TravelState]:
        return draws.one((*NEW_JOURNEYS, *BOOKED_JOURNEYS))(draws)


def _canonicalise_booking(booking: Booking) -> str:
    lost = " cancelled" if booking.cancelled else ""
    what = (
        booking.trip.id
        if isinstance(booking, TripBooking)
        else f"{booking.hotel.id} {booking.check_in} for {booking.nights}"
    )
    return f"{what} with {'and '.join(booking.options) or 'nothing'}{lost}"
