"""The shop service: customers, products, orders with their items, vouchers.

The tools can do more than the rules allow. A namesake of the customer, who lives elsewhere, has orders too: a name
alone does not tell whose orders are meant.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.episodes import (
    Arguments,
    DrawnScenario,
    OperationRefused,
    SayWish,
    SimulatedService,
    UserWish,
    add_days,
    build_call,
    find_by_id,
    format_euros,
    read_service_texts,
    write_day,
)
from app.toolkit.seeded import SeededRandom
from app.toolkit.tool_calls.calls import ParsedCall

TEXTS: Final = read_service_texts(__file__)

_OrderState = Literal["processing", "shipped", "delivered", "cancelled"]
_ItemState = Literal["bought", "refunded"]
_Destination = Literal["original_payment", "voucher"]


class ShopProduct(Frozen):
    """One option of a product."""

    id: str
    name: str
    option: str
    cents: int
    stock: int

    def to_observation(self) -> dict[str, JsonValue]:
        return {"product_id": self.id, "name": self.name, "option": self.option, "price": format_euros(self.cents)}


class ShopCustomer(Frozen):
    id: str
    name: str
    address: str

    def to_observation(self) -> JsonValue:
        return {"customer_id": self.id, "name": self.name, "address": self.address}


class OrderItem(Frozen):
    product: ShopProduct
    final_sale: bool = False
    state: _ItemState = "bought"
    refunded_to: _Destination | None = None

    def to_observation(self, number: int) -> JsonValue:
        shown = {"item": number, **self.product.to_observation(), "final_sale": self.final_sale, "state": self.state}
        return shown if self.refunded_to is None else {**shown, "refunded_to": self.refunded_to}


class ShopOrder(Frozen):
    id: str
    customer: str
    placed: str
    state: _OrderState
    address: str
    items: tuple[OrderItem, ...]
    delivered: str | None = None
    """Day of delivery; None if not delivered."""
    voucher: int = 0
    """Cents of the voucher issued for this order."""

    @property
    def cents(self) -> int:
        return sum(item.product.cents for item in self.items)

    def to_observation(self) -> JsonValue:
        return {
            "order_id": self.id,
            "placed_on": self.placed,
            "state": self.state,
            "delivered_on": self.delivered,
            "address": self.address,
            "total": format_euros(self.cents),
            "voucher": format_euros(self.voucher),
            "items": [item.to_observation(number) for number, item in enumerate(self.items, 1)],
        }

    def to_summary(self) -> JsonValue:
        return {
            "order_id": self.id,
            "placed_on": self.placed,
            "state": self.state,
            "total": format_euros(self.cents),
            "items": [item.product.name for item in self.items],
        }


class ShopState(Frozen):
    customers: tuple[ShopCustomer, ...] = ()
    products: tuple[ShopProduct, ...] = ()
    orders: tuple[ShopOrder, ...] = ()

    def find_order(self, identity: str) -> ShopOrder:
        return find_by_id(self.orders, identity, "order")

    def with_order(self, order: ShopOrder) -> "ShopState":
        return self.model_copy(update={"orders": tuple(order if one.id == order.id else one for one in self.orders)})


def _get_item(order: ShopOrder, number: int) -> OrderItem:
    if not 1 <= number <= len(order.items):
        raise OperationRefused(f"order {order.id} has items 1 to {len(order.items)}")
    return order.items[number - 1]


def _replace_item(order: ShopOrder, number: int, item: OrderItem) -> ShopOrder:
    return order.model_copy(update={"items": (*order.items[: number - 1], item, *order.items[number:])})


# The service and its tools.

TODAY: Final = "2026-09-14"


def _canonicalise(state: ShopState) -> JsonValue:
    """Of orders alone: the stock of products follows from them."""
    return [_canonicalise_order(order) for order in sorted(state.orders, key=lambda one: one.id)]


def _canonicalise_order(order: ShopOrder) -> JsonValue:
    # commas, case and line breaks of an address are the model's own
    address = " ".join(re.findall(r"\w+", order.address.casefold()))
    items: list[JsonValue] = [[item.product.id, item.state, item.refunded_to] for item in order.items]
    return [order.id, order.state, address, order.voucher, items]


_MOST_LISTED: Final = 20


def _find_customer(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    name = str(arguments["name"]).casefold().strip()
    customers = [one.to_observation() for one in state.customers if name and name in one.name.casefold()]
    return state, {"customers": customers}


def _list_orders(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    customer = find_by_id(state.customers, arguments["customer_id"], "customer")
    orders = sorted((one for one in state.orders if one.customer == customer.id), key=lambda one: one.placed)
    return state, {"orders": [one.to_summary() for one in orders]}


def _get_order(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    return state, state.find_order(arguments["order_id"]).to_observation()


def _search_products(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    text = str(arguments["text"]).casefold().strip()
    products: list[JsonValue] = [
        {**one.to_observation(), "in_stock": one.stock}
        for one in state.products
        if text and text in f"{one.name} {one.option}".casefold()
    ]
    return state, {"products": products[:_MOST_LISTED]}


def _refund_item(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    order = state.find_order(arguments["order_id"])
    item = _get_item(order, arguments["item"])
    if order.state == "cancelled" or item.state == "refunded":
        raise OperationRefused("the money for this item went back already")
    refunded = item.model_copy(update={"state": "refunded", "refunded_to": arguments["to"]})
    output: JsonValue = {"refunded": format_euros(item.product.cents), "to": arguments["to"]}
    return state.with_order(_replace_item(order, arguments["item"], refunded)), output


def _cancel_order(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    order = state.find_order(arguments["order_id"])
    if order.state in ("delivered", "cancelled"):
        raise OperationRefused(f"order {order.id} is {order.state}")
    back = sum(item.product.cents for item in order.items if item.state == "bought")
    cancelled = order.model_copy(update={"state": "cancelled"})
    return state.with_order(cancelled), {"cancelled": order.id, "refunded": format_euros(back)}


def _change_address(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    order = state.find_order(arguments["order_id"])
    if order.state in ("delivered", "cancelled"):
        raise OperationRefused(f"order {order.id} is {order.state}")
    address = " ".join(str(arguments["address"]).split())
    return state.with_order(order.model_copy(update={"address": address})), {"order_id": order.id, "address": address}


def _exchange_item(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    order, product = (
        state.find_order(arguments["order_id"]),
        find_by_id(state.products, arguments["product_id"], "product"),
    )
    item = _get_item(order, arguments["item"])
    if order.state != "delivered" or item.state == "refunded":
        raise OperationRefused("only an item that the customer has can be exchanged")
    if product.stock < 1:
        raise OperationRefused(f"{product.name}, {product.option}, is out of stock")
    exchanged = _replace_item(order, arguments["item"], item.model_copy(update={"product": product}))
    left = product.model_copy(update={"stock": product.stock - 1})
    products = tuple(left if one.id == product.id else one for one in state.products)
    output: JsonValue = {"order_id": order.id, "item": arguments["item"], "now": left.to_observation()}
    return state.with_order(exchanged).model_copy(update={"products": products}), output


def _issue_voucher(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    order = state.find_order(arguments["order_id"])
    if order.voucher:
        raise OperationRefused(f"a voucher was issued for order {order.id} already")
    cents = int(str(arguments["amount"]).replace(".", ""))
    if not cents:
        raise OperationRefused("a voucher is worth more than nothing")
    issued = order.model_copy(update={"voucher": cents})
    return state.with_order(issued), {"order_id": order.id, "voucher": format_euros(cents)}


# Initial shops: a customer, a namesake, products, and orders of both.

_FIRST_NAMES: Final = TEXTS.pools["first_names"]
_LAST_NAMES: Final = TEXTS.pools["last_names"]
_STREETS: Final = TEXTS.pools["streets"]
_TOWNS: Final = TEXTS.pools["towns"]
_GOODS: Final = TEXTS.pools["goods"]
_COLOURS: Final = TEXTS.pools["colours"]
_OPTIONS: Final = 3
"""Options of each product, side by side in `products`."""


class ShopBuilder:
    """Builds the initial state of a scenario; each call returns another order or product."""

    def __init__(self, draws: SeededRandom) -> None:
        self.draws = draws
        self._next_order = 1000 + draws.below(8000)
        name = f"{draws.one(_FIRST_NAMES)} {draws.one(_LAST_NAMES)}"
        self.town, other, new = draws.some(_TOWNS, 3)
        self.customer = ShopCustomer(id=f"C{100 + draws.below(400)}", name=name, address=self._draw_address(self.town))
        self._namesake = ShopCustomer(id=f"C{500 + draws.below(400)}", name=name, address=self._draw_address(other))
        self.new_address = self._draw_address(new)
        prices = draws.some(range(12, 140), 7)
        goods = draws.some(_GOODS, 7)
        self.products = tuple(
            ShopProduct(
                id=f"P{201 + index}", name=name, option=option, cents=price * 100 + cents, stock=1 + draws.below(9)
            )
            for name, price in zip(goods, prices, strict=True)
            for cents in (draws.one((40, 50, 90)),)
            for index, option in enumerate(draws.some(_COLOURS, _OPTIONS), _OPTIONS * goods.index(name))
        )
        self._unsold = [self.products[_OPTIONS * index + draws.below(_OPTIONS)] for index in range(len(goods))]

    def _draw_address(self, town: str) -> str:
        return f"{2 + self.draws.below(90)} {self.draws.one(_STREETS)}, {10000 + self.draws.below(80000)} {town}"

    def take_product(self) -> ShopProduct:
        return self._unsold.pop()

    def build_order(
        self,
        placed: int,
        state: _OrderState,
        products: Sequence[ShopProduct],
        *,
        took: int = 0,
        final: Sequence[ShopProduct] = (),
        customer: ShopCustomer | None = None,
    ) -> ShopOrder:
        """An order placed `placed` days ago and, if delivered, delivered `took` days later."""
        self._next_order += 1 + self.draws.below(5)
        buyer, day = customer or self.customer, add_days(TODAY, -placed)
        return ShopOrder(
            id=f"R{self._next_order}",
            customer=buyer.id,
            placed=day,
            state=state,
            address=buyer.address,
            items=tuple(OrderItem(product=one, final_sale=one in final) for one in products),
            delivered=add_days(day, took) if state == "delivered" else None,
        )

    def build_state(self, orders: Sequence[ShopOrder]) -> ShopState:
        """A shop with these orders and some of a namesake who lives elsewhere."""
        sold = [item.product for order in orders for item in order.items]
        others = (
            self.build_order(15, "delivered", self.draws.some(sold, 2), took=4, customer=self._namesake),
            self.build_order(2, "processing", self.draws.some(sold, 1), customer=self._namesake),
        )
        return ShopState(
            customers=tuple(self.draws.shuffled((self.customer, self._namesake))),
            products=self.products,
            orders=(*self.draws.shuffled(orders), *others),
        )


def _build_refund(order: ShopOrder, item: int = 1) -> ParsedCall:
    return build_call("refund_item", order_id=order.id, item=item, to="original_payment")


# Scenarios.

_RECENT: Final = range(12, 28)
"""Days since an order was placed that can still be returned."""


def _build_look_ups(shop: ShopBuilder, orders: Sequence[ShopOrder] = ()) -> tuple[ParsedCall, ...]:
    return (
        build_call("find_customer", name=shop.customer.name),
        build_call("list_orders", customer_id=shop.customer.id),
        *(build_call("get_order", order_id=one.id) for one in orders),
    )


def _draw_return_two_orders(draws: SeededRandom, say: SayWish) -> DrawnScenario[ShopState]:
    """Return two orders, one of which cannot be returned; then return one more item."""
    shop = ShopBuilder(draws)
    first, second, third = shop.take_product(), shop.take_product(), shop.take_product()
    final_item, decoy = shop.take_product(), shop.take_product()
    days = draws.some(_RECENT, 3)
    returned = shop.build_order(days[0], "delivered", (first, second), took=3)
    if draws.chance(50):
        stays = shop.build_order(days[1], "delivered", (final_item,), took=4, final=(final_item,))
    else:
        stays = shop.build_order(40 + draws.below(20), "delivered", (final_item,), took=5)
    latest = shop.build_order(days[2], "delivered", draws.shuffled((third, decoy)), took=2)
    number = next(position for position, item in enumerate(latest.items, 1) if item.product == third)
    who, (one, other) = f"{shop.customer.name} from {shop.town}", draws.shuffled((returned.placed, stays.placed))
    named = f"the {third.name} that I ordered on {write_day(latest.placed)}"
    total = format_euros(first.cents + second.cents + third.cents)
    return shop.build_state((returned, stays, latest)), (
        UserWish(
            says=say("first", who=who, one=write_day(one), other=write_day(other)),
            calls=(
                *_build_look_ups(shop, (returned, stays)),
                _build_refund(returned, 1),
                _build_refund(returned, 2),
            ),
            reply=f"The rest is refunded; the {final_item.name} cannot come back.",
            answers=(final_item.name,),
            beside=(first.name, second.name),
        ),
        UserWish(
            says=say("then", named=named),
            calls=(build_call("get_order", order_id=latest.id), _build_refund(latest, number)),
            reply=f"You get {total} in all, to your original payment.",
            answers=(total,),
        ),
    )


def _draw_cancel_unsent(draws: SeededRandom, say: SayWish) -> DrawnScenario[ShopState]:
    """Cancel orders that are processing; then a shipped order must not be redirected."""
    shop = ShopBuilder(draws)
    waiting = [shop.build_order(1 + days, "processing", (shop.take_product(),) * (1 + days)) for days in range(2)]
    under_way = shop.build_order(5, "shipped", (shop.take_product(), shop.take_product()))
    had = shop.build_order(draws.one(_RECENT), "delivered", (shop.take_product(),), took=3)
    total = format_euros(sum(one.cents for one in waiting))
    who = f"{shop.customer.name} from {shop.town}"
    return shop.build_state((*waiting, under_way, had)), (
        UserWish(
            says=say("first", who=who),
            calls=(*_build_look_ups(shop), *(build_call("cancel_order", order_id=one.id) for one in waiting)),
            reply=f"Cancelled; {total} comes back.",
            answers=(total,),
        ),
        UserWish(
            says=say("then", address=shop.new_address),
            calls=(),
            reply=f"Order {under_way.id} is shipped already and cannot be redirected.",
            answers=(under_way.id,),
        ),
    )


def _draw_other_colour(draws: SeededRandom, say: SayWish) -> DrawnScenario[ShopState]:
    """Exchange an item for the only other colour in stock; then return another item."""
    shop = ShopBuilder(draws)
    bought, second, third = shop.take_product(), shop.take_product(), shop.take_product()
    others = draws.shuffled([one for one in shop.products if one.name == bought.name and one != bought])
    sent, sold_out = others
    shop.products = tuple(one.model_copy(update={"stock": 0}) if one == sold_out else one for one in shop.products)
    items = draws.shuffled((bought, second, third))
    order = shop.build_order(draws.one(_RECENT), "delivered", items, took=1 + draws.below(4))
    earlier = shop.build_order(40, "delivered", (bought,), took=3)
    who, day = f"{shop.customer.name} from {shop.town}", write_day(order.placed)
    return shop.build_state((order, earlier)), (
        UserWish(
            says=say("first", who=who, bought=bought.name, day=day),
            calls=(
                *_build_look_ups(shop, (order,)),
                build_call("search_products", text=bought.name),
                build_call("exchange_item", order_id=order.id, item=items.index(bought) + 1, product_id=sent.id),
            ),
            reply=f"You will get it in {sent.option}.",
            answers=(sent.option,),
            beside=(bought.option,),
        ),
        UserWish(
            says=say("then", second=second.name),
            calls=(_build_refund(order, items.index(second) + 1),),
            reply=f"{format_euros(second.cents)} goes back to your original payment.",
            answers=(format_euros(second.cents),),
        ),
    )


def _draw_moved_house(draws: SeededRandom, say: SayWish) -> DrawnScenario[ShopState]:
    """Redirect the orders that are processing; then cancel the cheaper one of them."""
    shop = ShopBuilder(draws)
    waiting = [shop.build_order(1 + days, "processing", (shop.take_product(),)) for days in range(2)]
    under_way = shop.build_order(4, "shipped", (shop.take_product(), shop.take_product()))
    had = shop.build_order(draws.one(_RECENT), "delivered", (shop.take_product(),), took=3)
    cheaper = min(waiting, key=lambda one: one.cents)
    who, there = f"{shop.customer.name} from {shop.town}", shop.new_address
    return shop.build_state((*waiting, under_way, had)), (
        UserWish(
            says=say("first", who=who, there=there),
            calls=(
                *_build_look_ups(shop),
                *(build_call("change_address", order_id=one.id, address=there) for one in waiting),
            ),
            reply=f"Done, except for {under_way.id}, which is shipped.",
            answers=(under_way.id,),
        ),
        UserWish(
            says=say("then"),
            calls=(build_call("cancel_order", order_id=cheaper.id),),
            reply=f"It is cancelled; {format_euros(cheaper.cents)} comes back.",
            answers=(format_euros(cheaper.cents),),
        ),
    )


def _draw_late_deliveries(draws: SeededRandom, say: SayWish) -> DrawnScenario[ShopState]:
    """Issue vouchers for late orders; then a refund that must not be a voucher."""
    shop = ShopBuilder(draws)
    products = [shop.take_product() for _ in range(5)]
    late = [
        shop.build_order(50 + 9 * index, "delivered", (products[index],), took=8 + draws.below(6)) for index in (0, 1)
    ]
    in_time = shop.build_order(75 + draws.below(9), "delivered", (products[2],), took=7)
    latest = shop.build_order(draws.one(_RECENT), "delivered", products[3:], took=2 + draws.below(4))
    total = format_euros(sum(one.cents for one in late) // 10)
    who = f"{shop.customer.name} from {shop.town}"
    unwanted, day = products[3], write_day(latest.placed)
    return shop.build_state((*late, in_time, latest)), (
        UserWish(
            says=say("first", who=who),
            calls=(
                *_build_look_ups(shop, (*late, in_time, latest)),
                *(build_call("issue_voucher", order_id=one.id, amount=format_euros(one.cents // 10)) for one in late),
            ),
            reply=f"Your vouchers are worth {total} together.",
            answers=(total,),
        ),
        UserWish(
            says=say("then", unwanted=unwanted.name, day=day),
            calls=(_build_refund(latest, 1),),
            reply=f"{format_euros(unwanted.cents)} goes back the way you paid.",
            answers=(format_euros(unwanted.cents),),
        ),
    )


def _draw_dearest(draws: SeededRandom, say: SayWish) -> DrawnScenario[ShopState]:
    """Return the most expensive returnable item; then the cheapest one."""
    shop = ShopBuilder(draws)
    items = [shop.take_product() for _ in range(5)]
    by_price = sorted(items, key=lambda one: one.cents)
    final = draws.one((by_price[0], by_price[-1]))
    low, *_, high = (one for one in by_price if one != final)
    order = shop.build_order(draws.one(_RECENT), "delivered", items, took=3, final=(final,))
    waiting = shop.build_order(1, "processing", (shop.take_product(),))
    who, day = f"{shop.customer.name} from {shop.town}", write_day(order.placed)
    total = format_euros(high.cents + low.cents)
    return shop.build_state((order, waiting)), (
        UserWish(
            says=say("first", who=who, day=day),
            calls=(*_build_look_ups(shop, (order,)), _build_product_refund(order, high)),
            reply=f"It was the {high.name}.",
            answers=(high.name,),
        ),
        UserWish(
            says=say("then"),
            calls=(_build_product_refund(order, low),),
            reply=f"The two come to {total}.",
            answers=(total,),
        ),
    )


def _build_product_refund(order: ShopOrder, product: ShopProduct) -> ParsedCall:
    return _build_refund(order, next(number for number, item in enumerate(order.items, 1) if item.product == product))


ORDERS: Final = SimulatedService[ShopState](
    name="orders",
    texts=TEXTS,
    does={
        "find_customer": _find_customer,
        "list_orders": _list_orders,
        "get_order": _get_order,
        "search_products": _search_products,
        "refund_item": _refund_item,
        "cancel_order": _cancel_order,
        "change_address": _change_address,
        "exchange_item": _exchange_item,
        "issue_voucher": _issue_voucher,
    },
    canonicalise=_canonicalise,
    kinds={
        "two sent back": _draw_return_two_orders,
        "unsent cancelled": _draw_cancel_unsent,
        "other colour": _draw_other_colour,
        "moved house": _draw_moved_house,
        "late deliveries": _draw_late_deliveries,
        "dearest": _draw_dearest,
    },
)
