"""The state of a calendar: events that never overlap."""

from typing import Final

from pydantic import JsonValue

from app.domain.values import Frozen
from app.envs.tool_agent.services.figures import clock
from app.envs.tool_agent.services.service import Refused

PEOPLE: Final = (
    *("Dana Whitlock", "Amir Haddad", "Joana Prates", "Tomasz Zieliński", "Keiko Arai", "Wanjiru Kamau"),
    *("Leif Sundby", "Marisol Vega", "Priya Raman", "Oskar Brandt", "Chloé Marchand", "Bao Nguyen"),
)
_PLAIN: Final = str.maketrans("ńéłó", "nelo")


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
    """Number of events ever made, for the next identifier."""

    def event(self, identity: str) -> Event:
        for one in self.events:
            if one.id == identity:
                return one
        raise Refused(f"there is no event {identity[:40]!a}")

    def with_event(self, event: Event) -> "Diary":
        for other in self.events:
            apart = other.end <= event.start or event.end <= other.start
            if other.date == event.date and other.id != event.id and not apart:
                raise Refused(f"{other.title} is at that time, {clock(other.start)} to {clock(other.end)}")
        kept = tuple(one for one in self.events if one.id != event.id)
        return Diary(events=(*kept, event), made=self.made + (len(kept) == len(self.events)))


def email_of(person: str) -> str:
    return person.lower().translate(_PLAIN).replace(" ", ".") + "@example.com"
