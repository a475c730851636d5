"""The calendar service: its tools and its rules."""

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.calendar_scenarios import KINDS
from app.envs.tool_agent.services.calendar_state import PEOPLE, CalendarEvent, CalendarState, make_email
from app.envs.tool_agent.services.simulated_service import (
    Arguments,
    OperationRefused,
    ServiceOperation,
    ServiceScenario,
    build_tool,
)
from app.envs.tool_agent.services.value_formats import AS_WRITTEN, DATE, TIME, check_day, parse_time
from app.toolkit.seeded import SeededRandom

MIDNIGHT: Final = 24 * 60
MINUTES: Final[JsonValue] = {"type": "integer", "minimum": 15, "maximum": 480, "description": "Length in minutes"}
EVENT: Final[JsonValue] = {"type": "string", "description": "Identifier of the event"}
EMAIL: Final[JsonValue] = {"type": "string", "description": "E-mail address of a person"}


def _find_person(state: CalendarState, arguments: Arguments) -> tuple[CalendarState, JsonValue]:
    wanted = str(arguments["name"]).casefold().strip()
    found: list[JsonValue] = [
        {"name": person, "email": make_email(person)} for person in PEOPLE if wanted and wanted in person.casefold()
    ]
    return state, {"people": found}


def _list_events(state: CalendarState, arguments: Arguments) -> tuple[CalendarState, JsonValue]:
    found = sorted((one for one in state.events if one.date == arguments["date"]), key=lambda one: one.start)
    return state, {"events": [one.to_observation() for one in found]}


def _create_event(state: CalendarState, arguments: Arguments) -> tuple[CalendarState, JsonValue]:
    event = CalendarEvent(
        id=f"evt_{state.made + 1}",
        title=arguments["title"],
        date=arguments["date"],
        start=parse_time(arguments["start"]),
        minutes=arguments["minutes"],
        guests=_check_guests(arguments.get("guests", [])),
    )
    return _save_event(state, event)


def _move_event(state: CalendarState, arguments: Arguments) -> tuple[CalendarState, JsonValue]:
    event = state.find_event(arguments["event_id"])
    moved = event.model_copy(
        update={
            "date": arguments.get("date", event.date),
            "start": parse_time(arguments["start"]),
            "minutes": arguments.get("minutes", event.minutes),
        }
    )
    return _save_event(state, moved)


def _save_event(state: CalendarState, event: CalendarEvent) -> tuple[CalendarState, JsonValue]:
    check_day(event.date)
    if event.end > MIDNIGHT:
        raise OperationRefused("an event ends on the day on which it starts")
    return state.with_event(event), event.to_observation()


def _invite_guest(state: CalendarState, arguments: Arguments) -> tuple[CalendarState, JsonValue]:
    event = state.find_event(arguments["event_id"])
    (guest,) = _check_guests([arguments["email"]])
    if guest in event.guests:
        raise OperationRefused(f"{guest} is invited already")
    invited = event.model_copy(update={"guests": (*event.guests, guest)})
    return state.with_event(invited), invited.to_observation()


def _cancel_event(state: CalendarState, arguments: Arguments) -> tuple[CalendarState, JsonValue]:
    event = state.find_event(arguments["event_id"])
    kept = tuple(one for one in state.events if one.id != event.id)
    return state.model_copy(update={"events": kept}), {"cancelled": event.id}


def _check_guests(emails: Sequence[str]) -> tuple[str, ...]:
    known = {make_email(person) for person in PEOPLE}
    for email in emails:
        if email not in known:
            raise OperationRefused(f"nobody has the address {email[:60]!a}")
    return tuple(dict.fromkeys(emails))


OPERATIONS: Final = (
    ServiceOperation(
        build_tool(
            "find_person",
            "People whose name contains a text, with their e-mail addresses.",
            ("name",),
            name={"type": "string"},
        ),
        _find_person,
    ),
    ServiceOperation(build_tool("list_events", "All events of one day, by time.", ("date",), date=DATE), _list_events),
    ServiceOperation(
        build_tool(
            "create_event",
            "Make an event. Refused where another one is at that time.",
            ("title", "date", "start", "minutes"),
            title={"type": "string", "minLength": 1, "maxLength": 100},
            date=DATE,
            start=TIME,
            minutes=MINUTES,
            guests={"type": "array", "items": EMAIL, "description": "Who is invited; nobody if left out"},
        ),
        _create_event,
    ),
    ServiceOperation(
        build_tool(
            "move_event",
            "Give an event another time, and another day or length where given.",
            ("event_id", "start"),
            event_id=EVENT,
            date=DATE,
            start=TIME,
            minutes=MINUTES,
        ),
        _move_event,
    ),
    ServiceOperation(
        build_tool("invite", "Invite one more person to an event.", ("event_id", "email"), event_id=EVENT, email=EMAIL),
        _invite_guest,
    ),
    ServiceOperation(
        build_tool("cancel_event", "Cancel an event for good.", ("event_id",), event_id=EVENT), _cancel_event
    ),
)


class CalendarService:
    name: Final = "calendar"
    rules: Final = (
        "The calendar holds one event at a time. People are invited by their e-mail address. Cancel or move nothing "
        f"that the user did not name, and invite nobody else. {AS_WRITTEN}"
    )

    @property
    def operations(self) -> tuple[ServiceOperation[CalendarState], ...]:
        return OPERATIONS

    def canonicalise(self, state: CalendarState) -> JsonValue:
        events = sorted(state.events, key=lambda one: (one.date, one.start))
        return [[one.date, one.start, one.minutes, one.title, *sorted(one.guests)] for one in events]

    def draw_scenario(self, draws: SeededRandom) -> ServiceScenario[CalendarState]:
        return draws.one(KINDS)(draws)
