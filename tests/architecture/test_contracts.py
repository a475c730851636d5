"""The import contracts hold, and each names every room and module that it is about."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"

CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
}
CORE = CONTRACTS["The core knows no web, no database, no client"]


def linted(folder: Path) -> tuple[int, dict[str, str]]:
    """The exit status, and KEPT or BROKEN by contract."""
    command = [sys.executable, "-c", LINT, "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    verdicts = [line.rsplit(" ", 1) for line in done.stdout.splitlines() if line.endswith((" KEPT", " BROKEN"))]
    assert verdicts, done.stdout + done.stderr
    return done.returncode, {name: verdict for name, verdict in verdicts}


def test_every_contract_is_kept() -> None:
    assert linted(ROOT) == (0, dict.fromkeys(CONTRACTS, "KEPT"))


ROOMS = [room for layer in CONTRACTS["Imports point down"]["layers"] for room in layer.split(" | ")]
OUTSIDE_THE_CORE = {
    "cli",
    "terminal",
    "main",
    "features",
    "http",
    "settings",
    "judges",
    "rag",
    "store",
    "datasets",
    "sandbox",
    "telemetry",
}


def test_every_room_is_in_the_core_or_outside_of_it() -> None:
    # Environments of others speak to their servers; those of ours, and whatever they import, do not.
    core = {name.removeprefix("app.").split(".")[0] for name in CORE["source_modules"]}
    # What asks the store cannot be kept from what that imports: its own contract is about its own lines.
    assert core == {*ROOMS} - OUTSIDE_THE_CORE - {"inference", "service"}


def test_sql_is_kept_out_of_everything_outside_the_core_but_the_store_and_the_settings() -> None:
    contract = CONTRACTS["SQL lives in the store, and in the stores of features"]
    listed = {name.removeprefix("app.") for name in contract["source_modules"]}
    rooms = {name for name in listed if not name.startswith("features.")}
    assert rooms == OUTSIDE_THE_CORE - {"store", "settings", "features"} | {"inference"}
    assert {name.rpartition(".")[2] for name in listed - rooms} == {name for name in MODULES if not is_store(name)}


MODULES = {path.stem for path in (ROOT / "app/features").rglob("*.py") if path.stem != "__init__"}


def is_store(module: str) -> bool:
    return module.startswith("store")


@pytest.mark.parametrize(
    ("contract", "apart"),
    [
        (
            "In features, the web lives in routes and pages",
            {"routes", "pages", "author_pages", "wire", "feature", "contract"},
        ),
        ("Commands live in the command line, and in the commands of features", {"commands"}),
    ],
)
def test_every_module_of_features_is_in_the_contract_or_apart_from_it(contract: str, apart: set[str]) -> None:
    names = [name for name in CONTRACTS[contract]["source_modules"] if name.startswith("app.features.")]
    assert {name.rpartition(".")[2] for name in names} == MODULES - apart
