"""Agreement figures: against published tables, and recovered from what a queue draws uniformly."""

import random
from collections.abc import Mapping, Sequence

import pytest

from app.domain.labels import Arm, Label, LabelledGroupRecord, ReplyLabel
from app.evaluation.agreement import (
    Bootstrap,
    build_table,
    compute_ac1,
    compute_auc,
    compute_kappa,
    compute_observed_agreement,
    compute_pabak,
    find_lower_bound,
    measure_judge_agreement,
    measure_slices,
)
from app.features.labels.service import compute_uniform_share
from tests.support.store_cases import START
from tests.support.tables import read_table
from tests.support.tiers import examples

LEVELS = 5
Order = tuple[tuple[str, ...], ...]


def near(value: float | None) -> float:
    assert value is not None
    return round(value, 1)


@pytest.mark.parametrize(
    ("cells", "expected"), read_table(__file__, "known_tables.yaml", list[tuple[tuple[int, ...], tuple[float, ...]]])
)
def test_figures_of_known_tables(cells: tuple[int, ...], expected: tuple[float, ...]) -> None:
    table = dict(zip([(0, 0), (0, 1), (1, 0), (1, 1)], map(float, cells), strict=True))
    found = (compute_observed_agreement(table), compute_kappa(table, 2), compute_pabak(table, 2), compute_ac1(table, 2))
    assert tuple(round(each or 0.0, 2) for each in found) == expected


def test_what_is_not_defined_is_none() -> None:
    assert compute_kappa({(1, 1): 3.0}, 2) is None
    assert compute_auc([(True, 0.5, 1.0)]) is None
    assert compute_kappa({}, 5) is None


def test_quadratic_weights_forgive_near_levels() -> None:
    near = build_table([(level, min(4, level + 1), 1.0) for level in range(5)])
    far = build_table([(level, (level + 3) % 5, 1.0) for level in range(5)])
    assert (round(compute_kappa(near, LEVELS) or 0, 4), round(compute_kappa(far, LEVELS) or 0, 4)) == (0.8, -0.5)


def test_auc_counts_ties_half_and_weighs() -> None:
    rows = [(True, 0.2, 1.0), (True, 0.5, 3.0), (False, 0.5, 1.0), (False, 0.9, 1.0)]
    assert compute_auc(rows) == pytest.approx((1 + 3 * 0.5 + 4) / 8)


def label(number: int, labeller: str, order: Order, levels: Sequence[int], **more: object) -> Label:
    replies = {f"g{number}-{place}": ReplyLabel(levels={"voice": level}) for place, level in enumerate(levels)}
    given = {"order": order, "replies": replies, "group_id": f"g{number}", "environment": "e", "run": "r", **more}
    made = {"label_id": f"{labeller}{number}", "kind": "queue", "labeller": labeller, "created_at": START}
    return Label.model_validate(made | given)


class Population:
    """Groups of two replies with true levels, a judge who is wrong more often where the queue likes to look, and two
    labellers who err on their own."""

    def __init__(self, size: int, chance: random.Random) -> None:
        self.records, self.doubtful = [], set[int]()
        for number in range(size):
            hard = chance.random() < 0.3
            truth = [chance.choices(range(LEVELS), [1, 2, 4, 3, 2])[0] for _ in range(2)]
            judged = [min(4, max(0, level + round(chance.gauss(0, 1.8 if hard else 0.6)))) for level in truth]
            labels = tuple(self._label(number, who, truth, chance) for who in ("ada", "bob"))
            ids = [f"g{number}-0", f"g{number}-1"]
            self.records.append(
                LabelledGroupRecord(
                    task_id=f"t{number}",
                    labels=labels,
                    rewards={one: level / 4 + 0.001 * chance.random() for one, level in zip(ids, judged, strict=True)},
                    levels={one: {"voice": level / 4} for one, level in zip(ids, judged, strict=True)},
                )
            )
            if hard or chance.random() < 0.05:
                self.doubtful.add(number)

    def _label(self, number: int, who: str, truth: Sequence[int], chance: random.Random) -> Label:
        seen = [min(4, max(0, level + chance.choice([-1, 0, 0, 0, 1]))) for level in truth]
        better = 0 if seen[0] + chance.random() > seen[1] + chance.random() else 1
        order = ((f"g{number}-{better}",), (f"g{number}-{1 - better}",))
        return label(number, who, order, seen)

    def find_truth(self) -> tuple[float, float]:
        """Pair accuracy and kappa of the first labeller with the judge, over all groups."""
        hits, rows = [], []
        for record in self.records:
            first = record.labels[0]
            hits.append(record.rewards[first.order[0][0]] > record.rewards[first.order[1][0]])
            for rollout_id, said in first.replies.items():
                rows.append((said.levels["voice"] or 0, round(record.levels[rollout_id]["voice"] * 4), 1.0))
        return sum(hits) / len(hits), compute_kappa(build_table(rows), LEVELS) or 0.0

    def ask(self, count: int, chance: random.Random) -> list[LabelledGroupRecord]:
        """What figures count of so many labels. A fifth of the groups has a second one. A uniform draw that finds what
        was labelled as doubtful asks nobody."""
        undrawn, labelled, uniform = [*range(len(self.records))], set[int](), set[int]()
        chance.shuffle(undrawn)
        while len(labelled) < count:
            drawn: Mapping[Arm, int] = {"uniform": len(uniform), "doubtful": len(labelled - uniform)}
            free = sorted(self.doubtful - labelled)
            if free and chance.random() >= compute_uniform_share(drawn):
                labelled.add(chance.choice(free))
            else:
                uniform.add(undrawn.pop())
                labelled |= uniform
        self.uniform = len(uniform) / len(labelled)
        cut = ((self.records[one], 2 if chance.random() < 0.2 else 1) for one in sorted(uniform))
        return [record.model_copy(update={"labels": record.labels[:most]}) for record, most in cut]


def covers(seed: int, count: int, size: int) -> tuple[bool, bool, float, float]:
    """Whether the intervals cover the true pair accuracy and kappa, and how far off the raw figures are."""
    chance = random.Random(seed)
    population = Population(size, chance)
    accuracy, kappa = population.find_truth()
    labelled = population.ask(count, chance)
    found = measure_judge_agreement(labelled)
    (voice,), pairs = found.criteria, found.pairs.judge
    assert pairs.value is not None
    assert voice.kappa.value is not None
    return (
        (pairs.low or 0) <= accuracy <= (pairs.high or 0),
        (voice.kappa.low or 0) <= kappa <= (voice.kappa.high or 0),
        pairs.value - accuracy,
        voice.kappa.value - kappa,
    )


@pytest.mark.slow
@pytest.mark.parametrize(("count", "size"), [(300, 3000), (300, 500)])
def test_a_queue_that_prefers_doubtful_groups_recovers_true_kappa_and_pair_accuracy(count: int, size: int) -> None:
    """Also where most of the population is drawn, so that nothing doubtful is left."""
    draws = 40
    found = [covers(seed, count, size) for seed in range(draws)]
    accuracy, kappa = (sum(one[place] for one in found) for place in (0, 1))
    off = [sum(one[place] for one in found) / draws for place in (2, 3)]
    assert accuracy >= 34, (accuracy, kappa, off)
    assert kappa >= 34, (accuracy, kappa, off)
    assert max(map(abs, off)) < 0.02, off


def test_half_of_the_first_labels_are_uniform_and_a_quarter_later() -> None:
    population = Population(1200, random.Random(1))
    population.ask(190, random.Random(2))
    early = population.uniform
    population.ask(400, random.Random(2))
    assert 0.5 <= early < 0.7
    assert 0.25 < population.uniform < 0.5


def record(number: int, gap: float, labels: Sequence[Label]) -> LabelledGroupRecord:
    return LabelledGroupRecord(
        task_id=f"t{number}",
        labels=tuple(labels),
        rewards={f"g{number}-0": 0.5 + gap, f"g{number}-1": 0.5},
        absolutes={f"g{number}-0": 0.5 + gap, f"g{number}-1": 0.5},
        gated=(f"g{number}-1",) if number % 4 == 0 else (),
    )


def order_of(number: int, better: int) -> Order:
    return ((f"g{number}-{better}",), (f"g{number}-{1 - better}",))


def test_people_stand_beside_the_judge_on_the_same_pairs_and_ties_count_half() -> None:
    """Two people on each; the judge is right, ties, and is wrong in turn; people differ on every fifth."""
    records = [
        record(
            number,
            (0.1, 0.0, -0.1)[number % 3],
            [
                label(number, "ada", order_of(number, 0), []),
                label(number, "bob", order_of(number, int(number % 5 == 0)), []),
            ],
        )
        for number in range(60)
    ]
    found = measure_judge_agreement(records).pairs
    assert (found.groups, found.pairs, found.shared_pairs) == (60, 120, 60)
    values = [near(one.value) for one in (found.people, found.judge_on_shared, found.judge)]
    assert (values, near(found.judge_ties), found.people_ties) == ([0.8, 0.5, 0.5], 0.3, 0.0)


def test_few_labels_give_counts_only_and_ask_nothing_of_a_run() -> None:
    records = [record(number, 0.1, [label(number, "ada", order_of(number, 0), [])]) for number in range(49)]
    found = measure_judge_agreement(records).pairs
    groups, low = find_lower_bound(records)
    assert (found.pairs, found.groups, found.judge.value, groups, low) == (49, 49, None, 49, None)


def test_gates_are_measured_against_the_defects_that_people_see() -> None:
    def defects(number: int) -> Label:
        said = {f"g{number}-0": ReplyLabel(defect=False), f"g{number}-1": ReplyLabel(defect=number % 2 == 0)}
        return label(number, "ada", (), []).model_copy(update={"replies": said})

    found = measure_judge_agreement([record(number, 0.1, [defects(number)]) for number in range(80)]).defects
    assert [near(one.value) for one in (found.gate_precision, found.gate_recall)] == [1.0, 0.5]
    assert found.base_rate == pytest.approx(0.25, abs=0.01)
    assert found.constant == pytest.approx(0.75, abs=0.01)
    assert found.auc.value == pytest.approx((80 + 20 + 20 * 0.5) / 120, abs=0.01)
    assert found.cap_precision.value is None


def test_languages_and_rubrics_have_figures_of_their_own() -> None:
    records = [
        record(number, 0.1, [label(number, "ada", order_of(number, 0), [], language="de" if number % 2 else "en")])
        for number in range(120)
    ]
    found = measure_slices(records, lambda one: one.language)
    assert [(one.name, one.pairs.groups, one.pairs.judge.value) for one in found] == [("de", 60, 1.0), ("en", 60, 1.0)]
    assert measure_slices(records, lambda one: "") == ()


def test_a_judge_that_was_never_wrong_may_still_be_wrong() -> None:
    records = [record(number, 0.1, [label(number, "ada", order_of(number, 0), [])]) for number in range(80)]
    found = measure_judge_agreement(records).pairs.judge
    assert (found.value, round(found.low or 0, 3), found.high) == (1.0, 0.954, 1.0)


def test_intervals_resample_the_unit_that_repeats() -> None:
    chance = random.Random(0)
    values = {f"u{number}": chance.random() for number in range(30)}
    found = Bootstrap(resamples=examples(1000, fewest=200)).estimate(
        list(values), lambda counts: sum(values[str(u)] * n for u, n in counts.items()) / sum(counts.values())
    )
    assert found.trials == 30
    assert 0.05 < (found.high or 0) - (found.low or 0) < 0.3
