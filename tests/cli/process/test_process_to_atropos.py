"""`process --to atropos`: registered, in step with the trainer, each group there once."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import JsonValue

from tests.support.chat_server import serving as serving_policy
from tests.support.data_sets import numbered_rows
from tests.support.gateways import Gateways
from tests.support.policy_server import answers_rows, script
from tests.support.processing import Processed, process
from tests.support.serving import Served, serving
from tests.support.small_servers import Handler, Server, running
from tests.support.tables import read_table

Fails = Callable[[int], int]
"""The status for the n-th post; 200 keeps it."""


@dataclass
class Kept:
    posts: list[bytes] = field(default_factory=list)
    registrations: list[dict[str, JsonValue]] = field(default_factory=list)
    queued: list[int] = field(default_factory=list)
    """What `/status-env` says, one after another; then 0."""
    asked: int = 0

    @property
    def groups(self) -> list[dict[str, JsonValue]]:
        """Equal bodies are one group, as our own API has it."""
        return [json.loads(body) for body in dict.fromkeys(self.posts)]


class _Server(Server):
    def __init__(self, kept: Kept, fails: Fails, longest: int, patience: int) -> None:
        super().__init__(_Handler)
        self.kept, self.fails, self.longest, self.patience = kept, fails, longest, patience


class _Handler(Handler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        self.read_body()
        if self.path == "/info":
            self._say(200, {"batch_size": 4, "max_token_len": server.longest})
            return
        with server.lock:
            queued = server.kept.queued.pop(0) if server.kept.queued else 0
        known = len(server.kept.registrations) > server.patience
        self._say(200 if known else 500, {"current_step": 0, "queue_size": queued})

    def do_POST(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        body = self.read_body()
        with server.lock:
            if self.path == "/register-env":
                server.kept.registrations.append(json.loads(body))
                early = len(server.kept.registrations) <= server.patience
                wait: JsonValue = {"status": "wait for trainer to start"}
                self._say(200, wait if early else {"status": "success", "env_id": 3})
                return
            status = server.fails(server.kept.asked)
            server.kept.asked += 1
            if status in {200, 502}:  # a gateway between us lost the acknowledgement
                server.kept.posts.append(body)
        self._say(status, {"status": "received"})

    def _say(self, status: int, value: JsonValue) -> None:
        self.answer(json.dumps(value).encode(), status)


@contextmanager
def recording(
    kept: Kept, fails: Fails = lambda number: 200, *, longest: int = 4096, patience: int = 0
) -> Iterator[str]:
    """Its address. The first `patience` registrations come before the trainer."""
    with running(_Server(kept, fails, longest, patience)) as server:
        yield server.url


ROWS = 8
FIELDS = ["tokens", "masks", "scores", "inference_logprobs", "messages", "generation_params", "env_id"]


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    return gateways.of_rows(ROWS)


def fed(gateway: Served, atropos: str, run: str, out: Path, *more: str) -> Processed:
    given = ("--env", "gsm8k", "--run", run, "--to", "atropos", "--atropos", atropos)
    with serving_policy(script(answers_rows)) as policy:
        return process(gateway.url, policy.url, out, *given, *more)


TRAINER = read_table(__file__, "atropos_trainer.yaml", dict[str, Any])


def test_the_gateways_key_opens_its_own_api_too(tmp_path: Path) -> None:
    settings = {
        "ATROPOS_ENVS_API_KEY": "secret-7",
        "ATROPOS_ENVS_DATASETS__GSM8K": str(numbered_rows(tmp_path / "d", 3)),
    }
    given = ("--env", "gsm8k", "--to", "atropos", "--api-key", "secret-7")
    with (
        serving(tmp_path, settings=settings) as gateway,
        serving_policy(script(answers_rows)) as policy,
        httpx.Client(base_url=f"{gateway.url}/compat/atropos", headers={"Authorization": "Bearer secret-7"}) as trainer,
    ):
        trainer.post("/register", json=TRAINER).raise_for_status()
        trainer.get("/batch").raise_for_status()
        done = process(gateway.url, policy.url, tmp_path / "fed", *given)
        queued = trainer.get("/status").raise_for_status().json()["queue_size"]
        seen = [one.authorization for one in policy.received]
    assert (done.exit_code, queued, set(seen)) == (0, 3, {""}), done.told


def test_the_gateways_own_api_hands_each_group_to_its_trainer(gateway: Served, tmp_path: Path) -> None:
    api = f"{gateway.url}/compat/atropos/own"
    httpx.post(f"{api}/register", json=TRAINER).raise_for_status()
    assert httpx.get(f"{api}/batch").json() == {"batch": None}
    done = fed(gateway, api, "own", tmp_path / "fed", "--batches-ahead", "10")
    taken = []
    while (batch := httpx.get(f"{api}/batch").raise_for_status().json()["batch"]) is not None:
        taken += [str(group["messages"]) for group in batch if group["scores"] == [1.0, 0.0]]
    assert (done.exit_code, len(taken), len(set(taken))) == (0, ROWS, ROWS), done.told


def questions(kept: Kept) -> set[str]:
    return {str(group["messages"]) for group in kept.groups}


def test_it_registers_and_posts_the_fields_that_it_knows(gateway: Served, tmp_path: Path) -> None:
    kept = Kept()
    with recording(kept, patience=2) as url:
        done = fed(gateway, url, "fields", tmp_path / "fed", "--weight", "2")
    registration: dict[str, JsonValue] = {
        "max_token_length": 1024,
        "desired_name": "gsm8k",
        "weight": 2.0,
        "group_size": 2,
        "min_batch_allocation": None,
    }
    fields = [list(group) for group in kept.groups]
    ids = {str(group["env_id"]) for group in kept.groups}
    assert (done.exit_code, kept.registrations, fields, ids) == (0, [registration] * 3, [FIELDS] * ROWS, {"3"}), (
        done.told
    )


def test_a_post_that_fails_is_repeated_byte_for_byte(gateway: Served, tmp_path: Path) -> None:
    kept = Kept()
    with recording(kept, lambda number: {1: 503, 3: 502}.get(number, 200)) as url:
        done = fed(gateway, url, "repeated", tmp_path / "fed")
    assert (done.exit_code, len(kept.posts), len(questions(kept))) == (0, ROWS + 1, ROWS), done.told


def test_a_second_start_goes_on_under_the_same_number(gateway: Served, tmp_path: Path) -> None:
    kept = Kept()
    with recording(kept) as url:
        first = fed(gateway, url, "again", tmp_path / "fed", "--limit", "3")
        last = fed(gateway, url, "again", tmp_path / "fed")
    told = (first.exit_code, last.exit_code, len(kept.registrations), len(kept.posts), len(questions(kept)))
    assert told == (0, 0, 1, ROWS, ROWS)


def test_it_pauses_while_the_trainer_has_enough(gateway: Served, tmp_path: Path) -> None:
    """Batches of 4 are two groups of 2: with two batches ahead it waits from 4 queued groups on."""
    kept = Kept(queued=[4, 5, 3])
    with recording(kept) as url:
        done = fed(gateway, url, "paused", tmp_path / "fed", "--batches-ahead", "2")
    assert (done.exit_code, kept.queued, len(questions(kept))) == (0, [], ROWS), done.told


def test_groups_that_are_too_long_for_the_trainer_are_left_out(gateway: Served, tmp_path: Path) -> None:
    kept = Kept()
    with recording(kept, longest=50) as url:
        done = fed(gateway, url, "long", tmp_path / "fed")
    assert (done.exit_code, kept.posts, f"left out: too_long │ {ROWS}" in done.told) == (0, [], True), done.told


def test_a_refusal_is_told_and_nothing_is_lost(gateway: Served, tmp_path: Path) -> None:
    kept = Kept()
    with recording(kept, lambda number: 422 if number == 2 else 200) as url:
        first = fed(gateway, url, "refused", tmp_path / "fed", "--concurrency", "1")
        last = fed(gateway, url, "refused", tmp_path / "fed")
    told = ("returned 422" in first.told, first.exit_code, last.exit_code)
    assert (told, len(questions(kept))) == ((True, 2, 0), ROWS), last.told
