"""Sentences that gates and hints on words should notice, and ones that look alike, per language."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from app.domain.judging import GateFacts
from app.judges.gate_wordings import Reply
from app.judges.gates import find_failed_gates, find_hints

FOLDER = Path(__file__).parents[1] / "judges" / "gate_sentences"
"""A file per language: flag, kind of list, a sentence a line. A character that is a machine says those of `machine`."""
KINDS = ("caught", "passes", "machine")
LINE_BREAK = " ⏎ "


@dataclass(frozen=True)
class Sentence:
    flag: str
    kind: str
    text: str
    facts: GateFacts

    @property
    def caught(self) -> bool:
        return self.kind == "caught"

    def is_noticed(self) -> bool:
        reply = Reply(self.text)
        return self.flag in {
            gate.flag for gate in (*find_failed_gates(reply, self.facts), *find_hints(reply, self.facts))
        }


def read_sentences() -> Iterator[Sentence]:
    for file in sorted(FOLDER.glob("*.yaml")):
        for flag, lists in yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader).items():
            for kind in KINDS:
                facts = GateFacts(
                    speaker="Mirela", others=("Player", "User"), language=file.stem, is_machine=kind == "machine"
                )
                for text in lists.get(kind, "").splitlines():
                    yield Sentence(flag, kind, text.replace(LINE_BREAK, "\n"), facts)
