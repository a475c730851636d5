"""Reports as files: whole HTML, nothing from elsewhere, nothing a stranger wrote comes alive."""

import io
from collections.abc import Mapping
from html.parser import HTMLParser

import pytest
from rich.console import Console

from app.cli.evaluate.command import build_summary
from app.domain.scores import HIGHEST, LOWEST
from app.evaluation.comparison import compare_evaluations, render_html
from app.evaluation.report import (
    MeanEstimate,
    PassAt,
    Resampler,
    build_report,
    draw_pass_at_curve,
)
from app.toolkit.texts import escape_invisible
from tests.support.evaluations import (
    HOSTILE,
    duel,
    evaluation,
    hostile,
    hostile_tournament,
    rewarded,
    scored,
    tournament,
    unscored,
)

VOID = {"meta", "line", "rect", "polygon", "polyline"}
ALIVE = {"script", "img", "iframe", "object", "embed", "link", "base", "form", "input", "button", "a", "audio", "video"}


class Reader(HTMLParser):
    """Every element closed in its turn; the texts and the attributes that there are."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: dict[str, set[str]] = {}
        self.texts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


PAGES: Mapping[str, str] = {
    "hostile report": render_html(build_report(hostile())),
    "hostile comparison": render_html(compare_evaluations(hostile(), hostile())),
    "hostile tournament": render_html(hostile_tournament()),
    "tournament of one task": render_html(tournament([duel(0, 0, 1, "one")])),
    "tournament of nothing": render_html(tournament([duel(0, 0, 1, None, reason="judge_failed")])),
    "report of one attempt at each": render_html(build_report(rewarded({0: (1.0,), 1: (0.0,)}))),
    "comparison of equals": render_html(
        compare_evaluations(rewarded({0: (1.0,)}), rewarded({0: (1.0,)}, threshold=0.5))
    ),
    "report of nothing": render_html(build_report(evaluation([]))),
    "report of nothing scored": render_html(build_report(evaluation([unscored(0, 0)]))),
}


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_a_page_is_whole_and_needs_nothing_else(page: str) -> None:
    read = Reader(page)
    assert (read.open, read.tags & ALIVE) == ([], set())
    assert not {"src", "href", "style", "onclick", "onerror", "action"} & set(read.attributes)
    assert not any(word in page for word in ("url(", "@import", "http://", "https://"))


@pytest.mark.parametrize("page", [page for name, page in PAGES.items() if name.startswith("hostile")])
def test_what_strangers_wrote_is_shown_and_is_text(page: str) -> None:
    read = Reader(page)
    assert any(escape_invisible(HOSTILE) in text for text in read.texts)
    assert not any(mark in page for mark in ("<script", "<img", "\u202e", "\x1b", "7 * 7 }} &amp; ", "49 &"))


def test_without_any_spread_nothing_is_said_of_what_would_be_noticed() -> None:
    same = rewarded({0: (0.0,), 1: (0.0,)})
    pages = (render_html(build_report(same)), render_html(compare_evaluations(same, same)))
    assert not any("difference of <b>" in page for page in pages)


def test_a_long_table_of_tasks_is_cut_and_says_so() -> None:
    page = render_html(build_report(rewarded({place: (1.0,) for place in range(503)})))
    assert (page.count("task_"), "3 more are in the JSON" in page) == (500, True)


def test_groups_tasks_and_the_viewers_page_are_links_where_the_gateway_is_known() -> None:
    known = {"gateway_url": "https://envs.example", "run": "eval", "step": 7}
    base = rewarded({0: (0.0,), 1: (1.0,)})
    told = base.model_copy(update={"setup": base.setup.model_copy(update=known)})
    report, comparison = render_html(build_report(told)), render_html(compare_evaluations(told, told))
    task = base.attempts[0].task_id
    assert f'href="https://envs.example/view/groups?task_id={task}"' in report
    assert f"<h1>{base.setup.model}, step 7 " in report
    assert "https://envs.example/view/compare?first=eval&amp;first_model=" in comparison
    assert "&amp;second_steps=7&amp;environment=" in comparison


def test_a_curve_needs_two_points_and_doubles_from_step_to_step() -> None:
    passes = [PassAt(k=k, rate=MeanEstimate(value=k / 8, low=0.0, high=1.0, tasks=9), left_out=0) for k in (1, 2, 4, 8)]
    drawn = draw_pass_at_curve(passes)
    assert drawn is not None
    (curve,) = drawn.curves
    steps = [two - one for (one, _), (two, _) in zip(curve.dots, curve.dots[1:], strict=False)]
    shares = [(drawn.bottom - y) / (drawn.bottom - drawn.top) for _, y in curve.dots]
    assert draw_pass_at_curve(passes[:1]) is None
    assert shares == pytest.approx([0.125, 0.25, 0.5, 1.0], abs=0.001)
    assert steps == pytest.approx([steps[0]] * 3, abs=0.2)


def test_calibrated_values_stand_beside_the_mean_reward_of_the_same_tasks() -> None:
    attempts = [
        scored(0, 0, 0.5, calibrated=0.25, calibrated_error=0.1),
        scored(0, 1, 0.75, calibrated=0.75, calibrated_error=0.1),
        scored(1, 0, 0.25, calibrated=-0.25, calibrated_error=0.1),
        scored(2, 0, 1.0),
    ]
    report = build_report(evaluation(attempts))
    resampler = Resampler(0)
    assert (report.calibrated, report.calibrated_tasks) == (
        resampler.estimate([0.5, -0.25], LOWEST, HIGHEST),
        resampler.estimate([0.625, 0.25]),
    )
    assert (report.calibrated.value, report.calibrated_tasks.value, report.calibrated.tasks) == (0.125, 0.4375, 2)
    page = " ".join(Reader(render_html(report)).texts)
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(build_summary(report))
    table = console.export_text()
    assert ["over 2 tasks, whose mean reward is 0.438" in page, "mean reward of the same tasks" in table] == [True] * 2
    assert [line.split()[3] for line in table.splitlines() if " calibrated " in line] == ["0.125"]


def test_figures_name_the_rule_that_pays() -> None:
    asked = rewarded({0: [0.5], 1: [1.0]})
    report = build_report(asked.model_copy(update={"setup": asked.setup.model_copy(update={"strictness": "ours"})}))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(build_summary(report))
    page, table = " ".join(Reader(render_html(report)).texts), console.export_text()
    names = ("Mean reward (ours)", "pass@1 (ours)")
    assert [(name in page, name.lower() in table) for name in names] == [(True, True)] * 2


def test_the_interval_of_a_calibrated_value_above_1_holds_it() -> None:
    found = build_report(evaluation([scored(0, 0, 0.9, calibrated=1.3)])).calibrated
    assert (found.value, (found.low or 0.0) < 1.3 < (found.high or 0.0) <= HIGHEST) == (1.3, True)


def test_without_calibrated_values_nothing_is_said_of_them() -> None:
    report = build_report(rewarded({0: [0.5], 1: [1.0]}))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(build_summary(report))
    told = render_html(report) + console.export_text()
    assert ("alibrated" in told, report.calibrated) == (False, MeanEstimate())
