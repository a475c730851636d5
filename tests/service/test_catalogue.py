"""Environments as they are served: opened once, each on its own, with digests of what they rest on."""

from collections.abc import Mapping, Sequence
from typing import Annotated, ClassVar, Self

import pytest
from pydantic import BaseModel, Field

from app.datasets.configured_datasets import ConfiguredDatasets
from app.domain.errors import EnvironmentUnavailable, InvalidRequest, NotFound, PackageMissing
from app.domain.runs import Pin, ScoringOptions
from app.domain.scores import Score
from app.domain.tasks import Completion, Message, Task
from app.domain.values import FiniteJson, Frozen, Split, WholeNumber, digest
from app.ports.environment import Datasets, Environment, Tools
from app.service.catalogue import Catalogue, ServedEnvironment
from app.service.judging import NoPanel
from tests.support.tables import read_table

TABLE = read_table(__file__, "catalogue.yaml", tuple[tuple[dict[str, FiniteJson], str], ...])


class Params(Frozen):
    rounds: Annotated[WholeNumber, Field(ge=1)] = 1
    words: tuple[str, ...] = ()


class Toy(Environment):
    name: ClassVar[str] = "toy"
    version: ClassVar[str] = "1"
    Params: ClassVar[type[BaseModel]] = Params

    @property
    def digests(self) -> Mapping[str, str]:
        return {"sheets": "s", "data": "d"}

    def task(self, split: Split, index: int, params: BaseModel) -> Task:
        return Task(messages=(Message(role="user", content="?"),))

    async def score(self, task: Task, group: Sequence[Completion], tools: Tools) -> list[Score]:
        return [Score.exact(True)] * len(group)


class Newer(Toy):
    version: ClassVar[str] = "2"


class OtherData(Toy):
    @property
    def digests(self) -> Mapping[str, str]:
        return {"sheets": "s", "data": "changed"}


class Reordered(Toy):
    @property
    def digests(self) -> Mapping[str, str]:
        return {"data": "d", "sheets": "s"}


class Broken(Toy):
    name: ClassVar[str] = "broken"

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        raise EnvironmentUnavailable("the folder is empty")


class Bare(Toy):
    name: ClassVar[str] = "bare"

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        raise PackageMissing("bare: pip install it")


class Judged(NoPanel):
    digest = "panel-1"


def opened(*classes: type[Environment], named: tuple[str, ...] = ()) -> Catalogue:
    catalogue = Catalogue({environment.name: environment for environment in classes}, named)
    catalogue.open(ConfiguredDatasets({}))
    return catalogue


def test_one_that_cannot_serve_does_not_stop_the_others() -> None:
    catalogue = opened(Toy, Broken)
    assert catalogue.opened
    assert catalogue.get_environment_or_current("toy").name == "toy"
    assert {name: catalogue.explain_unavailability(name) for name in catalogue.classes} == {
        "broken": "the folder is empty",
        "toy": None,
    }
    with pytest.raises(EnvironmentUnavailable, match="broken: the folder is empty"):
        catalogue.get_environment_or_current("broken")


def test_an_unknown_name_is_told_apart_from_one_that_cannot_serve() -> None:
    catalogue = opened(Toy)
    for ask in (catalogue.require_known, catalogue.get_environment_or_current):
        with pytest.raises(NotFound, match="there is no environment 'chess'"):
            ask("chess")


def test_one_that_breaks_takes_no_other_with_it() -> None:
    class Faulty(Toy):
        @classmethod
        def open(cls, datasets: Datasets) -> Self:
            raise ZeroDivisionError

    assert opened(Faulty).explain_unavailability("toy") == "it could not be opened; see the service log"


@pytest.mark.parametrize(("given_", "field"), TABLE)
def test_params_are_refused_by_field(given_: dict[str, FiniteJson], field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        ServedEnvironment.from_environment(Toy()).validate_params(given_)
    assert refused.value.field == field


def test_the_data_digest_covers_every_digest_by_name() -> None:
    assert ServedEnvironment.from_environment(Toy()).data_digest == digest({"data": "d", "sheets": "s"})
    assert (
        ServedEnvironment.from_environment(Reordered()).data_digest
        == ServedEnvironment.from_environment(Toy()).data_digest
    )
    assert (
        ServedEnvironment.from_environment(OtherData()).data_digest
        != ServedEnvironment.from_environment(Toy()).data_digest
    )


def test_a_pin_names_its_parts() -> None:
    pin = ServedEnvironment.from_environment(Toy()).build_pin(ScoringOptions(), Judged())
    assert pin == Pin(
        environment="toy",
        version="1",
        scoring_digest=pin.scoring_digest,
        parts={
            "data.sheets": "s",
            "data.data": "d",
            "options": digest(ScoringOptions().model_dump(mode="json", exclude_none=True)),
            "panel": "panel-1",
        },
    )


class OtherJudges(NoPanel):
    digest = "panel-2"


def rule(environment: type[Environment] = Toy, panel: NoPanel | None = None, **options: object) -> str:
    hosted = ServedEnvironment.from_environment(environment.open(ConfiguredDatasets({})))
    return hosted.build_pin(ScoringOptions.model_validate(options), panel).scoring_digest


def test_whatever_decides_about_rewards_changes_the_scoring_digest() -> None:
    rules = [
        rule(),
        rule(Newer),
        rule(OtherData),
        rule(relative_weight=0.25),
        rule(on_truncated="score"),
        rule(judges=("critic",)),
        rule(panel=Judged()),
        rule(panel=OtherJudges()),
    ]
    assert len(set(rules)) == len(rules)
    assert rule(Reordered) == rule()


class Edited(Toy):
    """Its data is what `edition` says at the time."""

    edition: ClassVar[str] = "first"
    broken: ClassVar[bool] = False

    def __init__(self) -> None:
        self.data = self.edition

    @property
    def digests(self) -> Mapping[str, str]:
        return {"data": self.data}

    @classmethod
    def open(cls, datasets: Datasets) -> Self:
        if cls.broken:
            raise EnvironmentUnavailable("a comma is missing")
        return cls()


def edited() -> tuple[Catalogue, type[Edited]]:
    class Own(Edited):
        pass

    return opened(Own), Own


def test_what_is_read_again_serves_from_then_on_and_the_former_is_still_found() -> None:
    catalogue, kind = edited()
    former = catalogue.get_environment_or_current("toy")
    kind.edition = "second"
    present = catalogue.reopen("toy")
    assert former.data_digest != present.data_digest
    assert [
        catalogue.get_environment_or_current("toy", digest)
        for digest in (None, present.data_digest, former.data_digest, "?")
    ] == [present, present, former, present]


def test_what_cannot_be_read_again_leaves_everything_as_it_is() -> None:
    catalogue, kind = edited()
    before = catalogue.get_environment_or_current("toy")
    kind.broken = True
    with pytest.raises(InvalidRequest, match="a comma is missing; the data loaded before stays in use"):
        catalogue.reopen("toy")
    assert (catalogue.get_environment_or_current("toy"), catalogue.explain_unavailability("toy")) == (before, None)


def test_what_could_not_be_read_at_first_can_be_read_again() -> None:
    class Own(Edited):
        broken: ClassVar[bool] = True

    catalogue = opened(Own)
    Own.broken = False
    catalogue.reopen("toy")
    assert catalogue.explain_unavailability("toy") is None
