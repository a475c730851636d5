"""How often gates and hints fire on good replies, and on sentences that they should notice.

Good replies are lines that people wrote: of public data sets, whose folders are given, and of what ships. The sentences
are those of `tests/judges/gate_sentences`.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.characters.casting import Staging, build_gate_facts, cast_all
from app.characters.loading import read_scenes, read_sheets
from app.domain.judging import GateFacts
from app.judges.gate_wordings import Reply
from app.judges.gates import find_failed_gates, find_hints
from tests.support.gate_sentences import read_sentences

ROOT: Final = Path(__file__).parents[1]
OWN_LINES: Final = frozenset(("copies_example", "repeats_itself"))
"""Gates that rightly notice a sheet's own examples."""
MOST_WORDS: Final = 400
"""Authors of plays and novels kept to no limit: the largest that a sheet may set."""


@dataclass(frozen=True)
class GoodReply:
    source: str
    text: str
    facts: GateFacts


@dataclass(frozen=True)
class Alarms:
    """Counts over the good replies of one source. `gated` counts each reply once."""

    replies: int
    gated: int
    by_flag: Mapping[str, int]
    """Gates and hints."""


@dataclass(frozen=True)
class Line:
    speaker: str
    text: str


def measure_alarms(replies: Iterable[GoodReply], show: bool = False) -> dict[str, Alarms]:
    """Alarms by source. `show` prints each gated reply."""
    count: Counter[str] = Counter()
    gated: Counter[str] = Counter()
    flags: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for reply in replies:
        failed = [gate.flag for gate in find_failed_gates(Reply(reply.text), reply.facts)]
        count[reply.source] += 1
        gated[reply.source] += bool(failed)
        flags[reply.source].update(failed)
        flags[reply.source].update(hint.flag for hint in find_hints(Reply(reply.text), reply.facts))
        if show and failed:
            print(f"{reply.source}: {', '.join(failed)}: {reply.text}")
    return {source: Alarms(replies, gated[source], flags[source]) for source, replies in count.items()}


def read_packaged() -> Iterator[GoodReply]:
    """Greetings, examples and exemplars of the sheets that ship, in each of their scenes."""
    scenes = read_scenes(ROOT / "app" / "envs" / "npc_arena" / "scenes")
    seen: set[tuple[str, str]] = set()
    for cast in cast_all(read_sheets(ROOT / "character_sheets"), scenes):
        sheet = cast.sheet
        disabled = (*sheet.gates.disabled, *OWN_LINES)
        facts = build_gate_facts(cast, Staging(), "").model_copy(update={"max_words": MOST_WORDS, "disabled": disabled})
        lines = [sheet.scenario.greeting, cast.exemplar, *(example.reply for example in sheet.voice.examples)]
        for text in filter(None, lines):
            if (sheet.id, text) not in seen:
                seen.add((sheet.id, text))
                yield GoodReply(f"ships, {sheet.voice.language}", text, facts)


def read_charactereval(folder: Path) -> Iterator[GoodReply]:
    """Lines of plays, of every role, each once."""
    profiles = json.loads((folder / "data" / "character_profiles.json").read_text(encoding="utf-8"))
    known = {name: json.dumps(profile, ensure_ascii=False) for name, profile in profiles.items()}
    rows = json.loads((folder / "data" / "test_data.jsonl").read_text(encoding="utf-8"))
    seen: set[str] = set()
    for row in rows:
        parts = (line.partition("：") for line in row["context"].splitlines())
        lines = [Line(speaker, text) for speaker, _, text in parts if text.strip()]
        for reply in _list_replies("CharacterEval, zh", "zh", lines, known):
            if reply.text not in seen:
                seen.add(reply.text)
                yield reply


def read_coser(folder: Path) -> Iterator[GoodReply]:
    """Dialogues from novels, with thoughts in square brackets and deeds in round ones."""
    for row in json.loads((folder / "data" / "test" / "test_set.json").read_text(encoding="utf-8")):
        lines = [Line(line["character"], line["message"]) for line in row["dialogues"] if line["message"].strip()]
        spoken = [line for line in lines if line.speaker != "Environment"]
        profiles = {name: f"{text}\n{row['scenario']}" for name, text in row["character_profiles"].items()}
        yield from _list_replies("CoSER, en", "en", spoken, profiles)


def read_cpdc(folder: Path) -> Iterator[GoodReply]:
    """Gold replies of game characters, written by people."""
    for file in sorted((folder / "data").glob("task*_train.json")):
        for row in json.loads(file.read_text(encoding="utf-8")):
            prompt = json.dumps([row["worldview"], row["npc"], row["state"], row["knowledge"]], ensure_ascii=False)
            for number in range(row["total_turn"]):
                turn = row[f"turn_{number}"]
                said = [line["text"] for line in turn["dialogue"] if line["speaker"] == "player"]
                own = [line["text"] for line in turn["dialogue"] if line["speaker"] == "npc"]
                npc, player = row["npc"]["persona"]["name"], row["player"]["persona"]["name"]
                facts = _build_facts(npc, (player,), "en", prompt, said, own)
                yield GoodReply("CPDC, en", turn["gold_response"], facts)


def _list_replies(source: str, language: str, lines: Sequence[Line], prompts: Mapping[str, str]) -> Iterator[GoodReply]:
    for place, line in enumerate(lines):
        before = lines[:place]
        said = [other.text for other in before if other.speaker != line.speaker]
        own = [other.text for other in before if other.speaker == line.speaker]
        answered = [other.speaker for other in before if other.speaker != line.speaker][-1:]
        facts = _build_facts(line.speaker, answered, language, prompts.get(line.speaker, ""), said, own)
        yield GoodReply(source, line.text, facts)


def _build_facts(
    speaker: str, answered: Sequence[str], language: str, prompt: str, said: Sequence[str], own: Sequence[str]
) -> GateFacts:
    return GateFacts(
        speaker=speaker,
        others=(*answered, "Player", "User"),
        prompt=prompt,
        player_said="\n".join(said),
        history=tuple(own),
        max_words=MOST_WORDS,
        language=language,
    )


def count_caught() -> dict[tuple[str, str], tuple[int, int, int, int]]:
    """By flag and language: sentences caught, of how many, and look-alikes caught, of how many."""
    found: dict[tuple[str, str], list[int]] = {}
    for sentence in read_sentences():
        counts = found.setdefault((sentence.flag, sentence.facts.language), [0, 0, 0, 0])
        at = 0 if sentence.caught else 2
        counts[at] += sentence.is_noticed()
        counts[at + 1] += 1
    return {key: (counts[0], counts[1], counts[2], counts[3]) for key, counts in found.items()}


def format_alarms(found: Mapping[str, Alarms]) -> Iterator[str]:
    yield "| good replies of | replies | gated | by which gates and hints |"
    yield "| --- | --- | --- | --- |"
    for source, alarms in found.items():
        share = f"{alarms.gated / alarms.replies:.2%}".replace("%", " %")
        flags = ", ".join(f"`{flag}` {number}" for flag, number in sorted(alarms.by_flag.items()))
        yield f"| {source} | {alarms.replies:,} | {alarms.gated} ({share}) | {flags or '-'} |"


def format_caught(found: Mapping[tuple[str, str], tuple[int, int, int, int]]) -> Iterator[str]:
    languages = list(dict.fromkeys(language for _, language in found))
    yield f"| flag | {' | '.join(languages)} |"
    yield f"| --- |{' --- |' * len(languages)}"
    for flag in dict.fromkeys(flag for flag, _ in found):
        cells = (found.get((flag, language), (0, 0, 0, 0)) for language in languages)
        yield f"| `{flag}` | " + " | ".join(f"{a}/{b}, {c}/{d}" for a, b, c, d in cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    readers = {"charactereval": read_charactereval, "coser": read_coser, "cpdc": read_cpdc}
    for name in readers:
        parser.add_argument(f"--{name}", type=Path, help="the checked out repository")
    parser.add_argument("--show", action="store_true", help="print every good reply that is gated")
    options = parser.parse_args()
    replies = list(read_packaged())
    for name, read in readers.items():
        if (folder := getattr(options, name)) is not None:
            replies += read(folder)
    print(*format_alarms(measure_alarms(replies, options.show)), sep="\n")
    print("", "Sentences noticed of those that should be, and of those that look alike:", "", sep="\n")
    print(*format_caught(count_caught()), sep="\n")


if __name__ == "__main__":
    main()
