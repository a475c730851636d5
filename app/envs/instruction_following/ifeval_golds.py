"""Replies that follow instructions of IFEval, for checks of ours: they make little sense, and no model sees them."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from app.envs.instruction_following.constraints.text_plan import PROSE
from app.envs.instruction_following.ifeval_arguments import IfevalArguments, IfevalInstruction
from app.envs.instruction_following.ifeval_checks import RESPONSES, STARS
from app.envs.instruction_following.ifeval_languages import list_words

_LEAST: Final = 16
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"
_CAPITALS: Final = tuple(
    dict.fromkeys(word.upper() for core in PROSE.cores for word in core.split() if word.isalpha() and len(word) > 2)
)


@dataclass
class _ReplyPlan:
    """Properties of the reply; each instruction adds its own."""

    words: int = _LEAST
    """Fewest, of the whole reply."""
    sentences: int = 2
    most_sentences: int = 10_000
    language: str = "en"
    groups: int = 1
    separator: str = "\n\n"
    heading: str = ""
    openers: dict[int, str] = field(default_factory=dict)
    """First words of groups."""
    said: list[str] = field(default_factory=list)
    """What must occur."""
    avoided: set[str] = field(default_factory=set)
    """Words."""
    rare: str = ""
    """A letter."""
    above: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)
    json: bool = False
    quoted: bool = False
    case: str = ""

    def add(self, kind: str, given: IfevalArguments) -> None:
        match kind.partition(":")[2]:
            case "existence":
                self.said += given.keywords
            case "frequency" if given.relation == "at least":
                self.said += [given.keyword] * given.frequency
            case "frequency":
                self.avoided.add(given.keyword.casefold())
            case "forbidden_words":
                self.avoided |= {word.casefold() for word in given.forbidden_words}
            case "letter_frequency" if given.let_relation == "at least":
                self.said.append(given.letter * given.let_frequency)
            case "letter_frequency":
                self.rare = given.letter.casefold()
            case "capital_word_frequency" if given.capital_relation == "at least":
                self.said += _CAPITALS[: given.capital_frequency]
            case "number_placeholders":
                self.said += [f"[name {letter}]" for letter in _LETTERS[: given.num_placeholders]]
            case "number_highlighted_sections":
                self.said += [f"*part {letter}*" for letter in _LETTERS[: given.num_highlights]]
            case _:
                self._add_length(kind, given)

    def _add_length(self, kind: str, given: IfevalArguments) -> None:
        match kind.partition(":")[2]:
            case "number_words" if given.relation == "at least":
                self.words = given.num_words + 5
            case "number_words":
                self.words = min(self.words, given.num_words - 3)
            case "number_sentences" if given.relation == "at least":
                self.sentences = given.num_sentences + 1
            case "number_sentences":
                self.most_sentences = given.num_sentences - 1
            case "number_paragraphs":
                self.groups, self.separator = given.num_paragraphs, "\n***\n"
            case "nth_paragraph_first_word":
                self.groups, self.openers = given.num_paragraphs, {given.nth_paragraph - 1: given.first_word}
            case "multiple_sections":
                self.groups, self.heading = max(given.num_sections, self.groups), given.section_spliter
            case "two_responses":
                self.groups, self.separator = 2, f"\n{STARS}\n"
            case _:
                self._add_form(kind, given)

    def _add_form(self, kind: str, given: IfevalArguments) -> None:
        match kind.partition(":")[2]:
            case "postscript":
                self.below.append(f"\n{given.postscript_marker} {_take_words(self.language, 3)}.")
            case "number_bullet_lists":
                self.below = [f"* {core}" for core in PROSE.cores[-given.num_bullets :]] + self.below
            case "constrained_response":
                self.above.append(RESPONSES[0])
            case "title":
                self.above.append(f"<<{_take_words(self.language, 2)}>>")
            case "repeat_prompt":
                self.above.insert(0, given.prompt_to_repeat)
            case "end_checker":
                self.below.append(given.end_phrase)
            case _:
                self._add_whole(kind, given)

    def _add_whole(self, kind: str, given: IfevalArguments) -> None:
        match kind.partition(":")[2]:
            case "response_language":
                self.language = given.language.casefold().split("-")[0]
            case "json_format":
                self.json = True
            case "quotation":
                self.quoted = True
            case "english_capital" | "english_lowercase":
                self.case = kind


def compose_reply(instructions: Sequence[IfevalInstruction]) -> str:
    """A reply that probably follows all instructions: the caller has to check it."""
    plan = _ReplyPlan()
    for instruction in sorted(instructions, key=lambda one: one.id != "language:response_language"):
        plan.add(instruction.id, instruction.arguments)
    text = "\n".join([*plan.above, _lay_out(plan), *plan.below])
    if plan.json:
        text = json.dumps({"text": text}, ensure_ascii=False)
    if plan.quoted:
        text = f'"{text}"'
    return text.upper() if plan.case.endswith("capital") else text.lower() if plan.case else text


def _take_words(language: str, count: int) -> str:
    return "a good day" if language == "en" else " ".join(list_words(language)[:count])


def _lay_out(plan: _ReplyPlan) -> str:
    around = sum(len(line.split()) for line in (*plan.above, *plan.below))
    sentences = _write_sentences(plan, plan.words - around)
    bounds = [len(sentences) * group // plan.groups for group in range(plan.groups + 1)]
    groups = []
    for number in range(plan.groups):
        said = " ".join(sentences[bounds[number] : bounds[number + 1]])
        opener = f"{plan.openers[number]} " if number in plan.openers else ""
        heading = f"{plan.heading} {number + 1}\n" if plan.heading else ""
        groups.append(f"{heading}{opener}{said}")
    return plan.separator.join(groups)


def _write_sentences(plan: _ReplyPlan, words: int) -> list[str]:
    """Sentences without commas: those that must be there are added to the first ones."""
    cores = [core for core in _list_cores(plan) if not any(word in f" {core} " for word in plan.avoided)]
    if plan.rare:
        cores.sort(key=lambda core: core.count(plan.rare))
    sentences, counted = list[str](), 0
    least = max(plan.sentences, plan.groups)
    said, each = list(plan.said), -(-len(plan.said) // min(max(least, 3), plan.most_sentences or 1))
    while counted < words or len(sentences) < least or said:
        core = cores[len(sentences) % len(cores)]
        parts, said = said[:each], said[each:]
        sentence = " ".join([core, *parts])
        sentences.append(f"{sentence[:1].upper()}{sentence[1:]}.")
        counted += len(sentence.split())
    most = min(plan.most_sentences, len(sentences))
    if 0 < most < len(sentences):
        joined = " ".join(sentence.rstrip(".") for sentence in sentences[most - 1 :])
        sentences = [*sentences[: most - 1], f"{joined}."]
    return sentences


def _list_cores(plan: _ReplyPlan) -> list[str]:
    if plan.language == "en":
        return [core.replace("{thing}", "lamp").replace("{place}", "garden") for core in PROSE.cores]
    words = list_words(plan.language)
    return [" ".join([*words[start:], *words[:start]][:6]) for start in range(0, len(words), 3)]
