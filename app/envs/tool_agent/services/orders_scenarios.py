"""Scenarios of customers of the shop."""

from collections.abc import Sequence
from typing import Final

from app.envs.tool_agent.services.orders_builder import ShopBuilder, build_refund
from app.envs.tool_agent.services.orders_state import ShopOrder, ShopProduct, ShopState
from app.envs.tool_agent.services.simulated_service import ServiceScenario, UserWish, build_call
from app.envs.tool_agent.services.value_formats import format_euros, write_day
from app.toolkit.seeded import SeededRandom
from app.toolkit.tool_calls.calls import ParsedCall

RECENT: Final = range(12, 28)
"""Days since an order was placed that can still be returned."""


def _build_look_ups(making: ShopBuilder, orders: Sequence[ShopOrder] = ()) -> tuple[ParsedCall, ...]:
    return (
        build_call("find_customer", name=making.customer.name),
        build_call("list_orders", customer_id=making.customer.id),
        *(build_call("get_order", order_id=one.id) for one in orders),
    )


def _draw_return_two_orders(draws: SeededRandom) -> ServiceScenario[ShopState]:
    """Return two orders, one of which cannot be returned; then return one more item."""
    making = ShopBuilder(draws)
    first, second, third = making.take_product(), making.take_product(), making.take_product()
    kept, decoy = making.take_product(), making.take_product()
    days = draws.some(RECENT, 3)
    returned = making.build_order(days[0], "delivered", (first, second), took=3)
    if draws.chance(50):
        stays = making.build_order(days[1], "delivered", (kept,), took=4, final=(kept,))
    else:
        stays = making.build_order(40 + draws.below(20), "delivered", (kept,), took=5)
    latest = making.build_order(days[2], "delivered", draws.shuffled((third, decoy)), took=2)
    number = next(place for place, item in enumerate(latest.items, 1) if item.product == third)
    who, (one, other) = f"{making.customer.name} from {making.town}", draws.shuffled((returned.placed, stays.placed))
    asked = (
        f"Hello, {who} here. I want to return everything that I ordered on {write_day(one)} and on {write_day(other)}. "
        "Refund what you may; which product do I have to keep?",
        f"My name is {who}. My orders of {write_day(one)} and {write_day(other)} were a mistake. Money back for all "
        "that can go back, please, and tell me which thing cannot.",
        f"{who}: both what I bought on {write_day(one)} and what I bought on {write_day(other)} should go back to you. "
        "I know that one of these things may be excluded. Name it, and refund the others.",
    )
    named = f"the {third.name} that I ordered on {write_day(latest.placed)}"
    added = (
        f"Then take {named} back as well, please. How much do I get in all, together with the things from before?",
        f"All right. I do not need {named} either. Refund it and tell me what all of the refunds come to.",
        f"Could you also refund {named}? On a voucher if your rules allow that, otherwise the way I paid. And what is "
        "the sum of everything I get back today?",
    )
    total = format_euros(first.cents + second.cents + third.cents)
    return ServiceScenario(
        kind="two sent back",
        start=making.build_state((returned, stays, latest)),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    *_build_look_ups(making, (returned, stays)),
                    build_refund(returned, 1),
                    build_refund(returned, 2),
                ),
                reply=f"The rest is refunded; the {kept.name} cannot come back.",
                answers=(kept.name,),
                beside=(first.name, second.name),
            ),
            UserWish(
                says=draws.one(added),
                calls=(build_call("get_order", order_id=latest.id), build_refund(latest, number)),
                reply=f"You get {total} in all, to your original payment.",
                answers=(total,),
            ),
        ),
    )


def _draw_cancel_unsent(draws: SeededRandom) -> ServiceScenario[ShopState]:
    """Cancel orders that are processing; then a shipped order must not be redirected."""
    making = ShopBuilder(draws)
    waiting = [
        making.build_order(1 + place, "processing", (making.take_product(),) * (1 + place)) for place in range(2)
    ]
    under_way = making.build_order(5, "shipped", (making.take_product(), making.take_product()))
    had = making.build_order(draws.one(RECENT), "delivered", (making.take_product(),), took=3)
    total = format_euros(sum(one.cents for one in waiting))
    who = f"{making.customer.name} from {making.town}"
    asked = (
        f"This is {who}. Cancel all orders of mine that you have not sent off yet. How much money is that?",
        f"I am {who} and I have changed my mind: whatever is not shipped so far, cancel it. What do I get back in all?",
        f"Hi, {who}. Please stop every order of mine that is still being processed, and tell me the amount that comes "
        "back to me.",
    )
    moved = (
        f"And what is on its way to me should go to {making.new_address}. If your rules forbid that, leave it and "
        "give me the number of that order.",
        f"There is one parcel under way. Can it be sent to {making.new_address} instead? If not, tell me its order "
        "number and change nothing.",
        f"I will be at {making.new_address} next week. Redirect the order that has been shipped if that is permitted; "
        "otherwise do nothing but tell me the number of that order.",
    )
    return ServiceScenario(
        kind="unsent cancelled",
        start=making.build_state((*waiting, under_way, had)),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(*_build_look_ups(making), *(build_call("cancel_order", order_id=one.id) for one in waiting)),
                reply=f"Cancelled; {total} comes back.",
                answers=(total,),
            ),
            UserWish(
                says=draws.one(moved),
                calls=(),
                reply=f"Order {under_way.id} is shipped already and cannot be redirected.",
                answers=(under_way.id,),
            ),
        ),
    )


def _draw_other_colour(draws: SeededRandom) -> ServiceScenario[ShopState]:
    """Exchange an item for the only other colour in stock; then return another item."""
    making = ShopBuilder(draws)
    bought, second, third = making.take_product(), making.take_product(), making.take_product()
    others = draws.shuffled([one for one in making.products if one.name == bought.name and one != bought])
    sent, sold_out = others
    making.products = tuple(one.model_copy(update={"stock": 0}) if one == sold_out else one for one in making.products)
    items = draws.shuffled((bought, second, third))
    order = making.build_order(draws.one(RECENT), "delivered", items, took=1 + draws.below(4))
    earlier = making.build_order(40, "delivered", (bought,), took=3)
    who, day = f"{making.customer.name} from {making.town}", write_day(order.placed)
    asked = (
        f"{who} here. The {bought.name} from my order of {day} does not look good in that colour. Exchange it for "
        "another colour that you have in stock; which one will it be?",
        f"I am {who}. Please swap the {bought.name} that I ordered on {day}: same thing, any other colour that is in "
        "stock. What colour am I getting?",
        f"Hello, I am {who} and I would like the {bought.name} of {day} in a different colour. I take whichever you "
        "have. Arrange it and tell me the colour.",
    )
    added = (
        f"And the {second.name} from the same order: I want my money back for it. How much is that?",
        f"Thank you. The {second.name} in that order can go back for good. What will be refunded?",
        f"The {second.name} that came with it is not what I expected. Refund it too and tell me the amount, please.",
    )
    return ServiceScenario(
        kind="other colour",
        start=making.build_state((order, earlier)),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    *_build_look_ups(making, (order,)),
                    build_call("search_products", text=bought.name),
                    build_call("exchange_item", order_id=order.id, item=items.index(bought) + 1, product_id=sent.id),
                ),
                reply=f"You will get it in {sent.option}.",
                answers=(sent.option,),
                beside=(bought.option,),
            ),
            UserWish(
                says=draws.one(added),
                calls=(build_refund(order, items.index(second) + 1),),
                reply=f"{format_euros(second.cents)} goes back to your original payment.",
                answers=(format_euros(second.cents),),
            ),
        ),
    )


def _draw_moved_house(draws: SeededRandom) -> ServiceScenario[ShopState]:
    """Redirect the orders that are processing; then cancel the cheaper one of them."""
    making = ShopBuilder(draws)
    waiting = [making.build_order(1 + place, "processing", (making.take_product(),)) for place in range(2)]
    under_way = making.build_order(4, "shipped", (making.take_product(), making.take_product()))
    had = making.build_order(draws.one(RECENT), "delivered", (making.take_product(),), took=3)
    cheaper = min(waiting, key=lambda one: one.cents)
    who, there = f"{making.customer.name} from {making.town}", making.new_address
    asked = (
        f"{who}, good morning. I have moved to {there}. Please send there what can still be sent there. Which order "
        "number goes to my old address all the same?",
        f"My address is {there} from now on; I am {who}. Change it on my open orders as far as your rules permit. What "
        "is the number of the open order where that is too late?",
        f"I am {who} and moving to {there}. Redirect every order for which that is allowed, and give me the number of "
        "the one that will still arrive at the old place.",
    )
    dropped = (
        "Of the orders that now go to the new address I only want the dearer one. Cancel the cheaper one. How much "
        "comes back?",
        "Thinking about it: cancel whichever of the redirected orders costs less, and tell me the refund.",
        "Thanks. Now please cancel the less expensive one of those that you have just redirected. What was its total?",
    )
    return ServiceScenario(
        kind="moved house",
        start=making.build_state((*waiting, under_way, had)),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    *_build_look_ups(making),
                    *(build_call("change_address", order_id=one.id, address=there) for one in waiting),
                ),
                reply=f"Done, except for {under_way.id}, which is shipped.",
                answers=(under_way.id,),
            ),
            UserWish(
                says=draws.one(dropped),
                calls=(build_call("cancel_order", order_id=cheaper.id),),
                reply=f"It is cancelled; {format_euros(cheaper.cents)} comes back.",
                answers=(format_euros(cheaper.cents),),
            ),
        ),
    )


def _draw_late_deliveries(draws: SeededRandom) -> ServiceScenario[ShopState]:
    """Issue vouchers for late orders; then a refund that must not be a voucher."""
    making = ShopBuilder(draws)
    products = [making.take_product() for _ in range(5)]
    late = [
        making.build_order(50 + 9 * place, "delivered", (products[place],), took=8 + draws.below(6)) for place in (0, 1)
    ]
    in_time = making.build_order(75 + draws.below(9), "delivered", (products[2],), took=7)
    latest = making.build_order(draws.one(RECENT), "delivered", products[3:], took=2 + draws.below(4))
    total = format_euros(sum(one.cents for one in late) // 10)
    who = f"{making.customer.name} from {making.town}"
    asked = (
        f"{who} here. Some of my orders came far too late. I ask for the vouchers that I am entitled to. How much are "
        "they worth together?",
        f"I am {who}. Please go through my past orders and issue every voucher that is due to me for late delivery. "
        "What do they add up to?",
        f"Your deliveries to me, {who}, were late more than once. Whatever vouchers I have a right to, I want "
        "them now, and the sum of them.",
    )
    unwanted, day = products[3], write_day(latest.placed)
    added = (
        f"Now to the {unwanted.name} that I ordered on {day}: refund it, as a voucher if you may, else as I paid. How "
        "much is it?",
        f"The {unwanted.name} of {day} goes back too. I prefer a voucher for it, but stick to your rules. What is the "
        "amount?",
        f"One more thing, I return the {unwanted.name} from my order of {day}. Money on a voucher, or where your rules "
        "say it must go. Tell me the amount.",
    )
    return ServiceScenario(
        kind="late deliveries",
        start=making.build_state((*late, in_time, latest)),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(
                    *_build_look_ups(making, (*late, in_time, latest)),
                    *(
                        build_call("issue_voucher", order_id=one.id, amount=format_euros(one.cents // 10))
                        for one in late
                    ),
                ),
                reply=f"Your vouchers are worth {total} together.",
                answers=(total,),
            ),
            UserWish(
                says=draws.one(added),
                calls=(build_refund(latest, 1),),
                reply=f"{format_euros(unwanted.cents)} goes back the way you paid.",
                answers=(format_euros(unwanted.cents),),
            ),
        ),
    )


def _draw_dearest(draws: SeededRandom) -> ServiceScenario[ShopState]:
    """Return the most expensive returnable item; then the cheapest one."""
    making = ShopBuilder(draws)
    items = [making.take_product() for _ in range(5)]
    by_price = sorted(items, key=lambda one: one.cents)
    final = draws.one((by_price[0], by_price[-1]))
    low, *_, high = (one for one in by_price if one != final)
    order = making.build_order(draws.one(RECENT), "delivered", items, took=3, final=(final,))
    waiting = making.build_order(1, "processing", (making.take_product(),))
    who, day = f"{making.customer.name} from {making.town}", write_day(order.placed)
    asked = (
        f"I spent too much, says {who}. Of what I ordered on {day}, take back the most expensive thing that may still "
        "be returned and refund it. What is it?",
        f"{who} speaking. Please refund one item of my order of {day}: the dearest one that your rules let me return. "
        "Which one is that?",
        f"My name is {who}. I would like to return a single thing from {day}, namely the one with the highest price "
        "among those that can be returned. Do that and tell me which it was.",
    )
    added = (
        "The cheapest of the returnable things in that order should go back as well. What do the two come to?",
        "And now the one with the lowest price among those that may go back, same order. How much do I get for both?",
        "Please do the same for the least expensive one there that can be returned, and give me the sum of the two "
        "refunds.",
    )
    total = format_euros(high.cents + low.cents)
    return ServiceScenario(
        kind="dearest",
        start=making.build_state((order, waiting)),
        wishes=(
            UserWish(
                says=draws.one(asked),
                calls=(*_build_look_ups(making, (order,)), _build_product_refund(order, high)),
                reply=f"It was the {high.name}.",
                answers=(high.name,),
            ),
            UserWish(
                says=draws.one(added),
                calls=(_build_product_refund(order, low),),
                reply=f"The two come to {total}.",
                answers=(total,),
            ),
        ),
    )


def _build_product_refund(order: ShopOrder, product: ShopProduct) -> ParsedCall:
    return build_refund(order, next(place for place, item in enumerate(order.items, 1) if item.product == product))


KINDS: Final = (
    _draw_return_two_orders,
    _draw_cancel_unsent,
    _draw_other_colour,
    _draw_moved_house,
    _draw_late_deliveries,
    _draw_dearest,
)
