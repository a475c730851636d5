r"""Right answers turned round: which of them the rules of an environment pay, for `atropos-envs data check`.

    right answer      turned                          means            is ambiguous where it is
    \boxed{2, 3}      list reversed: \boxed{3, 2}     the same         not paid
    #### 18           unit put behind: 18 clips       the same         not paid
    \boxed{(2, 3)}    pair reversed: \boxed{(3, 2)}   another thing    paid

A turn writes the answer of a gold in another way, and leaves the rest of the reply as it is. It knows the text and what
the task asks, and nothing of the rules: what it asked them it could not find out.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal

from app.domain.scores import Score
from app.domain.tasks import Completion, Task
from app.domain.values import Frozen, Split
from app.toolkit.conformance.attempts import split_answer

# The answer in a right reply.

_LONGEST: Final = 300
"""Characters of an answer that is turned round: longer ones are programs and texts."""
_FORMS: Final = frozenset({"tags", "box", "hashes"})
_BOX: Final = "\\boxed{"


@dataclass(frozen=True)
class RightAnswer:
    """The text of an answer, what stands around it in a right reply, and what the task says."""

    before: str
    text: str
    after: str
    problem: str = ""

    @property
    def is_boxed(self) -> bool:
        return self.before.endswith(_BOX)

    def write_reply(self, text: str) -> str:
        return f"{self.before}{text}{self.after}"


def find_right_answer(reply: str, problem: str = "") -> RightAnswer | None:
    """The last answer in tags, in a box or behind `####`; None without one, and for JSON and long texts."""
    written, before, after = split_answer(reply)
    text = written.text.strip()
    if written.form not in _FORMS or not text or len(text) > _LONGEST or _is_json(text):
        return None
    start = written.text.index(text)
    return RightAnswer(before + written.text[:start], text, written.text[start + len(text) :] + after, problem)


def _is_json(text: str) -> bool:
    if not text.startswith(("{", '["', "[{")):
        return False
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


# Lists, pairs and named values.

_DEPTHS: Final = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_ONE_NUMBER: Final = re.compile(r"-?\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_AND: Final = re.compile(r",?\s*(?:\band\b|\\text\{\s*and\s*\})\s*")
_COMMA: Final = re.compile(r",\s*")
_WIDE_COMMA: Final = re.compile(r",\s+")
_NAMED: Final = re.compile(r"(?P<name>[A-Za-z]\w{0,15}|\\[a-z]+)\s*=\s*(?P<value>[^=]+)")
_PAIR: Final = re.compile(r"(?P<open>(?:\\left)?\()(?P<inside>.*)(?P<close>(?:\\right)?\))", re.DOTALL)
_SET: Final = re.compile(r"(?P<open>(?:\\left)?\\\{)(?P<inside>.*)(?P<close>(?:\\right)?\\\})", re.DOTALL)
_ORDER_WORDS: Final = re.compile(
    r"(?<!any )\border(?:ed)?\b(?! to\b)|\brespectively\b|\b(?:a|de)scending\b|\b(?:in|de)creasing\b|\balphabetical"
    r"|\b(?:smallest|least|lowest|shortest|largest|greatest|highest|longest)\b[^.?!]{0,30}\bto\b"
    r"|\bsort(?:ed)?\b|\brank(?:ed)?\b|\barrange\b",
    re.IGNORECASE,
)


def _split_items(text: str) -> list[str]:
    """The items of a list: what commas and `and` part outside of brackets. One for what is no list."""
    if _ONE_NUMBER.fullmatch(text):
        return [text]
    comma = _WIDE_COMMA if _WIDE_COMMA.search(text) else _COMMA
    items, start, depth, place = [], 0, 0, 0
    while place < len(text):
        match = (_AND.match(text, place) or comma.match(text, place)) if depth == 0 else None
        if match is not None and match[0]:
            items.append(text[start:place])
            start = place = match.end()
            continue
        depth += _DEPTHS.get(text[place], 0)
        place += 1
    return [item.strip() for item in [*items, text[start:]]]


def _reverse_items(text: str) -> str | None:
    items = _split_items(text)
    turned = items[::-1]
    if len(items) < 2 or not all(items) or turned == items:
        return None
    return (" and " if "," not in text else ", ").join(turned)


def _reverse_list(answer: RightAnswer) -> str | None:
    if _find_named(answer.text):
        return None
    braced = _SET.fullmatch(answer.text)
    if braced is None:
        return _reverse_items(answer.text)
    inside = _reverse_items(braced["inside"].strip())
    return None if inside is None else f"{braced['open']}{inside}{braced['close']}"


def _reverse_free_list(answer: RightAnswer) -> str | None:
    return None if _ORDER_WORDS.search(answer.problem) else _reverse_list(answer)


def _reverse_ordered_list(answer: RightAnswer) -> str | None:
    return _reverse_list(answer) if _ORDER_WORDS.search(answer.problem) else None


def _reverse_pair(answer: RightAnswer) -> str | None:
    """Of a point, a tuple or an interval."""
    match = _PAIR.fullmatch(answer.text)
    inside = None if match is None else _reverse_items(match["inside"].strip())
    return None if match is None or inside is None else f"{match['open']}{inside}{match['close']}"


def _find_named(text: str) -> list[tuple[str, str]]:
    """Names and values; empty unless every item of the list is one."""
    found = [_NAMED.fullmatch(item) for item in _split_items(text)]
    return [(one["name"], one["value"].strip()) for one in found if one is not None] if all(found) else []


def _swap_named_values(answer: RightAnswer) -> str | None:
    named = _find_named(answer.text)
    values = [value for _, value in named]
    turned = [*values[1:], *values[:1]]
    if len({name for name, _ in named}) < 2 or turned == values:
        return None
    return ", ".join(f"{name} = {value}" for (name, _), value in zip(named, turned, strict=True))


# Units.

_NUMBER: Final = r"-?(?:\d+/\d+|\d[\d,]*(?:\.\d+)?|\.\d+|\\[dt]?frac\{\d+\}\{\d+\})"
_PLAIN_NUMBER: Final = re.compile(r"-?\d+(?:,\d{3})*(?:\.\d+)?")
_WITH_UNIT: Final = re.compile(
    rf"({_NUMBER})(?:"
    r"\s*\\(?:text|mbox|mathrm|textrm)\{[^{}]*[A-Za-z][^{}]*\}(?:\^\{?\d\}?)?"
    r"|\s*(?:\^?\{?\\circ\}?|°)"
    r"|\s+(?!(?:and|or|to|by|in)\b)[A-Za-z][A-Za-z ./^0-9-]{0,30})"
)
_WITH_PERCENT: Final = re.compile(rf"({_NUMBER})\s*\\?%")
_WITH_CURRENCY: Final = re.compile(rf"(?:\\?\$|€|£)\s*({_NUMBER})")
_ASKED_THINGS: Final = re.compile(r"\bhow many (?:more |fewer |total |whole )?([a-z]{3,20})\b", re.IGNORECASE)
_ASKS_FOR_MONEY: Final = re.compile(r"\bhow much\b", re.IGNORECASE)


def _keep_number(pattern: re.Pattern[str]) -> "TurnText":
    def keep_number(answer: RightAnswer) -> str | None:
        match = pattern.fullmatch(answer.text)
        return None if match is None else match[1]

    return keep_number


def _put_unit_behind(answer: RightAnswer) -> str | None:
    """The things that the task asks for."""
    asked = [thing for thing in _ASKED_THINGS.findall(answer.problem) if thing.lower() not in _NUMERALS]
    if not asked or not _PLAIN_NUMBER.fullmatch(answer.text):
        return None
    unit = f"\\text{{ {asked[-1]}}}" if answer.is_boxed else f" {asked[-1]}"
    return f"{answer.text}{unit}"


def _put_currency_in_front(answer: RightAnswer) -> str | None:
    asks = _ASKS_FOR_MONEY.search(answer.problem) and "$" in answer.problem and "\\" not in answer.problem
    if not asks or not _PLAIN_NUMBER.fullmatch(answer.text):
        return None
    return f"\\${answer.text}" if answer.is_boxed else f"${answer.text}"


# Other spellings of the same.

_WHOLE: Final = re.compile(r"-?\d+")
_FRACTION: Final = re.compile(r"(-?)(?:(\d+)/(\d+)|\\[dt]?frac\{(\d+)\}\{(\d+)\})")
_WORDS: Final = re.compile(r"[A-Za-z][A-Za-z' -]*")
_TEXT: Final = re.compile(r"\\(?:text|mbox|mathrm|textrm|textbf)\{([^{}\\]*)\}")
_LATEX_FRACTION: Final = re.compile(r"\\[dt]?frac\{([^{}\\]*)\}\{([^{}\\]*)\}")
_LATEX_ROOT: Final = re.compile(r"\\sqrt\{([^{}\\]*)\}")
_LATEX_WORDS: Final = {"\\left": "", "\\right": "", "\\cdot": "*", "\\times": "*", "\\pi": "pi", "\\infty": "infinity"}
_LATEX_SIGNS: Final = {"\\%": "%", "\\$": "$", "\\!": "", "\\,": " ", "\\ ": " "}
_ATOM: Final = re.compile(r"-?[\w.]+")
_MOST_DECIMALS: Final = 4
_SHORTEST_WORD: Final = 4
"""Letters of a word in a box."""
_NUMERALS: Final = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty"),
)


def _write_in_other_case(answer: RightAnswer) -> str | None:
    """Of words, and of the letter of an option."""
    text = answer.text
    if not _WORDS.fullmatch(text) or _may_be_variables(answer):
        return None
    return text.upper() if text.islower() else text.lower()


def _may_be_variables(answer: RightAnswer) -> bool:
    """`ab` in a box is a product."""
    return answer.is_boxed and len(answer.text) < _SHORTEST_WORD


def _write_plainly(answer: RightAnswer) -> str | None:
    """Without LaTeX; None where that would leave something of it."""
    text = _TEXT.sub(r"\1", answer.text)
    if "\\" not in answer.text:
        return None
    for pattern, write in ((_LATEX_ROOT, _write_root), (_LATEX_FRACTION, _write_fraction), (_LATEX_ROOT, _write_root)):
        text = pattern.sub(write, text)
    for sign, plain in (_LATEX_WORDS | _LATEX_SIGNS).items():
        text = text.replace(sign, plain)
    text = text.strip()
    return None if "\\" in text or not text or text == answer.text else text


def _write_root(match: re.Match[str]) -> str:
    return f"sqrt({match[1]})"


def _write_fraction(match: re.Match[str]) -> str:
    above, below = (part if _ATOM.fullmatch(part) else f"({part})" for part in match.groups())
    return f"{above}/{below}"


def _write_in_latex(answer: RightAnswer) -> str | None:
    if not answer.is_boxed:
        return None
    match = _FRACTION.fullmatch(answer.text)
    if match is not None and match[2]:
        return f"{match[1]}\\frac{{{match[2]}}}{{{match[3]}}}"
    is_word = _WORDS.fullmatch(answer.text) and not _may_be_variables(answer)
    return f"\\text{{{answer.text}}}" if is_word else None


def _write_decimal(answer: RightAnswer) -> str | None:
    """Of a fraction with few decimals."""
    match = _FRACTION.fullmatch(answer.text)
    if match is None or not int(match[3] or match[5]):
        return None
    value = Fraction(int(match[2] or match[4]), int(match[3] or match[5]))
    if (value * 10**_MOST_DECIMALS).denominator > 1:
        return None
    whole, rest = divmod(int(value * 10**_MOST_DECIMALS), 10**_MOST_DECIMALS)
    return f"{match[1]}{whole}.{rest:0{_MOST_DECIMALS}}".rstrip("0").rstrip(".")


def _group_digits(answer: RightAnswer) -> str | None:
    is_long = _WHOLE.fullmatch(answer.text) and len(answer.text.lstrip("-")) > 3
    return f"{int(answer.text):,}" if is_long else None


def _ungroup_digits(answer: RightAnswer) -> str | None:
    return answer.text.replace(",", "") if _ONE_NUMBER.fullmatch(answer.text) else None


def _put_zero_behind(answer: RightAnswer) -> str | None:
    if not _PLAIN_NUMBER.fullmatch(answer.text):
        return None
    return f"{answer.text}0" if "." in answer.text else f"{answer.text}.0"


def _spell_number(answer: RightAnswer) -> str | None:
    is_small = answer.text.isascii() and answer.text.isdecimal() and len(answer.text) < 3
    return _NUMERALS[int(answer.text)] if is_small and int(answer.text) < len(_NUMERALS) else None


def _drop_blanks(answer: RightAnswer) -> str | None:
    """Of an expression: blanks between words say something."""
    turned = answer.text.replace(" ", "")
    is_expression = answer.is_boxed and "\\" not in answer.text and not re.search(r"[A-Za-z]{2}", answer.text)
    return turned if is_expression and turned != answer.text else None


def _put_stop_behind(answer: RightAnswer) -> str | None:
    return None if answer.is_boxed or answer.text.endswith(".") else f"{answer.text}."


def _write_in_bold(answer: RightAnswer) -> str | None:
    return None if answer.is_boxed or "*" in answer.text else f"**{answer.text}**"


def _is_letter(answer: RightAnswer) -> bool:
    return len(answer.text) == 1 and answer.text.isascii() and answer.text.isupper() and not answer.is_boxed


def _put_letter_in_brackets(answer: RightAnswer) -> str | None:
    return f"({answer.text})" if _is_letter(answer) else None


def _put_option_behind(answer: RightAnswer) -> str | None:
    if not _is_letter(answer):
        return None
    option = re.search(rf"^\(?{answer.text}[.):][ \t]+(\S[^\n]*)$", answer.problem, re.MULTILINE)
    return None if option is None else f"{answer.text}. {option[1].strip()}"


# All turns.

Meaning = Literal["the same", "another thing"]
"""What a turned answer means, as far as that shows."""
TurnText = Callable[[RightAnswer], str | None]


@dataclass(frozen=True)
class AnswerTurn:
    name: str
    means: Meaning
    turn: TurnText
    """None where it does not apply."""


TURNS: Final = (
    AnswerTurn("list reversed", "the same", _reverse_free_list),
    AnswerTurn("list reversed where an order is asked for", "another thing", _reverse_ordered_list),
    AnswerTurn("pair reversed", "another thing", _reverse_pair),
    AnswerTurn("named values swapped", "another thing", _swap_named_values),
    AnswerTurn("unit dropped", "the same", _keep_number(_WITH_UNIT)),
    AnswerTurn("currency sign dropped", "the same", _keep_number(_WITH_CURRENCY)),
    AnswerTurn("percent sign dropped", "another thing", _keep_number(_WITH_PERCENT)),
    AnswerTurn("unit put behind", "the same", _put_unit_behind),
    AnswerTurn("currency sign put in front", "the same", _put_currency_in_front),
    AnswerTurn("other case", "the same", _write_in_other_case),
    AnswerTurn("LaTeX written plainly", "the same", _write_plainly),
    AnswerTurn("plain text written in LaTeX", "the same", _write_in_latex),
    AnswerTurn("fraction written as a decimal", "the same", _write_decimal),
    AnswerTurn("digits grouped", "the same", _group_digits),
    AnswerTurn("digits not grouped", "the same", _ungroup_digits),
    AnswerTurn("zero put behind", "the same", _put_zero_behind),
    AnswerTurn("number spelt out", "the same", _spell_number),
    AnswerTurn("blanks dropped", "the same", _drop_blanks),
    AnswerTurn("full stop put behind", "the same", _put_stop_behind),
    AnswerTurn("written in bold", "the same", _write_in_bold),
    AnswerTurn("letter in brackets", "the same", _put_letter_in_brackets),
    AnswerTurn("option's text put behind its letter", "the same", _put_option_behind),
)


def iterate_turned(answer: RightAnswer) -> Iterator[tuple[AnswerTurn, str]]:
    for turn in TURNS:
        text = turn.turn(answer)
        if text is not None and text != answer.text:
            yield turn, text


# What the rules pay.

_AT_ONCE: Final = 8
"""Rows whose answers are scored at the same time."""
_MOST_SHOWN: Final = 5
"""Rows that are named for each turn."""


@dataclass(frozen=True)
class RowToTurn:
    split: Split
    index: int
    place: str
    task: Task


class AmbiguousRow(Frozen):
    split: Split
    index: int
    place: str
    """File and line."""
    right: str
    turned: str


class TurnCount(Frozen):
    turn: str
    means: Meaning
    rows: int
    """To whose answers the turn applies."""
    paid: int
    unpaid: int
    """Both together are fewer than `rows` where an answer could not be scored."""
    ambiguous: tuple[AmbiguousRow, ...]
    """The first few that are paid although they mean another thing, or not paid although they mean the same."""


class AnswerCheck(Frozen):
    rows: int
    """Whose answers were turned round."""
    unpaid: tuple[AmbiguousRow, ...]
    """The first few whose gold as it is is not paid. Nothing of it is turned round."""
    turns: tuple[TurnCount, ...]


@dataclass
class _Tally:
    rows: int = 0
    paid: int = 0
    unpaid: int = 0
    ambiguous: list[AmbiguousRow] = field(default_factory=list)

    def add(self, means: Meaning, reward: float | None, row: AmbiguousRow) -> None:
        self.rows += 1
        if reward is None:
            return
        is_paid = reward == 1.0
        self.paid += is_paid
        self.unpaid += not is_paid
        if is_paid == (means == "another thing") and len(self.ambiguous) < _MOST_SHOWN:
            self.ambiguous.append(row)


ScoreAnswers = Callable[[Task, Sequence[Completion]], Awaitable[Sequence[Score]]]


async def check_answers(
    rows: Sequence[RowToTurn],
    find_gold: Callable[[Task], Completion | None],
    score: ScoreAnswers,
    checked: Callable[[int], None],
) -> AnswerCheck:
    """`checked` is told how many rows more are done."""
    tallies = {turn.name: _Tally() for turn in TURNS}
    unpaid: list[AmbiguousRow] = []
    turned_rows = 0

    async def check_row(row: RowToTurn) -> tuple[RightAnswer, list[tuple[AnswerTurn, str]], Sequence[Score]] | None:
        gold = find_gold(row.task)
        problem = "\n".join(message.content or "" for message in row.task.messages)
        answer = None if gold is None or gold.text is None else find_right_answer(gold.text, problem)
        if gold is None or answer is None:
            return None
        turned = list(iterate_turned(answer))
        replies = [Completion(text=answer.write_reply(text)) for _, text in turned]
        return answer, turned, await score(row.task, [gold, *replies])

    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        for row, found in zip(some, await asyncio.gather(*map(check_row, some)), strict=True):
            if found is None:
                continue
            answer, turned, (own, *scores) = found
            if own.reward != 1.0:
                if len(unpaid) < _MOST_SHOWN:
                    unpaid.append(_describe(row, answer, answer.text))
                continue
            turned_rows += 1
            for (turn, text), scored in zip(turned, scores, strict=True):
                tallies[turn.name].add(turn.means, scored.reward, _describe(row, answer, text))
        checked(len(some))
    return AnswerCheck(
        rows=turned_rows,
        unpaid=tuple(unpaid),
        turns=tuple(
            TurnCount(
                turn=turn.name,
                means=turn.means,
                rows=tally.rows,
                paid=tally.paid,
                unpaid=tally.unpaid,
                ambiguous=tuple(tally.ambiguous),
            )
            for turn in TURNS
            if (tally := tallies[turn.name]).rows
        ),
    )


def _describe(row: RowToTurn, answer: RightAnswer, text: str) -> AmbiguousRow:
    return AmbiguousRow(split=row.split, index=row.index, place=row.place, right=answer.text, turned=text)
