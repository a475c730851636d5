"""Requests: what a reply has to be about, assembled from parts."""

from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from app.domain.values import Frozen
from app.toolkit.package_data import read_packaged_data
from app.toolkit.seeded import SeededRandom

LEAST_WORDS: Final = (30, 40, 50, 60)


class _RequestParts(Frozen):
    forms: tuple[str, ...]
    readers: tuple[str, ...]
    things: tuple[str, ...]
    places: tuple[str, ...]


PARTS: Final = read_packaged_data(Path(__file__).with_name("requests.yaml"), TypeAdapter(_RequestParts))


class WritingRequest(Frozen):
    form: str
    thing: str
    place: str
    """Both nouns must occur in the reply."""
    reader: str
    least: int
    """Words of one's own that the reply must have."""

    @property
    def sentence(self) -> str:
        """A sentence."""
        return f"{self.form} {add_article(self.thing)} in {add_article(self.place)}{self.reader}."


def draw_request(draws: SeededRandom) -> WritingRequest:
    return WritingRequest(
        form=draws.one(PARTS.forms),
        thing=draws.one(PARTS.things),
        place=draws.one(PARTS.places),
        reader=draws.one(PARTS.readers),
        least=draws.one(LEAST_WORDS),
    )


def add_article(noun: str) -> str:
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"
