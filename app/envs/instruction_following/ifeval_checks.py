"""IFEval's 25 kinds of instructions, in their published meaning and in ours, as pure checks of a reply.

strict   as published, of the reply as it is
loose    as published, of one of eight variants: the reply, or the reply without its first line, its last, or both; each
         also without its stars
ours     with this environment's own units of text, and nothing that pays for nothing

An empty reply follows nothing. `docs/datasets.md` says for each kind what differs and why, and what is decided here
that the published program leaves to chance or to downloads: languages, sentences, tokens, and letters that are none.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from re import IGNORECASE, escape
from re import compile as compile_literal
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, model_validator

from app.domain.values import MEBIBYTE, Frozen, remember, suggest
from app.envs.instruction_following.counted_kinds import (
    LowerCase,
    NoCommas,
    Placeholders,
    UpperCase,
    count_capital_words,
)
from app.envs.instruction_following.instructions import ParsedText, format_count, parse_text, split_words
from app.envs.instruction_following.layout_kinds import ParagraphStart, StarredParagraphs, TwoAnswers
from app.envs.instruction_following.texts import (
    COUNTED_FOR_DIFFERENCE,
    LEAST_SHARE_OF_DIFFERENT_WORDS,
    count_copied_words,
    is_english,
    parse_prompt,
)
from app.toolkit.templates import read_packaged_data
from app.toolkit.texts import MOST_STEPS, compile_pattern

# The kinds and their arguments, by their published names.

ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "keywords:existence": ("keywords",),
    "keywords:frequency": ("relation", "keyword", "frequency"),
    "keywords:forbidden_words": ("forbidden_words",),
    "keywords:letter_frequency": ("let_relation", "letter", "let_frequency"),
    "language:response_language": ("language",),
    "length_constraints:number_sentences": ("relation", "num_sentences"),
    "length_constraints:number_paragraphs": ("num_paragraphs",),
    "length_constraints:number_words": ("relation", "num_words"),
    "length_constraints:nth_paragraph_first_word": ("num_paragraphs", "nth_paragraph", "first_word"),
    "detectable_content:number_placeholders": ("num_placeholders",),
    "detectable_content:postscript": ("postscript_marker",),
    "detectable_format:number_bullet_lists": ("num_bullets",),
    "detectable_format:constrained_response": (),
    "detectable_format:number_highlighted_sections": ("num_highlights",),
    "detectable_format:multiple_sections": ("section_spliter", "num_sections"),
    "detectable_format:json_format": (),
    "detectable_format:title": (),
    "combination:two_responses": (),
    "combination:repeat_prompt": ("prompt_to_repeat",),
    "startend:end_checker": ("end_phrase",),
    "startend:quotation": (),
    "change_case:capital_word_frequency": ("capital_relation", "capital_frequency"),
    "change_case:english_capital": (),
    "change_case:english_lowercase": (),
    "punctuation:no_comma": (),
}
"""Required arguments of each kind."""


def is_kind(name: object) -> bool:
    """What a row calls a kind may be anything."""
    return isinstance(name, str) and name in ARGUMENTS


_MOST: Final = 20_000
_LONGEST_REPLY: Final = "\U0001f600" * _MOST
"""What takes a pattern longest: every character has four bytes."""
_MOST_MATCHES: Final = 1_000
"""Of a regular expression, which may look through the whole rest of a reply for each."""
_SPECIAL: Final = frozenset(".^$*+?{}[]\\|()")
"""Signs that mean something in a regular expression."""

_Relation = Literal["at least", "less than"]
_Count = Annotated[int, Field(ge=0, le=_MOST)]
_Text = Annotated[str, Field(min_length=1, max_length=_MOST)]


def _check_keyword(keyword: object) -> object:
    if isinstance(keyword, str):
        _compile_keyword(keyword)
        _compile_keyword(keyword, whole=True)
    return keyword


_Keyword = Annotated[_Text, BeforeValidator(_check_keyword)]


class IfevalArguments(BaseModel):
    """All 24 arguments. `section_spliter` is spelled so in the published rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keywords: tuple[_Keyword, ...] = ()
    keyword: _Keyword = "x"
    frequency: _Count = 0
    relation: _Relation = "at least"
    forbidden_words: tuple[_Keyword, ...] = ()
    letter: Annotated[str, Field(min_length=1, max_length=1)] = "x"
    let_frequency: _Count = 0
    let_relation: _Relation = "at least"
    language: _Text = "en"
    num_sentences: _Count = 0
    num_paragraphs: _Count = 0
    num_words: _Count = 0
    nth_paragraph: Annotated[int, Field(ge=1, le=_MOST)] = 1
    first_word: _Text = "x"
    num_placeholders: _Count = 0
    postscript_marker: _Text = "P.S."
    num_bullets: _Count = 0
    num_highlights: _Count = 0
    section_spliter: _Text = "Section"
    num_sections: _Count = 0
    prompt_to_repeat: _Text = "x"
    end_phrase: _Text = "x"
    capital_frequency: _Count = 0
    capital_relation: _Relation = "at least"


class IfevalInstruction(Frozen):
    id: str
    arguments: IfevalArguments = IfevalArguments()

    @model_validator(mode="before")
    @classmethod
    def _require_arguments(cls, value: Any) -> Any:
        """Arguments without a value are left out, as in copies of the rows where every row has all of them."""
        if not isinstance(value, Mapping):
            return value
        kind, arguments = value["id"], {name: one for name, one in value["arguments"].items() if one is not None}
        if not is_kind(kind):
            raise ValueError(f"unknown instruction {kind!r}{suggest(str(kind), list(ARGUMENTS))}")
        missing = [name for name in ARGUMENTS[kind] if name not in arguments]
        if missing:
            raise ValueError(f"{kind} lacks the argument {', '.join(missing)}")
        unknown = sorted(set(arguments).difference(IfevalArguments.model_fields))
        if unknown:
            raise ValueError(f"{kind} has the unknown argument {', '.join(unknown)}")
        return {"id": kind, "arguments": arguments}

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        arguments = self.arguments
        if self.id.endswith("nth_paragraph_first_word") and arguments.nth_paragraph > arguments.num_paragraphs:
            raise ValueError(f"there is no paragraph {arguments.nth_paragraph} among {arguments.num_paragraphs}")
        if _SPECIAL.intersection(arguments.keyword) and arguments.frequency > _MOST_MATCHES:
            raise ValueError(f"a regular expression is counted up to {_MOST_MATCHES:,} times")
        return self


def _holds(relation: _Relation, count: int, limit: int) -> bool:
    return count >= limit if relation == "at least" else count < limit


@remember(2 * MEBIBYTE)
def _compile_keyword(keyword: str, *, whole: bool = False) -> Callable[[str, int], int]:
    """How often a text has it, counted up to a most, in any case; `whole`: as a word of its own. A keyword is a regular
    expression by the published meaning: one with special signs is left to RE2, which takes linear time. ValueError for
    one that RE2 cannot use."""
    if not _SPECIAL.intersection(keyword):
        edge = r"\b" if whole else ""
        literal = compile_literal(f"{edge}{escape(keyword)}{edge}", IGNORECASE)
        return lambda text, most: sum(1 for _ in islice(literal.finditer(text), most))
    edge = r"\b" if whole else ""
    pattern = compile_pattern(f"(?i){edge}(?:{keyword}){edge}")
    if pattern.steps(_LONGEST_REPLY) > MOST_STEPS:
        raise ValueError("the regular expression of a keyword is too large")
    return lambda text, most: pattern.count(text.encode("utf-8", "replace").decode("utf-8"), most)


# The language of a text, by its script and by frequent words: the same everywhere, unlike the unseeded detector of the
# published checks, and surer of short texts.

_SCRIPTS: Final[Mapping[str, str]] = {
    "latin": "A-Za-z\u00aa\u00ba\u00c0-\u024f\u1e00-\u1eff",
    "cyrillic": "\u0400-\u04ff",
    "devanagari": "\u0900-\u097f",
    "arabic": "\u0600-\u06ff\ufb50-\ufdff\ufe70-\ufeff",
    "he": "\u0590-\u05ff",
    "bn": "\u0980-\u09ff",
    "pa": "\u0a00-\u0a7f",
    "gu": "\u0a80-\u0aff",
    "ta": "\u0b80-\u0bff",
    "te": "\u0c00-\u0c7f",
    "kn": "\u0c80-\u0cff",
    "ml": "\u0d00-\u0d7f",
    "th": "\u0e00-\u0e7f",
    "el": "\u0370-\u03ff",
    "ko": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "ja": "\u3040-\u30ff",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff",
}
"""Letters of each script; one that a single language has here is called by its code."""
_LETTERS: Final = {name: re.compile(f"[{letters}]") for name, letters in _SCRIPTS.items()}
_WORDS: Final = re.compile(r"[^\W\d_]+(?:[\u0900-\u097f]+[^\W\d_]*)*")
_KANA_SHARE: Final = 0.05
"""Japanese has kana beside the signs that it shares with Chinese."""
_READ: Final = 20_000


class _Marks(Frozen):
    words: str
    letters: str


def _read_marks() -> dict[str, dict[str, tuple[frozenset[str], frozenset[str]]]]:
    path = Path(__file__).with_name("ifeval_languages.yaml")
    scripts = read_packaged_data(path, TypeAdapter(dict[str, dict[str, _Marks]]))
    return {
        script: {code: (frozenset(marks.words.split()), frozenset(marks.letters)) for code, marks in languages.items()}
        for script, languages in scripts.items()
    }


_MARKS: Final = cache(_read_marks)  # only data sets need it


@cache
def list_languages() -> frozenset[str]:
    """Codes of the languages that can be told."""
    shared = _MARKS()
    return frozenset(_SCRIPTS).difference(shared).union(*shared.values())


def list_words(code: str) -> list[str]:
    """Frequent words of a language; of one that has its script alone, letters of it in threes, which tell it too."""
    for languages in _MARKS().values():
        if code in languages:
            return sorted(languages[code][0])
    letters = [letter for letter in map(chr, range(0x370, 0xB000)) if _LETTERS[code].match(letter) and letter.isalpha()]
    return ["".join(letters[index : index + 3]) for index in range(0, min(len(letters), 60), 2)]


def detect_text_language(text: str) -> str | None:
    """Its code; empty if nothing tells. None for a text without letters."""
    text = text[:_READ].lower()
    letter_counts = {name: len(letters.findall(text)) for name, letters in _LETTERS.items()}
    script = max(letter_counts, key=lambda name: letter_counts[name])
    if not any(map(str.isalpha, text)):
        return None
    if script == "zh" and letter_counts["ja"] > _KANA_SHARE * letter_counts["zh"]:
        return "ja"
    if script not in _MARKS():
        return script
    words = _WORDS.findall(text)
    counts = {
        code: sum(map(frequent.__contains__, words)) + sum(map(letters.__contains__, text))
        for code, (frequent, letters) in _MARKS()[script].items()
    }
    best = max(counts, key=lambda code: counts[code])
    if counts[best]:
        return best
    return "en" if words and 2 * sum(map(is_english, words)) > len(words) else ""


# The published meaning.

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
    return any(is_followed(variant, instruction) for variant in _list_variants(reply))


def _list_variants(reply: str) -> tuple[str, ...]:
    lines = reply.split("\n")
    cut = (reply, *("\n".join(some).strip() for some in (lines[1:], lines[:-1], lines[1:-1])))
    return (*cut, *(variant.replace("*", "") for variant in cut))


def count_sentences(text: str) -> int:
    """Ends of sentences, and one for text without an end at the close. A point after an abbreviation or an initial is
    no end, and neither is one before a small letter."""
    count, last = 0, 0
    for end in _SENTENCE_END.finditer(text):
        before, after = text[max(last, end.end() - _LONGEST_ABBREVIATION) : end.end()], text[end.end() :].lstrip()[:1]
        if not end[0].strip(".…") and (_ABBREVIATION.search(before) or after.islower()):
            continue
        count, last = count + bool(_WORD.search(text, last, end.end())), end.end()
    return count + bool(_WORD.search(text, last))


def _split_divided(text: str) -> list[str] | None:
    """The parts between `***`, without an empty first or last one; None if another is empty."""
    return _drop_empty_ends(_DIVIDER.split(text))


def _split_responses(text: str) -> list[str] | None:
    """As `_split_divided`, between `******`."""
    return _drop_empty_ends(text.split(STARS))


def _drop_empty_ends(texts: Sequence[str]) -> list[str] | None:
    parts = [text.strip() for text in texts]
    inner = [part for index, part in enumerate(parts) if part or 0 < index < len(parts) - 1]
    return inner if all(inner) else None


def _parse_json(text: str) -> object:
    """What the reply is without one code fence. ValueError or RecursionError if that is no JSON."""
    bare = text.strip()
    opened = _FENCE.match(bare)
    return json.loads(bare[opened.end() if opened else 0 :].removesuffix("```").strip())


def _count_enclosed(text: str, opening: str, closing: str) -> int:
    """Pairs of marks on one line."""
    count = 0
    for line in text.split("\n"):
        at = line.find(opening)
        while at >= 0 and (end := line.find(closing, at)) >= 0:
            count, at = count + 1, line.find(opening, end)
    return count


def _is_in_language(text: str, code: str) -> bool:
    """Also a text that has no letters."""
    return detect_text_language(text) in (None, code.casefold().split("-")[0])


def _has_keywords(text: str, args: IfevalArguments) -> bool:
    return all(_compile_keyword(keyword)(text, 1) for keyword in args.keywords)


def _has_frequency(text: str, args: IfevalArguments) -> bool:
    return _holds(args.relation, _compile_keyword(args.keyword)(text, args.frequency), args.frequency)


def _has_no_forbidden_words(text: str, args: IfevalArguments) -> bool:
    return not any(_compile_keyword(word, whole=True)(text, 1) for word in args.forbidden_words)


def _has_letter(text: str, args: IfevalArguments) -> bool:
    return _holds(args.let_relation, text.lower().count(args.letter.lower()), args.let_frequency)


def _has_sentences(text: str, args: IfevalArguments) -> bool:
    return _holds(args.relation, count_sentences(text), args.num_sentences)


def _has_words(text: str, args: IfevalArguments) -> bool:
    return _holds(args.relation, len(_WORD.findall(text)), args.num_words)


def _has_divided_paragraphs(text: str, args: IfevalArguments) -> bool:
    parts = _split_divided(text)
    return parts is not None and len(parts) == args.num_paragraphs


def _has_first_word(text: str, args: IfevalArguments) -> bool:
    """As published, empty parts are not counted, and yet have a place."""
    parts = [part.strip() for part in text.split("\n\n")]
    count = sum(map(bool, parts))
    paragraph = parts[args.nth_paragraph - 1] if args.nth_paragraph <= count else ""
    begins = _FIRST_WORD.match(paragraph)
    first_word = begins[1].lower() if paragraph and begins else None
    return count == args.num_paragraphs and first_word == args.first_word.lower()


def _has_placeholders(text: str, args: IfevalArguments) -> bool:
    return _count_enclosed(text, "[", "]") >= args.num_placeholders


def _has_postscript(text: str, args: IfevalArguments) -> bool:
    pattern = _POSTSCRIPTS.get(args.postscript_marker)
    return bool(pattern.search(text)) if pattern else args.postscript_marker.lower() in text.lower()


def _has_bullets(text: str, args: IfevalArguments) -> bool:
    lines = [line.lstrip() for line in text.split("\n")]
    starred = sum(line.startswith("*") and len(line) > 1 and line[1] != "*" for line in lines)
    return starred + sum(line.startswith("-") for line in lines) == args.num_bullets


def _has_response(text: str, args: IfevalArguments) -> bool:
    return any(response in text for response in RESPONSES)


def _has_highlights(text: str, args: IfevalArguments) -> bool:
    return len(_list_highlights(text)) >= args.num_highlights


def _list_highlights(text: str) -> list[str]:
    return [part for double, single in _HIGHLIGHT.findall(text) if (part := (double or single).strip())]


def _has_sections(text: str, args: IfevalArguments) -> bool:
    heading = re.compile(rf"{re.escape(args.section_spliter)}\s?\d")
    return len(heading.findall(text)) >= args.num_sections


def _is_json(text: str, args: IfevalArguments) -> bool:
    try:
        _parse_json(text)
    except (ValueError, RecursionError):
        return False
    return True


def _has_title(text: str, args: IfevalArguments) -> bool:
    return bool(_list_titles(text))


def _list_titles(text: str) -> list[str]:
    """What stands in `<<` and `>>` on a line, where it is not empty."""
    marked = [line[line.find("<<") :] for line in text.split("\n") if "<<" in line]
    titles = (line[: line.rfind(">>") + 2].strip("<>").strip() for line in marked)
    return [title for title in titles if title]


def _has_two_responses(text: str, args: IfevalArguments) -> bool:
    parts = _split_responses(text)
    return parts is not None and len(parts) == 2 and parts[0] != parts[1]


def _repeats_prompt(text: str, args: IfevalArguments) -> bool:
    return text.strip().lower().startswith(args.prompt_to_repeat.strip().lower())


def _ends_with(text: str, args: IfevalArguments) -> bool:
    return text.strip().strip('"').lower().endswith(args.end_phrase.strip().lower())


def _is_quoted(text: str, args: IfevalArguments) -> bool:
    reply = text.strip()
    return len(reply) > 1 and reply.startswith('"') and reply.endswith('"')


def _has_capital_words(text: str, args: IfevalArguments) -> bool:
    count = sum(token.isupper() for token in _TOKEN.findall(text))
    return _holds(args.capital_relation, count, args.capital_frequency)


_CHECKS: Final[Mapping[str, _Check]] = {
    "keywords:existence": _has_keywords,
    "keywords:frequency": _has_frequency,
    "keywords:forbidden_words": _has_no_forbidden_words,
    "keywords:letter_frequency": _has_letter,
    "language:response_language": lambda text, args: _is_in_language(text, args.language),
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
    "change_case:english_capital": lambda text, args: text.isupper() and _is_in_language(text, "en"),
    "change_case:english_lowercase": lambda text, args: text.islower() and _is_in_language(text, "en"),
    "punctuation:no_comma": lambda text, args: "," not in text,
}


# Our meaning.

_FaultFinder = Callable[[ParsedText, IfevalArguments], str]

_LEAST_OWN_WORDS: Final = 10
_LEAST_OWN_LETTERS: Final = 30
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
        return "" if own and letters >= _LEAST_OWN_LETTERS else "it is too short to be a reply"
    least = _count_least_words(instructions)
    return "" if own >= least else f"{format_count(max(own, 0), 'word')} of its own where at least {least} are needed"


def _count_least_words(instructions: Sequence[IfevalInstruction]) -> int:
    """Where the answer itself was asked to be short, less will do."""
    least = _LEAST_OWN_WORDS
    for instruction in instructions:
        arguments = instruction.arguments
        if instruction.id == "detectable_format:constrained_response":
            return 0
        if instruction.id == "length_constraints:number_words" and arguments.relation == "less than":
            least = min(least, arguments.num_words // 2)
    return least


def _compare(relation: _Relation, count: int, limit: int, noun: str) -> str:
    return "" if _holds(relation, count, limit) else f"{format_count(count, noun)} where {relation} {limit} were asked"


def _count_phrase(reading: ParsedText, phrase: str) -> int:
    """As words of their own; signs that are no words are found anywhere."""
    words, bare = parse_text(phrase).bare, reading.bare
    if len(words) < 2:
        return bare.count(words[0]) if words else reading.text.count(phrase.strip())
    return sum(bare[index : index + len(words)] == words for index in range(len(bare) - len(words) + 1))


def _find_missing_keywords(reading: ParsedText, args: IfevalArguments) -> str:
    missing = sum(not _count_phrase(reading, keyword) for keyword in args.keywords)
    return f"{missing} of {len(args.keywords)} words that must occur do not" if missing else ""


def _find_wrong_frequency(reading: ParsedText, args: IfevalArguments) -> str:
    return _compare(args.relation, _count_phrase(reading, args.keyword), args.frequency, f'"{args.keyword}"')


def _find_forbidden_words(reading: ParsedText, args: IfevalArguments) -> str:
    occurring = [word for word in args.forbidden_words if _count_phrase(reading, word)]
    return f"words that must not occur do: {', '.join(occurring)}" if occurring else ""


def _find_wrong_letters(reading: ParsedText, args: IfevalArguments) -> str:
    letter = parse_text(args.letter).folded or args.letter
    return _compare(args.let_relation, reading.folded.count(letter), args.let_frequency, f'"{args.letter}"')


def _find_wrong_language(reading: ParsedText, args: IfevalArguments) -> str:
    right = detect_text_language(reading.raw) == args.language.casefold().split("-")[0]
    return "" if right else "it is not in the language that was asked for"


def _find_wrong_start(reading: ParsedText, args: IfevalArguments) -> str:
    word = next(iter(parse_text(args.first_word).bare), "")
    return ParagraphStart(count=args.num_paragraphs, place=args.nth_paragraph, word=word).find_fault(reading)


def _find_missing_postscript(reading: ParsedText, args: IfevalArguments) -> str:
    """A line that begins so; the last point of the marker may be missing."""
    mark = args.postscript_marker.casefold().rstrip(".")
    begun = [line.lstrip(_AROUND) for line in reading.text.casefold().split("\n")]
    has_text = any(line.startswith(mark) and split_words(line[len(mark) :]) for line in begun)
    return "" if has_text else f"no line is a postscript after {args.postscript_marker}"


def _find_wrong_bullets(reading: ParsedText, args: IfevalArguments) -> str:
    points = [line for line in reading.lines if line.startswith(("* ", "- ")) and split_words(line)]
    wrong = f"{format_count(len(points), 'bullet point')} where exactly {args.num_bullets} were asked"
    return "" if len(points) == args.num_bullets else wrong


def _find_wrong_response(reading: ParsedText, args: IfevalArguments) -> str:
    count = sum(response in reading.text for response in RESPONSES)
    return "" if count == 1 else f"{count} of the three answers where one was asked"


def _find_missing_title(reading: ParsedText, args: IfevalArguments) -> str:
    titles = _list_titles(reading.text)
    if not any(map(split_words, titles)):
        return "it has no title in << and >>"
    beside = len(reading.words) - sum(len(split_words(title)) for title in titles)
    return "" if beside > 0 else "it is a title without a text"


def _find_missing_highlights(reading: ParsedText, args: IfevalArguments) -> str:
    different = {parse_text(part).folded for part in _list_highlights(reading.text) if split_words(part)}
    return _compare("at least", len(different), args.num_highlights, "different highlighted part")


def _find_missing_sections(reading: ParsedText, args: IfevalArguments) -> str:
    """Each heading begins a line, with numbers in their order, and has text up to the next."""
    heading = re.compile(rf"{re.escape(args.section_spliter.strip().casefold())}\s?(\d+)(?!\w)(.*)")
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
    return _compare("at least", len(numbers), args.num_sections, "section")


def _find_wrong_json(reading: ParsedText, args: IfevalArguments) -> str:
    try:
        value = _parse_json(reading.raw)
    except (ValueError, RecursionError):
        return "it is no JSON"
    return "" if isinstance(value, _JSON_PARENTS) and value else "it is no JSON object or list with something in it"


def _find_unrepeated_prompt(reading: ParsedText, args: IfevalArguments) -> str:
    repeated = parse_text(args.prompt_to_repeat).folded
    if not reading.folded.startswith(repeated):
        return "it does not begin with the request that was to be repeated"
    return "" if split_words(reading.folded[len(repeated) :]) else "nothing follows the repeated request"


def _find_wrong_capitals(reading: ParsedText, args: IfevalArguments) -> str:
    count = count_capital_words(reading)
    return _compare(args.capital_relation, count, args.capital_frequency, "word in capital letters")


def _find_other_language(reading: ParsedText) -> str:
    return "" if detect_text_language(reading.raw) == "en" else "it is not in English"


def _find_unless_published(fault: str, kind: str) -> _FaultFinder:
    """For kinds that mean the same here."""
    # without validation, since the arguments have been validated with the row
    return lambda reading, args: (
        "" if is_followed(reading.text, IfevalInstruction.model_construct(id=kind, arguments=args)) else fault
    )


_FAULTS: Final[Mapping[str, _FaultFinder]] = {
    "keywords:existence": _find_missing_keywords,
    "keywords:frequency": _find_wrong_frequency,
    "keywords:forbidden_words": _find_forbidden_words,
    "keywords:letter_frequency": _find_wrong_letters,
    "language:response_language": _find_wrong_language,
    "length_constraints:number_sentences": lambda reading, args: _compare(
        args.relation, len(reading.sentences), args.num_sentences, "sentence"
    ),
    "length_constraints:number_paragraphs": lambda reading, args: StarredParagraphs(
        count=args.num_paragraphs
    ).find_fault(reading),
    "length_constraints:number_words": lambda reading, args: _compare(
        args.relation, len(reading.words), args.num_words, "word"
    ),
    "length_constraints:nth_paragraph_first_word": _find_wrong_start,
    "detectable_content:number_placeholders": lambda reading, args: Placeholders(
        count=args.num_placeholders
    ).find_fault(reading),
    "detectable_content:postscript": _find_missing_postscript,
    "detectable_format:number_bullet_lists": _find_wrong_bullets,
    "detectable_format:constrained_response": _find_wrong_response,
    "detectable_format:number_highlighted_sections": _find_missing_highlights,
    "detectable_format:multiple_sections": _find_missing_sections,
    "detectable_format:json_format": _find_wrong_json,
    "detectable_format:title": _find_missing_title,
    "combination:two_responses": lambda reading, args: TwoAnswers(least=1).find_fault(reading),
    "combination:repeat_prompt": _find_unrepeated_prompt,
    "startend:end_checker": _find_unless_published("it does not end as was asked", "startend:end_checker"),
    "startend:quotation": _find_unless_published("it does not stand in double quotation marks", "startend:quotation"),
    "change_case:capital_word_frequency": _find_wrong_capitals,
    "change_case:english_capital": lambda reading, args: (
        UpperCase().find_fault(reading) or _find_other_language(reading)
    ),
    "change_case:english_lowercase": lambda reading, args: (
        LowerCase().find_fault(reading) or _find_other_language(reading)
    ),
    "punctuation:no_comma": lambda reading, args: NoCommas().find_fault(reading),
}
