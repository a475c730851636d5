"""`evaluate` and `compare` against a served gateway and a policy that is right at known rates."""

import sqlite3
from collections import Counter
from pathlib import Path

import httpx
import pytest

from app.evaluation.comparison import Comparison
from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as serving_policy
from tests.support.data_sets import numbered_rows
from tests.support.evaluating import ROWS, SAMPLES, Policy, evaluate, invoked, row_of
from tests.support.gateways import Gateways
from tests.support.packaged_arena import packaged_arena
from tests.support.policy_server import MODEL, Speech, script
from tests.support.serving import Served, serving
from tests.support.tables import read_table


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    return gateways.of_rows(ROWS)


def test_figures_are_those_of_the_policy(gateway: Served, tmp_path: Path) -> None:
    """pass@k = mean of 1 - C(4 - c, k) / C(4, k) over c = 0, 1, 2, 3, 4."""
    with serving_policy(Policy(), models=[MODEL]) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path / "out", "--input-price", "1", "--output-price", "2")
    report = done.report
    passes = {at.k: round(at.rate.value or 0.0, 6) for at in report.passes}
    tokens = (report.cost.input_tokens or 0) * 1e-6 + (report.cost.output_tokens or 0) * 2e-6
    assert (
        done.exit_code,
        report.mean.value,
        passes,
        report.counts.model_dump(),
        Counter(attempt.reward for attempt in done.attempts),
        [(attempt.place, attempt.sample) for attempt in done.attempts],
        report.complete,
        report.cost.model_usd == pytest.approx(tokens) and tokens > 0,
        "<html" in (done.out / "report.html").read_text(encoding="utf-8"),
        "pass@4" in done.told,
    ) == (
        0,
        0.5,
        {1: 0.5, 2: round((0 + 1 / 2 + 5 / 6 + 1 + 1) / 5, 6), 4: 0.8},
        {"tasks": ROWS, "asked": 40, "made": 40, "scored": 40, "unscored": 0, "passed": 20},
        {1.0: 20, 0.0: 20},
        [(place, sample) for place in range(ROWS) for sample in range(SAMPLES)],
        True,
        True,
        True,
        True,
    ), done.told


def test_training_is_as_it_was_before(tmp_path: Path) -> None:
    """Under the very run that is trained, on the very tasks: curves, exports, pass rates, leases, places in streams."""
    data = numbered_rows(tmp_path / "data", ROWS)
    with (
        serving(tmp_path, settings={"ATROPOS_ENVS_DATASETS__GSM8K": str(data)}) as gateway,
        serving_policy(Policy()) as policy,
    ):
        _train(gateway.url)
        before = _training(gateway)
        done = evaluate(gateway.url, policy.url, tmp_path / "out", "--run", "trained")
        evaluations = httpx.get(f"{gateway.url}/groups?purpose=eval&run=trained").json()["groups"]
        after = _training(gateway)
    assert (done.exit_code, len(evaluations), after) == (0, ROWS, before), done.told


def _train(url: str) -> None:
    """Four tasks are leased, three of them answered."""
    asked = {"run": "trained", "split": "test", "batch_size": 4}
    tasks = httpx.post(f"{url}/envs/gsm8k/next-batch", json=asked).json()["tasks"]
    answers = [{"text": f"#### {number}"} for number in range(6)]
    groups = [{"task_id": one["task_id"], "lease_id": one["lease_id"], "completions": answers} for one in tasks[:3]]
    httpx.post(f"{url}/envs/gsm8k/score", json={"run": "trained", "groups": groups}).raise_for_status()


def _training(gateway: Served) -> dict[str, object]:
    """All that training sees."""
    shown = ["/stats", "/stats?run=trained"]
    shown += [f"/export?shape={shape}" for shape in ("rollouts", "sft&threshold=0.5", "dpo", "kto")]
    texts: dict[str, object] = {path: httpx.get(f"{gateway.url}{path}").raise_for_status().text for path in shown}
    page = httpx.get(f"{gateway.url}/groups?purpose=train").raise_for_status().json()
    texts["groups"] = page["groups"], page["next_before"], page["matched"]  # others were looked at, and left out
    (activity,) = httpx.get(f"{gateway.url}/runs/trained").json()["activity"]
    texts["activity"] = {
        name: value for name, value in activity.items() if name not in ("groups", "scored", "unscored")
    }
    with sqlite3.connect(gateway.database) as store:
        for table in ("leases", "streams", "runs", "pins"):
            texts[table] = store.execute(f"SELECT * FROM {table}").fetchall()  # noqa: S608  # names of ours
    return texts


def test_another_folder_goes_on_with_what_the_run_holds(gateway: Served, tmp_path: Path) -> None:
    with serving_policy(Policy()) as policy:
        first = evaluate(gateway.url, policy.url, tmp_path / "one", "--run", "moved")
        asked = len(policy.received)
        other = evaluate(gateway.url, policy.url, tmp_path / "other", "--run", "moved")
        asked_again = len(policy.received) - asked
    assert (other.exit_code, asked_again, other.attempts) == (0, 0, first.attempts), other.told


def test_a_folder_with_a_journal_of_an_earlier_version_is_refused(gateway: Served, tmp_path: Path) -> None:
    (tmp_path / "evaluation.journal").touch()
    with serving_policy(Policy()) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path, "--run", "old")
        asked = len(policy.received)
    words = "holds an evaluation that an earlier version began with a journal: use another --out"
    assert (done.exit_code, words in done.told, asked) == (2, True, 0), done.told


def test_another_setup_in_the_same_folder_is_refused_by_name(gateway: Served, tmp_path: Path) -> None:
    with serving_policy(Policy()) as policy:
        evaluate(gateway.url, policy.url, tmp_path / "out", "--tasks", "2")
        other = evaluate(
            gateway.url, policy.url, tmp_path / "out", "--tasks", "2", "--samples", "8", "--max-tokens", "5"
        )
    words = "was started with other options (samples was 4, sampling was {'temperature': 1.0, 'max_tokens': 1024})"
    assert (other.exit_code, words in other.told) == (2, True), other.told


def test_another_run_in_the_same_folder_is_refused(gateway: Served, tmp_path: Path) -> None:
    """Also one that is not there yet: what the first run holds is in the folder's report."""
    with serving_policy(Policy()) as policy:
        first = evaluate(gateway.url, policy.url, tmp_path / "out", "--tasks", "2", "--run", "stays")
        other = evaluate(gateway.url, policy.url, tmp_path / "out", "--tasks", "2", "--run", "differs")
    words = "was started with other options (run was stays)"
    assert (other.exit_code, words in other.told, other.attempts) == (2, True, first.attempts), other.told


def test_a_dry_run_says_what_it_would_take_and_leaves_nothing(gateway: Served, tmp_path: Path) -> None:
    prices = ("--input-price", "1000", "--output-price", "1000", "--max-tokens", "100")
    with serving_policy(Policy(), models=[MODEL]) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path / "out", "--run", "dry", "--dry-run", *prices)
        asked = len(policy.received)
    runs = httpx.get(f"{gateway.url}/runs/dry").status_code
    told = [
        words for words in ("10 tasks, 40 answers", "4,000 completion tokens", "at most 9.") if words not in done.told
    ]
    assert (done.exit_code, told, asked, runs, (tmp_path / "out").exists()) == (0, [], 0, 404, False), done.told


def test_what_costs_is_not_begun_where_nobody_can_be_asked(gateway: Served, tmp_path: Path) -> None:
    prices = ("--input-price", "1", "--output-price", "1")
    with serving_policy(Policy()) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path / "out", *prices, yes=False)
        asked = len(policy.received)
    words = "this costs money and there is no terminal"
    assert (done.exit_code, words in done.told, asked, done.attempts) == (2, True, 0, []), done.told


def test_what_costs_nothing_is_begun_without_a_question(gateway: Served, tmp_path: Path) -> None:
    prices = ("--input-price", "0", "--output-price", "0")
    with serving_policy(Policy()) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path / "out", *prices, yes=False)
    assert (done.exit_code, len(done.attempts)) == (0, ROWS * SAMPLES), done.told


@pytest.mark.parametrize(("least", "exit_code"), [("0.5", 0), ("0.51", 1)])
def test_a_mean_that_is_too_low_fails(gateway: Served, tmp_path: Path, least: str, exit_code: int) -> None:
    with serving_policy(Policy()) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path / "out", "--fail-under", least)
    assert (done.exit_code, "mean reward 0.500, --fail-under" in done.told) == (exit_code, exit_code == 1), done.told


def test_compared_with_an_earlier_one(gateway: Served, tmp_path: Path) -> None:
    """The second policy is right once more of four wherever there was room: in four of five rows."""
    with serving_policy(Policy()) as policy:
        evaluate(gateway.url, policy.url, tmp_path / "old")
    with serving_policy(Policy(lambda row: row % 5 + 1)) as policy:
        new = evaluate(gateway.url, policy.url, tmp_path / "new", "--step", "1", "--against", str(tmp_path / "old"))
    page, compared = tmp_path / "page.html", ("compare", str(tmp_path / "old"), str(tmp_path / "new"))
    told = invoked(tmp_path, *compared, "--html", str(page))
    found = Comparison.model_validate_json(invoked(tmp_path, *compared, "--json").told)
    own = Comparison.model_validate_json((tmp_path / "new" / "comparison.json").read_bytes())
    moved = (found.overall.before, found.overall.after, found.improved, found.declined, found.verdict)
    assert (new.exit_code, told.exit_code, moved, own) == (0, 0, (0.5, 0.7, 8, 0, "better"), found), told.told
    assert ("+0.200" in told.told, "+0.200" in new.told, "<html" in page.read_text(encoding="utf-8")) == (True,) * 3


def test_what_the_policy_refuses_is_unscored_and_tried_again_by_the_next_start(gateway: Served, tmp_path: Path) -> None:
    def refuses(number: int, received: Received) -> Reply | None:
        return Reply(b'{"error": "too long"}', status=400) if row_of(received) in (3, 4) else None

    given = ("--run", "refused", "--samples", "1")
    with serving_policy(Policy(lambda row: 1, refuses)) as policy:
        first = evaluate(gateway.url, policy.url, tmp_path / "out", *given)
    with serving_policy(Policy(lambda row: 1)) as policy:
        last = evaluate(gateway.url, policy.url, tmp_path / "out", *given)
        asked = len(policy.received) - 1
    unscored = [(row.reason, row.attempts) for row in first.report.unscored]
    means = [(one.report.mean.value, one.report.mean.tasks) for one in (first, last)]
    assert (first.exit_code, unscored, means) == (0, [("policy_refused", 2)], [(1.0, ROWS - 2), (1.0, ROWS)]), last.told
    assert (last.exit_code, asked) == (0, 2)


@pytest.mark.slow
def test_unscored_is_never_zero(tmp_path: Path) -> None:
    """The only judge is not there."""
    judge = {"ATROPOS_ENVS_JUDGES__GONE__BASE_URL": "http://127.0.0.1:9/v1", "ATROPOS_ENVS_JUDGES__GONE__MODEL": "m"}
    short = {"ATROPOS_ENVS_JUDGES__GONE__DEADLINE_SECONDS": "0.3"}
    own = {"ATROPOS_ENVS_ENVIRONMENTS__NPC_ARENA__JUDGES": '["gone"]'}
    speaks = script(lambda received, place: Speech(f"Aye, that I can tell you, {received.body['seed']}."))
    with serving(tmp_path, settings={**judge, **short, **own}) as gateway, serving_policy(speaks) as policy:
        given = ("--env", "npc_arena", "--tasks", "3", "--samples", "3", "--fail-under", "0")
        done = evaluate(gateway.url, policy.url, tmp_path / "out", *given)
    reasons, mean = {attempt.reason for attempt in done.attempts}, done.report.mean.value
    told = ["judge gone: 6 to 12 readings", "9 of 9 replies have no score: no judge gave a usable verdict in time"]
    assert (done.exit_code, reasons, mean, [words for words in told if words not in done.told]) == (
        1,
        {"judge_failed"},
        None,
        [],
    ), done.told


def test_scenes_of_several_turns(gateway: Served, tmp_path: Path) -> None:
    def speaks(received: Received, place: int) -> Speech:
        return Speech(f"Aye, {len(received.messages)} times, and {received.body['seed']} more.")

    given = ("--env", "npc_arena", "--params", '{"turns": "multi"}', "--tasks", "4", "--samples", "2")
    with serving_policy(script(speaks)) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path / "out", *given)
        seeds = [one.body["seed"] for one in policy.received[1:]]
    turns = sum(attempt.turns for attempt in done.attempts)
    assert (done.exit_code, turns == len(seeds) == len(set(seeds)), turns > 8) == (0, True, True), done.told


def test_characters_that_are_held_out_of_training(gateway: Served, tmp_path: Path) -> None:
    with serving_policy(script(lambda received, place: Speech("Aye, that I can tell you."))) as policy:
        given = ("--env", "npc_arena", "--samples", "1")
        done = evaluate(gateway.url, policy.url, tmp_path / "out", *given)
    labels = {row.name: row.attempts for row in done.report.labels}
    own = Counter(attempt.label for attempt in done.attempts)
    cautions = [caution.code for caution in done.report.cautions]
    held_out = {sheet.id for sheet in packaged_arena().sheets if sheet.meta.held_out}
    assert (done.exit_code, labels, held_out - labels.keys(), cautions) == (0, own, set(), ["offline_judge"]), done.told


RUN_OF_MISTAKES = "never-made"
WRONG = read_table(__file__, "evaluate.yaml", dict[str, tuple[tuple[str, ...], str]])


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_and_nothing_is_spent(gateway: Served, tmp_path: Path, wrong: str) -> None:
    given, words = WRONG[wrong]
    with serving_policy(Policy(), models=[MODEL]) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path / "out", "--run", RUN_OF_MISTAKES, *given)
        asked = len(policy.received)
    runs = httpx.get(f"{gateway.url}/runs/{RUN_OF_MISTAKES}").status_code
    assert (done.exit_code, words in done.told, asked, done.attempts, runs) == (2, True, 0, [], 404), done.told


def test_what_a_server_says_cannot_steer_the_terminal(gateway: Served, tmp_path: Path) -> None:
    with serving_policy(Policy(before=lambda *_: Reply(b"\x1b]0;owned\x07", status=401))) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path / "out")
    assert (done.exit_code, "\x1b" in done.told, "⟨U+001B⟩]0;owned" in done.told) == (2, False, True), done.told


def test_a_server_that_takes_no_seed_is_asked_without(gateway: Served, tmp_path: Path) -> None:
    def refuses(number: int, received: Received) -> Reply | None:
        return Reply(b'{"error": "unknown field: seed"}', status=422) if "seed" in received.body else None

    extra = '{"max_tokens": null, "max_completion_tokens": 77}'
    with serving_policy(Policy(before=refuses)) as policy:
        done = evaluate(gateway.url, policy.url, tmp_path / "out", "--run", "unseeded", "--extra", extra)
        bodies = [one.body for one in policy.received[2:]]
    sent = {(str(body.get("max_tokens")), str(body.get("max_completion_tokens")), "seed" in body) for body in bodies}
    assert (done.exit_code, sent, "does not accept seeds" in done.told) == (0, {("None", "77", False)}, True), done.told
