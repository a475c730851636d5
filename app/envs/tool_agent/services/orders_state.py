"""The state of a shop: customers, products, orders with their items, vouchers."""

from typing import Final, Literal

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.services.simulated_service import OperationRefused
from app.envs.tool_agent.services.value_formats import format_euros

OrderState = Literal["processing", "shipped", "delivered", "cancelled"]
ItemState = Literal["bought", "refunded"]
Destination = Literal["original_payment", "voucher"]


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
    state: ItemState = "bought"
    refunded_to: Destination | None = None

    def to_observation(self, number: int) -> JsonValue:
        shown = {"item": number, **self.product.to_observation(), "final_sale": self.final_sale, "state": self.state}
        return shown if self.refunded_to is None else {**shown, "refunded_to": self.refunded_to}


class ShopOrder(Frozen):
    id: str
    customer: str
    placed: str
    state: OrderState
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
        for one in self.orders:
            if one.id == identity:
                return one
        raise OperationRefused(f"there is no order {identity[:MOST_SHOWN]!a}")

    def with_order(self, order: ShopOrder) -> "ShopState":
        return self.model_copy(update={"orders": tuple(order if one.id == order.id else one for one in self.orders)})


MOST_SHOWN: Final = 40
"""Characters of an unknown identifier that an error quotes."""


def get_item(order: ShopOrder, number: int) -> OrderItem:
    if not 1 <= number <= len(order.items):
        raise OperationRefused(f"order {order.id} has items 1 to {len(order.items)}")
    return order.items[number - 1]


def replace_item(order: ShopOrder, number: int, item: OrderItem) -> ShopOrder:
    return order.model_copy(update={"items": (*order.items[: number - 1], item, *order.items[number:])})
