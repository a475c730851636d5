"""The state of a shop: customers, products, orders with their items, vouchers."""

from typing import Final, Literal

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.services.figures import euros
from app.envs.tool_agent.services.service import Refused

OrderState = Literal["processing", "shipped", "delivered", "cancelled"]
ItemState = Literal["bought", "refunded"]
Destination = Literal["original_payment", "voucher"]


class Product(Frozen):
    """One option of a product."""

    id: str
    name: str
    option: str
    cents: int
    stock: int

    def shown(self) -> dict[str, JsonValue]:
        return {"product_id": self.id, "name": self.name, "option": self.option, "price": euros(self.cents)}


class Customer(Frozen):
    id: str
    name: str
    address: str

    def shown(self) -> JsonValue:
        return {"customer_id": self.id, "name": self.name, "address": self.address}


class Item(Frozen):
    product: Product
    final_sale: bool = False
    state: ItemState = "bought"
    refunded_to: Destination | None = None

    def shown(self, number: int) -> JsonValue:
        shown = {"item": number, **self.product.shown(), "final_sale": self.final_sale, "state": self.state}
        return shown if self.refunded_to is None else {**shown, "refunded_to": self.refunded_to}


class Order(Frozen):
    id: str
    customer: str
    placed: str
    state: OrderState
    address: str
    items: tuple[Item, ...]
    delivered: str | None = None
    """Day of delivery; None if not delivered."""
    voucher: int = 0
    """Cents of the voucher issued for this order."""

    @property
    def cents(self) -> int:
        return sum(item.product.cents for item in self.items)

    def shown(self) -> JsonValue:
        return {
            "order_id": self.id,
            "placed_on": self.placed,
            "state": self.state,
            "delivered_on": self.delivered,
            "address": self.address,
            "total": euros(self.cents),
            "voucher": euros(self.voucher),
            "items": [item.shown(number) for number, item in enumerate(self.items, 1)],
        }

    def listed(self) -> JsonValue:
        return {
            "order_id": self.id,
            "placed_on": self.placed,
            "state": self.state,
            "total": euros(self.cents),
            "items": [item.product.name for item in self.items],
        }


class Shop(Frozen):
    customers: tuple[Customer, ...] = ()
    products: tuple[Product, ...] = ()
    orders: tuple[Order, ...] = ()

    def order(self, identity: str) -> Order:
        for one in self.orders:
            if one.id == identity:
                return one
        raise Refused(f"there is no order {identity[:MOST_SHOWN]!a}")

    def with_order(self, order: Order) -> "Shop":
        return self.model_copy(update={"orders": tuple(order if one.id == order.id else one for one in self.orders)})


MOST_SHOWN: Final = 40
"""Characters of an unknown identifier that an error quotes."""


def item_of(order: Order, number: int) -> Item:
    if not 1 <= number <= len(order.items):
        raise Refused(f"order {order.id} has items 1 to {len(order.items)}")
    return order.items[number - 1]


def with_item(order: Order, number: int, item: Item) -> Order:
    return order.model_copy(update={"items": (*order.items[: number - 1], item, *order.items[number:])})
