"""The state of a calendar: events that never overlap."""

from typing import Final

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.services.simulated_service import OperationRefused
from app.envs.tool_agent.services.value_formats import format_time

PEOPLE: Final = (
    *("Dana Whitlock", "Amir Haddad", "Joana Prates", "Tomasz Zieliński", "Keiko Arai", "Wanjiru Kamau"),
    *("Leif Sundby", "Marisol Vega", "Priya Raman", "Oskar Brandt", "Chloé Marchand", "Bao Nguyen"),
)
_PLAIN: Final = str.maketrans("ńéłó", "nelo")


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
        for one in self.events:
            if one.id == identity:
                return one
        raise OperationRefused(f"there is no event {identity[:40]!a}")

    def with_event(self, event: CalendarEvent) -> "CalendarState":
        for other in self.events:
            apart = other.end <= event.start or event.end <= other.start
            if other.date == event.date and other.id != event.id and not apart:
                raise OperationRefused(
                    f"{other.title} is at that time, {format_time(other.start)} to {format_time(other.end)}"
                )
        kept = tuple(one for one in self.events if one.id != event.id)
        return CalendarState(events=(*kept, event), made=self.made + (len(kept) == len(self.events)))


def make_email(person: str) -> str:
    return person.lower().translate(_PLAIN).replace(" ", ".") + "@example.com"
