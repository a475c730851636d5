"""Rubrics for tests of what is made of scores."""

from app.domain.judging import DefectRule, Rubric, RubricCriterion


def build_rubric(*names: str, defects: tuple[DefectRule, ...] = ()) -> Rubric:
    """Of criteria that weigh the same."""
    criteria = tuple(RubricCriterion(name=name, weight=1 / len(names), description="", anchors={}) for name in names)
    return Rubric(name="test", version="1", instructions="", criteria=criteria, defects=defects)
