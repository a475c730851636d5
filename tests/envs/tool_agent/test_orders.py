"""What the tools of the shop do and say."""

from typing import Any

import pytest
from pydantic import JsonValue

from app.envs.tool_agent.episodes import build_call
from app.envs.tool_agent.orders import OrderItem, OrdersService, ShopCustomer, ShopOrder, ShopProduct, ShopState
from app.toolkit.tool_calls.calls import ParsedCall
from tests.support.simulated import Case, error, tools, tried, worked

LAMP, BRASS = (
    ShopProduct(id=f"P{number}", name="Desk lamp", option=option, cents=4950, stock=stock)
    for number, option, stock in ((1, "black", 3), (2, "brass", 0))
)
MUG = ShopProduct(id="P3", name="Mug", option="blue", cents=890, stock=1)


def order(identity: str, state: Any, *items: OrderItem, **more: Any) -> ShopOrder:
    day = "2026-09-03" if state == "delivered" else None
    given = {"customer": "C1", "placed": "2026-09-01", "address": "1 Mill Lane", "delivered": day, **more}
    return ShopOrder(id=identity, state=state, items=items, **given)


SHOP = ShopState(
    customers=(ShopCustomer(id="C1", name="Nadia Okoro", address="1 Mill Lane"),),
    products=(LAMP, BRASS, MUG),
    orders=(
        order("R1", "delivered", OrderItem(product=LAMP), OrderItem(product=MUG, final_sale=True)),
        order("R2", "processing", OrderItem(product=MUG)),
    ),
)
R1: JsonValue = ["R1", "delivered", "1 mill lane", 0, [["P1", "bought", None], ["P3", "bought", None]]]
R2: JsonValue = ["R2", "processing", "1 mill lane", 0, [["P3", "bought", None]]]


def refund(identity: str = "R1", item: int = 1, to: str = "original_payment") -> ParsedCall:
    return build_call("refund_item", order_id=identity, item=item, to=to)


def exchange(product: str, identity: str = "R1", item: int = 1) -> ParsedCall:
    return build_call("exchange_item", order_id=identity, item=item, product_id=product)


LAMP_BACK: JsonValue = ["P1", "refunded", "original_payment"]
SHOWN_MUG: dict[str, JsonValue] = {"product_id": "P3", "name": "Mug", "option": "blue", "price": "8.90"}
ORDERS: dict[str, Case] = {
    "a customer": (
        (build_call("find_customer", name="okoro"),),
        {"customers": [{"customer_id": "C1", "name": "Nadia Okoro", "address": "1 Mill Lane"}]},
        None,
    ),
    "their orders": (
        (build_call("list_orders", customer_id="C1"),),
        {
            "orders": [
                {"order_id": name, "placed_on": "2026-09-01", "state": state, "total": total, "items": [*items]}
                for name, state, total, items in (
                    ("R1", "delivered", "58.40", ("Desk lamp", "Mug")),
                    ("R2", "processing", "8.90", ("Mug",)),
                )
            ]
        },
        None,
    ),
    "nobody's orders": ((build_call("list_orders", customer_id="C9"),), error("there is no customer 'C9'"), None),
    "an order": (
        (build_call("get_order", order_id="R2"),),
        {
            **{"order_id": "R2", "placed_on": "2026-09-01", "state": "processing", "delivered_on": None},
            **{"address": "1 Mill Lane", "total": "8.90", "voucher": "0.00"},
            "items": [{"item": 1, **SHOWN_MUG, "final_sale": False, "state": "bought"}],
        },
        None,
    ),
    "no order": ((build_call("get_order", order_id="R\n"),), error("there is no order 'R\\n'"), None),
    "products": ((build_call("search_products", text="BLUE"),), {"products": [{**SHOWN_MUG, "in_stock": 1}]}, None),
    "refunded": (
        (refund(),),
        {"refunded": "49.50", "to": "original_payment"},
        [["R1", "delivered", "1 mill lane", 0, [LAMP_BACK, ["P3", "bought", None]]], R2],
    ),
    "refunded twice": (
        (refund(), refund(to="voucher")),
        error("the money for this item went back already"),
        [["R1", "delivered", "1 mill lane", 0, [LAMP_BACK, ["P3", "bought", None]]], R2],
    ),
    "refunded item 3": ((refund(item=3),), error("order R1 has items 1 to 2"), None),
    "refunded against the rules": (
        (refund("R2", to="voucher"),),
        {"refunded": "8.90", "to": "voucher"},
        [R1, ["R2", "processing", "1 mill lane", 0, [["P3", "refunded", "voucher"]]]],
    ),
    "cancelled": (
        (build_call("cancel_order", order_id="R2"),),
        {"cancelled": "R2", "refunded": "8.90"},
        [R1, ["R2", "cancelled", "1 mill lane", 0, [["P3", "bought", None]]]],
    ),
    "cancelled late": ((build_call("cancel_order", order_id="R1"),), error("order R1 is delivered"), None),
    "another address": (
        (build_call("change_address", order_id="R2", address=" 2  Canal Walk,\nYork "),),
        {"order_id": "R2", "address": "2 Canal Walk, York"},
        [R1, ["R2", "processing", "2 canal walk york", 0, [["P3", "bought", None]]]],
    ),
    "another address late": (
        (build_call("change_address", order_id="R1", address="x"),),
        error("order R1 is delivered"),
        None,
    ),
    "exchanged": (
        (exchange("P3"),),
        {"order_id": "R1", "item": 1, "now": SHOWN_MUG},
        [["R1", "delivered", "1 mill lane", 0, [["P3", "bought", None], ["P3", "bought", None]]], R2],
    ),
    "exchanged for the last twice": (
        (exchange("P3"), exchange("P3", item=2)),
        error("Mug, blue, is out of stock"),
        [["R1", "delivered", "1 mill lane", 0, [["P3", "bought", None], ["P3", "bought", None]]], R2],
    ),
    "exchanged for nothing": ((exchange("P9"),), error("there is no product 'P9'"), None),
    "exchanged early": ((exchange("P1", "R2"),), error("only an item that the customer has can be exchanged"), None),
    "a voucher": (
        (build_call("issue_voucher", order_id="R1", amount="5.84"),),
        {"order_id": "R1", "voucher": "5.84"},
        [["R1", "delivered", "1 mill lane", 584, [["P1", "bought", None], ["P3", "bought", None]]], R2],
    ),
    "a voucher for nothing": (
        (build_call("issue_voucher", order_id="R1", amount="0.00"),),
        error("a voucher is worth more than nothing"),
        None,
    ),
    "a voucher in words": (
        (build_call("issue_voucher", order_id="R1", amount="five"),),
        error("issue_voucher: 'amount' does not fit its schema"),
        None,
    ),
}


@pytest.mark.parametrize("name", ORDERS)
def test_what_the_tools_of_orders_do_and_say(name: str) -> None:
    calls, told, after = ORDERS[name]
    assert worked(OrdersService(), SHOP, calls) == (told, after)


def test_every_tool_of_orders_is_in_the_table() -> None:
    assert tried(ORDERS) == tools(OrdersService())
