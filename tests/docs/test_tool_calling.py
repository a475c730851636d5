"""What docs/tool_calling.md tells people to type works as it stands there, against a real gateway."""

import json
import re
import subprocess
from pathlib import Path
from typing import get_args

from app.envs.tool_calling.environment import APIS
from app.envs.tool_calling.requests import MOST_CHARACTERS, ApiBook, Category
from app.envs.tool_calling.rows import ToolRow
from app.toolkit.tool_calls.calls import MOST_DIGITS, MOST_MORE, MOST_TIMES
from tests.support.serving import ROOT, serving

PAGE = (ROOT / "docs" / "tool_calling.md").read_text(encoding="utf-8")
DECISION = (ROOT / "docs" / "decisions" / "0013-tool-calls-are-matched-exactly.md").read_text(encoding="utf-8")
SHOWN = "http://127.0.0.1:8000"
SETTING = re.compile(r"^(ATROPOS_ENVS_DATASETS__TOOL_CALLING)=(\S+) make run$", re.MULTILINE)


def _blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def _run(script: str, folder: Path) -> str:
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_commands_work_verbatim(tmp_path: Path) -> None:
    data, *commands = _blocks("sh")
    ((name, place),) = SETTING.findall(PAGE)
    _run(data, tmp_path)
    with serving(tmp_path, settings={name: place}) as gateway:
        script = "\necho; echo ----\n".join(commands).replace(SHOWN, gateway.url)
        batch, scored, rendered = (json.loads(part) for part in _run(script, tmp_path).split("----"))
    assert [task["metadata"]["category"] for task in batch["tasks"]] == ["simple"]
    assert [group["rewards"] for group in scored["groups"]] == [[1.0, 1.0, 0.0, 0.0]]
    assert [task["tools"] for task in rendered["tasks"]] == [[]]
    assert "get_forecast" in rendered["tasks"][0]["messages"][0]["content"]


def test_the_page_names_what_there_is() -> None:
    categories = re.findall(r"^\| `(\w+)` \| (?:one|several|some)", PAGE, re.MULTILINE)
    columns = re.findall(r"^\| `(\w+)` \| (?:as |tools by|`\[)", PAGE, re.MULTILINE)
    assert (set(categories), set(columns)) == (set(get_args(Category)), set(ToolRow.model_fields))


def test_the_page_counts_right() -> None:
    assert len([*ApiBook.read(APIS).list_tools()]) > 60
    assert f"more than {MOST_DIGITS} digits" in PAGE
    assert f"up to {MOST_CHARACTERS} characters" in PAGE
    assert (MOST_TIMES, MOST_MORE) == (4, 200)
    assert "four times as long as it should be, and 200 characters" in DECISION
