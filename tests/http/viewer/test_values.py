"""What the pages show, before any HTML."""

import json

import pytest
from pydantic import JsonValue

from app.domain.judging import Judgement, Verdict
from app.domain.scores import Score
from app.domain.tasks import Completion, FunctionCall, Message, ToolCall
from app.http.viewer.group_pages import (
    MAX_ARGUMENTS,
    PresentedCandidate,
    ResultView,
    build_call,
    build_cards,
    build_lines,
    build_readings,
)
from app.toolkit.charts import MAX_BARS, Bar, build_bar_chart
from app.toolkit.texts import (
    SHOWN_AT_ALL,
    Excerpt,
    cut_excerpt,
    escape_invisible,
    format_number,
    format_signed,
    scale_heat,
)
from tests.support.sample_views import group_of, gsm8k_group, npc_group
from tests.support.tables import read_table


def test_numbers_have_a_form() -> None:
    """An advantage has its sign, no number is not zero, and heat has eleven steps."""
    signed = {0.0: "0.00", 1.2345: "+1.23", -0.5: "−0.50", -0.001: "0.00", 0.004: "0.00"}
    plain = {None: "–", 0.0: "0.000", 0.12345: "0.123", 1.0: "1.000"}
    heat = {0.0: 0, 0.04: 0, 0.06: 1, 0.5: 5, 0.94: 9, 1.0: 10, -0.2: 0, 1.7: 10}
    assert {value: format_signed(value) for value in signed} == signed
    assert {value: format_number(value) for value in plain} == plain
    assert {value: scale_heat(value) for value in heat} == heat


def test_bars_tell_zero_from_no_score() -> None:
    assert build_bar_chart([1.0, 0.0, None]).bars == (
        Bar(x=0, y=0.0, height=26.0, heat=10, label="1.000"),
        Bar(x=9, y=24.5, height=1.5, heat=0, label="0.000"),
        Bar(x=18, y=19.0, height=7.0, heat=None, label="no score"),
    )


def test_a_long_group_is_cut_and_an_empty_one_is_a_chart_too() -> None:
    long, empty = build_bar_chart([0.5] * 256), build_bar_chart([])
    assert (len(long.bars), long.left_out, empty.bars, empty.width) == (MAX_BARS, 256 - MAX_BARS, (), 1)


def test_what_would_not_show_is_spelled_out() -> None:
    assert (
        escape_invisible("a\u202eb\x00c\u200bd\ud800e\r\n\tf\u061c\xad\u3164\U000e0041")
        == "a⟨U+202E⟩b⟨U+0000⟩c⟨U+200B⟩d⟨U+D800⟩e⟨U+000D⟩\n\tf⟨U+061C⟩⟨U+00AD⟩⟨U+3164⟩⟨U+E0041⟩"
    )


def test_joiners_and_other_scripts_are_left_alone() -> None:
    text = (
        "👩‍🚀 می‌خواهم שלום 日本語 葛\U000e0100 \U0001f3f4\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f"
    )
    hidden = "\U0001f3f4\U000e0067\U000e0062"
    assert escape_invisible(text + hidden) == text + "\U0001f3f4⟨U+E0067⟩⟨U+E0062⟩"


def test_a_short_text_is_shown_at_once() -> None:
    assert cut_excerpt("x" * 1800) == Excerpt(head="x" * 1800, rest="", length=1800, more=0, omitted=0)


def test_a_long_text_is_cut_between_words() -> None:
    text = "word " * 1000
    shown = cut_excerpt(text)
    assert (shown.head + shown.rest, shown.head.endswith(" "), shown.more, shown.length) == (text, True, 3500, 5000)
    endless = cut_excerpt("\x00" * (SHOWN_AT_ALL + 5))
    assert (endless.length, endless.omitted, endless.more) == (SHOWN_AT_ALL + 5, 5, SHOWN_AT_ALL - 1500)


def test_cards_are_sorted_by_reward_and_the_unscored_come_last() -> None:
    shown = [
        (card.rank, card.slot, card.reward, card.advantage, card.outcome) for card in build_cards(npc_group(1).group)
    ]
    assert shown == [
        ("1", 2, "0.940", "+1.32", "scored"),
        ("2", 4, "0.470", "+0.18", "scored"),
        ("3", 1, "0.180", "−0.53", "scored"),
        ("4", 3, "0.000", "−0.97", "scored"),
        ("", 5, "–", "", "unscored"),
    ]


def test_equal_rewards_share_a_rank_and_keep_their_order() -> None:
    assert [(card.rank, card.slot) for card in build_cards(gsm8k_group(1).group)] == [
        ("1", 1),
        ("1", 3),
        ("3", 2),
        ("3", 4),
    ]


def test_calls_are_shown_whichever_way_their_arguments_came() -> None:
    calls = tuple(
        ToolCall(function=FunctionCall(name="look", arguments=arguments))
        for arguments in ('{"at":"sea","n":2}', {"at": "sea", "n": 2})
    )
    (line,) = build_lines([Message(role="assistant", tool_calls=calls)])
    shown = [(call.name, [(name, value.head) for name, value in call.arguments], call.written) for call in line.calls]
    assert (line.content, shown) == (None, [("look", [("at", '"sea"'), ("n", "2")], None)] * 2)


@pytest.mark.parametrize(
    ("arguments", "written"),
    [("{", "{"), ("[1]", "[1]"), ("", ""), ('{"a": NaN}', '{"a": NaN}'), ('{"a":1,"a":2}', '{"a":1,"a":2}')],
)
def test_arguments_that_are_none_are_shown_as_they_were_written(arguments: str, written: str) -> None:
    call = build_call(ToolCall(function=FunctionCall(name="x" * 101, arguments=arguments)))
    assert (call.name, call.arguments, call.written) == (f"{'x' * 100}…", (), cut_excerpt(written))


def test_a_call_with_masses_of_arguments_is_shown_as_its_json() -> None:
    arguments: dict[str, JsonValue] = {f"a{number}": number for number in range(MAX_ARGUMENTS + 1)}
    call = build_call(ToolCall(function=FunctionCall(name="f", arguments=arguments)))
    assert (call.arguments, call.written) == ((), cut_excerpt(json.dumps(arguments, indent=2)))


@pytest.mark.parametrize(
    ("content", "shown", "failed"), read_table(__file__, "tool_answers.yaml", list[tuple[str, str, bool]])
)
def test_what_tools_answer_is_laid_out(content: str, shown: str, failed: bool) -> None:
    (line,) = build_lines([Message(role="tool", content=content)])
    assert (line.content, line.result) == (None, ResultView(cut_excerpt(shown), failed))


def test_a_ranking_keeps_its_ties_and_free_calls_cost_nothing() -> None:
    judgement = Judgement(
        judge="offline",
        model="none",
        order=("a", "b", "c"),
        verdicts=(Verdict(candidate="a", scores={"voice": None}),),
        ranking=(("b",), ("a", "c")),
    )
    prompt = npc_group(1).task.prompt
    scores = [Score(outcome="scored", reward=0.5, candidate=candidate) for candidate in ("c", "a", "c", "")]
    group = group_of(1, "npc_arena", prompt, [(Completion(text="x"), score) for score in scores]).group
    a, b, c = PresentedCandidate("a", (2,)), PresentedCandidate("b", ()), PresentedCandidate("c", (1, 3))
    (reading,) = build_readings([judgement], group)
    chips = [(seen, chip.name, chip.value, chip.heat) for seen, _, chips in reading.verdicts for chip in chips]
    assert (reading.order, reading.ranking, reading.cost, reading.offline, reading.raw, chips) == (
        (a, b, c),
        ((b,), (a, c)),
        "",
        True,
        None,
        [(a, "voice", "n/a", None)],
    )
