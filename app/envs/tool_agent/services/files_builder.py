"""Initial file trees of scenarios."""

from collections.abc import Mapping, Sequence
from typing import Final

from app.envs.tool_agent.services.files_state import FilesState, StoredFile

PEOPLE: Final = (
    *("amara", "bjorn", "cecile", "dmitri", "elena", "farid", "greta", "hugo", "ines", "jonas", "kofi", "lucia"),
    *("mateo", "noor", "orla", "pavel", "rosa", "soren", "tamsin", "viktor"),
)
PROJECTS: Final = (
    *("heron", "lantern", "quarry", "juniper", "mosaic", "tundra", "falcon", "cobalt", "meadow", "saffron"),
    *("granite", "willow", "ember", "glacier", "compass", "orchid"),
)
TOPICS: Final = ("budget", "charter", "handbook", "roadmap", "survey", "tender", "timetable", "manual")
SHOPS: Final = (
    *("Alder Bakery", "Brook Pharmacy", "Corner Books", "Dockside Cafe", "Elm Hardware", "Fenwick Florist"),
    *("Gables Garage", "Hilltop Grocer", "Ivy Stationers", "Kiln Pottery"),
)
NOTICES: Final = (
    ("2026-01-07", "The lift is out of order until the end of the week; please take the stairs at the back."),
    ("2026-01-19", "Lost in the canteen: one grey scarf and one umbrella with a wooden handle."),
    ("2026-02-02", "The windows on the north side are cleaned on Thursday, starting on the top floor."),
    ("2026-02-20", "Bicycles that have had flat tyres since last summer will be given away next month."),
    ("2026-03-03", "The fire doors must not be held open, not even for a moment and not even with a chair."),
    ("2026-03-17", "The choir needs two more basses; rehearsals are on Tuesdays after work in the hall."),
    ("2026-04-08", "Parcels for colleagues on holiday can be left with the porter until eight in the evening."),
    ("2026-04-27", "The coffee machine on the second floor takes its own cups again, and only those."),
    ("2026-05-11", "Whoever took the long ladder from the cellar: please bring it back before Friday."),
    ("2026-05-29", "The garden behind the house is open at noon; the bees in the white boxes are harmless."),
    ("2026-06-15", "Heating is off until autumn. Fans can be borrowed from the porter against a signature."),
    ("2026-06-30", "The archive moves to the cellar; boxes without a label will not be carried down."),
)
SYSTEM: Final = ("/system",)


def build_state(texts: Mapping[str, Sequence[str]]) -> FilesState:
    """A tree of these files (lines by path) and those that every tree has."""
    everywhere = {
        "/system/version.txt": ("4.2",),
        "/system/board/welcome.txt": ("Welcome to the shared disk.",),
        "/public/about.txt": ("Everybody can read what is in here.",),
        **{f"/public/notices/{day}.txt": (text, "Signed by the caretakers of the building.") for day, text in NOTICES},
    }
    files = [
        StoredFile(path=path, text="".join(f"{line}\n" for line in lines))
        for path, lines in {**everywhere, **texts}.items()
    ]
    return FilesState(files=tuple(sorted(files, key=lambda one: one.path)), frozen=SYSTEM)
