"""The shop service: its tools and its rules. The tools can do more than the rules allow."""

import re
from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.figures import AS_WRITTEN, euros
from app.envs.tool_agent.services.orders_builder import TODAY
from app.envs.tool_agent.services.orders_scenarios import KINDS
from app.envs.tool_agent.services.orders_state import MOST_SHOWN, Customer, Order, Product, Shop, item_of, with_item
from app.envs.tool_agent.services.service import Arguments, Operation, Refused, Scenario, tool
from app.toolkit.seeded import Draws

MOST_LISTED: Final = 20
ORDER: Final[JsonValue] = {"type": "string", "description": "Identifier of the order"}
ITEM: Final[JsonValue] = {"type": "integer", "minimum": 1, "description": "Number of the item in its order"}
ADDRESS: Final[JsonValue] = {
    **{"type": "string", "minLength": 1, "maxLength": 200},
    "description": "Street and number, postcode and town",
}
AMOUNT: Final[JsonValue] = {"type": "string", "pattern": r"^\d{1,4}\.\d{2}$", "description": "Euros, like 7.50"}


def _find_customer(state: Shop, arguments: Arguments) -> tuple[Shop, JsonValue]:
    wanted = str(arguments["name"]).casefold().strip()
    found = [one.shown() for one in state.customers if wanted and wanted in one.name.casefold()]
    return state, {"customers": found}


def _list_orders(state: Shop, arguments: Arguments) -> tuple[Shop, JsonValue]:
    customer = _customer(state, arguments["customer_id"])
    found = sorted((one for one in state.orders if one.customer == customer.id), key=lambda one: one.placed)
    return state, {"orders": [one.listed() for one in found]}


def _get_order(state: Shop, arguments: Arguments) -> tuple[Shop, JsonValue]:
    return state, state.order(arguments["order_id"]).shown()


def _search_products(state: Shop, arguments: Arguments) -> tuple[Shop, JsonValue]:
    wanted = str(arguments["text"]).casefold().strip()
    found: list[JsonValue] = [
        {**one.shown(), "in_stock": one.stock}
        for one in state.products
        if wanted and wanted in f"{one.name} {one.option}".casefold()
    ]
    return state, {"products": found[:MOST_LISTED]}


def _refund_item(state: Shop, arguments: Arguments) -> tuple[Shop, JsonValue]:
    order = state.order(arguments["order_id"])
    item = item_of(order, arguments["item"])
    if order.state == "cancelled" or item.state == "refunded":
        raise Refused("the money for this item went back already")
    refunded = item.model_copy(update={"state": "refunded", "refunded_to": arguments["to"]})
    told: JsonValue = {"refunded": euros(item.product.cents), "to": arguments["to"]}
    return state.with_order(with_item(order, arguments["item"], refunded)), told


def _cancel_order(state: Shop, arguments: Arguments) -> tuple[Shop, JsonValue]:
    order = state.order(arguments["order_id"])
    if order.state in ("delivered", "cancelled"):
        raise Refused(f"order {order.id} is {order.state}")
    back = sum(item.product.cents for item in order.items if item.state == "bought")
    cancelled = order.model_copy(update={"state": "cancelled"})
    return state.with_order(cancelled), {"cancelled": order.id, "refunded": euros(back)}


def _change_address(state: Shop, arguments: Arguments) -> tuple[Shop, JsonValue]:
    order = state.order(arguments["order_id"])
    if order.state in ("delivered", "cancelled"):
        raise Refused(f"order {order.id} is {order.state}")
    address = " ".join(str(arguments["address"]).split())
    return state.with_order(order.model_copy(update={"address": address})), {"order_id": order.id, "address": address}


def _exchange_item(state: Shop, arguments: Arguments) -> tuple[Shop, JsonValue]:
    order, product = state.order(arguments["order_id"]), _product(state, arguments["product_id"])
    item = item_of(order, arguments["item"])
    if order.state != "delivered" or item.state == "refunded":
        raise Refused("only an item that the customer has can be exchanged")
    if product.stock < 1:
        raise Refused(f"{product.name}, {product.option}, is out of stock")
    exchanged = with_item(order, arguments["item"], item.model_copy(update={"product": product}))
    left = product.model_copy(update={"stock": product.stock - 1})
    products = tuple(left if one.id == product.id else one for one in state.products)
    told: JsonValue = {"order_id": order.id, "item": arguments["item"], "now": left.shown()}
    return state.with_order(exchanged).model_copy(update={"products": products}), told


def _issue_voucher(state: Shop, arguments: Arguments) -> tuple[Shop, JsonValue]:
    order = state.order(arguments["order_id"])
    if order.voucher:
        raise Refused(f"a voucher was issued for order {order.id} already")
    cents = int(str(arguments["amount"]).replace(".", ""))
    if not cents:
        raise Refused("a voucher is worth more than nothing")
    issued = order.model_copy(update={"voucher": cents})
    return state.with_order(issued), {"order_id": order.id, "voucher": euros(cents)}


def _customer(state: Shop, identity: str) -> Customer:
    for one in state.customers:
        if one.id == identity:
            return one
    raise Refused(f"there is no customer {identity[:MOST_SHOWN]!a}")


def _product(state: Shop, identity: str) -> Product:
    for one in state.products:
        if one.id == identity:
            return one
    raise Refused(f"there is no product {identity[:MOST_SHOWN]!a}")


OPERATIONS: Final = (
    Operation(
        tool(
            "find_customer",
            "Customers whose name contains a text.",
            ("name",),
            name={"type": "string"},
        ),
        _find_customer,
    ),
    Operation(
        tool(
            "list_orders",
            "All orders of a customer in short, oldest first.",
            ("customer_id",),
            customer_id={"type": "string", "description": "Identifier of the customer"},
        ),
        _list_orders,
    ),
    Operation(
        tool("get_order", "Everything about one order, with its items.", ("order_id",), order_id=ORDER), _get_order
    ),
    Operation(
        tool(
            "search_products",
            "What the shop sells: products whose name or option contains a text.",
            ("text",),
            text={"type": "string"},
        ),
        _search_products,
    ),
    Operation(
        tool(
            "refund_item",
            "Pay the price of one item back. This cannot be undone.",
            ("order_id", "item", "to"),
            order_id=ORDER,
            item=ITEM,
            to={"type": "string", "enum": ["original_payment", "voucher"]},
        ),
        _refund_item,
    ),
    Operation(
        tool(
            "cancel_order",
            "Cancel an order that is not delivered yet; what was paid goes back. This cannot be undone.",
            ("order_id",),
            order_id=ORDER,
        ),
        _cancel_order,
    ),
    Operation(
        tool(
            "change_address",
            "Deliver an order to another address.",
            ("order_id", "address"),
            order_id=ORDER,
            address=ADDRESS,
        ),
        _change_address,
    ),
    Operation(
        tool(
            "exchange_item",
            "Exchange a delivered item for a product that is in stock.",
            ("order_id", "item", "product_id"),
            order_id=ORDER,
            item=ITEM,
            product_id={"type": "string", "description": "Identifier of the product that is sent instead"},
        ),
        _exchange_item,
    ),
    Operation(
        tool("issue_voucher", "Issue a voucher for an order.", ("order_id", "amount"), order_id=ORDER, amount=AMOUNT),
        _issue_voucher,
    ),
)


class Orders:
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
    def operations(self) -> tuple[Operation[Shop], ...]:
        return OPERATIONS

    def essence(self, state: Shop) -> JsonValue:
        return [_essence(order) for order in sorted(state.orders, key=lambda one: one.id)]

    def scenario(self, draws: Draws) -> Scenario[Shop]:
        return draws.one(KINDS)(draws)


def _essence(order: Order) -> JsonValue:
    address = " ".join(re.findall(r"\w+", order.address.casefold()))
    items: list[JsonValue] = [[item.product.id, item.state, item.refunded_to] for item in order.items]
    return [order.id, order.state, address, order.voucher, items]
