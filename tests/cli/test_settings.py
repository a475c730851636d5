"""Settings that are wrong stop every command with a sentence; what they point to is tried by `settings check`."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.envs.gsm8k.environment import Gsm8k
from app.envs.npc_arena.environment import NpcArena
from app.envs.reasoning_gym import environment
from app.main.components import require_known_names
from app.ports.environment import Environment
from app.settings import WITHDRAWN, SettingsError, read_settings
from tests.support.tables import read_table

KNOWN: dict[str, type[Environment]] = {"gsm8k": Gsm8k, "npc_arena": NpcArena}

JUDGE = """judges:
  stern:
    base_url: http://127.0.0.1:9/v1
    model: m
"""
FAULTS = read_table(__file__, "settings_faults.yaml", dict[str, Any])


@pytest.mark.parametrize(("says", "text"), FAULTS.items())
def test_what_is_wrong_in_the_file_is_said_with_its_place(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "gateway.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "empty").touch()
    with pytest.raises(SettingsError) as raised:
        require_known_names(read_settings(), KNOWN)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("ATROPOS_ENVS_HOTS", "ATROPOS_ENVS_HOTS: unknown setting; did you mean 'ATROPOS_ENVS_HOST'?"),
        ("ATROPOS_ENVS_PORT", 'ATROPOS_ENVS_PORT: "x" was given; wanted is a whole number from 0 to 65535'),
        ("ATROPOS_ENVS_RAG__RETREIVER", "ATROPOS_ENVS_RAG__RETREIVER: unknown setting; did you mean 'retriever'?"),
    ],
)
def test_what_is_wrong_in_a_variable_is_said_with_its_name(
    monkeypatch: pytest.MonkeyPatch, variable: str, says: str
) -> None:
    monkeypatch.setenv(variable, "x")
    with pytest.raises(SettingsError) as raised:
        read_settings()
    assert says in str(raised.value)


def test_what_kubernetes_sets_for_a_service_of_our_name_is_no_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gateway.yaml").write_text("port: 8123\n", encoding="utf-8")
    given = {
        "PORT": "tcp://10.0.0.7:8000",
        "PORT_8000_TCP_PROTO": "tcp",
        "SERVICE_HOST": "10.0.0.7",
        "SERVICE_PORT": "8",
    }
    for name, value in given.items():
        monkeypatch.setenv(f"ATROPOS_ENVS_{name}", value)
    assert read_settings().port == 8123


def test_a_key_that_a_judge_names_may_have_a_name_like_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gateway.yaml").write_text(JUDGE + "    api_key_env: ATROPOS_ENVS_STERN_KEY\n", encoding="utf-8")
    monkeypatch.setenv("ATROPOS_ENVS_STERN_KEY", "sk-1")
    assert read_settings().judges["stern"].api_key_env == "ATROPOS_ENVS_STERN_KEY"


def test_what_was_a_setting_once_is_said_and_hinders_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = JUDGE + "    queue_seconds: 5\nretention: {older_than_days: 9, every_hours: x}\njudge_cache_entries: 7\n"
    (tmp_path / "gateway.yaml").write_text(text, encoding="utf-8")
    for name in ("JUDGES__STERN__BREAKER_SECONDS", "JUDGE_CACHE_ENTRIES", "PARTS__LATE_SECONDS"):
        monkeypatch.setenv(f"ATROPOS_ENVS_{name}", "9")
    read = read_settings()
    said = [one.partition(": ")[0::2] for one in read.withdrawn]
    where = [*map("ATROPOS_ENVS_{}".format, ("JUDGE_CACHE_ENTRIES", "JUDGES__STERN__BREAKER_SECONDS"))]
    where += ["gateway.yaml, line 5", "ATROPOS_ENVS_PARTS__LATE_SECONDS", "gateway.yaml, line 6"]
    assert (read.judges["stern"].model, read.retention.older_than_days, [place for place, _ in said]) == ("m", 9, where)
    assert said[0] == (where[0], WITHDRAWN["judge_cache_entries"])


@pytest.mark.parametrize(
    ("keep", "level", "said"),
    [
        ("{tokens: digest, logprobs: digest, judge_prompts: digest, after_hours: 3}", "texts", 3),
        ("{tokens: digest, logprobs: digest, after_hours: 3}", "all", 2),
        ("{level: texts, after_hours: 3}", "texts", 0),
    ],
)
def test_a_rule_of_what_is_kept_by_parts_is_the_level_that_keeps_more(
    tmp_path: Path, keep: str, level: str, said: int
) -> None:
    (tmp_path / "gateway.yaml").write_text(f"retention: {{older_than_days: 9, keep: {keep}}}\n", encoding="utf-8")
    read = read_settings()
    kept = read.retention
    assert (kept.keep.level, kept.keep.after_hours, kept.older_than_days, len(read.withdrawn)) == (level, 3, 9, said)


def test_check_tells_wrong_settings_from_what_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "gateway.yaml"
    monkeypatch.setattr(environment, "is_installed", lambda: False)
    missing = f"datasets:\n  gsm8k: {tmp_path / 'nowhere' / 'mounted'}\n"
    file.write_text(JUDGE + missing + "environments:\n  reasoning_gym: {}\n", encoding="utf-8")
    away = CliRunner().invoke(cli, ["settings", "check", "--json"])
    file.write_text("environments:\n  npc_aren: {}\n", encoding="utf-8")
    wrong = CliRunner().invoke(cli, ["settings", "check", "--json"])
    tried = {one["name"]: one["problem"] for one in json.loads(away.stdout)["tried"]}
    assert (away.exit_code, bool(tried["gsm8k"]), bool(tried["stern"]), tried["math"]) == (1, True, True, None)
    assert tried["reasoning_gym"] == environment.MISSING
    assert wrong.exit_code == 2
    assert "did you mean 'npc_arena'?" in json.loads(wrong.stdout)["settings"][0]


def test_check_opens_the_database_but_makes_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain install, without optional packages, has nothing to mend."""
    monkeypatch.setattr(environment, "is_installed", lambda: False)
    new = CliRunner().invoke(cli, ["settings", "check", "--json"])
    made = [path.name for path in tmp_path.iterdir()]
    with sqlite3.connect(tmp_path / "atropos_envs.db") as connection:
        connection.execute("CREATE TABLE alembic_version (version_num TEXT)")
        connection.execute("INSERT INTO alembic_version VALUES ('9999')")
    connection.close()
    newer = CliRunner().invoke(cli, ["settings", "check", "--json"])
    tried = [json.loads(result.stdout)["tried"][0] for result in (new, newer)]
    file = str(tmp_path / "atropos_envs.db")
    told = {one["name"]: (one["problem"], one["not_installed"]) for one in json.loads(new.stdout)["tried"]}
    assert (new.exit_code, made, tried[0]["problem"], newer.exit_code) == (0, [], None, 1)
    assert told["reasoning_gym"] == (None, environment.MISSING)
    assert (tried[1]["kind"], tried[1]["name"]) == ("database", file)
    assert tried[1]["problem"].startswith("the database has schema 9999, but this version of the service supports")
