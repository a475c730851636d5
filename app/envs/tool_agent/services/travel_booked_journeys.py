"""Scenarios of travellers who change a booked journey."""

from typing import Final

from app.envs.tool_agent.services.simulated_service import ServiceScenario, UserWish, build_call
from app.envs.tool_agent.services.travel_builder import (
    CHEAP,
    DEAR,
    FAST,
    FLYING,
    SLOW,
    USUAL,
    TravelBuilder,
    build_search,
    find_cheapest,
)
from app.envs.tool_agent.services.travel_state import TravelState
from app.envs.tool_agent.services.value_formats import add_days, format_euros, format_time, write_day
from app.toolkit.seeded import SeededRandom


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
