"""Rows with right answers, by which a grader of others is checked: what their columns hold, and in which forms an
answer may be written.

A grader is paid in its own form, which nobody states. So a right answer is tried in all known forms, and the columns
are found by their usual names. A column that a grader's signature names is no sign that it holds the answer.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from pydantic import JsonValue

from app.domain.errors import UserError
from app.domain.values import Frozen, suggest
from app.toolkit.conformance.attempts import WHOLE, split_answer
from app.toolkit.conformance.probes import is_same_value
from app.toolkit.seeded import SeededRandom

Columns = Mapping[str, JsonValue]

PROMPT_COLUMNS: Final = (
    *("prompt", "question", "problem", "query", "instruction", "input", "messages", "responses_create_params.input"),
)
ANSWER_COLUMNS: Final = (
    *("answer", "ground_truth", "solution", "gold", "expected_answer", "correct_answer", "final_answer", "target"),
    *("reference", "reward_model.ground_truth", "extra_info.answer", "info.answer", "verifier_metadata.answer"),
    *("answers", "label", "output"),
)
"""Usual names, the first that a row has is taken. A dot leads into a column with parts."""
SLOT: Final = "{answer}"
_THOUGHT: Final = "<think>\nI work it out step by step.\n</think>\n"
FORMS: Final = (
    "\\boxed{{answer}}",
    "<answer>{answer}</answer>",
    "#### {answer}",
    "{answer}",
    "Answer: {answer}",
    "The answer is {answer}.",
    "The final answer is ${answer}$.",
    "<answer>\\boxed{{answer}}</answer>",
    '{"answer": "{answer}"}',
    "```\n{answer}\n```",
    "[[{answer}]]",
    f"{_THOUGHT}<answer>\n{{answer}}\n</answer>",
    f"{_THOUGHT}\\boxed{{{{answer}}}}",
    f"{_THOUGHT}The answer is {{answer}}.",
)
"""Whole replies with a slot for the answer's value."""
_MOST_WRONG: Final = 24
"""Answers of other rows that one row gets."""
_GROUPED: Final = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")


# Columns


def find_value(columns: Columns, name: str) -> JsonValue:
    """None where the row has no such column. A dot leads into a column with parts, also one of JSON text."""
    if name in columns:
        return columns[name]
    value: JsonValue = dict(columns)
    for part in name.split("."):
        value = _read_object(value).get(part)
    return value


def _read_object(value: JsonValue) -> Columns:
    if isinstance(value, str) and value.startswith("{"):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    return value if isinstance(value, dict) else {}


@dataclass(frozen=True)
class ChosenColumns:
    """`prompt` is empty where the rows have none, and the server shows it."""

    prompt: str
    answer: str


def choose_columns(first: "RawRow", prompt: str, answer: str, *, needs_prompt: bool) -> ChosenColumns:
    """`prompt` and `answer` as somebody chose them, or empty. UserError."""
    brings = first.prompt is not None and not prompt
    return ChosenColumns(
        prompt="" if brings else _choose_column(first.columns, "--prompt", prompt, PROMPT_COLUMNS, needs_prompt),
        answer=_choose_column(first.columns, "--answer", answer, ANSWER_COLUMNS, needed=True),
    )


def _choose_column(first: Columns, option: str, chosen: str, usual: Sequence[str], needed: bool) -> str:
    if chosen:
        if find_value(first, chosen) is None:
            raise UserError(
                f"{option}: the first row has no column {chosen!r}{suggest(chosen, list(first))}; "
                f"it has {', '.join(first)}"
            )
        return chosen
    found = next((name for name in usual if find_value(first, name) is not None), "")
    if needed and not found:
        raise UserError(f"name the column by {option}: the rows have {', '.join(first)}")
    return found


# Rows


@dataclass(frozen=True)
class GraderRow:
    """A row as it is checked. `wrong` are values of other rows that differ from its own."""

    place: str
    """File and line."""
    columns: Columns
    prompt: JsonValue
    """A text, or messages."""
    answer: str
    """The value alone, such as `18` of a solution that ends in `#### 18`."""
    reference: JsonValue
    """The answer's column as it is."""
    wrong: tuple[str, ...] = ()
    index: int = 0
    hidden: JsonValue = None

    @property
    def prompt_text(self) -> str:
        if isinstance(self.prompt, list):
            return "\n".join(_show(_read_object(message).get("content")) for message in self.prompt)
        return _show(self.prompt)

    @property
    def prompt_messages(self) -> JsonValue:
        if isinstance(self.prompt, list):
            return self.prompt
        return [{"role": "user", "content": self.prompt_text}]


@dataclass(frozen=True)
class RawRow:
    place: str
    columns: Columns
    prompt: JsonValue = None
    """Where the grader brings it."""
    index: int = 0
    hidden: JsonValue = None
    """What a server is given with the row, which it knows by this index."""


def build_rows(raw: Sequence[RawRow], columns: ChosenColumns, most: int, seed: int) -> list[GraderRow]:
    """At most so many, drawn from all that have an answer. Each gets wrong answers of the others."""
    made = [row for one in raw if (row := _build_row(one, columns)).answer]
    chosen = sorted(SeededRandom(f"rows {seed}").some(range(len(made)), most))
    values = list(dict.fromkeys(one.answer for one in made))
    return [_add_wrong(made[index], values, SeededRandom(f"wrong answers {seed} {index}")) for index in chosen]


def _build_row(raw: RawRow, columns: ChosenColumns) -> GraderRow:
    reference = find_value(raw.columns, columns.answer)
    prompt = find_value(raw.columns, columns.prompt) if columns.prompt else raw.prompt
    answer = extract_answer(_show(reference))
    return GraderRow(raw.place, raw.columns, prompt, answer, reference, index=raw.index, hidden=raw.hidden)


def _add_wrong(row: GraderRow, values: Sequence[str], draws: SeededRandom) -> GraderRow:
    drawn = draws.some(values, _MOST_WRONG)
    return replace(row, wrong=tuple(one for one in drawn if not is_same_value(one, row.answer)))


def extract_answer(text: str) -> str:
    """The value of a whole solution that ends in a box, tags or `####`; any other text as it is. Numbers lose their
    commas."""
    written, _, _ = split_answer(text)
    value = (text if written.form == WHOLE else written.text).strip()
    return value.replace(",", "") if _GROUPED.fullmatch(value) else value


def _show(value: JsonValue) -> str:
    if isinstance(value, list) and len(value) == 1:
        return _show(value[0])
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


# What can be said of the rows without the grader


class RowFault(Frozen):
    """What is wrong with the rows themselves. `places` are the first few."""

    fault: str
    count: int
    places: tuple[str, ...]


_PLACES: Final = 3


def find_row_faults(raw: Sequence[RawRow], columns: ChosenColumns) -> tuple[RowFault, ...]:
    """Labels that contradict each other cannot be learnt, whatever the grader says."""
    rows = [_build_row(one, columns) for one in raw]
    found: dict[str, list[str]] = defaultdict(list)
    for fault, place in _iterate_row_faults(rows, with_prompts=any(row.prompt is not None for row in rows)):
        found[fault].append(place)
    return tuple(RowFault(fault=name, count=len(all_), places=tuple(all_[:_PLACES])) for name, all_ in found.items())


def _iterate_row_faults(rows: Sequence[GraderRow], *, with_prompts: bool) -> Iterator[tuple[str, str]]:
    exact: dict[str, GraderRow] = {}
    near: dict[str, GraderRow] = {}
    for row in rows:
        text = row.prompt_text
        if not row.answer:
            yield "the answer is empty", row.place
        if not with_prompts:
            continue
        if not text.strip():
            yield "the prompt is empty", row.place
            continue
        same, alike = exact.setdefault(text, row), near.setdefault(_flatten(text), row)
        if same is not row:
            agrees = is_same_value(same.answer, row.answer)
            fault = "the same prompt is there twice" if agrees else "the same prompt has another answer elsewhere"
            yield fault, f"{row.place} and {same.place}"
        elif alike is not row:
            yield "the prompt differs from another in case and punctuation only", f"{row.place} and {alike.place}"


def _flatten(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.casefold()))


# How a right answer is written, and what the grader gets as its reference


@dataclass(frozen=True)
class Reading:
    """One way to put a row before a grader: the form of the reply, what stands for the reference, and how the reply is
    handed over (`way`, such as messages or text)."""

    form: str
    reference: str
    way: str

    def write(self, answer: str) -> str:
        return self.form.replace(SLOT, answer)

    def build_reference(self, row: GraderRow) -> JsonValue:
        return REFERENCES[self.reference](row)


REFERENCES: Final[Mapping[str, Callable[[GraderRow], JsonValue]]] = {
    "the column as it is": lambda row: row.reference,
    "its value alone": lambda row: row.answer,
    "its value between $": lambda row: f"${row.answer}$",
}


def list_readings(form: str, ways: Sequence[str], prompt: str, *, takes_reference: bool) -> list[Reading]:
    """In the order in which they are preferred where they are paid alike. Forms that the prompt shows come first."""
    forms = [form] if form else sorted(FORMS, key=lambda one: not _is_shown(one, prompt))
    references = list(REFERENCES) if takes_reference else list(REFERENCES)[:1]
    return [Reading(one, reference, way) for way in ways for reference in references for one in forms]


def _is_shown(form: str, prompt: str) -> bool:
    opening = form.partition(SLOT)[0].strip()
    return bool(opening) and opening in prompt


def require_form(form: str) -> None:
    """UserError for one without a place for the answer."""
    if form and SLOT not in form:
        raise UserError(f"--form has no {SLOT}: write a whole right reply with {SLOT} in place of the value")
