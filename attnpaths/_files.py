"""Reading and writing of array files; nothing that is read can run code."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from attnpaths._validation import Array

__all__ = ["atomic_path", "check_output", "read_arrays", "to_json", "write_result"]

SUFFIXES = (".npz", ".safetensors")


def read_arrays(paths: Sequence[str | Path]) -> dict[str, Array]:
    """Read all arrays of .npz and .safetensors files.

    Parameters
    ----------
    paths : sequence of path
        Files; no name may occur twice.

    Returns
    -------
    dict of str to ndarray

    Raises
    ------
    ValueError
        If a file is not what its name says, is damaged, holds Python objects, or a name occurs
        twice.
    OSError
        If a file is missing or cannot be read.
    """
    arrays: dict[str, Array] = {}
    for path in map(Path, paths):
        if path.suffix not in SUFFIXES:
            raise ValueError(f"{path} must be a .npz or .safetensors file, got {path.suffix!r}")
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}")
        found = _read_npz(path) if path.suffix == ".npz" else _read_safetensors(path)
        if twice := sorted(arrays.keys() & found.keys()):
            raise ValueError(
                f"{path} must not repeat arrays of other files, got {', '.join(twice)}"
            )
        arrays.update(found)
    return arrays


def _read_npz(path: Path) -> dict[str, Array]:
    try:
        # A damaged zip archive fails in many ways: each means the same to the user.
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, np.lib.npyio.NpzFile):
                raise ValueError("not an archive of arrays")
            return {name: file[name] for name in file.files}
    except Exception as error:
        raise ValueError(f"{path} cannot be read as .npz: {_reason(error)}") from error


def _read_safetensors(path: Path) -> dict[str, Array]:
    try:
        from safetensors.numpy import load_file
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{path} needs safetensors, which is not installed: pip install 'attnpaths[training]'"
        ) from error
    try:
        return dict(load_file(path))
    except Exception as error:
        raise ValueError(f"{path} cannot be read as .safetensors: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    if "allow_pickle" in text:
        return "it holds Python objects, which are never loaded; save plain arrays"
    return text[:200]


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Temporary path in the same folder that takes the place of `path` when all went well."""
    path = Path(path)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)  # mkstemp's file is for the owner alone
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_result(path: str | Path, result: Mapping[str, Any]) -> None:
    """Write named numbers, texts and arrays as .npz or .json, whichever the name says.

    Raises
    ------
    ValueError
        If the name ends in neither.
    OSError
        If it cannot be written.
    """
    path = check_output(path)
    with atomic_path(path) as temporary:
        if path.suffix == ".json":
            temporary.write_text(to_json(result), encoding="utf-8")
        else:
            np.savez_compressed(temporary, allow_pickle=False, **result)


def check_output(path: str | Path) -> Path:
    """Check the name and the folder of a result's file before the work is done."""
    path = Path(path)
    if path.suffix not in (".npz", ".json"):
        raise ValueError(f"output must end in .npz or .json, got {path.name!r}")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for the output")
    return path


def to_json(value: Any) -> str:
    """JSON text of a nested value with arrays; NaN and infinity, unknown to JSON, become null."""
    return json.dumps(_plain(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
