"""What the tools of each service do and say: tables of calls, with what the last is told and what the state is then."""

from typing import Any

import pytest
from pydantic import JsonValue

from app.envs.tool_agent import calendar, files, orders, travel
from app.envs.tool_agent.calendar import CalendarEvent, CalendarState
from app.envs.tool_agent.episodes import SimulatedService, build_call, carry_out
from app.envs.tool_agent.files import FilesState, StoredFile
from app.envs.tool_agent.orders import OrderItem, ShopCustomer, ShopOrder, ShopProduct, ShopState
from app.envs.tool_agent.travel import Hotel, HotelBooking, TravelState, Trip, TripBooking
from app.toolkit.tool_calls.calls import ParsedCall

Case = tuple[tuple[ParsedCall, ...], JsonValue, JsonValue]
"""Calls, what the last of them is told, and what the state is then: None for what it was."""


def error(text: str) -> JsonValue:
    return {"error": text}


DIARY = CalendarState(
    events=(
        CalendarEvent(id="evt_1", title="Choir", date="2026-03-02", start=600, minutes=60),
        CalendarEvent(
            id="evt_2", title="Lunch", date="2026-03-02", start=720, minutes=45, guests=("amir.haddad@example.com",)
        ),
    ),
    made=2,
)
CHOIR: JsonValue = ["2026-03-02", 600, 60, "Choir"]
LUNCH: JsonValue = ["2026-03-02", 720, 45, "Lunch", "amir.haddad@example.com"]
AMIR: JsonValue = {"name": "Amir Haddad", "email": "amir.haddad@example.com"}


def event(identity: str, title: str, start: str, minutes: int, *guests: str) -> JsonValue:
    return {
        **{"event_id": identity, "title": title, "date": "2026-03-02", "start": start},
        **{"minutes": minutes, "guests": [*guests]},
    }


def making(start: str, **more: JsonValue) -> ParsedCall:
    given: dict[str, JsonValue] = {"title": "Audit", "date": "2026-03-02", "start": start, "minutes": 30}
    return build_call("create_event", **{**given, **more})


CALENDAR: dict[str, Case] = {
    "a person": ((build_call("find_person", name="amir"),), {"people": [AMIR]}, None),
    "nobody": ((build_call("find_person", name=" "),), {"people": []}, None),
    "a day": (
        (build_call("list_events", date="2026-03-02"),),
        {
            "events": [
                event("evt_1", "Choir", "10:00", 60),
                event("evt_2", "Lunch", "12:00", 45, "amir.haddad@example.com"),
            ]
        },
        None,
    ),
    "made": (
        (making("11:00"),),
        event("evt_3", "Audit", "11:00", 30),
        [CHOIR, ["2026-03-02", 660, 30, "Audit"], LUNCH],
    ),
    "made over another": ((making("10:45"),), error("Choir is at that time, 10:00 to 11:00"), None),
    "made past midnight": ((making("23:45"),), error("an event ends on the day on which it starts"), None),
    "made at no time": ((making("24:00"),), error("24:00 is no time of day"), None),
    "made on no day": ((making("09:00", date="2026-02-30"),), error("2026-02-30 is no day of the calendar"), None),
    "made for a stranger": ((making("09:00", guests=["x@y"]),), error("nobody has the address 'x@y'"), None),
    "moved": (
        (build_call("move_event", event_id="evt_1", start="10:15"),),
        event("evt_1", "Choir", "10:15", 60),
        [["2026-03-02", 615, 60, "Choir"], LUNCH],
    ),
    "moved over another": (
        (build_call("move_event", event_id="evt_1", start="11:15"),),
        error("Lunch is at that time, 12:00 to 12:45"),
        None,
    ),
    "invited": (
        (build_call("invite", event_id="evt_1", email="keiko.arai@example.com"),),
        event("evt_1", "Choir", "10:00", 60, "keiko.arai@example.com"),
        [["2026-03-02", 600, 60, "Choir", "keiko.arai@example.com"], LUNCH],
    ),
    "invited again": (
        (build_call("invite", event_id="evt_2", email="amir.haddad@example.com"),),
        error("amir.haddad@example.com is invited already"),
        None,
    ),
    "cancelled": ((build_call("cancel_event", event_id="evt_1"),), {"cancelled": "evt_1"}, [LUNCH]),
    "cancelled twice": (
        (build_call("cancel_event", event_id="evt_1"),) * 2,
        error("there is no event 'evt_1'"),
        [LUNCH],
    ),
    "made anew": (
        (build_call("cancel_event", event_id="evt_1"), making("10:00", title="Choir", minutes=60)),
        event("evt_3", "Choir", "10:00", 60),
        None,
    ),
}


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


TREE = FilesState(
    files=(
        StoredFile(path="/a/keep.txt", text="one\ntwo\n"),
        StoredFile(path="/a/sub/x.tmp", text="x"),
        StoredFile(path="/system/v.txt", text="1"),
    ),
    frozen=("/system",),
)
KEEP: JsonValue = ["/a/keep.txt", "one", "two"]
TEMP: JsonValue = ["/a/sub/x.tmp", "x"]
SYSTEM: JsonValue = ["/system/v.txt", "1"]
FILES: dict[str, Case] = {
    "a folder": ((build_call("list_folder", path="/a/"),), {"folder": "/a", "entries": ["keep.txt", "sub/"]}, None),
    "everything": ((build_call("list_folder", path="/"),), {"folder": "/", "entries": ["a/", "system/"]}, None),
    "no folder": ((build_call("list_folder", path="/b"),), error("no folder /b"), None),
    "a file": ((build_call("read_file", path="/a/keep.txt"),), {"path": "/a/keep.txt", "text": "one\ntwo\n"}, None),
    "no file": ((build_call("read_file", path="/a"),), error("/a is a folder"), None),
    "up and out": (
        (build_call("read_file", path="/a/../system/v.txt"),),
        error("paths begin with / and are made of letters, digits and _ . -, without . and .."),
        None,
    ),
    "found": (
        (build_call("search_files", text="TWO"),),
        {"found": [{"path": "/a/keep.txt", "line": "two"}], "more": False},
        None,
    ),
    "found by name": (
        (build_call("search_files", text=".tmp", folder="/a"),),
        {"found": [{"path": "/a/sub/x.tmp", "line": "/a/sub/x.tmp"}], "more": False},
        None,
    ),
    "created": (
        (build_call("create_file", path="/n.txt", text="\n hi \n\n"),),
        {"created": "/n.txt"},
        [KEEP, TEMP, ["/n.txt", "hi"], SYSTEM],
    ),
    "created over another": (
        (build_call("create_file", path="/a/keep.txt", text=""),),
        error("there is a file at /a/keep.txt already"),
        None,
    ),
    "created in a file": (
        (build_call("create_file", path="/a/keep.txt/b", text=""),),
        error("there is a file at /a/keep.txt/b already"),
        None,
    ),
    "created as a folder": (
        (build_call("create_file", path="/a", text=""),),
        error("/a is a folder; name the file in it"),
        None,
    ),
    "created too long": (
        (build_call("create_file", path="/l", text="x" * 4001),),
        error("a file has at most 4000 characters"),
        None,
    ),
    "replaced": (
        (build_call("replace_text", path="/a/keep.txt", old="two", new="2"),),
        {"changed": "/a/keep.txt"},
        [["/a/keep.txt", "one", "2"], TEMP, SYSTEM],
    ),
    "replaced unclear": (
        (build_call("replace_text", path="/a/keep.txt", old="o", new="0"),),
        error("the old text is there 2 times; it must be there once"),
        None,
    ),
    "appended": (
        (build_call("append_line", path="/a/keep.txt", line="three"),),
        {"changed": "/a/keep.txt"},
        [["/a/keep.txt", "one", "two", "three"], TEMP, SYSTEM],
    ),
    "copied out": (
        (build_call("copy_file", path="/system/v.txt", to="/v.txt"),),
        {"copied": "/system/v.txt", "to": "/v.txt"},
        [KEEP, TEMP, SYSTEM, ["/v.txt", "1"]],
    ),
    "copied in": ((build_call("copy_file", path="/a/keep.txt", to="/system/k"),), error("/system is read-only"), None),
    "moved": (
        (build_call("move_file", path="/a/sub/x.tmp", to="/b/y"),),
        {"moved": "/a/sub/x.tmp", "to": "/b/y"},
        [KEEP, ["/b/y", "x"], SYSTEM],
    ),
    "moved out": ((build_call("move_file", path="/system/v.txt", to="/v"),), error("/system is read-only"), None),
    "deleted": ((build_call("delete", path="/a"),), {"deleted": ["/a/keep.txt", "/a/sub/x.tmp"], "files": 2}, [SYSTEM]),
    "deleted nothing": ((build_call("delete", path="/zz"),), error("nothing is at /zz"), None),
    "deleted everything": ((build_call("delete", path="/"),), error("/system is read-only"), None),
}


TRIP = {"origin": "Lyon", "destination": "Turin", "date": "2026-05-04", "departs": 480, "minutes": 200}
TRAIN, LATER, FLIGHT = (
    Trip.model_validate({**TRIP, "id": "T1", "mode": "train", "cents": 6120, "option_cents": 450}),
    Trip.model_validate(
        {**TRIP, "id": "T2", "mode": "train", "cents": 5500, "option_cents": 650, "departs": 600, "refundable": False}
    ),
    Trip.model_validate({**TRIP, "id": "T3", "mode": "flight", "cents": 4000, "option_cents": 2250, "minutes": 65}),
)
HOTEL = Hotel(id="H1", city="Turin", name="Magpie", tenths=87, cents=9015, breakfast_cents=850)
RIDE, STAY = TripBooking(id="B1", trip=TRAIN), HotelBooking(id="B2", hotel=HOTEL, check_in="2026-05-04", nights=2)
DESK = TravelState(trips=(LATER, TRAIN, FLIGHT), hotels=(HOTEL,), bookings=(RIDE, STAY), made=2)
IN_TURIN = "H1 2026-05-04 for 2 with nothing"


def taking(trip: str, booking: str = "B1") -> ParsedCall:
    return build_call("change_trip", booking_id=booking, trip_id=trip)


def adding(option: str, booking: str = "B1") -> ParsedCall:
    return build_call("add_option", booking_id=booking, option=option)


def ride(trip: Trip, cost: str, *options: str, booking: str = "B1") -> JsonValue:
    return {"booking_id": booking, "trip": trip.to_observation(), "booked": [*options], "cost": cost}


def stay(booking: str, check_in: str, nights: int, cost: str, *options: str) -> JsonValue:
    where: dict[str, JsonValue] = {"booking_id": booking, "hotel": HOTEL.to_observation(), "check_in": check_in}
    return {**where, "nights": nights, "booked": [*options], "cost": cost}


SEARCH: dict[str, JsonValue] = {"origin": "lyon", "destination": "Turin ", "date": "2026-05-04"}
TRAVEL: dict[str, Case] = {
    "trips": (
        (build_call("search_trips", **SEARCH, mode="train"),),
        {
            "trips": [
                {
                    **{"trip_id": name, "mode": "train", "origin": "Lyon", "destination": "Turin"},
                    **{"date": "2026-05-04", "departs": departs, "arrives": arrives, "minutes": 200},
                    **{"price": price, "options": {"seat": seat}, "refundable": refundable},
                }
                for name, departs, arrives, price, seat, refundable in (
                    ("T1", "08:00", "11:20", "61.20", "4.50", True),
                    ("T2", "10:00", "13:20", "55.00", "6.50", False),
                )
            ]
        },
        None,
    ),
    "no trips": ((build_call("search_trips", **SEARCH | {"date": "2026-05-05"}),), {"trips": []}, None),
    "hotels": (
        (build_call("search_hotels", city="TURIN"),),
        {
            "hotels": [
                {
                    **{"hotel_id": "H1", "city": "Turin", "name": "Magpie", "rating": "8.7"},
                    **{"price_per_night": "90.15", "options": {"breakfast": "8.50 per night"}, "refundable": True},
                }
            ]
        },
        None,
    ),
    "bookings": (
        (build_call("list_bookings"),),
        {"bookings": [ride(TRAIN, "61.20"), stay("B2", "2026-05-04", 2, "180.30")]},
        None,
    ),
    "booked": (
        (build_call("book_trip", trip_id="T3"),),
        ride(FLIGHT, "40.00", booking="B3"),
        [IN_TURIN, "T1 with nothing", "T3 with nothing"],
    ),
    "booked nothing": ((build_call("book_trip", trip_id="T9"),), error("there is no trip 'T9'"), None),
    "booked a hotel": (
        (build_call("book_hotel", hotel_id="H1", check_in="2026-06-01", nights=1),),
        stay("B3", "2026-06-01", 1, "90.15"),
        [IN_TURIN, "H1 2026-06-01 for 1 with nothing", "T1 with nothing"],
    ),
    "booked on no day": (
        (build_call("book_hotel", hotel_id="H1", check_in="2026-06-31", nights=1),),
        error("2026-06-31 is no day of the calendar"),
        None,
    ),
    "changed": ((taking("T2"),), ride(LATER, "55.00"), [IN_TURIN, "T2 with nothing"]),
    "changed by air": ((taking("T3"),), error("B1 is a train from Lyon to Turin"), None),
    "changed a hotel for a train": ((taking("T1", "B2"),), error("B2 is a hotel"), None),
    "stayed": (
        (build_call("change_stay", booking_id="B2", nights=3),),
        stay("B2", "2026-05-04", 3, "270.45"),
        ["H1 2026-05-04 for 3 with nothing", "T1 with nothing"],
    ),
    "stayed in a train": ((build_call("change_stay", booking_id="B1", nights=3),), error("B1 is a train"), None),
    "a seat": ((adding("seat"),), ride(TRAIN, "65.70", "seat"), [IN_TURIN, "T1 with seat"]),
    "breakfast": (
        (adding("breakfast", "B2"),),
        stay("B2", "2026-05-04", 2, "197.30", "breakfast"),
        ["H1 2026-05-04 for 2 with breakfast", "T1 with nothing"],
    ),
    "two seats": ((adding("seat"),) * 2, error("B1 is with seat already"), [IN_TURIN, "T1 with seat"]),
    "luggage": ((adding("luggage"),), error("B1 can be had with seat, not with luggage"), None),
    "cancelled": ((build_call("cancel_booking", booking_id="B1"),), {"cancelled": "B1", "paid_back": True}, [IN_TURIN]),
    "cancelled for nothing": (
        (taking("T2"), build_call("cancel_booking", booking_id="B1")),
        {"cancelled": "B1", "paid_back": False},
        [IN_TURIN, "T2 with nothing cancelled"],
    ),
    "cancelled twice": (
        (build_call("cancel_booking", booking_id="B1"),) * 2,
        error("there is no booking 'B1'"),
        [IN_TURIN],
    ),
    "booked anew": (
        (build_call("cancel_booking", booking_id="B1"), build_call("book_trip", trip_id="T1")),
        ride(TRAIN, "61.20", booking="B3"),
        None,
    ),
}


SERVICES: dict[str, tuple[SimulatedService[Any], Any, dict[str, Case]]] = {
    "calendar": (calendar.CALENDAR, DIARY, CALENDAR),
    "orders": (orders.ORDERS, SHOP, ORDERS),
    "files": (files.FILES, TREE, FILES),
    "travel": (travel.TRAVEL, DESK, TRAVEL),
}


@pytest.mark.parametrize(
    ("service", "case"), [(name, case) for name, (_, _, table) in SERVICES.items() for case in table]
)
def test_what_the_tools_do_and_say(service: str, case: str) -> None:
    played, start, table = SERVICES[service]
    calls, told, after = table[case]
    state, output = start, None
    for one in calls:
        result = carry_out(played, state, one)
        state, output = result.state, result.output
    essence = played.canonicalise(state)
    assert (output, None if essence == played.canonicalise(start) else essence) == (told, after)


@pytest.mark.parametrize("service", SERVICES)
def test_every_tool_is_in_its_table(service: str) -> None:
    played, _, table = SERVICES[service]
    tried = {one.name for calls, _, _ in table.values() for one in calls}
    assert tried == set(played.does) == {tool.function.name for tool in played.tools}
