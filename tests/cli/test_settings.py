"""Settings that are wrong stop every command with a sentence; what they point to is tried by `settings check`."""

import json
import sqlite3
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.envs.gsm8k.environment import Gsm8k
from app.envs.npc_arena.environment import NpcArena
from app.envs.reasoning_gym import environment
from app.main.components import require_known_names
from app.ports.environment import Environment
from app.settings import WITHDRAWN, SettingsError, read_settings

KNOWN: dict[str, type[Environment]] = {"gsm8k": Gsm8k, "npc_arena": NpcArena}

JUDGE = """judges:
  stern:
    base_url: http://127.0.0.1:9/v1
    model: m
"""
TEI = "    kind: reward_model\n    route: tei_predict\n"
ENVIRONMENT = "environments:\n  npc_arena:\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("judges: [", "gateway.yaml, line 1: not valid YAML"),
        ("prot: 8000\n", "gateway.yaml, line 1: prot: there is no setting 'prot'; did you mean 'port'?"),
        (JUDGE + "    modle: x\n", "line 5: judges.stern.modle: there is no setting 'modle'; did you mean 'model'?"),
        ("\nport: eighty\n", "gateway.yaml, line 2: port: Input should be a valid integer"),
        ("environments:\n  npc_aren: {}\n", "line 2: environments.npc_aren: there is no environment 'npc_aren'; did"),
        ("datasets:\n  gsm8: openai/gsm8k\n", "line 2: datasets.gsm8: there is no environment 'gsm8'; did you mean"),
        (
            "nemo_gym_ports:\n  sums:\n    port: 8101\n    environment: gsm8\n",
            "line 4: nemo_gym_ports.sums.environment: there is no environment 'gsm8'; did you mean 'gsm8k'?",
        ),
        (
            JUDGE + ENVIRONMENT + "    judges: [stren]\n",
            "line 7: environments.npc_arena.judges: there is no judge 'stren'",
        ),
        (JUDGE + "    fallback: stirn\n", "judges.stern.fallback: there is no judge 'stirn'; did you mean 'stern'?"),
        ("\ndatabase_url: mysql://h/d\n", "line 2: database_url: the database URL must be sqlite:///path"),
        (JUDGE + "    api_key_env: NOWHERE_SET\n", "line 2: judges.stern: judges.stern.api_key_env names NOWHERE_SET"),
        (JUDGE + "    extra_body: {stream: true}\n", "line 5: judges.stern.extra_body: 'stream' is set by the service"),
        (
            JUDGE + "    extra_body: {max_completion_tokens: 9}\n",
            "set by the service; use the setting max_output_tokens",
        ),
        (JUDGE + "    extra_headers: {Host: x}\n", "line 5: judges.stern.extra_headers: 'Host' is set by the service"),
        (JUDGE + "    extra_headers: {a b: x}\n", "judges.stern.extra_headers: 'a b' is no name of a header"),
        (JUDGE + '    extra_headers: {A: "s\\n"}\n', "the value of 'A' is empty, or has characters that no header can"),
        (JUDGE + "    extra_headers: {A: x, a: y}\n", "extra_headers: two names differ in their case alone"),
        (JUDGE + "    api_key_file: nowhere\n", "api_key_file names nowhere, which cannot be used: No such file"),
        (JUDGE + "    api_key_file: empty\n", "api_key_file names empty, which cannot be used: it holds no key"),
        (JUDGE + "    api_key_file: empty\n    api_key_env: HOME\n", "has both api_key_env and api_key_file"),
        (JUDGE.replace("/v1", "/openai/v1") + "    api_version: preview\n", "must not be set where base_url ends in"),
        (JUDGE + "    kind: reward_model\n", "judges.stern: a reward model needs route and chat_template"),
        (JUDGE + "    route: openrlhf\n", "judges.stern: a judge of the kind chat has no route"),
        (
            JUDGE.replace("/v1", "") + TEI + "    chat_template: nowhere\n",
            "chat_template: nowhere: no such file or folder",
        ),
        (JUDGE + TEI + "    chat_template: server\n", "chat_template: a server asked by tei_predict takes text"),
        (
            ENVIRONMENT + "    rubric: gateway.yaml\n",
            "npc_arena.rubric: gateway.yaml, line 1: environments: there is no key",
        ),
        (
            ENVIRONMENT + "    rubric: none.yaml\n",
            "environments.npc_arena.rubric: none.yaml: No such file or directory",
        ),
        ("environments:\n  gsm8k: {rubric: x.yaml}\n", "gsm8k takes no rubric from the settings; these do: npc_arena"),
    ],
)
def test_what_is_wrong_in_the_file_is_said_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gateway.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "empty").touch()
    with pytest.raises(SettingsError) as raised:
        require_known_names(read_settings(), KNOWN)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("variable", "says"),
    [
        ("ATROPOS_ENVS_HOTS", "ATROPOS_ENVS_HOTS: there is no such setting; did you mean 'ATROPOS_ENVS_HOST'?"),
        ("ATROPOS_ENVS_PORT", "ATROPOS_ENVS_PORT: Input should be a valid integer"),
        ("ATROPOS_ENVS_RAG__RETREIVER", "ATROPOS_ENVS_RAG__RETREIVER: there is no setting 'retreiver'"),
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
    monkeypatch.chdir(tmp_path)
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
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gateway.yaml").write_text(JUDGE + "    api_key_env: ATROPOS_ENVS_STERN_KEY\n", encoding="utf-8")
    monkeypatch.setenv("ATROPOS_ENVS_STERN_KEY", "sk-1")
    assert read_settings().judges["stern"].api_key_env == "ATROPOS_ENVS_STERN_KEY"


def test_what_was_a_setting_once_is_said_and_hinders_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keep: str, level: str, said: int
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gateway.yaml").write_text(f"retention: {{older_than_days: 9, keep: {keep}}}\n", encoding="utf-8")
    read = read_settings()
    kept = read.retention
    assert (kept.keep.level, kept.keep.after_hours, kept.older_than_days, len(read.withdrawn)) == (level, 3, 9, said)


def test_check_tells_wrong_settings_from_what_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
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
    monkeypatch.chdir(tmp_path)
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
