"""The visible part of a reply: without thinking, up to the end of the turn."""

import re
from dataclasses import dataclass

from app.toolkit.large_texts import iterate_matches

_TAG = re.compile(
    r"</?(?:think|thinking|thought|reasoning)\s{0,4}>|\[/?THINK\]|◁/?think▷"
    r"|<\|channel\|>(?:analysis|commentary|final)<\|message\|>",
    re.IGNORECASE,
)
_TURN_ENDS = re.compile(
    r"<\|(?:im_end|endoftext|eot_id|eom_id|eom|end_of_text|end|return|eot|end_of_turn|END_OF_TURN_TOKEN|pad)\|>"
    r"|<\uff5cend\u2581of\u2581sentence\uff5c>|</s>|<eos>|<eot>|<end_of_turn>|<pad>|\[EOS\]|\[PAD\]"
)
_LONGEST_TAG = 40


@dataclass(frozen=True, slots=True)
class SpokenReply:
    text: str
    unfinished: bool = False
    """The reply ended while still thinking, so `text` is empty."""


def strip_thinking(reply: str) -> SpokenReply:
    """Thinking is what stands between `<think>` (or thinking, thought, reasoning, [THINK], ◁think▷, a harmony
    analysis channel) and the next closing tag. A closing tag without an opening one ends thinking that began before
    the reply. Thinking that never closes leaves nothing. Text after an end-of-turn token is not part of the reply."""
    if "<" not in reply and "[" not in reply and "◁" not in reply:
        return SpokenReply(reply)
    parts: list[str] = []
    position = 0
    thinking = False
    for tag in iterate_matches(_TAG, reply, _LONGEST_TAG):
        if "/" in tag[0] or "final" in tag[0].lower():
            if not thinking:
                parts.clear()
            thinking = False
        elif not thinking:
            parts.append(reply[position : tag.start()])
            thinking = True
        position = tag.end()
    if thinking:
        return SpokenReply("", unfinished=True)
    parts.append(reply[position:])
    text = "\n".join(parts)
    end = next(iterate_matches(_TURN_ENDS, text, _LONGEST_TAG), None)
    return SpokenReply(text if end is None else text[: end.start()])
