"""What a reply says outside its thinking, and the answer that it commits to there between `<answer>` and `</answer>`.

`<answer>7</answer>`                                   7
`<answer>7</answer>` … `<answer> 7 </answer>`          7: the same, said twice
`<answer>6</answer>` … `<answer>7</answer>`            none: they differ
`<answer></answer>` … `<answer>7</answer>`             7: one that is empty, or only dots, is ignored
`<answer>7`                                            none: it never ends
`7`, `the answer is 7`                                 none: mentioned, not committed
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from app.domain.errors import ScoringFailed
from app.domain.scores import Score
from app.domain.tasks import LARGE_TEXT, Completion, are_large
from app.toolkit.large_texts import iterate_matches, run_in_turn

ResultT = TypeVar("ResultT")

MOST_CHARACTERS = 10_000
"""Maximum length of an answer."""

_TAG = re.compile(r"<(/?)answer>", re.IGNORECASE)
_BLANK = re.compile(r"[\s.…]*")
THINKING_TAGS = (
    *(f"<{end}{word}>" for word in ("think", "thinking", "thought", "reasoning") for end in ("", "/")),
    *("[THINK]", "[/THINK]", "\u25c1think\u25b7", "\u25c1/think\u25b7"),
    *(f"<|channel|>{name}<|message|>" for name in ("analysis", "commentary", "final")),
)
"""In any case of letters. White space may stand before the `>` of a tag that is a word."""
THINKING_TAG = re.compile(
    "|".join(
        re.escape(tag) if "|" in tag or tag[-1] != ">" else rf"{re.escape(tag[:-1])}\s{{0,4}}>" for tag in THINKING_TAGS
    ),
    re.IGNORECASE,
)
_END_NAMES = (
    *("im_end", "endoftext", "eot_id", "eom_id", "eom", "end_of_text", "end", "return", "eot", "end_of_turn"),
    *("END_OF_TURN_TOKEN", "pad"),
)
_OTHER_ENDS = (
    *("<\uff5cend\u2581of\u2581sentence\uff5c>", "</s>", "<eos>", "<eot>", "<end_of_turn>", "<pad>", "[EOS]", "[PAD]"),
)
TURN_ENDS = (*(f"<|{name}|>" for name in _END_NAMES), *_OTHER_ENDS)
"""What stands behind one of these, outside thinking, is not part of the reply."""
TURN_END = re.compile(rf"<\|(?:{'|'.join(_END_NAMES)})\|>|{'|'.join(map(re.escape, _OTHER_ENDS))}")
LONGEST_TAG = 40


@dataclass(frozen=True, slots=True)
class SpokenReply:
    text: str
    unfinished: bool = False
    """The reply ended while still thinking, so `text` is empty."""


def strip_thinking(reply: str) -> SpokenReply:
    """Thinking is what stands between `<think>` (or thinking, thought, reasoning, [THINK], ◁think▷, a harmony
    analysis channel) and the next closing tag. A closing tag without an opening one ends thinking that began before
    the reply. Thinking that never closes leaves nothing. Text after an end-of-turn token is not part of the reply."""
    return split_thinking(reply)[1]


def split_thinking(reply: str) -> tuple[str, SpokenReply]:
    """The thinking too, which comes first."""
    if "<" not in reply and "[" not in reply and "◁" not in reply:
        return "", SpokenReply(reply)
    parts: list[str] = []
    thought: list[str] = []
    position = 0
    thinking = False
    for tag in iterate_matches(THINKING_TAG, reply, LONGEST_TAG):
        before = reply[position : tag.start()]
        if ends_thinking(tag[0]):
            thought += [before] if thinking else [*parts, before]
            if not thinking:
                parts.clear()
            thinking = False
        else:
            (thought if thinking else parts).append(before)
            thinking = True
        position = tag.end()
    if thinking:
        return "\n".join([*thought, reply[position:]]), SpokenReply("", unfinished=True)
    parts.append(reply[position:])
    text = "\n".join(parts)
    end = next(iterate_matches(TURN_END, text, LONGEST_TAG), None)
    return "\n".join(thought), SpokenReply(text if end is None else text[: end.start()])


def ends_thinking(tag: str) -> bool:
    """Whether what stands behind the tag is said."""
    return "/" in tag or "final" in tag.lower()


@dataclass(frozen=True, slots=True)
class Committed:
    """`text` is without white space around it; None when there is no single answer, and `flags` say why: `no_answer`,
    `unfinished_thinking`, `conflicting_answers`, `unreadable_answer`."""

    text: str | None
    flags: tuple[str, ...] = ()


_WHY = {
    "unfinished_thinking": "the thinking never ended",
    "no_answer": "no answer was committed",
    "conflicting_answers": "two answers were committed that differ",
    "unreadable_answer": f"the answer is longer than {MOST_CHARACTERS:,} characters",
}


def extract_committed(reply: str) -> Committed:
    """Never raises; linear in the length of `reply`."""
    said = strip_thinking(reply)
    if said.unfinished:
        return Committed(None, ("no_answer", "unfinished_thinking"))
    answers = list(dict.fromkeys(text.strip() for text in _find_tagged(said.text) if not _BLANK.fullmatch(text)))
    if not answers:
        return Committed(None, ("no_answer",))
    if len(answers) > 1:
        return Committed(None, ("conflicting_answers",))
    if len(answers[0]) > MOST_CHARACTERS:
        return Committed(None, ("unreadable_answer",))
    return Committed(answers[0])


def grade_committed(reply: str, fault: Callable[[str], str]) -> Score:
    """1 when `fault` finds nothing wrong with the committed answer. It is given that answer, untrusted, and returns
    what is wrong in words of ours, which never say what was expected; the empty text when it is right."""
    answer = extract_committed(reply)
    return score_without_answer(answer) if answer.text is None else _build_score(fault(answer.text))


async def grade_committed_in_worker(replies: Sequence[str], fault: Callable[[str], Awaitable[str]]) -> list[Score]:
    """As `grade_committed`, concurrently and with `fault` in a worker. An answer that could not be checked
    (ScoringFailed) is unscored, with the reason; the others are not affected."""
    return list(await asyncio.gather(*(_grade_in_worker(reply, fault) for reply in replies)))


async def map_completions(group: Sequence[Completion], work: Callable[[Completion], ResultT]) -> list[ResultT]:
    """`work` on each, in a thread when they are large, so that other requests are answered meanwhile."""
    if not are_large(group):
        return [work(one) for one in group]
    return await run_in_turn("answers", lambda: [work(one) for one in group])


async def _grade_in_worker(reply: str, fault: Callable[[str], Awaitable[str]]) -> Score:
    large = len(reply) > LARGE_TEXT
    answer = await run_in_turn("answers", extract_committed, reply) if large else extract_committed(reply)
    if answer.text is None:
        return score_without_answer(answer)
    try:
        return _build_score(await fault(answer.text))
    except ScoringFailed as error:
        return Score.from_error(error)


def score_without_answer(answer: Committed) -> Score:
    """0, with the reason why there is no single answer."""
    score = Score.exact(False, rationale=_WHY[answer.flags[-1]])
    return score.model_copy(update={"flags": answer.flags})


def _build_score(wrong: str) -> Score:
    return Score.exact(not wrong, rationale=wrong or "correct")


def _find_tagged(text: str) -> list[str]:
    found: list[str] = []
    start: int | None = None
    for tag in iterate_matches(_TAG, text, len("</answer>")):
        if not tag[1]:
            start = tag.end()
        elif start is not None:
            found.append(text[start : tag.start()])
            start = None
    return found
