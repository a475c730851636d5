"""A feature is one folder and one line, a kind of others' environments one file and the few places that name it. In a
copy of the tree without them everything else works, and nothing that the feature stored is touched."""

import ast
import gzip
import json
import shutil
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from app.main.application import load_features
from app.main.features import FEATURES
from app.store.table_records import TableRecord
from tests.architecture.test_contracts import CONTRACTS, linted

ROOT = Path(__file__).resolve().parents[2]
FILLED = Path(__file__).with_name("filled_store.sqlite.gz")
PARAMETERS = {"run": "runs.name", "group_id": "groups.group_id", "task_id": "tasks.task_id", "world": "worlds.name"}
KINDS = {
    "openenv": {"url": "http://a"},
    "nemo_gym": {"url": "http://a", "rows": "a"},
    "verifiers": {"package": "a", "python": "a"},
}
LIST_KINDS = """
import importlib, json, pkgutil, sys
import app
from app.main.components import build_foreign_servers, create_children
from app.settings import Settings

for module in pkgutil.walk_packages(app.__path__, "app."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
kinds = json.loads(sys.argv[1])


def is_served(kind):
    try:
        settings = Settings(environments={"x": {"serve": kind, **kinds[kind]}})
    except ValueError:
        return False
    return build_foreign_servers(settings, create_children(settings))["x"].kind == kind


print(json.dumps([kind for kind in kinds if is_served(kind)]))
"""
"""Of the kinds of others' environments that are given with their settings, those that the service here can serve."""
NEEDS = {feature.name: feature.needs for feature in load_features()}

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("reduced trees")]


@dataclass(frozen=True)
class Answers:
    """What a service said of the routes that it was asked: the module of each of its own, and statuses."""

    own: dict[str, str]
    empty: dict[str, int]
    filled: dict[str, int]
    dead: list[str]
    """Links on pages that lead nowhere."""
    faults: list[str]


def list_taken(feature: str) -> set[str]:
    """It, and what stands on it."""
    taken = {feature}
    for name in FEATURES:  # each comes after those that it needs
        if taken & {*NEEDS[name]}:
            taken.add(name)
    return taken


def list_tables(features: set[str]) -> list[str]:
    owners = {one.__tablename__: one.__module__.split(".") for one in TableRecord.__subclasses__()}
    return sorted(str(name) for name, path in owners.items() if path[1] == "features" and path[2] in features)


def dump(file: Path, tables: list[str]) -> dict[str, list[object]]:
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        rows = {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}  # noqa: S608
    return {name: sorted(some, key=repr) for name, some in rows.items()}


def ask(tree: Path, folder: Path) -> Answers:
    command = [sys.executable, str(ROOT / "tests/support/reduced_service.py"), str(folder)]
    done = subprocess.run(
        command,
        cwd=tree,
        env={"PYTHONPATH": str(tree), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Answers(**json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Answers]:
    """A folder with a store that is filled and migrated, and how the whole service answers."""
    folder = tmp_path_factory.mktemp("whole")
    with gzip.open(FILLED) as packed, (folder / "filled.db").open("wb") as file:
        shutil.copyfileobj(packed, file)
    first = ask(ROOT, folder)
    with sqlite3.connect(folder / "filled.db") as connection:
        columns = {name: where.split(".") for name, where in PARAMETERS.items()}
        query = "SELECT {column} FROM {table} LIMIT 1"
        names = {
            name: connection.execute(query.format(column=column, table=table)).fetchone()[0]
            for name, (table, column) in columns.items()
        }
    (folder / "asked.json").write_text(json.dumps({"routes": first.own, "names": names}), encoding="utf-8")
    return folder, ask(ROOT, folder)


def copy_tree(tree: Path) -> None:
    for name in ("app", "migrations", "character_sheets"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)


def strike_kind(file: Path, kind: str) -> None:
    """Takes away its imports, its functions, its lines of tables, and its name among others."""
    text = file.read_text(encoding="utf-8")
    struck: list[ast.stmt | ast.expr] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Dict):
            lines_of = zip(node.keys, node.values, strict=True)
            struck += [value for key, value in lines_of if isinstance(key, ast.Constant) and key.value == kind]
        elif isinstance(node, ast.ClassDef) and node.name == "ForeignSettings":
            for name, words in pairwise(node.body):
                if isinstance(words, ast.Expr) and ast.unparse(words).rstrip("'\"").endswith(f"(`{kind}`)."):
                    struck += [name, words]
        elif isinstance(node, ast.ImportFrom) and node.module == f"app.envs.foreign.{kind}":
            struck.append(node)
        elif isinstance(node, ast.FunctionDef) and node.name in {kind, f"_build_{kind}"}:
            struck += [node, *node.decorator_list]
    lines = text.splitlines(keepends=True)
    for node in struck:
        lines[node.lineno - 1 : node.end_lineno] = [""] * (1 + (node.end_lineno or 0) - node.lineno)
    assert struck
    kept = "".join(lines).replace(f'"{kind}", ', "", 1).replace(f', "{kind}"]', "]", 1)
    file.write_text(kept, encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_others_environments_can_be_taken_away(tmp_path: Path, kind: str) -> None:
    """It has no routes and no tables."""
    copy_tree(tmp_path)
    for file in (tmp_path / "app/envs/foreign").glob(f"{kind}*.py"):
        file.unlink()
    for name in ("main/components.py", "settings/sections.py", "cli/envs/adding.py", "cli/graders.py"):
        strike_kind(tmp_path / "app" / name, kind)
    commands = [["-c", LIST_KINDS, json.dumps(KINDS)], ["-m", "app.cli", "envs", "add", "--help"]]
    served, offered = (
        subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env={"PYTHONPATH": str(tmp_path), "PATH": "", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for command in commands
    )
    left = [one for one in KINDS if one != kind]
    assert (json.loads(served), [one for one in KINDS if f" {one.replace('_', '-')} " in offered]) == (left, left)
    assert linted(tmp_path) == (0, dict.fromkeys(CONTRACTS, "KEPT"))


@pytest.mark.parametrize("feature", FEATURES)
def test_a_feature_can_be_taken_away_whole(tmp_path: Path, whole: tuple[Path, Answers], feature: str) -> None:
    tree, folder, taken = tmp_path / "tree", tmp_path / "stores", list_taken(feature)
    copy_tree(tree)
    listed = tree / "app/main/features.py"
    for name in taken:
        shutil.rmtree(tree / "app/features" / name)
        text = listed.read_text(encoding="utf-8")
        assert text.count(f'    "{name}",\n') == 1
        listed.write_text(text.replace(f'    "{name}",\n', ""), encoding="utf-8")
    shutil.copytree(whole[0], folder, ignore=shutil.ignore_patterns("empty.db*", "listed.db*"))
    before = dump(folder / "filled.db", list_tables(taken))

    answers = ask(tree, folder)

    gone = {one for one, module in whole[1].own.items() if module.split(".")[1:3] in [["features", x] for x in taken]}
    assert answers.own.keys() == whole[1].own.keys() - gone
    assert (answers.faults, answers.dead) == ([], whole[1].dead)
    for here, there in ((answers.empty, whole[1].empty), (answers.filled, whole[1].filled)):
        assert {one: status for one, status in here.items() if one in gone and status not in {404, 405}} == {}
        kept = here.keys() - gone
        assert {one: here[one] for one in kept} == {one: there[one] for one in kept}
    assert dump(folder / "filled.db", list_tables(taken)) == before
    assert linted(tree) == (0, dict.fromkeys(CONTRACTS, "KEPT"))
    commands = subprocess.run(
        [sys.executable, "-m", "app.cli", "--help"], cwd=tree, capture_output=True, text=True, check=True
    )
    assert "serve" in commands.stdout


def test_every_feature_has_tables_or_routes_of_its_own() -> None:
    """Else the test above would show nothing."""
    assert {name for name in FEATURES if not list_tables({name})} == {"exports"}
