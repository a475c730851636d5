"""`process` against a served gateway and inference servers of several kinds."""

import itertools
import json
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.support.chat_server import Received, Reply
from tests.support.chat_server import serving as serving_policy
from tests.support.gateways import Gateways
from tests.support.local_tokenizer import END as END_TEXT
from tests.support.local_tokenizer import saved_tokenizer
from tests.support.policy_server import END, MODEL, Speech, Style, answers_rows, logprob, prompt_ids, script
from tests.support.processing import Line, process, trained
from tests.support.serving import Served, serving
from tests.support.tables import read_table

ROWS = 12
_runs = itertools.count()


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    return gateways.of_rows(ROWS)


@pytest.fixture
def run() -> tuple[str, ...]:
    """A run that no other test has, and the environment of the numbered rows."""
    return ("--env", "gsm8k", "--run", f"run-{next(_runs)}")


def expected(line: Line, place: int) -> tuple[list[int], list[int], list[float]]:
    """Tokens, masks and log probabilities of a single answer, by the script of the policy."""
    messages = [{name: str(text) for name, text in message.items()} for message in line.messages[place]]
    prompt, said = prompt_ids(messages[:-1]), [*messages[-1]["content"].encode(), END]
    logprobs = [1.0] * len(prompt) + [logprob(number) for number in range(len(said))]
    return prompt + said, [-100] * len(prompt) + said, logprobs


@pytest.mark.parametrize("style", ["vllm", "vllm_by_name", "sglang", "sglang_meta"])
def test_tokens_are_those_of_the_server(gateway: Served, run: tuple[str, ...], tmp_path: Path, style: Style) -> None:
    with serving_policy(script(answers_rows, style)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *run)
    wrong = [
        line.task_id
        for line in done.lines
        for place in range(2)
        if (line.tokens[place], line.masks[place], line.inference_logprobs[place]) != expected(line, place)
    ]
    scores = [line.scores for line in done.lines]
    assert (done.exit_code, wrong, list(done.tasks.values()), scores) == (0, [], [1] * ROWS, [[1.0, 0.0]] * ROWS), (
        done.told
    )


def test_a_busy_server_is_waited_for_as_long_as_patience_lasts(
    gateway: Served, run: tuple[str, ...], tmp_path: Path
) -> None:
    with serving_policy(lambda *_: Reply(b"busy", status=503)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *run, "--patience", "0")
    assert (done.exit_code, "503" in done.told, done.lines) == (2, True, []), done.told


def test_tokens_are_made_where_the_server_tells_none(gateway: Served, run: tuple[str, ...], tmp_path: Path) -> None:
    folder = saved_tokenizer(tmp_path)
    with serving_policy(script(answers_rows, "strict")) as policy:
        out = tmp_path / "out.jsonl"
        done = process(gateway.url, policy.url, out, *run, "--tokenizer", str(folder / "tokenizer.json"))
    lengths = [len(trained(line, 0)) - len(f"It is 0. #### {END_TEXT}") + len(END_TEXT) - 1 for line in done.lines]
    digits = [len(re.findall(r"\d+", str(line.messages[0][-1]["content"]))[-1:][0]) for line in done.lines]
    logprobs = [line.inference_logprobs for line in done.lines]
    assert (done.exit_code, lengths, logprobs) == (0, digits, [[]] * ROWS), done.told


def test_llama_cpp_tells_ids_of_replies_and_gives_as_many_at_once_as_it_has_slots(
    gateway: Served, run: tuple[str, ...], tmp_path: Path
) -> None:
    made = ("--tokenizer", str(saved_tokenizer(tmp_path)), "--group-size", "7", "--concurrency", "7")
    with serving_policy(script(answers_rows, "llama_cpp")) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *run, *made, "--limit", "1")
        asked = [sent.body.get("n", 1) for sent in policy.received[1:]]
    (line,) = done.lines
    wanted = [expected(line, place) for place in range(7)]
    told = [*zip(line.tokens, line.masks, line.inference_logprobs, strict=True)]
    written = [len(trained(line, place)) for place in range(7)]
    prompt = len(line.tokens[0]) - written[0]
    assert (done.exit_code, told, asked) == (0, wanted, [7, 3, 3, 1]), done.told
    assert "token ids from the server, of prompts from the tokenizer, log probabilities" in " ".join(done.told.split())
    assert f"{3 * prompt:,} + {sum(written):,} tokens" in done.told


def test_without_token_ids_and_tokenizer_nothing_is_begun_for_a_trainer(
    gateway: Served, run: tuple[str, ...], tmp_path: Path
) -> None:
    with serving_policy(script(answers_rows, "plain")) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *run, "--to", "atropos")
        asked = len(policy.received)
    assert (done.exit_code, "the model's tokenizer.json" in done.told, asked) == (2, True, 1)


def test_a_file_of_texts_needs_no_tokens(gateway: Served, run: tuple[str, ...], tmp_path: Path) -> None:
    out = tmp_path / "out.jsonl"
    with serving_policy(script(answers_rows, "plain")) as policy:
        done = process(gateway.url, policy.url, out, *run)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    held = [("tokens" in row, "masks" in row, row["scores"], len(row["messages"])) for row in rows]
    assert (done.exit_code, held) == (0, [(False, False, [1.0, 0.0], 2)] * ROWS), done.told
    assert "the file holds texts only" in done.told


def test_it_is_done_once_however_often_it_is_started(gateway: Served, run: tuple[str, ...], tmp_path: Path) -> None:
    with serving_policy(script(answers_rows)) as policy:
        counts = [
            len(process(gateway.url, policy.url, tmp_path / "out.jsonl", *run, *limit).lines)
            for limit in (("--limit", "5"), ("--limit", "7"), ("--limit", "7"), (), ())
        ]
        last = process(gateway.url, policy.url, tmp_path / "out.jsonl", *run)
    assert (counts, list(last.tasks.values())) == ([5, 7, 7, ROWS, ROWS], [1] * ROWS)


def test_tasks_by_cursor(gateway: Served, run: tuple[str, ...], tmp_path: Path) -> None:
    with serving_policy(script(answers_rows)) as policy:
        out = tmp_path / "out.jsonl"
        first = process(gateway.url, policy.url, out, *run, "--cursor", "2", "--limit", "3")
        last = process(gateway.url, policy.url, out, *run, "--cursor", "2")
    assert (first.exit_code, len(first.lines), list(last.tasks.values())) == (0, 3, [1] * (ROWS - 2)), last.told


def test_what_is_scored_too_late_is_scored_under_its_next_lease(
    gateway: Served, run: tuple[str, ...], tmp_path: Path
) -> None:
    """Answers take longer than leases last: none is asked for twice, none is written twice."""

    def slow(number: int, received: Received) -> Reply:
        answer = script(answers_rows)(number, received)
        return answer if number == 0 else Reply(answer.body, seconds=1.6)

    with serving_policy(slow) as policy:
        out = tmp_path / "out.jsonl"
        done = process(gateway.url, policy.url, out, *run, "--lease-seconds", "1", "--concurrency", "16")
        asked = len(policy.received) - 1
    assert (done.exit_code, list(done.tasks.values()), asked) == (0, [1] * ROWS, ROWS), done.told


def test_a_mixture(gateway: Served, tmp_path: Path) -> None:
    mixed = ("--mix", "gsm8k=1,tool_calling=2", "--limit", "12", "--run", "mixed")
    with serving_policy(script(answers_rows)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *mixed)
    counts = Counter(line.environment for line in done.lines)
    heavier = counts["tool_calling"] > counts["gsm8k"] > 0
    assert (done.exit_code, sum(counts.values()), heavier) == (0, 12, True), done.told


def test_every_message_of_an_episode_is_trained_and_no_observation(gateway: Served, tmp_path: Path) -> None:
    """Scenes that a scripted player carries on."""

    def speaks(received: Received, place: int) -> Speech:
        return Speech(f"Aye, {len(received.messages)} times.")

    given = ("--env", "npc_arena", "--params", '{"turns": "multi"}', "--split", "train", "--limit", "3")
    with serving_policy(script(speaks)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *given, "--run", "scenes")
    right = []
    for line, place in itertools.product(done.lines, range(2)):
        spoken = [str(message["content"]) for message in line.messages[place] if message["role"] == "assistant"]
        whole = prompt_ids([{name: str(text) for name, text in one.items()} for one in line.messages[place]])
        assert len(spoken) > 1
        right.append(
            trained(line, place) == [token for text in spoken for token in (*text.encode(), END)]
            and whole[: len(line.tokens[place])] == line.tokens[place]
            and [value != 1.0 for value in line.inference_logprobs[place]] == [m != -100 for m in line.masks[place]]
        )
    assert (done.exit_code, right) == (0, [True] * 6), done.told


def test_a_task_that_the_server_refuses_is_left_out_and_counted(
    gateway: Served, run: tuple[str, ...], tmp_path: Path
) -> None:
    def refuses(number: int, received: Received) -> Reply:
        if "What is 3 and" in received.messages[-1]["content"]:
            return Reply(b'{"error": "longer than the context"}', status=400)
        return script(answers_rows)(number, received)

    with serving_policy(refuses) as policy:
        out = tmp_path / "out.jsonl"
        done = process(gateway.url, policy.url, out, *run, "--lease-seconds", "1")
    told = ["left out: policy_refused", "answers 400", "longer than the context"]
    assert (done.exit_code, len(done.lines), [words for words in told if words not in done.told]) == (0, ROWS - 1, [])


@pytest.mark.slow
def test_unscored_groups_are_asked_for_again_and_then_left_out(tmp_path: Path) -> None:
    """The only judge is not there: no group has a reward, and none is written."""
    judge = {"ATROPOS_ENVS_JUDGES__GONE__BASE_URL": "http://127.0.0.1:9/v1", "ATROPOS_ENVS_JUDGES__GONE__MODEL": "m"}
    short = {"ATROPOS_ENVS_JUDGES__GONE__DEADLINE_SECONDS": "0.3"}
    own = {"ATROPOS_ENVS_ENVIRONMENTS__NPC_ARENA__JUDGES": '["gone"]'}
    given = ("--env", "npc_arena", "--split", "train", "--limit", "40", "--run", "unscored")
    with (
        serving(tmp_path, settings={**judge, **short, **own}) as gateway,
        serving_policy(script(lambda received, place: Speech(f"Aye, {place} times."))) as policy,
    ):
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *given)
    told = ["left out: unscored (judge_failed)", "32 groups in a row were left out", "server could not be reached"]
    told += ["8 of 8 replies have no score: no judge gave a usable verdict in time"]
    assert (done.exit_code, done.lines, [words for words in told if words not in done.told]) == (2, [], []), done.told


WRONG = read_table(__file__, "process.yaml", dict[str, tuple[tuple[str, ...], str]])


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_is_said_and_nothing_is_written(gateway: Served, tmp_path: Path, wrong: str) -> None:
    given, words = WRONG[wrong]
    with serving_policy(script(answers_rows), models=[MODEL]) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *given)
    assert (done.exit_code, words in done.told, done.lines) == (2, True, []), done.told


SILENT = {
    "gsm8k": (Speech("Cleo now has 24 coins."), "", "gave no answer in the form asked for", "no_answer"),
    "gsm8k --max-tokens 48": (Speech("Let us", "length"), "", "were cut off: the limit is 48 tokens", "truncated"),
    "tool_calling": (
        Speech("I have no tools."),
        "a prompt of tool_calling counts as many",
        "called no tool",
        "no_call",
    ),
    "npc_arena": (
        Speech("As an AI language model, I cannot."),
        "",
        "from the gate `breaks_character`",
        "breaks_character",
    ),
}


@pytest.mark.parametrize("asked", SILENT)
def test_why_everything_is_0_is_said_while_it_happens(gateway: Served, tmp_path: Path, asked: str) -> None:
    """And once more at the end, with what was counted by then; a judge that is away is another test's."""
    speech, notice, why, flag = SILENT[asked]
    run = f"silent-{next(_runs)}"
    given = ("--env", *asked.split(), "--run", run, "--group-size", "4", "--limit", "3")
    with serving_policy(script(lambda received, place: speech)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *given)
    began, _, ended = done.told.partition("mean reward")
    examples = f"/view/groups?run={run}&flag={flag}"
    assert [words for words in (notice, why, examples) if words not in began] == [], done.told
    assert (done.exit_code, why in ended, examples in ended, "shows no tools" in began) == (0, True, True, bool(notice))


def test_an_agent_that_calls_tools_is_trained_on_what_it_said_alone(gateway: Served, tmp_path: Path) -> None:
    """Two calls, and words from then on; the prompts that follow show the calls as they were said."""

    def speaks(received: Received, place: int) -> Speech:
        tools = received.body.get("tools")
        spoken = sum(message["role"] == "assistant" for message in received.messages)
        if not isinstance(tools, list) or spoken > 1:
            return Speech("Done.")
        function: dict[str, object] = {"name": tools[0]["function"]["name"], "arguments": "{}"}
        call: dict[str, object] = {"id": f"call_{spoken}", "type": "function", "function": function}
        return Speech(json.dumps([call]), "tool_calls", (call,))

    given = ("--env", "tool_agent", "--split", "train", "--limit", "2", "--run", "agent")
    with serving_policy(script(speaks)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *given)
    said, wanted, observed = [], [], []
    for line in done.lines:
        own = [message for message in line.messages[1] if message["role"] == "assistant"]
        observed.append(any(message["role"] == "tool" for message in line.messages[1]))
        wanted.append([str(one["content"]) or json.dumps(one["tool_calls"]) for one in own])
        said.append(bytes(token if token < END else 0 for token in trained(line, 1)).decode().split("\0")[:-1])
    several = [len(words) > 2 for words in wanted]
    assert (done.exit_code, said, observed, several) == (0, wanted, [True] * 2, [True] * 2), done.told


def test_a_line_and_its_calls_are_one_reply(gateway: Served, tmp_path: Path) -> None:
    """Of a character that acts: its tools reach the policy, and what it called reaches the trainer."""

    def speaks(received: Received, place: int) -> Speech:
        tools = received.body.get("tools")
        if not isinstance(tools, list):
            return Speech("Hm.")
        function: dict[str, object] = {"name": tools[0]["function"]["name"], "arguments": "{}"}
        call: dict[str, object] = {"id": "call_0", "type": "function", "function": function}
        return Speech(json.dumps(call), "tool_calls", (call,), "Sit down, and tell me.")

    given = ("--env", "npc_arena", "--params", '{"actions": "only"}', "--split", "train", "--limit", "3")
    with serving_policy(script(speaks)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *given, "--run", "acts")
    said = [line.messages[place][-1] for line in done.lines for place in range(2)]
    kept = [(one["content"], '"arguments": "{}"' in json.dumps(one["tool_calls"])) for one in said]
    assert (done.exit_code, kept) == (0, [("Sit down, and tell me.", True)] * 6), done.told
