"""Results that take longer than a chapter may, stored in the package.

Each is made again by one command (`command_of`), which writes to where `load_stored` reads unless
told otherwise.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from attnpaths._files import read_arrays

__all__ = ["command_of", "load_stored", "stored_names"]

STORED = Path(__file__).resolve().parent / "data" / "stored"
KINDS = ("grid", "sampling", "pruning")


def stored_names(kind: str = "") -> list[str]:
    """Names of the stored results.

    Parameters
    ----------
    kind : str
        What the names start with: "grid", "sampling" or "pruning" (results on trained heads),
        "finite_width" (samples of the Markov task's posterior); default all.

    Returns
    -------
    list of str
        In alphabetical order.

    Examples
    --------
    >>> "grid_2x4_seed0" in stored_names("grid")
    True
    """
    return sorted(path.stem for path in _paths() if path.stem.startswith(kind))


def command_of(name: str) -> str:
    """The command that makes a stored result, with its default settings.

    Examples
    --------
    >>> command_of("pruning_2x8_seed0")
    'python -m attnpaths.one_shot_theory pruning 2x8_seed0'
    """
    kind, _, network = name.partition("_")
    if kind in KINDS:
        return f"python -m attnpaths.one_shot_theory {kind} {network}".rstrip()
    return f"python scripts/sample_{name}.py"


def load_stored(name: str) -> dict[str, Any]:
    """Read a stored result.

    Parameters
    ----------
    name : str
        One of `stored_names`.

    Returns
    -------
    dict
        Arrays by name, or what the JSON file holds.

    Raises
    ------
    ValueError
        If nothing of that name is stored, or the file is damaged.

    Examples
    --------
    >>> load_stored("pruning_2x4_seed0")["heads"]
    [4, 4]
    """
    found = {path.stem: path for path in _paths()}
    if name not in found:
        message = f"name must be that of a stored result, one of {sorted(found)}, got {name!r}"
        if str(name).partition("_")[0] in KINDS:
            message += f"; to make it: {command_of(str(name))}"
        raise ValueError(message)
    path = found[name]
    if path.suffix == ".npz":
        return dict(read_arrays([path]))
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error


def _paths() -> list[Path]:
    return [path for path in STORED.glob("[!.]*") if path.suffix in (".npz", ".json")]
