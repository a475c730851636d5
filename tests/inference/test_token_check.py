"""Ids that a text gives when it is tokenised again, beside those that a server told."""

from pathlib import Path

from app.domain.tasks import Message
from app.inference.tokens import CheckedTurn, LocalTokenizer, TokenCheckTally, TokenDifference, check_turn
from app.inference.wire import Ids, SampledMessage
from tests.support.local_tokenizer import TEMPLATE, saved_tokenizer
from tests.support.policy_server import END
from tests.support.tables import read_table

ASKED = (Message(role="user", content="ab?"),)
AB = 257
PROMPT = (*b"<user>", AB, *b"?\n<assistant>")
DIFFERENT = read_table(__file__, "token_difference.yaml", TokenDifference)


def read(folder: Path, template: str = TEMPLATE) -> LocalTokenizer:
    """Its text `ab` is one token."""
    return LocalTokenizer.read(saved_tokenizer(folder, template, [("a", "b")]))


def check(tokenizer: LocalTokenizer, prompt: Ids | None, ids: Ids | None, reason: str = "stop") -> CheckedTurn | None:
    said = SampledMessage(Message(role="assistant", content="ab"), reason, prompt, ids)
    return check_turn(tokenizer, ASKED, (), said)


def test_a_text_that_was_sampled_in_other_pieces_is_found(tmp_path: Path) -> None:
    tokenizer = read(tmp_path)
    same, cut, other = (AB, END), (AB,), (97, 98, END)
    assert [
        check(tokenizer, PROMPT, same),
        check(tokenizer, PROMPT, cut, "length"),
        check(tokenizer, PROMPT, other),
    ] == [CheckedTurn(), CheckedTurn(), CheckedTurn((DIFFERENT,))]


def test_a_prompt_that_was_rendered_otherwise_is_found_where_it_differs(tmp_path: Path) -> None:
    told = check(read(tmp_path), (*b"<user>ab?\n<assistant>",), (AB, END))
    differing = TokenDifference("prompt", 6, (*b"ab?\n<ass",), "ab?\n<ass", (AB, *b"?\n<assi"), "ab?\n<assi")
    assert told == CheckedTurn((differing,))


def test_a_difference_in_words() -> None:
    told = "completion, token 0: the server has [97, 98, 256] 'ab<|end|>', its text gives [257, 256] 'ab<|end|>'"
    assert DIFFERENT.words == told


def test_what_cannot_be_compared_is_told_apart(tmp_path: Path) -> None:
    refusing = read(tmp_path, "{{ raise_exception('no users') }}")
    turns = [check(refusing, None, None), check(refusing, PROMPT, None), check(refusing, PROMPT, (AB, END))]
    tally = TokenCheckTally()
    for turn in [*turns, CheckedTurn((DIFFERENT,)), CheckedTurn()]:
        tally.add_turn("task_1", turn)
    refused = turns[2].refused if turns[2] else ""
    assert ("no users" in refused, turns[:2], tally.lines) == (
        True,
        [None, None],
        [
            "tokenised again, other ids: 0 of 2 prompts, 1 of 2 completions",
            f"  task_1, {DIFFERENT.words}",
            "not checked, the server told no ids: 2 turns",
            f"not checked, {refused}: 1 turns",
        ],
    )


def test_a_completion_of_32000_tokens_is_compared_to_its_end(tmp_path: Path) -> None:
    said = SampledMessage(Message(role="assistant", content="ab" * 32_000), "length", PROMPT, (AB,) * 31_999 + (97, 98))
    differing = TokenDifference("completion", 31_999, (97, 98), "ab", (AB,), "ab")
    assert check_turn(read(tmp_path), ASKED, (), said) == CheckedTurn((differing,))
