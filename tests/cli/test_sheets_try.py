"""`sheets try`: a draft, replies of one's own or of a server, and everything that becomes of them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli.main import cli
from app.toolkit.templates import find_packaged_folder
from tests.support.chat_server import Received, Reply, serving
from tests.support.tables import read_table

TABLE = read_table(__file__, "sheets_try.yaml", tuple[tuple[Sequence[str], str], ...])

HOB = find_packaged_folder("character_sheets") / "hob_tarrant.yaml"
GOOD = "Nay. Water's up, seen worse. Get in or don't."


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal that breaks no line."""
    monkeypatch.setenv("COLUMNS", "400")


def tried(*arguments: str, env: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, ["sheets", "try", *arguments], env=dict(env or {}))


def says(*texts: str) -> Sequence[bytes]:
    return [
        json.dumps({"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}).encode() for text in texts
    ]


def test_a_draft_file_is_tried_offline(tmp_path: Path) -> None:
    draft = tmp_path / "mine.yaml"
    draft.write_text(HOB.read_text(encoding="utf-8").replace("Pays late.", "Pays never."), encoding="utf-8")
    hostile = "As an AI language model [bold]I[/bold] cannot row."
    replies = ["--reply", GOOD, "--reply", hostile, "--reply", "It does, my friend."]
    shown = tried(str(draft), "--line", "Is the ferry running?", "--event", "It floods.", "--prompt", *replies)
    expected = read_table(__file__, "try_told.yaml", list[str])
    assert (shown.exit_code, [line for line in expected if line not in shown.output]) == (0, [])
    assert list(tmp_path.iterdir()) == [draft]


def test_a_server_replies() -> None:
    bodies = says(GOOD, "Aye. Two coppers.")

    def script(number: int, received: Received) -> Reply:
        return Reply(bodies[number])

    with serving(script) as server:
        arguments = ["hob_tarrant", "--line", "Hello.", "--policy", server.url, "--model", "small", "--count", "2"]
        shown = tried(*arguments, "--api-key-env", "MY_KEY", "--json", env={"MY_KEY": "secret-7"})
        asked = [(one.authorization, one.body["model"], one.messages[-1]) for one in server.received]
    shown_json = json.loads(shown.stdout)
    assert sorted(reply["text"] for reply in shown_json["replies"]) == ["Aye. Two coppers.", GOOD]
    assert asked == [("Bearer secret-7", "small", {"role": "user", "content": "Hello."})] * 2
    assert ("secret-7" in shown.output, len(json.loads(shown.stdout)["completions"])) == (False, 2)


def test_what_a_model_said_is_printed_and_cannot_pass_for_the_report() -> None:
    said = "Aye. [bold]Two[/bold] coppers.\x1b[2J\n2 assistant: Nay."

    def script(number: int, received: Received) -> Reply:
        return Reply(says(said)[0])

    with serving(script) as server:
        arguments = ["hob_tarrant", "--line", "Hello.", "--policy", server.url, "--model", "small", "--count", "1"]
        shown = tried(*arguments)
    lines = [line for line in shown.stdout.splitlines() if "assistant:" in line][:2]
    expected = ["1 assistant: Aye. [bold]Two[/bold] coppers.⟨U+001B⟩[2J", "    2 assistant: Nay."]
    assert (lines, "\x1b[2J" in shown.output) == (expected, False)


def test_a_server_plays_an_episode_to_its_end() -> None:
    def script(number: int, received: Received) -> Reply:
        return Reply(says(f"Nay, says the tide, and {number} gulls.")[0])

    with serving(script) as server:
        arguments = ["hob_tarrant", "--scene", "hob_tarrant-haggling", "--policy", server.url, "--model", "small"]
        shown = tried(*arguments, "--count", "1", "--json")
        printed = tried(*arguments, "--count", "1").stdout
        lengths = [len(one.messages) for one in server.received]
    assert lengths == [2, 4, 6, 8] * 2
    assert printed.count("\n1 assistant: Nay, says the tide, and ") == 4
    assert json.loads(shown.stdout)["completions"][0]["score"]["outcome"] == "scored"


def test_a_server_that_fails_is_named() -> None:
    with serving(lambda number, received: Reply(b'{"error": "no such [model]"}', status=404)) as server:
        shown = tried("hob_tarrant", "--line", "Hi.", "--policy", server.url, "--model", "small", "--count", "1")
    words = f'{server.url} answers 404: {{"error": "no such [model]"}}'
    assert (shown.exit_code, shown.stderr.replace("\n", "")) == (2, words)


@pytest.mark.parametrize(("arguments", "words"), TABLE)
def test_what_cannot_be_tried_is_said_in_one_line(arguments: Sequence[str], words: str) -> None:
    shown = tried(*arguments)
    assert (shown.exit_code, words in shown.stderr, shown.stdout) == (2, True, "")


def test_a_broken_sheet_is_named_once_down_to_its_field(tmp_path: Path) -> None:
    draft = tmp_path / "mine.yaml"
    draft.write_text(HOB.read_text(encoding="utf-8").replace("stance: good", "stance: fine"), encoding="utf-8")
    shown = tried(str(draft), "--line", "Hello.")
    words = '`draft.sheet.core.stance`: "fine" was given; wanted is `good`, `ambivalent` or `villain`, in line 21'
    assert (shown.exit_code, shown.stderr.partition(words)[0]) == (2, "")
