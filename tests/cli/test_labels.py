"""`atropos-envs labels import` and what comes of it in exports, and `judges agreement`, against a real gateway."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import pytest
from pydantic import JsonValue

from app.domain.labels import ImportedChoice, ImportedLabel
from app.domain.tasks import Message
from app.evaluation.agreement import AgreementSlice, DefectAgreement, PairAgreement
from app.features.labels.commands import cut_batches, print_agreement
from app.features.labels.routes import JudgeAgreement
from tests.support.commands import ended
from tests.support.serving import Served


def write(path: Path, rows: Sequence[Mapping[str, JsonValue]]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return path


def line(said: str, *, player: bool = False, swipes: Sequence[str] = ()) -> dict[str, JsonValue]:
    spoken: dict[str, JsonValue] = {"name": "x", "is_user": player, "is_system": False, "mes": said}
    return spoken | ({"swipes": list(swipes), "swipe_id": list(swipes).index(said)} if swipes else {})


def test_a_chat_its_branch_and_pairs_are_imported_once_and_exported(served: Served, tmp_path: Path) -> None:
    told = [line("Who is it?", player=True), line("A guest.", swipes=["Nobody.", "A guest."]), line("Oh.", player=True)]
    chat = write(tmp_path / "chat.jsonl", [{"user_name": "x", "chat_metadata": {}}, *told])
    more = [*told, line("Yes.", swipes=["Yes.", "No."])]
    branch = write(tmp_path / "branch.jsonl", [{"user_name": "x", "chat_metadata": {"main_chat": "chat"}}, *more])
    pairs = write(tmp_path / "pairs.jsonl", [{"prompt": "Hm?", "chosen": "a", "rejected": "b"}])
    files = ("labels", "import", str(chat), str(branch), str(pairs), "--json", "--url", served.url)
    dry, first, second = (json.loads(ended(*files, *more).stdout) for more in (("--dry-run",), (), ()))
    lost = [{"file": str(branch), "line": 5, "reason": "no message of the player follows: shown last is not chosen"}]
    assert [(one["choices"], one["left_out"]) for one in (dry, first, second)] == [
        ({"implicit": 2, "pair": 1}, lost)
    ] * 3
    assert [(one["added"], one["known"]) for one in (dry, first, second)] == [(None, None), (2, 1), (0, 3)]
    rows = httpx.get(f"{served.url}/export", params={"shape": "labels"}).text.splitlines()
    # Others label at this gateway too.
    exported = [row for row in map(json.loads, rows) if row["prompt"][0]["content"] in ("Who is it?", "Hm?")]
    assert [(one["kind"], one["chosen"][0]["content"], one["rejected"][0]["content"]) for one in exported] == [
        ("implicit", "A guest.", "Nobody."),
        ("pair", "a", "b"),
    ]
    assert exported[0]["prompt"][0]["content"] == "Who is it?"


def test_words_of_a_file_cannot_move_the_cursor_or_end_the_command(tmp_path: Path) -> None:
    asked: dict[str, JsonValue] = {"role": "user", "content": "Who?", "\x1b[2J\n": 1}
    pairs = write(tmp_path / "pairs.jsonl", [{"prompt": [asked], "chosen": "a", "rejected": "b"}])
    plain, told = (ended("labels", "import", str(pairs), "--dry-run", *more) for more in ((), ("--json",)))
    reason = "`prompt[0].\\x1b[2J\\n`: unknown field"
    assert plain.stderr.splitlines() == [
        f"{pairs}:1: left out: {reason}",
        "no choices in 1 files; 1 lines left out; nothing was stored",
    ]
    assert json.loads(told.stdout)["left_out"][0]["reason"] == reason


def test_a_request_holds_few_choices_of_a_long_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(prompt: str) -> ImportedLabel:
        chat = (Message(role="user", content=prompt),)
        return ImportedLabel(kind="pair", choice=ImportedChoice(prompt=chat, chosen="a", rejected=("b",)))

    monkeypatch.setattr("app.features.labels.commands.BATCH_BYTES", 1_000)
    monkeypatch.setattr("app.features.labels.commands.BATCH", 3)
    found = [choose("é" * size) for size in (300, 300, 900, 9, 9, 9, 9, 9)]
    cut = [*cut_batches(found)]
    assert ([len(batch) for batch in cut], [one for batch in cut for one in batch]) == ([1, 1, 1, 3, 2], found)


def test_names_that_a_server_gives_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = AgreementSlice(
        name="[/red]\x1b[2J",
        pairs=PairAgreement(groups=0, pairs=0),
        criteria=(),
        defects=DefectAgreement(groups=0, replies=0),
    )
    found = {"judge": "[/b]", "overall": nothing, "languages": (), "rubrics": (), "labels": {"\x1b": 1}, "draws": {}}
    print_agreement(JudgeAgreement.model_validate(found | {"with_others": 0, "environment": None, "run": None}))
    told = capsys.readouterr().out
    assert ("\x1b" in told, "[/red]⟨U+001B⟩[2J: which" in told, "[/b], on the same pairs" in told) == (
        False,
        True,
        True,
    )


def test_agreement_says_what_it_needs(served: Served) -> None:
    done = ended("judges", "agreement", "offline", "--url", served.url)
    wrong = ended("judges", "agreement", "oflin", "--url", served.url)
    assert (done.returncode, "needs 50 groups" in done.stdout) == (0, True)
    assert (wrong.returncode, "offline" in wrong.stderr) == (2, True)
