"""Hostile texts of authors, six at once: the service answers others meanwhile, each text gets its refusal, and SIGTERM
ends the service at once. With `-s` the figures are printed."""

import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

import httpx
import pytest
from pydantic import JsonValue

from tests.support.livez_waits import asking_livez
from tests.support.serving import Served, serving

pytestmark = pytest.mark.slow

MOST: Final = 256 * 1024
"""Characters of a text that is written."""
LONGEST_WAIT: Final = 1.0
"""Seconds for `/livez` on a machine whose cores are all busy with what is tried here; idle it is a few hundredths."""
LONGEST_END: Final = 5.0

SHEET: Final = """meta: {schema_version: 1, id: mara, licence: unknown, genre: fantasy, world: mara, summary: A smith.}
identity: {name: Mara}
core: {traits: [blunt]}
"""


def build_words(count: int, begin: str) -> str:
    return ", ".join(f"{begin}{number:x}" for number in range(count))


def build_examples(count: int) -> str:
    return ", ".join(f"{{player: a, reply: b{number}}}" for number in range(count))


def check(text: str) -> tuple[str, str, JsonValue]:
    return "POST", "/characters/mara/check", {"text": text[:MOST]}


def try_sheet(text: str) -> tuple[str, str, JsonValue]:
    return "POST", "/envs/npc_arena/try", {"draft": {"sheet": text, "line": "Who are you?"}}


def put_sheet(text: str) -> tuple[str, str, JsonValue]:
    return "PUT", "/characters/mara", {"text": text[:MOST], "revision": 0}


def put_book(*entries: Mapping[str, object]) -> tuple[str, str, JsonValue]:
    return "PUT", "/worlds/coast/lorebooks/coast", cast(JsonValue, {"entries": [*entries]})


QUADRATIC: Final = (
    f"{SHEET}voice: {{style: s, forbidden_words: [{build_words(12_000, 'w')}], examples: [{build_examples(4_000)}]}}\n"
)
"""Each word is looked for in each line."""
STRANGERS: Final = ", ".join(f"{{name: n, target_id: hob-{number:06x}, attitude: a}}" for number in range(4_000))
"""For each the nearest name is looked for."""
ATTACKS: Final[Mapping[str, Callable[[], tuple[str, str, JsonValue]]]] = {
    "base 60": lambda: check("meta: " + "1:" * 12_000 + "1"),
    "unknown fields": lambda: check("".join(f"f{number}: 1\n" for number in range(10_000))),
    "deep nesting": lambda: check("[" * MOST),
    "aliases": lambda: check("a: &a [x]\n" + "".join(f"b{n}: [*a, *a, *a]\n" for n in range(9_000))),
    "a long list": lambda: check("meta: [" + "1," * 131_000),
    "a long number": lambda: check("meta: " + "9" * 250_000),
    "lines and words": lambda: check(QUADRATIC),
    "strangers": lambda: check(f"{SHEET}relationships: [{STRANGERS}]\n"),
    "a draft of lines and words": lambda: try_sheet(QUADRATIC),
    "replies to a draft of many words": lambda: (
        "POST",
        "/envs/npc_arena/try",
        {
            "draft": {"sheet": QUADRATIC, "line": "Who are you?"},
            "completions": [{"text": f"No {number}. " + "I am the smith. " * 60} for number in range(32)],
        },
    ),
    "a draft of 1 MB": lambda: try_sheet("meta: [" + "1," * 520_000 + "1]"),
    "a draft of many words": lambda: try_sheet(SHEET + f"knowledge: {{knows: [{build_words(100_000, 'w')}]}}"),
    "a stored sheet of lines and words": lambda: put_sheet(QUADRATIC),
    "a stored sheet of many words": lambda: put_sheet(f"{SHEET}knowledge: {{knows: [{build_words(30_000, 'w')}]}}"),
    "scenes": lambda: (
        "POST",
        "/characters/mara/scenes/check",
        {"text": "character: mara\nscenes: [" + "{id: a, kind: voice, split: train, player: a}, " * 5_000 + "]"},
    ),
    "empty entries": lambda: put_book(*[{}] * 300_000),
    "empty entries, as many as may be": lambda: put_book(*[{}] * 5_000),
    "patterns": lambda: put_book(
        *({"id": f"e{n}", "content": "x", "regex": True, "keys": ["(a{1,9}){1,9}(x+x+)+y"] * 9} for n in range(5_000))
    ),
    "a foreign book": lambda: put_book(*({"uid": n, "key": ["a"] * 9, "content": "a " * 40} for n in range(5_000))),
    "fields of a book": lambda: put_book(*({"id": f"e{n}", "content": "x", f"f{n}": 1} for n in range(5_000))),
    "huge numbers": lambda: put_book(*({"id": f"e{n}", "content": "x", "order": 10**300} for n in range(2_500))),
    "a card": lambda: (
        "POST",
        "/characters/import",
        {"name": "m", "a": [[1, "b"]] * 300_000, "description": "x" * 10**6},
    ),
}


def tell(figure: str) -> None:
    sys.stdout.write(figure + "\n")


def write_attack(name: str) -> tuple[str, str, bytes]:
    """Before anything is measured: it keeps the threads of this process from running."""
    method, path, body = ATTACKS[name]()
    return method, path, json.dumps(body).encode()


def send(url: str, name: str, attack: tuple[str, str, bytes]) -> tuple[str, int, float]:
    method, path, content = attack
    began = time.monotonic()
    with httpx.Client(base_url=url, timeout=300) as client:
        reply = client.request(method, path, content=content, headers={"Content-Type": "application/json"})
    tell(f"{name:34} {reply.status_code} {time.monotonic() - began:6.1f} s  {reply.text[:160]}")
    return name, reply.status_code, time.monotonic() - began


def test_hostile_texts_hold_up_nobody(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        attacks = {name: write_attack(name) for name in ATTACKS}
        send(served.url, "deep nesting", attacks["deep nesting"])  # starts a worker
        with asking_livez(served.url) as waits, ThreadPoolExecutor(6) as senders:
            sent = senders.map(lambda name: send(served.url, name, attacks[name]), ATTACKS)
            statuses = {name: status for name, status, _ in sent}
        tell(f"longest wait for /livez: {waits.longest:.3f} s of {len(waits.seconds)}")
        ordinary = send_ordinary(served)
    assert {name: status for name, status in statuses.items() if status not in {200, 413, 422}} == {}
    assert (ordinary, waits.longest < LONGEST_WAIT) == (200, True), waits.longest


def send_ordinary(served: Served) -> int:
    reply = httpx.post(f"{served.url}/characters/mara/check", json={"text": SHEET}, timeout=60)
    return reply.status_code


def test_sigterm_ends_the_service_while_hostile_texts_are_read(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        senders = [threading.Thread(target=send_and_forget, args=(served.url, "lines and words")) for _ in range(6)]
        for sender in senders:
            sender.start()
        time.sleep(1.5)  # until they are under way
        began = time.monotonic()
        served.process.send_signal(signal.SIGTERM)
        code = served.process.wait(60)
        seconds = time.monotonic() - began
        for sender in senders:
            sender.join()
    tell(f"ended {seconds:.2f} s after SIGTERM, with {code}")
    assert seconds < LONGEST_END, seconds


def send_and_forget(url: str, name: str) -> None:
    with suppress(httpx.TransportError):
        send(url, name, write_attack(name))
