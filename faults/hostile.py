"""Hostile files: cut short, bits flipped, wrong shapes, NaN, negative counts, foreign, zip bombs.

Whoever reads one either refuses it, clearly and without touching it, or gives the right bits (a flipped bit may lie
where nothing is kept).
"""

from __future__ import annotations

import io
import json
import pickle
import random
import shutil
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import ritz
from ritz.errors import FileError
from ritz.record import Record, read_arrays, write_arrays
from ritz.record.layouts import layout_of

from . import computations
from .computations import checksum, eager

Damage = Callable[[Path, random.Random], str | None]  # what it did, where that is not clear from its name


@dataclass(frozen=True)
class Victim:
    """A file, how it is made, how it is read."""

    name: str
    make: Callable[[Path], None]
    file: str
    read: Callable[[Path], str]


class Stopped(BaseException):
    """Nobody catches it."""


def _under_way(compute: Callable[[Path], str], writes: int) -> Callable[[Path], None]:
    """A computation that is stopped after some writings of its file."""

    def make(folder: Path) -> None:
        keep, left = ritz.record.Checkpoint.keep, [writes]

        def counting(self: Any, state: Any, *, last: bool = False) -> None:
            keep(self, state, last=last)
            left[0] -= 1
            if left[0] == 0:
                raise Stopped

        ritz.record.Checkpoint.keep = counting  # type: ignore[method-assign]
        try:
            compute(folder)
        except Stopped:
            pass
        finally:
            ritz.record.Checkpoint.keep = keep  # type: ignore[method-assign]

    return make


def _record(folder: Path) -> None:
    Record("x", "smoke", {"a": 1}, {"value": 2.5}, {"numbers": np.arange(40.0)}, (), {}).save(folder)


def _read_record(folder: Path) -> str:
    record = Record.load(folder)
    return checksum(record.id, record.preset, record.config, record.scalars, record.arrays)


def _spectrum(folder: Path) -> None:
    folder.mkdir(parents=True)
    ritz.Spectrum.of_eigenvalues(torch.arange(1.0, 30.0)).save(folder / "spectrum.npz")


def _pairs(folder: Path) -> None:
    folder.mkdir(parents=True)
    ritz.eigenpairs(ritz.Operator.from_matrix(torch.diag(torch.arange(1.0, 30.0))), 3).save(folder / "pairs.npz")


def _read_pairs(folder: Path) -> str:
    """What a search took, in products and vectors, the file alone knows: one that says less is as good."""
    pairs = ritz.Eigenpairs.load(folder / "pairs.npz")
    return checksum(pairs.values, pairs.vectors, pairs.residuals, pairs.converged, pairs.doubts)


VICTIMS = [
    Victim("training", _under_way(computations.training, 12), "run.npz", computations.training),
    Victim("eigenpairs under way", _under_way(computations.eigenpairs, 20), "pairs.npz", computations.eigenpairs),
    Victim("eigenpairs, over", lambda f: _ignored(computations.eigenpairs(f)), "pairs.npz", computations.eigenpairs),
    Victim("density under way", _under_way(computations.density, 45), "density.npz", computations.density),
    Victim("density, over", lambda f: _ignored(computations.density(f)), "density.npz", computations.density),
    Victim("trace under way", _under_way(computations.trace, 9), "trace.npz", computations.trace),
    Victim("trace, over", lambda f: _ignored(computations.trace(f)), "trace.npz", computations.trace),
    Victim("Gram matrix under way", _under_way(computations.gram, 9), "gram.npz", computations.gram),
    Victim("Gram matrix, over", _under_way(computations.gram, 46), "gram.npz", computations.gram),
    Victim("shares of lines", _under_way(computations.lines, 4), "lines-of-G.npz", computations.lines),
    Victim("record.json", _record, "record.json", _read_record),
    Victim("arrays.npz", _record, "arrays.npz", _read_record),
    Victim("spectrum", _spectrum, "spectrum.npz", lambda f: checksum(*ritz.Spectrum.load(f / "spectrum.npz").state())),
    Victim("eigenpairs", _pairs, "pairs.npz", _read_pairs),
]


def _ignored(_: Any) -> None:
    pass


def cut_short(path: Path, draw: random.Random) -> None:
    """Any part of it is missing at the end."""
    content = path.read_bytes()
    path.write_bytes(content[: draw.randrange(len(content))])


def flipped(path: Path, draw: random.Random) -> None:
    """Up to eight bits."""
    content = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 8)):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def noise(path: Path, draw: random.Random) -> None:
    """Nothing but noise, or nothing."""
    path.write_bytes(draw.randbytes(draw.choice([0, 1, 30, 5000])))


def pickled(path: Path, draw: random.Random) -> None:
    """What unpickling would execute."""
    path.write_bytes(pickle.dumps({"x": _Trap()}))


class _Trap:
    def __reduce__(self) -> Any:
        return (print, ("a file was unpickled",))


def bomb(path: Path, draw: random.Random) -> None:
    """A small archive of gigabytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (2**27,)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as stream:
        stream.write(header.getvalue())
        for _ in range(2**10 if draw.random() < 0.1 else 2**6):  # not all of them are written out: that takes time
            stream.write(bytes(2**20))


def foreign(path: Path, draw: random.Random) -> None:
    """A good file of somebody else."""
    np.savez(path.with_suffix(".npz"), x=np.arange(draw.randint(0, 9)), y=np.array([b"text", b"more"]))
    if path.suffix != ".npz":
        path.with_suffix(".npz").rename(path)


def changed(path: Path, draw: random.Random) -> str:
    """A file of ours with one array gone, cut, of another type, or not a number; or with one fact changed.

    Half of them are the work of somebody who knows our format: what the file says of its arrays is right again, so that
    only who goes on from it can refuse it. Nobody could where the change leaves a file that a run might have written,
    with another weight or another note; such changes are not made here but for NaN in what a user noted, which is as
    good a note as any.
    """
    if path.suffix == ".json":
        return _changed_json(path, draw)
    arrays, header = read_arrays(path)
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f" and array.size]
    way = draw.choice(["gone", "cut", "longer", "nan", "kind", "fact"])
    name = draw.choice(floats if way == "nan" and floats else list(arrays))
    if way == "fact" or (way == "nan" and not floats):
        what = _change_fact(header, draw)
    else:
        what = f"{name} {_change_array(arrays, name, way, draw)}"
        if "layout" in header and draw.random() < 0.5 and not (way == "nan" and name.startswith("notes/drawn")):
            header["layout"], what = layout_of(arrays), f"{what}, and its layout says so"
    write_arrays(path, arrays, header)
    return what


def _change_array(arrays: dict[str, np.ndarray], name: str, way: str, draw: random.Random) -> str:
    array = arrays[name]
    if way == "gone":
        arrays.pop(name)
        return way
    if way == "cut":
        arrays[name] = array[..., :-1] if array.ndim and array.shape[-1] else np.zeros((2, 2, 2))
    elif way == "longer":
        arrays[name] = np.concatenate([array, array]) if array.ndim else np.zeros((2, 2, 2))
    elif way == "nan":
        arrays[name] = np.array(array)
        arrays[name].flat[draw.randrange(array.size)] = draw.choice([np.nan, np.inf])
        return f"with {way}"
    else:
        arrays[name] = np.array(["text"]) if draw.random() < 0.5 else array.astype(np.complex64)
    return f"{array.dtype} {array.shape}, now {arrays[name].dtype} {arrays[name].shape}"


def _change_fact(header: dict[str, Any], draw: random.Random) -> str:
    own = [name for name in header if name != "versions"] or ["header"]  # another version is noted, not refused
    name = draw.choice(own)
    if draw.random() < 0.3:
        header.pop(name, None)
        return f"{name} gone"
    before = header.get(name)
    header[name] = draw.choice([-100, float("nan"), "text", None, [], {"a": 1}, 10**30])
    return f"{name} {before!r:.80}, now {header[name]!r}"


def _changed_json(path: Path, draw: random.Random) -> str:
    """A fact gone, or of another kind; another name, or other numbers, are a good record of something else."""
    facts = json.loads(path.read_text())
    name = draw.choice(list(facts))
    if draw.random() < 0.3:
        facts.pop(name)
    else:
        value = draw.choice([-100, "\x1b[31m", None, [[]], {"a": 1}, [1, "a"]])
        facts[name] = None if isinstance(value, (str, dict)) and type(value) is type(facts[name]) else value
    path.write_text(json.dumps(facts) if draw.random() < 0.8 else "[" * 100_000)
    return f"{name} {f'now {facts[name]!r}' if name in facts else 'gone'}"


DAMAGES: list[Damage] = [cut_short, flipped, flipped, noise, pickled, foreign, changed, changed, changed, bomb]


def hostile(count: int, draw: random.Random, place: Path) -> dict[str, Any]:
    """So many files."""
    refused, right, faults, seen = 0, 0, list[str](), dict[str, int]()
    with eager(), warnings.catch_warnings(action="ignore"):
        made = {victim.name: _file_of(victim, place / "hostile") for victim in VICTIMS}
        for number in range(count):
            victim, damage = VICTIMS[number % len(VICTIMS)], draw.choice(DAMAGES)
            folder = place / "hostile" / "now"
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(made[victim.name][0], folder)
            what = damage(folder / victim.file, draw)
            verdict = _verdict(victim, folder, made[victim.name][1])
            seen[damage.__name__] = seen.get(damage.__name__, 0) + 1
            refused, right = refused + (verdict == "refused"), right + (verdict == "right")
            if verdict not in ("refused", "right"):
                name = damage.__name__ if what is None else f"{damage.__name__}, {what}"
                faults.append(f"{victim.name}, {name} (file {number}): {verdict}")
                print(f"  FAULT {faults[-1]}", flush=True)
    print(f"  {count} files: {refused} refused, {right} right, {len(faults)} faults", flush=True)
    return {"files": count, "refused": refused, "right": right, "by_damage": seen, "faults": faults}


def _file_of(victim: Victim, place: Path) -> tuple[Path, str]:
    """A folder with the good file, and the bits of who reads it."""
    folder, copy = place / victim.name, place / "copy"
    shutil.rmtree(folder, ignore_errors=True)
    victim.make(folder)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    return folder, victim.read(copy)


def _verdict(victim: Victim, folder: Path, bits: str) -> str:
    file = folder / victim.file
    before = file.read_bytes()
    try:
        result = victim.read(folder)
    except FileError as error:
        untouched = file.read_bytes() == before
        clear = bool(error.why) and bool(error.ways_out)
        return (
            "refused" if untouched and clear else f"refused, but {'unclear' if untouched else 'the file was touched'}"
        )
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]}"
    return "right" if result == bits else "a silent wrong result"
