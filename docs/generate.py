"""`python -m docs.generate` writes what is generated in the documentation; with `--check` it says what is stale."""

import difflib
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from benchmarks.results import list_parts
from docs.markdown import filled, names_in
from docs.parts.architecture import rooms_picture, rooms_table
from docs.parts.commands import command_reference, command_table
from docs.parts.environment_checks import environment_checks, strategies
from docs.parts.environments import first_rung, gallery, overview
from docs.parts.exports import export_columns, export_request
from docs.parts.flags import defects, gates, reasons, service_flags
from docs.parts.http import openapi_json, route_table
from docs.parts.judge_check import check_figures, check_mutations
from docs.parts.methods import check_picture, methods_picture
from docs.parts.metrics import metrics_table
from docs.parts.offline_judge import offline_figures
from docs.parts.probed_environments import argued_refusals, paid_probes, probes, refused_spellings
from docs.parts.schema import schema_tables
from docs.parts.searches import search_ways
from docs.parts.settings import settings_example, settings_table, withdrawn_table
from docs.parts.sheets import characters, sheet_fields
from docs.parts.tool_calls import call_formats, tricks, value_rules

ROOT = Path(__file__).resolve().parents[1]

PARTS: Mapping[str, Callable[[], str]] = {
    "settings": settings_table,
    "settings-example": settings_example,
    "settings-withdrawn": withdrawn_table,
    "environments-overview": overview,
    "environments-first-rung": first_rung,
    "environments": gallery,
    "rooms": rooms_table,
    "command-table": command_table,
    "command-reference": command_reference,
    "schema-tables": schema_tables,
    "environment-checks": environment_checks,
    "strategies": strategies,
    "probes": probes,
    "paid-probes": paid_probes,
    "refused-spellings": refused_spellings,
    "argued-refusals": argued_refusals,
    "reasons": reasons,
    "gates": gates,
    "service-flags": service_flags,
    "defects": defects,
    "routes": route_table,
    "export-request": export_request,
    "export-columns": export_columns,
    "metrics": metrics_table,
    "search-ways": search_ways,
    "characters": characters,
    "sheet-fields": sheet_fields,
    "offline-judge": offline_figures,
    "judge-check-figures": check_figures,
    "judge-check-kinds": check_mutations,
    "call-formats": call_formats,
    "value-rules": value_rules,
    "call-tricks": tricks,
    **list_parts(),
}

FILES: Mapping[str, Callable[[], str]] = {
    "docs/openapi.json": openapi_json,
    "docs/pictures/rooms.svg": rooms_picture,
    "docs/pictures/methods.svg": methods_picture,
    "docs/pictures/offline_judge.svg": check_picture,
}
"""Generated as a whole."""


def pages(root: Path = ROOT) -> dict[str, str]:
    """Every page with its text, by its path from the root."""
    places = ("*.md", "docs/**/*.md", "examples/*.md", "benchmarks/*.md")
    paths = [path for place in places for path in sorted(root.glob(place))]
    return {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def wanted(current: Mapping[str, str]) -> dict[str, str]:
    """The pages as they should be, and the files that are generated as a whole."""
    named = {name for page in current.values() for name in names_in(page)}
    parts = {name: PARTS[name]() for name in sorted(named)}
    return {**{path: filled(page, parts) for path, page in current.items()}, **{p: make() for p, make in FILES.items()}}


def stale(root: Path = ROOT) -> dict[str, str]:
    """What would have to be written, by path."""
    should_be = wanted(pages(root))
    return {path: text for path, text in should_be.items() if _read(root / path) != text}


def main(arguments: Iterable[str], root: Path = ROOT) -> int:
    found = stale(root)
    if "--check" not in arguments:
        for path, text in found.items():
            (root / path).write_text(text, encoding="utf-8")
        return 0
    for path, text in found.items():
        lines = difflib.unified_diff(
            _read(root / path).splitlines(), text.splitlines(), path, "as generated", "", "", 1
        )
        sys.stdout.write("\n".join(line.rstrip("\n") for line in lines) + "\n")
    return 1 if found else 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.is_file() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
