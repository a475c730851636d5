"""Import reports: mapped fields, kept fields and assumptions."""

from collections import Counter

from app.domain.values import Frozen


class MappedField(Frozen):
    """A field that was converted. `times` counts lorebook entries, which are reported together: `entries[].keys`."""

    field: str
    to: str
    times: int = 1


class KeptField(Frozen):
    """A field that is kept for export but not used, or used differently; `why` explains it."""

    field: str
    why: str
    times: int = 1


class ImportReport(Frozen):
    source: str
    """Format of the file: `character card V2`, `lorebook V3` …"""
    mapped: tuple[MappedField, ...] = ()
    kept: tuple[KeptField, ...] = ()
    assumed: tuple[str, ...] = ()
    """Values that the file lacks and the import chose."""


class ImportNotes:
    """Collects a report while a file is read."""

    def __init__(self) -> None:
        self._mapped: Counter[tuple[str, str]] = Counter()
        self._kept: Counter[tuple[str, str]] = Counter()
        self._assumed: list[str] = []

    def add_mapped(self, field: str, to: str) -> None:
        self._mapped[field, to] += 1

    def add_kept(self, field: str, why: str) -> None:
        self._kept[field, why] += 1

    def add_assumed(self, what: str) -> None:
        self._assumed.append(what)

    def build_report(self, source: str) -> ImportReport:
        return ImportReport(
            source=source,
            mapped=tuple(MappedField(field=field, to=to, times=times) for (field, to), times in self._mapped.items()),
            kept=tuple(KeptField(field=field, why=why, times=times) for (field, why), times in self._kept.items()),
            assumed=tuple(dict.fromkeys(self._assumed)),
        )
