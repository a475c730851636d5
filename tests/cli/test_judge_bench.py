"""`judges bench` from the terminal, against a judge on the other side of a socket."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from app.cli.main import cli
from app.main.application import create_app
from app.settings import read_settings
from tests.support.chat_server import Received, Reply, serving
from tests.support.preferring import complete, write_verdict
from tests.support.shown_prompts import shown_to
from tests.support.tables import read_table

TABLE = read_table(__file__, "judge_bench.yaml", tuple[tuple[tuple[str, ...], str], ...])

RUN = CliRunner()
PRICES = {"input_price_per_million": "2.5", "output_price_per_million": "10"}


def configure(monkeypatch: pytest.MonkeyPatch, url: str, **more: str) -> None:
    for name, value in {"base_url": url, "model": "stern-1", **more}.items():
        monkeypatch.setenv(f"ATROPOS_ENVS_JUDGES__STERN__{name.upper()}", value)


def prefer(better: Callable[[str], bool]) -> Callable[[int, Received], Reply]:
    def answer(number: int, received: Received) -> Reply:
        shown = shown_to(received)
        levels = {letter: 4 if better(text) else 1 for letter, text in shown.texts.items()}
        return complete(write_verdict(shown, levels), 1000, 100)

    return answer


def write_labels(count: int) -> str:
    rows = [{"prompt": f"question {n}", "chosen": f"good {n}", "rejected": f"bad {n}"} for n in range(count)]
    Path("labels.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return "labels.jsonl"


def bench(*more: str) -> tuple[int, str]:
    ran = RUN.invoke(cli, ["judges", "bench", "--judge", "stern", *more])
    return ran.exit_code, ran.output


def test_a_bench_that_was_stopped_goes_on_and_pays_for_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = write_labels(6)
    with serving(prefer(lambda text: text.startswith("good"))) as server:
        configure(monkeypatch, server.url, **PRICES)
        bench("--labels", labels, "--limit", "3", "--modes", "listwise", "--yes")
        first = len(server.received)
        ran = RUN.invoke(cli, ["judges", "bench", "--judge", "stern", "--labels", labels, "--json", "--yes"])
        again = RUN.invoke(cli, ["judges", "bench", "--judge", "stern", "--labels", labels, "--json", "--yes"])
        asked = len(server.received)
    report = json.loads(ran.stdout)
    modes = {one["mode"]: one for one in report["modes"]}
    listwise = modes["listwise"]
    assert (report["form"], sorted(modes), first) == ("preferences", ["listwise", "pairwise", "pointwise"], 6)
    assert (listwise["groups"], listwise["pair_accuracy"]["value"], listwise["calls_per_group"]) == (6, 1.0, 2.0)
    assert listwise["usd_per_thousand_groups"] == pytest.approx(2 * 1000 * (1000 * 2.5 + 100 * 10) / 1e6)
    assert asked == sum(round(6 * one["calls_per_group"]) for one in modes.values())
    assert json.loads(again.stdout)["modes"] == report["modes"]
    assert list_kept() == ["--labels labels.jsonl", "--labels labels.jsonl --limit 3 --modes listwise"]


def list_kept() -> list[str]:
    """What the judge's page says of benches, by what followed the judge's name in the command; the newest first."""
    with TestClient(create_app(read_settings(), environments={}), base_url="http://127.0.0.1") as client:
        sources = client.get("/view/judges/stern?format=json").json()["sources"]
    evidence = next(source["evidence"] for source in sources if source["title"] == "Public data")
    return [one["command"].removeprefix("atropos-envs judges bench --judge stern ") for one in evidence]


def test_a_group_that_is_judged_again_says_how_far_a_judge_agrees_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge that changes its mind on every second pair. What was answered is not asked again."""
    labels, met = write_labels(8), set[str]()

    def waver(number: int, received: Received) -> Reply:
        shown = shown_to(received)
        key = f"{[*shown.texts.values()]}"
        turned = key in met and int(key[-3]) % 2 == 1
        met.add(key)
        levels = {letter: 4 if text.startswith("good") != turned else 1 for letter, text in shown.texts.items()}
        return complete(write_verdict(shown, levels), 1000, 100)

    options = ("--labels", labels, "--modes", "listwise", "--repeat", "2", "--yes")
    with serving(waver) as server:
        configure(monkeypatch, server.url)
        ran = RUN.invoke(cli, ["judges", "bench", "--judge", "stern", *options, "--json"])
        asked = len(server.received)
        _, output = bench(*options)
    figures = json.loads(ran.stdout)["modes"][0]
    assert (figures["self_agreement"]["value"], figures["pair_accuracy"]["value"], asked) == (0.5, 1.0, 32)
    assert (asked, "agreement with itself" in output) == (len(server.received), True)


REWARD_MODEL = {"kind": "reward_model", "route": "vllm_classify", "chat_template": "server"}


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        (PRICES, ["listwise: 8 to 16 calls", "this costs money and there is no terminal"]),
        ({}, ["listwise: 8 to 16 calls", "the price is not known and there is no terminal"]),
        (REWARD_MODEL, ["its cost is not estimated", "the price is not known and there is no terminal"]),
    ],
    ids=["priced", "unpriced", "reward_model"],
)
def test_the_cost_comes_first(monkeypatch: pytest.MonkeyPatch, judge: dict[str, str], words: list[str]) -> None:
    labels = write_labels(4)
    with serving(prefer(lambda text: True)) as server:
        url = server.url.removesuffix("/v1") if judge == REWARD_MODEL else server.url
        configure(monkeypatch, url, **judge)
        code, output = bench("--labels", labels)
        received = len(server.received)
    assert (code, received, [one for one in words if one not in output]) == (2, 0, []), output


@pytest.mark.parametrize(("arguments", "words"), TABLE)
def test_mistakes_are_one_sentence(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], words: str) -> None:
    configure(monkeypatch, "http://127.0.0.1:9/v1")
    write_labels(1)
    Path("other.csv").write_text("question,answer\na,b\n", encoding="utf-8")
    pair = '{"question": "q", "response_A": "a", "response_B": "b", "label": "%s"}\n'
    Path("pairs.jsonl").write_text(pair % "A>B" + "\n" + pair % "A", encoding="utf-8")
    code, output = bench(*arguments)
    assert (code, words in output) == (2, True), output
