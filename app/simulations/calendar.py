"""A calendar: look up people and events, make, move and cancel them."""

from typing import Any, Final

from pydantic import JsonValue

from app.calls.values import Call
from app.domain.values import Frozen
from app.draws import Draws
from app.simulations.service import Arguments, Operation, Refused, Scenario, Wish, tool

PEOPLE: Final = (
    *("Dana Whitlock", "Amir Haddad", "Joana Prates", "Tomasz Zieliński", "Keiko Arai", "Wanjiru Kamau"),
    *("Leif Sundby", "Marisol Vega", "Priya Raman", "Oskar Brandt", "Chloé Marchand", "Bao Nguyen"),
)
TITLES: Final = (
    *("Budget review", "Design critique", "Supplier call", "Hiring panel", "Sprint planning", "Fire drill"),
    *("Contract check", "Roof inspection", "Choir rehearsal", "Tax appointment", "Board lunch", "Server handover"),
    *("Piano lesson", "Garden committee", "Press briefing", "Lab safety talk", "Warehouse count", "Data audit"),
)
DATES: Final = tuple(f"2026-{month:02d}-{day:02d}" for month in range(1, 13) for day in (2, 5, 9, 12, 17, 23, 26))
OPENS, CLOSES = 8 * 60, 18 * 60
SLOT: Final = 15

DATE: Final[JsonValue] = {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$", "description": "Day as YYYY-MM-DD"}
TIME: Final[JsonValue] = {"type": "string", "pattern": r"^\d{2}:\d{2}$", "description": "Start as HH:MM, 24 hours"}
MINUTES: Final[JsonValue] = {"type": "integer", "minimum": 15, "maximum": 480, "description": "Length in minutes"}
EVENT: Final[JsonValue] = {"type": "string", "description": "Identifier of the event"}
EMAIL: Final[JsonValue] = {"type": "string", "description": "E-mail address of a person"}


class Event(Frozen):
    id: str
    title: str
    date: str
    start: int
    """Minutes after midnight."""
    minutes: int
    guests: tuple[str, ...] = ()

    @property
    def end(self) -> int:
        return self.start + self.minutes

    def shown(self) -> JsonValue:
        return {
            "event_id": self.id,
            "title": self.title,
            "date": self.date,
            "start": clock(self.start),
            "minutes": self.minutes,
            "guests": [*self.guests],
        }


class Diary(Frozen):
    events: tuple[Event, ...] = ()
    made: int = 0
    """Events ever made: identifiers count on from here."""

    def event(self, identity: str) -> Event:
        for one in self.events:
            if one.id == identity:
                return one
        raise Refused(f"there is no event {identity[:40]!a}")

    def with_event(self, event: Event) -> "Diary":
        for other in self.events:
            if (
                other.date == event.date
                and other.start < event.end
                and event.start < other.end
                and other.id != event.id
            ):
                raise Refused(f"{other.title} is at that time, {clock(other.start)} to {clock(other.end)}")
        kept = tuple(one for one in self.events if one.id != event.id)
        return Diary(events=(*kept, event), made=self.made + (len(kept) == len(self.events)))


class Calendar:
    name: Final = "calendar"
    rules: Final = (
        "The calendar holds one event at a time. People are invited by their e-mail address. Cancel or move nothing "
        "that the user did not name."
    )

    @property
    def operations(self) -> tuple[Operation[Diary], ...]:
        return OPERATIONS

    def essence(self, state: Diary) -> JsonValue:
        events = sorted(state.events, key=lambda one: (one.date, one.start))
        return [[one.date, one.start, one.minutes, one.title, *sorted(one.guests)] for one in events]

    def scenario(self, draws: Draws) -> Scenario[Diary]:
        return draws.one((_made_and_moved, _cleared, _put_after, _guest_added))(draws)


def clock(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def email_of(person: str) -> str:
    plain = person.lower().translate(str.maketrans("ńéłó", "nelo"))
    return plain.replace(" ", ".") + "@example.com"


def _minutes(time: str) -> int:
    hours, minutes = int(time[:2]), int(time[3:])
    if hours > 23 or minutes > 59:
        raise Refused(f"{time} is no time of day")
    return hours * 60 + minutes


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
        start=_minutes(arguments["start"]),
        minutes=arguments["minutes"],
        guests=_known(arguments.get("guests", [])),
    )
    return state.with_event(event), event.shown()


def _move_event(state: Diary, arguments: Arguments) -> tuple[Diary, JsonValue]:
    event = state.event(arguments["event_id"])
    moved = event.model_copy(
        update={
            "date": arguments.get("date", event.date),
            "start": _minutes(arguments["start"]),
            "minutes": arguments.get("minutes", event.minutes),
        }
    )
    return state.with_event(moved), moved.shown()


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


def _known(emails: Any) -> tuple[str, ...]:
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
            title={"type": "string", "minLength": 1},
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


def _busy_day(draws: Draws, date: str, titles: list[str], count: int) -> list[Event]:
    """Events of one day with room between them, in order."""
    events = []
    start = OPENS + SLOT * draws.below(4)
    for number in range(count):
        minutes = draws.one((30, 45, 60))
        guests = tuple(map(email_of, draws.some(PEOPLE, draws.below(3))))
        events.append(
            Event(id=f"evt_{number + 1}", title=titles.pop(), date=date, start=start, minutes=minutes, guests=guests)
        )
        start += minutes + draws.one((60, 75, 90))
    return events


def _diary(events: list[Event]) -> Diary:
    return Diary(events=tuple(events), made=len(events))


def _made_and_moved(draws: Draws) -> Scenario[Diary]:
    """A new event with a guest whose address has to be looked up; then another time for it."""
    titles, date, person = draws.shuffled(TITLES), draws.one(DATES), draws.one(PEOPLE)
    events = _busy_day(draws, date, titles, 2 + draws.below(2))
    title, minutes = titles.pop(), draws.one((30, 45))
    first = events[-1].end + SLOT * draws.below(3)
    later = first + draws.one((60, 75, 120))
    made: dict[str, JsonValue] = {"title": title, "date": date, "start": clock(first), "minutes": minutes}
    moved: dict[str, JsonValue] = {"event_id": f"evt_{len(events) + 1}", "start": clock(later)}
    return Scenario(
        kind="make and move",
        start=_diary(events),
        wishes=(
            Wish(
                says=f"Put an event called {title} into my calendar on {date} at {clock(first)}, {minutes} minutes, "
                f"and invite {person}.",
                calls=(
                    Call(name="find_person", arguments={"name": person}),
                    Call(name="create_event", arguments=made | {"guests": [email_of(person)]}),
                ),
                reply=f"Done: {title} is on {date} at {clock(first)}, and {person} is invited.",
            ),
            Wish(
                says=f"On second thoughts, {clock(later)} suits me better on that day. Same length.",
                calls=(Call(name="move_event", arguments=moved),),
                reply=f"It is at {clock(later)} now.",
            ),
        ),
    )


def _cleared(draws: Draws) -> Scenario[Diary]:
    """Everything of a day goes but one event; events of another day stay."""
    titles, (date, other) = draws.shuffled(TITLES), draws.some(DATES, 2)
    events = _busy_day(draws, date, titles, 3 + draws.below(2))
    stay = [
        one.model_copy(update={"id": f"evt_{len(events) + place}"})
        for place, one in enumerate(_busy_day(draws, other, titles, 2), 1)
    ]
    kept = draws.one(events)
    calls = [Call(name="cancel_event", arguments={"event_id": one.id}) for one in events if one != kept]
    return Scenario(
        kind="clear a day",
        start=_diary([*events, *stay]),
        wishes=(
            Wish(
                says=f"I am away on {date}. Cancel everything on that day except {kept.title}, and tell me when "
                "that one starts.",
                calls=(Call(name="list_events", arguments={"date": date}), *calls),
                reply=f"Cancelled. {kept.title} starts at {clock(kept.start)}.",
                answers=(clock(kept.start),),
            ),
        ),
    )


def _put_after(draws: Draws) -> Scenario[Diary]:
    """An event right after another one, whose end has to be looked up; then a shorter one."""
    titles, date = draws.shuffled(TITLES), draws.one(DATES)
    events = _busy_day(draws, date, titles, 3)
    before, title = draws.one(events), titles.pop()
    made: dict[str, JsonValue] = {"title": title, "date": date, "start": clock(before.end), "minutes": 45}
    shorter: dict[str, JsonValue] = {"event_id": "evt_4", "start": clock(before.end), "minutes": 30}
    return Scenario(
        kind="fit in",
        start=_diary(events),
        wishes=(
            Wish(
                says=f"Add {title}, 45 minutes, on {date} right after {before.title} ends. When will it start?",
                calls=(
                    Call(name="list_events", arguments={"date": date}),
                    Call(name="create_event", arguments=made),
                ),
                reply=f"{title} starts at {clock(before.end)}.",
                answers=(clock(before.end),),
            ),
            Wish(
                says="Half an hour is enough for it, actually.",
                calls=(Call(name="move_event", arguments=shorter),),
                reply="It takes 30 minutes now.",
            ),
        ),
    )


def _guest_added(draws: Draws) -> Scenario[Diary]:
    """One more guest for an event that is only named by its day and title; then another one is cancelled."""
    titles, date = draws.shuffled(TITLES), draws.one(DATES)
    events = _busy_day(draws, date, titles, 3)
    event, gone = draws.some(events, 2)
    person = draws.one([one for one in PEOPLE if email_of(one) not in event.guests])
    return Scenario(
        kind="invite",
        start=_diary(events),
        wishes=(
            Wish(
                says=f"Please invite {person} to {event.title} on {date} as well.",
                calls=(
                    Call(name="list_events", arguments={"date": date}),
                    Call(name="find_person", arguments={"name": person}),
                    Call(name="invite", arguments={"event_id": event.id, "email": email_of(person)}),
                ),
                reply=f"{person} is invited.",
            ),
            Wish(
                says=f"Also, {gone.title} on that day is off. Take it out.",
                calls=(Call(name="cancel_event", arguments={"event_id": gone.id}),),
                reply=f"{gone.title} is cancelled.",
            ),
        ),
    )
