"""What the tools of the calendar do and say."""

import pytest
from pydantic import JsonValue

from app.envs.tool_agent.calendar import CalendarEvent, CalendarService, CalendarState
from app.envs.tool_agent.episodes import build_call
from app.toolkit.tool_calls.calls import ParsedCall
from tests.support.simulated import Case, error, tools, tried, worked

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


@pytest.mark.parametrize("name", CALENDAR)
def test_what_the_tools_of_calendar_do_and_say(name: str) -> None:
    calls, told, after = CALENDAR[name]
    assert worked(CalendarService(), DIARY, calls) == (told, after)


def test_every_tool_of_calendar_is_in_the_table() -> None:
    assert tried(CALENDAR) == tools(CalendarService())
