"""Tokens and masks of episodes, over anything that templates and servers may do."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from app.inference.policies import (
    IGNORED,
    NO_LOGPROB,
    Exchange,
    TokenSequence,
    TurnTokens,
    build_sequence,
    build_turns,
    count_shared_prefix,
)

token = st.integers(0, 5)
tokens = st.lists(token, max_size=6).map(tuple)


@st.composite
def spoken(draw: st.DrawFn) -> tuple[int, ...]:
    return draw(st.lists(token, min_size=1, max_size=6).map(tuple))


@st.composite
def exchanges(draw: st.DrawFn) -> list[Exchange]:
    """Prompts go on from what was said, or cut it off somewhere and go on otherwise."""
    made: list[Exchange] = []
    before: tuple[int, ...] = ()
    for _ in range(draw(st.integers(1, 4))):
        kept = before if draw(st.booleans()) else before[: draw(st.integers(0, len(before)))]
        said = draw(spoken())
        logprobs = tuple(-1 - place / 8 for place in range(len(said)))
        made.append(Exchange(kept + draw(tokens), said, logprobs))
        before = made[-1].prompt + said
    return made


@given(exchanges())
def test_it_is_the_last_prompt_and_what_followed_it_trained_whole(made: list[Exchange]) -> None:
    sequence, last = build_sequence(made), made[-1]
    logprobs, begin = sequence.logprobs or (), len(last.prompt)
    wrong = [mask for mask, own in zip(sequence.masks, sequence.tokens, strict=True) if mask not in (IGNORED, own)]
    assert (sequence.tokens, wrong) == (last.prompt + last.said, [])
    assert [value != NO_LOGPROB for value in logprobs] == [mask != IGNORED for mask in sequence.masks]
    assert (sequence.masks[begin:], logprobs[begin:]) == (last.said, last.logprobs)
    assert build_sequence([replace(made[0], logprobs=None), *made[1:]]) == replace(sequence, logprobs=None)


@given(exchanges())
def test_a_token_is_trained_only_where_it_was_said_after_the_same_tokens(made: list[Exchange]) -> None:
    sequence = build_sequence(made)
    said_at = {(one.prompt + one.said)[: place + 1] for one in made for place in _places(one)}
    trained = [place for place, mask in enumerate(sequence.masks) if mask != IGNORED]
    assert [place for place in trained if sequence.tokens[: place + 1] not in said_at] == []


@given(exchanges())
def test_nothing_that_goes_on_unchanged_is_lost(made: list[Exchange]) -> None:
    unchanged = all(
        later.prompt[: len(earlier.prompt + earlier.said)] == earlier.prompt + earlier.said
        for earlier, later in pairwise(made)
    )
    said = sum(len(one.said) for one in made)
    assert build_sequence(made).trained == said if unchanged else build_sequence(made).trained <= said


def test_an_episode_of_two_messages() -> None:
    first = Exchange((1, 2), (3, 9), (-0.5, -0.25))
    second = Exchange((1, 2, 3, 9, 7, 8), (4, 9), (-0.75, -1.0))
    assert build_sequence([first, second]) == TokenSequence(
        tokens=(1, 2, 3, 9, 7, 8, 4, 9),
        masks=(IGNORED, IGNORED, 3, 9, IGNORED, IGNORED, 4, 9),
        logprobs=(1.0, 1.0, -0.5, -0.25, 1.0, 1.0, -0.75, -1.0),
    )


def test_thoughts_that_a_template_drops_are_not_trained() -> None:
    """5 was thought, and is gone from the second prompt: what followed it is context there."""
    first = Exchange((1,), (5, 3, 9), (-0.5, -0.5, -0.5))
    second = Exchange((1, 3, 9, 7), (4, 9), (-0.25, -0.25))
    assert build_sequence([first, second]).masks == (IGNORED,) * 4 + (4, 9)


@given(exchanges())
def test_turns_give_every_exact_prompt_back(made: list[Exchange]) -> None:
    before: tuple[int, ...] = ()
    again: list[Exchange] = []
    for turn in build_turns(made):
        again.append(Exchange(before[: turn.kept] + turn.prompt_ids, turn.completion_ids, turn.logprobs))
        before = again[-1].prompt + again[-1].said
    assert again == made


def test_a_turn_says_whether_its_prompt_goes_on_from_what_was_sampled() -> None:
    """The third prompt lacks 3, which was thought: only its beginning is kept."""
    told = build_turns(
        [
            Exchange((1, 2), (3, 9), (-0.5, -0.25)),
            Exchange((1, 2, 3, 9, 7), (4, 9), None, from_server=False),
            Exchange((1, 2, 9, 7, 4, 9, 8), (5,), (-1.0,)),
        ]
    )
    assert told == (
        TurnTokens(0, joined=True, from_server=True, prompt_ids=(1, 2), completion_ids=(3, 9), logprobs=(-0.5, -0.25)),
        TurnTokens(4, joined=True, from_server=False, prompt_ids=(7,), completion_ids=(4, 9), logprobs=None),
        TurnTokens(
            2, joined=False, from_server=True, prompt_ids=(9, 7, 4, 9, 8), completion_ids=(5,), logprobs=(-1.0,)
        ),
    )


@given(tokens, tokens)
def test_what_two_sequences_share(one: tuple[int, ...], other: tuple[int, ...]) -> None:
    length = count_shared_prefix(one, other)
    differ = one[length : length + 1] != other[length : length + 1] or not one[length:]
    assert (one[:length] == other[:length], differ or not other[length:]) == (True, True)


def _places(exchange: Exchange) -> range:
    return range(len(exchange.prompt), len(exchange.prompt + exchange.said))
