"""The families of reasoning-gym, served or left out, as their table says."""

from app.envs.reasoning_gym.choices import FAMILIES
from docs.markdown import code, table


def package_families() -> str:
    rows = [
        (code(name), family.category, family.left_out and f"no: {family.left_out}", ", ".join(family.levels))
        for name, family in FAMILIES.items()
    ]
    return table(("family", "category", "served", "levels"), [(a, b, c or "yes", d) for a, b, c, d in rows])
