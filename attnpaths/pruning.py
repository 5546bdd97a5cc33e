"""Scores of heads and paths, read from the order parameter."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnpaths._validation import Array, as_array
from attnpaths.order_parameter import Architecture, OrderParameter

__all__ = ["head_scores"]


def head_scores(
    order_parameter: OrderParameter | ArrayLike, architecture: Architecture | None = None
) -> list[Array]:
    """Score every head by the weight of the paths through it.

    ``score(l, h) = sum of |U_{pi pi'}| over pairs with pi_l = h or pi'_l = h``, divided by the
    largest score of all layers.

    Parameters
    ----------
    order_parameter : OrderParameter or array_like, shape (Pi, Pi)
        A solution, or U_1 itself (a sampled or an empirical one, say).
    architecture : Architecture, optional
        Needed with an array: its heads.

    Returns
    -------
    list of ndarray
        One array of H_l scores a layer; the largest of all is 1.

    Raises
    ------
    ValueError
        If an array comes without architecture, or its shape does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> head_scores(np.diag([3.0, 1.0]), Architecture((2,), 10))
    [array([1.        , 0.33333333])]
    """
    if isinstance(order_parameter, OrderParameter):
        architecture, matrix = order_parameter.architecture, order_parameter.matrix
    else:
        if not isinstance(architecture, Architecture):
            raise ValueError(
                "architecture must be an Architecture when order_parameter is an array, got "
                f"{type(architecture).__name__}"
            )
        matrix = as_array("order_parameter", order_parameter, ("Pi m", "Pi m"))
    paths = architecture.paths
    if matrix.shape[0] != matrix.shape[1] or len(matrix) % paths:
        raise ValueError(
            f"order_parameter must be square with {paths} paths times the number of outputs, got "
            f"shape {matrix.shape}"
        )
    outputs = len(matrix) // paths
    weight = np.abs(matrix).reshape(paths, outputs, paths, outputs).sum(axis=(1, 3))
    heads = np.indices(architecture.heads).reshape(architecture.layers, -1)
    scores = []
    for layer, count in enumerate(architecture.heads):
        uses = heads[layer] == np.arange(count)[:, None]  # (heads, paths)
        either = uses[:, :, None] | uses[:, None, :]
        scores.append(np.where(either, weight, 0).sum(axis=(1, 2)))
    largest = max(score.max() for score in scores)
    if largest == 0:
        raise ValueError("order_parameter must not be zero everywhere")
    return [score / largest for score in scores]
