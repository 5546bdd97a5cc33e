"""Statistics of the network's Bayesian predictor.

Given the order parameter, the posterior of the output at a new example is Gaussian, with
mean ``k^T (K + T 1)^-1 y`` and variance ``K(x, x) - k^T (K + T 1)^-1 k``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve, solve_triangular

from attnpaths._validation import Array, as_array, check_overflow
from attnpaths.kernels import kernel
from attnpaths.order_parameter import OrderParameter, check_problem

__all__ = ["Prediction", "predict"]


class Prediction(NamedTuple):
    """Mean and variance of the output at new examples, each (P',) or (P', m).

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture, gp_order_parameter
    >>> xi = np.random.default_rng(0).normal(size=(6, 2, 3))
    >>> gp = gp_order_parameter(Architecture((2,), 10))
    >>> mean, variance = predict(xi, np.ones(6), xi, gp, 0.1)
    >>> lower, upper = mean - 2 * np.sqrt(variance), mean + 2 * np.sqrt(variance)
    >>> bool((lower < 1).all() and (upper > mean).all())
    True
    """

    mean: Array
    variance: Array


def predict(
    xi: ArrayLike,
    y: ArrayLike,
    xi_new: ArrayLike,
    order_parameter: OrderParameter,
    temperature: float,
) -> Prediction:
    """Predict new examples with the kernel of a given order parameter.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the training set.
    y : array_like, shape (P,) or (P, m)
        Labels.
    xi_new : array_like, shape (P', Pi, N0)
        Path inputs of the examples to predict.
    order_parameter : OrderParameter
        From `solve_order_parameter` or `gp_order_parameter`; s_0^2 is its architecture's.
    temperature : float
        Variance of the label noise.

    Returns
    -------
    Prediction
        Named tuple (mean, variance) of the output without label noise, shaped like y.

    Raises
    ------
    ValueError
        If an argument is not finite, the temperature is not positive, or shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture, gp_order_parameter
    >>> rng = np.random.default_rng(0)
    >>> xi, xi_new = rng.normal(size=(6, 2, 3)), rng.normal(size=(4, 2, 3))
    >>> gp = gp_order_parameter(Architecture((2,), 10))
    >>> predict(xi, np.ones(6), xi_new, gp, 0.1).mean.shape
    (4,)
    """
    if not isinstance(order_parameter, OrderParameter):
        raise ValueError(
            f"order_parameter must be an OrderParameter, got {type(order_parameter).__name__}"
        )
    flat = as_array("y", y).ndim == 1
    xi, y, architecture, temperature = check_problem(
        xi, y, order_parameter.architecture, temperature
    )
    xi_new = as_array("xi_new", xi_new, ("P'", *xi.shape[1:]))
    outputs = y.shape[1]
    if order_parameter.n_outputs != outputs:
        raise ValueError(
            f"order_parameter must be for {outputs} outputs like y, got one for "
            f"{order_parameter.n_outputs}"
        )
    mean, variance = gaussian_prediction(
        xi, y.ravel(), xi_new, order_parameter.matrix, architecture.variances[0], temperature
    )
    shape = (len(xi_new),) if flat else (len(xi_new), outputs)
    return Prediction(mean.reshape(shape), variance.reshape(shape))


def gaussian_prediction(
    xi: Array, y: Array, xi_new: Array, U: Array, input_variance: float, temperature: float
) -> tuple[Array, Array]:
    """Mean and variance (both flat) at one U_1; arguments are checked already."""
    K = kernel(xi, U, variance=input_variance)
    K[np.diag_indices_from(K)] += temperature
    try:
        factor = cho_factor(K, lower=True)
    except LinAlgError as error:
        raise ValueError(
            f"temperature must be larger beside the kernel, got {temperature:g}: K + T 1 is not "
            "positive definite in double precision"
        ) from error
    across = kernel(xi_new, U, xi, variance=input_variance)
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        mean = across @ cho_solve(factor, y)
        explained = np.sum(solve_triangular(factor[0], across.T, lower=True) ** 2, axis=0)
    # K(x, x) alone: the order parameter mixes each example's own path inputs.
    examples, paths, features = xi_new.shape
    outputs = len(U) // paths
    weights = U.reshape(paths, outputs, paths, outputs)
    prior = np.empty((examples, outputs))
    with np.errstate(over="ignore", invalid="ignore"):
        for c in range(outputs):
            mixed = np.einsum("ab,pbi->pai", weights[:, c, :, c], xi_new, optimize=True)
            prior[:, c] = np.einsum("pai,pai->p", mixed, xi_new)
    prior *= input_variance / (paths * features)
    check_overflow("xi_new", prior)
    check_overflow("xi_new and y", mean)
    return mean, np.maximum(check_overflow("xi_new and xi", prior.ravel() - explained), 0.0)
