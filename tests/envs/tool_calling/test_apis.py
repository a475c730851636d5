"""The interfaces that ship: each has much to say, and each sentence asks for one call and no other."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations
from pathlib import Path

import pytest
from pydantic import JsonValue

import app.envs
from app.domain.tasks import Message
from app.envs.tool_calling.requests import (
    TEST_SHARE,
    ApiArgument,
    ApiBook,
    ApiDomain,
    ApiTool,
    CallRequest,
    ToolRequest,
    WordedValue,
    draw_call_request,
    draw_incomplete_request,
    is_right_refusal,
    write_refusal,
)
from app.toolkit.seeded import SeededRandom, is_held_out
from app.toolkit.tool_calls.calls import (
    ParsedCall,
    Schema,
    describe_schema_fault,
    get_item_schema,
    get_members,
    is_same_value,
    match_calls,
)
from app.toolkit.tool_calls.formats import FORMATS, ToolFormat
from tests.support.tiers import examples

DRAWN = examples(2_400, fewest=90)
"""Sentences that are drawn of each tool: of them a third differ."""


ASKED = (Message(role="user", content="Do what I say."),)


pytestmark = pytest.mark.deep


@cache
def book() -> ApiBook:
    return ApiBook.read(Path(app.envs.__path__[0]) / "tool_calling" / "apis")


@cache
def members_of_book() -> tuple[tuple[ApiDomain, ApiTool], ...]:
    return tuple(book().list_tools())


@cache
def sentences() -> dict[str, tuple[CallRequest, ...]]:
    """By tool."""
    return {
        tool.name: tuple(
            draw_call_request(domain, tool, SeededRandom(f"{tool.name} {number}")) for number in range(DRAWN)
        )
        for domain, tool in members_of_book()
    }


def checked() -> Iterator[CallRequest]:
    return (one for every in sentences().values() for one in every[:15])


def choices(domain: ApiDomain, argument: ApiArgument) -> tuple[WordedValue, ...]:
    listed = domain.pools[argument.pool] if argument.pool is not None else argument.values
    return tuple(one if isinstance(one, WordedValue) else WordedValue(value=one, said=str(one)) for one in listed)


def every_argument() -> Iterator[tuple[ApiDomain, ApiTool, str, ApiArgument]]:
    return (
        (domain, tool, name, argument)
        for domain, tool in members_of_book()
        for name, argument in tool.arguments.items()
    )


def free_strings(value: JsonValue, schema: Schema) -> Iterator[str]:
    """The strings in a value that are not of a list of choices."""
    if isinstance(value, str) and "enum" not in schema:
        yield value
    if isinstance(value, list):
        yield from (text for one in value for text in free_strings(one, get_item_schema(schema)))
    if isinstance(value, dict):
        yield from (text for name, one in value.items() for text in free_strings(one, get_members(schema)[name]))


def test_every_tool_is_asked_for_in_many_sentences_of_both_splits() -> None:
    different = {name: {one.text for one in every} for name, every in sentences().items()}
    few = {name: len(texts) for name, texts in different.items() if len(texts) < DRAWN // 3}
    splits = {name: {is_held_out(text, TEST_SHARE) for text in texts} for name, texts in different.items()}
    assert (few, [name for name, both in splits.items() if len(both) == 1]) == ({}, [])


def test_no_sentence_asks_for_two_tools() -> None:
    tools = Counter(text for every in sentences().values() for text in {one.text.casefold() for one in every})
    assert {text: count for text, count in tools.items() if count > 1} == {}


def test_each_value_and_each_default_is_valid() -> None:
    faults = []
    for domain, tool, name, argument in every_argument():
        least = next(one.arguments for one in sentences()[tool.name] if {*tool.required} <= one.arguments.keys())
        values = [one.value for one in choices(domain, argument)]
        inner: list[JsonValue] = [[value] for value in values] if argument.listed is not None else values
        schema = argument.schema_
        allowed = schema.get("enum", [])
        assert isinstance(allowed, list)
        for value in [*inner, *allowed, *([schema["default"]] if "default" in schema else [])]:
            faults.append(
                describe_schema_fault(ParsedCall(name=tool.name, arguments={**least, name: value}), [tool.spec])
            )
    assert [fault for fault in faults if fault] == []


def test_the_choices_of_an_argument_can_be_told_apart() -> None:
    """Neither do two values count as the same, nor do the same words ask for both."""
    alike = []
    for domain, tool, name, argument in every_argument():
        schema = get_item_schema(argument.schema_) if argument.listed is not None else argument.schema_
        for one, other in combinations(choices(domain, argument), 2):
            if is_same_value(one.value, other.value, schema) or one.said.casefold() == other.said.casefold():
                alike.append((tool.name, name, one.said, other.said))
    assert alike == []


def test_two_arguments_of_a_sentence_do_not_share_their_strings() -> None:
    """Otherwise a journey might end where it began."""
    shared = []
    for one in checked():
        strings = [value for value in one.arguments.values() if isinstance(value, str) and len(value) > 3]
        shared += [(one.tool.name, value) for value, times in Counter(strings).items() if times > 1]
    assert shared == []


def test_every_string_and_every_number_of_a_range_is_said_as_it_is_to_be_passed_on() -> None:
    unsaid = [
        (one.text, text)
        for every in sentences().values()
        for one in every
        for name, value in one.arguments.items()
        for argument in [one.tool.arguments[name]]
        for text in (*free_strings(value, argument.schema_), *([str(value)] if argument.range is not None else []))
        if text not in one.text
    ]
    assert unsaid == []


def test_the_call_that_is_asked_for_is_valid_and_right() -> None:
    wrong = [
        (one.text, fault)
        for one in checked()
        for fault in [describe_schema_fault(one.expected.build_minimal_call(), [one.tool.spec])]
        for call in [ParsedCall(name=one.tool.name, arguments=one.arguments)]
        if fault or not match_calls([call], [one.expected], [one.tool.spec]).correct
    ]
    assert wrong == []


@pytest.mark.parametrize("form", FORMATS)
def test_the_call_that_is_asked_for_can_be_written_in_every_format(form: ToolFormat) -> None:
    calls = [(every[0].expected.build_minimal_call(), every[0].tool.spec) for every in sentences().values()]
    read = [FORMATS[form].read(FORMATS[form].write([call]), [tool]).calls for call, tool in calls]
    assert read == [(call,) for call, _ in calls]


def test_a_refusal_that_names_what_is_missing_is_right_and_an_empty_phrase_is_not() -> None:
    found = []
    for domain, tool in members_of_book():
        lacking = [tool.arguments[one.lacks].missing for one in tool.incomplete]
        for words in [tool.about, *lacking]:
            request = ToolRequest(category="irrelevance", domain=domain.domain, messages=ASKED, tools=(), missing=words)
            empty = "No tool fits: some information that this request needs is not given, please provide the details."
            found.append((is_right_refusal(write_refusal(request), request), is_right_refusal(empty, request)))
    assert {*found} == {(True, False)}


def test_an_incomplete_request_does_not_say_what_it_lacks() -> None:
    """Not even by chance: no choice of the argument that it lacks stands in it."""
    told = []
    for domain, tool in members_of_book():
        for number in range(40 if tool.incomplete else 0):
            text, lacks = draw_incomplete_request(domain, tool, SeededRandom(f"{tool.name} lacks {number}"))
            argument = tool.arguments[lacks]
            lacking = (
                () if "enum" in argument.schema_ or argument.schema_["type"] == "boolean" else choices(domain, argument)
            )
            told += [(text, one.said) for one in lacking if f" {one.said} " in f" {text} "]
    assert told == []
