"""Checks of user input: each failure names the argument, what came and what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

Array = np.ndarray


def as_array(
    name: str,
    value: ArrayLike,
    shape: Sequence[int | str | None] | None = None,
    *,
    finite: bool = True,
) -> Array:
    """Return `value` as a contiguous float64 array, checked for shape and finiteness.

    Parameters
    ----------
    name : str
        Name of the argument, for the error message.
    value : array_like
        What the user passed.
    shape : sequence of (int, str or None), optional
        Needed shape: an int is an exact size, a string only names an axis.
    finite : bool
        Whether NaN and infinity are errors.

    Raises
    ------
    ValueError
        If the value is not numeric, has another shape, is empty, or is not finite.
    """
    if hasattr(value, "detach"):  # a torch tensor, possibly one that requires gradients
        value = value.detach().cpu().numpy()
    try:
        raw = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers, got {_short(value)}") from error
    if raw.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be an array of real numbers, got dtype {raw.dtype} ({_short(value)})"
        )
    array: Array = np.ascontiguousarray(raw, dtype=np.float64).reshape(raw.shape)
    if shape is not None:
        wanted = "(" + ", ".join("any" if s is None else str(s) for s in shape) + ")"
        agrees = array.ndim == len(shape) and all(
            not isinstance(want, Integral) or want == got
            for want, got in zip(shape, array.shape, strict=True)
        )
        if not agrees:
            raise ValueError(f"{name} must have shape {wanted}, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} must not be empty, got shape {array.shape}")
    if finite and not np.isfinite(array).all():
        bad = int(np.size(array) - np.count_nonzero(np.isfinite(array)))
        raise ValueError(f"{name} must be finite, got {bad} NaN or infinite entries")
    return array


def check_overflow(names: str, result: Array) -> Array:
    """Return `result` if it is finite; `ValueError` that `names` are too large otherwise."""
    if not np.isfinite(result).all():
        raise ValueError(f"{names} must be smaller: their products overflow double precision")
    return result


def as_positive(name: str, value: Any) -> float:
    """Return `value` as a positive, finite float; `ValueError` otherwise."""
    number = as_number(name, value)
    if not number > 0:
        raise ValueError(f"{name} must be positive, got {value!r}")
    return number


def as_number(name: str, value: Any) -> float:
    """Return `value` as a finite float; `ValueError` otherwise."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, Real):
        raise ValueError(f"{name} must be a real number, got {_short(value)}")
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{name} must be finite, got {value!r}")
    return number


def as_count(name: str, value: Any, minimum: int = 1) -> int:
    """Return `value` as an int of at least `minimum`; `ValueError` otherwise."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    whole = isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer())
    if isinstance(value, (bool, np.bool_)) or not whole:
        raise ValueError(f"{name} must be a whole number, got {_short(value)}")
    if value < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {value!r}")
    return int(value)


def as_choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Return `value` if it is one of `choices`; `ValueError` otherwise."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
