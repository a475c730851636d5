"""Import reports: mapped fields, kept fields and assumptions."""

from collections import Counter

from app.domain.values import Frozen


class Mapped(Frozen):
    """A field that was converted. `times` counts lorebook entries, which are reported together: `entries[].keys`."""

    field: str
    to: str
    times: int = 1


class Kept(Frozen):
    """A field that is kept for export but not used, or used differently; `why` explains it."""

    field: str
    why: str
    times: int = 1


class ImportReport(Frozen):
    source: str
    """Format of the file: `character card V2`, `lorebook V3` …"""
    mapped: tuple[Mapped, ...] = ()
    kept: tuple[Kept, ...] = ()
    assumed: tuple[str, ...] = ()
    """Values that the file lacks and the import chose."""


class Notes:
    """Collects a report while a file is read."""

    def __init__(self) -> None:
        self._mapped: Counter[tuple[str, str]] = Counter()
        self._kept: Counter[tuple[str, str]] = Counter()
        self._assumed: list[str] = []

    def mapped(self, field: str, to: str) -> None:
        self._mapped[field, to] += 1

    def kept(self, field: str, why: str) -> None:
        self._kept[field, why] += 1

    def assumed(self, what: str) -> None:
        self._assumed.append(what)

    def report(self, source: str) -> ImportReport:
        return ImportReport(
            source=source,
            mapped=tuple(Mapped(field=field, to=to, times=times) for (field, to), times in self._mapped.items()),
            kept=tuple(Kept(field=field, why=why, times=times) for (field, why), times in self._kept.items()),
            assumed=tuple(dict.fromkeys(self._assumed)),
        )
