"""House rules that a machine can check, each with the code that broke it in the message."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks.fault_table import FAULTS
from tests.rooms import list_files

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("app", "benchmarks", "docs", "examples", "migrations", "tests")
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "base", "manager", "misc"}

ELSEWHERE = re.compile(r"py[p]i\.org|pythonhoste[d]|npm[j]s|(?<![\w.])/(?:[w]ork|tmp/[w]|[r]oot|[h]ome)/")
"""Registries, and places that exist on one machine only."""
WRITTEN = (".cfg", ".css", ".html", ".j2", ".js", ".json", ".lock", ".mako", ".md", ".py", ".svg", ".toml", ".yaml")

IMPORTS = (ast.Import, ast.ImportFrom)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def sources() -> list[str]:
    """Every Python file of ours, as a path from the root."""
    return sorted(path.relative_to(ROOT).as_posix() for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


def app_sources() -> list[str]:
    return [path for path in sources() if path.startswith("app/")]


@pytest.fixture(scope="module", autouse=True)
def _forget_sources() -> Iterator[None]:
    """Every later search for garbage would look through millions of nodes."""
    yield
    tree.cache_clear()
    nodes.cache_clear()


@cache
def tree(path: str) -> ast.Module:
    return ast.parse((ROOT / path).read_text(encoding="utf-8"), path)


@cache
def nodes(module: ast.Module) -> tuple[ast.AST, ...]:
    """Every rule looks at all of them."""
    return tuple(ast.walk(module))


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""]


def imports_of_ours_in_functions(module: ast.Module) -> Iterator[int]:
    functions = (one for one in nodes(module) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef))
    imports = (one for function in functions for one in ast.walk(function) if isinstance(one, IMPORTS))
    return (one.lineno for one in imports if any(name.split(".")[0] == "app" for name in imported(one)))


def relative_imports(module: ast.Module) -> Iterator[int]:
    return (node.lineno for node in nodes(module) if isinstance(node, ast.ImportFrom) and node.level > 0)


def type_checking_blocks(module: ast.Module) -> Iterator[int]:
    names = (node for node in nodes(module) if isinstance(node, ast.Name | ast.Attribute))
    return (node.lineno for node in names if getattr(node, "id", getattr(node, "attr", "")) == "TYPE_CHECKING")


def mocks(module: ast.Module) -> Iterator[int]:
    for node in (one for one in nodes(module) if isinstance(one, IMPORTS)):
        names = imported(node) + [alias.name for alias in node.names]
        if any(name.split(".")[0] == "mock" or name.startswith("unittest") for name in names):
            yield node.lineno


def prints(module: ast.Module) -> Iterator[int]:
    return (
        node.lineno
        for node in nodes(module)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"print", "pprint"}
    )


def readings_of_the_environment(module: ast.Module) -> Iterator[int]:
    for node in nodes(module):
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "environb", "getenv"}:
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for alias in node.names if alias.name in {"environ", "environb", "getenv"})


RULES = {
    "nothing of ours is imported inside a function": (imports_of_ours_in_functions, sources),
    "imports are absolute": (relative_imports, sources),
    "nothing hides behind TYPE_CHECKING": (type_checking_blocks, sources),
    "nothing is mocked": (mocks, sources),
    "only the command line prints": (
        prints,
        lambda: [p for p in app_sources() if not p.startswith(("app/cli/", "app/terminal/"))],
    ),
    "only the settings read the environment": (
        readings_of_the_environment,
        lambda: [path for path in app_sources() if not path.startswith("app/settings/")],
    ),
}

BROKEN = {
    "nothing of ours is imported inside a function": "def late() -> None:\n    from app.domain import runs\n",
    "imports are absolute": "from . import runs\n",
    "nothing hides behind TYPE_CHECKING": "import typing\nif typing.TYPE_CHECKING:\n    import app\n",
    "nothing is mocked": "from unittest import mock\n",
    "only the command line prints": "print('hello')\n",
    "only the settings read the environment": "import os\nhome = os.environ['HOME']\n",
}


@pytest.mark.parametrize("rule", RULES)
def test_rule(rule: str) -> None:
    find, where = RULES[rule]
    assert [f"{path}:{line}" for path in where() for line in find(tree(path))] == []


@pytest.mark.parametrize("rule", RULES)
def test_the_rule_notices(rule: str) -> None:
    find, _ = RULES[rule]
    assert list(find(ast.parse(BROKEN[rule]))) != []


def test_names_say_what_is_in_a_module() -> None:
    parts = {path: {*path.removesuffix(".py").split("/")} for path in sources()}
    assert [path for path, names in parts.items() if names & FORBIDDEN_NAMES] == []


_IRREGULAR = """
    told said made written kept given taken found sent held left met seen shown drawn heard spoken known begun built
    chosen done fallen gone grown laid led lost meant paid sold spent stood struck taught thought understood won worn
"""
PARTICIPLES = frozenset(_IRREGULAR.split())
NAMES_KEPT = frozenset({"seed", "need", "feed", "succeed", "gated", "unscored", "shuffled"})
"""Verbs that end like a participle, the states of a score, and `shuffled`, which returns a list as `sorted` does."""


def named_by_a_participle(module: ast.Module) -> Iterator[int]:
    """Functions that are named by what was done instead of by what they do. Properties are data."""
    for node in nodes(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            decorators = {getattr(one, "id", getattr(one, "attr", "")) for one in node.decorator_list}
            name = node.name.strip("_")
            participle = name in PARTICIPLES or (name.endswith("ed") and "_" not in name)
            if participle and name not in NAMES_KEPT and not decorators & {"property", "cached_property"}:
                yield node.lineno


def test_functions_are_named_by_what_they_do() -> None:
    kept = {f"{path}:{line}" for path in app_sources() for line in named_by_a_participle(tree(path))}
    assert sorted(kept) == []


def test_the_rule_about_names_notices() -> None:
    assert [*named_by_a_participle(ast.parse("def _told(): ...\ndef parse_reply(): ...\ndef read(): ..."))] == [1]


def test_every_module_of_the_service_says_in_a_line_what_is_in_it() -> None:
    said = {path: (ast.get_docstring(tree(path)) or "").split("\n")[0] for path in app_sources()}
    assert [path for path, line in said.items() if not line.endswith((".", ":", "?"))] == []


def test_the_tests_of_a_room_are_its_own_and_those_that_import_it() -> None:
    listed = {*list_files("features/labels")}
    assert {"tests/features/labels/test_store.py", "tests/cli/test_labels.py"} <= listed
    assert not listed & {"tests/judges/test_gates.py", "tests/store/test_keys.py"}
    with pytest.raises(ValueError, match="there is no room app/nowhere"):
        list_files("nowhere")


def test_every_seeded_fault_applies_to_this_code() -> None:
    counts = {fault.name: (ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) for fault in FAULTS}
    assert (len(counts), {name: count for name, count in counts.items() if count != 1}) == (60, {})


def test_every_runtime_dependency_says_why() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.DOTALL | re.MULTILINE)
    assert listed is not None
    lines = listed[1].splitlines()
    assert len(lines) == len(PROJECT["project"]["dependencies"])
    assert [line for line in lines if not re.search(r'",\s+# \S', line)] == []


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
    newest = re.search(r"^## (\S+)", text, re.MULTILINE)
    assert newest is not None
    assert newest[1] == PROJECT["project"]["version"]


def written_files() -> list[str]:
    """Everything of ours that is text."""
    folders = [ROOT / folder for folder in (*FOLDERS, "character_sheets", "deploy")]
    paths = [*ROOT.glob("*"), *(ROOT / ".ci").glob("*"), *(path for folder in folders for path in folder.rglob("*"))]
    named = [path for path in paths if path.is_file() and (path.suffix in WRITTEN or path.parent.name in {".ci"})]
    return sorted(path.relative_to(ROOT).as_posix() for path in [*named, ROOT / "Makefile", ROOT / "Dockerfile"])


def test_nothing_names_a_registry_or_one_machine() -> None:
    found = {path: ELSEWHERE.findall((ROOT / path).read_text(encoding="utf-8")) for path in written_files()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.xdist_group("kept together")
def test_the_tests_of_a_group_run_in_one_worker(request: pytest.FixtureRequest) -> None:
    """Otherwise each worker starts the same gateways and makes the same tasks, and nothing fails. What xdist goes by is
    the end of a test's name; not every version of pytest lets it write that."""
    grouping = getattr(request.config.option, "loadgroup", False)  # as xdist sets it in its workers
    assert request.node.nodeid.endswith("@kept together") or not grouping
