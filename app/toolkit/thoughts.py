"""Thoughts that models write before or within a reply, told from what they say: one table for all who read replies.

Verifiers, gates, judges, play and exports read them by the families below, so that the same reply earns the same in
each. Replies are untrusted: all of this is linear in their length.

    `<think>He lies.</think>Aye.`      thought "He lies.", said "Aye."
    `He lies.</think>Aye.`             the same: the prompt had opened the thought
    `<think>He lies.`                  nothing is said: the thought never ends
    `<think>a<channel|>b</think>Aye.`  thought "a<channel|>b": a tag of its own family ends a thought
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from app.domain.tasks import Completion, are_large
from app.toolkit.texts import WINDOW, run_in_turn

ATTRIBUTES: Final = "*"
"""In a tag of the table: attributes, which may be anything but angle brackets."""
_LONGEST_ATTRIBUTES: Final = 100
_THOUGHT_WORDS: Final = (
    *("think", "thinking", "thought", "thoughts", "reasoning"),
    *("seed:think", "longcat_think", "mm:think", "antthinking"),
)
_ASSISTANT: Final = "<|start|>assistant"


@dataclass(frozen=True)
class ThoughtFamily:
    """Tags in any case of letters. White space may stand before the `>` of a tag that is a word."""

    name: str
    opens: tuple[str, ...]
    closes: tuple[str, ...]
    """What stands behind one of these is said."""
    ends: tuple[str, ...] = ()
    """What a reply in this form ends with; no more of it than the tags is the model's words."""
    is_implied: bool = True
    """A closing tag that nothing opened closes a thought that began before the reply, in the prompt."""


FAMILIES: Final = (
    ThoughtFamily(
        "tags",
        opens=(*(f"<{word}>" for word in _THOUGHT_WORDS), "[THINK]", "\u25c1think\u25b7"),
        closes=(*(f"</{word}>" for word in _THOUGHT_WORDS), "[/THINK]", "\u25c1/think\u25b7"),
    ),
    ThoughtFamily(
        "harmony",
        opens=tuple(
            f"{start}<|channel|>{channel}<|message|>"
            for start in ("", _ASSISTANT)
            for channel in ("analysis", "commentary")
        ),
        closes=tuple(
            f"{start}<|channel|>final{form}<|message|>"
            for start in ("", _ASSISTANT)
            for form in ("", " <|constrain|>json")
        ),
        ends=("<|return|>", "<|end|>"),
    ),
    ThoughtFamily("gemma", opens=("<|channel>thought",), closes=("<channel|>",), ends=("<turn|>",)),
    ThoughtFamily(
        "cohere",
        opens=("<|START_THINKING|>",),
        closes=("<|END_THINKING|>", "<|START_RESPONSE|>", "<|START_TEXT|>"),
        ends=("<|END_RESPONSE|>", "<|END_TEXT|>", "<|END_OF_TURN_TOKEN|>"),
    ),
    ThoughtFamily(
        "solution",
        opens=("<|begin_of_thought|>",),
        closes=("<|end_of_thought|>", "<|begin_of_solution|>"),
        ends=("<|end_of_solution|>",),
    ),
    # Open WebUI writes thoughts of any model so, also into what it sends as history.
    ThoughtFamily(
        "details", opens=(f'<details type="reasoning"{ATTRIBUTES}>',), closes=("</details>",), is_implied=False
    ),
)
THINKING_TAGS: Final = tuple(tag for family in FAMILIES for tag in (*family.opens, *family.closes))
_FAMILIES_BY_NAME: Final = {family.name: family for family in FAMILIES}


def _match_tag(tag: str) -> str:
    if ATTRIBUTES in tag:
        return re.escape(tag.removesuffix(f"{ATTRIBUTES}>")) + rf"[^<>]{{0,{_LONGEST_ATTRIBUTES}}}>"
    return re.escape(tag) if "|" in tag or tag[-1] != ">" else rf"{re.escape(tag[:-1])}\s{{0,4}}>"


def match_tags(families: Iterable[ThoughtFamily]) -> re.Pattern[str]:
    """`get_family` and `is_opening` read its matches."""
    groups = (
        f"(?P<{kind}_{family.name}>{'|'.join(map(_match_tag, tags))})"
        for family in families
        for kind, tags in (("opens", family.opens), ("closes", family.closes))
    )
    # With a look at the first character, most of a text costs a sixth of what it does without.
    return re.compile(rf"(?=[<\[\u25c1])(?:{'|'.join(groups)})", re.IGNORECASE)


THINKING_TAG: Final = match_tags(FAMILIES)
_SIGN: Final = re.compile(r"[<\u25c1]|\[/?think\]", re.IGNORECASE)
"""A text without it holds no tag. Brackets alone are in every answer of a judge."""
_END_NAMES = (
    *("im_end", "endoftext", "eot_id", "eom_id", "eom", "end_of_text", "end", "return", "eot", "end_of_turn"),
    *("END_OF_TURN_TOKEN", "END_RESPONSE", "END_TEXT", "end_of_solution", "pad"),
)
_OTHER_ENDS = (
    *("<\uff5cend\u2581of\u2581sentence\uff5c>", "</s>", "<eos>", "<eot>", "<end_of_turn>", "<turn|>", "<seed:eos>"),
    *("<pad>", "[EOS]", "[PAD]"),
)
TURN_ENDS: Final = (*(f"<|{name}|>" for name in _END_NAMES), *_OTHER_ENDS)
"""What stands behind one of these, outside thinking, is not part of the reply."""
TURN_END: Final = re.compile(rf"<\|(?:{'|'.join(_END_NAMES)})\|>|{'|'.join(map(re.escape, _OTHER_ENDS))}")
LONGEST_TAG: Final = _LONGEST_ATTRIBUTES + 40
"""Characters of the longest of these tags and ends, white space included: large texts are searched in windows."""


def get_family(tag: re.Match[str]) -> ThoughtFamily:
    return _FAMILIES_BY_NAME[(tag.lastgroup or "").partition("_")[2]]


def is_opening(tag: re.Match[str]) -> bool:
    return (tag.lastgroup or "").startswith("opens")


# Whole replies.


@dataclass(frozen=True, slots=True)
class SpokenReply:
    text: str
    unfinished: bool = False
    """The reply ended while still thinking, so `text` is empty."""


def strip_thinking(reply: str) -> SpokenReply:
    """Thinking is what stands between an opening tag and the next closing tag of its family. A closing tag without an
    opening one ends thinking that began before the reply. Thinking that never closes leaves nothing. Text after an
    end-of-turn token is not part of the reply."""
    return split_thinking(reply)[1]


def split_thinking(reply: str) -> tuple[str, SpokenReply]:
    """The thinking too, which comes first."""
    if not any(sign in reply for sign in "<[\u25c1"):  # no tag, and no end of a turn
        return "", SpokenReply(reply)
    parts: list[str] = []
    thought: list[str] = []
    position = 0
    thinking: ThoughtFamily | None = None
    for tag in iterate_matches(THINKING_TAG, reply, LONGEST_TAG):
        family, before = get_family(tag), reply[position : tag.start()]
        if thinking is not None:
            if family is not thinking:
                continue
            thought.append(before)
            thinking = family if is_opening(tag) else None
        elif is_opening(tag):
            parts.append(before)
            thinking = family
        elif family.is_implied:
            # Without an opening tag, the thinking began before the reply: all that came so far was thought.
            thought += [*parts, before] if any(part.strip() for part in (*parts, before)) else []
            parts.clear()
        else:
            continue
        position = tag.end()
    if thinking is not None:
        return "\n".join([*thought, reply[position:]]), SpokenReply("", unfinished=True)
    parts.append(reply[position:])
    text = "\n".join(parts)
    end = next(iterate_matches(TURN_END, text, LONGEST_TAG), None)
    return "\n".join(thought), SpokenReply(text if end is None else text[: end.start()])


def split_thoughts(text: str) -> tuple[str, str]:
    """As people read it: the thought, and what is said."""
    thought, spoken = split_thinking(text)
    return thought, spoken.text if spoken.text == text else spoken.text.strip()


def strip_leading_thoughts(text: str) -> str:
    """The text that gates and judges read: without the thoughts that it begins with, the tags around what is said, and
    surrounding white space. A thought further on is a fault of the reply, which the gates see. Empty when a thought
    never ends."""
    text = text.strip()
    if _SIGN.search(text) is None:
        return text
    position = 0
    thinking: ThoughtFamily | None = None
    ends: tuple[str, ...] = ()
    for tag in iterate_matches(THINKING_TAG, text, LONGEST_TAG):
        family = get_family(tag)
        if thinking is None:
            begins = not text[position : tag.start()].strip()
            # The prompt may have opened a thought, but one alone.
            if not begins and (position > 0 or is_opening(tag) or not family.is_implied):
                break
            if is_opening(tag):
                thinking = family
            elif not family.is_implied:
                break
        elif family is not thinking:
            continue
        elif not is_opening(tag):
            thinking = None
        position, ends = tag.end(), family.ends
    return "" if thinking is not None else _strip_ends(text[position:].strip(), ends)


def _strip_ends(text: str, ends: tuple[str, ...]) -> str:
    while ends and text.endswith(ends):
        text = text[: text.rfind("<")].rstrip()
    return text


def shows_thought(text: str) -> bool:
    """Whether a tag of a thought is left in what is said. Tags that other texts have too do not count."""
    if _SIGN.search(text) is None:
        return False
    tags = iterate_matches(THINKING_TAG, text, LONGEST_TAG)
    return any(is_opening(tag) or get_family(tag).is_implied for tag in tags)


# Replies as they come.

_FIRST: Final = frozenset(tag[0] for tag in (*THINKING_TAGS, *TURN_ENDS))
_PLAIN_TAGS: Final = tuple(tag.casefold() for tag in THINKING_TAGS if ATTRIBUTES not in tag)
_ATTRIBUTED: Final = tuple(tag.partition(ATTRIBUTES)[0].casefold() for tag in THINKING_TAGS if ATTRIBUTES in tag)
_TAG_OR_END: Final = re.compile(f"(?i:{THINKING_TAG.pattern})|(?P<end>{TURN_END.pattern})")


class ThoughtSplitter:
    """Players and games would take a policy's thoughts for the character's words.

    Tells thoughts in a streamed text from what is said. It holds back no more than a tag. What stands before a
    closing tag that nothing opened has been told already: `split_thoughts` of the whole text knows better."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._held = ""
        self._state: Literal["start", "thought", "gap", "said", "behind"] = "start"
        self._thinking: ThoughtFamily | None = None
        """What a thought is written in, in the state `thought`."""
        self._has_spoken = False

    @property
    def has_ended(self) -> bool:
        return self._state == "behind"

    @property
    def text(self) -> str:
        """The text up to the end of the turn: nothing behind it changes what was said."""
        return "".join(self._pieces)

    def feed(self, text: str) -> tuple[str, str]:
        """What of the text so far is now known to be thought, and to be said."""
        if self.has_ended:
            return "", ""
        self._pieces.append(text)
        self._held += text
        thought, said, position = "", "", 0
        for tag in iterate_matches(_TAG_OR_END, self._held, LONGEST_TAG):
            if self._is_text(tag):
                continue
            more, rest = self._tell(self._held[position : tag.start()])
            thought, said = thought + more, said + rest
            if tag["end"]:
                self._end_turn(len(self._held) - tag.end())
                return thought, said
            said += self._pass_tag(tag)
            position = tag.end()
        end = _find_beginning(self._held, position)
        if self._state == "start" and not self._held[position:end].strip():
            end = position
        more, rest = self._tell(self._held[position:end])
        self._held = self._held[end:]
        return thought + more, said + rest

    def _is_text(self, tag: re.Match[str]) -> bool:
        """Whether it is a part of the thought, or of what is said."""
        if self._thinking is not None:
            return bool(tag["end"]) or get_family(tag) is not self._thinking
        return not tag["end"] and not is_opening(tag) and not get_family(tag).is_implied

    def _end_turn(self, behind: int) -> None:
        self._state, self._held = "behind", ""
        self._pieces[-1] = self._pieces[-1][: len(self._pieces[-1]) - behind]

    def _pass_tag(self, tag: re.Match[str]) -> str:
        """What it adds to what is said."""
        if is_opening(tag):
            self._state, self._thinking = "thought", get_family(tag)
            return ""
        self._thinking = None
        if self._state == "thought" and self._has_spoken:
            self._state = "said"
            return "\n"  # as the parts of a whole text are joined
        if self._state != "said":
            self._state = "gap"
        return ""

    def end(self) -> tuple[str, str]:
        """What was held back."""
        rest, self._held = self._held, ""
        if self._state == "start":
            self._state = "said"
        return self._tell(rest)

    def _tell(self, part: str) -> tuple[str, str]:
        if self._state == "thought":
            return part, ""
        if self._state == "gap" or (self._state == "start" and not part.strip()):
            part = part.lstrip()
        if part:
            self._state, self._has_spoken = "said", True
        return "", part


def _find_beginning(text: str, start: int) -> int:
    """Where a tag may have begun whose end is still to come; the text's end where none has."""
    for position in range(max(start, len(text) - LONGEST_TAG), len(text)):
        if text[position] in _FIRST and _may_become_tag(text[position:]):
            return position
    return len(text)


def _may_become_tag(rest: str) -> bool:
    begun = rest.rstrip().casefold()
    return (
        any(tag.startswith(begun) for tag in (*_PLAIN_TAGS, *_ATTRIBUTED))
        or any(end.startswith(rest) for end in TURN_ENDS)
        or (begun.startswith(_ATTRIBUTED) and not re.search("[<>]", begun[1:]))
    )


# Large replies: searched in windows and worked on in a thread, so that other requests are answered meanwhile.

_ResultT = TypeVar("_ResultT")


async def map_completions(group: Sequence[Completion], work: Callable[[Completion], _ResultT]) -> list[_ResultT]:
    """`work` on each, in a thread when they are large, so that other requests are answered meanwhile."""
    if not are_large(group):
        return [work(one) for one in group]
    return await run_in_turn("answers", lambda: [work(one) for one in group])


def iterate_matches(pattern: re.Pattern[str], text: str, longest: int) -> Iterator[re.Match[str]]:
    """As `pattern.finditer(text)`, for a pattern that matches at most `longest` characters and looks no further."""
    position = 0
    while position < len(text):
        end = position + WINDOW
        match = pattern.search(text, position, end + longest)  # so that a match across the window's end is whole
        if match is None or match.start() >= end:
            position = end
        else:
            yield match
            position = max(match.end(), match.start() + 1)
