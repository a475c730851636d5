"""Expected scores: the judge's doubt enters the number, and whatever does not fit leaves the answer as it was."""

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.domain.judging import Judgement
from app.domain.values import Frozen
from app.judges.verdicts import Token, insert_expected_scores, parse_tokens
from tests.support.chat_server import Reply, serving
from tests.support.judge_cases import GOOD, completion, config, judged
from tests.support.tables import read_table


def token(piece: str, *alternatives: tuple[bytes, float]) -> Token:
    return Token(piece.encode(), alternatives or ((piece.encode(), 1.0),))


def answer(score: Token, before: str = "", after: str = "") -> tuple[str, list[Token]]:
    tokens = [token(before + '{"verdicts": [{"candidate": "a", "scores": {"likeness":'), score, token("}}]}" + after)]
    return b"".join(each.piece for each in tokens).decode(), tokens


class Tables(Frozen):
    """The tables of expected_scores.yaml, which says what each holds."""

    scores: tuple[tuple[str, tuple[tuple[bytes, float], ...], str], ...]
    broken: tuple[object, ...]


TABLES = read_table(__file__, "expected_scores.yaml", Tables)


@pytest.mark.parametrize(("piece", "alternatives", "expected"), TABLES.scores)
def test_a_score_becomes_what_is_expected(
    piece: str, alternatives: tuple[tuple[bytes, float], ...], expected: str
) -> None:
    text, tokens = answer(token(piece, *alternatives))
    assert insert_expected_scores(text, tokens) == text.replace(
        f":{piece}", f":{piece.replace(piece.strip(), expected)}"
    )


def test_scores_by_criterion_change_too() -> None:
    """In the short form, where each criterion has a number for each candidate."""
    before, after = (
        '{"defects": [{"candidate": "A", "quote": "3"}], "scores": ',
        ', "ranking": [["A"]], "notes": {"A": "3"}}',
    )
    scores = '{"likeness": {"A": 3, "B": 0}, "charm": null, "wit": {"A": 3, "B": 3}}'
    text = before + scores + after
    tokens = [token(character, (character.encode(), 0.5), (b"1", 0.5)) for character in text]
    assert insert_expected_scores(text, tokens) == "".join(
        (before, scores.replace(": 3", ": 2.0000").replace(": 0", ": 0.5000"), after)
    )


def test_only_scores_change() -> None:
    text = '{"n": 3, "quote": "\\"scores\\": {\\"likeness\\": 3}", "scores": {"likeness": 3, "charm": null, "wit": 3}}'
    tokens = [token(character, (character.encode(), 0.5), (b"1", 0.5)) for character in text]
    assert insert_expected_scores(text, tokens) == text.replace('"likeness": 3,', '"likeness": 2.0000,').replace(
        '"wit": 3', '"wit": 2.0000'
    )


def test_thought_before_the_text_and_an_end_behind_it_are_passed_over() -> None:
    text, tokens = answer(token("3", (b"3", 0.5), (b"4", 0.5)), before="Schön 🐟 ")
    found = insert_expected_scores(text, [token("<think>3</think>"), *tokens, token("<|end|>")])
    assert found == text.replace(":3", ":3.5000")


@pytest.mark.parametrize("tokens", [[], [token("something else")], [token('{"verdicts"')]])
def test_other_tokens_change_nothing(tokens: list[Token]) -> None:
    text, _ = answer(token("3"))
    assert insert_expected_scores(text, tokens) == text


@given(st.text(), st.lists(st.floats(min_value=0, max_value=1), min_size=1, max_size=5))
def test_the_expected_score_lies_within_the_scores(before: str, chances: list[float]) -> None:
    score = token("3", *((str(place).encode(), chance) for place, chance in enumerate(chances)))
    text, tokens = answer(score, before=before.encode("utf-8", "replace").decode())
    found = insert_expected_scores(text, tokens)
    told = json.loads(found[found.rindex('{"verdicts"') :])["verdicts"][0]["scores"]["likeness"]
    assert 0 <= told <= 4


@pytest.mark.parametrize("piece", ['"scores": {', '"scores": {"a": 3, ', '"', '"a": ', "3"])
def test_takes_time_in_proportion_to_the_text(piece: str) -> None:
    tokens = [token(piece)] * (200_000 // len(piece))
    began = time.process_time()
    insert_expected_scores(piece * len(tokens), tokens)
    assert time.process_time() - began < 2.0


def test_reads_what_servers_send() -> None:
    choice = {
        "logprobs": {
            "content": [
                {"token": "é", "bytes": [195], "logprob": -0.5, "top_logprobs": []},
                {
                    "token": "3",
                    "logprob": math.log(0.5),
                    "bytes": None,
                    "top_logprobs": [{"token": "4", "logprob": math.log(0.25)}, {"token": 5}, "x"],
                },
                {"token": "!", "logprob": -(10**400), "top_logprobs": None},
            ]
        }
    }
    assert parse_tokens(choice) == (
        Token(b"\xc3", ((b"\xc3", math.exp(-0.5)),)),
        Token(b"3", ((b"3", 0.5), (b"4", 0.25))),
        Token(b"!", ((b"!", 0.0),)),
    )


@pytest.mark.parametrize(
    "choice", [*TABLES.broken, {"logprobs": {"content": [{"token": "a", "logprob": float("nan")}]}}]
)
def test_what_is_not_whole_is_nothing(choice: object) -> None:
    assert parse_tokens(choice) == ()


async def judge(text: str) -> Judgement:
    """Of a judge that was sure of all but its first digits, which might as well have been a 1."""
    torn = {"logprob": math.log(0.5), "top_logprobs": [{"token": "1", "logprob": math.log(0.5)}]}
    sure = {"logprob": 0.0, "top_logprobs": []}
    listed = [{"token": each, **(torn if place < len(GOOD) else sure)} for place, each in enumerate(text)]
    body = json.loads(completion(text).body)
    body["choices"][0]["logprobs"] = {"content": listed}
    with serving(lambda number, received: Reply(json.dumps(body).encode())) as server:
        return (await judged(config(server.url, expected_scores=True)))[1]


async def test_what_was_written_decides_whether_there_is_one_verdict() -> None:
    """A verdict that is said twice is one, though the judge was surer of it the second time."""
    once, twice = await judge(GOOD), await judge(f"{GOOD}\n{GOOD}")
    assert (once.failure, twice.failure, twice.calls) == (None, None, 1)
    assert [each.scores for each in twice.verdicts or ()] != [each.scores for each in once.verdicts or ()]
