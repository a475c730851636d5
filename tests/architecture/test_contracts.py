"""The import contracts hold, and each of them bites."""

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"

BREACHES = {
    "Imports point down": [
        ("app/rewards.py", "import app.ports"),
        ("app/rag/worlds.py", "import app.telemetry.silent"),
        ("app/api/health.py", "import app.viewer.pages"),
        ("app/new_place.py", ""),
    ],
    "Environments do not know one another": [("app/envs/gsm8k.py", "import app.envs.npc_arena")],
    "No cycles": [("app/web/limits.py", "import app.web.door")],
    "The core knows no web, no database, no client": [("app/service/order.py", "import httpx")],
    "Algebra is done in workers": [("app/math_answers/elsewhere.py", "import sympy")],
    "SQL lives in the store": [("app/viewer/pages.py", "import sqlalchemy")],
    "Environments know no web and no client": [("app/envs/gsm8k.py", "import httpx")],
}
"""By contract: a file and a line in it that this contract forbids, and no other one does."""


CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
}
LAYERS = [layer.split(" | ") for layer in CONTRACTS["Imports point down"]["layers"]]


def linted(folder: Path) -> tuple[int, dict[str, str]]:
    """The exit status, and KEPT or BROKEN by contract."""
    command = [sys.executable, "-c", LINT, "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    verdicts = [line.rsplit(" ", 1) for line in done.stdout.splitlines() if line.endswith((" KEPT", " BROKEN"))]
    assert verdicts, done.stdout + done.stderr
    return done.returncode, {name: verdict for name, verdict in verdicts}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contracts")
    shutil.copytree(ROOT / "app", folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_every_contract_is_kept() -> None:
    assert linted(ROOT) == (0, dict.fromkeys(CONTRACTS, "KEPT"))


def test_every_contract_has_a_breach_here() -> None:
    assert list(BREACHES) == list(CONTRACTS)


@pytest.mark.parametrize(
    ("contract", "file", "line"),
    [
        pytest.param(name, file, line, id=f"{name}: {line or file}")
        for name, some in BREACHES.items()
        for file, line in some
    ],
)
def test_a_contract_bites(copy: Path, contract: str, file: str, line: str) -> None:
    path = copy / file
    original = path.read_text(encoding="utf-8") if path.exists() else None
    path.write_text(f"{original or ''}\n{line}\n", encoding="utf-8")
    try:
        assert linted(copy) == (1, {name: "BROKEN" if name == contract else "KEPT" for name in CONTRACTS})
    finally:
        path.unlink() if original is None else path.write_text(original, encoding="utf-8")


def modules_below(layer: str) -> set[str]:
    """That layer's and all lower ones' modules."""
    first = next(place for place, modules in enumerate(LAYERS) if layer in modules)
    return {f"app.{module}" for modules in LAYERS[first:] for module in modules}


def test_the_core_is_all_that_lies_below_the_adapters() -> None:
    listed = set(CONTRACTS["The core knows no web, no database, no client"]["source_modules"])
    assert listed == modules_below("service") - {"app.packaged"}


def test_sql_is_kept_out_of_everything_above_the_core_but_the_store_and_its_opener() -> None:
    listed = set(CONTRACTS["SQL lives in the store"]["source_modules"])
    assert listed == modules_below("cli") - modules_below("service") - {"app.store", "app.main", "app.settings"}
