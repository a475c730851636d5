"""The published meaning of IFEval's 25 kinds, as pure checks of a reply.

strict   the reply as it is
loose    one of eight variants will do: the reply, or the reply without its first line, its last, or both; each also
         without its stars

An empty reply follows nothing. `docs/instruction_following.md` says what is decided here that the published program
leaves to chance or to downloads: languages, sentences, tokens, and letters that are none.
"""

import json
import re
from collections.abc import Callable, Mapping
from typing import Final

from app.envs.instruction_following.ifeval_arguments import (
    IfevalArguments,
    IfevalInstruction,
    compile_keyword,
    holds,
)
from app.envs.instruction_following.ifeval_languages import detect_text_language

_Check = Callable[[str, IfevalArguments], bool]

RESPONSES: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
STARS: Final = "******"
_WORD: Final = re.compile(r"\w+")
_TOKEN: Final = re.compile(r"\w+(?:-\w+)*")
"""Parts of `DON'T` are tokens of their own, parts of `WELL-KNOWN` are not."""
_SENTENCE_END: Final = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]*]*+(?=\s|$)|[。！？]++")
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(\"'])(?:(?-i:[A-HJ-Z])|mr|mrs|ms|dr|prof|st|sr|jr|vs|e\.g|i\.e|inc|ltd|approx|p\.(?:p\.)?s)\.$",
    re.IGNORECASE,
)
_LONGEST_ABBREVIATION: Final = 10
_DIVIDER: Final = re.compile(r"\s?\*\*\*\s?")
_HIGHLIGHT: Final = re.compile(r"\*\*([^\n*]*)\*\*|\*([^\n*]*)\*")
_FENCE: Final = re.compile(r"```(?:json)?", re.IGNORECASE)
_FIRST_WORD: Final = re.compile(r"['\"]*([^.,?!'\"\s]*)")
_POSTSCRIPTS: Final = {
    "P.P.S": re.compile(r"p\.\s?p\.\s?s", re.IGNORECASE),
    "P.S.": re.compile(r"p\.\s?s\.", re.IGNORECASE),
}


def is_followed(reply: str, instruction: IfevalInstruction) -> bool:
    """By the strict meaning."""
    return bool(reply.strip()) and _CHECKS[instruction.id](reply, instruction.arguments)


def is_loosely_followed(reply: str, instruction: IfevalInstruction) -> bool:
    return any(is_followed(variant, instruction) for variant in list_variants(reply))


def list_variants(reply: str) -> tuple[str, ...]:
    lines = reply.split("\n")
    cut = (reply, *("\n".join(some).strip() for some in (lines[1:], lines[:-1], lines[1:-1])))
    return (*cut, *(variant.replace("*", "") for variant in cut))


def count_sentences(text: str) -> int:
    """Ends of sentences, and one for text without an end at the close. A point after an abbreviation or an initial is
    no end, and neither is one before a small letter."""
    found, last = 0, 0
    for end in _SENTENCE_END.finditer(text):
        before, after = text[max(last, end.end() - _LONGEST_ABBREVIATION) : end.end()], text[end.end() :].lstrip()[:1]
        if not end[0].strip(".…") and (_ABBREVIATION.search(before) or after.islower()):
            continue
        found, last = found + bool(_WORD.search(text, last, end.end())), end.end()
    return found + bool(_WORD.search(text, last))


def split_divided(text: str) -> list[str] | None:
    """The parts between `***`, without an empty first or last one; None if another is empty."""
    parts = [part.strip() for part in _DIVIDER.split(text)]
    inner = [part for place, part in enumerate(parts) if part or 0 < place < len(parts) - 1]
    return inner if all(inner) else None


def split_responses(text: str) -> list[str] | None:
    """As `split_divided`, between `******`."""
    parts = [part.strip() for part in text.split(STARS)]
    inner = [part for place, part in enumerate(parts) if part or 0 < place < len(parts) - 1]
    return inner if all(inner) else None


def parse_json(text: str) -> object:
    """What the reply is without one code fence. ValueError or RecursionError if that is no JSON."""
    bare = text.strip()
    opened = _FENCE.match(bare)
    return json.loads(bare[opened.end() if opened else 0 :].removesuffix("```").strip())


def count_enclosed(text: str, opening: str, closing: str) -> int:
    """Pairs of marks on one line."""
    found = 0
    for line in text.split("\n"):
        at = line.find(opening)
        while at >= 0 and (end := line.find(closing, at)) >= 0:
            found, at = found + 1, line.find(opening, end)
    return found


def is_in_language(text: str, code: str) -> bool:
    """Also a text that has no letters."""
    return detect_text_language(text) in (None, code.casefold().split("-")[0])


def _has_keywords(text: str, given: IfevalArguments) -> bool:
    return all(compile_keyword(keyword)(text, 1) for keyword in given.keywords)


def _has_frequency(text: str, given: IfevalArguments) -> bool:
    return holds(given.relation, compile_keyword(given.keyword)(text, given.frequency), given.frequency)


def _has_no_forbidden_words(text: str, given: IfevalArguments) -> bool:
    return not any(compile_keyword(word, whole=True)(text, 1) for word in given.forbidden_words)


def _has_letter(text: str, given: IfevalArguments) -> bool:
    return holds(given.let_relation, text.lower().count(given.letter.lower()), given.let_frequency)


def _has_sentences(text: str, given: IfevalArguments) -> bool:
    return holds(given.relation, count_sentences(text), given.num_sentences)


def _has_words(text: str, given: IfevalArguments) -> bool:
    return holds(given.relation, len(_WORD.findall(text)), given.num_words)


def _has_divided_paragraphs(text: str, given: IfevalArguments) -> bool:
    parts = split_divided(text)
    return parts is not None and len(parts) == given.num_paragraphs


def _has_first_word(text: str, given: IfevalArguments) -> bool:
    """As published, empty parts are not counted, and yet have a place."""
    parts = [part.strip() for part in text.split("\n\n")]
    count = sum(map(bool, parts))
    wanted = parts[given.nth_paragraph - 1] if given.nth_paragraph <= count else ""
    begins = _FIRST_WORD.match(wanted)
    said = begins[1].lower() if wanted and begins else None
    return count == given.num_paragraphs and said == given.first_word.lower()


def _has_placeholders(text: str, given: IfevalArguments) -> bool:
    return count_enclosed(text, "[", "]") >= given.num_placeholders


def _has_postscript(text: str, given: IfevalArguments) -> bool:
    known = _POSTSCRIPTS.get(given.postscript_marker)
    return bool(known.search(text)) if known else given.postscript_marker.lower() in text.lower()


def _has_bullets(text: str, given: IfevalArguments) -> bool:
    lines = [line.lstrip() for line in text.split("\n")]
    starred = sum(line.startswith("*") and len(line) > 1 and line[1] != "*" for line in lines)
    return starred + sum(line.startswith("-") for line in lines) == given.num_bullets


def _has_response(text: str, given: IfevalArguments) -> bool:
    return any(response in text for response in RESPONSES)


def _has_highlights(text: str, given: IfevalArguments) -> bool:
    return len(list_highlights(text)) >= given.num_highlights


def list_highlights(text: str) -> list[str]:
    return [said for double, single in _HIGHLIGHT.findall(text) if (said := (double or single).strip())]


def _has_sections(text: str, given: IfevalArguments) -> bool:
    heading = re.compile(rf"{re.escape(given.section_spliter)}\s?\d")
    return len(heading.findall(text)) >= given.num_sections


def _is_json(text: str, given: IfevalArguments) -> bool:
    try:
        parse_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def _has_title(text: str, given: IfevalArguments) -> bool:
    return bool(list_titles(text))


def list_titles(text: str) -> list[str]:
    """What stands in `<<` and `>>` on a line, where it is not empty."""
    marked = [line[line.find("<<") :] for line in text.split("\n") if "<<" in line]
    titles = (line[: line.rfind(">>") + 2].strip("<>").strip() for line in marked)
    return [title for title in titles if title]


def _has_two_responses(text: str, given: IfevalArguments) -> bool:
    parts = split_responses(text)
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


def _repeats_prompt(text: str, given: IfevalArguments) -> bool:
    return text.strip().lower().startswith(given.prompt_to_repeat.strip().lower())


def _ends_with(text: str, given: IfevalArguments) -> bool:
    return text.strip().strip('"').lower().endswith(given.end_phrase.strip().lower())


def _is_quoted(text: str, given: IfevalArguments) -> bool:
    said = text.strip()
    return len(said) > 1 and said.startswith('"') and said.endswith('"')


def _has_capital_words(text: str, given: IfevalArguments) -> bool:
    found = sum(token.isupper() for token in _TOKEN.findall(text))
    return holds(given.capital_relation, found, given.capital_frequency)


_CHECKS: Final[Mapping[str, _Check]] = {
    "keywords:existence": _has_keywords,
    "keywords:frequency": _has_frequency,
    "keywords:forbidden_words": _has_no_forbidden_words,
    "keywords:letter_frequency": _has_letter,
    "language:response_language": lambda text, given: is_in_language(text, given.language),
    "length_constraints:number_sentences": _has_sentences,
    "length_constraints:number_paragraphs": _has_divided_paragraphs,
    "length_constraints:number_words": _has_words,
    "length_constraints:nth_paragraph_first_word": _has_first_word,
    "detectable_content:number_placeholders": _has_placeholders,
    "detectable_content:postscript": _has_postscript,
    "detectable_format:number_bullet_lists": _has_bullets,
    "detectable_format:constrained_response": _has_response,
    "detectable_format:number_highlighted_sections": _has_highlights,
    "detectable_format:multiple_sections": _has_sections,
    "detectable_format:json_format": _is_json,
    "detectable_format:title": _has_title,
    "combination:two_responses": _has_two_responses,
    "combination:repeat_prompt": _repeats_prompt,
    "startend:end_checker": _ends_with,
    "startend:quotation": _is_quoted,
    "change_case:capital_word_frequency": _has_capital_words,
    "change_case:english_capital": lambda text, given: text.isupper() and is_in_language(text, "en"),
    "change_case:english_lowercase": lambda text, given: text.islower() and is_in_language(text, "en"),
    "punctuation:no_comma": lambda text, given: "," not in text,
}
