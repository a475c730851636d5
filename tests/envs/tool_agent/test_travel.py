"""What the tools of the travel desk do and say."""

import pytest
from pydantic import JsonValue

from app.envs.tool_agent.episodes import build_call
from app.envs.tool_agent.travel import Hotel, HotelBooking, TravelService, TravelState, Trip, TripBooking
from app.toolkit.tool_calls.calls import ParsedCall
from tests.support.simulated import Case, error, tools, tried, worked

TRIP = {"origin": "Lyon", "destination": "Turin", "date": "2026-05-04", "departs": 480, "minutes": 200}
TRAIN, LATER, FLIGHT = (
    Trip.model_validate({**TRIP, "id": "T1", "mode": "train", "cents": 6120, "option_cents": 450}),
    Trip.model_validate(
        {**TRIP, "id": "T2", "mode": "train", "cents": 5500, "option_cents": 650, "departs": 600, "refundable": False}
    ),
    Trip.model_validate({**TRIP, "id": "T3", "mode": "flight", "cents": 4000, "option_cents": 2250, "minutes": 65}),
)
HOTEL = Hotel(id="H1", city="Turin", name="Magpie", tenths=87, cents=9015, breakfast_cents=850)
RIDE, STAY = TripBooking(id="B1", trip=TRAIN), HotelBooking(id="B2", hotel=HOTEL, check_in="2026-05-04", nights=2)
DESK = TravelState(trips=(LATER, TRAIN, FLIGHT), hotels=(HOTEL,), bookings=(RIDE, STAY), made=2)
IN_TURIN = "H1 2026-05-04 for 2 with nothing"


def taking(trip: str, booking: str = "B1") -> ParsedCall:
    return build_call("change_trip", booking_id=booking, trip_id=trip)


def adding(option: str, booking: str = "B1") -> ParsedCall:
    return build_call("add_option", booking_id=booking, option=option)


def ride(trip: Trip, cost: str, *options: str, booking: str = "B1") -> JsonValue:
    return {"booking_id": booking, "trip": trip.to_observation(), "booked": [*options], "cost": cost}


def stay(booking: str, check_in: str, nights: int, cost: str, *options: str) -> JsonValue:
    where: dict[str, JsonValue] = {"booking_id": booking, "hotel": HOTEL.to_observation(), "check_in": check_in}
    return {**where, "nights": nights, "booked": [*options], "cost": cost}


SEARCH: dict[str, JsonValue] = {"origin": "lyon", "destination": "Turin ", "date": "2026-05-04"}
TRAVEL: dict[str, Case] = {
    "trips": (
        (build_call("search_trips", **SEARCH, mode="train"),),
        {
            "trips": [
                {
                    **{"trip_id": name, "mode": "train", "origin": "Lyon", "destination": "Turin"},
                    **{"date": "2026-05-04", "departs": departs, "arrives": arrives, "minutes": 200},
                    **{"price": price, "options": {"seat": seat}, "refundable": refundable},
                }
                for name, departs, arrives, price, seat, refundable in (
                    ("T1", "08:00", "11:20", "61.20", "4.50", True),
                    ("T2", "10:00", "13:20", "55.00", "6.50", False),
                )
            ]
        },
        None,
    ),
    "no trips": ((build_call("search_trips", **SEARCH | {"date": "2026-05-05"}),), {"trips": []}, None),
    "hotels": (
        (build_call("search_hotels", city="TURIN"),),
        {
            "hotels": [
                {
                    **{"hotel_id": "H1", "city": "Turin", "name": "Magpie", "rating": "8.7"},
                    **{"price_per_night": "90.15", "options": {"breakfast": "8.50 per night"}, "refundable": True},
                }
            ]
        },
        None,
    ),
    "bookings": (
        (build_call("list_bookings"),),
        {"bookings": [ride(TRAIN, "61.20"), stay("B2", "2026-05-04", 2, "180.30")]},
        None,
    ),
    "booked": (
        (build_call("book_trip", trip_id="T3"),),
        ride(FLIGHT, "40.00", booking="B3"),
        [IN_TURIN, "T1 with nothing", "T3 with nothing"],
    ),
    "booked nothing": ((build_call("book_trip", trip_id="T9"),), error("there is no trip 'T9'"), None),
    "booked a hotel": (
        (build_call("book_hotel", hotel_id="H1", check_in="2026-06-01", nights=1),),
        stay("B3", "2026-06-01", 1, "90.15"),
        [IN_TURIN, "H1 2026-06-01 for 1 with nothing", "T1 with nothing"],
    ),
    "booked on no day": (
        (build_call("book_hotel", hotel_id="H1", check_in="2026-06-31", nights=1),),
        error("2026-06-31 is no day of the calendar"),
        None,
    ),
    "changed": ((taking("T2"),), ride(LATER, "55.00"), [IN_TURIN, "T2 with nothing"]),
    "changed by air": ((taking("T3"),), error("B1 is a train from Lyon to Turin"), None),
    "changed a hotel for a train": ((taking("T1", "B2"),), error("B2 is a hotel"), None),
    "stayed": (
        (build_call("change_stay", booking_id="B2", nights=3),),
        stay("B2", "2026-05-04", 3, "270.45"),
        ["H1 2026-05-04 for 3 with nothing", "T1 with nothing"],
    ),
    "stayed in a train": ((build_call("change_stay", booking_id="B1", nights=3),), error("B1 is a train"), None),
    "a seat": ((adding("seat"),), ride(TRAIN, "65.70", "seat"), [IN_TURIN, "T1 with seat"]),
    "breakfast": (
        (adding("breakfast", "B2"),),
        stay("B2", "2026-05-04", 2, "197.30", "breakfast"),
        ["H1 2026-05-04 for 2 with breakfast", "T1 with nothing"],
    ),
    "two seats": ((adding("seat"),) * 2, error("B1 is with seat already"), [IN_TURIN, "T1 with seat"]),
    "luggage": ((adding("luggage"),), error("B1 can be had with seat, not with luggage"), None),
    "cancelled": (
        (build_call("cancel_booking", booking_id="B1"),),
        {"cancelled": "B1", "paid_back": True},
        [IN_TURIN],
    ),
    "cancelled for nothing": (
        (taking("T2"), build_call("cancel_booking", booking_id="B1")),
        {"cancelled": "B1", "paid_back": False},
        [IN_TURIN, "T2 with nothing cancelled"],
    ),
    "cancelled twice": (
        (build_call("cancel_booking", booking_id="B1"),) * 2,
        error("there is no booking 'B1'"),
        [IN_TURIN],
    ),
    "booked anew": (
        (build_call("cancel_booking", booking_id="B1"), build_call("book_trip", trip_id="T1")),
        ride(TRAIN, "61.20", booking="B3"),
        None,
    ),
}


@pytest.mark.parametrize("name", TRAVEL)
def test_what_the_tools_of_travel_do_and_say(name: str) -> None:
    calls, told, after = TRAVEL[name]
    assert worked(TravelService(), DESK, calls) == (told, after)


def test_every_tool_of_travel_is_in_the_table() -> None:
    assert tried(TRAVEL) == tools(TravelService())
