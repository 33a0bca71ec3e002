"""Computations on a full disk: a real small file system, which then grows.

A process of its own mounts a tmpfs of some kilobytes in a mount namespace that ends with it (`unshare -rm`), so that
nobody else's disk is touched.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ritz.errors import RitzError
from ritz.record import Record

from .computations import COMPUTATIONS, CommandFailed, checksum, eager

PAGE = 4  # kilobytes of a tmpfs: the least that it gives or takes
LARGE = 65536


def saved(folder: Path) -> str:
    """A record over another one."""
    one = lambda value: Record("x", "smoke", {}, {"value": value}, {"numbers": np.full(4000, float(value))}, (), {})
    one(2).save(folder)
    return checksum(Record.load(folder).scalars)


WRITERS: dict[str, Callable[[Path], str]] = {"a record": saved, **COMPUTATIONS}


def disks(count: int, draw: random.Random, place: Path) -> dict[str, Any]:
    """So many full disks."""
    mount = place / "disk"
    mount.mkdir(parents=True, exist_ok=True)
    own = [
        sys.executable,
        "-m",
        "faults.disks",
        str(mount),
        "--count",
        str(count),
        "--seed",
        str(draw.randrange(2**31)),
    ]
    if shutil.which("unshare") is None:
        return {"disks": 0, "faults": [], "skipped": "there is no unshare, which mounts a small disk for one process"}
    ended = subprocess.run(["unshare", "-rm", *own], stdout=subprocess.PIPE, text=True)
    if ended.returncode == 3:
        return {"disks": 0, "faults": [], "skipped": "no small disk could be mounted here"}
    if ended.returncode:
        return {"disks": 0, "faults": [f"the process of the disks ended with {ended.returncode}"]}
    result = json.loads(ended.stdout)
    print(
        f"  {result['disks']} full disks, {len(result['faults'])} faults",
        *result["faults"],
        sep="\n  FAULT ",
        flush=True,
    )
    return result


def main() -> int:
    """Run inside the namespace: mount, fill up, look, let it grow, finish."""
    parser = argparse.ArgumentParser()
    parser.add_argument("mount", type=Path)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    options = parser.parse_args()
    try:
        _mount(options.mount, LARGE, "")
    except subprocess.CalledProcessError:
        return 3
    with eager():
        print(json.dumps(_filled(options.mount, options.count, random.Random(options.seed))))
    return 0


def _mount(place: Path, kilobytes: int, how: str = "remount,") -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"{how}size={kilobytes}k", "none", str(place)], check=True)


def _used(place: Path) -> int:
    """Kilobytes in use."""
    stat = os.statvfs(place)
    return (stat.f_blocks - stat.f_bfree) * stat.f_bsize // 1024


def _filled(place: Path, count: int, draw: random.Random) -> dict[str, Any]:
    full, faults, by_name = 0, list[str](), dict[str, int]()
    wholes = {name: _whole(place, compute) for name, compute in WRITERS.items()}
    tries = 0
    while full < count and len(faults) < 5 and tries < 10 * count:
        tries += 1
        name = draw.choice(list(WRITERS))
        bits, needed = wholes[name]
        folder = place / "out"
        shutil.rmtree(folder, ignore_errors=True)
        _mount(place, max(PAGE, draw.randrange(PAGE, needed + PAGE, PAGE)))
        message = _message(WRITERS[name], folder)
        half = [path.name for path in folder.rglob("*.tmp")] if folder.exists() else []
        _mount(place, LARGE)
        if message is not None:
            full += 1
            by_name[name] = by_name.get(name, 0) + 1
            faults += [] if message == "" else [f"{name}: {message}"]
            faults += [f"{name} left {path}" for path in half]
        try:  # once there is room, it goes on from whatever is there
            faults += [] if WRITERS[name](folder) == bits else [f"{name}: other bits when there was room"]
        except Exception as error:
            faults.append(f"{name}, when there was room: {type(error).__name__}: {error}")
    return {"disks": full, "by_name": by_name, "faults": faults, "file_system": "tmpfs"}


def _whole(place: Path, compute: Callable[[Path], str]) -> tuple[str, int]:
    """The bits of a run that has room, and the kilobytes it takes."""
    shutil.rmtree(place / "out", ignore_errors=True)
    before = _used(place)
    bits = compute(place / "out")
    return bits, _used(place) - before


def _message(compute: Callable[[Path], str], folder: Path) -> str | None:
    """None where all of it had room, "" where that was refused clearly, else what was raised."""
    try:
        compute(folder)
    except RitzError as error:
        clear = "No space left" in str(error) and bool(error.ways_out)
        return "" if clear else f"unclear: {error}"
    except CommandFailed as error:
        clear = "No space left" in str(error) and "  - " in str(error) and "Traceback" not in str(error)
        return "" if clear else f"unclear: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return None


if __name__ == "__main__":
    sys.exit(main())
