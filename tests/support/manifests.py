"""The manifests of `deploy/kubernetes`: as they are written, and as kustomize renders them."""

import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"


def find_renderer() -> list[str] | None:
    """The command that renders a folder: kustomize, or a kubectl that knows components (1.21 and later)."""
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    if not shutil.which("kubectl"):
        return None
    told = subprocess.run(["kubectl", "kustomize", str(FOLDER / "single")], capture_output=True, timeout=60)
    return None if told.returncode and b"unknown field" in told.stderr else ["kubectl", "kustomize"]


@cache
def render_text(overlay: str) -> str:
    command = find_renderer()
    if command is None:
        raise FileNotFoundError("neither kustomize nor kubectl 1.21 is here")
    done = subprocess.run([*command, str(FOLDER / overlay)], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout


def render_overlay(overlay: str) -> list[dict[str, Any]]:
    """Every object of `single` or `replicas`. FileNotFoundError where nothing renders them."""
    return list(yaml.safe_load_all(render_text(overlay)))


def find_object(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (one for one in objects if one["kind"] == kind)
    return found


def find_policies(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What each NetworkPolicy says, by its name."""
    return {one["metadata"]["name"]: one["spec"] for one in objects if one["kind"] == "NetworkPolicy"}


def read_rules() -> list[dict[str, Any]]:
    rules = yaml.safe_load((FOLDER / "monitoring" / "rules.yaml").read_text(encoding="utf-8"))
    return [rule for group in rules["spec"]["groups"] for rule in group["rules"]]
