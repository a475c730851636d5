"""Compares the token ids of an inference server with those that its text gives when it is tokenised again."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from app.domain.tasks import Message, ToolSpec
from app.inference.token_sequences import count_shared_prefix
from app.inference.tokenizer import LocalTokenizer
from app.inference.wire import Ids, SampledMessage

Part = Literal["prompt", "completion"]

SHOWN: Final = 8
"""Tokens of each side that are shown from the first difference on."""
EXAMPLES: Final = 3


@dataclass(frozen=True)
class TokenDifference:
    """The first place where the ids differ, and what follows there on both sides."""

    part: Part
    place: int
    server_ids: Ids
    server_text: str
    made_ids: Ids
    made_text: str

    @property
    def words(self) -> str:
        server = f"the server has {list(self.server_ids)} {self.server_text!r}"
        return f"{self.part}, token {self.place}: {server}, its text gives {list(self.made_ids)} {self.made_text!r}"


@dataclass(frozen=True)
class CheckedTurn:
    """`refused`: why the text cannot be tokenised; then `differences` holds nothing."""

    differences: tuple[TokenDifference, ...] = ()
    refused: str = ""


@dataclass
class TokenCheckTally:
    checked: int = 0
    differing: dict[Part, int] = field(default_factory=lambda: {"prompt": 0, "completion": 0})
    without_ids: int = 0
    refused: int = 0
    last_refused: str = ""
    examples: list[tuple[str, TokenDifference]] = field(default_factory=list)
    """Each with its task."""

    def add_turn(self, task_id: str, turn: CheckedTurn | None) -> None:
        """None for a turn whose ids the server did not tell."""
        if turn is None:
            self.without_ids += 1
            return
        if turn.refused:
            self.refused += 1
            self.last_refused = turn.refused
            return
        self.checked += 1
        for difference in turn.differences:
            self.differing[difference.part] += 1
            if len(self.examples) < EXAMPLES:
                self.examples.append((task_id, difference))

    @property
    def lines(self) -> list[str]:
        counts = [f"{count} of {self.checked} {part}s" for part, count in self.differing.items()]
        told = [f"tokenised again, other ids: {', '.join(counts)}"]
        told += [f"  {task_id}, {difference.words}" for task_id, difference in self.examples]
        told += [f"not checked, the server told no ids: {self.without_ids} turns"] if self.without_ids else []
        if self.refused:
            told.append(f"not checked, {self.last_refused}: {self.refused} turns")
        return told


def check_turn(
    tokenizer: LocalTokenizer, before: Sequence[Message], tools: Sequence[ToolSpec], said: SampledMessage
) -> CheckedTurn | None:
    """None when the server told no ids."""
    if said.prompt_ids is None or said.ids is None:
        return None
    try:
        prompt = tokenizer.encode_prompt(before, tools)
        reply = tokenizer.encode_reply(before, tools, said)
    except ValueError as error:
        return CheckedTurn(refused=str(error))
    found = (
        _find_difference(tokenizer, "prompt", said.prompt_ids, prompt),
        _find_difference(tokenizer, "completion", said.ids, reply),
    )
    return CheckedTurn(tuple(one for one in found if one is not None))


def _find_difference(tokenizer: LocalTokenizer, part: Part, server: Ids, made: Ids) -> TokenDifference | None:
    if server == made:
        return None
    place = count_shared_prefix(server, made)
    ours, theirs = made[place : place + SHOWN], server[place : place + SHOWN]
    return TokenDifference(part, place, theirs, tokenizer.decode(theirs), ours, tokenizer.decode(ours))
