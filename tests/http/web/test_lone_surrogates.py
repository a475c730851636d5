"""Half characters in a request: read as U+FFFD where a model wrote them, refused by name everywhere else."""

import json
import re

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, JsonValue

from app.domain.tasks import Completion
from app.http.compat.nemo_gym import MetricsRequest, VerifyRequest
from app.http.compat.openrlhf import Queries
from app.http.compat.ors import GroupRequest, ToolCallRequest
from app.http.compat.slime import SlimeSample
from app.http.web.bodies import LARGE_BYTES, BodyReader
from app.http.web.problems import RefusedBody
from app.service.requests import ScoreRequest, StepRequest
from tests.support.gateways import Gateways
from tests.support.tables import read_table
from tests.support.tiers import examples

TASK = "task_" + "0" * 32
HALF = "\ud83d"
SIGN = "\ufffd"


def mend(value: JsonValue) -> JsonValue:
    """What should be read: the rule of the tests, which knows nothing of fields."""
    written = json.dumps(value)
    return json.loads(re.sub(r"\\ud83d(?!\\ud[c-f])", r"\\ufffd", written))  # type: ignore[no-any-return]


def read(value: JsonValue, model: type[BaseModel] = ScoreRequest) -> BaseModel:
    return BodyReader(model).read(json.dumps(value).encode())


words = st.lists(st.sampled_from([HALF, "\U0001f600", "é", "\\ud800", " #### 42", "\\", '"'])).map("".join)
values = st.recursive(words, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3))
calls = st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": words, "arguments": values})})
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "tool"]), "content": words},
    optional={"tool_calls": st.lists(calls, max_size=2), "reasoning": words},
)
completions = st.fixed_dictionaries({"text": words}) | st.fixed_dictionaries({"messages": st.lists(messages)})


@settings(max_examples=examples(200), deadline=None, derandomize=True)
@given(st.lists(completions, min_size=1, max_size=3), st.sampled_from([0, LARGE_BYTES]))
def test_what_a_model_wrote_is_read_as_if_it_had_sent_the_sign_for_no_text(sent: list[JsonValue], size: int) -> None:
    body: JsonValue = {"groups": [{"task_id": TASK, "completions": [*sent, {"text": "x" * size}]}]}
    assert read(body) == read(mend(body))


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        (StepRequest, {"task_id": TASK, "messages": [{"role": "assistant", "content": HALF}]}),
        (SlimeSample, {"response": HALF}),
        (Queries, {"query": ["?", HALF], "prompts": ["", ""]}),
        (ToolCallRequest, {"name": "answer", "input": {"text": HALF}}),
        (
            GroupRequest,
            {"candidates": [{"messages": [{"role": "assistant", "blocks": [{"type": "text", "text": HALF}]}]}]},
        ),
        (
            VerifyRequest,
            {
                "task_id": TASK,
                "responses_create_params": {},
                "response": {"output": [{"content": [{"type": "output_text", "text": HALF}]}]},
            },
        ),
        (MetricsRequest, {"verify_responses": [{"reward": 1.0, "response": {"output_text": HALF}}]}),
    ],
)
def test_other_trainers_completions_are_read_so_too(model: type[BaseModel], sent: JsonValue) -> None:
    assert read(sent, model) == read(mend(sent), model)


@pytest.mark.parametrize("size", [0, LARGE_BYTES])
@pytest.mark.parametrize(
    ("where", "field"), read_table(__file__, "refused_halves.yaml", list[tuple[dict[str, JsonValue], str]])
)
def test_everything_else_is_refused_by_name(where: dict[str, JsonValue], field: str, size: int) -> None:
    with pytest.raises(RefusedBody) as refused:
        read({**where, "beside": "x" * size})
    assert (refused.value.status_code, [one.field for one in refused.value.errors]) == (422, [field])


@pytest.mark.parametrize("depth", [33, 600, 900, 100_000])
@pytest.mark.parametrize("size", [0, LARGE_BYTES])
def test_one_that_lies_deep_is_refused_and_breaks_nothing(depth: int, size: int) -> None:
    call = f'{{"function": {{"name": "a", "arguments": {"[" * depth}"\\ud83d{"x" * size}"{"]" * depth}}}}}'
    messages = f'[{{"role": "assistant", "tool_calls": [{call}]}}]'
    body = f'{{"groups": [{{"task_id": "{TASK}", "completions": [{{"messages": {messages}}}]}}]}}'
    with pytest.raises(RefusedBody) as refused:
        BodyReader(ScoreRequest).read(body.encode())
    assert refused.value.status_code == (422 if depth < 100 else 400)


@pytest.mark.parametrize(
    ("completion", "malformed"), read_table(__file__, "malformed_texts.yaml", list[tuple[JsonValue, bool]])
)
def test_a_completion_is_malformed_where_the_model_wrote_no_text(completion: JsonValue, malformed: bool) -> None:
    assert Completion.model_validate(completion).is_malformed == malformed


@pytest.mark.parametrize("size", [0, LARGE_BYTES])
def test_a_right_answer_beside_one_is_paid_and_flagged_and_others_are_as_before(gateways: Gateways, size: int) -> None:
    url = gateways.of_rows(3).url
    batch = httpx.post(f"{url}/envs/gsm8k/next-batch", json={"split": "test", "cursor": 2, "batch_size": 1}).json()
    texts = [f"{HALF} #### 2", f"#### 2 {HALF}", "#### 2", f"#### 3{HALF}"]
    completions = [{"text": text, "extra": {"beside": "x" * size}} for text in texts]
    group = {"task_id": batch["tasks"][0]["task_id"], "completions": completions}
    body = json.dumps({"groups": [group]}).encode()
    reply = httpx.post(f"{url}/envs/gsm8k/score", content=body, headers={"Content-Type": "application/json"}).json()
    (told,) = reply["groups"]
    kept = httpx.get(f"{url}/groups/{told['group_id']}").json()["group"]["rollouts"]
    flag = ["malformed_text"]
    assert (
        told["rewards"],
        [score["flags"] for score in told["scores"]],
        [one["completion"]["text"] for one in kept],
    ) == ([1.0, 1.0, 1.0, 0.0], [flag, flag, [], flag], [text.replace(HALF, SIGN) for text in texts])
