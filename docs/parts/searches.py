"""The ways in which groups are found."""

from app.store.search import WAYS
from docs.markdown import table


def search_ways() -> str:
    return table(("way", "taken because"), [(way.name, way.because) for way in WAYS])
