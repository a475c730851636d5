"""A judge behind `transformers serve`, asked by all the commands that ask judges. Its order is known: by length."""

import json
import math
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.envs.npc_arena.environment import NpcArena
from app.judges.meta_evaluation import CheckReport
from tests.support.chat_server import Received
from tests.support.chat_server import serving as chat_serving
from tests.support.evaluating import evaluate
from tests.support.policy_server import MODEL, Speech, script
from tests.support.processing import process
from tests.support.serving import Served, free_port, serving
from tests.trainers.installed import TUNERS, TUNING, running, wait_for_server
from tests.trainers.tokenizer import write_tokenizer

WINDOW: Final = 256
"""Tokens that the verdict is filled up to, and that the head looks back."""
END: Final = "<end>"
END_ID: Final = 256
HEAD: Final = 320
"""Dimensions of the head. The hidden state has twice as many: what a token is, then what comes next."""
HIDDEN: Final = 2 * HEAD
CONSTANT: Final = HEAD - 1
"""The dimension that is the same for all tokens."""
THETA: Final = 100.0
SHARPNESS: Final = 6.0
TEMPLATE: Final = Path(__file__).with_name("judge_template.jinja")


def write_judge_model(folder: Path, criteria: Sequence[str]) -> Path:
    """For `transformers serve`. The longest reply gets 4 in all `criteria`, every other one 1."""
    write_tokenizer(folder)
    opening, more, ranking = '```json\n{"verdicts": [{"candidate": "', ', {"candidate": "', '], "ranking": [["'
    high, low = (f'", "scores": {json.dumps(dict.fromkeys(criteria, level))}}}' for level in (4, 1))
    following, closing = '"], ["', '"]]}\n```'
    pieces = [opening, *(scores + end for scores in (high, low) for end in (more, ranking)), following, closing]
    known = {"HIGH": high, "LOW": low, "MORE": more, "RANKING": ranking, "OPENING": opening}
    known |= {"NEXT": following, "CLOSING": closing}
    settings = "".join(f"{{%- set {name} = {json.dumps(text)} -%}}" for name, text in known.items())
    template = f"{settings}{{%- set WINDOW = {WINDOW} -%}}{TEMPLATE.read_text(encoding='utf-8')}"
    _update(folder / "tokenizer.json", {"added_tokens": _describe_tokens([END, *pieces])})
    _update(folder / "tokenizer_config.json", {"chat_template": template, "eos_token": END, "pad_token": END})
    _update(folder / "config.json", _build_config(END_ID + 1 + len(pieces)))
    _update(folder / "generation_config.json", {"eos_token_id": END_ID, "pad_token_id": END_ID})
    _write_tensors(folder / "model.safetensors", _build_weights(END_ID + 1 + len(pieces)))
    return folder


def _describe_tokens(tokens: Sequence[str]) -> list[dict[str, object]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return [
        {"id": END_ID + place, "content": token, "special": token == END, **flags} for place, token in enumerate(tokens)
    ]


def _build_config(tokens: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": tokens,
        "hidden_size": HIDDEN,
        "intermediate_size": 1,
        "num_hidden_layers": 1,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "head_dim": HEAD,
        "max_position_embeddings": 8192,
        "rope_theta": THETA,
        "rope_parameters": {"rope_type": "default", "rope_theta": THETA},
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "eos_token_id": END_ID,
        "pad_token_id": END_ID,
        "bos_token_id": None,
    }


Numbers = dict[tuple[int, ...], float]
Matrix = tuple[tuple[int, ...], Numbers]
"""A shape, and the numbers that are not 0."""


def _build_weights(tokens: int) -> Mapping[str, Matrix]:
    half = HEAD // 2
    angles = [WINDOW * THETA ** (-place / half) for place in range(half)]
    keys: Numbers = {(place, CONSTANT): SHARPNESS for place in range(half)}
    queries: Numbers = {(place, CONSTANT): SHARPNESS * math.cos(angle) for place, angle in enumerate(angles)}
    queries |= {(half + place, CONSTANT): -SHARPNESS * math.sin(angle) for place, angle in enumerate(angles)}
    layer = "model.layers.0."
    return {
        "model.embed_tokens.weight": (
            (tokens, HIDDEN),
            {(token, dimension): 1.0 for token in range(tokens) for dimension in (token, CONSTANT)},
        ),
        f"{layer}self_attn.q_proj.weight": ((HEAD, HIDDEN), queries),
        f"{layer}self_attn.k_proj.weight": ((HEAD, HIDDEN), keys),
        f"{layer}self_attn.v_proj.weight": ((HEAD, HIDDEN), {(token, token): 1.0 for token in range(tokens)}),
        f"{layer}self_attn.o_proj.weight": ((HIDDEN, HEAD), {(HEAD + token, token): 1.0 for token in range(tokens)}),
        f"{layer}mlp.gate_proj.weight": ((1, HIDDEN), {}),
        f"{layer}mlp.up_proj.weight": ((1, HIDDEN), {}),
        f"{layer}mlp.down_proj.weight": ((HIDDEN, 1), {}),
        f"{layer}input_layernorm.weight": ((HIDDEN,), {(place,): 1.0 for place in range(HIDDEN)}),
        f"{layer}post_attention_layernorm.weight": ((HIDDEN,), {}),
        "model.norm.weight": ((HIDDEN,), {(place,): 1.0 for place in range(HIDDEN)}),
        "lm_head.weight": ((tokens, HIDDEN), {(token, HEAD + token): 10.0 for token in range(tokens)}),
    }


def _write_tensors(path: Path, tensors: Mapping[str, Matrix]) -> None:
    """In the format of safetensors: the length of a header, the header, the numbers."""
    described: dict[str, object] = {}
    data = b""
    for name, (shape, numbers) in tensors.items():
        values = array("f", bytes(4 * math.prod(shape)))
        for place, number in numbers.items():
            values[place[0] * shape[-1] + place[1] if len(place) == 2 else place[0]] = number
        described[name] = {"dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + 4 * len(values)]}
        data += values.tobytes()
    header = json.dumps({"__metadata__": {"format": "pt"}, **described}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + data)


def _update(path: Path, more: Mapping[str, object]) -> None:
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps({**kept, **more}), encoding="utf-8")


NEEDS = TUNING
CRITERIA = [criterion.name for criterion in NpcArena.rubric.criteria] if NpcArena.rubric else []
REPLIES = (
    "Ask me something else, friend.",
    "I have nothing more to say of that tonight, friend, and the fire is nearly out.",
    "That is a long story, friend. Sit down, and mind the step.",
)


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Of a gateway whose judge of NPC Arena is served from a folder."""
    folder = tmp_path_factory.mktemp("served")
    model = write_judge_model(folder / "judge", CRITERIA)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    arguments = ("transformers", "serve", model, "--host", "127.0.0.1", "--port", port, "--device", "cpu")

    with running(folder, *arguments, installed=TUNERS) as server:
        wait_for_server(server, f"{url}/health")
        prefix = "ATROPOS_ENVS_JUDGES__SERVED__"
        yield {
            f"{prefix}BASE_URL": f"{url}/v1",
            f"{prefix}MODEL": str(model),
            f"{prefix}JSON_MODE": "schema",
            f"{prefix}EXPECTED_SCORES": "true",
            f"{prefix}MAX_CONCURRENCY": "2",
            "ATROPOS_ENVS_ENVIRONMENTS__NPC_ARENA__JUDGES": '["served"]',
        }


@pytest.fixture
def gateway(settings: dict[str, str], tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path, settings=settings) as served:
        yield served


def reply(received: Received, place: int) -> Speech:
    return Speech(REPLIES[place % len(REPLIES)])


@pytest.mark.slow
def test_the_check_finds_out_what_it_prefers_and_ignores(
    settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    ran = CliRunner().invoke(cli, ["judges", "check", "served", "--sheets", "1", "--json", "out.json", "--yes"])
    found = CheckReport.model_validate_json(Path("out.json").read_bytes())
    shares = {figure.name: figure.value for figure in found.figures}
    assert ran.exit_code == 1, ran.output
    assert (shares["answered"], shares["swap consistency"]) == (1.0, 1.0)
    assert "served: the server ignores response_format" in ran.output
    assert "served: the server ignores logprobs" in ran.output


def test_groups_of_process_get_its_order(gateway: Served, tmp_path: Path) -> None:
    with chat_serving(script(reply), models=[MODEL]) as policy:
        done = process(
            gateway.url, policy.url, tmp_path / "out.jsonl", "--env", "npc_arena", "--limit", "2", "--group-size", "3"
        )
    lengths = [[len(str(messages[-1]["content"])) for messages in line.messages] for line in done.lines]
    assert done.exit_code == 0, done.told
    assert len(done.lines) == 2
    for scores, long in zip((line.scores for line in done.lines), lengths, strict=True):
        assert sorted(range(3), key=scores.__getitem__) == sorted(range(3), key=long.__getitem__)
    (judge,) = [one for one in httpx.get(f"{gateway.url}/judges").json()["judges"] if one["name"] == "served"]
    assert (judge["report"]["health"], judge["report"]["changes"]) == ("ok", [])
    assert judge["report"]["ignored"] == ["response_format", "logprobs"]


def test_evaluate_is_scored_by_it(gateway: Served, tmp_path: Path) -> None:
    with chat_serving(script(reply), models=[MODEL]) as policy:
        chosen = ("--env", "npc_arena", "--tasks", "2", "--samples", "3")
        done = evaluate(gateway.url, policy.url, tmp_path / "out", *chosen)
    assert done.exit_code == 0, done.told
    assert [(one.outcome, one.judges) for one in done.attempts] == [("scored", ("served",))] * 6
