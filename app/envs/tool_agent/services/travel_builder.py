"""Initial travel desks of scenarios."""

from collections.abc import Sequence
from typing import Final

from app.envs.tool_agent.services.simulated_service import build_call
from app.envs.tool_agent.services.travel_state import Booking, Hotel, HotelBooking, Mode, TravelState, Trip, TripBooking
from app.envs.tool_agent.services.value_formats import add_days
from app.toolkit.seeded import SeededRandom
from app.toolkit.tool_calls.calls import ParsedCall

CITIES: Final = (
    *("Lyon", "Milan", "Zurich", "Vienna", "Prague", "Hamburg", "Antwerp", "Bologna", "Geneva", "Krakow", "Munich"),
    *("Porto", "Rotterdam", "Seville", "Strasbourg", "Turin", "Utrecht", "Warsaw"),
)
HOTELS: Final = (
    *("Almond Court", "Bellweather", "Copper Gate", "Drover's Rest", "Elder House", "Fountain Inn", "Greenfinch"),
    *("Hawthorn", "Ivory Tower", "Juniper Yard", "Kingfisher", "Linden Hof", "Magpie", "Old Granary"),
)
FAST: Final = (150, 175, 205, 240)
SLOW: Final = (325, 350, 380, 410)
FLYING: Final = (65, 80, 95, 110)
"""Minutes of a journey: trains below and above the limit of the rules, and flights."""
CHEAP: Final = range(19, 45)
USUAL: Final = range(50, 100)
DEAR: Final = range(110, 160)
"""Euros for a trip, or for a night."""
EARLIEST: Final = 6 * 60
APART: Final = 2 * 60 + 10
"""Minutes between departures on a day, at least."""


class TravelBuilder:
    """Builds the initial state of a scenario; each call adds another trip, hotel or booking."""

    def __init__(self, draws: SeededRandom) -> None:
        self.draws = draws
        self.home, self.there, self.elsewhere = draws.some(CITIES, 3)
        self.day = add_days("2026-02-01", draws.below(300))
        self.trips: list[Trip] = []
        self.hotels: list[Hotel] = []
        self.bookings: list[Booking] = []
        self.made = 200 + draws.below(700)
        self._names = draws.shuffled(HOTELS)

    def offer_trips(
        self, mode: Mode, origin: str, destination: str, day: str, minutes: int, prices: Sequence[int]
    ) -> list[Trip]:
        """Trips of one day by departure. Prices are in euros; cents are drawn."""
        made = [
            Trip(
                id=f"T{len(self.trips) + 101 + place}",
                mode=mode,
                origin=origin,
                destination=destination,
                date=day,
                departs=EARLIEST + APART * place + 5 * self.draws.below(20),
                minutes=minutes,
                cents=100 * price + self.draws.one((20, 35, 60, 85)),
                option_cents=self.draws.one((450, 650)) if mode == "train" else self.draws.one((2250, 3150)),
            )
            for place, price in enumerate(prices)
        ]
        self.trips += made
        return made

    def add_hotel(self, city: str, euros: int, tenths: int) -> Hotel:
        made = Hotel(
            id=f"H{len(self.hotels) + 51}",
            city=city,
            name=self._names.pop(),
            tenths=tenths,
            cents=100 * euros + self.draws.one((15, 40, 75)),
            breakfast_cents=self.draws.one((850, 1150, 1375)),
        )
        self.hotels.append(made)
        return made

    def book_ride(self, trip: Trip) -> TripBooking:
        self.made += 1
        self.bookings.append(ride := TripBooking(id=f"B{self.made}", trip=trip))
        return ride

    def book_stay(self, hotel: Hotel, check_in: str, nights: int) -> HotelBooking:
        self.made += 1
        self.bookings.append(stay := HotelBooking(id=f"B{self.made}", hotel=hotel, check_in=check_in, nights=nights))
        return stay

    def make_nonrefundable(self, trip: Trip) -> Trip:
        """The same trip, not refundable."""
        fixed = trip.model_copy(update={"refundable": False})
        self.trips[self.trips.index(trip)] = fixed
        return fixed

    def book_other_journey(self) -> None:
        """Books a journey that the user does not mention."""
        day = add_days(self.day, 30)
        (trip,) = self.offer_trips("train", self.home, self.elsewhere, day, FAST[0], self.draw_prices(USUAL, 1))
        self.book_ride(trip)
        self.book_stay(self.add_hotel(self.elsewhere, 100, 85), day, 2)

    def draw_prices(self, euros: range, count: int) -> list[int]:
        return self.draws.some(euros, count)

    def build_state(self) -> TravelState:
        return TravelState(
            trips=tuple(self.draws.shuffled(self.trips)),
            hotels=tuple(self.draws.shuffled(self.hotels)),
            bookings=tuple(self.bookings),
            made=self.made,
        )

    @property
    def next_id(self) -> str:
        """Identifier of the first booking that the model makes."""
        return f"B{self.made + 1}"


def build_search(trip: Trip) -> ParsedCall:
    """The call that finds the trip."""
    return build_call("search_trips", origin=trip.origin, destination=trip.destination, date=trip.date)


def find_cheapest(trips: Sequence[Trip]) -> Trip:
    return min(trips, key=lambda one: one.cents)
