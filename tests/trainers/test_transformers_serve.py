"""A judge behind `transformers serve`, asked by all the commands that ask judges. Its order is known: by length."""

from collections.abc import Iterator
from pathlib import Path

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
from tests.trainers.judge_model import write_judge_model

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
