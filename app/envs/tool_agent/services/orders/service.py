"""The shop as a service."""

import re
from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.figures import AS_WRITTEN
from app.envs.tool_agent.services.orders.making import TODAY
from app.envs.tool_agent.services.orders.operations import OPERATIONS
from app.envs.tool_agent.services.orders.scenarios import KINDS
from app.envs.tool_agent.services.orders.state import Order, Shop
from app.envs.tool_agent.services.service import Operation, Scenario
from app.toolkit.seeded import Draws


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
