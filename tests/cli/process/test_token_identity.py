"""`process` keeps the ids that a server told, message by message, and says where texts give others."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from app.http.api.models import GroupView
from app.inference.policies import TurnTokens
from tests.support.chat_server import Received, Reply, Script
from tests.support.chat_server import serving as serving_policy
from tests.support.gateways import Gateways
from tests.support.local_tokenizer import saved_tokenizer
from tests.support.policy_server import END, Speech, Style, answers_rows, logprob, prompt_ids, script
from tests.support.processing import Line, process
from tests.support.serving import Served

ROWS = 3
SCENES = ("--env", "npc_arena", "--params", '{"turns": "multi"}', "--split", "train", "--limit", "2")
_runs = itertools.count()


@pytest.fixture(scope="module")
def gateway(gateways: Gateways) -> Served:
    return gateways.of_rows(ROWS)


@pytest.fixture
def run() -> tuple[str, ...]:
    return ("--env", "gsm8k", "--run", f"identity-{next(_runs)}")


def messages_of(line: Line, place: int) -> list[dict[str, str]]:
    return [{name: str(text) for name, text in message.items()} for message in line.messages[place]]


def ids_of(text: str) -> tuple[int, ...]:
    return (*text.encode(), END)


def logprobs_of(ids: tuple[int, ...]) -> tuple[float, ...]:
    return tuple(map(logprob, range(len(ids))))


def turn_of(kept: int, prompt: Sequence[int], ids: tuple[int, ...], *, known: bool = True) -> TurnTokens:
    return TurnTokens(
        kept,
        joined=True,
        from_server=known,
        prompt_ids=tuple(prompt)[kept:],
        completion_ids=ids,
        logprobs=logprobs_of(ids) if known else None,
    )


@pytest.mark.parametrize("style", ["vllm", "plain"])
def test_a_single_answer_is_one_turn(gateway: Served, run: tuple[str, ...], tmp_path: Path, style: Style) -> None:
    made = ("--tokenizer", str(saved_tokenizer(tmp_path))) if style == "plain" else ()
    with serving_policy(script(answers_rows, style)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *run, *made)
    known = style != "plain"
    expected = [
        [
            [turn_of(0, prompt_ids(prompt), ids_of(last["content"]), known=known)]
            for *prompt, last in (messages_of(line, place) for place in range(2))
        ]
        for line in done.lines
    ]
    assert (done.exit_code, [line.turns for line in done.lines], len(done.lines)) == (0, expected, ROWS), done.told


def test_an_episode_has_every_exact_prompt(gateway: Served, tmp_path: Path) -> None:
    with serving_policy(script(lambda received, place: Speech(f"Aye, {len(received.messages)} times."))) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *SCENES, "--run", "exact")
    expected = []
    for line, place in itertools.product(done.lines, range(2)):
        said, turns, before = messages_of(line, place), [], 0
        for at in (at for at, message in enumerate(said) if message["role"] == "assistant"):
            prompt, ids = tuple(prompt_ids(said[:at])), ids_of(said[at]["content"])
            turns.append(turn_of(before, prompt, ids))
            before = len(prompt) + len(ids)
        expected.append(turns)
    told = [turns for line in done.lines for turns in line.turns or ()]
    assert (done.exit_code, told, min(map(len, told)) > 1) == (0, expected, True), done.told


def forgetting() -> Script:
    """A server whose template shows the last message alone, as those do that drop what came before."""
    answered = script(lambda received, place: Speech("Aye."))

    def reply(number: int, received: Received) -> Reply:
        body = {**received.body, "messages": received.messages[-1:]}
        return answered(number, Received(**{**vars(received), "body": body}))

    return reply


def test_a_prompt_that_forgets_is_not_joined_and_counted(gateway: Served, tmp_path: Path) -> None:
    with serving_policy(forgetting()) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *SCENES, "--run", "forgetting")
    turns = [turns for line in done.lines for turns in line.turns or ()]
    joined = [[turn.joined for turn in one] for one in turns]
    rewritten, every = sum(len(one) - 1 for one in turns), sum(map(len, turns))
    words = f"prompts that rewrite what was sampled before: {rewritten} of {every} turns"
    assert (joined, words in done.told) == ([[True] + [False] * (len(one) - 1) for one in turns], True), done.told


@pytest.mark.parametrize(
    ("merges", "words"),
    [
        ([], "other ids: 0 of 6 prompts, 0 of 6 completions"),
        ([("I", "t")], "other ids: 0 of 6 prompts, 6 of 6 completions"),
    ],
)
def test_it_counts_where_texts_give_other_ids(
    gateway: Served, run: tuple[str, ...], tmp_path: Path, merges: list[tuple[str, str]], words: str
) -> None:
    given = (*run, "--check-tokens", "--tokenizer", str(saved_tokenizer(tmp_path, merges=merges)))
    with serving_policy(script(answers_rows)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *given)
    place = "completion, token 0: the server has [73, 116, 32, 105, 115, 32, 48, 46] 'It is 0.'"
    assert (done.exit_code, words in done.told, place in done.told) == (0, True, bool(merges)), done.told


def test_without_ids_there_is_nothing_to_check(gateway: Served, run: tuple[str, ...], tmp_path: Path) -> None:
    given = (*run, "--check-tokens", "--tokenizer", str(saved_tokenizer(tmp_path)))
    with serving_policy(script(answers_rows, "plain")) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *given)
    assert (done.exit_code, done.lines, "so there is nothing to compare" in done.told) == (2, [], True), done.told


@pytest.mark.parametrize("style", ["vllm", "llama_cpp"])
def test_ids_are_stored_in_the_gateway_where_that_is_asked_for(
    gateway: Served, run: tuple[str, ...], tmp_path: Path, style: Style
) -> None:
    with serving_policy(script(answers_rows, style)) as policy:
        done = process(gateway.url, policy.url, tmp_path / "out.jsonl", *run, "--store-tokens")
    stored, expected = [], []
    for line in done.lines:
        group = GroupView.model_validate_json(httpx.get(f"{gateway.url}/groups/{line.group_id}").content).group
        stored += [(one.completion.token_ids, one.completion.logprobs) for one in group.rollouts]
        said = [ids_of(messages_of(line, place)[-1]["content"]) for place in range(2)]
        expected += [(ids, logprobs_of(ids)) for ids in said]
    assert (done.exit_code, stored, len(stored)) == (0, expected, 2 * ROWS), done.told
