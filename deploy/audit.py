"""`python -m deploy.audit`: known vulnerabilities of the locked packages, by pip-audit, which asks an index.

Ends with 0 only when every package was looked up and none has one.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

LOCK: Final = Path(__file__).parents[1] / "requirements.lock"
COMMAND: Final = ("-m", "pip_audit", "--requirement", str(LOCK), "--require-hashes", "--disable-pip", "--format=json")


def summarise(code: int, told: str, errors: str) -> tuple[int, list[str]]:
    """The exit code and the lines to print. A package that could not be looked up is never taken for a sound one."""
    try:
        packages = json.loads(told)["dependencies"]
    except (ValueError, KeyError):
        last = errors.strip().splitlines()[-1:] or [f"pip-audit ended with {code}"]
        return 2, [f"NOT AUDITED: {last[0]}", "An audit needs the network and an index that knows of vulnerabilities."]
    skipped = [one for one in packages if "skip_reason" in one]
    found = [
        f"{one['name']} {one['version']}: {bug['id']}, mended in {', '.join(bug['fix_versions']) or 'no release'}"
        for one in packages
        for bug in one.get("vulns", ())
    ]
    if skipped:
        names = "none of them" if len(skipped) == len(packages) else f"not {', '.join(one['name'] for one in skipped)}"
        found.append(f"NOT AUDITED: {len(skipped)} of {len(packages)} packages; the index knows {names}.")
    audited = len(packages) - len(skipped)
    bugs = sum(len(one.get("vulns", ())) for one in packages)
    return (1 if bugs else 2 if skipped or not packages else 0), [*found, f"{audited} packages audited, {bugs} known."]


def main(arguments: Sequence[str]) -> int:
    done = subprocess.run([sys.executable, *COMMAND, *arguments], capture_output=True, text=True, timeout=600)
    code, lines = summarise(done.returncode, done.stdout, done.stderr)
    sys.stdout.write("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
