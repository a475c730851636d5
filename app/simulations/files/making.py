"""Trees to start from."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.simulations.files.state import File, Tree

PEOPLE: Final = (
    *("amara", "bjorn", "cecile", "dmitri", "elena", "farid", "greta", "hugo", "ines", "jonas", "kofi", "lucia"),
    *("mateo", "noor", "orla", "pavel", "rosa", "soren", "tamsin", "viktor"),
)
PROJECTS: Final = (
    *("heron", "lantern", "quarry", "juniper", "mosaic", "tundra", "falcon", "cobalt", "meadow", "saffron"),
    *("granite", "willow", "ember", "glacier", "compass", "orchid"),
)
TOPICS: Final = ("budget", "charter", "handbook", "roadmap", "survey", "tender", "timetable", "manual")
APPROVING: Final = ("Halvorsen", "Mbeki", "Quispe", "Tanizaki", "Verhoeven", "Zamora", "Oyelaran", "Kessler")
SHOPS: Final = (
    *("Alder Bakery", "Brook Pharmacy", "Corner Books", "Dockside Cafe", "Elm Hardware", "Fenwick Florist"),
    *("Gables Garage", "Hilltop Grocer", "Ivy Stationers", "Kiln Pottery"),
)
SYSTEM: Final = ("/system",)


def tree_of(texts: Mapping[str, Sequence[str]]) -> Tree:
    """Of the lines by path, with what is on every disk."""
    everywhere = {
        "/system/version.txt": ("4.2",),
        "/system/board/welcome.txt": ("Welcome to the shared disk.",),
        "/public/about.txt": ("Everybody can read what is in here.",),
    }
    files = [
        File(path=path, text="".join(f"{line}\n" for line in lines)) for path, lines in {**everywhere, **texts}.items()
    ]
    return Tree(files=tuple(sorted(files, key=lambda one: one.path)), frozen=SYSTEM)
