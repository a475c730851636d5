"""Rows of IFEval, and of the training sets of its form.

    key                   optional; in the metadata
    prompt                the text of the task
    instruction_id_list   kinds, by their published names
    kwargs                the arguments of each, in the same order; those without a value are left out

or, as open-instruct has them:

    messages              the first message of a user is the text of the task
    ground_truth          a Python literal (read as such, never run) or JSON: a list with one
                          `{"instruction_id": [...], "kwargs": [...]}`

In the first form what is unknown is broken. The second form has kinds of other benchmarks too: rows with one of those
are left out.
"""

import ast
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_lowercase
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from app.domain.tasks import leave_out
from app.domain.values import Frozen
from app.envs.instruction_following.ifeval_checks import (
    RESPONSES,
    STARS,
    IfevalArguments,
    IfevalInstruction,
    find_emptiness,
    find_own_fault,
    is_followed,
    is_kind,
    is_loosely_followed,
    list_languages,
    list_words,
)
from app.envs.instruction_following.instructions import MOST_CHARACTERS, PROSE, parse_text

_LONGEST_LITERAL = 100_000
"""Of a cell: parsing a literal takes much more memory than its text."""


def _parse_literal(value: object) -> object:
    """What a text spells, in JSON or as a Python literal: cells of CSV are texts. Anything else is left as it is."""
    if not isinstance(value, str):
        return value
    if len(value) > _LONGEST_LITERAL:
        raise ValueError(f"a list has at most {_LONGEST_LITERAL:,} characters")
    for parse in (json.loads, ast.literal_eval):
        try:
            return parse(value)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
    raise ValueError("it is neither JSON nor a Python literal")


def _build_instructions(kinds: object, kwargs: object) -> list[dict[str, Any]]:
    """ValueError if the two do not belong together."""
    if not isinstance(kinds, list | tuple) or not isinstance(kwargs, list | tuple):
        raise ValueError("the instructions and their arguments are lists")
    if not kinds:
        raise ValueError("there is no instruction")
    if len(kinds) != len(kwargs):
        raise ValueError(f"{len(kinds)} instructions with arguments for {len(kwargs)}")
    arguments = [{} if one is None else one for one in kwargs]
    if not all(isinstance(one, Mapping) for one in arguments):
        raise ValueError("the arguments of an instruction are an object")
    return [{"id": kind, "arguments": dict(one)} for kind, one in zip(kinds, arguments, strict=True)]


_Spelled = Annotated[Any, BeforeValidator(_parse_literal)]


class _InstructionRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    @property
    def task_text(self) -> str:
        raise NotImplementedError

    @property
    def instructions(self) -> tuple[IfevalInstruction, ...]:
        raise NotImplementedError

    @property
    def name(self) -> str:
        return ""

    def _require_tellable(self, instructions: Sequence[IfevalInstruction]) -> None:
        codes = {one.arguments.language for one in instructions if one.id == "language:response_language"}
        unknown = sorted(code for code in codes if code.casefold().split("-")[0] not in list_languages())
        if unknown:
            raise leave_out("a reply is to be in a language that cannot be told here")


class IfevalRow(_InstructionRow):
    key: Annotated[str, BeforeValidator(str)] = ""
    prompt: Annotated[str, Field(min_length=1)]
    instruction_id_list: _Spelled
    arguments: Annotated[_Spelled, Field(validation_alias="kwargs")]

    @property
    def task_text(self) -> str:
        return self.prompt

    @property
    def name(self) -> str:
        return self.key

    @property
    def instructions(self) -> tuple[IfevalInstruction, ...]:
        """What there is to check."""
        built = _build_instructions(self.instruction_id_list, self.arguments)
        return tuple(IfevalInstruction.model_validate(one) for one in built)

    @model_validator(mode="after")
    def _check(self) -> "IfevalRow":
        self._require_tellable(self.instructions)
        return self


class IfevalTrainingRow(_InstructionRow):
    messages: _Spelled
    ground_truth: _Spelled

    @property
    def task_text(self) -> str:
        messages = [one for one in self.messages if isinstance(one, Mapping) and one.get("role") == "user"]
        return str(messages[0].get("content", "")) if messages else ""

    @property
    def instructions(self) -> tuple[IfevalInstruction, ...]:
        truth = _parse_literal(self.ground_truth)
        only = truth[0] if isinstance(truth, list | tuple) and len(truth) == 1 else truth
        if not isinstance(only, Mapping) or not {"instruction_id", "kwargs"} <= set(only):
            raise ValueError("`ground_truth` is not a list with one object of instruction_id and kwargs")
        built = _build_instructions(only["instruction_id"], only["kwargs"])
        if not all(is_kind(one["id"]) for one in built):
            raise leave_out("it has an instruction that is not one of IFEval's 25")
        return tuple(IfevalInstruction.model_validate(one) for one in built)

    @model_validator(mode="after")
    def _check(self) -> "IfevalTrainingRow":
        if not isinstance(self.messages, list | tuple) or not self.task_text.strip():
            raise ValueError("`messages` has no message of a user")
        self._require_tellable(self.instructions)
        return self


# Tasks: what a reply breaks, in the meaning that was chosen.

Strictness = Literal["ours", "published", "loose"]


class IfevalTask(Frozen):
    prompt: str
    instructions: tuple[IfevalInstruction, ...]
    strictness: Strictness


def find_ifeval_faults(reply: str, asked: IfevalTask, strictness: Strictness) -> tuple[str, Sequence[str]]:
    """Why it counts as no reply at all, and one fault per instruction; empty where there is none."""
    if len(reply) > MOST_CHARACTERS:
        return f"it is longer than {MOST_CHARACTERS:,} characters", ()
    if not reply.strip():
        return "it is empty", ()
    if strictness == "ours":
        reading = parse_text(reply)
        lacks = find_emptiness(reading, asked.prompt, asked.instructions)
        return lacks, [find_own_fault(reading, instruction) for instruction in asked.instructions]
    check = is_followed if strictness == "published" else is_loosely_followed
    return "", ["" if check(reply, one) else f"{one.id} is not followed" for one in asked.instructions]


# Replies that follow instructions, for checks of ours: they make little sense, and no model sees them.

_LEAST: Final = 16
_CAPITALS: Final = tuple(
    dict.fromkeys(word.upper() for core in PROSE.cores for word in core.split() if word.isalpha() and len(word) > 2)
)


def write_ifeval_gold(asked: IfevalTask) -> str | None:
    """A reply that follows everything, if one can be put together."""
    text = _compose_reply(asked.instructions)
    lacks, broken = find_ifeval_faults(text, asked, asked.strictness)
    return None if lacks or any(broken) or not broken else text


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
    parts: list[str] = field(default_factory=list)
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

    def add(self, kind: str, args: IfevalArguments) -> None:
        match kind.partition(":")[2]:
            case "existence":
                self.parts += args.keywords
            case "frequency" if args.relation == "at least":
                self.parts += [args.keyword] * args.frequency
            case "frequency":
                self.avoided.add(args.keyword.casefold())
            case "forbidden_words":
                self.avoided |= {word.casefold() for word in args.forbidden_words}
            case "letter_frequency" if args.let_relation == "at least":
                self.parts.append(args.letter * args.let_frequency)
            case "letter_frequency":
                self.rare = args.letter.casefold()
            case "capital_word_frequency" if args.capital_relation == "at least":
                self.parts += _CAPITALS[: args.capital_frequency]
            case "number_placeholders":
                self.parts += [f"[name {letter}]" for letter in ascii_lowercase[: args.num_placeholders]]
            case "number_highlighted_sections":
                self.parts += [f"*part {letter}*" for letter in ascii_lowercase[: args.num_highlights]]
            case _:
                self._add_length(kind, args)

    def _add_length(self, kind: str, args: IfevalArguments) -> None:
        match kind.partition(":")[2]:
            case "number_words" if args.relation == "at least":
                self.words = args.num_words + 5
            case "number_words":
                self.words = min(self.words, args.num_words - 3)
            case "number_sentences" if args.relation == "at least":
                self.sentences = args.num_sentences + 1
            case "number_sentences":
                self.most_sentences = args.num_sentences - 1
            case "number_paragraphs":
                self.groups, self.separator = args.num_paragraphs, "\n***\n"
            case "nth_paragraph_first_word":
                self.groups, self.openers = (
                    args.num_paragraphs,
                    {args.nth_paragraph - 1: args.first_word},
                )
            case "multiple_sections":
                self.groups, self.heading = max(args.num_sections, self.groups), args.section_spliter
            case "two_responses":
                self.groups, self.separator = 2, f"\n{STARS}\n"
            case _:
                self._add_form(kind, args)

    def _add_form(self, kind: str, args: IfevalArguments) -> None:
        match kind.partition(":")[2]:
            case "postscript":
                self.below.append(f"\n{args.postscript_marker} {_take_words(self.language, 3)}.")
            case "number_bullet_lists":
                self.below = [f"* {core}" for core in PROSE.cores[-args.num_bullets :]] + self.below
            case "constrained_response":
                self.above.append(RESPONSES[0])
            case "title":
                self.above.append(f"<<{_take_words(self.language, 2)}>>")
            case "repeat_prompt":
                self.above.insert(0, args.prompt_to_repeat)
            case "end_checker":
                self.below.append(args.end_phrase)
            case _:
                self._add_whole(kind, args)

    def _add_whole(self, kind: str, args: IfevalArguments) -> None:
        match kind.partition(":")[2]:
            case "response_language":
                self.language = args.language.casefold().split("-")[0]
            case "json_format":
                self.json = True
            case "quotation":
                self.quoted = True
            case "english_capital" | "english_lowercase":
                self.case = kind


def _compose_reply(instructions: Sequence[IfevalInstruction]) -> str:
    """A reply that probably follows all instructions: the caller has to check it."""
    plan = _ReplyPlan()
    # the language first, since others write words of it
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
        sentence_text = " ".join(sentences[bounds[number] : bounds[number + 1]])
        opener = f"{plan.openers[number]} " if number in plan.openers else ""
        heading = f"{plan.heading} {number + 1}\n" if plan.heading else ""
        groups.append(f"{heading}{opener}{sentence_text}")
    return plan.separator.join(groups)


def _write_sentences(plan: _ReplyPlan, words: int) -> list[str]:
    """Sentences without commas: those that must be there are added to the first ones."""
    cores = [core for core in _list_cores(plan) if not any(word in f" {core} " for word in plan.avoided)]
    if plan.rare:
        cores.sort(key=lambda core: core.count(plan.rare))
    sentences, counted = list[str](), 0
    least = max(plan.sentences, plan.groups)
    left, each = list(plan.parts), -(-len(plan.parts) // min(max(least, 3), plan.most_sentences or 1))
    while counted < words or len(sentences) < least or left:
        core = cores[len(sentences) % len(cores)]
        parts, left = left[:each], left[each:]
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
