"""Scenarios of travellers who book a journey."""

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
