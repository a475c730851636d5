"""House rules that a machine can check and no linter knows, each with the code that broke it in the message."""

import re
import tomllib
from pathlib import Path

import pytest

from tests.rooms import ELSEWHERE, list_files

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("app", "benchmarks", "deploy", "docs", "examples", "migrations", "tests")
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}
WRITTEN = (".cfg", ".css", ".html", ".j2", ".js", ".json", ".lock", ".mako", ".md", ".py", ".svg", ".toml", ".yaml")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

RULES = {
    "nothing of ours is imported inside a function": (r"^[ \t]+(?:from|import) a[p]p\b", FOLDERS, "no place"),
    "only the settings read the environment": (
        r"\bos\.(?:environb?|getenv)\b|from os import .*(?:environ|getenv)",
        ("app",),
        "app/settings/",
    ),
    "nothing names a registry, or a place on one machine": (
        r"py[p]i\.org|pythonhoste[d]|npm[j]s|(?<![\w.])/(?:[w]ork|tmp/[w]|[r]oot|[h]ome)/",
        (*FOLDERS, "character_sheets", ".ci", ""),
        "no place",
    ),
}
"""By rule: what breaks it, the folders in which it holds, and what they except."""


def list_written(folder: str) -> list[str]:
    """Everything of ours there that is text, from the root."""
    paths = (ROOT / folder).rglob("*") if folder else ROOT.glob("*")
    named = [path for path in paths if path.suffix in WRITTEN or path.name in {"run", "Makefile", "Dockerfile"}]
    return sorted(path.relative_to(ROOT).as_posix() for path in named if path.is_file())


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str) -> None:
    pattern, folders, exception = RULES[rule]
    broken = re.compile(pattern, re.MULTILINE)
    texts = {
        path: (ROOT / path).read_text(encoding="utf-8")
        for folder in folders
        for path in list_written(folder)
        if not path.startswith(exception)
    }
    assert {path: found for path, text in texts.items() if (found := broken.findall(text))} == {}


@pytest.mark.parametrize(
    ("rule", "line"),
    [
        (0, "def late() -> None:\n    from app.domain import runs\n"),
        (1, "import os\nhome = os.environ['HOME']\n"),
        (1, "from os import getenv\n"),
        (2, f"see {chr(47)}home/ada/"),
    ],
)
def test_the_rule_notices(rule: int, line: str) -> None:
    assert re.search([*RULES.values()][rule][0], line, re.MULTILINE)


def test_names_say_what_is_in_a_module() -> None:
    parts = [path for folder in FOLDERS for path in list_written(folder) if path.endswith(".py")]
    assert [path for path in parts if {*path.removesuffix(".py").split("/")} & FORBIDDEN_NAMES] == []


def test_the_tests_of_a_room_are_its_own_and_those_that_import_it() -> None:
    listed = {*list_files("features/labels")}
    assert {"tests/features/labels/test_store.py", "tests/cli/test_labels.py"} <= listed
    assert not listed & {"tests/judges/test_gates.py", "tests/store/test_keys.py"}
    with pytest.raises(ValueError, match="there is no room app/nowhere"):
        list_files("nowhere")


def test_what_check_runs_the_other_tiers_leave_out() -> None:
    (checked,) = re.findall(r"^CHECKED := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    marked = "".join(
        path.read_text(encoding="utf-8") for folder in checked.split() for path in (ROOT / folder).rglob("*.py")
    )
    assert {*checked.split()} == {f"tests/{name}" for name in ELSEWHERE - {"trainers"}}
    assert re.findall(r"mark\.(?:s[l]ow|d[e]ep)|@g[i]ven", marked) == []  # of which a part would run nowhere


def test_every_runtime_dependency_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert listed is not None
    assert [line for line in listed[1].splitlines() if not re.search(r'",\s+# \S', line)] == []


LOCKS = ("requirements.lock", "requirements-dev.lock", "tests/trainers/requirements.lock", "tests/trainers/torch.lock")


@pytest.mark.parametrize("name", LOCKS)
def test_lock_files_hold_versions_and_hashes_and_no_addresses(name: str) -> None:
    form = re.compile(
        r"[a-z0-9][a-z0-9._-]*(\[[a-z0-9,-]+\])?==\S+( ; [^\\]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?"
    )
    lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if not form.fullmatch(line)] == []


def test_the_changelog_begins_with_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", text, re.MULTILINE)[0] == PROJECT["project"]["version"]


@pytest.mark.xdist_group("kept together")
def test_the_tests_of_a_group_run_in_one_worker(request: pytest.FixtureRequest) -> None:
    """Otherwise each worker starts the same gateways and makes the same tasks, and nothing fails. What xdist goes by is
    the end of a test's name; not every version of pytest lets it write that."""
    grouping = getattr(request.config.option, "loadgroup", False)  # as xdist sets it in its workers
    assert request.node.nodeid.endswith("@kept together") or not grouping
