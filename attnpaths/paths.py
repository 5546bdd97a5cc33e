"""Attention paths: their enumeration, names and inputs.

A path picks one head in each layer. Values are linear, so the network's output is a sum over paths,
and all that the network sees of an example is one vector a path: the path input.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from attnpaths._validation import Array, as_array, as_choice, as_count, check_overflow

__all__ = ["READOUTS", "path_inputs", "path_names"]

READOUTS = ("mean", "last", "first")


def path_names(heads: Sequence[int]) -> list[tuple[int, ...]]:
    """List all paths in the order used everywhere, heads counted from 1.

    Parameters
    ----------
    heads : sequence of int
        Heads in each layer, (H_1, ..., H_L).

    Returns
    -------
    list of tuple of int
        Each path as (h_1, ..., h_L); layer 1 varies slowest (C order).

    Raises
    ------
    ValueError
        If there is no layer, or a layer has less than one head.

    Examples
    --------
    >>> path_names((2, 2))
    [(1, 1), (1, 2), (2, 1), (2, 2)]
    """
    counts = as_heads(heads)
    return list(product(*(range(1, count + 1) for count in counts)))


def as_heads(heads: Sequence[int] | int) -> tuple[int, ...]:
    """Check a list of heads a layer; a single number is one layer."""
    if isinstance(heads, (int, np.integer)) and not isinstance(heads, bool):
        heads = (int(heads),)
    if isinstance(heads, str) or not np.iterable(heads):
        raise ValueError(f"heads must be a sequence of whole numbers, got {heads!r}")
    counts = tuple(as_count("heads", count) for count in heads)
    if not counts:
        raise ValueError("heads must name at least one layer, got an empty sequence")
    return counts


def path_inputs(x: ArrayLike, attentions: Sequence[ArrayLike], readout: str = "mean") -> Array:
    """Attended inputs of every path.

    ``xi^pi = sum_s r^pi_s x_s`` with ``r^pi = rho^T A^{L h_L} ... A^{1 h_1}``: what reaches the
    readout when the tokens pass the attention of one head in each layer and nothing else.

    Parameters
    ----------
    x : array_like, shape (P, T, N0)
        Tokens of each example.
    attentions : sequence of array_like, each (P, H_l, T, T)
        Attention matrices of layers 1 to L; row = query, column = key.
    readout : {"mean", "last", "first"}
        How the last layer's tokens are read: their mean, or one token.

    Returns
    -------
    ndarray, shape (P, Pi, N0)
        Path inputs, paths in the order of `path_names`.

    Raises
    ------
    ValueError
        If an argument is not finite or the shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(4.0).reshape(1, 2, 2)  # one example, tokens [0, 1] and [2, 3]
    >>> swap, stay = np.eye(2)[::-1], np.eye(2)
    >>> path_inputs(x, [np.stack([stay, swap])[None]], readout="last")
    array([[[2., 3.],
            [0., 1.]]])
    """
    x = as_array("x", x, ("P", "T", "N0"))
    examples, tokens, _ = x.shape
    as_choice("readout", readout, READOUTS)
    if isinstance(attentions, np.ndarray) or not np.iterable(attentions):
        raise ValueError(
            "attentions must be a list with one array (P, H, T, T) a layer, got "
            f"{type(attentions).__name__}"
        )
    layers = [
        as_array(f"attentions[{index}]", a, (examples, "H", tokens, tokens))
        for index, a in enumerate(attentions)
    ]
    if not layers:
        raise ValueError("attentions must hold at least one layer, got an empty list")
    row = {
        "mean": np.full(tokens, 1 / tokens),
        "last": np.eye(tokens)[-1],
        "first": np.eye(tokens)[0],
    }
    weights = np.broadcast_to(row[readout], (examples, 1, tokens))
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        for attention in reversed(layers):
            # (P, 1, paths above, T) @ (P, H, T, T): the lower layer becomes the slower index.
            weights = (weights[:, None] @ attention).reshape(examples, -1, tokens)
        return check_overflow("x and attentions", weights @ x)
