"""What is published holds everything that the service needs, and runs where the checkout is not."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import httpx
import pytest

from app.main.components import discover
from tests.architecture.test_house import PROJECT, ROOT
from tests.support.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]

DATA = (".css", ".gz", ".html", ".j2", ".js", ".json", ".jsonl", ".mako", ".md", ".svg", ".txt", ".yaml")
SHIPPED = {"app": "app", "character_sheets": "app/_packaged/character_sheets", "migrations": "app/_packaged/migrations"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of a virtual environment with the wheel in it; dependencies are borrowed from this one."""
    folder = tmp_path_factory.mktemp("installed") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, timeout=120)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps"]
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, timeout=120)
    packages = folder / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"], encoding="utf-8")
    return folder / "bin"


def run(command: list[str], folder: Path) -> str:
    clean = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("ATROPOS_ENVS_")
    }
    done = subprocess.run(command, cwd=folder, env=clean, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def shipped_files() -> set[str]:
    """Where the wheel must have every source and data file of the checkout."""
    return {
        f"{target}/{path.relative_to(ROOT / folder).as_posix()}"
        for folder, target in SHIPPED.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (*DATA, ".py")
    }


def test_the_wheel_holds_what_the_checkout_holds_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == shipped_files()


def test_no_kind_of_data_is_forgotten_here() -> None:
    kinds = {path.suffix for folder in SHIPPED for path in (ROOT / folder).rglob("*") if path.is_file()}
    assert kinds <= {*DATA, ".py", ".pyc"}


def test_the_installed_command_knows_its_version(installed: Path, tmp_path: Path) -> None:
    assert run([str(installed / "atropos-envs"), "version"], tmp_path) == PROJECT["project"]["version"]


def test_the_installed_service_serves_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    with serving(tmp_path, python=installed / "python", settings={"PYTHONPATH": ""}, migrated=False) as gateway:
        listed = httpx.get(f"{gateway.url}/envs").json()["environments"]
        batch = httpx.get(f"{gateway.url}/envs/npc_arena/next-batch", params={"batch_size": 1}).json()
    assert sorted(one["name"] for one in listed) == sorted(discover())
    assert [task["environment"] for task in batch["tasks"]] == ["npc_arena"]
