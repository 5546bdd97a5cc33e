"""Types of the command line's arguments: a wrong value is wrong usage."""

from __future__ import annotations

import argparse

import numpy as np

__all__ = ["count", "positive", "widths"]


def positive(text: str, several: bool = True, minimum: float = 0.0) -> float | tuple[float, ...]:
    """Argument type: one positive number, or (`several`) more with commas between them."""
    try:
        values = tuple(float(part) for part in text.split(",")) if several else (float(text),)
    except ValueError as error:
        kind = "a number, or numbers with commas between them" if several else "a number"
        raise argparse.ArgumentTypeError(f"{text!r} is not {kind}") from error
    if not all(value > 0 and value >= minimum and np.isfinite(value) for value in values):
        least = f"at least {minimum:g}" if minimum else "positive"
        raise argparse.ArgumentTypeError(f"must be {least} and finite, got {text}")
    return values[0] if len(values) == 1 else values


def widths(text: str) -> float | tuple[float, ...]:
    """Argument type: one width, or several with commas between them."""
    return positive(text, minimum=1.0)


def count(text: str) -> int:
    """Argument type: a whole number that is not negative."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"must be a whole number, got {text!r}")
    return int(text)
