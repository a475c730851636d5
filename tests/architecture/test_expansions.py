"""Migrations state whether older services run on their schema, and those that say so only add."""

import ast
from pathlib import Path

import pytest

from tests.support.tables import read_table

TABLE = read_table(__file__, "expansions.yaml", tuple[str, ...])

VERSIONS = Path(__file__).parents[2] / "migrations" / "versions"
MIGRATIONS = sorted(VERSIONS.glob("[0-9]*.py"))


def states_expansion(module: ast.Module) -> bool | None:
    for node in module.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "IS_EXPANSION":
            return bool(ast.literal_eval(node.value))
    return None


def is_additive(call: ast.Call, new_tables: set[str]) -> bool:
    """Whether an operation adds what older services do not notice."""
    name = ast.unparse(call.func)
    given = {one.arg: ast.unparse(one.value) for one in call.keywords}
    if name == "op.add_column":
        column = next(one for one in call.args if isinstance(one, ast.Call))
        told = {one.arg: ast.unparse(one.value) for one in column.keywords}
        return told.get("nullable") == "True" or "server_default" in told
    if name == "op.create_index":
        return given.get("unique", "False") == "False" or ast.unparse(call.args[1]) in new_tables
    return name == "op.create_table"


def find_others(module: ast.Module) -> list[str]:
    """The operations of a migration, on its way up, that are not additive."""
    calls = [
        node
        for part in module.body
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("op.")
    ]
    new_tables = {ast.unparse(call.args[0]) for call in calls if ast.unparse(call.func) == "op.create_table"}
    return [ast.unparse(call) for call in calls if not is_additive(call, new_tables)]


@pytest.mark.parametrize("path", MIGRATIONS, ids=lambda path: path.stem)
def test_a_migration_states_whether_it_expands_and_an_expansion_only_adds(path: Path) -> None:
    module = ast.parse(path.read_text(encoding="utf-8"))
    stated = states_expansion(module)
    assert stated is not None
    assert not stated or find_others(module) == []


@pytest.mark.parametrize("line", TABLE)
def test_the_rule_notices(line: str) -> None:
    assert find_others(ast.parse(f"def upgrade():\n    {line}\n")) == [line]
