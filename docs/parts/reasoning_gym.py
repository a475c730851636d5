"""The families of reasoning-gym, served or left out, as their table says."""

from itertools import groupby

from app.envs.reasoning_gym.choices import FAMILIES, PackageFamily
from docs.markdown import code, table


def package_families() -> str:
    """Families of a category with the same levels share a row."""
    served = sorted(
        (family.category, _list_levels(family), name) for name, family in FAMILIES.items() if not family.left_out
    )
    rows = [
        (category, levels, ", ".join(code(name) for _, _, name in group))
        for (category, levels), group in groupby(served, key=lambda one: one[:2])
    ]
    return f"{table(('category', 'levels', 'served'), rows)}\n\n{table(('left out', 'why'), _list_left_out())}"


def _list_left_out() -> list[tuple[str, str]]:
    by_reason = sorted((family.left_out, name) for name, family in FAMILIES.items() if family.left_out)
    return [
        (", ".join(code(name) for _, name in group), reason) for reason, group in groupby(by_reason, lambda one: one[0])
    ]


def _list_levels(family: PackageFamily) -> str:
    """The base level first."""
    return ", ".join(dict.fromkeys((family.base, *family.levels)))
