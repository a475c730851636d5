"""Every kind of instruction is checked: a reply that breaks it earns nothing, one of a kind that nobody knows neither.

What people report of checkers of IFEval is that kinds without a check of their own are always followed, and that of two
instructions of one kind only the last counts."""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import pytest
from pydantic import JsonValue, ValidationError

from app.domain.scores import Score
from app.domain.tasks import Task
from app.envs.instruction_following.environment import InstructionFollowing
from app.envs.instruction_following.ifeval_checks import ARGUMENTS, IfevalInstruction
from app.envs.instruction_following.ifeval_rows import IfevalRow, IfevalTask, IfevalTrainingRow, Strictness
from tests.envs.replies import score_texts

MEANINGS: Final[tuple[Strictness, ...]] = ("ours", "published", "loose")
PROMPT: Final = "Tell of a trip to a lake."
TRIP: Final = "We left before dawn and rowed out until the town was only a line behind us."
REST: Final = "The oars were heavy and my hands were cold but nobody spoke about turning back."


class Replies(NamedTuple):
    arguments: Mapping[str, JsonValue]
    followed: str
    broken: str
    """As good a text as the other, by every meaning."""


REPLIES: Final[Mapping[str, Replies]] = {
    "keywords:existence": Replies({"keywords": ["dawn", "heron"]}, f"{TRIP} A heron watched.", TRIP),
    "keywords:frequency": Replies(
        {"relation": "at least", "keyword": "heron", "frequency": 2}, f"{TRIP} A heron met a heron.", f"{TRIP} A heron."
    ),
    "keywords:forbidden_words": Replies({"forbidden_words": ["oars", "boat"]}, TRIP, REST),
    "keywords:letter_frequency": Replies(
        {"let_relation": "less than", "letter": "z", "let_frequency": 1}, TRIP, f"{TRIP} A maze of reeds."
    ),
    "language:response_language": Replies(
        {"language": "de"}, "Wir fuhren vor dem Morgen hinaus und die Stadt war nur noch eine Linie hinter uns.", TRIP
    ),
    "length_constraints:number_sentences": Replies(
        {"relation": "at least", "num_sentences": 2}, f"{TRIP} {REST}", TRIP.replace(".", " and did not look back.")
    ),
    "length_constraints:number_paragraphs": Replies({"num_paragraphs": 2}, f"{TRIP}\n***\n{REST}", f"{TRIP}\n\n{REST}"),
    "length_constraints:number_words": Replies({"relation": "at least", "num_words": 25}, f"{TRIP} {REST}", TRIP),
    "length_constraints:nth_paragraph_first_word": Replies(
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "the"}, f"{TRIP}\n\n{REST}", f"{REST}\n\n{TRIP}"
    ),
    "detectable_content:number_placeholders": Replies(
        {"num_placeholders": 2}, f"{TRIP} I met [name] at [place].", f"{TRIP} I met [name] at the pier."
    ),
    "detectable_content:postscript": Replies(
        {"postscript_marker": "P.S."}, f"{TRIP}\n\nP.S. {REST}", f"{TRIP}\n\nNote: {REST}"
    ),
    "detectable_format:number_bullet_lists": Replies(
        {"num_bullets": 2}, f"* {TRIP}\n* {REST}", f"* {TRIP}\n* {REST}\n* We slept.\n* We woke.\n* We ate."
    ),
    "detectable_format:constrained_response": Replies({}, "My answer is no.", "No, the lake was not deep."),
    "detectable_format:number_highlighted_sections": Replies(
        {"num_highlights": 2}, f"{TRIP} *The oars* were *heavy*.", f"{TRIP} *The oars* were heavy."
    ),
    "detectable_format:multiple_sections": Replies(
        {"section_spliter": "Section", "num_sections": 2},
        f"Section 1\n{TRIP}\nSection 2\n{REST}",
        f"Section 1\n{TRIP}\n{REST}",
    ),
    "detectable_format:json_format": Replies({}, f'{{"story": "{TRIP} {REST}"}}', f"{{story: {TRIP} {REST}}}"),
    "detectable_format:title": Replies({}, f"<<The lake>>\n{TRIP}", f"The lake\n{TRIP}"),
    "combination:two_responses": Replies({}, f"{TRIP}\n******\n{REST}", f"{TRIP}\n******\n{TRIP}"),
    "combination:repeat_prompt": Replies({"prompt_to_repeat": PROMPT}, f"{PROMPT}\n{TRIP}", f"{TRIP} {PROMPT}"),
    "startend:end_checker": Replies(
        {"end_phrase": "That is all."}, f"{TRIP} That is all.", f"That is all. {TRIP} {REST}"
    ),
    "startend:quotation": Replies({}, f'"{TRIP}"', f'"{TRIP}" {REST}'),
    "change_case:capital_word_frequency": Replies(
        {"capital_relation": "at least", "capital_frequency": 2}, f"{TRIP} IT WAS cold.", f"{TRIP} IT was cold."
    ),
    "change_case:english_capital": Replies({}, TRIP.upper(), TRIP.title()),
    "change_case:english_lowercase": Replies({}, TRIP.lower(), TRIP),
    "punctuation:no_comma": Replies({}, TRIP, TRIP.replace("dawn", "dawn,")),
}


def pose(instructions: Sequence[Mapping[str, Any]], strictness: Strictness) -> Task:
    asked = IfevalTask(
        prompt=PROMPT,
        instructions=tuple(IfevalInstruction.model_validate(one) for one in instructions),
        strictness=strictness,
    )
    return Task(messages=(), reference=asked.model_dump(mode="json", exclude_unset=True))


def read_earnings(score: Score) -> tuple[float | None, float | None]:
    """The reward, and the share of instructions that were followed."""
    return score.reward, score.criteria[1].value


@pytest.mark.parametrize("strictness", MEANINGS)
@pytest.mark.parametrize("kind", ARGUMENTS)
def test_a_reply_that_breaks_an_instruction_earns_nothing_for_it(kind: str, strictness: Strictness) -> None:
    arguments, followed, broken = REPLIES[kind]
    task = pose([{"id": kind, "arguments": arguments}], strictness)
    scores = score_texts(InstructionFollowing(), task, followed, broken)
    assert [read_earnings(score) for score in scores] == [(1.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize("strictness", MEANINGS)
@pytest.mark.parametrize(
    ("kind", "first", "second", "replies"),
    [
        (
            "length_constraints:number_words",
            {"relation": "at least", "num_words": 20},
            {"relation": "less than", "num_words": 40},
            {f"{TRIP} {REST}": 1.0, TRIP: 0.5, f"{TRIP} {REST} {TRIP[3:]}": 0.5},
        ),
        (
            "keywords:frequency",
            {"relation": "at least", "keyword": "heron", "frequency": 1},
            {"relation": "at least", "keyword": "reeds", "frequency": 1},
            {f"{TRIP} A heron in the reeds.": 1.0, f"{TRIP} A heron.": 0.5, f"{TRIP} Only reeds.": 0.5, TRIP: 0.0},
        ),
    ],
)
def test_two_instructions_of_one_kind_are_both_checked(
    kind: str,
    first: Mapping[str, JsonValue],
    second: Mapping[str, JsonValue],
    replies: Mapping[str, float],
    strictness: Strictness,
) -> None:
    row = {"prompt": PROMPT, "instruction_id_list": [kind, kind], "kwargs": [first, second]}
    truth = [{"instruction_id": [kind, kind], "kwargs": [second, first]}]
    training = {"messages": [{"role": "user", "content": PROMPT}], "ground_truth": repr(truth)}
    for instructions in (
        IfevalRow.model_validate(row).instructions,
        IfevalTrainingRow.model_validate(training).instructions,
    ):
        task = pose([one.model_dump(exclude_unset=True) for one in instructions], strictness)
        scores = score_texts(InstructionFollowing(), task, *replies)
        earned = [read_earnings(score) for score in scores]
        assert earned == [(1.0 if share == 1.0 else 0.0, share) for share in replies.values()]


@pytest.mark.parametrize(
    "kind",
    [
        *("keywords:must_include", "count:numbers", "punctuation:no_comma ", "Punctuation:No_Comma", "no_comma"),
        *("punctuation", "", None, 7, ["punctuation:no_comma"], {"punctuation": "no_comma"}),
    ],
)
def test_an_unknown_instruction_is_never_followed(kind: Any) -> None:
    """Its row makes no task, alone or beside known ones, and what was stored with it cannot be scored."""
    kinds: list[Any] = ["punctuation:no_comma", kind]
    kwargs: list[dict[str, JsonValue]] = [{}, {}]
    truth = repr([{"instruction_id": kinds, "kwargs": kwargs}])
    with pytest.raises(ValidationError):
        IfevalRow.model_validate({"prompt": PROMPT, "instruction_id_list": kinds, "kwargs": kwargs})
    with pytest.raises(ValidationError):
        IfevalTrainingRow.model_validate({"messages": [{"role": "user", "content": PROMPT}], "ground_truth": truth})
    stored: dict[str, JsonValue] = {
        "prompt": PROMPT,
        "instructions": [{"id": kind, "arguments": {}}],
        "strictness": "published",
    }
    with pytest.raises(ValidationError):
        score_texts(InstructionFollowing(), Task(messages=(), reference=stored), TRIP)
