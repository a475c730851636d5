"""The families of reasoning-gym, served or left out, as their table says."""

from app.envs.reasoning_gym.choices import FAMILIES, PackageFamily
from docs.markdown import code, table


def package_families() -> str:
    rows = [
        (code(name), family.category, family.left_out and f"no: {family.left_out}", _list_levels(family))
        for name, family in FAMILIES.items()
    ]
    return table(("family", "category", "served", "levels"), [(a, b, c or "yes", d) for a, b, c, d in rows])


def _list_levels(family: PackageFamily) -> str:
    """The base level first."""
    return "" if family.left_out else ", ".join(dict.fromkeys((family.base, *family.levels)))
