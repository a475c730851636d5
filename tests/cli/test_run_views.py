"""Runs and groups in a terminal and for a script, against a real gateway."""

import json

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.cli.runs import build_address, build_question
from tests.support.gateways import Gateways
from tests.support.serving import Served

FIRST, SECOND = "looked-at", "looked-at-2"


@pytest.fixture(scope="module")
def served(gateways: Gateways) -> Served:
    gateway = gateways.of()
    asked = "batch_size=3&cursor=0&split=test"
    handed = httpx.get(f"{gateway.url}/envs/npc_arena/next-batch?{asked}&run={FIRST}").json()["tasks"]
    for run, step, text in (
        (FIRST, 5, "As an AI language model I cannot."),
        (SECOND, 9, "Well met, friend. Mind the step, for it is wet tonight."),
    ):
        groups = [{"task_id": task["task_id"], "completions": [{"text": text}]} for task in handed]
        body = {"run": run, "groups": groups, "policy": {"model": "m", "step": step}}
        httpx.post(f"{gateway.url}/score", json=body).raise_for_status()
    return gateway


def ask(served: Served, *words: str) -> tuple[int, str]:
    ran = CliRunner().invoke(cli, [*words, "--url", served.url])
    return ran.exit_code, ran.stdout + ran.stderr


def test_runs_are_lines_with_tabs_when_piped(served: Served) -> None:
    code, output = ask(served, "runs", "list")
    rows = [line.split("\t") for line in output.splitlines()]
    assert (code, rows[0][:2]) == (0, ["run", "state"])
    assert [row[1:2] + row[3:5] for row in rows if row[0] == FIRST] == [["training", "npc_arena", "3"]]
    data = json.loads(ask(served, "runs", "list", "--json")[1])
    assert {FIRST, SECOND} <= {row["run"]["name"] for row in data["runs"]}


def test_a_run_is_shown(served: Served) -> None:
    code, output = ask(served, "runs", "show", FIRST)
    lines = output.splitlines()
    assert (code, "state\ttraining" in lines, "all\t3\t3\t0\t0.000\t0.000\t-\t100.0%" in lines) == (0, True, True)
    assert json.loads(ask(served, "runs", "show", FIRST, "--json")[1])["report"]["run"]["name"] == FIRST
    code, output = ask(served, "runs", "show", "nobody")
    assert (code, "there is no run nobody" in output) == (2, True)


def test_two_runs_are_compared_by_their_own_judge_with_a_warning(served: Served) -> None:
    refused, why = ask(served, "runs", "compare", FIRST, f"{SECOND}@9", "--judge", "another")
    code, output = ask(served, "runs", "compare", FIRST, f"{SECOND}@1-9", "--same-judge")
    lines = output.splitlines()
    assert (refused, "the judge has not scored groups of both" in why) == (2, True)
    # Every answer of the first failed a gate, so that nobody judged it.
    assert (code, lines[0].startswith("Second: Scored by offline, which has no model")) == (0, True)
    assert f"/view/compare?first={FIRST}&second={SECOND}&second_steps=1-9&judge=own" in output
    data = json.loads(ask(served, "runs", "compare", FIRST, SECOND, "--same-judge", "--json")[1])
    ahead = data["compared"]["comparison"]["improved"]
    assert (ahead > 0, f"the second is ahead on {ahead}, the first on 0, alike on {3 - ahead}" in lines) == (True, True)
    code, output = ask(served, "runs", "compare", FIRST, f"{SECOND}@1")
    assert (code, "has no group with a score" in output) == (2, True)


def test_a_group_is_shown_with_its_texts(served: Served) -> None:
    group = httpx.get(f"{served.url}/groups?run={SECOND}&limit=1").json()["groups"][0]["group_id"]
    code, output = ask(served, "groups", "show", group, "--texts")
    said = output.count("Well met, friend. Mind the step, for it is wet tonight.")
    assert (code, "policy\tm, step 9" in output.splitlines(), said) == (0, True, 2)
    assert json.loads(ask(served, "groups", "show", group, "--json")[1])["group"]["group_id"] == group
    code, output = ask(served, "groups", "show", "group_" + "0" * 32)
    assert code == 2


def test_runs_with_steps_become_fields() -> None:
    about = {"environment": None, "label": "hob"}
    assert build_question("a@3", "b", about, None) == {
        "label": "hob",
        "first": "a",
        "first_steps": "3-3",
        "second": "b",
    }
    with pytest.raises(ValueError, match="is no run, such as my-run"):
        build_question("A b", "b", about, None)


def test_an_address_can_be_opened_whatever_the_label() -> None:
    assert build_address("http://envs.example", {"label": "hob & son#2", "first": "a"}) == (
        "http://envs.example/view/compare?label=hob+%26+son%232&first=a"
    )
