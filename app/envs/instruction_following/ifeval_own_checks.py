"""IFEval's kinds as this environment means them: its own units of text, and nothing that pays for nothing.

`docs/instruction_following.md` says for each kind what differs and why."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.envs.instruction_following.constraints.instruction import format_count
from app.envs.instruction_following.constraints.letter_case import LowerCase, UpperCase, count_capital_words
from app.envs.instruction_following.constraints.prose_checks import (
    COUNTED_FOR_DIFFERENCE,
    LEAST_SHARE_OF_DIFFERENT_WORDS,
    count_copied_words,
    parse_prompt,
)
from app.envs.instruction_following.constraints.punctuation import NoCommas, Placeholders
from app.envs.instruction_following.constraints.text_division import ParagraphStart, StarredParagraphs, TwoAnswers
from app.envs.instruction_following.constraints.text_units import ParsedText, parse_text, split_words
from app.envs.instruction_following.ifeval_arguments import IfevalArguments, IfevalInstruction, Relation, holds
from app.envs.instruction_following.ifeval_checks import (
    RESPONSES,
    is_followed,
    list_highlights,
    list_titles,
    parse_json,
)
from app.envs.instruction_following.ifeval_languages import detect_text_language

_FaultFinder = Callable[[ParsedText, IfevalArguments], str]

LEAST_OWN_WORDS: Final = 10
LEAST_OWN_LETTERS: Final = 30
"""Of languages that are written without spaces."""
_UNSPACED: Final = frozenset({"zh", "ja", "th"})
_AROUND: Final = "*#_\"' "
"""Marks that may stand around a heading or a marker."""
_JSON_PARENTS: Final = (dict, list)


def find_own_fault(reading: ParsedText, instruction: IfevalInstruction) -> str:
    """How the reply breaks the instruction; empty if it follows it."""
    return _FAULTS[instruction.id](reading, instruction.arguments)


def find_emptiness(reading: ParsedText, prompt: str, instructions: Sequence[IfevalInstruction]) -> str:
    """Why the reply counts as none: it has hardly any words that the prompt does not have, or the same ones over and
    over. Without this "ok" would follow "no commas", and so would the prompt itself."""
    bare = reading.bare
    if len(set(bare)) < LEAST_SHARE_OF_DIFFERENT_WORDS * min(len(bare), COUNTED_FOR_DIFFERENCE):
        return "it says the same words over and over"
    own = len(bare) - count_copied_words(bare, parse_prompt(prompt))
    if detect_text_language(reading.raw) in _UNSPACED:
        letters = sum(map(len, bare))
        return "" if own and letters >= LEAST_OWN_LETTERS else "it is too short to be a reply"
    least = _count_least_words(instructions)
    return "" if own >= least else f"{format_count(max(own, 0), 'word')} of its own where at least {least} are needed"


def _count_least_words(instructions: Sequence[IfevalInstruction]) -> int:
    """Where the answer itself was asked to be short, less will do."""
    least = LEAST_OWN_WORDS
    for instruction in instructions:
        given = instruction.arguments
        if instruction.id == "detectable_format:constrained_response":
            return 0
        if instruction.id == "length_constraints:number_words" and given.relation == "less than":
            least = min(least, given.num_words // 2)
    return least


def _compare(relation: Relation, found: int, number: int, noun: str) -> str:
    return "" if holds(relation, found, number) else f"{format_count(found, noun)} where {relation} {number} were asked"


def _count_phrase(reading: ParsedText, phrase: str) -> int:
    """As words of their own; signs that are no words are found anywhere."""
    words, bare = parse_text(phrase).bare, reading.bare
    if len(words) < 2:
        return bare.count(words[0]) if words else reading.text.count(phrase.strip())
    return sum(bare[place : place + len(words)] == words for place in range(len(bare) - len(words) + 1))


def _find_missing_keywords(reading: ParsedText, given: IfevalArguments) -> str:
    missing = sum(not _count_phrase(reading, keyword) for keyword in given.keywords)
    return f"{missing} of {len(given.keywords)} words that must occur do not" if missing else ""


def _find_wrong_frequency(reading: ParsedText, given: IfevalArguments) -> str:
    return _compare(given.relation, _count_phrase(reading, given.keyword), given.frequency, f'"{given.keyword}"')


def _find_forbidden_words(reading: ParsedText, given: IfevalArguments) -> str:
    found = [word for word in given.forbidden_words if _count_phrase(reading, word)]
    return f"words that must not occur do: {', '.join(found)}" if found else ""


def _find_wrong_letters(reading: ParsedText, given: IfevalArguments) -> str:
    letter = parse_text(given.letter).folded or given.letter
    return _compare(given.let_relation, reading.folded.count(letter), given.let_frequency, f'"{given.letter}"')


def _find_wrong_language(reading: ParsedText, given: IfevalArguments) -> str:
    right = detect_text_language(reading.raw) == given.language.casefold().split("-")[0]
    return "" if right else "it is not in the language that was asked for"


def _find_wrong_start(reading: ParsedText, given: IfevalArguments) -> str:
    word = next(iter(parse_text(given.first_word).bare), "")
    return ParagraphStart(count=given.num_paragraphs, place=given.nth_paragraph, word=word).find_fault(reading)


def _find_missing_postscript(reading: ParsedText, given: IfevalArguments) -> str:
    """A line that begins so; the last point of the marker may be missing."""
    mark = given.postscript_marker.casefold().rstrip(".")
    begun = [line.lstrip(_AROUND) for line in reading.text.casefold().split("\n")]
    said = any(line.startswith(mark) and split_words(line[len(mark) :]) for line in begun)
    return "" if said else f"no line is a postscript after {given.postscript_marker}"


def _find_wrong_bullets(reading: ParsedText, given: IfevalArguments) -> str:
    points = [line for line in reading.lines if line.startswith(("* ", "- ")) and split_words(line)]
    wrong = f"{format_count(len(points), 'bullet point')} where exactly {given.num_bullets} were asked"
    return "" if len(points) == given.num_bullets else wrong


def _find_wrong_response(reading: ParsedText, given: IfevalArguments) -> str:
    said = sum(response in reading.text for response in RESPONSES)
    return "" if said == 1 else f"{said} of the three answers where one was asked"


def _find_missing_title(reading: ParsedText, given: IfevalArguments) -> str:
    titles = list_titles(reading.text)
    if not any(map(split_words, titles)):
        return "it has no title in << and >>"
    beside = len(reading.words) - sum(len(split_words(title)) for title in titles)
    return "" if beside > 0 else "it is a title without a text"


def _find_missing_highlights(reading: ParsedText, given: IfevalArguments) -> str:
    different = {parse_text(part).folded for part in list_highlights(reading.text) if split_words(part)}
    return _compare("at least", len(different), given.num_highlights, "different highlighted part")


def _find_missing_sections(reading: ParsedText, given: IfevalArguments) -> str:
    """Each heading begins a line, with numbers in their order, and has text up to the next."""
    heading = re.compile(rf"{re.escape(given.section_spliter.strip().casefold())}\s?(\d+)(?!\w)(.*)")
    numbers, with_text = list[str](), list[bool]()
    for line in reading.lines:
        begun = heading.match(line.strip(_AROUND).casefold())
        if begun:
            numbers.append(begun[1])
            with_text.append(bool(split_words(begun[2])))
        elif with_text:
            with_text[-1] = True
    if numbers != [str(number) for number in range(1, len(numbers) + 1)]:
        return "its sections are not numbered 1, 2, 3 and so on"
    if not all(with_text):
        return "a section has no text"
    return _compare("at least", len(numbers), given.num_sections, "section")


def _find_wrong_json(reading: ParsedText, given: IfevalArguments) -> str:
    try:
        value = parse_json(reading.raw)
    except (ValueError, RecursionError):
        return "it is no JSON"
    return "" if isinstance(value, _JSON_PARENTS) and value else "it is no JSON object or list with something in it"


def _find_unrepeated_prompt(reading: ParsedText, given: IfevalArguments) -> str:
    repeated = parse_text(given.prompt_to_repeat).folded
    if not reading.folded.startswith(repeated):
        return "it does not begin with the request that was to be repeated"
    return "" if split_words(reading.folded[len(repeated) :]) else "nothing follows the repeated request"


def _find_wrong_capitals(reading: ParsedText, given: IfevalArguments) -> str:
    found = count_capital_words(reading)
    return _compare(given.capital_relation, found, given.capital_frequency, "word in capital letters")


def _find_other_language(reading: ParsedText) -> str:
    return "" if detect_text_language(reading.raw) == "en" else "it is not in English"


def _find_unless_published(fault: str, kind: str) -> _FaultFinder:
    """For kinds that mean the same here."""
    return lambda reading, given: (
        "" if is_followed(reading.text, IfevalInstruction.model_construct(id=kind, arguments=given)) else fault
    )


_FAULTS: Final[Mapping[str, _FaultFinder]] = {
    "keywords:existence": _find_missing_keywords,
    "keywords:frequency": _find_wrong_frequency,
    "keywords:forbidden_words": _find_forbidden_words,
    "keywords:letter_frequency": _find_wrong_letters,
    "language:response_language": _find_wrong_language,
    "length_constraints:number_sentences": lambda reading, given: _compare(
        given.relation, len(reading.sentences), given.num_sentences, "sentence"
    ),
    "length_constraints:number_paragraphs": lambda reading, given: StarredParagraphs(
        count=given.num_paragraphs
    ).find_fault(reading),
    "length_constraints:number_words": lambda reading, given: _compare(
        given.relation, len(reading.words), given.num_words, "word"
    ),
    "length_constraints:nth_paragraph_first_word": _find_wrong_start,
    "detectable_content:number_placeholders": lambda reading, given: Placeholders(
        count=given.num_placeholders
    ).find_fault(reading),
    "detectable_content:postscript": _find_missing_postscript,
    "detectable_format:number_bullet_lists": _find_wrong_bullets,
    "detectable_format:constrained_response": _find_wrong_response,
    "detectable_format:number_highlighted_sections": _find_missing_highlights,
    "detectable_format:multiple_sections": _find_missing_sections,
    "detectable_format:json_format": _find_wrong_json,
    "detectable_format:title": _find_missing_title,
    "combination:two_responses": lambda reading, given: TwoAnswers(least=1).find_fault(reading),
    "combination:repeat_prompt": _find_unrepeated_prompt,
    "startend:end_checker": _find_unless_published("it does not end as was asked", "startend:end_checker"),
    "startend:quotation": _find_unless_published("it does not stand in double quotation marks", "startend:quotation"),
    "change_case:capital_word_frequency": _find_wrong_capitals,
    "change_case:english_capital": lambda reading, given: (
        UpperCase().find_fault(reading) or _find_other_language(reading)
    ),
    "change_case:english_lowercase": lambda reading, given: (
        LowerCase().find_fault(reading) or _find_other_language(reading)
    ),
    "punctuation:no_comma": lambda reading, given: NoCommas().find_fault(reading),
}
