"""The state of a travel desk: what can be booked, and what is booked."""

from collections.abc import Sequence
from typing import Final, Literal

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.episodes import (
    AS_WRITTEN,
    DATE,
    Arguments,
    OperationRefused,
    ServiceOperation,
    ServiceScenario,
    UserWish,
    add_days,
    build_call,
    build_tool,
    check_day,
    format_euros,
    format_time,
    write_day,
)
from app.toolkit.seeded import SeededRandom
from app.toolkit.tool_calls.calls import ParsedCall

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


# Initial travel desks of scenarios.

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


# Scenarios of travellers who change a booked journey.


def _draw_called_off(draws: SeededRandom) -> ServiceScenario[TravelState]:
    """Cancel the refundable bookings of a journey and no others; then add a seat to another journey."""
    making, nights = TravelBuilder(draws), 2 + draws.below(3)
    minutes, back = draws.one(FAST), add_days(making.day, nights)
    out = making.offer_trips("train", making.home, making.there, making.day, minutes, making.draw_prices(USUAL, 2))[0]
    returned = making.offer_trips("train", making.there, making.home, back, minutes, making.draw_prices(USUAL, 2))[1]
    other_day = add_days(making.day, 10 + draws.below(20))
    other = making.offer_trips("train", making.home, making.elsewhere, other_day, 190, making.draw_prices(USUAL, 2))[0]
    fixed_out = draws.chance(50)
    out, returned = (
        (making.make_nonrefundable(out), returned) if fixed_out else (out, making.make_nonrefundable(returned))
    )
    rides = [making.book_ride(one) for one in (out, returned)]
    stay = making.book_stay(making.add_hotel(making.there, 90, 80), making.day, nights)
    kept, gone = (rides[0], rides[1]) if fixed_out else (rides[1], rides[0])
    ahead = making.book_ride(other)
    making.book_stay(making.add_hotel(making.elsewhere, 100, 85), other_day, 2)
    day = write_day(making.day)
    asked = (
        f"My visit to {making.there} that was to begin on {day} is off. Cancel all that belongs to it as far as your "
        "rules allow. Which booking number is left of it?",
        f"I am not going to {making.there} on {day} after all. Way there, way back, hotel: please cancel whatever you "
        "may, and tell me the number of the booking that has to stay.",
        f"The customer in {making.there} has cancelled, so the whole journey starting on {day} falls through. Undo the "
        "bookings for it where that is permitted. Which one, by number, is left?",
    )
    added = (
        f"For {making.elsewhere} everything stays as it is, but I want a reserved seat in the train. What does that "
        "train cost then?",
        f"My journey to {making.elsewhere} does take place. Add a seat to that train and tell me what it "
        "costs with it.",
        f"Then please reserve a seat for me on the way to {making.elsewhere}. How much is that train, seat included?",
    )
    cost = format_euros(ahead.cents + other.option_cents)
    return ServiceScenario(
        kind="called off",
        start=making.build_state(),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    build_call("list_bookings"),
                    build_call("cancel_booking", booking_id=gone.id),
                    build_call("cancel_booking", booking_id=stay.id),
                ),
                reply=f"All is cancelled but {kept.id}, which is not refundable.",
                answers=(kept.id,),
            ),
            UserWish(
                says=draws.one(added),
                calls=(build_call("add_option", booking_id=ahead.id, option="seat"),),
                reply=f"It costs {cost} with the seat.",
                answers=(cost,),
            ),
        ),
    )


def _draw_longer_stay(draws: SeededRandom) -> ServiceScenario[TravelState]:
    """Stay a night longer and take the cheapest train back a day later; then add breakfast."""
    making, nights = TravelBuilder(draws), 2 + draws.below(3)
    minutes, back = draws.one(FAST), add_days(making.day, nights)
    next_day = add_days(back, 1)
    out = making.offer_trips("train", making.home, making.there, making.day, minutes, making.draw_prices(USUAL, 2))[1]
    returned = making.offer_trips("train", making.there, making.home, back, minutes, making.draw_prices(USUAL, 2))[0]
    trains = making.offer_trips("train", making.there, making.home, next_day, minutes, making.draw_prices(USUAL, 4))
    making.offer_trips("flight", making.there, making.home, next_day, draws.one(FLYING), making.draw_prices(CHEAP, 2))
    making.book_ride(out)
    ride = making.book_ride(returned)
    hotel = making.add_hotel(making.there, 70 + draws.below(60), 82)
    stay = making.book_stay(hotel, making.day, nights)
    making.book_stay(making.add_hotel(making.elsewhere, 100, 85), add_days(making.day, 20), 1)
    taken, cost = find_cheapest(trains), format_euros((nights + 1) * (hotel.cents + hotel.breakfast_cents))
    day = write_day(making.day)
    asked = (
        f"I am staying one night longer in {making.there} (the journey of {day}). Extend the hotel and put me on the "
        "cheapest train home the day after the one that I have. When does it leave?",
        f"My stay in {making.there} from {day} on has to be a night longer. Please change hotel and return train, "
        "taking the cheapest train back on the new day, and tell me its departure.",
        f"About {making.there}, where I arrive on {day}: add one night, and put my train home one day later, on "
        "the cheapest one of that day. What is the time of departure?",
    )
    added = (
        "Since I am there longer I want breakfast in the hotel, too. What does the hotel cost me in all?",
        "And book breakfast there for the whole stay. What is the hotel's price for all nights then?",
        "Please add breakfast to that stay as well; how much is the hotel altogether now?",
    )
    return ServiceScenario(
        kind="longer stay",
        start=making.build_state(),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    build_call("list_bookings"),
                    build_search(taken),
                    build_call("change_stay", booking_id=stay.id, nights=nights + 1),
                    build_call("change_trip", booking_id=ride.id, trip_id=taken.id),
                ),
                reply=f"It leaves at {format_time(taken.departs)}.",
                answers=(format_time(taken.departs),),
                beside=(format_time(returned.departs),),
            ),
            UserWish(
                says=draws.one(added),
                calls=(build_call("add_option", booking_id=stay.id, option="breakfast"),),
                reply=f"The hotel costs {cost} now.",
                answers=(cost,),
                beside=(format_euros((nights + 1) * hotel.breakfast_cents),),
            ),
        ),
    )


def _draw_all_flights(draws: SeededRandom) -> ServiceScenario[TravelState]:
    """Add luggage to all flights but no train; then change to a later flight."""
    making = TravelBuilder(draws)
    minutes, back = draws.one(FLYING), add_days(making.day, 3)
    out = making.offer_trips("flight", making.home, making.there, making.day, minutes, making.draw_prices(DEAR, 2))[0]
    returns = making.offer_trips("flight", making.there, making.home, back, minutes, making.draw_prices(DEAR, 3))
    train = making.offer_trips(
        "train", making.home, making.elsewhere, add_days(making.day, 8), 180, making.draw_prices(USUAL, 2)
    )
    for origin, destination, day in ((making.home, making.there, making.day), (making.there, making.home, back)):
        making.offer_trips("train", origin, destination, day, draws.one(SLOW), making.draw_prices(CHEAP, 2))
    rides = [making.book_ride(one) for one in (out, returns[0])]
    making.book_ride(train[0])
    last, price = returns[-1], format_euros(out.option_cents + returns[0].option_cents)
    cost, day = format_euros(last.cents + last.option_cents), write_day(making.day)
    asked = (
        f"I have more with me than I thought when I fly on {day}. Add luggage to all flights that I have booked, "
        "there and back. How much more is that in all?",
        f"Please book luggage for every flight of mine, the one of {day} and the one back. What do I pay for the "
        "luggage together?",
        f"From {day} on I carry samples. Each of my flights needs luggage; leave my trains alone. What is the extra "
        "cost for all of it?",
    )
    changed = (
        f"The flight back from {making.there} is too early. Put me on the last flight of that day; what does it cost "
        "with the luggage?",
        f"And I will not make that flight home from {making.there}. Change it to the last one on the same day. How "
        "much is it, luggage included?",
        f"My return from {making.there} should be as late as possible on the same day, by air as before. Change it and "
        "tell me the price with luggage.",
    )
    return ServiceScenario(
        kind="all flights",
        start=making.build_state(),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    build_call("list_bookings"),
                    *(build_call("add_option", booking_id=one.id, option="luggage") for one in rides),
                ),
                reply=f"The luggage costs {price} in all.",
                answers=(price,),
            ),
            UserWish(
                says=draws.one(changed),
                calls=(build_search(last), build_call("change_trip", booking_id=rides[1].id, trip_id=last.id)),
                reply=f"It costs {cost}.",
                answers=(cost,),
            ),
        ),
    )


BOOKED_JOURNEYS: Final = (_draw_called_off, _draw_longer_stay, _draw_all_flights)


# Scenarios of travellers who book a journey.


def _draw_there_in_time(draws: SeededRandom) -> ServiceScenario[TravelState]:
    """Book the cheapest train that arrives in time (flights and later trains cost less); then the same a day later."""
    making = TravelBuilder(draws)
    making.book_other_journey()
    minutes, next_day = draws.one(FAST), add_days(making.day, 1)
    offered = {
        day: making.offer_trips(
            "train",
            making.home,
            making.there,
            day,
            minutes,
            [*making.draw_prices(USUAL, 3), *making.draw_prices(CHEAP, 2)],
        )
        for day in (making.day, next_day)
    }
    for day in offered:
        making.offer_trips("flight", making.home, making.there, day, draws.one(FLYING), making.draw_prices(CHEAP, 2))
    making.offer_trips("train", making.there, making.home, making.day, minutes, making.draw_prices(CHEAP, 2))
    until = max(trips[2].arrives for trips in offered.values())
    first, second = (find_cheapest(trips[:3]) for trips in offered.values())
    route, day, time = f"from {making.home} to {making.there}", write_day(making.day), format_time(until)
    asked = (
        f"I have to be in {making.there} on {day} at {time} at the latest. Book me the cheapest train from "
        f"{making.home} that gets me there in time. When does it leave?",
        f"Please book a train {route} on {day}, arrival by {time}, as cheap as possible, and tell me the departure.",
        f"The cheapest train {route} on {day} that arrives no later than {time}, please. When does it depart?",
    )
    changed = (
        f"The meeting is one day later now, on {write_day(next_day)}, at the same hour. Change my ticket on the same "
        "terms; what does it cost?",
        f"Everything moves to {write_day(next_day)}. Same conditions: cheapest train, there by the same time. Rebook "
        "it and give me the price.",
        f"It turns out that I am expected on {write_day(next_day)}, not the day before. Swap the train for the one "
        "that is right by the same rules and tell me its price.",
    )
    return ServiceScenario(
        kind="there in time",
        start=making.build_state(),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(build_search(first), build_call("book_trip", trip_id=first.id)),
                reply=f"It leaves at {format_time(first.departs)}.",
                answers=(format_time(first.departs),),
            ),
            UserWish(
                says=draws.one(changed),
                calls=(build_search(second), build_call("change_trip", booking_id=making.next_id, trip_id=second.id)),
                reply=f"It costs {format_euros(second.cents)}.",
                answers=(format_euros(second.cents),),
            ),
        ),
    )


def _draw_within_budget(draws: SeededRandom) -> ServiceScenario[TravelState]:
    """Book the best hotel within rules and budget; then add breakfast."""
    making, nights = TravelBuilder(draws), 2 + draws.below(3)
    making.book_other_journey()
    trips = making.offer_trips(
        "train", making.home, making.there, making.day, draws.one(FAST), making.draw_prices(USUAL, 3)
    )
    ratings = sorted(draws.some(range(60, 98), 5))
    modest, better, forbidden = 80 + draws.below(15), 125 + draws.below(20), 155 + draws.below(50)
    making.add_hotel(making.there, 45 + draws.below(20), ratings[0])
    making.add_hotel(making.there, 66 + draws.below(12), ratings[1])
    hotels = [
        making.add_hotel(making.there, price, rating)
        for price, rating in zip((modest, better), ratings[2:], strict=False)
    ]
    making.add_hotel(making.there, forbidden, ratings[4])
    train, roomy = find_cheapest(trips), draws.chance(50)
    good = hotels[roomy]
    total = train.cents + nights * good.cents
    spare = nights * (forbidden - better + 1) if roomy else 0
    budget = -(-total // 1000) * 10 + 10 + spare
    with_breakfast = format_euros(total + nights * good.breakfast_cents)
    route, day = f"from {making.home} to {making.there}", write_day(making.day)
    asked = (
        f"I need the cheapest train {route} on {day} and a hotel there for {nights} nights from that day. The best "
        f"rated hotel you may book, train and hotel for at most {budget} euros together. What is the sum?",
        f"Book me {route} on {day} by the cheapest train, then {nights} nights there in the hotel with the highest "
        f"rating that your rules and a budget of {budget} euros for everything allow. How much will it all cost?",
        f"My budget is {budget} euros, for a one-way train {route} on {day} plus {nights} nights in a hotel from then "
        "on. Cheapest train; and as good a rating of the hotel as the money and your rules permit. Tell me the total.",
    )
    added = (
        "Breakfast at the hotel as well, please. The budget does not matter for that. What is it all together now?",
        "Please add breakfast, I pay for that myself. What do train and hotel with breakfast come to?",
        "I would like to have breakfast there, even if that breaks the budget. What is the new total of the two?",
    )
    return ServiceScenario(
        kind="within budget",
        start=making.build_state(),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    build_search(train),
                    build_call("search_hotels", city=making.there),
                    build_call("book_trip", trip_id=train.id),
                    build_call("book_hotel", hotel_id=good.id, check_in=making.day, nights=nights),
                ),
                reply=f"It costs {format_euros(total)} in all.",
                answers=(format_euros(total),),
                beside=(format_euros(100 * budget - total),),
            ),
            UserWish(
                says=draws.one(added),
                calls=(build_call("add_option", booking_id=f"B{making.made + 2}", option="breakfast"),),
                reply=f"It is {with_breakfast} now.",
                answers=(with_breakfast,),
                beside=(format_euros(nights * good.breakfast_cents),),
            ),
        ),
    )


def _draw_by_the_rules(draws: SeededRandom) -> ServiceScenario[TravelState]:
    """Book a train or a flight, as the rules require; then add its option."""
    making, fast = TravelBuilder(draws), draws.chance(50)
    making.book_other_journey()
    trains = making.offer_trips(
        "train",
        making.home,
        making.there,
        making.day,
        draws.one(FAST if fast else SLOW),
        making.draw_prices(DEAR if fast else CHEAP, 4),
    )
    flights = making.offer_trips(
        "flight",
        making.home,
        making.there,
        making.day,
        draws.one(FLYING),
        making.draw_prices(CHEAP if fast else DEAR, 4),
    )
    right = trains if fast else flights
    since = 5 * ((max(trains[0].departs, flights[0].departs) + 5) // 5)
    taken = find_cheapest([one for one in right if one.departs >= since])
    route, day, time = f"from {making.home} to {making.there}", write_day(making.day), format_time(since)
    asked = (
        f"How I get {route} on {day} does not matter to me. Book what your rules want, as cheap as it gets, nothing "
        f"that leaves before {time}. What does it cost?",
        f"I have to travel {route} on {day}, not before {time}. Train or flight, as your rules prescribe, and of "
        "those the cheapest. Please book it and tell me the price.",
        f"Please book me one way {route} on {day}. I can leave from {time} on. Take the cheapest one that is right by "
        "your rules and tell me what I pay.",
    )
    if fast:
        added = (
            "With a reserved seat, please. What is the price then?",
            "And reserve a seat for me on it. How much is it altogether?",
            "I do not want to stand: add a seat and give me the new price.",
        )
    else:
        added = (
            "I have a suitcase, so add luggage. What is the price then?",
            "And with luggage, please. How much is it altogether?",
            "I forgot that I carry samples: book luggage with it and give me the new price.",
        )
    cost = format_euros(taken.cents + taken.option_cents)
    return ServiceScenario(
        kind="by the rules",
        start=making.build_state(),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(build_search(taken), build_call("book_trip", trip_id=taken.id)),
                reply=f"It costs {format_euros(taken.cents)}.",
                answers=(format_euros(taken.cents),),
            ),
            UserWish(
                says=draws.one(added),
                calls=(build_call("add_option", booking_id=making.next_id, option=taken.option),),
                reply=f"It costs {cost} now.",
                answers=(cost,),
            ),
        ),
    )


NEW_JOURNEYS: Final = (_draw_there_in_time, _draw_within_budget, _draw_by_the_rules)


# The travel service: its tools and its rules. The tools can do more than the rules allow.

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
