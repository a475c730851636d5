"""An environment in a package of its own, as `envs new --package` begins it: built, installed, checked, served."""

import json
import os
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import httpx
import pytest

from app.toolkit.conformance.checks import CHECKS
from tests.support.serving import ROOT, serving

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("outside")]


def run(command: list[str], folder: Path) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ATROPOS_ENVS_")}
    done = subprocess.run(
        command, cwd=folder, env={**clean, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As it was written."""
    folder = tmp_path_factory.mktemp("begun")
    run([sys.executable, "-m", "app.cli", "envs", "new", "tide_tables", "--package"], folder)
    (written,) = folder.iterdir()
    return written


@pytest.fixture(scope="module")
def python(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a virtual environment that the package is installed in; what it needs is borrowed from this one."""
    folder = tmp_path_factory.mktemp("installed")
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(package)], folder)
    run([sys.executable, "-m", "venv", str(folder / "venv")], folder)
    (wheel,) = folder.glob("*.whl")
    inside = folder / "venv" / "bin" / "python"
    pip = [str(inside), "-m", "pip", "--disable-pip-version-check", "install", "-q", "--no-deps", "--no-index"]
    run([*pip, str(wheel)], folder)
    packages = folder / "venv" / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
    (packages / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"], encoding="utf-8")
    return inside


def test_it_is_listed_with_the_package_that_brings_it(python: Path, tmp_path: Path) -> None:
    listed = json.loads(run([str(python), "-m", "app.cli", "envs", "list", "--json"], tmp_path))
    (line,) = [line for line in listed if line["name"] == "tide_tables"]
    assert (line["source"], line["scored_by"], line["available"]) == ("atropos-envs-tide-tables", "verifier", True)


def test_its_own_tests_pass(python: Path, package: Path) -> None:
    assert f"{len(CHECKS)} passed" in run([str(python), "-m", "pytest", "-p", "no:cacheprovider"], package)


def test_it_is_served(python: Path, tmp_path: Path) -> None:
    with serving(tmp_path, python=python, migrated=False) as gateway:
        (task,) = httpx.post(f"{gateway.url}/envs/tide_tables/next-batch", json={"batch_size": 1}).json()["tasks"]
        listed = re.sub(r"^\d+\. |\(no. \d+\)|Exercise \d+", "", task["messages"][0]["content"]).replace("12345", "")
        total = sum(map(int, re.findall(r"\d+", listed)))
        completions = [{"text": f"<answer>{number}</answer>"} for number in (total, total + 1)]
        body = {"groups": [{"task_id": task["task_id"], "completions": completions}]}
        scored = httpx.post(f"{gateway.url}/envs/tide_tables/score", json=body).json()
    assert scored["groups"][0]["rewards"] == [1.0, 0.0]
