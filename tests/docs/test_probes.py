"""The kept counts of the probes are of all environments as they are, and none pays or refuses more than it states."""

from app.domain.values import Proportion
from app.toolkit.conformance.probes import HONEST, STRATEGIES
from app.toolkit.conformance.strategies import find_allowed_share
from docs.parts.environments import environments
from docs.parts.probed_environments import count_refused, read_probed

REFUSED = 0.01


def test_every_environment_and_every_probe_was_measured() -> None:
    probed = read_probed()
    assert {name: one.version for name, one in probed.items()} == {
        name: one.version for name, one in environments().items()
    }
    measured = {strategy for one in probed.values() for strategy in one.paid}
    assert measured == set(STRATEGIES) - HONEST - {"foreign_value"}


def test_no_environment_pays_more_than_chance_or_what_it_states_and_right_answers_are_paid() -> None:
    too_much = []
    for name, one in read_probed().items():
        for strategy, (paid, sent) in one.paid.items():
            low, _ = Proportion(paid, sent).interval or (0.0, 0.0)
            if min(low, paid / sent) > (find_allowed_share(environments()[name], strategy) or 0.0):
                too_much.append((name, strategy))
        refused, right = count_refused(name, one)
        if refused > REFUSED * right:
            too_much.append((name, "refused"))
    assert too_much == []
