"""A tournament of policy servers over a served gateway: they are asked first, once, and for the same tasks."""

import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import cli
from app.cli.tournament.contestants import Entrant, FreshContestant, require_own_runs
from app.domain.errors import InvalidRequest
from app.evaluation.duels import Contestant, TournamentReport
from tests.support.chat_server import ChatServer, Received, Reply
from tests.support.chat_server import serving as serving_policy
from tests.support.gateways import Gateways
from tests.support.policy_server import MODEL, Speech, script
from tests.support.serving import Served

TASKS = 2


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    return gateways.of()


class Player:
    """Says one line to everybody. After `most` answers its server is out of order, until somebody mends it."""

    def __init__(self, line: str, most: int | None = None) -> None:
        self.most = most
        self.answered: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._answer = script(lambda received, place: Speech(line))

    def __call__(self, number: int, received: Received) -> Reply:
        if received.messages[-1]["content"] != "Hello.":
            with self._lock:
                if self.most is not None and self.answered.total() >= self.most:
                    return Reply(b"{}", status=503)
                self.answered[str(received.messages)] += 1
        return self._answer(number, received)


def hold(gateway: Served, out: Path, policies: Mapping[str, str], *more: str) -> tuple[int, str]:
    given = [word for name, url in policies.items() for word in ("--policy", f"{name}={url},{MODEL}")]
    asked = ("--env", "npc_arena", "--tasks", str(TASKS), "--judge", "offline", "--same-model", "--patience", "0")
    ends = ("--url", gateway.url, "--out", str(out))
    done = CliRunner().invoke(cli, ["tournament", *given, *asked, *ends, *more], env={"COLUMNS": "200"})
    failed = "" if done.exception is None or isinstance(done.exception, SystemExit) else repr(done.exception)
    return done.exit_code, done.output + failed


def urls(*servers: ChatServer) -> dict[str, str]:
    return dict(zip(("plain", "warm"), (server.url for server in servers), strict=True))


def test_policies_are_asked_once_and_then_meet(gateway: Served, tmp_path: Path) -> None:
    """One server fails in the middle; then it is back; then both are gone, and nothing is missing."""
    out = tmp_path / "out"
    plain, warm = Player("Hm."), Player("Aye, traveller, the mill road is safe until dusk.", most=1)
    with serving_policy(plain, models=[MODEL]) as one, serving_policy(warm, models=[MODEL]) as other:
        policies = urls(one, other)
        dry = hold(gateway, out, policies, "--dry-run")
        nothing = (out.exists(), plain.answered.total(), httpx.get(f"{gateway.url}/runs/warm").status_code)
        broken = hold(gateway, out, policies)
        warm.most = None
        done = hold(gateway, out, policies)
    again = hold(gateway, out, policies)
    report = TournamentReport.model_validate_json((out / "tournament.json").read_bytes())
    stored = [
        httpx.get(f"{gateway.url}/groups?purpose=eval&run={name}").raise_for_status().json()["groups"]
        for name in policies
    ]
    assert (dry[0], nothing, broken[0], done[0], again[0]) == (0, (False, 0, 404), 2, 0, 0), (dry, broken, done, again)
    assert "at most 2 duels, 4 calls of the judge, about 0.00 US dollars" in dry[1]
    assert "contestant warm: 1 of 2 replies are missing" in broken[1]
    assert (max(plain.answered.values()), plain.answered, len(plain.answered)) == (1, warm.answered, TASKS)
    tasks = [sorted(group["task_id"] for group in groups) for groups in stored]
    assert (tasks[0], len(tasks[0])) == (tasks[1], TASKS)
    assert (sorted(row.name for row in report.standings), report.planned, report.decided) == (
        ["plain", "warm"],
        TASKS,
        TASKS,
    )


def test_policies_meet_what_is_stored_if_it_has_their_tasks(gateway: Served, tmp_path: Path) -> None:
    old, new = Player("Good day to you."), Player("Good evening to you.")
    with serving_policy(old, models=[MODEL]) as one, serving_policy(new, models=[MODEL]) as other:
        hold(gateway, tmp_path / "first", {"old": one.url, "new": other.url})
        stored, asked = str(tmp_path / "first" / "old"), new.answered.total()
        mixed = hold(gateway, tmp_path / "mixed", {"newer": other.url}, stored)
        apart = hold(gateway, tmp_path / "apart", {"later": other.url}, stored, "--seed", "7")
        seeds = hold(gateway, tmp_path / "seeds", {"old": one.url, "later": other.url}, "--seed", "7")
    report = TournamentReport.model_validate_json((tmp_path / "mixed" / "tournament.json").read_bytes())
    assert ([each.name for each in report.setup.contestants], report.decided) == (["small", "newer"], TASKS), mixed
    assert [
        (code, words in text)
        for (code, text), words in (
            (apart, "has no reply to the tasks that later would be asked"),
            (seeds, "old and later would not be asked the same tasks"),
        )
    ] == [(2, True)] * 2, (apart, seeds)
    assert new.answered.total() == asked + TASKS


def test_who_is_away_is_named_before_anybody_is_asked(gateway: Served, tmp_path: Path) -> None:
    plain = Player("Hm.")
    with serving_policy(plain, models=[MODEL]) as one:
        away = hold(gateway, tmp_path, {"plain-2": one.url, "warm-2": "http://127.0.0.1:9/v1"})
        other = hold(gateway, tmp_path, {"plain-2": f"{one.url},big/", "warm-2": one.url})
    told = ("contestant warm-2: http://127.0.0.1:9/v1 does not answer", "contestant plain-2: ")
    assert [(code, words in text) for (code, text), words in zip((away, other), told, strict=True)] == [(2, True)] * 2
    assert "has no model" in other[1]
    assert plain.answered.total() == 0


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--policy", "a"], "--policy a: use NAME=URL or NAME=URL,MODEL"),
        (["--policy", "A b=http://x"], "--policy A b: use at most 64"),
        (["--policy", "a=http://x", "--policy", "a=http://y", "--env", "npc_arena"], "needs a name of its own"),
        (["--policy", "a=http://x", "--policy", "b=http://y"], "--policy needs --env"),
    ],
)
def test_what_is_no_policy_is_refused(given: list[str], told: str) -> None:
    done = CliRunner().invoke(cli, ["tournament", *given, "--judge", "j", "--url", "http://127.0.0.1:9"])
    assert (done.exit_code, told in done.output) == (2, True), done.output


def test_a_policy_does_not_store_among_the_replies_of_another_contestant() -> None:
    session: Any = None
    fresh = [FreshContestant("new", session), FreshContestant("old", session)]
    stored = Entrant(Contestant(name="a", source="old@3"), "old", {})
    with pytest.raises(InvalidRequest, match="contestant old: its replies would be stored under the run of old@3"):
        require_own_runs(fresh, [stored])
