"""The calendar service: events that never overlap, and guests by their e-mail address."""

from collections.abc import Sequence
from typing import Final

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.episodes import (
    Arguments,
    DrawnScenario,
    OperationRefused,
    SayWish,
    SimulatedService,
    UserWish,
    build_call,
    check_day,
    find_by_id,
    format_time,
    parse_time,
    read_service_texts,
    write_day,
)
from app.toolkit.seeded import SeededRandom

TEXTS: Final = read_service_texts(__file__)

_PEOPLE: Final = TEXTS.pools["people"]
_PLAIN: Final = str.maketrans("ńéłó", "nelo")
"""Letters of the names above as they stand in addresses."""


class CalendarEvent(Frozen):
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

    def to_observation(self) -> JsonValue:
        return {
            "event_id": self.id,
            "title": self.title,
            "date": self.date,
            "start": format_time(self.start),
            "minutes": self.minutes,
            "guests": [*self.guests],
        }


class CalendarState(Frozen):
    events: tuple[CalendarEvent, ...] = ()
    made: int = 0
    """Number of events ever made, for the next identifier."""

    def find_event(self, identity: str) -> CalendarEvent:
        return find_by_id(self.events, identity, "event")

    def with_event(self, event: CalendarEvent) -> "CalendarState":
        for other in self.events:
            apart = other.end <= event.start or event.end <= other.start
            if other.date == event.date and other.id != event.id and not apart:
                raise OperationRefused(
                    f"{other.title} is at that time, {format_time(other.start)} to {format_time(other.end)}"
                )
        others = tuple(one for one in self.events if one.id != event.id)
        return CalendarState(events=(*others, event), made=self.made + (len(others) == len(self.events)))


def _make_email(person: str) -> str:
    return person.lower().translate(_PLAIN).replace(" ", ".") + "@example.com"


# The service and its tools.


def _canonicalise(state: CalendarState) -> JsonValue:
    events = sorted(state.events, key=lambda one: (one.date, one.start))
    return [[one.date, one.start, one.minutes, one.title, *sorted(one.guests)] for one in events]


_MIDNIGHT: Final = 24 * 60


def _find_person(state: CalendarState, arguments: Arguments) -> tuple[CalendarState, JsonValue]:
    name = str(arguments["name"]).casefold().strip()
    people: list[JsonValue] = [
        {"name": person, "email": _make_email(person)} for person in _PEOPLE if name and name in person.casefold()
    ]
    return state, {"people": people}


def _list_events(state: CalendarState, arguments: Arguments) -> tuple[CalendarState, JsonValue]:
    events = sorted((one for one in state.events if one.date == arguments["date"]), key=lambda one: one.start)
    return state, {"events": [one.to_observation() for one in events]}


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
    if event.end > _MIDNIGHT:
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
    others = tuple(one for one in state.events if one.id != event.id)
    return state.model_copy(update={"events": others}), {"cancelled": event.id}


def _check_guests(emails: Sequence[str]) -> tuple[str, ...]:
    addresses = {_make_email(person) for person in _PEOPLE}
    for email in emails:
        if email not in addresses:
            raise OperationRefused(f"nobody has the address {email[:60]!a}")
    return tuple(dict.fromkeys(emails))


# Scenarios.

_TITLES: Final = TEXTS.pools["titles"]
_DATES: Final = tuple(f"2026-{month:02d}-{day:02d}" for month in range(1, 13) for day in (2, 5, 9, 12, 17, 23, 26))
_OPENS: Final = 8 * 60
"""Days begin at this minute after midnight, or some slots later."""
_SLOT: Final = 15


def _draw_busy_day(draws: SeededRandom, date: str, titles: list[str], count: int) -> list[CalendarEvent]:
    """Events of one day in order, at least an hour apart."""
    events = []
    start = _OPENS + _SLOT * draws.below(4)
    for number in range(count):
        minutes = draws.one((30, 45, 60))
        guests = tuple(map(_make_email, draws.some(_PEOPLE, draws.below(3))))
        events.append(
            CalendarEvent(
                id=f"evt_{number + 1}", title=titles.pop(), date=date, start=start, minutes=minutes, guests=guests
            )
        )
        start += minutes + draws.one((60, 75, 90))
    return events


def _build_state(events: list[CalendarEvent]) -> CalendarState:
    return CalendarState(events=tuple(events), made=len(events))


def _draw_make_and_move(draws: SeededRandom, say: SayWish) -> DrawnScenario[CalendarState]:
    """Make an event with a guest whose address has to be looked up; then move it."""
    titles, date, person = draws.shuffled(_TITLES), draws.one(_DATES), draws.one(_PEOPLE)
    events = _draw_busy_day(draws, date, titles, 2 + draws.below(2))
    title, minutes, day = titles.pop(), draws.one((30, 45)), write_day(date)
    start = events[-1].end + _SLOT * draws.below(3)
    first, then = format_time(start), format_time(start + draws.one((60, 75, 120)))
    return _build_state(events), (
        UserWish(
            says=say("first", title=title, day=day, first=first, minutes=minutes, person=person),
            calls=(
                build_call("find_person", name=person),
                build_call(
                    "create_event",
                    title=title,
                    date=date,
                    start=first,
                    minutes=minutes,
                    guests=[_make_email(person)],
                ),
            ),
            reply=f"Done: {title} is on {date} at {first}, and {person} is invited.",
        ),
        UserWish(
            says=say("then", then=then),
            calls=(build_call("move_event", event_id=f"evt_{len(events) + 1}", start=then),),
            reply=f"It is at {then} now.",
        ),
    )


def _draw_clear_day(draws: SeededRandom, say: SayWish) -> DrawnScenario[CalendarState]:
    """Cancel all events of a day but one; events of another day stay."""
    titles, (date, other) = draws.shuffled(_TITLES), draws.some(_DATES, 2)
    events = _draw_busy_day(draws, date, titles, 3 + draws.below(2))
    stay = [
        one.model_copy(update={"id": f"evt_{len(events) + number}"})
        for number, one in enumerate(_draw_busy_day(draws, other, titles, 2), 1)
    ]
    staying, day = draws.one(events), write_day(date)
    gone = [build_call("cancel_event", event_id=one.id) for one in events if one != staying]
    return _build_state([*events, *stay]), (
        UserWish(
            says=say("first", day=day, staying=staying.title),
            calls=(build_call("list_events", date=date), *gone),
            reply=f"Cancelled. {staying.title} starts at {format_time(staying.start)}.",
            answers=(format_time(staying.start),),
            beside=(format_time(staying.end),),
        ),
    )


def _draw_fit_in(draws: SeededRandom, say: SayWish) -> DrawnScenario[CalendarState]:
    """Make an event right after another one, whose end has to be looked up; then shorten it."""
    titles, date = draws.shuffled(_TITLES), draws.one(_DATES)
    events = _draw_busy_day(draws, date, titles, 3)
    before, title, day = draws.one(events), titles.pop(), write_day(date)
    start = format_time(before.end)
    return _build_state(events), (
        UserWish(
            says=say("first", title=title, day=day, before=before.title),
            calls=(
                build_call("list_events", date=date),
                build_call("create_event", title=title, date=date, start=start, minutes=45),
            ),
            reply=f"{title} starts at {start}.",
            answers=(start,),
            beside=(format_time(before.start), format_time(before.end + 45)),
        ),
        UserWish(
            says=say("then"),
            calls=(build_call("move_event", event_id="evt_4", start=start, minutes=30),),  # after the three of the day
            reply="It takes 30 minutes now.",
        ),
    )


def _draw_invite(draws: SeededRandom, say: SayWish) -> DrawnScenario[CalendarState]:
    """Add a guest to an event that is named by day and title; then cancel another event."""
    titles, date = draws.shuffled(_TITLES), draws.one(_DATES)
    events = _draw_busy_day(draws, date, titles, 3)
    (event, gone), day = draws.some(events, 2), write_day(date)
    person = draws.one([one for one in _PEOPLE if _make_email(one) not in event.guests])
    return _build_state(events), (
        UserWish(
            says=say("first", person=person, event=event.title, day=day),
            calls=(
                build_call("list_events", date=date),
                build_call("find_person", name=person),
                build_call("invite", event_id=event.id, email=_make_email(person)),
            ),
            reply=f"{person} is invited.",
        ),
        UserWish(
            says=say("then", gone=gone.title),
            calls=(build_call("cancel_event", event_id=gone.id),),
            reply=f"{gone.title} is cancelled.",
        ),
    )


def _draw_first_free(draws: SeededRandom, say: SayWish) -> DrawnScenario[CalendarState]:
    """Find the earliest free time and book it; then invite a guest."""
    titles, date, person = draws.shuffled(_TITLES), draws.one(_DATES), draws.one(_PEOPLE)
    events = _draw_busy_day(draws, date, titles, 4)
    title, day = titles.pop(), write_day(date)
    minutes, since = draws.one((75, 90)), draws.one(events[:2]).start
    free = min(end for end in (one.end for one in events) if end > since and _is_free(events, end, minutes))
    start = format_time(free)
    return _build_state(events), (
        UserWish(
            says=say("first", minutes=minutes, day=day, since=format_time(since), title=title),
            calls=(
                build_call("list_events", date=date),
                build_call("create_event", title=title, date=date, start=start, minutes=minutes),
            ),
            reply=f"{title} is at {start}.",
            answers=(start,),
            beside=(format_time(free + minutes),),
        ),
        UserWish(
            says=say("then", person=person),
            calls=(
                build_call("find_person", name=person),
                build_call("invite", event_id="evt_5", email=_make_email(person)),
            ),
            reply=f"{person} is invited.",
        ),
    )


def _is_free(events: list[CalendarEvent], start: int, minutes: int) -> bool:
    return all(one.end <= start or start + minutes <= one.start for one in events)


def _draw_fallen_ill(draws: SeededRandom, say: SayWish) -> DrawnScenario[CalendarState]:
    """Cancel all events with a certain guest, which have to be looked up; then delay another event."""
    titles, date, person = draws.shuffled(_TITLES), draws.one(_DATES), draws.one(_PEOPLE)
    email, day = _make_email(person), write_day(date)
    drawn = _draw_busy_day(draws, date, titles, 4)
    ill = draws.some(range(4), 2)
    events = [
        one.model_copy(
            update={"guests": (*(guest for guest in one.guests if guest != email), *((email,) * (index in ill)))}
        )
        for index, one in enumerate(drawn)
    ]
    gone = [events[index] for index in sorted(ill)]
    late = draws.one([one for one in events if one not in gone])
    start = format_time(late.start + 30)
    return _build_state(events), (
        UserWish(
            says=say("first", person=person, day=day),
            calls=(
                build_call("find_person", name=person),
                build_call("list_events", date=date),
                *(build_call("cancel_event", event_id=one.id) for one in gone),
            ),
            reply=f"Cancelled: {' and '.join(one.title for one in gone)}.",
            answers=tuple(one.title for one in gone),
        ),
        UserWish(
            says=say("then", late=late.title),
            calls=(build_call("move_event", event_id=late.id, start=start),),
            reply=f"It starts at {start} now.",
            answers=(start,),
            beside=(format_time(late.start), format_time(late.end), format_time(late.end + 30)),
        ),
    )


CALENDAR: Final = SimulatedService[CalendarState](
    name="calendar",
    texts=TEXTS,
    does={
        "find_person": _find_person,
        "list_events": _list_events,
        "create_event": _create_event,
        "move_event": _move_event,
        "invite": _invite_guest,
        "cancel_event": _cancel_event,
    },
    canonicalise=_canonicalise,
    kinds={
        "make and move": _draw_make_and_move,
        "clear a day": _draw_clear_day,
        "fit in": _draw_fit_in,
        "invite": _draw_invite,
        "first free": _draw_first_free,
        "fallen ill": _draw_fallen_ill,
    },
)
