"""Kinds of instructions, how texts are counted, and what cheap tricks earn: all from the code itself."""

import asyncio
import re
from functools import cache

from app.domain.tasks import Completion, Task
from app.envs.instruction_following.assignments import KINDS, Assignment
from app.envs.instruction_following.counted_kinds import NoCommas, SentencesExactly
from app.envs.instruction_following.environment import InstructionFollowing
from app.envs.instruction_following.instructions import WORDINGS, WritingRequest, parse_text
from app.envs.instruction_following.layout_kinds import LastWord
from app.ports.environment import Tools
from app.service.judging import NoPanel
from app.toolkit.seeded import SeededRandom
from docs.markdown import code, table

REQUEST = WritingRequest(form="Write a story about", thing="violin", place="harbour", reader="", least=30)
ASKED = (NoCommas(), SentencesExactly(count=4), LastWord(word="again"))
MADE = Assignment(
    request=REQUEST,
    instructions=ASKED,
    asked=tuple(one.phrase_request(SeededRandom(f"docs {one.kind}")) for one in ASKED),
)
TEXT = (
    "An old violin lay in the harbour for years. Nobody knew who had left it there. On windy nights it sang by itself "
    "and the captain took off his cap. One morning a girl came to take it home again."
)
DEFINITION = re.compile(r" \((?:A|No) (?:word|sentence) [^()]*\)$")
"""Of a word or sentence, as prompts have it; the page says it once."""
COUNTED = (
    ("A well-known fact, isn't it?", ""),
    ("The house—which is old – stands.", "dashes part words"),
    ("Mr. Lee paid 3.5 pounds.", "a full stop before a space ends a sentence"),
    ('"No!" (So he said.)', "quotation marks and brackets may follow"),
    ("A title\nOne. Two", "a sentence ends with its line"),
    ("1. Salt\n2. Oil", "`1.` has a digit, so it is a word, but no letter, so it is no sentence"),
    ("One.\n \nTwo.", "a line of blanks is blank"),
    ("One.\n***\nTwo.", "`***` is a line without words"),
)


def instruction_kinds() -> str:
    rows = []
    for name, kind in KINDS.items():
        example = kind.draw(SeededRandom(f"docs {name}"), REQUEST)
        said = WORDINGS[name][0].format_map(example.build_slots())
        rows.append((code(name), kind.family, "hard" if kind.hard else "", code(DEFINITION.sub("", said))))
    return table(("kind", "family", "", "for example"), rows)


def instruction_counting() -> str:
    rows = []
    for text, why in COUNTED:
        reading = parse_text(text)
        shown = code(text.replace("\n", "⏎"))
        counts = (len(reading.words), len(reading.sentences), len(reading.lines), len(reading.paragraphs))
        rows.append((shown, *map(str, counts), why))
    return table(("text (⏎ is a line end)", "words", "sentences", "lines", "paragraphs", ""), rows)


def instruction_tricks() -> str:
    prompt = _prompt()
    both = f"{REQUEST.thing} {REQUEST.place}"
    tricks = (
        ("a text that follows all", TEXT),
        ("the same after thinking", f"<think>Four sentences.</think>{TEXT}"),
        ("with an opening remark", f"Sure! {TEXT}"),
        ("with a comma", TEXT.replace(" and", ", and")),
        ("cut off", TEXT[:80]),
        ("about something else", TEXT.replace("violin", "piano")),
        ("nothing: no comma is in it", ""),
        ("the prompt", prompt),
        ("the two words over and over", f"{both}. " * 30),
        ("a sentence over and over", f"There was a {REQUEST.thing} in the {REQUEST.place} again. " * 4),
        ("words without sentences", f"{both} " + " ".join(word for word in TEXT.split() if len(word) > 4) * 3),
        ("zero-width characters for spaces", TEXT.replace(" ", "\u200b")),
        (
            "invented words",
            f"An old {REQUEST.thing} lay in the {REQUEST.place} for plorns. Nobody grelted who had vonked it there. "
            "On smorby trakes it dworled by itself and the blemmer took off his snurp. "
            "One zilber a frimp came to quonk it home again.",
        ),
        ("Cyrillic letters among the Latin ones", TEXT.replace("sang", "s\u0430ng")),
    )
    return table(("reply", "earns"), [(what, _earns(text)) for what, text in tricks])


def _earns(text: str) -> str:
    task = Task(messages=(), reference=MADE.model_dump(mode="json"))
    (score,) = asyncio.run(_environment().score(task, [Completion(text=text)], Tools(panel=NoPanel())))
    return f"{-1.0 if score.reward is None else score.reward:g}"


@cache
def _environment() -> InstructionFollowing:
    return InstructionFollowing()


def _prompt() -> str:
    return _environment().phrasings.say(SeededRandom("docs"), **_environment().slots(MADE))
