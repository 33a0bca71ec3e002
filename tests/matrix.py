"""The suite with several versions of PyTorch: `make test-matrix`.

    python -m tests.matrix                          # lowest, pinned, newest
    python -m tests.matrix 2.6.0 -- -k operators    # one version, some tests

Each version gets an environment of its own, which is removed afterwards. Wheels come from where pip looks:
`PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu` for those without CUDA.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def versions() -> dict[str, str]:
    """The lowest that pyproject.toml allows, the one of constraints.txt, and the newest."""
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (lowest,) = (need.partition(">=")[2] for need in needs if need.startswith("torch>="))
    (pinned,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    return {"lowest": f"torch=={lowest}.*", "pinned": f"torch=={pinned}", "newest": "torch"}


def outcome(requirement: str, options: list[str]) -> int:
    """The exit status of the tests with this PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        others = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("torch")]
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text("\n".join(others))
        install = [python, "-m", "pip", "install", "--quiet", "-c", constraints, requirement, f"{ROOT}[dev]"]
        if status := subprocess.run(install, check=False).returncode:
            return status
        environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "OMP_NUM_THREADS": "1"}
        return subprocess.run([python, "-m", "pytest", *options], cwd=ROOT, env=environment, check=False).returncode


def main(arguments: list[str]) -> int:
    """Run them all, print which passed; the number that did not."""
    named, options = arguments, []
    if "--" in arguments:
        middle = arguments.index("--")
        named, options = arguments[:middle], arguments[middle + 1 :]
    requirements = {version: f"torch=={version}" for version in named} or versions()
    results = {name: outcome(requirement, options or ["-n", "2"]) for name, requirement in requirements.items()}
    for name, status in results.items():
        print(f"{name:8s} {requirements[name]:20s} {'passed' if status == 0 else f'exit status {status}'}")
    return sum(status != 0 for status in results.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
