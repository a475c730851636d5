"""Initial shops of scenarios: a customer, a namesake, products, and orders of both."""

from collections.abc import Sequence
from typing import Final

from app.envs.tool_agent.services.orders_state import (
    OrderItem,
    OrderState,
    ShopCustomer,
    ShopOrder,
    ShopProduct,
    ShopState,
)
from app.envs.tool_agent.services.simulated_service import build_call
from app.envs.tool_agent.services.value_formats import add_days
from app.toolkit.seeded import SeededRandom
from app.toolkit.tool_calls.calls import ParsedCall

TODAY: Final = "2026-09-14"
FIRST_NAMES: Final = (
    *("Nadia", "Elliot", "Imani", "Rafael", "Sunniva", "Takeshi", "Beatriz", "Callum", "Divya", "Emre"),
    *("Freya", "Giulia", "Hamza", "Ingrid", "Jakub", "Katya", "Liam", "Mireille", "Nils", "Olivia"),
)
LAST_NAMES: Final = (
    *("Okoro", "Fairweather", "Lindqvist", "Castellano", "Moreau", "Tanaka", "Barros", "MacLeod", "Iyer", "Yilmaz"),
    *("Hallam", "Ferrara", "Siddiqui", "Solberg", "Nowak", "Petrova", "Byrne", "Duval", "Jansen", "Whitcombe"),
)
STREETS: Final = ("Mill Lane", "Station Road", "Harbour Street", "Orchard Close", "Castle Hill", "Canal Walk")
TOWNS: Final = (
    *("Leeds", "Bristol", "Norwich", "Perth", "Swansea", "York", "Exeter", "Dundee", "Derby", "Cork"),
    *("Galway", "Bath", "Lincoln", "Durham", "Ipswich", "Stirling"),
)
GOODS: Final = (
    *("Rain jacket", "Wool jumper", "Running shoes", "Desk lamp", "Kettle", "Backpack", "Linen shirt", "Ceramic mug"),
    *("Office chair", "Headphones", "Yoga mat", "Wall clock", "Duvet cover", "Picnic blanket", "Water bottle"),
    *("Bicycle bell", "Umbrella", "Toaster", "Suitcase", "Table fan"),
)
COLOURS: Final = ("black", "white", "cream", "blue", "grey", "green", "crimson", "yellow")
OPTIONS: Final = 3
"""Options of each product, side by side in `products`."""


class ShopBuilder:
    """Builds the initial state of a scenario; each call returns another order or product."""

    def __init__(self, draws: SeededRandom) -> None:
        self.draws = draws
        self._next_order = 1000 + draws.below(8000)
        name = f"{draws.one(FIRST_NAMES)} {draws.one(LAST_NAMES)}"
        self.town, other, new = draws.some(TOWNS, 3)
        self.customer = ShopCustomer(id=f"C{100 + draws.below(400)}", name=name, address=self._draw_address(self.town))
        self._namesake = ShopCustomer(id=f"C{500 + draws.below(400)}", name=name, address=self._draw_address(other))
        self.new_address = self._draw_address(new)
        prices = draws.some(range(12, 140), 7)
        goods = draws.some(GOODS, 7)
        self.products = tuple(
            ShopProduct(
                id=f"P{201 + place}", name=name, option=option, cents=price * 100 + cents, stock=1 + draws.below(9)
            )
            for name, price in zip(goods, prices, strict=True)
            for cents in (draws.one((40, 50, 90)),)
            for place, option in enumerate(draws.some(COLOURS, OPTIONS), OPTIONS * goods.index(name))
        )
        self._unsold = [self.products[OPTIONS * place + draws.below(OPTIONS)] for place in range(len(goods))]

    def _draw_address(self, town: str) -> str:
        return f"{2 + self.draws.below(90)} {self.draws.one(STREETS)}, {10000 + self.draws.below(80000)} {town}"

    def take_product(self) -> ShopProduct:
        return self._unsold.pop()

    def build_order(
        self,
        placed: int,
        state: OrderState,
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


def build_refund(order: ShopOrder, item: int = 1) -> ParsedCall:
    return build_call("refund_item", order_id=order.id, item=item, to="original_payment")
