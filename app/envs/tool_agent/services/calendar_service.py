"""The calendar service: its tools and its rules."""

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from app.envs.tool_agent.services.calendar_scenarios import KINDS
from app.envs.tool_agent.services.calendar_state import PEOPLE, Diary, Event, email_of
from app.envs.tool_agent.services.figures import AS_WRITTEN, DATE, TIME, minutes_of, real_day
from app.envs.tool_agent.services.service import Arguments, Operation, Refused, Scenario, tool
from app.toolkit.seeded import Draws

MIDNIGHT: Final = 24 * 60
MINUTES: Final[JsonValue] = {"type": "integer", "minimum": 15, "maximum": 480, "description": "Length in minutes"}
EVENT: Final[JsonValue] = {"type": "string", "description": "Identifier of the event"}
EMAIL: Final[JsonValue] = {"type": "string", "description": "E-mail address of a person"}


def _find_person(state: Diary, arguments: Arguments) -> tuple[Diary, JsonValue]:
    wanted = str(arguments["name"]).casefold().strip()
    found: list[JsonValue] = [
        {"name": person, "email": email_of(person)} for person in PEOPLE if wanted and wanted in person.casefold()
    ]
    return state, {"people": found}


def _list_events(state: Diary, arguments: Arguments) -> tuple[Diary, JsonValue]:
    found = sorted((one for one in state.events if one.date == arguments["date"]), key=lambda one: one.start)
    return state, {"events": [one.shown() for one in found]}


def _create_event(state: Diary, arguments: Arguments) -> tuple[Diary, JsonValue]:
    event = Event(
        id=f"evt_{state.made + 1}",
        title=arguments["title"],
        date=arguments["date"],
        start=minutes_of(arguments["start"]),
        minutes=arguments["minutes"],
        guests=_known(arguments.get("guests", [])),
    )
    return _kept(state, event)


def _move_event(state: Diary, arguments: Arguments) -> tuple[Diary, JsonValue]:
    event = state.event(arguments["event_id"])
    moved = event.model_copy(
        update={
            "date": arguments.get("date", event.date),
            "start": minutes_of(arguments["start"]),
            "minutes": arguments.get("minutes", event.minutes),
        }
    )
    return _kept(state, moved)


def _kept(state: Diary, event: Event) -> tuple[Diary, JsonValue]:
    real_day(event.date)
    if event.end > MIDNIGHT:
        raise Refused("an event ends on the day on which it starts")
    return state.with_event(event), event.shown()


def _invite(state: Diary, arguments: Arguments) -> tuple[Diary, JsonValue]:
    event = state.event(arguments["event_id"])
    (guest,) = _known([arguments["email"]])
    if guest in event.guests:
        raise Refused(f"{guest} is invited already")
    invited = event.model_copy(update={"guests": (*event.guests, guest)})
    return state.with_event(invited), invited.shown()


def _cancel_event(state: Diary, arguments: Arguments) -> tuple[Diary, JsonValue]:
    event = state.event(arguments["event_id"])
    kept = tuple(one for one in state.events if one.id != event.id)
    return state.model_copy(update={"events": kept}), {"cancelled": event.id}


def _known(emails: Sequence[str]) -> tuple[str, ...]:
    known = {email_of(person) for person in PEOPLE}
    for email in emails:
        if email not in known:
            raise Refused(f"nobody has the address {email[:60]!a}")
    return tuple(dict.fromkeys(emails))


OPERATIONS: Final = (
    Operation(
        tool(
            "find_person",
            "People whose name contains a text, with their e-mail addresses.",
            ("name",),
            name={"type": "string"},
        ),
        _find_person,
    ),
    Operation(tool("list_events", "All events of one day, by time.", ("date",), date=DATE), _list_events),
    Operation(
        tool(
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
    Operation(
        tool(
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
    Operation(
        tool("invite", "Invite one more person to an event.", ("event_id", "email"), event_id=EVENT, email=EMAIL),
        _invite,
    ),
    Operation(tool("cancel_event", "Cancel an event for good.", ("event_id",), event_id=EVENT), _cancel_event),
)


class Calendar:
    name: Final = "calendar"
    rules: Final = (
        "The calendar holds one event at a time. People are invited by their e-mail address. Cancel or move nothing "
        f"that the user did not name, and invite nobody else. {AS_WRITTEN}"
    )

    @property
    def operations(self) -> tuple[Operation[Diary], ...]:
        return OPERATIONS

    def essence(self, state: Diary) -> JsonValue:
        events = sorted(state.events, key=lambda one: (one.date, one.start))
        return [[one.date, one.start, one.minutes, one.title, *sorted(one.guests)] for one in events]

    def scenario(self, draws: Draws) -> Scenario[Diary]:
        return draws.one(KINDS)(draws)
