"""Reward models as judges: a known linear scorer gets its order back through every route, and fails with a reason."""

import asyncio
import base64
import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pydantic import SecretStr

from app.domain.judging import Case, PanelResult, Rubric
from app.domain.tasks import Message
from app.inference.tokens import ChatTemplate
from app.judges import judge_client
from app.judges.chat_judge import ScriptedJudge, fail_requests, score_by_text
from app.judges.panel import JudgePanel, build_reward_judges
from app.judges.reward_models import RewardModelConfig, RewardRouteName, normalise_rewards
from app.ports.environment import ManagedResource
from app.ports.judges import Judge
from tests.support.chat_server import Received, Reply, Script, serving
from tests.support.judge_cases import KEY, RUBRIC, config
from tests.support.tables import read_table

TEXTS = read_table(__file__, "reward_model_texts.yaml", tuple[str, ...])
ASKED = (Message(role="system", content="You are Hob."), Message(role="user", content="Ferry?"))
TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
Answer = Callable[[float], object]

USAGE = {"prompt_tokens": 9, "total_tokens": 9, "completion_tokens": 0, "prompt_tokens_details": None}


def score(text: str) -> float:
    """Linear in the counts of words, letters and marks. Nine bits behind the point go through every number format."""
    return 3 * len(text.split()) - len(text) / 4 - 2.5 * text.count("!") + text.count("e") / 512


def classified(reward: float) -> object:
    entry = {"index": 0, "label": "LABEL_0", "probs": [reward], "num_classes": 1}
    return {"id": "classify-1", "object": "list", "created": 1, "model": "rm", "data": [entry], "usage": USAGE}


def pooled(data: Callable[[float], object]) -> Answer:
    shared = {"id": "pool-1", "object": "list", "created": 1, "model": "rm", "usage": USAGE}
    return lambda reward: {**shared, "data": [{"index": 0, "object": "pooling", "data": data(reward)}]}


def packed(reward: float) -> str:
    return base64.b64encode(struct.pack("<f", reward)).decode()


def rewarded(reward: float) -> object:
    return {"rewards": [reward], "scores": [reward], "extra_logs": {"dummy_scores": [reward]}}


MESSAGES = [{"role": "system", "content": "You are Hob."}, {"role": "user", "content": "Ferry?"}]
OPENING = "<bos><system>You are Hob.</system><user>Ferry?</user><assistant>"


def messages_of(text: str) -> list[dict[str, str]]:
    return [*MESSAGES, {"role": "assistant", "content": text}]


def rendered(text: str) -> str:
    return f"{OPENING}{text}</assistant>"


def by_messages(**more: object) -> Callable[[str], object]:
    return lambda text: {"model": "rm", "messages": messages_of(text), **more}


def by_text(**more: object) -> Callable[[str], object]:
    return lambda text: {"model": "rm", "input": rendered(text), **more}


def by_query(text: str) -> object:
    return {"query": [rendered(text)], "prompts": [OPENING], "labels": [""]}


def embedded(reward: float) -> object:
    return {"embedding": [reward], "meta_info": {"prompt_tokens": 9}}


def labelled(reward: float) -> object:
    return [{"score": reward, "label": "LABEL_0"}]


Form = tuple[RewardRouteName, bool, str, Callable[[str], object], Answer]
"""Route, whether the template is applied here, path, the body for a text, and the answer to a reward."""

FORMS: dict[str, Form] = {
    "vLLM, messages": ("vllm_classify", False, "/classify", by_messages(use_activation=False), classified),
    "vLLM, text": ("vllm_classify", True, "/classify", by_text(use_activation=False), classified),
    "vLLM pooling": ("vllm_pooling", False, "/pooling", by_messages(), pooled(lambda reward: [reward])),
    "vLLM pooling, nested": ("vllm_pooling", True, "/pooling", by_text(), pooled(lambda reward: [[reward]])),
    "vLLM pooling, base64": ("vllm_pooling", False, "/pooling", by_messages(), pooled(packed)),
    "SGLang": ("sglang_classify", True, "/classify", lambda text: {"text": rendered(text)}, lambda x: [embedded(x)]),
    "SGLang, one": ("sglang_classify", True, "/classify", lambda text: {"text": rendered(text)}, embedded),
    "TEI": ("tei_predict", True, "/predict", lambda text: {"inputs": rendered(text), "raw_scores": True}, labelled),
    "OpenRLHF": ("openrlhf", True, "/get_reward", by_query, rewarded),
}


def build_judge(
    url: str, folder: Path, route: RewardRouteName = "openrlhf", *, here: bool = True, **more: object
) -> Judge:
    (folder / "chat_template.jinja").write_text(TEMPLATE, encoding="utf-8")
    (folder / "tokenizer_config.json").write_text('{"bos_token": "<bos>"}', encoding="utf-8")
    server = config(
        url.removesuffix("/v1"), name="rm", model="rm", max_output_tokens=0, **{"deadline_seconds": 3.0, **more}
    )
    template = ChatTemplate.read(folder) if here else None
    return build_reward_judges([RewardModelConfig(server, route, template)], None)["rm"]


async def judge_group(
    *judges: Judge, texts: tuple[str, ...] = TEXTS, asked: tuple[Message, ...] = ASKED
) -> PanelResult:
    case = Case(key="k", rubric=RUBRIC, document={}, candidates=texts, conversation=asked)
    return (await run_cases(judges, [case]))[0]


async def run_cases(judges: Sequence[Judge], cases: Sequence[Case]) -> list[PanelResult]:
    panel = JudgePanel(judges, 0.5)
    try:
        return [await panel.judge(case) for case in cases]
    finally:
        await asyncio.gather(*(judge.close() for judge in judges if isinstance(judge, ManagedResource)))


def answering(answer: Answer) -> Script:
    """The reply is what stands in the body behind the last mark of the assistant."""

    def script(number: int, received: Received) -> Reply:
        said = json.dumps(received.body, ensure_ascii=False)
        listed = received.body.get("messages")
        text = listed[-1]["content"] if isinstance(listed, list) else said.split("<assistant>", 1)[1].split("<", 1)[0]
        return Reply(json.dumps(answer(score(text))).encode())

    return script


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge_client, "FIRST_PAUSE_SECONDS", 0.01)


@pytest.mark.parametrize("name", FORMS)
async def test_a_linear_scorer_gets_its_rewards_and_order_back(name: str, tmp_path: Path) -> None:
    route, here, path, body, answer = FORMS[name]
    with serving(answering(answer)) as server:
        judged = await judge_group(build_judge(server.url, tmp_path, route, here=here, deadline_seconds=30.0))
    sent = sorted(json.dumps(received.body) for received in server.received)
    assert sent == sorted(json.dumps(body(text)) for text in TEXTS)
    assert {(received.path, received.authorization) for received in server.received} == {(path, f"Bearer {KEY}")}
    said = {one.verdicts[0].candidate: one.verdicts[0].reward for one in judged.judgements}
    assert [said[score_.candidate] for score_ in judged.scores] == [score(text) for text in TEXTS]
    by_reward = sorted(range(len(TEXTS)), key=lambda place: judged.scores[place].reward or 0.0)
    by_relative = sorted(range(len(TEXTS)), key=lambda place: judged.scores[place].relative or 0.0)
    true = sorted(range(len(TEXTS)), key=lambda place: score(TEXTS[place]))
    assert (by_reward, by_relative) == (true, true)
    assert [[one.name for one in score_.criteria] for score_ in judged.scores] == [["reward_model"]] * len(TEXTS)


async def test_a_reward_is_kept_though_a_header_holds_the_same_digits(tmp_path: Path) -> None:
    headers = {"X-Version": SecretStr("2024")}
    with serving(lambda number, received: Reply(b'{"rewards": [0.2024]}')) as server:
        judged = await judge_group(build_judge(server.url, tmp_path, extra_headers=headers), texts=TEXTS[:1])
    assert [one.verdicts[0].reward for one in judged.judgements] == [0.2024]


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(b'{"error": "busy", "error_type": "Overloaded"}', 503), "answered 503; gave up after"),
        (Reply(b'{"error": "`inputs` must have less than 512 tokens", "error_type": "Validation"}', 422), "than 512"),
        (Reply(b"<html>"), "is not JSON"),
        (Reply(b'{"rewards": [1.0, 2.0]}'), "2 values, and a reward model gives one"),
        (Reply(b'{"rewards": []}'), "0 values"),
        (Reply(b'{"rewards": [NaN]}'), "is no number"),
        (Reply(b'{"rewards": [true]}'), "is no number"),
        (Reply(b'{"rewards": ["1.0"]}'), "is no number"),
        (Reply(b'{"reward": [1.0]}'), "an answer of another form"),
        (Reply(b'[1.0]'), "an answer of another form"),
    ],
)  # fmt: skip
async def test_what_fails_is_unscored_with_the_reason(tmp_path: Path, reply: Reply, says: str) -> None:
    with serving(lambda number, received: reply) as server:
        scores = (await judge_group(build_judge(server.url, tmp_path), texts=TEXTS[:2])).scores
    assert [(one.outcome, one.reason, says in one.rationale) for one in scores] == [
        ("unscored", "judge_failed", True)
    ] * 2, scores[0].rationale


async def test_one_text_without_an_answer_leaves_the_group_without_scores(tmp_path: Path) -> None:
    def script(number: int, received: Received) -> Reply:
        whole = answering(rewarded)(number, received)
        return Reply(b"{}", 400) if "No!!!" in json.dumps(received.body) else whole

    with serving(script) as server:
        scores = (await judge_group(build_judge(server.url, tmp_path))).scores
    assert {(one.outcome, one.reason) for one in scores} == {("unscored", "judge_failed")}


async def test_an_environment_without_a_conversation_is_unscored(tmp_path: Path) -> None:
    with serving(answering(rewarded)) as server:
        scores = (await judge_group(build_judge(server.url, tmp_path), asked=())).scores
    assert (scores[0].outcome, "gives no conversation" in scores[0].rationale, server.received) == (
        "unscored",
        True,
        [],
    )


async def test_in_a_panel_it_counts_for_the_order_and_not_for_the_rubric(tmp_path: Path) -> None:
    marks = {"One.": 0.2, "No!!!": 0.8}
    chat = ScriptedJudge(score_by_text(marks))
    with serving(answering(rewarded)) as server:
        both = (await judge_group(chat, build_judge(server.url, tmp_path), texts=tuple(marks))).scores
        alone = (await judge_group(chat, texts=tuple(marks))).scores
        out = ScriptedJudge(fail_requests())
        failed = (await judge_group(out, build_judge(server.url, tmp_path), texts=tuple(marks))).scores
    below, above = normalise_rewards([score(text) for text in marks])
    assert [one.criteria for one in both] == [one.criteria for one in alone]
    assert [one.absolute for one in both] == [one.absolute for one in alone]
    assert [one.relative for one in both] == pytest.approx([(0 + below) / 2, (1 + above) / 2])
    assert {(one.outcome, one.reason) for one in failed} == {("unscored", "judge_failed")}


@pytest.mark.parametrize(
    "rewards", [(-1e300, 0.0, 1e300), (0.0, 1e-300, 2e-300), (5.0, 5.0001, 900.0), (-3.0, -2.0, -2.0, 40.0)]
)
def test_normalising_keeps_the_order_whatever_the_scale(rewards: tuple[float, ...]) -> None:
    found = normalise_rewards(rewards)
    assert sorted(found) == list(found)
    assert len(set(found)) == len(set(rewards))
    assert normalise_rewards([2.0, 2.0]) == (0.5, 0.5)
    assert normalise_rewards([1.0, 2.0, 4.0]) == pytest.approx(normalise_rewards([-7.0, -5.0, -1.0]))


async def test_a_rubric_makes_no_difference_to_what_is_asked(tmp_path: Path) -> None:
    other = Rubric(name="other", version="2", instructions="", criteria=RUBRIC.criteria[:1])
    with serving(answering(rewarded)) as server:
        case = Case(key="k", rubric=RUBRIC, document={}, candidates=TEXTS[:2], conversation=ASKED)
        cases = [case, case.model_copy(update={"rubric": other})]
        first, second = await run_cases([build_judge(server.url, tmp_path)], cases)
    bodies = {json.dumps(received.body) for received in server.received}
    assert (len(bodies), [one.reward for one in first.scores]) == (2, [one.reward for one in second.scores])
