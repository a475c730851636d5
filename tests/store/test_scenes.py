"""Groups that are found and exported by their scene."""

import pytest
from pydantic import JsonValue

from app.domain.groups import GroupFilter, TaskPrompt, TaskRecord
from app.domain.runs import Policy, Purpose
from app.domain.scores import Criterion, Score
from app.features.exports.store import ExportStore
from app.main.store import Store
from app.store import search
from app.store.group_rows import GroupToStore
from tests.support.databases import connected
from tests.support.store_cases import group, record

EVIL = "</title><script>alert(1)</script>"


def task(number: int, scene: str | None, label: str, environment: str = "npc_arena") -> TaskRecord:
    plain = record(number)
    prompt = plain.prompt.model_copy(update={"metadata": {} if scene is None else {"scene": scene}})
    key = plain.key.model_copy(update={"environment": environment})
    return plain.model_copy(update={"label": label, "prompt": prompt, "key": key})


def judged(reward: float, calibrated: float | None = None, gate: float = 1.0) -> Score:
    voice = Criterion(name="voice", value=reward / 2, weight=1.0)
    return Score(
        outcome="scored", reward=gate * reward, gate=gate, absolute=reward, calibrated=calibrated, criteria=(voice,)
    )


def answered(
    name: str, number: int, step: int, *scores: Score, run: str = "a", purpose: Purpose = "train"
) -> GroupToStore:
    policy, task_id = Policy(model="m", step=step), f"task_{number}"
    return group(name, scores, task_id=task_id, environment="npc_arena", run=run, policy=policy, purpose=purpose)


async def fill(store: Store) -> None:
    """The scene `ford` of two characters, and one with a name that looks like markup."""
    await store.tasks.put(
        [task(0, "ford", "hob"), task(1, "ford", "ann"), task(2, EVIL, "hob"), task(3, None, "hob"), task(4, "x", "x")]
    )
    await store.groups.add(
        [
            answered("first", 0, 0, judged(0.5, 0.25), judged(1.0, 0.75)),
            answered("gated", 0, 1, judged(0.5, gate=0.0), Score.unscored("budget")),
            answered("of ann", 1, 1, judged(1.0), judged(1.0)),
            answered("evil", 2, 1, judged(0.25)),
            answered("none", 3, 1, judged(0.25)),
            answered("other run", 0, 1, judged(1.0), run="b"),
            answered("eval", 0, 1, judged(1.0), purpose="eval"),
        ]
    )


@pytest.mark.parametrize("few", [500, 0], ids=["rare", "frequent"])
async def test_groups_are_found_and_exported_by_their_scene(
    store: Store, few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "FEW_TASKS", few)
    wanted = ({"scene": EVIL}, {"scene": "ford", "run": "a", "label": "hob"}, {"scene": "ford", "min_step": 1})
    await fill(store)
    found = [(await store.views.find_groups(GroupFilter.model_validate(one))).groups for one in wanted]
    trained = [GroupFilter.model_validate({**one, "purpose": "train"}) for one in wanted]
    exported = [
        [kept async for page in store.part(ExportStore).read_pages(where, 0, 99, 9) for kept in page]
        for where in trained
    ]
    assert [[one.group_id for one in some] for some in found] + [
        [one.group.group_id for one in some] for some in exported
    ] == [
        ["evil"],
        ["eval", "gated", "first"],
        ["eval", "other run", "of ann", "gated"],
        ["evil"],
        ["first", "gated"],
        ["gated", "of ann", "other run"],
    ]


@pytest.mark.parametrize("scene", ["", " ford", "a\nb", "a\x00", "\ud800", "a\u202eb", "x" * 101, 7, None, ["ford"]])
def test_what_is_no_short_name_is_no_scene(scene: JsonValue) -> None:
    prompt = TaskPrompt.model_construct(messages=(), metadata={"scene": scene})
    assert (prompt.scene, TaskPrompt(messages=(), metadata={"scene": EVIL}).scene) == (None, EVIL)


def forget_scenes(url: str) -> None:
    """And damages a prompt."""
    with connected(url) as connection:
        connection.exec_driver_sql("UPDATE tasks SET scene = NULL")
        connection.exec_driver_sql(
            "UPDATE prompts SET body = '{\"scene\":' "
            "WHERE digest = (SELECT prompt_digest FROM tasks WHERE task_id = 'task_3')"
        )
