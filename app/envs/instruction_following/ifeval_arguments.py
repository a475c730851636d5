"""The 25 kinds of instructions of IFEval, and their arguments, by their published names."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from re import IGNORECASE, escape
from re import compile as compile_literal
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.domain.suggestions import suggest
from app.domain.values import Frozen
from app.toolkit.safe_regex import MOST_STEPS, compile_pattern

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

_MOST: Final = 20_000
_LONGEST_REPLY: Final = "\U0001f600" * _MOST
_MOST_MATCHES: Final = 1_000
"""Of a regular expression, which may look through the whole rest of a reply for each."""
_SPECIAL: Final = frozenset(".^$*+?{}[]\\|()")
"""Signs that mean something in a regular expression."""

Relation = Literal["at least", "less than"]
Count = Annotated[int, Field(ge=0, le=_MOST)]
Text = Annotated[str, Field(min_length=1, max_length=_MOST)]


def _check_keyword(keyword: object) -> object:
    if isinstance(keyword, str):
        compile_keyword(keyword)
        compile_keyword(keyword, whole=True)
    return keyword


Keyword = Annotated[Text, BeforeValidator(_check_keyword)]


class IfevalArguments(BaseModel):
    """All 24 arguments. `section_spliter` is spelled so in the published rows."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keywords: tuple[Keyword, ...] = ()
    keyword: Keyword = "x"
    frequency: Count = 0
    relation: Relation = "at least"
    forbidden_words: tuple[Keyword, ...] = ()
    letter: Annotated[str, Field(min_length=1, max_length=1)] = "x"
    let_frequency: Count = 0
    let_relation: Relation = "at least"
    language: Text = "en"
    num_sentences: Count = 0
    num_paragraphs: Count = 0
    num_words: Count = 0
    nth_paragraph: Annotated[int, Field(ge=1, le=_MOST)] = 1
    first_word: Text = "x"
    num_placeholders: Count = 0
    postscript_marker: Text = "P.S."
    num_bullets: Count = 0
    num_highlights: Count = 0
    section_spliter: Text = "Section"
    num_sections: Count = 0
    prompt_to_repeat: Text = "x"
    end_phrase: Text = "x"
    capital_frequency: Count = 0
    capital_relation: Relation = "at least"


class IfevalInstruction(Frozen):
    id: str
    arguments: IfevalArguments = IfevalArguments()

    @model_validator(mode="before")
    @classmethod
    def _require_arguments(cls, value: Any) -> Any:
        """Arguments without a value are left out, as in copies of the rows where every row has all of them."""
        if not isinstance(value, Mapping):
            return value
        kind, given = value["id"], {name: one for name, one in value["arguments"].items() if one is not None}
        if kind not in ARGUMENTS:
            raise ValueError(f"unknown instruction {kind!r}{suggest(str(kind), list(ARGUMENTS))}")
        missing = [name for name in ARGUMENTS[kind] if name not in given]
        if missing:
            raise ValueError(f"{kind} lacks the argument {', '.join(missing)}")
        unknown = sorted(set(given).difference(IfevalArguments.model_fields))
        if unknown:
            raise ValueError(f"{kind} has the unknown argument {', '.join(unknown)}")
        return {"id": kind, "arguments": given}

    @model_validator(mode="after")
    def _check_place(self) -> Self:
        given = self.arguments
        if self.id.endswith("nth_paragraph_first_word") and given.nth_paragraph > given.num_paragraphs:
            raise ValueError(f"there is no paragraph {given.nth_paragraph} among {given.num_paragraphs}")
        if _SPECIAL.intersection(given.keyword) and given.frequency > _MOST_MATCHES:
            raise ValueError(f"a regular expression is counted up to {_MOST_MATCHES:,} times")
        return self


def holds(relation: Relation, found: int, number: int) -> bool:
    return found >= number if relation == "at least" else found < number


@lru_cache(maxsize=4_096)
def compile_keyword(keyword: str, *, whole: bool = False) -> Callable[[str, int], int]:
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
