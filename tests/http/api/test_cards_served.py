"""Characters that came as cards are served, judged and shown; what a stranger wrote in one stays text."""

from pathlib import Path

from pydantic import JsonValue
from starlette.testclient import TestClient
from typer.testing import CliRunner

from app.cli.main import cli
from app.envs.npc_arena.environment import NpcArena
from app.judges.panel import ConfiguredPanels
from app.main.application import create_app
from app.settings import Settings
from tests.support.cards import V2, Fields, image, text_chunk
from tests.support.outline import Outline
from tests.support.playground import await_ready

SCRIPT = '<script>document.title = "owned"</script>'
LORE = "The cellar of the tower is flooded."


def hostile() -> Fields:
    data = V2["data"]
    assert isinstance(data, dict)
    entry: JsonValue = {"keys": ["e"], "content": LORE, "extensions": {}, "enabled": True, "insertion_order": 1}
    texts = ("description", "personality", "scenario", "first_mes", "creator", "system_prompt")
    return {
        **V2,
        "data": {
            **data,
            **{name: f"{data[name]} {SCRIPT}" for name in texts},
            "tags": [SCRIPT],
            "character_book": {"entries": [entry], "extensions": {}},
        },
    }


def test_a_hostile_card_is_played_judged_and_shown_as_text(tmp_path: Path) -> None:
    (tmp_path / "card.png").write_bytes(image(text_chunk("chara", hostile())))
    sheets = tmp_path / "sheets"
    ran = CliRunner().invoke(cli, ["sheets", "import", str(tmp_path / "card.png"), "--to", str(sheets)])
    assert ran.exit_code == 0, ran.output
    app = create_app(
        Settings(database_url=f"sqlite:///{tmp_path / 'gateway.db'}", character_sheets=sheets),
        environments={"npc_arena": NpcArena},
        panels=ConfiguredPanels({}, {}),
    )
    with TestClient(app, base_url="http://127.0.0.1") as client:
        await_ready(client)
        (task,) = client.post("/envs/npc_arena/next-batch", json={"batch_size": 1, "run": "cards"}).json()["tasks"]
        prompt = task["messages"][0]["content"]
        completions: JsonValue = [{"text": "The lamp is green. Sit."}, {"text": f"Mind the stairs. {SCRIPT}"}]
        group: JsonValue = {"task_id": task["task_id"], "lease_id": task["lease_id"], "completions": completions}
        reply = client.post("/envs/npc_arena/score", json={"run": "cards", "groups": [group]}).json()
        (scored,) = reply["groups"]
        outline = Outline(client.get(f"/view/groups/{scored['group_id']}").text)
        (listed,) = client.get("/characters").json()["characters"]
    assert (SCRIPT in prompt, LORE in prompt, "ORDERS" in prompt) == (True, True, False)
    assert [score["outcome"] for score in scored["scores"]] == ["scored", "scored"]
    assert (outline.elements.count("script"), "".join(outline.text).count(SCRIPT) > 3) == (1, True)
    assert {name: listed[name] for name in ("id", "name", "role", "stance", "genre")} == {
        "id": "mara_quill",
        "name": "Mara Quill",
        "role": None,
        "stance": None,
        "genre": "unknown",
    }
