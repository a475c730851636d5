"""`atropos-envs envs`: what is listed, what a check says and ends with, what is begun and what is refused."""

import shutil
from importlib.metadata import version
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from typer.testing import CliRunner

from app.cli.envs.commands import EnvironmentLine, ScaffoldRequest, write_environment
from app.cli.main import cli
from app.envs.community.date_arithmetic import environment as date_arithmetic
from app.toolkit.conformance.checks import CHECKS
from app.toolkit.conformance.subject import ConformanceReport
from tests.support.tables import read_table

TABLE = read_table(__file__, "envs.yaml", tuple[tuple[str | None, str], ...])

RUNNER = CliRunner()
QUICKLY = ("--tasks", "40", "--texts", "40")


def said(*words: str, expected: int) -> str:
    """What the command writes, without its line breaks and the colours of terminals."""
    done = RUNNER.invoke(cli, ["envs", *words], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert done.exit_code == expected, done.output
    return " ".join(done.output.split())


def test_the_list_says_what_scores_and_where_from() -> None:
    done = RUNNER.invoke(cli, ["envs", "list", "--json"])
    lines = {line.name: line for line in TypeAdapter(tuple[EnvironmentLine, ...]).validate_json(done.stdout)}
    known = [lines[name] for name in ("date_arithmetic", "mastermind", "npc_arena")]
    assert [(line.turns, line.scored_by, line.source, line.available) for line in known] == [
        ("one", "verifier", "community", True),
        ("several", "verifier", "core", True),
        ("several", "judges (npc_arena)", "core", True),
    ]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """The same environment, in a folder elsewhere, to which any date is right: that of an example in its prompt too."""
    source = Path(date_arithmetic.__file__)
    shutil.copytree(source.parent, tmp_path / "broken")
    text = source.read_text(encoding="utf-8").replace('"" if answer == self.solution(made) else', '"" if made else')
    (tmp_path / "broken" / "environment.py").write_text(text, encoding="utf-8")
    return tmp_path / "broken" / "environment.py"


def test_a_check_fails_with_what_to_mend(broken: Path) -> None:
    words = said("check", str(broken), *QUICKLY, expected=1)
    assert "Another task's right answer earns nothing. failed" in words
    assert "expected: at most 0.0% of tasks solved by another task's right answer (`chance`) got: 80 of 80:" in words
    assert "fix: Answers repeat too often, so a constant answer would earn rewards" in words
    assert "most is paid to: near_miss_digit (all), 100.0% of 40 tasks nothing to send for: near_miss_case," in words
    assert "22 spellings and layouts of right answers: none refused" in words
    assert words.endswith(f"failed: 3 of {len(CHECKS)}")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        pytest.param("def size(self, split, params): return 0", "got: size 0", marks=pytest.mark.slow),
        (
            "def task(self, split, index, params): return super().task(split, index, params if index < 99 else 1 / 0)",
            "failed: it raised an error during measurement, on tasks beyond those checked",
        ),
    ],
)
def test_one_that_raises_gets_its_report_all_the_same(broken: Path, code: str, told: str) -> None:
    text = Path(date_arithmetic.__file__).read_text(encoding="utf-8")
    broken.write_text(text.replace("    def make(", f"    {code}\n\n    def make("), encoding="utf-8")
    assert told in said("check", str(broken), *QUICKLY, expected=1)


def test_a_check_for_programs_is_one_object(broken: Path) -> None:
    done = RUNNER.invoke(cli, ["envs", "check", str(broken), *QUICKLY, "--json"])
    report = ConformanceReport.model_validate_json(done.stdout)
    assert (done.exit_code, report.passed, [one.name for one in report.checks if not one.passed]) == (
        1,
        False,
        ["strangers_earn_nothing", "junk_earns_nothing", "strategies_earn_what_is_stated"],
    )


@pytest.mark.parametrize(("text", "words"), TABLE)
def test_what_is_no_environment_is_said(tmp_path: Path, text: str | None, words: str) -> None:
    file = tmp_path / "odd.py"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    assert words in said("check", str(file), expected=2)


@pytest.mark.parametrize("judged", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["judged", "verified"])
def test_what_is_begun_passes_as_it_is(tmp_path: Path, judged: bool) -> None:
    options = ["--judged"] if judged else []
    told = said("new", "tide_tables", "--path", str(tmp_path), *options, expected=0)
    assert "atropos-envs envs check tide_tables" in told
    checked = said("check", str(tmp_path / "tide_tables"), *QUICKLY, expected=0)
    assert ("distinct prompts 40 of 40" in checked, checked.endswith("passed: all checks")) == (True, True)


def test_a_package_is_begun_with_all_that_it_needs(tmp_path: Path) -> None:
    write_environment(ScaffoldRequest(name="tide_tables", folder=tmp_path, package=True, judged=True), taken=())
    folder = tmp_path / "atropos-envs-tide-tables"
    assert sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()) == read_table(
        __file__, "package_files.yaml", list[str]
    )
    project = (folder / "pyproject.toml").read_text(encoding="utf-8")
    assert 'tide_tables = "atropos_envs_tide_tables.environment:TideTables"' in project
    assert f'"atropos-environments>={version("atropos-environments")}"' in project


@pytest.mark.parametrize("name", ["Tides", "2_tides", "tide__tables", "class", "t" * 41, "../up"])
def test_names_that_cannot_be_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="invalid environment name"):
        write_environment(ScaffoldRequest(name=name, folder=tmp_path), taken=())
    assert list(tmp_path.rglob("*")) == []


def test_a_name_that_is_taken_is_refused() -> None:
    assert said("new", "mastermind", expected=2) == "the environment 'mastermind' already exists; names must be unique"


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "tide_tables").mkdir()
    (tmp_path / "tide_tables" / "prompts.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"already exists: .*prompts.yaml; nothing was written"):
        write_environment(ScaffoldRequest(name="tide_tables", folder=tmp_path), taken=())
    assert [path.read_text() for path in tmp_path.rglob("*") if path.is_file()] == ["mine"]
