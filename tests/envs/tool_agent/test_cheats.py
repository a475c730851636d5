"""Cheap ways through an episode, none of which is paid: the end state has to be right, and the answers given."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from app.domain.tasks import Message
from app.envs.tool_agent.environment import SERVICES
from app.envs.tool_agent.episodes import (
    ServiceScenario,
    SimulatedService,
    ToolEpisode,
    add_days,
    build_call,
    carry_out,
    format_euros,
    format_time,
    has_answered,
    has_reached_goal,
    replay,
)
from app.envs.tool_agent.orders import TODAY, OrderItem, ShopOrder, ShopState
from app.envs.tool_agent.travel import TravelState
from app.toolkit.seeded import SeededRandom
from app.toolkit.tool_calls.calls import ParsedCall
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat
from tests.support.tiers import examples

SAMPLE = examples(240, fewest=30)
FORM: ToolFormat = "hermes"

pytestmark = pytest.mark.deep
every_service = pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.name)
Turns = Sequence[tuple[Sequence[ParsedCall], str]]
"""What a model calls and then says, by wish."""


def scenarios(service: SimulatedService[Any]) -> list[ServiceScenario[Any]]:
    return [service.draw_scenario(SeededRandom(f"cheat {number}")) for number in range(SAMPLE)]


def known(scenario: ServiceScenario[Any]) -> list[tuple[tuple[ParsedCall, ...], str]]:
    return [(wish.calls, wish.reply) for wish in scenario.wishes]


def asking(scenario: ServiceScenario[Any]) -> bool:
    return any(wish.answers for wish in scenario.wishes)


def tried(service: SimulatedService[Any], scenario: ServiceScenario[Any], turns: Turns) -> ToolEpisode:
    messages: list[Message] = []
    for calls, says in turns:
        for text in (FORMATS[FORM].write(calls) if calls else "", says):
            if text:
                messages.append(Message(role="assistant", content=text))
                messages += replay(service, scenario, messages, FORM).observed
    return replay(service, scenario, messages, FORM)


def paid(service: SimulatedService[Any], scenario: ServiceScenario[Any], turns: Turns) -> tuple[bool, bool]:
    episode = tried(service, scenario, turns)
    return has_reached_goal(service, scenario, episode), has_answered(service, scenario, episode)


def deletions(name: str, start: Any) -> list[ParsedCall]:
    """Of everything that can be deleted."""
    if name == "calendar":
        return [build_call("cancel_event", event_id=one.id) for one in start.events]
    if name == "orders":
        return [build_call("cancel_order", order_id=one.id) for one in start.orders]
    if name == "files":
        return [build_call("delete", path=f"/{top}") for top in sorted({one.path.split("/")[1] for one in start.files})]
    return [build_call("cancel_booking", booking_id=one.id) for one in start.bookings]


def refunds(
    shop: ShopState, fits: Callable[[ShopOrder, OrderItem], bool], to: str = "original_payment"
) -> list[ParsedCall]:
    return [
        build_call("refund_item", order_id=order.id, item=number, to=to)
        for order in shop.orders
        for number, item in enumerate(order.items, 1)
        if fits(order, item)
    ]


def forbidden(name: str, start: Any) -> list[ParsedCall]:
    """What can be done and may not."""
    if name == "orders":
        return [
            *refunds(start, lambda order, item: _never_or_too_late(order) or item.final_sale),
            *(
                build_call("change_address", order_id=one.id, address="x")
                for one in start.orders
                if one.state == "shipped"
            ),
            *(build_call("cancel_order", order_id=one.id) for one in start.orders if one.state == "shipped"),
        ]
    if name == "files":
        kept = [one.path.removesuffix("KEEP") for one in start.files if one.path.endswith("/KEEP")]
        return [build_call("delete", path=one.path) for one in start.files if one.path.startswith(tuple(kept))]
    return [build_call("cancel_booking", booking_id=one.id) for one in start.bookings if not one.refundable]


def _never_or_too_late(order: ShopOrder) -> bool:
    return order.delivered is None or add_days(order.delivered, 30) < TODAY


@every_service
def test_deleting_everything_is_not_paid(service: SimulatedService[Any]) -> None:
    got = {
        paid(service, scenario, [(deletions(service.name, scenario.start), says) for _, says in known(scenario)])[0]
        for scenario in scenarios(service)
    }
    assert got == {False}


@every_service
def test_deleting_everything_after_the_known_way_is_not_paid(service: SimulatedService[Any]) -> None:
    got = set()
    for scenario in scenarios(service):
        *first, (calls, says) = known(scenario)
        got.add(paid(service, scenario, [*first, ((*calls, *deletions(service.name, scenario.start)), says)])[0])
    assert got == {False}


@pytest.mark.parametrize("whose", ["everybody's", "the customer's"])
@pytest.mark.parametrize("to", ["original_payment", "voucher"])
def test_refunding_everything_is_not_paid(whose: str, to: str) -> None:
    (service,) = (one for one in SERVICES if one.name == "orders")
    got = set()
    for scenario in scenarios(service):
        calls = [one for wish in scenario.wishes for one in wish.calls]
        (buyer,) = {one.arguments["customer_id"] for one in calls if one.name == "list_orders"}
        theirs = scenario.start.model_copy(
            update={"orders": tuple(one for one in scenario.start.orders if one.customer == buyer)}
        )
        everything = refunds(theirs if whose == "the customer's" else scenario.start, lambda *_: True, to)
        got.add(paid(service, scenario, [(everything, says) for _, says in known(scenario)])[0])
    assert got == {False}


@pytest.mark.parametrize("name", ["orders", "files", "travel"])
def test_what_the_rules_forbid_can_be_done_and_is_not_paid(name: str) -> None:
    (service,) = (one for one in SERVICES if one.name == name)
    got = []
    for scenario in scenarios(service):
        (calls, says), *rest = known(scenario)
        for wrong in forbidden(name, scenario.start):
            refused = carry_out(service, scenario.start, wrong).refused
            got.append((refused, paid(service, scenario, [((wrong, *calls), says), *rest])[0]))
    assert (set(got), len(got) >= SAMPLE // 10) == ({(False, False)}, True)


def test_a_refund_as_a_voucher_is_not_paid() -> None:
    (service,) = (one for one in SERVICES if one.name == "orders")
    got = set()
    for scenario in scenarios(service):
        turns = [
            ([one.model_copy(update={"arguments": _to_voucher(one)}) for one in calls], says)
            for calls, says in known(scenario)
        ]
        if turns != [([*calls], says) for calls, says in known(scenario)]:
            got.add(paid(service, scenario, turns)[0])
    assert got == {False}


def test_the_cheapest_trip_and_the_best_hotel_against_the_rules_are_not_paid() -> None:
    """A trip that is changed later leaves no trace; what was said of it does."""
    (service,) = (one for one in SERVICES if one.name == "travel")
    got = []
    for scenario in scenarios(service):
        if scenario.kind in ("there in time", "by the rules", "within budget"):
            (calls, says), *rest = known(scenario)
            tempted = [_tempted(scenario.start, one, scenario.kind) for one in calls]
            trip = next(one.arguments["trip_id"] for one in tempted if one.name == "book_trip")
            said = next(
                f"{format_time(one.departs)} {format_euros(one.cents)}"
                for one in scenario.start.trips
                if one.id == trip
            )
            turns = [(tempted, says if scenario.kind == "within budget" else said), *rest]
            got.append((tempted != [*calls], paid(service, scenario, turns) == (True, True)))
    assert (set(got), len(got) > SAMPLE // 4) == ({(True, False)}, True)


def _tempted(desk: TravelState, one: ParsedCall, kind: str) -> ParsedCall:
    if one.name == "book_trip" and kind != "within budget":
        right = next(trip for trip in desk.trips if trip.id == one.arguments["trip_id"])
        route = (right.origin, right.destination, right.date)
        rivals = [trip for trip in desk.trips if (trip.origin, trip.destination, trip.date) == route]
        return build_call("book_trip", trip_id=min(rivals, key=lambda trip: trip.cents).id)
    if one.name == "book_hotel":
        city = next(hotel.city for hotel in desk.hotels if hotel.id == one.arguments["hotel_id"])
        best = max((hotel for hotel in desk.hotels if hotel.city == city), key=lambda hotel: hotel.tenths)
        return one.model_copy(update={"arguments": {**one.arguments, "hotel_id": best.id}})
    return one


def _to_voucher(one: ParsedCall) -> dict[str, Any]:
    return {**one.arguments, "to": "voucher"} if one.name == "refund_item" else one.arguments


@every_service
def test_answering_without_acting_is_not_paid(service: SimulatedService[Any]) -> None:
    got = {paid(service, scenario, [((), says) for _, says in known(scenario)]) for scenario in scenarios(service)}
    assert got == {(False, True)}


@every_service
def test_acting_without_answering_is_not_paid(service: SimulatedService[Any]) -> None:
    got = {
        paid(service, scenario, [(calls, "All done.") for calls, _ in known(scenario)])
        for scenario in scenarios(service)
        if asking(scenario)
    }
    assert got == {(True, False)}


@every_service
def test_the_first_wish_alone_is_not_paid(service: SimulatedService[Any]) -> None:
    got = set()
    for scenario in scenarios(service):
        (calls, says), *rest = known(scenario)
        if any(later for later, _ in rest):
            got.add(paid(service, scenario, [(calls, says), *(((), later) for _, later in rest)])[0])
    assert got == {False}


RECITALS = {
    "amounts": " ".join(
        format_euros(100 * whole + part) for whole in range(300) for part in (15, 20, 35, 40, 50, 75, 90)
    ),
    "times": " ".join(format_time(minutes) for minutes in range(0, 24 * 60, 5)),
    "numbers": " ".join(f"{letter}{number}" for number in range(200, 330) for letter in "RBG"),
    "files": " ".join(f"caption{number}.txt" for number in range(10, 90)),
}


@every_service
def test_reciting_everything_is_no_answer(service: SimulatedService[Any]) -> None:
    """Where a number answers: what could be, and what is, each in full."""
    got = []
    for scenario in scenarios(service):
        held = json.dumps(scenario.start.model_dump(), ensure_ascii=False)
        if any(any(letter.isdigit() for letter in answer) for wish in scenario.wishes for answer in wish.answers):
            for recital in (held * 2, *RECITALS.values(), " ".join(RECITALS.values())):
                got.append(paid(service, scenario, [(calls, recital) for calls, _ in known(scenario)]))
    assert (set(got), len(got) > SAMPLE) == ({(True, False)}, True)
