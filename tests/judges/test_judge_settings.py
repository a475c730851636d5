"""What the settings of a judge say reaches its server, counts as what was asked, and its secrets go nowhere else."""

import contextlib
import json
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.features.health.feature import find_shadow_judges
from app.inference.connection import KeyFile
from app.judges import judge_client as line
from app.judges.chat_judge import ChatJudge
from app.judges.configuration import ChatJudgeConfig
from app.main.components import build_judge_config, build_panels
from app.settings import read_settings
from tests.support.chat_server import Received, Reply, serving
from tests.support.judge_cases import GOOD, REQUEST, always, answer, completion, config, failure, judged, verdict

SETTINGS = Path(__file__).with_name("judge_settings.txt").read_text(encoding="utf-8")


def configured(folder: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> ChatJudgeConfig:
    monkeypatch.chdir(folder)
    (folder / "gateway.yaml").write_text(SETTINGS.format(url=url), encoding="utf-8")
    (folder / "key").write_text("mounted-key\n", encoding="utf-8")
    settings = read_settings()
    assert "secret-token" not in repr(settings)
    return build_judge_config(settings, "stern", settings.judges["stern"])


async def test_what_is_set_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(always(completion(GOOD))) as server:
        found = configured(tmp_path, server.url, monkeypatch)
        await judged(found)
        await judged(found, REQUEST.model_copy(update={"vote": 2}))
    sent = [{name: value for name, value in one.body.items() if name != "messages"} for one in server.received]
    fixed = {
        "model": "m",
        "reasoning_effort": "low",
        "chat_template_kwargs": {"enable_thinking": False},
        "response_format": {"type": "json_object"},
    }
    assert sent == [{**fixed, "seed": 7}, {**fixed, "seed": 9}]
    headers = {name.lower(): value for name, value in server.received[0].headers.items()}
    assert [headers[name] for name in ("authorization", "x-title", "x-token")] == [
        "Bearer mounted-key",
        "a title",
        "secret-token",
    ]


@pytest.mark.parametrize(
    ("shadow", "error"),
    [
        ("other", ""),
        ("twin", "'twin' is of the same model as 'stern', which scores there"),
        ("nobody", "there is no judge 'nobody'"),
    ],
)
def test_a_shadow_judge_of_the_settings_is_of_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shadow: str, error: str
) -> None:
    monkeypatch.chdir(tmp_path)
    models = {"stern": "m", "twin": "lab/M", "other": "n"}
    judges = "".join(f"  {name}: {{base_url: 'http://x/v1', model: {model}}}\n" for name, model in models.items())
    environment = f"environments:\n  rlaif: {{judges: [stern], shadow_judge: {shadow}}}\n"
    (tmp_path / "gateway.yaml").write_text(f"judges:\n{judges}{environment}", encoding="utf-8")
    settings = read_settings()
    with pytest.raises(ValueError, match=error) if error else contextlib.nullcontext():
        assert find_shadow_judges(settings, build_panels(settings)) == {"rlaif": "other"}


def test_null_can_be_said_in_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = {"BASE_URL": "http://x/v1", "MODEL": "m", "TEMPERATURE": "null", "TOKEN_PARAMETER": "null"}
    for name, value in {**given, "EXTRA_BODY": '{"top_k": 1}', "EXTRA_HEADERS": '{"A": "b"}'}.items():
        monkeypatch.setenv(f"ATROPOS_ENVS_JUDGES__STERN__{name}", value)
    judge = read_settings().judges["stern"]
    assert (judge.temperature, judge.token_parameter, judge.extra_body) == (None, None, {"top_k": 1})
    assert judge.extra_headers["A"].get_secret_value() == "b"


async def test_a_key_that_is_replaced_needs_no_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "key"
    path.write_text("old-key", encoding="utf-8")

    def answered(number: int, received: Received) -> Reply:
        return completion(GOOD) if received.authorization == "Bearer new-key" else failure(401, "who is old-key?")

    with serving(answered) as server:
        judge = ChatJudge(config(server.url, api_key=KeyFile(path)))
        before = await judge.judge(REQUEST)
        path.write_text("new-key", encoding="utf-8")
        after = await judge.judge(REQUEST)
        await judge.close()
    assert (before.error, after.error) == ("the judge's server answered 401", None)


@pytest.mark.parametrize("status", [400, 418, 500])
async def test_no_secret_is_in_an_error(status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "LONGEST_PAUSE_SECONDS", 1_000.0)
    monkeypatch.setattr(line, "FIRST_PAUSE_SECONDS", 1_000.0)

    def echo(number: int, received: Received) -> Reply:
        return failure(status, f"you sent {json.dumps(dict(received.headers))}")

    with serving(echo) as server:
        judge, judgement = await judged(configured(tmp_path, server.url, monkeypatch))
    told = judgement.model_dump_json() + judge.report().model_dump_json() + repr(judge)
    assert judgement.failure == "unavailable"
    assert [secret for secret in ("mounted-key", "secret-token") if secret in told] == []


@pytest.mark.parametrize("usable", [True, False])
async def test_no_secret_that_a_server_repeats_is_kept(
    usable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither in the answer nor in what is read from it, nor in the correction that quotes it."""

    def echo(number: int, received: Received) -> Reply:
        quoted = [*dict(received.headers).values()]
        evidence = answer(verdict("A", evidence=quoted), verdict("B", evidence=quoted), verdict("C", evidence=quoted))
        reply = completion(evidence if usable else f"You sent {quoted}.")
        named = {**json.loads(reply.body), "model": "for mounted-key", "system_fingerprint": "secret-token"}
        return Reply(json.dumps(named).encode())

    with serving(echo) as server:
        _, judgement = await judged(configured(tmp_path, server.url, monkeypatch))
        told = judgement.model_dump_json() + json.dumps([one.body for one in server.received])
    assert (judgement.error is None, "…" in judgement.raw) == (usable, True)
    assert [secret for secret in ("mounted-key", "secret-token") if secret in told] == []


async def test_headers_that_hold_ordinary_words_change_no_reading() -> None:
    """The key of the answer, and what a judge quotes of a reply."""
    headers = {"X-Title": SecretStr("verdicts"), "X-Game": SecretStr("The ferry")}
    with serving(always(completion(GOOD))) as server:
        _, plain = await judged(config(server.url))
        _, named = await judged(config(server.url, extra_headers=headers))
    assert (named.error, named.verdicts, named.raw) == (None, plain.verdicts, GOOD)
