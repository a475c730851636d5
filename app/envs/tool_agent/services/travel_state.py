"""The state of a travel desk: what can be booked, and what is booked."""

from typing import Final, Literal

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.services.simulated_service import OperationRefused
from app.envs.tool_agent.services.value_formats import format_euros, format_time

MOST_SHOWN: Final = 40
"""Characters of an unknown identifier that an error quotes."""
MOST_BOOKINGS: Final = 60

Mode = Literal["train", "flight"]
Option = Literal["seat", "luggage", "breakfast"]


class Trip(Frozen):
    id: str
    mode: Mode
    origin: str
    destination: str
    date: str
    departs: int
    """Minutes after midnight."""
    minutes: int
    cents: int
    option_cents: int
    refundable: bool = True

    @property
    def arrives(self) -> int:
        return self.departs + self.minutes

    @property
    def option(self) -> Option:
        """The option that can be booked with the trip."""
        return "seat" if self.mode == "train" else "luggage"

    def to_observation(self) -> JsonValue:
        return {
            "trip_id": self.id,
            "mode": self.mode,
            "origin": self.origin,
            "destination": self.destination,
            "date": self.date,
            "departs": format_time(self.departs),
            "arrives": format_time(self.arrives),
            "minutes": self.minutes,
            "price": format_euros(self.cents),
            "options": {self.option: format_euros(self.option_cents)},
            "refundable": self.refundable,
        }


class Hotel(Frozen):
    id: str
    city: str
    name: str
    tenths: int
    """Rating in tenths."""
    cents: int
    """For one night."""
    breakfast_cents: int
    refundable: bool = True

    def to_observation(self) -> JsonValue:
        return {
            "hotel_id": self.id,
            "city": self.city,
            "name": self.name,
            "rating": f"{self.tenths // 10}.{self.tenths % 10}",
            "price_per_night": format_euros(self.cents),
            "options": {"breakfast": f"{format_euros(self.breakfast_cents)} per night"},
            "refundable": self.refundable,
        }


class TripBooking(Frozen):
    """A booked trip."""

    id: str
    trip: Trip
    options: tuple[Option, ...] = ()
    cancelled: bool = False

    @property
    def cents(self) -> int:
        return self.trip.cents + self.trip.option_cents * len(self.options)

    @property
    def offers(self) -> Option:
        return self.trip.option

    @property
    def refundable(self) -> bool:
        return self.trip.refundable

    def to_observation(self) -> JsonValue:
        return {
            "booking_id": self.id,
            "trip": self.trip.to_observation(),
            "booked": [*self.options],
            "cost": format_euros(self.cents),
        }


class HotelBooking(Frozen):
    """A booked hotel."""

    id: str
    hotel: Hotel
    check_in: str
    nights: int
    options: tuple[Option, ...] = ()
    cancelled: bool = False

    @property
    def cents(self) -> int:
        return self.nights * (self.hotel.cents + self.hotel.breakfast_cents * len(self.options))

    @property
    def offers(self) -> Option:
        return "breakfast"

    @property
    def refundable(self) -> bool:
        return self.hotel.refundable

    def to_observation(self) -> JsonValue:
        return {
            "booking_id": self.id,
            "hotel": self.hotel.to_observation(),
            "check_in": self.check_in,
            "nights": self.nights,
            "booked": [*self.options],
            "cost": format_euros(self.cents),
        }


Booking = TripBooking | HotelBooking


class TravelState(Frozen):
    trips: tuple[Trip, ...] = ()
    hotels: tuple[Hotel, ...] = ()
    bookings: tuple[Booking, ...] = ()
    made: int = 0
    """Number of the newest booking."""

    def find_booking(self, identity: str) -> Booking:
        for one in self.bookings:
            if one.id == identity and not one.cancelled:
                return one
        raise OperationRefused(f"there is no booking {identity[:MOST_SHOWN]!a}")

    @property
    def next_id(self) -> str:
        return f"B{self.made + 1}"

    def with_booking(self, booking: Booking) -> "TravelState":
        if len(self.bookings) >= MOST_BOOKINGS:
            raise OperationRefused("no more bookings can be made")
        return self.model_copy(update={"bookings": (*self.bookings, booking), "made": self.made + 1})

    def with_changed(self, booking: Booking) -> "TravelState":
        bookings = tuple(booking if one.id == booking.id else one for one in self.bookings)
        return self.model_copy(update={"bookings": bookings})
