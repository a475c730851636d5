"""The shop service: its tools and its rules. The tools can do more than the rules allow."""

import re
from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.orders_builder import TODAY
from app.envs.tool_agent.services.orders_scenarios import KINDS
from app.envs.tool_agent.services.orders_state import (
    MOST_SHOWN,
    ShopCustomer,
    ShopOrder,
    ShopProduct,
    ShopState,
    get_item,
    replace_item,
)
from app.envs.tool_agent.services.simulated_service import (
    Arguments,
    OperationRefused,
    ServiceOperation,
    ServiceScenario,
    build_tool,
)
from app.envs.tool_agent.services.value_formats import AS_WRITTEN, format_euros
from app.toolkit.seeded import SeededRandom

MOST_LISTED: Final = 20
ORDER: Final[JsonValue] = {"type": "string", "description": "Identifier of the order"}
ITEM: Final[JsonValue] = {"type": "integer", "minimum": 1, "description": "Number of the item in its order"}
ADDRESS: Final[JsonValue] = {
    **{"type": "string", "minLength": 1, "maxLength": 200},
    "description": "Street and number, postcode and town",
}
AMOUNT: Final[JsonValue] = {"type": "string", "pattern": r"^\d{1,4}\.\d{2}$", "description": "Euros, like 7.50"}


def _find_customer(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    wanted = str(arguments["name"]).casefold().strip()
    found = [one.to_observation() for one in state.customers if wanted and wanted in one.name.casefold()]
    return state, {"customers": found}


def _list_orders(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    customer = _get_customer(state, arguments["customer_id"])
    found = sorted((one for one in state.orders if one.customer == customer.id), key=lambda one: one.placed)
    return state, {"orders": [one.to_summary() for one in found]}


def _get_order(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    return state, state.find_order(arguments["order_id"]).to_observation()


def _search_products(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    wanted = str(arguments["text"]).casefold().strip()
    found: list[JsonValue] = [
        {**one.to_observation(), "in_stock": one.stock}
        for one in state.products
        if wanted and wanted in f"{one.name} {one.option}".casefold()
    ]
    return state, {"products": found[:MOST_LISTED]}


def _refund_item(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    order = state.find_order(arguments["order_id"])
    item = get_item(order, arguments["item"])
    if order.state == "cancelled" or item.state == "refunded":
        raise OperationRefused("the money for this item went back already")
    refunded = item.model_copy(update={"state": "refunded", "refunded_to": arguments["to"]})
    told: JsonValue = {"refunded": format_euros(item.product.cents), "to": arguments["to"]}
    return state.with_order(replace_item(order, arguments["item"], refunded)), told


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
    order, product = state.find_order(arguments["order_id"]), _get_product(state, arguments["product_id"])
    item = get_item(order, arguments["item"])
    if order.state != "delivered" or item.state == "refunded":
        raise OperationRefused("only an item that the customer has can be exchanged")
    if product.stock < 1:
        raise OperationRefused(f"{product.name}, {product.option}, is out of stock")
    exchanged = replace_item(order, arguments["item"], item.model_copy(update={"product": product}))
    left = product.model_copy(update={"stock": product.stock - 1})
    products = tuple(left if one.id == product.id else one for one in state.products)
    told: JsonValue = {"order_id": order.id, "item": arguments["item"], "now": left.to_observation()}
    return state.with_order(exchanged).model_copy(update={"products": products}), told


def _issue_voucher(state: ShopState, arguments: Arguments) -> tuple[ShopState, JsonValue]:
    order = state.find_order(arguments["order_id"])
    if order.voucher:
        raise OperationRefused(f"a voucher was issued for order {order.id} already")
    cents = int(str(arguments["amount"]).replace(".", ""))
    if not cents:
        raise OperationRefused("a voucher is worth more than nothing")
    issued = order.model_copy(update={"voucher": cents})
    return state.with_order(issued), {"order_id": order.id, "voucher": format_euros(cents)}


def _get_customer(state: ShopState, identity: str) -> ShopCustomer:
    for one in state.customers:
        if one.id == identity:
            return one
    raise OperationRefused(f"there is no customer {identity[:MOST_SHOWN]!a}")


def _get_product(state: ShopState, identity: str) -> ShopProduct:
    for one in state.products:
        if one.id == identity:
            return one
    raise OperationRefused(f"there is no product {identity[:MOST_SHOWN]!a}")


OPERATIONS: Final = (
    ServiceOperation(
        build_tool(
            "find_customer",
            "Customers whose name contains a text.",
            ("name",),
            name={"type": "string"},
        ),
        _find_customer,
    ),
    ServiceOperation(
        build_tool(
            "list_orders",
            "All orders of a customer in short, oldest first.",
            ("customer_id",),
            customer_id={"type": "string", "description": "Identifier of the customer"},
        ),
        _list_orders,
    ),
    ServiceOperation(
        build_tool("get_order", "Everything about one order, with its items.", ("order_id",), order_id=ORDER),
        _get_order,
    ),
    ServiceOperation(
        build_tool(
            "search_products",
            "What the shop sells: products whose name or option contains a text.",
            ("text",),
            text={"type": "string"},
        ),
        _search_products,
    ),
    ServiceOperation(
        build_tool(
            "refund_item",
            "Pay the price of one item back. This cannot be undone.",
            ("order_id", "item", "to"),
            order_id=ORDER,
            item=ITEM,
            to={"type": "string", "enum": ["original_payment", "voucher"]},
        ),
        _refund_item,
    ),
    ServiceOperation(
        build_tool(
            "cancel_order",
            "Cancel an order that is not delivered yet; what was paid goes back. This cannot be undone.",
            ("order_id",),
            order_id=ORDER,
        ),
        _cancel_order,
    ),
    ServiceOperation(
        build_tool(
            "change_address",
            "Deliver an order to another address.",
            ("order_id", "address"),
            order_id=ORDER,
            address=ADDRESS,
        ),
        _change_address,
    ),
    ServiceOperation(
        build_tool(
            "exchange_item",
            "Exchange a delivered item for a product that is in stock.",
            ("order_id", "item", "product_id"),
            order_id=ORDER,
            item=ITEM,
            product_id={"type": "string", "description": "Identifier of the product that is sent instead"},
        ),
        _exchange_item,
    ),
    ServiceOperation(
        build_tool(
            "issue_voucher", "Issue a voucher for an order.", ("order_id", "amount"), order_id=ORDER, amount=AMOUNT
        ),
        _issue_voucher,
    ),
)


class OrdersService:
    name: Final = "orders"
    rules: Final = (
        f"You serve the customers of a shop; today is {TODAY}. Touch nobody's orders but those of the customer who "
        "writes. Only items of delivered orders come back, for a refund or in exchange, and at most 30 days after the "
        "delivery; items in final sale never do. Refunds go to the original payment, never to a voucher. An item is "
        "exchanged only for another option of the same product. An order is cancelled, or gets another address, only "
        "while it is processing. An order that was delivered more than 7 days after it was placed earns a voucher of "
        "10 % of its total if the customer asks for it; no other order does. Where the rules forbid a part of a wish, "
        f"do the rest of it and say what was left. {AS_WRITTEN}"
    )

    @property
    def operations(self) -> tuple[ServiceOperation[ShopState], ...]:
        return OPERATIONS

    def canonicalise(self, state: ShopState) -> JsonValue:
        return [_canonicalise_order(order) for order in sorted(state.orders, key=lambda one: one.id)]

    def draw_scenario(self, draws: SeededRandom) -> ServiceScenario[ShopState]:
        return draws.one(KINDS)(draws)


def _canonicalise_order(order: ShopOrder) -> JsonValue:
    address = " ".join(re.findall(r"\w+", order.address.casefold()))
    items: list[JsonValue] = [[item.product.id, item.state, item.refunded_to] for item in order.items]
    return [order.id, order.state, address, order.voucher, items]
