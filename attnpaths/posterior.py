"""The exact posterior over order parameters at any finite width, and a Laplace approximation of it.

With the input projection and then each layer's values integrated out, the posterior over all
weights of a network becomes a posterior over its order parameters alone::

    N_a u / s_a^2   ~ Wishart(N_a, 1)                        (chi-squared for one output)
    N_l U_l | U_l+1 ~ Wishart(N_l, s_l^2 (1 kron U_{l+1}))   l = L, ..., 1
    y | U_1         ~ N(0, K(U_1) + T 1)

Its cost does not depend on the widths or on the number of features. `FactorDensity` holds it in
Bartlett's coordinates, in which the prior's entries are independent; `sample_posterior` draws from
it with a No-U-Turn sampler; `laplace_approximation` is a second-order expansion around its mode,
cheap enough for a slider. The saddle point of the theory (`attnpaths.solve_order_parameter`) is its
limit of many examples and large widths.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh, solve_triangular
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, eigsh
from scipy.special import gammaln, ndtr, ndtri

from attnpaths._files import atomic_path
from attnpaths._threads import one_blas_thread
from attnpaths._validation import Array, as_array, as_count, as_number
from attnpaths.order_parameter import (
    Architecture,
    EnergyPoint,
    Factors,
    OrderParameter,
    TrainingData,
    check_problem,
)
from attnpaths.paths import path_names
from attnpaths.predictor import Prediction, gaussian_prediction

if TYPE_CHECKING:
    import arviz
    import pandas as pd

__all__ = [
    "FactorDensity",
    "Laplace",
    "Posterior",
    "SamplingWarning",
    "laplace_approximation",
    "sample_posterior",
]

# Up to this many coordinates the sampler's metric is the whole Hessian at the mode.
DENSE_COORDINATES = 500
# In larger problems: how many of the stiffest directions the metric knows.
STIFF_DIRECTIONS = 100
# A step of pi / 2 already gives an independent draw of a Gaussian posterior.
LARGEST_STEP = 1.4
TARGET_ACCEPTANCE = 0.8
ROUND_SECONDS = 1.0
CHECKPOINT_SECONDS = 10.0
LARGEST_RHAT = 1.01
# Cross kernels up to this many bytes are formed once for all draws.
STORED_BYTES = 2**28


class SamplingWarning(RuntimeWarning):
    """The draws are fewer than asked for, or not to be trusted.

    Examples
    --------
    Stop instead of going on with draws that are not to be trusted:

    >>> import warnings
    >>> import numpy as np
    >>> from attnpaths import Architecture
    >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
    >>> settings = dict(draws=20, warmup=50, chains=1, seed=0, n_jobs=1, progress=False)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", SamplingWarning)
    ...     posterior = sample_posterior(xi, np.ones(6), network, 0.1, **settings)
    >>> posterior.complete
    True
    """


class FactorDensity:
    """Minus the log of the joint density of order parameters and labels, in Bartlett's coordinates.

    ``U_l = B_l B_l^T`` with ``B_l = s_l (1 kron B_{l+1}) A_l`` as in `attnpaths.order_parameter`.
    If N_l is larger than the number n of rows of A_l, A_l is lower triangular with ``N_l A_ii^2`` ~
    chi-squared(N_l - i + 1) and ``A_ij ~ N(0, 1 / N_l)`` below the diagonal (a single number is
    always taken like this); else A_l is a full n x N_l matrix of the same Gaussian entries. The
    coordinates x are ``sqrt(N_l) A_ij`` and, on the diagonals of triangles, logarithms scaled to
    unit curvature at the prior's mode x = 0.

    Parameters
    ----------
    data : TrainingData
        Path inputs and labels.
    architecture : Architecture
        Whole-number widths.
    temperature : float
        Variance of the label noise.

    Raises
    ------
    ValueError
        If a width is not a whole number.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture
    >>> from attnpaths.order_parameter import TrainingData
    >>> data = TrainingData(np.random.default_rng(0).normal(size=(6, 2, 3)), np.ones((6, 1)))
    >>> density = FactorDensity(data, Architecture((2,), 10), 0.1)
    >>> mode = density.minimum(density.origin())
    >>> value, gradient = density.value_and_gradient(mode)
    >>> bool(np.abs(gradient).max() < 1e-3), [U.shape for U in density.matrices(mode)]
    (True, [(2, 2), (1, 1)])
    """

    def __init__(self, data: TrainingData, architecture: Architecture, temperature: float) -> None:
        for width in architecture.widths:
            if not float(width).is_integer():
                raise ValueError(
                    "architecture must have whole-number widths to be sampled, got widths "
                    f"{architecture.widths}"
                )
        self.data, self.architecture, self.temperature = data, architecture, temperature
        self.factors = Factors(architecture, data.outputs)
        widths = [int(width) for width in architecture.widths]
        rows = data.outputs
        shapes: list[tuple[int, int]] = []
        for layer in reversed(range(len(widths))):
            if layer < architecture.layers:
                # A product is as wide as its factor, so the next factor has fewer rows too.
                rows = architecture.heads[layer] * shapes[-1][1]
            shapes.append((rows, min(rows, widths[layer])))
        self.shapes = shapes[::-1]
        # A single number is better off positive, on a logarithmic scale.
        self.full = [1 < n >= width for (n, _), width in zip(self.shapes, widths, strict=True)]

        self.parts: list[tuple[tuple[Array, Array], slice]] = []
        logarithmic, degrees, scale, begin = [], [], [], 0
        for (rows, columns), full, width in zip(self.shapes, self.full, widths, strict=True):
            i, j = np.indices((rows, columns)).reshape(2, -1)
            if not full:
                i, j = np.tril_indices(rows)
            freedom = np.where(i == j, width - i, 1.0)
            is_log = np.full(len(i), not full) & (i == j)
            self.parts.append(((i, j), slice(begin, begin + len(i))))
            begin += len(i)
            logarithmic.append(is_log)
            degrees.append(freedom[is_log])
            scale.append(np.where(is_log, 1 / np.sqrt(2 * freedom), 1 / np.sqrt(width)))
        self.dimensions = begin
        self._log = np.flatnonzero(np.concatenate(logarithmic))
        self._degrees = np.concatenate(degrees)
        self._scale = np.concatenate(scale)
        by_coordinate = np.repeat(widths, [part.stop - part.start for _, part in self.parts])
        self._at_zero = np.sqrt(self._degrees / by_coordinate[self._log])
        half = self._degrees / 2
        # The constants: the prior integrates to one over x, the likelihood over y.
        self.constant = (
            (self.dimensions - len(half)) * np.log(2 * np.pi) / 2
            + np.sum(half - half * np.log(half) + gammaln(half) + np.log(half) / 2)
            + data.y.size * np.log(2 * np.pi) / 2
            + data.unfitted * np.log(temperature) / 2
            + data.unfitted_square / temperature / 2
        )

    # -- coordinates --------------------------------------------------------------------------

    def to_factors(self, entries: Array) -> list[Array]:
        """Matrices A_1, ..., A_a of one vector of entries.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> from attnpaths.order_parameter import TrainingData
        >>> data = TrainingData(np.ones((6, 2, 3)), np.ones((6, 1)))
        >>> density = FactorDensity(data, Architecture((2,), 10), 0.1)
        >>> density.to_factors(np.array([1.0, 2.0, 3.0, 4.0]))
        [array([[1., 0.], [2., 3.]]), array([[4.]])]
        """
        factors = []
        for shape, (positions, part) in zip(self.shapes, self.parts, strict=True):
            factor = np.zeros(shape)
            factor[positions] = entries[part]
            factors.append(factor)
        return factors

    def from_factors(self, factors: Sequence[Array]) -> Array:
        """Entries of the matrices as one vector.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> from attnpaths.order_parameter import TrainingData
        >>> data = TrainingData(np.ones((6, 2, 3)), np.ones((6, 1)))
        >>> density = FactorDensity(data, Architecture((2,), 10), 0.1)
        >>> density.from_factors([np.array([[1.0, 0.0], [2.0, 3.0]]), np.array([[4.0]])])
        array([1., 2., 3., 4.])
        """
        parts = zip(factors, self.parts, strict=True)
        return np.concatenate([factor[positions] for factor, (positions, _) in parts])

    def entries(self, x: Array) -> Array:
        """Entries of the factors at coordinates x.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> from attnpaths.order_parameter import TrainingData
        >>> data = TrainingData(np.ones((6, 2, 3)), np.ones((6, 1)))
        >>> density = FactorDensity(data, Architecture((2,), 10), 0.1)
        >>> density.entries(density.origin()) ** 2  # A_11, A_21, A_22, A_a at the prior's mode
        array([1. , 0. , 0.9, 1. ])
        """
        entries = x * self._scale
        entries[self._log] = self._at_zero * np.exp(entries[self._log])
        return entries

    def matrices(self, x: Array) -> list[Array]:
        """U_1, ..., U_L, u at coordinates x.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> from attnpaths.order_parameter import TrainingData
        >>> data = TrainingData(np.ones((6, 2, 3)), np.ones((6, 1)))
        >>> density = FactorDensity(data, Architecture((2,), 1000), 0.1)
        >>> U, readout = density.matrices(density.origin())
        >>> bool(np.allclose(U, np.eye(2), atol=0.01))
        True
        """
        return [B @ B.T for B in self.factors.products(self.to_factors(self.entries(x)))]

    def origin(self) -> Array:
        """Coordinates near the infinite-width limit.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> from attnpaths.order_parameter import TrainingData
        >>> data = TrainingData(np.ones((6, 2, 3)), np.ones((6, 1)))
        >>> FactorDensity(data, Architecture((2,), 10), 0.1).origin()
        array([0., 0., 0., 0.])
        """
        identities = []
        for (rows, columns), full in zip(self.shapes, self.full, strict=True):
            factor = np.zeros((rows, columns))
            factor[np.arange(rows), np.arange(rows) % columns] = 1.0
            identities.append(factor if full else np.zeros((rows, columns)))
        x = self.from_factors(identities) / self._scale
        x[self._log] = 0.0
        return x

    def coordinates(self, order_parameter: OrderParameter) -> Array:
        """Coordinates of a saddle point; all factors must be triangular.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture, solve_order_parameter
        >>> from attnpaths.order_parameter import TrainingData
        >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
        >>> solution = solve_order_parameter(xi, np.ones(6), network, 0.1)
        >>> density = FactorDensity(TrainingData(xi, np.ones((6, 1))), network, 0.1)
        >>> x = density.coordinates(solution)
        >>> bool(np.allclose(density.matrices(x)[0], solution.matrix))
        True
        """
        factors = self.factors.factorise(
            [*order_parameter.layers, np.atleast_2d(order_parameter.readout)]
        )
        entries = self.from_factors(factors)
        entries[self._log] = np.log(entries[self._log] / self._at_zero)
        return entries / self._scale

    def prior_draw(self, rng: np.random.Generator) -> Array:
        """Coordinates drawn from the prior.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> from attnpaths.order_parameter import TrainingData
        >>> data = TrainingData(np.ones((6, 2, 3)), np.ones((6, 1)))
        >>> density = FactorDensity(data, Architecture((2,), 10), 0.1)
        >>> rng = np.random.default_rng(0)
        >>> draws = [density.matrices(density.prior_draw(rng))[0] for _ in range(1000)]
        >>> bool(np.allclose(np.mean(draws, axis=0), np.eye(2), atol=0.1))
        True
        """
        x = rng.normal(size=self.dimensions)
        squares = rng.chisquare(self._degrees)
        x[self._log] = np.sqrt(self._degrees / 2) * np.log(squares / self._degrees)
        return x

    # -- density ------------------------------------------------------------------------------

    def point(self, x: Array) -> DensityPoint:
        """Value and derivatives at x.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> from attnpaths.order_parameter import TrainingData
        >>> data = TrainingData(np.random.default_rng(0).normal(size=(6, 2, 3)), np.ones((6, 1)))
        >>> density = FactorDensity(data, Architecture((2,), 10), 0.1)
        >>> point = density.point(density.origin())
        >>> point.gradient.shape, point.hessian().shape
        ((4,), (4, 4))
        """
        return DensityPoint(self, x)

    def value_and_gradient(self, x: Array) -> tuple[float, Array]:
        """Minus log density (without `constant`) and gradient; infinite where it overflows.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> from attnpaths.order_parameter import TrainingData
        >>> data = TrainingData(np.random.default_rng(0).normal(size=(6, 2, 3)), np.ones((6, 1)))
        >>> density = FactorDensity(data, Architecture((2,), 10), 0.1)
        >>> x, step = np.zeros(4), np.full(4, 1e-5)
        >>> (above, _), (below, _) = (density.value_and_gradient(x + s) for s in (step, -step))
        >>> bool(np.isclose((above - below) / 2, density.value_and_gradient(x)[1] @ step))
        True
        """
        try:
            with np.errstate(over="raise", invalid="raise"):
                point = DensityPoint(self, x)
                return point.value, point.gradient
        except (LinAlgError, FloatingPointError):
            return np.inf, np.zeros_like(x)

    def minimum(self, start: Array) -> Array:
        """Coordinates of the mode that is reached from a starting point.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> from attnpaths.order_parameter import TrainingData
        >>> data = TrainingData(np.random.default_rng(0).normal(size=(6, 2, 3)), np.ones((6, 1)))
        >>> density = FactorDensity(data, Architecture((2,), 10), 0.1)
        >>> first, second = density.minimum(density.origin()), density.minimum(np.ones(4))
        >>> bool(np.allclose(density.matrices(first)[0], density.matrices(second)[0], atol=1e-3))
        True
        """
        options = {"maxcor": 30, "ftol": 1e-13, "gtol": 1e-6, "maxiter": 2000, "maxfun": 4000}
        return minimize(
            self.value_and_gradient, start, jac=True, method="L-BFGS-B", options=options
        ).x


class DensityPoint:
    """A `FactorDensity` at one point, with first and second derivatives.

    Parameters
    ----------
    density : FactorDensity
        The density.
    x : ndarray
        Coordinates.
    """

    def __init__(self, density: FactorDensity, x: Array) -> None:
        self.density, self.x = density, x
        entries = density.entries(x)
        self.factors = density.to_factors(entries)
        self.products = density.factors.products(self.factors)
        first = self.products[0]
        if not np.isfinite(first).all():
            raise LinAlgError("the factors overflow")
        variance = density.architecture.variances[0]
        self.energy = EnergyPoint(density.data, first @ first.T, variance, density.temperature)
        self.slopes = density._scale.copy()
        self.slopes[density._log] *= entries[density._log]
        self._growth = np.expm1(2 * density._scale[density._log] * x[density._log])

    @property
    def value(self) -> float:
        """Minus log density, without the constant."""
        density, x = self.density, self.x
        logs = x[density._log]
        prior = 0.5 * (x @ x - logs @ logs)
        # d / 2 (e^2s - 1 - 2s), without cancellation near s = 0.
        prior += np.sum(
            density._degrees / 2 * (self._growth - 2 * density._scale[density._log] * logs)
        )
        return float(prior) + self.energy.value / 2

    @cached_property
    def _matrix_gradient(self) -> Array:
        return self.energy.gradient()

    @cached_property
    def _energy_gradient(self) -> Array:
        pulled = self.density.factors.pull_back(
            self.factors, self.products, self._matrix_gradient @ self.products[0]
        )
        return self.density.from_factors(pulled) * self.slopes

    @cached_property
    def gradient(self) -> Array:
        """Gradient in x."""
        gradient = self.x + self._energy_gradient
        log = self.density._log
        gradient[log] += np.sqrt(self.density._degrees / 2) * self._growth - self.x[log]
        return gradient

    def hessian_product(self, vector: Array) -> Array:
        """Hessian in x times a vector."""
        density, log = self.density, self.density._log
        steps = density.to_factors(vector * self.slopes)
        moved = density.factors.push_forward(self.factors, self.products, steps)
        B, dB, g = self.products[0], moved[0], self._matrix_gradient
        cross = dB @ B.T
        dg = self.energy.gradient_step(cross + cross.T)
        derivative = density.factors.pull_back_derivative(
            self.factors, self.products, steps, moved, g @ B, dg @ B + g @ dB
        )
        result = vector + density.from_factors(derivative) * self.slopes
        # The exponential map bends, and so does the prior in its coordinates.
        bend = self._energy_gradient[log] * density._scale[log] + self._growth
        result[log] += bend * vector[log]
        return result

    def hessian(self) -> Array:
        """The whole Hessian in x."""
        rows = np.stack([self.hessian_product(row) for row in np.eye(len(self.x))])
        return (rows + rows.T) / 2


# -- Laplace approximation ------------------------------------------------------------------------


@dataclass(frozen=True)
class Laplace:
    """Second-order expansion of the finite-width posterior around its mode.

    Attributes
    ----------
    mean : ndarray, shape (Pi m, Pi m)
        Posterior mean of U_1, with its first correction to the mode: of relative order 1 / N.
    standard_deviation : ndarray, shape (Pi m, Pi m)
        Posterior standard deviation of each entry of U_1.
    mode : tuple of ndarray
        U_1, ..., U_L, u where the density over Bartlett's coordinates is largest.
    log_evidence : float
        Log of the probability density of the labels given inputs, architecture and temperature.
    skewness : float
        Largest distance between the mean and the mode along a principal direction, in standard
        deviations. Above 1 the posterior is far from Gaussian: sample it instead.
    architecture : Architecture
    temperature : float

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture, solve_order_parameter
    >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
    >>> laplace = laplace_approximation(solve_order_parameter(xi, np.ones(6), network, 0.1))
    >>> laplace.mean.shape, laplace.standard_deviation.shape, laplace.skewness < 1
    ((2, 2), (2, 2), True)
    """

    mean: Array
    standard_deviation: Array
    mode: tuple[Array, ...]
    log_evidence: float
    skewness: float
    architecture: Architecture
    temperature: float
    _jacobian: Array = field(repr=False, compare=False)

    def covariance(self) -> Array:
        """Posterior covariance of all pairs of entries of U_1, shape (Pi m, Pi m, Pi m, Pi m).

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture, solve_order_parameter
        >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
        >>> laplace = laplace_approximation(solve_order_parameter(xi, np.ones(6), network, 0.1))
        >>> variance = laplace.covariance()[0, 1, 0, 1]  # of U_12
        >>> bool(np.isclose(variance, laplace.standard_deviation[0, 1] ** 2))
        True
        """
        size = len(self.mean)
        flat = self._jacobian.reshape(size * size, -1)
        return (flat @ flat.T).reshape((size,) * 4)


def laplace_approximation(order_parameter: OrderParameter) -> Laplace:
    """Correct a saddle point for finite width.

    The posterior over Bartlett's coordinates x is expanded around its mode: with the Hessian H of
    minus its logarithm, the covariance is ``H^-1``, the evidence ``exp(-minimum) (2 pi)^(d/2) det
    H^(-1/2)``, and the mean of U includes the bends of both U and the density (``H^-1`` contracted
    with U's second and the density's third derivatives).

    Parameters
    ----------
    order_parameter : OrderParameter
        A solution of `attnpaths.solve_order_parameter` whose widths are whole numbers larger than
        the matrices of their layers (else the mode is not a single point).

    Returns
    -------
    Laplace

    Raises
    ------
    ValueError
        If the order parameter was not solved for data, or a width is too small or not a whole
        number.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture, solve_order_parameter
    >>> xi = np.random.default_rng(0).normal(size=(6, 2, 3))
    >>> solution = solve_order_parameter(xi, np.ones(6), Architecture((2,), 10), 0.1)
    >>> laplace_approximation(solution).mean.shape
    (2, 2)
    """
    if not isinstance(order_parameter, OrderParameter):
        raise ValueError(
            f"order_parameter must be an OrderParameter, got {type(order_parameter).__name__}"
        )
    if order_parameter._data is None or order_parameter.temperature is None:
        raise ValueError(
            "order_parameter must be solved for data, got the infinite-width limit; use "
            "solve_order_parameter"
        )
    architecture, temperature = order_parameter.architecture, order_parameter.temperature
    density = FactorDensity(order_parameter._data, architecture, temperature)
    if any(density.full):
        sizes = architecture.sizes(order_parameter.n_outputs)
        raise ValueError(
            "order_parameter must have widths above the sizes of its matrices, "
            f"{sizes}, got widths {architecture.widths}; use sample_posterior"
        )
    x = density.minimum(density.coordinates(order_parameter))
    point, hessian = density.point(x), density.point(x).hessian()
    for _ in range(5):  # the last digits, by Newton steps
        step = cho_solve(cho_factor(hessian), point.gradient)
        x = x - step
        point = density.point(x)
        hessian = point.hessian()
        if np.abs(step).max() < 1e-9:
            break
    values, vectors = eigh(hessian)
    root = vectors / np.sqrt(values)  # its columns are independent unit deviations

    half = 0.5  # of a standard deviation: where the bends are measured
    above = [density.point(x + half * column) for column in root.T]
    below = [density.point(x - half * column) for column in root.T]
    here = point.products[0] @ point.products[0].T
    over, under = (
        np.stack([p.products[0] @ p.products[0].T for p in points]) for points in (above, below)
    )
    jacobian = np.moveaxis(over - under, 0, -1) / (2 * half)  # along the columns of root
    bend = np.sum(over + under - 2 * here, axis=0) / half**2
    gradients = sum(up.gradient + down.gradient for up, down in zip(above, below, strict=True))
    third = root.T @ (gradients - 2 * len(x) * point.gradient) / half**2
    # U at the mean of x, not at its mode: to the same order as a step along the Jacobian, and
    # positive definite. A step beyond a standard deviation is no small correction: it stops there.
    shift = np.clip(-third / 2, -1, 1)
    mean = density.matrices(x + root @ shift)[0] + bend / 2
    log_evidence = (
        -point.value
        - density.constant
        + len(x) * np.log(2 * np.pi) / 2
        - np.sum(np.log(values)) / 2
    )
    return Laplace(
        mean=mean,
        standard_deviation=np.sqrt(np.sum(jacobian**2, axis=-1)),
        mode=tuple(B @ B.T for B in point.products),
        log_evidence=float(log_evidence),
        skewness=float(np.abs(third).max() / 2),
        architecture=architecture,
        temperature=temperature,
        _jacobian=jacobian,
    )


# -- draws ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Posterior:
    """Draws from the posterior over order parameters.

    Attributes
    ----------
    coordinates : ndarray, shape (chains, draws, dimensions)
        The draws as the sampler made them, see `FactorDensity`.
    architecture : Architecture
        Of the network.
    temperature : float
        Variance of the label noise.
    diverging : ndarray of bool, shape (chains, draws)
        Whether the trajectory that led to a draw went astray.
    n_steps : ndarray of int, shape (chains, draws)
        Gradients that a draw took.
    acceptance : ndarray, shape (chains, draws)
        Mean acceptance along each trajectory.
    log_density : ndarray, shape (chains, draws)
        Log posterior density of the coordinates, up to a constant.
    complete : bool
        Whether all draws were made that were asked for.
    seed : int
        Reproduces the draws bit for bit on the same machine.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture
    >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
    >>> settings = dict(draws=20, warmup=50, chains=1, seed=0, n_jobs=1, progress=False)
    >>> posterior = sample_posterior(xi, np.ones(6), network, 0.1, **settings)
    >>> posterior.chains, posterior.draws, posterior.order_parameter.shape
    (1, 20, (1, 20, 2, 2))
    >>> [U.shape for U in posterior.layers], posterior.readout.shape, posterior.mean.shape
    ([(1, 20, 2, 2)], (1, 20), (2, 2))
    """

    coordinates: Array
    architecture: Architecture
    temperature: float
    diverging: Array
    n_steps: Array
    acceptance: Array
    log_density: Array
    complete: bool
    seed: int
    _density: FactorDensity = field(repr=False, compare=False)
    _flat_labels: bool = field(default=True, repr=False, compare=False)

    @property
    def chains(self) -> int:
        """Number of chains."""
        return self.coordinates.shape[0]

    @property
    def draws(self) -> int:
        """Number of draws in each chain."""
        return self.coordinates.shape[1]

    @cached_property
    def _matrices(self) -> list[Array]:
        flat = self.coordinates.reshape(-1, self.coordinates.shape[2])
        drawn = zip(*(self._density.matrices(x) for x in flat), strict=True)
        shape = self.coordinates.shape[:2]
        return [np.stack(U).reshape(*shape, *U[0].shape) for U in drawn]

    @property
    def order_parameter(self) -> Array:
        """Draws of U_1, shape (chains, draws, Pi m, Pi m)."""
        return self._matrices[0]

    @property
    def layers(self) -> tuple[Array, ...]:
        """Draws of U_1, ..., U_L, each (chains, draws, size, size)."""
        return tuple(self._matrices[:-1])

    @property
    def readout(self) -> Array:
        """Draws of u, shape (chains, draws) for one output, else (chains, draws, m, m)."""
        readout = self._matrices[-1]
        return readout[..., 0, 0] if readout.shape[-1] == 1 else readout

    @property
    def mean(self) -> Array:
        """Posterior mean of U_1, shape (Pi m, Pi m)."""
        return self.order_parameter.mean(axis=(0, 1))

    def predict(self, xi_new: ArrayLike, *, max_draws: int = 1000) -> Prediction:
        """Posterior mean and variance of the output at new examples.

        The mixture, over draws of U, of Gaussian predictors: its variance is the mean of their
        variances plus the variance of their means.

        Parameters
        ----------
        xi_new : array_like, shape (P', Pi, N0)
            Path inputs.
        max_draws : int
            At most this many draws, evenly spaced over all chains, are used.

        Returns
        -------
        Prediction
            Named tuple (mean, variance) of the output without label noise, shaped like y.

        Raises
        ------
        ValueError
            If `xi_new` is not finite or of another shape.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
        >>> settings = dict(draws=20, warmup=50, chains=1, seed=0, n_jobs=1, progress=False)
        >>> posterior = sample_posterior(xi, np.ones(6), network, 0.1, **settings)
        >>> mean, variance = posterior.predict(xi)
        >>> bool((mean > 0).all()), variance.shape
        (True, (6,))
        """
        means, variances = self._moments(xi_new, max_draws)
        return Prediction(
            self._shaped(means.mean(axis=0)),
            self._shaped(variances.mean(axis=0) + means.var(axis=0)),
        )

    def interval(
        self,
        xi_new: ArrayLike,
        level: float = 0.9,
        *,
        noise: bool = False,
        max_draws: int = 1000,
    ) -> tuple[Array, Array]:
        """Central interval of the output's posterior.

        Parameters
        ----------
        xi_new : array_like, shape (P', Pi, N0)
            Path inputs.
        level : float
            Probability inside, between 0 and 1.
        noise : bool
            Whether to include the label noise: an interval for a label instead of the output.
        max_draws : int
            At most this many draws, evenly spaced over all chains, are used.

        Returns
        -------
        lower, upper : ndarray
            Quantiles of the mixture, shaped like y.

        Raises
        ------
        ValueError
            If `level` is not between 0 and 1, or `xi_new` is not finite or of another shape.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
        >>> settings = dict(draws=20, warmup=50, chains=1, seed=0, n_jobs=1, progress=False)
        >>> posterior = sample_posterior(xi, np.ones(6), network, 0.1, **settings)
        >>> lower, upper = posterior.interval(xi, 0.9)
        >>> wider_lower, wider_upper = posterior.interval(xi, 0.9, noise=True)
        >>> bool((wider_lower < lower).all() and (upper < wider_upper).all())
        True
        """
        if not 0 < as_number("level", level) < 1:
            raise ValueError(f"level must be between 0 and 1, got {level!r}")
        means, variances = self._moments(xi_new, max_draws)
        deviations = np.sqrt(np.maximum(variances + noise * self.temperature, 1e-300))
        reach = -float(ndtri((1 - level) / 2))
        bounds = []
        for probability in ((1 - level) / 2, (1 + level) / 2):
            low = (means - (reach + 1) * deviations).min(axis=0)
            high = (means + (reach + 1) * deviations).max(axis=0)
            for _ in range(60):  # bisection of the mixture's distribution function
                middle = (low + high) / 2
                less = ndtr((middle - means) / deviations).mean(axis=0) < probability
                low, high = np.where(less, middle, low), np.where(less, high, middle)
            bounds.append(self._shaped((low + high) / 2))
        return bounds[0], bounds[1]

    def to_inference_data(self) -> arviz.InferenceData:
        """Hand the draws to ArviZ.

        Returns
        -------
        arviz.InferenceData
            Groups posterior (U, readout), sample_stats and observed_data; the axes of U are named
            by the heads of each path.

        Raises
        ------
        ImportError
            If ArviZ is missing.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
        >>> settings = dict(draws=20, warmup=50, chains=1, seed=0, n_jobs=1, progress=False)
        >>> posterior = sample_posterior(xi, np.ones(6), network, 0.1, **settings)
        >>> data = posterior.to_inference_data()
        >>> data.posterior["U"].dims, data.posterior["path"].values.tolist()
        (('chain', 'draw', 'path', 'other_path'), ['(1)', '(2)'])
        """
        az = _arviz()
        paths, outputs = self._labels(), self._density.data.outputs
        dims = {"U": ["path", "other_path"]}
        if outputs > 1:
            dims["readout"] = ["output", "other_output"]
        coords: dict[str, Any] = {"path": paths, "other_path": paths}
        if outputs > 1:
            coords |= {name: np.arange(outputs) + 1 for name in ("output", "other_output")}
        return az.from_dict(
            posterior={"U": self.order_parameter, "readout": self.readout},
            sample_stats={
                "diverging": self.diverging,
                "n_steps": self.n_steps,
                "acceptance_rate": self.acceptance,
                "lp": self.log_density,
            },
            observed_data={"y": self._shaped(self._density.data.y.ravel())},
            coords=coords,
            dims=dims,
        )

    def summary(self) -> pd.DataFrame:
        """Mean, standard deviation, effective draws and R-hat of the independent entries of U.

        Returns
        -------
        pandas.DataFrame
            One row an entry; columns mean, sd, mcse_mean, ess_bulk, ess_tail, r_hat (ArviZ).

        Raises
        ------
        ImportError
            If ArviZ is missing.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
        >>> settings = dict(draws=100, warmup=50, chains=2, seed=0, n_jobs=1, progress=False)
        >>> table = sample_posterior(xi, np.ones(6), network, 0.1, **settings).summary()
        >>> table.index.tolist()
        ['U[(1), (1)]', 'U[(2), (1)]', 'U[(2), (2)]', 'readout']
        >>> bool(table.loc["U[(1), (1)]", "sd"] > 0)
        True
        """
        az = _arviz()
        size = self.order_parameter.shape[-1]
        labels = self._labels()
        entries = {
            f"U[{labels[i]}, {labels[j]}]": self.order_parameter[..., i, j]
            for i in range(size)
            for j in range(i + 1)
        }
        data = az.from_dict(posterior=entries | {"readout": self.readout})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # few draws: NaN says enough
            table = az.summary(data, round_to="none")
        return table[["mean", "sd", "mcse_mean", "ess_bulk", "ess_tail", "r_hat"]]

    def problems(self) -> list[str]:
        """Say what speaks against trusting the draws; empty if nothing does.

        Returns
        -------
        list of str
            About divergences and R-hat above 1.01 in any independent entry of U_1.

        Raises
        ------
        ImportError
            If ArviZ is missing.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture
        >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
        >>> settings = dict(draws=20, warmup=50, chains=1, seed=0, n_jobs=1, progress=False)
        >>> sample_posterior(xi, np.ones(6), network, 0.1, **settings).problems()
        []
        """
        found = []
        if count := int(self.diverging.sum()):
            found.append(f"{count} divergent trajectories")
        if self.draws >= 4 and self.chains >= 2:
            az = _arviz()
            i, j = np.tril_indices(self.order_parameter.shape[-1])
            with np.errstate(all="ignore"):
                values = [az.rhat(self.order_parameter[..., a, b]) for a, b in zip(i, j)]  # noqa: B905
            worst = float(np.nanmax(values))
            if worst > LARGEST_RHAT:
                a, b = i[np.nanargmax(values)], j[np.nanargmax(values)]
                found.append(f"R-hat {worst:.3f} in U[{a}, {b}]: more draws or warm-up needed")
        return found

    def _labels(self) -> list[str]:
        """Names of the paths by their heads, "(1,2)"; with several outputs "(1,2):1"."""
        names = [f"({','.join(map(str, name))})" for name in path_names(self.architecture.heads)]
        outputs = self._density.data.outputs
        return names if outputs == 1 else [f"{n}:{c + 1}" for n in names for c in range(outputs)]

    def _shaped(self, flat: Array) -> Array:
        return flat if self._flat_labels else flat.reshape(-1, self._density.data.outputs)

    def _moments(self, xi_new: ArrayLike, max_draws: int) -> tuple[Array, Array]:
        """Means and variances of the output at each of some draws, both (draws, P' m)."""
        data = self._density.data
        xi_new = as_array("xi_new", xi_new, ("P'", *data.xi.shape[1:]))
        every = self.order_parameter.reshape(-1, *self.order_parameter.shape[2:])
        max_draws = min(as_count("max_draws", max_draws), len(every))
        chosen = np.linspace(0, len(every) - 1, max_draws).round().astype(int)
        predictor = _MixturePredictor(data, xi_new, self.architecture, self.temperature)
        with one_blas_thread():
            results = [predictor(U) for U in every[chosen]]
        means, variances = (np.stack(values) for values in zip(*results, strict=True))
        return means, variances


class _MixturePredictor:
    """The Gaussian predictor at many U_1: what does not depend on U is computed once."""

    def __init__(
        self, data: TrainingData, xi_new: Array, architecture: Architecture, temperature: float
    ) -> None:
        self.data, self.xi_new, self.temperature = data, xi_new, temperature
        self.variance = architecture.variances[0]
        # Rotated beyond their rank, the training examples predict the same.
        self.xi = data._rotated
        paths, features = self.xi.shape[1:]
        self.pairs = np.tril_indices(paths)
        examples = len(self.xi) + 1
        stored = 8 * len(self.pairs[0]) * examples * len(xi_new)
        self.across: Array | None = None
        if data.outputs == 1 and stored <= STORED_BYTES:
            scale = self.variance / (paths * features)
            new, old = xi_new.swapaxes(0, 1), self.xi.swapaxes(0, 1)
            self.across = np.empty((len(self.pairs[0]), len(xi_new), len(self.xi)))
            self.prior = np.empty((len(self.pairs[0]), len(xi_new)))
            for index, (a, b) in enumerate(zip(*self.pairs, strict=True)):
                weight = scale if a == b else 2 * scale
                self.across[index] = (new[a] @ old[b].T + new[b] @ old[a].T) * (weight / 2)
                self.prior[index] = np.einsum("pi,pi->p", new[a], new[b]) * weight

    def __call__(self, U: Array) -> tuple[Array, Array]:
        if self.across is None:
            return gaussian_prediction(
                self.xi, self.data.labels, self.xi_new, U, self.variance, self.temperature
            )
        point = EnergyPoint(self.data, U, self.variance, self.temperature)
        weights = U[self.pairs]
        across = np.tensordot(weights, self.across, 1)
        solved = solve_triangular(point.factor, across.T, trans="T", check_finite=False)
        variance = weights @ self.prior - np.einsum("ij,ij->j", solved, solved)
        return across @ point.alpha, np.maximum(variance, 0.0)


# -- sampler --------------------------------------------------------------------------------------


@dataclass
class _Chain:
    """All that a chain needs to go on, small enough to send to a process and to save."""

    position: Array  # in whitened coordinates
    random: Mapping[str, Any]
    step_size: float = 0.5
    adaptation: dict[str, float] = field(
        default_factory=lambda: {
            "iter": 0,
            "smoothed_log_step_size": 0.0,
            "adapt_stat_error": 0.0,
            "log_step_size_reg_target": 0.0,
        }
    )
    done: int = 0  # iterations, warm-up included


class _Whitening(NamedTuple):
    """``x = mode + root z``: in z the posterior is close to a standard Gaussian."""

    mode: Array
    vectors: Array  # (d, k): the directions that are scaled
    scales: Array  # (k,): standard deviation along each; one in all others

    def to_x(self, z: Array) -> Array:
        return self.mode + self.apply(z)

    def apply(self, z: Array) -> Array:
        """Multiply by the symmetric root of the covariance."""
        return z + self.vectors @ ((self.scales - 1) * (self.vectors.T @ z))

    def to_z(self, x: Array) -> Array:
        step = x - self.mode
        return step + self.vectors @ ((1 / self.scales - 1) * (self.vectors.T @ step))


class _Target(NamedTuple):
    """What every chain samples."""

    density: FactorDensity
    whitening: _Whitening

    def residual(self, z: Array) -> tuple[Array, float]:
        """Gradient and value of minus the log density against a standard Gaussian."""
        value, gradient = self.density.value_and_gradient(self.whitening.to_x(z))
        return self.whitening.apply(gradient) - z, value - z @ z / 2


class _Piece(NamedTuple):
    """Consecutive draws of one chain."""

    coordinates: Array
    diverging: Array
    n_steps: Array
    acceptance: Array
    log_density: Array


def sample_posterior(
    xi: ArrayLike,
    y: ArrayLike,
    architecture: Architecture,
    temperature: float,
    *,
    draws: int = 1000,
    warmup: int = 200,
    chains: int = 4,
    seed: int | np.random.Generator | None = None,
    n_jobs: int | None = None,
    progress: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Posterior:
    """Draw order parameters from their exact posterior at finite width.

    A No-U-Turn sampler (of the library mici) runs in coordinates in which the prior's entries are
    independent, whitened by the Hessian at the posterior's mode; the Gaussian part of the dynamics
    is integrated exactly. The time for a draw does not depend on the widths nor, for fewer examples
    than features, on the number of features.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the training set (see `attnpaths.path_inputs`).
    y : array_like, shape (P,) or (P, m)
        Labels.
    architecture : Architecture
        Heads, widths (whole numbers, also smaller than the matrices) and variances.
    temperature : float
        Variance of the label noise.
    draws : int
        Draws kept of each chain.
    warmup : int
        Draws before those, which set the step size and are thrown away.
    chains : int
        Independent chains, each started from its own draw of the prior.
    seed : int or numpy Generator, optional
        Makes a run reproducible bit for bit on one machine, whatever `n_jobs`, and however often
        it was interrupted.
    n_jobs : int, optional
        Processes; by default as many as there are processors. With 1, none is started.
    progress : bool
        Whether to show a progress bar with the time left.
    checkpoint : path, optional
        A file (.npz) that keeps the run as it goes. If it exists, the run goes on from there; more
        draws than it holds extend it.

    Returns
    -------
    Posterior
        If interrupted by the keyboard (Ctrl-C) after the warm-up: the draws made so far.

    Warns
    -----
    SamplingWarning
        If trajectories diverged, R-hat is above 1.01, or the run was interrupted.

    Raises
    ------
    ValueError
        If an argument is not finite, shapes disagree, a width is not a whole number, or
        `checkpoint` belongs to another run.
    ImportError
        If mici or ArviZ are missing: ``pip install "attnpaths[posterior]"``.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture
    >>> xi, network = np.random.default_rng(0).normal(size=(6, 2, 3)), Architecture((2,), 10)
    >>> settings = dict(draws=50, warmup=50, chains=1, seed=0, n_jobs=1, progress=False)
    >>> posterior = sample_posterior(xi, np.ones(6), network, 0.1, **settings)
    >>> posterior.order_parameter.shape
    (1, 50, 2, 2)
    """
    flat = as_array("y", y).ndim == 1
    xi, y, architecture, temperature = check_problem(xi, y, architecture, temperature)
    draws, warmup = as_count("draws", draws), as_count("warmup", warmup)
    chains = as_count("chains", chains)
    density = FactorDensity(TrainingData(xi, y), architecture, temperature)
    _require_mici()

    try:
        run = _Run(density, draws, warmup, chains, _seed(seed), checkpoint)
    except LinAlgError as error:
        raise ValueError(
            "y must be smaller beside temperature and xi: the order parameters that fit overflow "
            f"double precision (largest label {np.abs(y).max():g}, temperature {temperature:g})"
        ) from error
    complete = run.sample(as_count("n_jobs", n_jobs) if n_jobs is not None else None, progress)
    posterior = run.posterior(flat, complete)
    problems = posterior.problems()
    if not complete:
        problems.insert(0, f"interrupted after {posterior.draws} of {draws} draws of each chain")
    if problems:
        warnings.warn("; ".join(problems), SamplingWarning, stacklevel=2)
    return posterior


class _Run:
    """Chains on their way, in this process's memory and perhaps in a file."""

    def __init__(
        self,
        density: FactorDensity,
        draws: int,
        warmup: int,
        chains: int,
        seed: int | None,
        checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        self.density, self.draws, self.warmup = density, draws, warmup
        self.path = None if checkpoint is None else Path(checkpoint)
        self.pieces: list[list[_Piece]] = [[] for _ in range(chains)]
        if self.path is not None and self.path.exists():
            self._load(chains, seed)
        else:
            self.seed = cast(int, np.random.SeedSequence(seed).entropy)
            with one_blas_thread():
                self._start(chains)

    def _start(self, chains: int) -> None:
        density = self.density
        generators = [
            np.random.default_rng(child)
            for child in np.random.SeedSequence(self.seed).spawn(chains)
        ]
        # Each chain starts at the mode it finds from its own draw of the prior, displaced by a
        # standard deviation: if there are several modes, R-hat can tell.
        starts = [density.minimum(density.prior_draw(rng)) for rng in generators]
        modes = [density.minimum(density.origin()), *starts]
        values = [density.value_and_gradient(mode)[0] for mode in modes]
        self.whitening = whitening(density, modes[int(np.argmin(values))])
        self.chains = []
        for rng, start in zip(generators, starts, strict=True):
            position = self.whitening.to_z(start) + rng.normal(size=density.dimensions)
            self.chains.append(_Chain(position, rng.bit_generator.state))

    @property
    def total(self) -> int:
        """Iterations of each chain."""
        return self.warmup + self.draws

    def sample(self, n_jobs: int | None, progress: bool) -> bool:
        """Run to the end; False if the keyboard interrupted it after the warm-up."""
        from joblib import Parallel, cpu_count, delayed
        from tqdm import tqdm

        n_jobs = min(n_jobs or cpu_count(), len(self.chains))
        payload = pickle.dumps(_Target(self.density, self.whitening))
        key = hashlib.sha256(payload).hexdigest()
        steps, saved = 4, time.monotonic()
        begun = sum(chain.done for chain in self.chains)
        with tqdm(
            total=self.total * len(self.chains),
            initial=begun,
            desc="sampling",
            unit="draw",
            disable=not progress,
        ) as bar:
            try:
                with Parallel(n_jobs=n_jobs, return_as="generator_unordered") as parallel:
                    while waiting := [c for c in self.chains if c.done < self.total]:
                        began = time.monotonic()
                        lasts = min(steps, max(self.total - c.done for c in waiting))
                        jobs = (
                            delayed(_advance)(
                                key, payload, index, chain, lasts, self.warmup, self.total
                            )
                            for index, chain in enumerate(self.chains)
                            if chain.done < self.total
                        )
                        # A round counts only when all its chains are in: they stay equally long.
                        for index, chain, piece in list(_counted(parallel(jobs), bar, lasts)):
                            self.chains[index] = chain
                            self.pieces[index].append(piece)
                        took = time.monotonic() - began
                        steps = int(np.clip(lasts * ROUND_SECONDS / max(took, 1e-3), 1, 4 * lasts))
                        if self.path is not None and time.monotonic() - saved > CHECKPOINT_SECONDS:
                            self._save()
                            saved = time.monotonic()
            except KeyboardInterrupt:
                if self.path is not None:
                    self._save()
                if min(chain.done for chain in self.chains) <= self.warmup:
                    raise
                return False
        if self.path is not None:
            self._save()
        return True

    def posterior(self, flat: bool, complete: bool) -> Posterior:
        """The draws so far."""
        arrays = [
            np.stack(
                [np.concatenate([getattr(p, name) for p in pieces]) for pieces in self.pieces]
            )[:, : self.draws]
            for name in _Piece._fields
        ]
        coordinates, diverging, n_steps, acceptance, log_density = arrays
        return Posterior(
            coordinates=coordinates,
            architecture=self.density.architecture,
            temperature=self.density.temperature,
            diverging=diverging,
            n_steps=n_steps,
            acceptance=acceptance,
            log_density=log_density,
            complete=complete,
            seed=self.seed,
            _density=self.density,
            _flat_labels=flat,
        )

    # -- the file -----------------------------------------------------------------------------

    def _fingerprint(self, chains: int) -> str:
        net, data = self.density.architecture, self.density.data
        settings = (net.heads, net.widths, net.variances, self.density.temperature)
        digest = hashlib.sha256(repr((settings, self.warmup, chains, data.xi.shape)).encode())
        digest.update(data.xi.tobytes())
        digest.update(data.y.tobytes())
        return digest.hexdigest()

    def _save(self) -> None:
        assert self.path is not None
        arrays = {
            f"{name}_{index}": np.concatenate([getattr(p, name) for p in pieces])
            for index, pieces in enumerate(self.pieces)
            if pieces
            for name in _Piece._fields
        }
        state = {
            "fingerprint": self._fingerprint(len(self.chains)),
            "seed": self.seed,
            "chains": [
                [chain.random, chain.step_size, chain.adaptation, chain.done]
                for chain in self.chains
            ],
        }
        with atomic_path(self.path) as temporary, open(temporary, "wb") as file:
            np.savez(
                file,
                state=np.array(json.dumps(state)),
                positions=np.stack([chain.position for chain in self.chains]),
                mode=self.whitening.mode,
                vectors=self.whitening.vectors,
                scales=self.whitening.scales,
                **arrays,  # type: ignore[arg-type]
            )

    def _load(self, chains: int, seed: int | None) -> None:
        assert self.path is not None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                arrays = dict(file)
            state = json.loads(str(arrays["state"]))
            same = state["fingerprint"] == self._fingerprint(chains)
        except Exception as error:  # zip, json and numpy fail in many ways on a damaged file
            raise ValueError(
                f"checkpoint must be a file of sample_posterior, got {self.path} ({error})"
            ) from error
        if not same or seed not in (None, state["seed"]):
            raise ValueError(
                f"checkpoint must belong to the same data, architecture, temperature, warmup, "
                f"chains and seed, got {self.path} of another run"
            )
        self.seed = state["seed"]
        self.whitening = _Whitening(arrays["mode"], arrays["vectors"], arrays["scales"])
        self.chains = [
            _Chain(position, *parts)
            for position, parts in zip(arrays["positions"], state["chains"], strict=True)
        ]
        for index, pieces in enumerate(self.pieces):
            if f"coordinates_{index}" in arrays:
                pieces.append(_Piece(*(arrays[f"{name}_{index}"] for name in _Piece._fields)))


def _counted(results: Any, bar: Any, steps: int) -> Any:
    """Pass results on, moving the progress bar."""
    for result in results:
        bar.update(min(steps, bar.total - bar.n))
        yield result


def whitening(density: FactorDensity, mode: Array) -> _Whitening:
    """Directions and scales of the posterior near its mode."""
    point = density.point(mode)
    size = density.dimensions
    if size <= DENSE_COORDINATES:
        hessian = point.hessian()
        for (rows, columns), full, (_, part) in zip(
            density.shapes, density.full, density.parts, strict=True
        ):
            if full and columns > 1:
                # The posterior does not change when a full factor's columns are rotated: nor must
                # the metric.
                block = hessian[part, part].reshape(rows, columns, rows, columns)
                average = np.einsum("icjc->ij", block) / columns
                hessian[part, :] = 0
                hessian[:, part] = 0
                hessian[part, part] = np.kron(average, np.eye(columns))
        values, vectors = eigh(hessian)
    else:
        operator = LinearOperator((size, size), matvec=point.hessian_product, dtype=float)
        start = np.random.default_rng(0).normal(size=size)
        values, vectors = eigsh(operator, k=STIFF_DIRECTIONS, which="LA", v0=start, tol=1e-2)
    return _Whitening(mode, vectors, 1 / np.sqrt(np.maximum(values, 0.1)))


@lru_cache(maxsize=2)
def _unpacked(key: str, payload: _Payload) -> _Target:
    return pickle.loads(payload.content)  # made by the parent process


class _Payload:
    """Bytes that count as equal, so that the cache looks at the key alone."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Payload)

    def __hash__(self) -> int:
        return 0


def _advance(
    key: str, payload: bytes, index: int, chain: _Chain, steps: int, warmup: int, total: int
) -> tuple[int, _Chain, _Piece]:
    """Run one chain for some steps."""
    from mici.adapters import DualAveragingStepSizeAdapter
    from mici.integrators import LeapfrogIntegrator
    from mici.states import ChainState
    from mici.systems import GaussianEuclideanMetricSystem
    from mici.transitions import (
        IndependentMomentumTransition,
        MultinomialDynamicIntegrationTransition,
    )

    if os.environ.get("JOBLIB_SPAWNED_PROCESS") and _in_main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    target = _unpacked(key, _Payload(payload))
    system = GaussianEuclideanMetricSystem(
        neg_log_dens=lambda z: target.residual(z)[1], grad_neg_log_dens=target.residual
    )
    integrator = LeapfrogIntegrator(system, chain.step_size)
    trajectory = MultinomialDynamicIntegrationTransition(system, integrator)
    momentum = IndependentMomentumTransition(system)
    adapter = DualAveragingStepSizeAdapter(TARGET_ACCEPTANCE)
    rng = np.random.default_rng()
    rng.bit_generator.state = chain.random
    adaptation = dict(chain.adaptation)
    state = ChainState(pos=chain.position, mom=np.zeros_like(chain.position), dir=1)

    kept: list[tuple[Array, bool, int, float, float]] = []
    done = chain.done
    with one_blas_thread():
        while done < min(chain.done + steps, total):
            state, _ = momentum.sample(state, rng)
            state, statistics = trajectory.sample(state, rng)
            done += 1
            if done <= warmup:
                adapter.update(adaptation, state, statistics, trajectory)
                if done == warmup:
                    adapter.finalize(adaptation, state, trajectory, rng)
                integrator.step_size = min(integrator.step_size, LARGEST_STEP)
                continue
            log_density = -float(system.neg_log_dens(state)) - state.pos @ state.pos / 2
            kept.append(
                (
                    target.whitening.to_x(state.pos),
                    bool(statistics["diverging"]),
                    int(statistics["n_step"]),
                    float(statistics["accept_stat"]),
                    log_density,
                )
            )
    after = _Chain(state.pos, rng.bit_generator.state, integrator.step_size, adaptation, done)
    columns = list(zip(*kept, strict=True)) if kept else [()] * len(_Piece._fields)
    piece = _Piece(
        np.array(columns[0], dtype=float).reshape(len(kept), len(chain.position)),
        np.array(columns[1], dtype=bool),
        np.array(columns[2], dtype=np.int64),
        np.array(columns[3], dtype=float),
        np.array(columns[4], dtype=float),
    )
    return index, after, piece


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _seed(seed: int | np.random.Generator | None) -> int | None:
    if isinstance(seed, np.random.Generator):
        return int(seed.integers(2**63))
    return None if seed is None else as_count("seed", seed, 0)


def _require_mici() -> None:
    try:
        import mici  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'sampling needs mici and ArviZ: pip install "attnpaths[posterior]"'
        ) from error


def _arviz() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # about its next major version
        try:
            import arviz
        except ImportError as error:
            raise ImportError('this needs ArviZ: pip install "attnpaths[posterior]"') from error
    return arviz
