"""The refusal of weights that do not fit the model they are loaded into."""

from __future__ import annotations

import re

from ..errors import ArgumentError

SHOWN = 3  # names of a list that is longer
PREFIXES = ("module.", "model.", "_orig_mod.", "net.")  # of DataParallel, Lightning, torch.compile, and people


def misfit(what: str, message: str) -> ArgumentError:
    """The refusal, in place of PyTorch's list of all names: what differs, and the most frequent reasons.

    >>> print(misfit("risk failed", 'Error(s) in loading state_dict for Net:\\n\\tMissing key(s) in state_dict: "a". '))
    risk failed: the weights do not fit the model: 1 missing ("a").
    Every name in the file must be that of a parameter or buffer of the model, with the same shape.
      - Build the model with the code and the settings it was trained with.
      - Print both sides: list(state), list(model.state_dict()).
    """
    missing, surplus = (_names(message, kind) for kind in ("Missing", "Unexpected"))
    sizes = re.findall(r"size mismatch for (\S+): .*?torch\.Size\((.*?)\).*?torch\.Size\((.*?)\)", message)
    parts = [
        f"{len(names)} {word} ({_listed(names)})"
        for names, word in ((missing, "missing"), (surplus, "surplus"))
        if names
    ]
    parts += [f"{name} is {theirs} in the file and {own} in the model" for name, theirs, own in sizes[:SHOWN]]
    return ArgumentError(
        f"{what}: the weights do not fit the model: {'; '.join(parts) or message.strip()}.",
        "Every name in the file must be that of a parameter or buffer of the model, with the same shape.",
        *_ways(missing, surplus),
        "Build the model with the code and the settings it was trained with.",
        "Print both sides: list(state), list(model.state_dict()).",
    )


def _ways(missing: list[str], surplus: list[str]) -> list[str]:
    """Ways out that the names themselves suggest."""
    for prefix in PREFIXES:
        if surplus and {name.removeprefix(prefix) for name in surplus} == {*missing}:
            return [f"Take {prefix!r} off: {{name.removeprefix({prefix!r}): w for name, w in state.items()}}."]
    if missing and surplus and not any("." in name for name in surplus):
        whole = next((name for name in surplus if "model" in name or "state" in name), surplus[0])
        return [f"The file seems to hold more than weights: load its entry, state[{whole!r}]."]
    return []


def _names(message: str, kind: str) -> list[str]:
    lists = re.findall(rf"{kind} key\(s\) in state_dict: (.*)", message)
    return [name for names in lists for name in re.findall('"([^"]*)"', names)]


def _listed(names: list[str]) -> str:
    return ", ".join(f'"{name}"' for name in names[:SHOWN]) + ", …" * (len(names) > SHOWN)
