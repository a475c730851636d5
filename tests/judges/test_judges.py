"""Every judge answers every request with whole verdicts or with an error in words; chat judges through real sockets."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.domain.judging import JudgeFailure, Judgement
from app.inference.connection import LARGEST_REPLY
from app.judges import judge_client as line
from app.judges.chat_judge import (
    ChatJudge,
    ScriptedJudge,
    fail_requests,
    score_by_position,
    score_by_text,
    score_equally,
    score_randomly,
)
from app.judges.configuration import TokenPrices
from app.judges.offline import OfflineJudge
from app.ports.judges import Judge
from tests.support.chat_server import Reply, Script, serving
from tests.support.judge_cases import (
    BAD,
    GOOD,
    KEY,
    REQUEST,
    TEXTS,
    always,
    answer,
    completion,
    config,
    failure,
    first,
    judged,
    verdict,
)
from tests.support.shown_prompts import shown_to


def require_contract(judgement: Judgement, judge: Judge) -> None:
    ids = sorted(TEXTS)
    assert (judgement.judge, judgement.model) == (judge.name, judge.model)
    assert list(judgement.order) == list(TEXTS)
    if judgement.error is not None:
        assert judgement.error
        assert (judgement.verdicts, judgement.ranking) == ((), ())
        return
    assert sorted(verdict.candidate for verdict in judgement.verdicts) == ids
    assert sorted(name for tier in judgement.ranking for name in tier) == ids
    for each in judgement.verdicts:
        assert list(each.scores) == ["likeness", "charm"]
        assert all(quote in TEXTS[each.candidate] for quote in each.evidence)
        assert all(defect.code == "leak" for defect in each.defects)


@pytest.mark.parametrize(
    "judge",
    [
        OfflineJudge(),
        ScriptedJudge(score_equally),
        ScriptedJudge(score_by_position),
        ScriptedJudge(score_by_text({TEXTS["A"]: 1.0})),
        ScriptedJudge(score_randomly(1)),
        ScriptedJudge(fail_requests()),
    ],
    ids=lambda judge: judge.name,
)
def test_judges_without_a_server(judge: Judge) -> None:
    judgement = asyncio.run(judge.judge(REQUEST))
    require_contract(judgement, judge)
    assert (judgement.calls, judgement.cost_usd, len(judge.digest)) == (0, None, 32)


@dataclass(frozen=True)
class Scenario:
    script: Script
    calls: int
    """0: as many as fit before the deadline, which may cut off the last one before the server has read it."""
    error: str | None = None
    """A part of it."""
    failure: JudgeFailure = "unavailable"
    deadline: float = 5.0


SCENARIOS = {
    "ok": Scenario(always(completion(GOOD)), 1),
    "fenced after a thought": Scenario(always(completion(f"<think>hm {{}}</think>```json\n{GOOD}\n```")), 1),
    "content in parts": Scenario(always(completion([{"type": "text", "text": GOOD}])), 1),
    "503 and 502": Scenario(first(failure(503), failure(502)), 3),
    "500 for ever": Scenario(always(failure(500)), 0, "the judge's server answered 500", deadline=0.3),
    "429 with Retry-After": Scenario(first(failure(429, retry_after="0.2")), 2),
    "429 with nonsense": Scenario(first(failure(429, retry_after="soon")), 2),
    "429 for an hour": Scenario(always(failure(429, retry_after="3600")), 1, "answered 429; gave up after 1 attempts"),
    "400": Scenario(always(failure(400, "too long")), 2, "answered 400: too long"),
    "400 that repeats the key": Scenario(always(failure(400, f"bad {KEY} here")), 2, "answered 400: bad … here"),
    "401": Scenario(always(failure(401, f"Incorrect API key: {KEY[:9]}***")), 1, "answered 401"),
    "garbage": Scenario(always(Reply(b"\xff\xfe<html>")), 3, "not JSON"),
    "nothing": Scenario(always(Reply(b"{}")), 3, "without a message"),
    "deep": Scenario(always(Reply(b"[" * 200_000)), 3, "not JSON"),
    "slow beyond the deadline": Scenario(
        always(Reply(completion(GOOD).body, seconds=1.0)), 1, "no usable answer within 0.3 s", deadline=0.3
    ),
    "hangs for ever": Scenario(always(Reply(b"", seconds=3600)), 1, "no usable answer within 0.3 s", deadline=0.3),
    "a burst of 500": Scenario(first(*[failure(500)] * 7), 8),
    "drops the connection once": Scenario(first(Reply(b"", cut=-1)), 2),
    "drops it for ever": Scenario(always(Reply(b"", cut=-1)), 0, "server failed", deadline=0.3),
    "drops it in the middle of an answer": Scenario(first(Reply(completion(GOOD).body, cut=99)), 2),
    "sends without end": Scenario(
        always(Reply(b" " * (LARGEST_REPLY + 1))), 3, f"sent more than {LARGEST_REPLY} bytes"
    ),
    "redirects": Scenario(always(Reply(b"", 307, {"location": "http://127.0.0.1:1/"})), 1, "answered 307"),
    "refuses": Scenario(always(completion(None, refusal="I cannot.")), 1, "the judge refuses: I cannot.", "refused"),
    "filtered": Scenario(always(completion("", "content_filter")), 1, "the judge refuses", "refused"),
    "declines in words": Scenario(always(BAD), 2, "no complete JSON object", "unusable"),
    "refuses once": Scenario(first(BAD), 2),
    "cut off": Scenario(always(completion(GOOD[:-9], "length")), 2, "cut off after 500 tokens", "unusable"),
    "cut off behind a draft": Scenario(
        always(completion(f"A first draft: {GOOD} But then again", "length")), 2, "cut off after 500", "unusable"
    ),
    "cut off behind the answer": Scenario(always(completion(f"```json\n{GOOD}\n```" + "\n" * 400, "length")), 1),
    "quotes the injection, then answers": Scenario(always(completion(f"{TEXTS['B']}\n{GOOD}")), 1),
    "missing id": Scenario(always(completion(answer(verdict("A"), verdict("B")))), 2, "C is missing", "unusable"),
    "bad, then down, then good": Scenario(first(BAD, failure(500)), 3),
}


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.mark.parametrize("name", SCENARIOS)
async def test_chat_judge(name: str) -> None:
    scenario = SCENARIOS[name]
    with serving(scenario.script) as server:
        judge, judgement = await judged(config(server.url, deadline_seconds=scenario.deadline))
    require_contract(judgement, judge)
    assert KEY not in judgement.model_dump_json()
    if scenario.calls:
        assert (judgement.calls, len(server.received)) == (scenario.calls, scenario.calls)
    else:
        assert judgement.calls - len(server.received) in (0, 1)
    if scenario.error is None:
        assert (judgement.failure, judgement.error) == (None, None)
        scores = [each.scores for each in judgement.verdicts[::2]]
        assert scores == [{"likeness": 1.0, "charm": 0.5}, {"likeness": 0.25, "charm": 0.5}]
        assert judgement.ranking == (("A",), ("B", "C"))
    else:
        assert (judgement.failure, scenario.error in (judgement.error or "")) == (scenario.failure, True)


async def test_nobody_listens() -> None:
    with serving(always(BAD)) as server:
        url = server.url
    judge, judgement = await judged(config(url, deadline_seconds=0.3))
    require_contract(judgement, judge)
    assert "could not be reached" in (judgement.error or "")


async def test_what_is_sent() -> None:
    with serving(always(completion(GOOD))) as server:
        _, judgement = await judged(config(server.url))
    sent = server.received[0]
    shown = shown_to(sent)
    assert (sent.path, sent.authorization) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert {name: sent.body[name] for name in ("model", "temperature", "max_tokens", "response_format")} == {
        "model": "judge-1",
        "temperature": 0.0,
        "max_tokens": 500,
        "response_format": {"type": "json_object"},
    }
    assert [message["role"] for message in sent.messages] == ["system", "user"]
    assert (shown.context, shown.references, shown.texts) == (
        "character_sheet:\n name: Hob\nconversation:\n - player: Ferry?",
        "facts: The ferry sank.",
        TEXTS,
    )
    assert json.loads(judgement.prompt) == sent.messages
    assert "weight" not in shown.rubric


async def test_options_that_a_server_may_not_know_are_left_out() -> None:
    with serving(always(completion(GOOD))) as server:
        await judged(config(server.url, json_mode="off", temperature=None, api_key=None))
    sent = server.received[0]
    assert {"response_format", "temperature"}.isdisjoint(sent.body)
    assert sent.authorization == ""


async def test_nothing_but_the_settings_says_how_a_judge_is_reached(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    (tmp_path / "netrc").write_text("default login someone password secret\n", encoding="utf-8")
    with serving(always(completion(GOOD))) as server:
        _, judgement = await judged(config(server.url, api_key=None))
    assert (judgement.error, [sent.authorization for sent in server.received]) == (None, [""])


async def test_the_correction_says_what_was_wrong() -> None:
    with serving(first(BAD)) as server:
        _, judgement = await judged(config(server.url))
    asked = server.received[1].messages
    assert asked[:2] == server.received[0].messages
    assert asked[2] == {"role": "assistant", "content": "I would rather not."}
    assert "- there is no complete JSON object in the answer" in asked[3]["content"]
    assert (judgement.raw, judgement.input_tokens, judgement.output_tokens) == (GOOD, 2000, 400)


@pytest.mark.parametrize(("prices", "cost"), [(TokenPrices(), None), (TokenPrices(2.0, 10.0), 0.004)])
async def test_cost(prices: TokenPrices, cost: float | None) -> None:
    with serving(always(completion(GOOD))) as server:
        _, judgement = await judged(config(server.url, prices=prices))
    assert judgement.cost_usd == pytest.approx(cost)


@pytest.mark.parametrize("usage", [None, 3, {}, {"prompt_tokens": "many", "completion_tokens": -4}])
async def test_servers_that_do_not_count(usage: object) -> None:
    body = json.loads(completion(GOOD).body) | {"usage": usage}
    with serving(always(Reply(json.dumps(body).encode()))) as server:
        _, judgement = await judged(config(server.url))
    read = sum(len(said["content"].encode()) for said in server.received[0].messages)
    assert judgement.error is None
    assert judgement.input_tokens == pytest.approx(read / 4, abs=50), "what a token is long as a rule"
    assert judgement.output_tokens == pytest.approx(len(GOOD) / 4, abs=50)


async def test_lone_surrogates_are_replaced_in_what_is_kept() -> None:
    with serving(always(completion("\ud83d " + GOOD.replace("The ferry", "\\ud800 The ferry")))) as server:
        _, judgement = await judged(config(server.url))
    assert judgement.raw.startswith("\ufffd ")
    assert judgement.verdicts[0].evidence == ()
    judgement.model_dump_json().encode()


def test_neither_config_nor_errors_show_the_key() -> None:
    assert KEY not in repr(config("http://127.0.0.1:1/v1"))


def test_the_digest_covers_what_could_change_a_verdict() -> None:
    def digest_of(**more: object) -> str:
        return ChatJudge(config("http://127.0.0.1:1/v1", **more)).digest

    changed: Sequence[Mapping[str, object]] = [
        *({"model": "judge-2"}, {"temperature": 0.5}, {"max_output_tokens": 9}, {"json_mode": "off"}),
        *({"seed": 0}, {"seed": 1}, {"token_parameter": None}, {"expected_scores": True}),
        *({"extra_body": {"top_k": 1}}, {"extra_body": {"top_k": 2}}, {"api_version": "2024-10-21"}),
        {"extra_headers": {"X-Beta": SecretStr("on")}},
    ]
    assert len({digest_of(), *(digest_of(**change) for change in changed)}) == 1 + len(changed)
    assert digest_of() == digest_of(base_url="http://127.0.0.1:2/v1", name="other", deadline_seconds=9.0)
    assert digest_of(extra_headers={"X-Beta": SecretStr("off")}) == digest_of(extra_headers={"x-beta": SecretStr("on")})
    assert digest_of(token_parameter="max_completion_tokens") == digest_of()
