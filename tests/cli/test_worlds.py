"""`atropos-envs worlds` and what the demo shows of a world, against a real gateway."""

from pathlib import Path

import httpx

from app.features.worlds.commands import EVENTS_A_REQUEST
from tests.support.commands import ended
from tests.support.serving import Served


def run(*arguments: str) -> tuple[int, list[list[str]], str]:
    """The exit code, the rows of the table, and what went to the standard error."""
    done = ended("worlds", *arguments)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in done.stdout.splitlines() if "│" in line]
    return done.returncode, rows, " ".join(done.stderr.split())


def test_the_sample_world_is_told_once(served: Served) -> None:
    first, second = (run("sample", "--url", served.url) for _ in range(2))
    world = httpx.get(f"{served.url}/worlds/reedgate-wednesday").json()
    books = httpx.get(f"{served.url}/worlds/reedgate-wednesday/lorebooks").json()["lorebooks"]
    assert (first[:2], second[:2], world["parent"], world["newest"], list(books)) == (
        (0, [["reedgate", "", "102", "0", "3", "1"], ["reedgate-wednesday", "reedgate", "8", "0", "1", "0"]]),
        (0, [["reedgate", "", "0", "102", "3", "1"], ["reedgate-wednesday", "reedgate", "0", "8", "1", "0"]]),
        "reedgate",
        "1312-04-07T23:00:00Z",
        ["coast"],
    )


def test_a_file_with_more_events_than_a_request_takes(served: Served, tmp_path: Path) -> None:
    count = 2 * EVENTS_A_REQUEST + 1
    lines = [f'  - {{id: e{n}, time: "2031-04-03T09:00Z", text: "Event {n}."}}' for n in range(count)]
    path = tmp_path / "many.yaml"
    path.write_text("\n".join(["world: many", "events:", *lines]), encoding="utf-8")
    assert run("load", str(path), "--url", served.url)[:2] == (0, [["many", "", str(count), "0", "0", "0"]])


def test_what_the_gateway_refuses_is_said_in_its_words(served: Served, tmp_path: Path) -> None:
    path = tmp_path / "again.yaml"
    answers = []
    for text in ("The rope broke.", "The rope held."):
        path.write_text(
            f'world: again\nevents: [{{id: rope, time: "2031-04-03T09:00Z", text: {text}}}]', encoding="utf-8"
        )
        answers.append(run("load", str(path), "--url", served.url))
    assert (answers[0][0], answers[1][0], "event 'rope' already exists with different content" in answers[1][2]) == (
        0,
        1,
        True,
    )


def test_what_cannot_be_read_is_not_told(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("world: broken\nevents:\n  - {id: rope, time: noon, text: It broke.}\n", encoding="utf-8")
    broken, absent = run("load", str(path)), run("load", str(tmp_path / "none.yaml"))
    assert (broken[0], broken[2][:42], absent[0], "no such file" in absent[2]) == (
        2,
        'broken.yaml, line 3: events.0.time: "noon"',
        2,
        True,
    )


def test_the_demo_shows_what_somebody_is_told(served: Served) -> None:
    done = ended("demo", "--steps", "1", "--batch-size", "1", "--group-size", "2", "--url", served.url)
    said = done.stdout.split("mean reward")[0]
    shown = {
        "Wednesday, before": "The Reedgate ferry runs from first light to last light." in said,
        "Friday": "Hob brought in two lads of the Patience alive from Tallow Bar" in said,
        "Friday, loaded again": "The herring boat Patience came in late but whole" in said,
        "what he cannot know": "Steward Pell left Saltern House" in said,
    }
    assert (done.returncode, shown) == (
        0,
        {"Wednesday, before": True, "Friday": True, "Friday, loaded again": True, "what he cannot know": False},
    )
    groups = httpx.get(f"{served.url}/groups?run=demo&purpose=train").json()["groups"]
    assert {httpx.get(f"{served.url}/groups/{one['group_id']}").json()["reply"]["lag"] for one in groups} == {0}
