"""The order parameter: architecture, action, derivatives, minimum, infinite-width limit.

The theory's prediction is the minimum of an action over one symmetric positive definite matrix a
layer, U_1, ..., U_L, and the readout order parameter u. Two sets of coordinates are used:

- the matrices themselves, in which the action and its gradient are stated (`action`,
  `OrderParameter.gradient_norm`, `OrderParameter.hessian_minimum`);
- factors A_l, the coordinates of the exact finite-width posterior, in which the action is
  minimised: ``U_l = B_l B_l^T`` with ``B_l = s_l (1 kron B_{l+1}) A_l``, ``B_{L+1} = s_a A_a``, all
  A lower triangular. The entropy is then a sum over entries, and A = 1 is the infinite-width limit.
  `Factors` holds this map; the sampler uses it too.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import (
    LinAlgError,
    cholesky,
    eigh,
    eigvalsh_tridiagonal,
    lapack,
    solve_triangular,
)
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg, eigsh

from attnpaths._files import read_arrays, write_result
from attnpaths._threads import one_blas_thread
from attnpaths._validation import Array, as_array, as_count, as_positive, check_overflow
from attnpaths.kernels import PathKernelMap
from attnpaths.paths import as_heads

__all__ = [
    "Action",
    "Architecture",
    "ConvergenceWarning",
    "OrderParameter",
    "action",
    "gp_order_parameter",
    "solve_order_parameter",
]

# Below this many coordinates all second derivatives are cheap enough to form.
DENSE_COORDINATES = 40
# Up to this many, the inverse Hessian that L-BFGS has built is kept as a matrix for the next solve.
METRIC_COORDINATES = 2500
# Up to this many labels the matrices are too small for several threads of BLAS, which then cost
# more than they bring, and far more on a busy machine.
ONE_THREAD_SIZE = 250
# How many data sets keep their prepared kernels.
PREPARED_DATA_SETS = 2
# Steps of Lanczos iteration that look for a direction of negative curvature in larger problems.
LANCZOS_STEPS = 12


class ConvergenceWarning(RuntimeWarning):
    """The point that a solver returns is not a minimum, or not known to be one.

    Examples
    --------
    Stop instead of going on with a point that is not a minimum:

    >>> import warnings
    >>> import numpy as np
    >>> xi = np.random.default_rng(0).normal(size=(6, 2, 3))
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", ConvergenceWarning)
    ...     solution = solve_order_parameter(xi, np.ones(6), Architecture((2,), 10), 0.1)
    >>> solution.converged
    True
    """


@dataclass(frozen=True)
class Architecture:
    """Heads, widths and prior variances of a network.

    Parameters
    ----------
    heads : sequence of int
        Heads a layer, (H_1, ..., H_L).
    widths : int or sequence of float
        One width for all, or (N_1, ..., N_L, N_a).
    variances : float or sequence of float
        One prior variance for all, or (s_0^2, s_1^2, ..., s_L^2, s_a^2).

    Raises
    ------
    ValueError
        If a count is below one, a variance is not positive, or the lengths disagree.

    Examples
    --------
    >>> network = Architecture((2, 2), 10)
    >>> network.paths, network.widths
    (4, (10.0, 10.0, 10.0))
    >>> network.layers, network.sizes()
    (2, (4, 2, 1))
    >>> network.with_widths((10, 20, 30)).widths
    (10.0, 20.0, 30.0)
    """

    heads: tuple[int, ...]
    widths: tuple[float, ...]
    variances: tuple[float, ...]

    def __init__(
        self,
        heads: Sequence[int] | int,
        widths: float | Sequence[float],
        variances: float | Sequence[float] = 1.0,
    ) -> None:
        counts = as_heads(heads)
        layers = len(counts)
        object.__setattr__(self, "heads", counts)
        object.__setattr__(self, "widths", _per_layer("widths", widths, layers + 1, 1.0))
        object.__setattr__(self, "variances", _per_layer("variances", variances, layers + 2))

    @property
    def layers(self) -> int:
        """Number of layers L."""
        return len(self.heads)

    @property
    def paths(self) -> int:
        """Number of paths Pi = H_1 ... H_L."""
        return int(np.prod(self.heads))

    def sizes(self, n_outputs: int = 1) -> tuple[int, ...]:
        """Sizes of U_1, ..., U_L, u: the paths from each layer up, times the outputs.

        Examples
        --------
        >>> Architecture((3, 2), 10).sizes()
        (6, 2, 1)
        >>> Architecture((3, 2), 10).sizes(n_outputs=5)
        (30, 10, 5)
        """
        sizes = [n_outputs]
        for count in reversed(self.heads):
            sizes.append(sizes[-1] * count)
        return tuple(reversed(sizes))

    def with_widths(self, widths: float | Sequence[float]) -> Architecture:
        """Copy with other widths.

        Examples
        --------
        >>> Architecture((2, 2), 10, variances=2.0).with_widths(100)
        Architecture(heads=(2, 2), widths=(100.0, 100.0, 100.0), variances=(2.0, 2.0, 2.0, 2.0))
        """
        return Architecture(self.heads, widths, self.variances)


def _per_layer(
    name: str, value: Any, count: int, minimum: float | None = None
) -> tuple[float, ...]:
    if np.ndim(value) == 0:
        numbers = (as_positive(name, value),) * count
    else:
        numbers = tuple(as_positive(name, number) for number in value)
    if len(numbers) != count:
        raise ValueError(f"{name} must be one number or {count} of them, got {len(numbers)}")
    if minimum is not None and min(numbers) < minimum:
        raise ValueError(f"{name} must be at least {minimum:g}, got {min(numbers)!r}")
    return numbers


# What a file holds beside the matrices and the network.
_SAVED = (
    "readout",
    "action",
    "energy",
    "entropy",
    "gradient_norm",
    "converged",
    "evaluations",
    "message",
)


class Action(NamedTuple):
    """Value of the action, divided by the largest width, and its two parts.

    Examples
    --------
    >>> import numpy as np
    >>> network, xi = Architecture((2,), 10), np.random.default_rng(0).normal(size=(6, 2, 3))
    >>> value = action(xi, np.ones(6), [np.eye(2)], network, 0.1)
    >>> bool(np.isclose(value.total, value.energy + value.entropy))
    True
    """

    total: float
    energy: float
    entropy: float


@dataclass(frozen=True)
class OrderParameter:
    """A point in order-parameter space and what is known of it.

    Attributes
    ----------
    layers : tuple of ndarray
        U_1, ..., U_L. U_l is indexed by the heads (h_l, ..., h_L) and, for several outputs, the
        output.
    readout : float or ndarray
        u: a number for one output, else an array (m, m).
    architecture : Architecture
        The network it belongs to.
    action, energy, entropy : float
        Divided by the largest width; NaN where no data is attached (`gp_order_parameter`).
    gradient_norm : float
        Largest entry, in absolute value, of the symmetrised gradient of the action with respect to
        all order parameters.
    converged : bool
        Whether this is a minimum: the gradient in coordinates that do not change with the scale of
        x, y or U is below `tol` relative to its parts (or at rounding level), and no direction of
        negative curvature was found.
    evaluations : int
        Evaluations of the action's gradient or of its Hessian times a vector.
    message : str
        Why the solver stopped.

    Examples
    --------
    >>> import numpy as np
    >>> network, xi = Architecture((2, 3), 10), np.random.default_rng(0).normal(size=(8, 6, 4))
    >>> solution = solve_order_parameter(xi, np.resize([1.0, -1.0], 8), network, 0.1)
    >>> solution.matrix.shape, [U.shape for U in solution.layers], solution.n_outputs
    ((6, 6), [(6, 6), (3, 3)], 1)
    >>> solution.converged, solution.gradient_norm < 1e-6, solution.readout > 0
    (True, True, True)
    """

    layers: tuple[Array, ...]
    readout: float | Array
    architecture: Architecture
    action: float = np.nan
    energy: float = np.nan
    entropy: float = np.nan
    gradient_norm: float = np.nan
    converged: bool = False
    evaluations: int = 0
    message: str = ""
    temperature: float | None = None
    _data: TrainingData | None = field(default=None, repr=False, compare=False)
    # Approximate inverse Hessian in scaled factors: a solve that starts here goes on with it.
    _metric: Array | None = field(default=None, repr=False, compare=False)

    @property
    def matrix(self) -> Array:
        """U_1, the weights of the path-path kernels, shape (Pi m, Pi m)."""
        return self.layers[0]

    @property
    def n_outputs(self) -> int:
        """Number of outputs m."""
        return len(self.layers[0]) // self.architecture.paths

    def save(self, path: str | Path) -> None:
        """Write the order parameter, its network and how it was found to a .npz file.

        The training data are not written. The file appears whole or not at all.

        Parameters
        ----------
        path : path
            Name of the file, ending in .npz.

        Raises
        ------
        ValueError
            If the name does not end in .npz.
        OSError
            If the file cannot be written.

        Examples
        --------
        >>> import tempfile
        >>> gp = gp_order_parameter(Architecture((2,), 10))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     gp.save(f"{folder}/gp.npz")
        ...     again = OrderParameter.load(f"{folder}/gp.npz")
        >>> again.architecture == gp.architecture
        True
        """
        if Path(path).suffix != ".npz":
            raise ValueError(f"path must end in .npz, got {str(path)!r}")
        network = self.architecture
        write_result(
            path,
            {f"U_{number}": U for number, U in enumerate(self.layers, start=1)}
            | {"heads": network.heads, "widths": network.widths, "variances": network.variances}
            | {name: getattr(self, name) for name in _SAVED}
            | {"temperature": np.nan if self.temperature is None else self.temperature},
        )

    @classmethod
    def load(cls, path: str | Path) -> OrderParameter:
        """Read what `save` wrote.

        It predicts, scores heads and serves as a start; `hessian_minimum` needs the training data.

        Parameters
        ----------
        path : path
            A file written by `save`.

        Returns
        -------
        OrderParameter

        Raises
        ------
        ValueError
            If the file is damaged or holds something else.
        OSError
            If there is no such file.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> network, xi = Architecture((2,), 10), np.random.default_rng(0).normal(size=(6, 2, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     solve_order_parameter(xi, np.ones(6), network, 0.1).save(f"{folder}/solution.npz")
        ...     start = OrderParameter.load(f"{folder}/solution.npz")
        >>> solve_order_parameter(xi, np.ones(6), network, 0.2, start=start).converged
        True
        """
        arrays = read_arrays([path])
        needed = {"U_1", "heads", "widths", "variances", "temperature", *_SAVED}
        if missing := sorted(needed - arrays.keys()):
            raise ValueError(f"{path} must hold a saved order parameter, got no {missing[0]}")
        network = Architecture(
            *(arrays[name].tolist() for name in ("heads", "widths", "variances"))
        )
        layers = [arrays.get(f"U_{number + 1}", np.empty(0)) for number in range(network.layers)]
        outputs = max(len(layers[0]) // network.paths, 1)
        checked = tuple(
            _as_positive_definite(f"U_{number}", U, size)
            for number, (U, size) in enumerate(
                zip(layers, network.sizes(outputs), strict=False), start=1
            )
        )
        saved = {name: arrays[name].item() for name in _SAVED if name != "readout"}
        readout = arrays["readout"]
        temperature = arrays["temperature"].item()
        return cls(
            checked,
            readout if readout.ndim else readout.item(),
            network,
            temperature=None if np.isnan(temperature) else temperature,
            **saved,
        )

    def hessian_minimum(self) -> float:
        """Smallest eigenvalue of the Hessian of the action at this point.

        The Hessian is taken over the independent entries of the symmetric matrices u, U_L, ...,
        U_1; it is positive at a proper minimum.

        Returns
        -------
        float
            In units of the action (divided by the largest width).

        Raises
        ------
        ValueError
            If this order parameter was not solved for data.

        Examples
        --------
        >>> import numpy as np
        >>> network, xi = Architecture((2,), 10), np.random.default_rng(0).normal(size=(6, 2, 3))
        >>> solution = solve_order_parameter(xi, np.ones(6), network, 0.1)
        >>> solution.hessian_minimum() > 0  # a proper minimum
        True
        """
        if self._data is None or self.temperature is None:
            raise ValueError(
                "hessian_minimum needs an order parameter that was solved for data, got the "
                "infinite-width limit or a loaded file; use solve_order_parameter"
            )
        problem = Problem(self._data, self.architecture, self.temperature)
        return problem.hessian_minimum([*self.layers, np.atleast_2d(self.readout)])


def gp_order_parameter(architecture: Architecture, n_outputs: int = 1) -> OrderParameter:
    """Order parameter of the infinite-width (GP) limit.

    ``u = s_a^2`` and ``U_l = (s_a s_L ... s_l)^2 1``: the kernel is the plain average over paths.

    Parameters
    ----------
    architecture : Architecture
        Heads and variances; widths do not matter.
    n_outputs : int
        Number of outputs m.

    Returns
    -------
    OrderParameter

    Raises
    ------
    ValueError
        If `n_outputs` is below one.

    Examples
    --------
    >>> gp_order_parameter(Architecture((2,), 10, variances=2.0)).matrix
    array([[4., 0.],
           [0., 4.]])
    """
    _check_architecture(architecture)
    n_outputs = as_count("n_outputs", n_outputs)
    value = architecture.variances[-1]
    readout: float | Array = value if n_outputs == 1 else value * np.eye(n_outputs)
    sizes = architecture.sizes(n_outputs)
    layers = []
    for layer in reversed(range(architecture.layers)):
        value *= architecture.variances[layer + 1]
        layers.append(value * np.eye(sizes[layer]))
    return OrderParameter(tuple(reversed(layers)), readout, architecture, converged=True)


def action(
    xi: ArrayLike,
    y: ArrayLike,
    layers: Sequence[ArrayLike],
    architecture: Architecture,
    temperature: float,
    readout: ArrayLike | None = None,
) -> Action:
    """Action of given order parameters, divided by the largest width.

    ``energy = logdet(K + T 1) + y^T (K + T 1)^-1 y`` and ``entropy = N_a [tr u / s_a^2 - logdet u]
    + sum_l N_l [tr(U_{l+1}^-1 tau_l(U_l)) / s_l^2 - logdet U_l + H_l logdet U_{l+1}]``.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the training set.
    y : array_like, shape (P,) or (P, m)
        Labels.
    layers : sequence of array_like
        U_1, ..., U_L, symmetric positive definite.
    architecture : Architecture
        Heads, widths and variances.
    temperature : float
        Variance of the label noise.
    readout : array_like, optional
        u; by default the one that minimises the action given U_L, which has a closed form.

    Returns
    -------
    Action
        Named tuple (total, energy, entropy).

    Raises
    ------
    ValueError
        If shapes disagree, a matrix is not symmetric positive definite, or an entry is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> network = Architecture((2,), 10)
    >>> xi = np.random.default_rng(0).normal(size=(6, 2, 3))
    >>> gp = gp_order_parameter(network)
    >>> float(action(xi, np.ones(6), gp.layers, network, 0.1).entropy)
    3.0
    """
    xi, y, architecture, temperature = check_problem(xi, y, architecture, temperature)
    problem = Problem(TrainingData(xi, y), architecture, temperature)
    matrices = problem.check_layers(layers)
    if readout is None:
        matrices.append(problem.best_readout(matrices[-1]))
    else:
        matrices.append(_as_positive_definite("readout", np.atleast_2d(readout), problem.outputs))
    return problem.action(matrices)


def solve_order_parameter(
    xi: ArrayLike,
    y: ArrayLike,
    architecture: Architecture,
    temperature: float,
    *,
    start: OrderParameter | Sequence[ArrayLike] | None = None,
    tol: float = 1e-8,
    max_evaluations: int = 5000,
    check_minimum: bool = True,
) -> OrderParameter:
    """Minimise the action over all order parameters.

    L-BFGS in the coordinates of the exact posterior, scaled so that the entropy's Hessian is the
    identity in the infinite-width limit, then Newton steps with exact Hessian products.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the training set (see `attnpaths.path_inputs`).
    y : array_like, shape (P,) or (P, m)
        Labels.
    architecture : Architecture
        Heads, widths and variances.
    temperature : float
        Variance of the label noise, T > 0.
    start : OrderParameter or sequence of array_like, optional
        Where to start: an earlier solution (of any widths) or matrices U_1, ..., U_L. Default: the
        infinite-width limit. From an earlier solution for the same data its kernels and curvature
        are used again, which makes grids over widths and temperatures cheap.
    tol : float
        Needed size of the gradient relative to its parts, in scale-free coordinates.
    max_evaluations : int
        Bound on the evaluations of the gradient.
    check_minimum : bool
        Whether to look for directions of negative curvature at the solution.

    Returns
    -------
    OrderParameter
        With action, gradient norm and whether it converged.

    Warns
    -----
    ConvergenceWarning
        If the point is not a minimum to the needed accuracy.

    Raises
    ------
    ValueError
        If an argument is not finite, the temperature is not positive, or shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> xi = np.random.default_rng(0).normal(size=(6, 2, 3))
    >>> solution = solve_order_parameter(xi, np.ones(6), Architecture((2,), 10), 0.1)
    >>> solution.converged, solution.matrix.shape
    (True, (2, 2))
    """
    xi, y, architecture, temperature = check_problem(xi, y, architecture, temperature)
    tol = as_positive("tol", tol)
    max_evaluations = as_count("max_evaluations", max_evaluations)
    data, metric = TrainingData(xi, y), None
    if isinstance(start, OrderParameter):
        metric = start._metric
        if start._data is not None and start._data.same(xi, y):
            data = start._data
    problem = Problem(data, architecture, temperature)
    x = problem.start(start)
    threads = one_blas_thread() if len(data.labels) <= ONE_THREAD_SIZE else nullcontext()
    try:
        with threads:
            return _solve(problem, x, metric, tol, max_evaluations, check_minimum)
    except LinAlgError as error:
        raise ValueError(
            "y must be smaller beside temperature and xi: the order parameters that fit overflow; "
            f"got labels up to {np.abs(y).max():g} at temperature {temperature:g}"
        ) from error


def check_problem(
    xi: ArrayLike, y: ArrayLike, architecture: Architecture, temperature: float
) -> tuple[Array, Array, Architecture, float]:
    """Check path inputs, labels (returned as (P, m)), architecture and temperature together."""
    _check_architecture(architecture)
    xi = as_array("xi", xi, ("P", architecture.paths, "N0"))
    labels = as_array("y", y)
    if labels.ndim == 1:
        labels = labels[:, None]
    if labels.ndim != 2 or len(labels) != len(xi):
        raise ValueError(
            f"y must have shape ({len(xi)},) or ({len(xi)}, m) like xi, got shape {np.shape(y)}"
        )
    temperature = as_positive("temperature", temperature)
    with np.errstate(over="ignore", invalid="ignore"):
        check_overflow("xi", np.vdot(xi, xi))
        check_overflow("y", np.vdot(labels, labels) / temperature)
    return xi, labels, architecture, temperature


def _check_architecture(architecture: Architecture) -> None:
    if not isinstance(architecture, Architecture):
        raise ValueError(
            f"architecture must be an attnpaths.Architecture, got {type(architecture).__name__}"
        )


def _as_positive_definite(name: str, value: ArrayLike, size: int) -> Array:
    matrix = as_array(name, value, (size, size))
    if not np.allclose(matrix, matrix.T, rtol=1e-8, atol=1e-12 * np.abs(matrix).max()):
        raise ValueError(
            f"{name} must be symmetric, got differences up to {np.abs(matrix - matrix.T).max():.3g}"
        )
    matrix = (matrix + matrix.T) / 2
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest <= 0:
        raise ValueError(f"{name} must be positive definite, got smallest eigenvalue {lowest:.3g}")
    return matrix


def trace_first_head(U: Array, heads: int) -> Array:
    """tau_l(U_l): the sum of the H_l diagonal blocks."""
    size = len(U) // heads
    return np.einsum("habh->ab", U.reshape(heads, size, heads, size).transpose(0, 1, 3, 2))


class Factors:
    """Coordinates in which the prior decouples, and derivatives through them.

    ``B_{L+1} = s_a A_a``, ``B_l = s_l (1_{H_l} kron B_{l+1}) A_l``, ``U_l = B_l B_l^T``. Lists run
    from layer 1 to L, then the readout.

    Parameters
    ----------
    architecture : Architecture
        Heads and variances.
    outputs : int
        Number of outputs m.
    """

    def __init__(self, architecture: Architecture, outputs: int = 1) -> None:
        self.heads = architecture.heads
        self.sizes = architecture.sizes(outputs)
        self.scales = [np.sqrt(v) for v in architecture.variances[1:]]

    def lift(self, upper: Array, factor: Array, layer: int) -> Array:
        """``s_l (1 kron upper) factor`` for one layer."""
        blocks = factor.reshape(self.heads[layer], upper.shape[1], factor.shape[1])
        return (self.scales[layer] * (upper @ blocks)).reshape(-1, factor.shape[1])

    def products(self, factors: Sequence[Array]) -> list[Array]:
        """B_1, ..., B_L, B_a of given A_1, ..., A_L, A_a."""
        products = [self.scales[-1] * factors[-1]]
        for layer in reversed(range(len(self.heads))):
            # Widths below the size make rectangular factors; a product is then as narrow.
            products.append(self.lift(products[-1], factors[layer], layer))
        return products[::-1]

    def pull_back(
        self, factors: Sequence[Array], products: Sequence[Array], gradient: Array
    ) -> list[Array]:
        """Gradients with respect to A_1, ..., A_a of a function whose gradient in B_1 is given."""
        result = []
        for layer, factor in enumerate(factors[:-1]):
            below = self._blocks(gradient, layer)
            blocks = self._blocks(factor, layer)
            scale = self.scales[layer]
            result.append(scale * (products[layer + 1].T @ below).reshape(factor.shape))
            gradient = scale * np.einsum("hia,hja->ij", below, blocks)
        result.append(self.scales[-1] * gradient)
        return result

    def push_forward(
        self, factors: Sequence[Array], products: Sequence[Array], steps: Sequence[Array]
    ) -> list[Array]:
        """Directional derivatives of the products when the factors move by `steps`."""
        moved = [self.scales[-1] * steps[-1]]
        for layer in reversed(range(len(self.heads))):
            moved.append(
                self.lift(moved[-1], factors[layer], layer)
                + self.lift(products[layer + 1], steps[layer], layer)
            )
        return moved[::-1]

    def pull_back_derivative(
        self,
        factors: Sequence[Array],
        products: Sequence[Array],
        steps: Sequence[Array],
        moved: Sequence[Array],
        gradient: Array,
        gradient_step: Array,
    ) -> list[Array]:
        """Directional derivative of `pull_back`."""
        derivative = []
        for layer, factor in enumerate(factors[:-1]):
            below, below_step = self._blocks(gradient, layer), self._blocks(gradient_step, layer)
            blocks, blocks_step = self._blocks(factor, layer), self._blocks(steps[layer], layer)
            scale, above, above_step = self.scales[layer], products[layer + 1], moved[layer + 1]
            derivative.append(
                scale * (above_step.T @ below + above.T @ below_step).reshape(factor.shape)
            )
            gradient_step = scale * (
                np.einsum("hia,hja->ij", below_step, blocks)
                + np.einsum("hia,hja->ij", below, blocks_step)
            )
            gradient = scale * np.einsum("hia,hja->ij", below, blocks)
        derivative.append(self.scales[-1] * gradient_step)
        return derivative

    def factorise(self, layers: Sequence[Array]) -> list[Array]:
        """A_1, ..., A_a (lower triangular) of given U_1, ..., U_L, u."""
        lower = [cholesky(matrix, lower=True) for matrix in layers]
        factors = [lower[-1] / self.scales[-1]]
        for layer in reversed(range(len(self.heads))):
            blocks = self._blocks(lower[layer], layer)
            solved = [solve_triangular(lower[layer + 1], block, lower=True) for block in blocks]
            factors.append(np.concatenate(solved) / self.scales[layer])
        return factors[::-1]

    def _blocks(self, matrix: Array, layer: int) -> Array:
        return matrix.reshape(self.heads[layer], -1, matrix.shape[1])


class EnergyPoint:
    """Energy at one U_1 with its derivatives; all share one Cholesky factor.

    Parameters
    ----------
    data : TrainingData
        Path inputs and labels.
    U : ndarray
        Order parameter of the first layer.
    input_variance : float
        s_0^2.
    temperature : float
        Added to the diagonal.

    Raises
    ------
    scipy.linalg.LinAlgError
        If K + T 1 is not positive definite in floating point.
    """

    def __init__(
        self, data: TrainingData, U: Array, input_variance: float, temperature: float
    ) -> None:
        self.kernel_map = data.kernel_map
        self.input_variance = input_variance
        self._pair_hessian: Array | None = None
        K = self.kernel_map.combine(input_variance * U)
        K.ravel()[:: len(K) + 1] += temperature
        # Seen from Fortran the lower triangle of a C array is the upper one of its transpose.
        self.factor, info = lapack.dpotrf(K.T, lower=0, overwrite_a=1, clean=0)
        if info != 0:
            raise LinAlgError("K + T 1 is not positive definite")
        self.alpha = lapack.dpotrs(self.factor, data.labels, lower=0)[0]
        logdet = 2 * np.log(self.factor.diagonal()).sum()
        self.value = float(logdet + data.labels @ self.alpha)

    @cached_property
    def _lower_inverse(self) -> Array:
        """``(K + T 1)^-1``, of which only the lower triangle is valid."""
        return lapack.dpotri(self.factor, lower=0)[0].T

    @cached_property
    def inverse(self) -> Array:
        """``(K + T 1)^-1``, full."""
        lower = np.tril(self._lower_inverse)
        return lower + np.tril(lower, -1).T

    def prepare_hessian(self) -> None:
        """Form all second derivatives at once: cheaper than product by product for few paths.

        ``-tr(K^-1 C_p K^-1 C_q) + 2 (C_p alpha)^T K^-1 (C_q alpha)`` for pairs p, q of paths.
        """
        pairs = self.kernel_map.pair_kernels()
        if pairs is None:
            return
        count, size, _ = pairs.shape
        solved = (pairs.reshape(-1, size) @ self.inverse).reshape(pairs.shape)  # C_p K^-1
        traces = solved.reshape(count, -1) @ solved.swapaxes(1, 2).reshape(count, -1).T
        cross = (solved @ (pairs @ self.alpha).T).swapaxes(1, 2)  # C_p K^-1 C_q alpha
        self._pair_hessian = self.input_variance**2 * (2 * cross @ self.alpha - traces)

    def gradient(self) -> Array:
        """Gradient in U_1, symmetric."""
        residual = self._lower_inverse - np.outer(self.alpha, self.alpha)
        return self.input_variance * self.kernel_map.contract(residual)

    def gradient_step(self, step: Array) -> Array:
        """Directional derivative of the gradient when U_1 moves by a symmetric `step`."""
        if self._pair_hessian is not None:
            return self.kernel_map.from_pairs(self._pair_hessian @ self.kernel_map.to_pairs(step))
        moved = self.kernel_map.combine(self.input_variance * step)
        half = self.inverse @ moved
        weighted = half @ self.alpha
        change = half @ self.inverse
        change = (change + change.T) / 2
        cross = np.outer(weighted, self.alpha)
        return self.input_variance * self.kernel_map.contract(cross + cross.T - change)


# Data sets whose kernels are prepared, the latest last.
_prepared: list[TrainingData] = []


class TrainingData:
    """Path inputs and labels, prepared once for many solves.

    Parameters
    ----------
    xi : ndarray, shape (P, Pi, N0)
        Path inputs.
    y : ndarray, shape (P, m)
        Labels.
    """

    def __init__(self, xi: Array, y: Array) -> None:
        self.xi, self.y = xi, y
        self.outputs = y.shape[1]
        # Rows of the path inputs beyond their rank cannot be fitted: rotating them away is exact
        # and keeps their large residuals out of the gradient.
        examples, paths, features = xi.shape
        labels, self.unfitted, self.unfitted_square = y, 0, 0.0
        if examples > paths * features:
            q, r = np.linalg.qr(xi.reshape(examples, -1))
            labels = q.T @ y
            self.unfitted = (examples - len(labels)) * self.outputs
            self.unfitted_square = max(float(np.sum(y**2) - np.sum(labels**2)), 0.0)
            xi = np.ascontiguousarray(r.reshape(-1, paths, features))
        self._rotated = xi
        self._kernel_map: PathKernelMap | None = None
        self.labels = np.ascontiguousarray(labels.ravel())

    @property
    def kernel_map(self) -> PathKernelMap:
        """From U to the sum of path-path kernels over Pi.

        Only the latest data sets keep theirs: solutions that are stored must not hold hundreds of
        megabytes each.
        """
        kernel_map = self._kernel_map
        if kernel_map is None:
            kernel_map = PathKernelMap(self._rotated, 1 / self.xi.shape[1], self.outputs)
            self._kernel_map = kernel_map
            _prepared.append(self)
            if len(_prepared) > PREPARED_DATA_SETS:
                _prepared.pop(0)._kernel_map = None
        return kernel_map

    def same(self, xi: Array, y: Array) -> bool:
        """Whether these are the same path inputs and labels."""
        return np.array_equal(self.y, y) and np.array_equal(self.xi, xi)

    def __getstate__(self) -> tuple[Array, Array]:
        return self.xi, self.y

    def __setstate__(self, state: tuple[Array, Array]) -> None:
        self.__init__(*state)  # type: ignore[misc]


class Problem:
    """One minimisation problem: data, network and temperature, checked.

    Parameters
    ----------
    data : TrainingData
        Path inputs and labels.
    architecture : Architecture
        Heads, widths, variances.
    temperature : float
        Variance of the label noise.
    """

    def __init__(self, data: TrainingData, architecture: Architecture, temperature: float) -> None:
        self.data = data
        self.architecture = architecture
        self.temperature = temperature
        self.outputs = data.outputs
        self.factors = Factors(architecture, self.outputs)
        self.largest = max(architecture.widths)
        self.evaluations = 0
        self._latest: FactorPoint | None = None

    @property
    def unfitted_energy(self) -> float:
        """Part of the energy that no U can change."""
        data = self.data
        return data.unfitted * np.log(self.temperature) + data.unfitted_square / self.temperature

    # -- in the matrices ---------------------------------------------------------------------

    def check_layers(self, layers: Sequence[ArrayLike]) -> list[Array]:
        """Check U_1, ..., U_L."""
        if not np.iterable(layers) or len(layers) != self.architecture.layers:
            raise ValueError(
                f"layers must hold {self.architecture.layers} matrices, got "
                f"{len(layers) if np.iterable(layers) else layers!r}"
            )
        sizes = self.architecture.sizes(self.outputs)
        return [
            _as_positive_definite(f"layers[{index}]", U, size)
            for index, (U, size) in enumerate(zip(layers, sizes, strict=False))
        ]

    def best_readout(self, last: Array) -> Array:
        """U that minimises the action given U_L.

        Solves ``u^2 + s_a^2 (H_L N_L / N_a - 1) u = N_L s_a^2 / (N_a s_L^2) tau_L(U_L)``, whose
        solution has the eigenvectors of the right-hand side.
        """
        net = self.architecture
        width, readout_width = net.widths[-2], net.widths[-1]
        variance, readout_variance = net.variances[-2], net.variances[-1]
        linear = readout_variance * (net.heads[-1] * width / readout_width - 1)
        right = (width * readout_variance / (readout_width * variance)) * trace_first_head(
            last, net.heads[-1]
        )
        values, vectors = eigh(right)
        root = np.sqrt(linear**2 / 4 + values)
        # The two forms of the positive root; each is exact where the other cancels.
        roots = root - linear / 2 if linear < 0 else values / (root + linear / 2)
        return (vectors * roots) @ vectors.T

    def energy(self, U: Array) -> EnergyPoint:
        """Energy at U_1 (without the part that no U can change)."""
        self.evaluations += 1
        # s_0^2 scales K: as a factor of U it leaves the prepared kernels to all networks.
        return EnergyPoint(self.data, U, self.architecture.variances[0], self.temperature)

    def action(self, matrices: Sequence[Array]) -> Action:
        """Action of U_1, ..., U_L, u."""
        energy = (self.energy(matrices[0]).value + self.unfitted_energy) / self.largest
        entropy = self.entropy(matrices) / self.largest
        return Action(energy + entropy, energy, entropy)

    def entropy(self, matrices: Sequence[Array]) -> float:
        """Entropy, not divided by the width."""
        net = self.architecture
        logdets = [np.linalg.slogdet(U)[1] for U in matrices]
        total = net.widths[-1] * (np.trace(matrices[-1]) / net.variances[-1] - logdets[-1])
        for layer, (U, above) in enumerate(pairwise(matrices)):
            heads = net.heads[layer]
            ratio = np.trace(np.linalg.solve(above, trace_first_head(U, heads)))
            total += net.widths[layer] * (
                ratio / net.variances[layer + 1] - logdets[layer] + heads * logdets[layer + 1]
            )
        return float(total)

    def gradient(self, matrices: Sequence[Array], energy_gradient: Array) -> list[Array]:
        """Gradient of energy + entropy with respect to U_1, ..., U_L, u."""
        net = self.architecture
        inverses = [np.linalg.inv(U) for U in matrices]
        result = [-n * inverse for n, inverse in zip(net.widths, inverses, strict=True)]
        result[0] = result[0] + energy_gradient
        result[-1] = result[-1] + net.widths[-1] / net.variances[-1] * np.eye(self.outputs)
        for layer, above in enumerate(inverses[1:]):
            heads, width = net.heads[layer], net.widths[layer]
            scaled = width / net.variances[layer + 1]
            result[layer] = result[layer] + scaled * np.kron(np.eye(heads), above)
            traced = trace_first_head(matrices[layer], heads)
            result[layer + 1] = (
                result[layer + 1] + width * heads * above - scaled * above @ traced @ above
            )
        return result

    def hessian_product(
        self, matrices: Sequence[Array], point: EnergyPoint, steps: Sequence[Array]
    ) -> list[Array]:
        """Directional derivative of `gradient` when the matrices move by symmetric steps."""
        net = self.architecture
        inverses = [np.linalg.inv(U) for U in matrices]
        moved = [-inverse @ step @ inverse for inverse, step in zip(inverses, steps, strict=True)]
        result = [-n * change for n, change in zip(net.widths, moved, strict=True)]
        result[0] = result[0] + point.gradient_step(steps[0])
        for layer in range(net.layers):
            heads, width = net.heads[layer], net.widths[layer]
            scaled = width / net.variances[layer + 1]
            above, change = inverses[layer + 1], moved[layer + 1]
            result[layer] = result[layer] + scaled * np.kron(np.eye(heads), change)
            traced = trace_first_head(matrices[layer], heads)
            traced_step = trace_first_head(steps[layer], heads)
            cross = change @ traced @ above
            result[layer + 1] = (
                result[layer + 1]
                + width * heads * change
                - scaled * (cross + cross.T + above @ traced_step @ above)
            )
        return result

    def hessian_minimum(self, matrices: Sequence[Array]) -> float:
        """Smallest eigenvalue of the action's Hessian over independent entries."""
        point = self.energy(matrices[0])
        triangles = [np.tril_indices(len(U)) for U in matrices]
        counts = [len(rows) for rows, _ in triangles]
        offsets = np.cumsum([0, *counts])

        def product(vector: Array) -> Array:
            steps = []
            for U, (rows, columns), start in zip(matrices, triangles, offsets, strict=False):
                step = np.zeros_like(U)
                step[rows, columns] = vector[start : start + len(rows)]
                step[columns, rows] = vector[start : start + len(rows)]
                steps.append(step)
            changes = self.hessian_product(matrices, point, steps)
            # An off-diagonal entry moves two entries of the matrix.
            parts = [
                np.where(rows == columns, 1, 2) * ((change + change.T) / 2)[rows, columns]
                for change, (rows, columns) in zip(changes, triangles, strict=True)
            ]
            return np.concatenate(parts) / self.largest

        return smallest_eigenvalue(product, int(offsets[-1]))

    # -- in the scaled factors ---------------------------------------------------------------

    @cached_property
    def _triangles(self) -> list[tuple[tuple[Array, Array], slice]]:
        """For each factor its lower triangle and its part of the coordinates."""
        triangles, begin = [], 0
        for size in self.factors.sizes:
            triangle = np.tril_indices(size)
            triangles.append((triangle, slice(begin, begin + len(triangle[0]))))
            begin = triangles[-1][1].stop
        return triangles

    @cached_property
    def _diagonal(self) -> Array:
        """Positions of the coordinates that stand for diagonal entries."""
        masks = [rows == columns for (rows, columns), _ in self._triangles]
        return np.flatnonzero(np.concatenate(masks))

    @cached_property
    def _widths(self) -> Array:
        """Width of each coordinate's layer."""
        counts = [part.stop - part.start for _, part in self._triangles]
        return np.repeat(self.architecture.widths, counts)

    @cached_property
    def _scale(self) -> Array:
        """Of an entry of the factors against its coordinate, at the infinite-width limit."""
        scale = 1 / np.sqrt(2 * self._widths)
        scale[self._diagonal] /= np.sqrt(2)
        return scale

    @property
    def dimensions(self) -> int:
        """Number of coordinates."""
        return self._triangles[-1][1].stop

    def to_factors(self, entries: Array) -> list[Array]:
        """Lower triangular matrices of one vector of entries."""
        factors = []
        for size, (triangle, part) in zip(self.factors.sizes, self._triangles, strict=True):
            factor = np.zeros((size, size))
            factor[triangle] = entries[part]
            factors.append(factor)
        return factors

    def from_factors(self, factors: Sequence[Array]) -> Array:
        """Entries of the lower triangles as one vector."""
        return np.concatenate(
            [
                factor[triangle]
                for factor, (triangle, _) in zip(factors, self._triangles, strict=True)
            ]
        )

    def unpack(self, x: Array) -> list[Array]:
        """A_1, ..., A_a of scaled coordinates.

        Off the diagonal ``A = x / sqrt(2 N)``, on it ``A = exp(x / sqrt(4 N))``: the entropy's
        Hessian is the identity at x = 0, the infinite-width limit.
        """
        entries = x * self._scale
        entries[self._diagonal] = np.exp(entries[self._diagonal])
        return self.to_factors(entries)

    def pack(self, factors: Sequence[Array]) -> Array:
        """Inverse of `unpack`."""
        entries = self.from_factors(factors)
        entries[self._diagonal] = np.log(entries[self._diagonal])
        return entries / self._scale

    def start(self, start: OrderParameter | Sequence[ArrayLike] | None) -> Array:
        """Coordinates of a starting point."""
        if start is None:
            return np.zeros(self.dimensions)
        if isinstance(start, OrderParameter):
            matrices = self.check_layers(start.layers)
            matrices.append(
                _as_positive_definite("start", np.atleast_2d(start.readout), self.outputs)
            )
        else:
            matrices = self.check_layers(start)
            matrices.append(self.best_readout(matrices[-1]))
        return self.pack(self.factors.factorise(matrices))

    def matrices(self, x: Array) -> list[Array]:
        """U_1, ..., U_L, u of scaled coordinates."""
        return [B @ B.T for B in self.factors.products(self.unpack(x))]

    def point(self, x: Array) -> FactorPoint:
        """The action at x; the latest point is kept, since optimisers come back to it."""
        if self._latest is None or not np.array_equal(self._latest.x, x):
            self._latest = FactorPoint(self, x.copy())
        return self._latest

    def value_and_gradient(self, x: Array) -> tuple[float, Array]:
        """Action above its entropy's minimum, not divided by the width, and its gradient."""
        try:
            return self.point(x).value_and_gradient()
        except (
            LinAlgError
        ):  # rounding: far outside any region of interest; the line search turns back
            return np.inf, np.zeros_like(x)


class FactorPoint:
    """The action at one point of the scaled factors, with first and second derivatives.

    Parameters
    ----------
    problem : Problem
        What is minimised.
    x : ndarray
        Scaled coordinates, see `Problem.unpack`.
    """

    def __init__(self, problem: Problem, x: Array) -> None:
        self.problem, self.x = problem, x
        self.factors = problem.unpack(x)
        self.products = problem.factors.products(self.factors)
        if not all(np.isfinite(B).all() for B in self.products):
            raise LinAlgError("the factors overflow")
        self.energy = problem.energy(self.products[0] @ self.products[0].T)

    @cached_property
    def energy_gradient(self) -> Array:
        """Gradient of the energy in U_1."""
        return self.energy.gradient()

    @cached_property
    def _slopes(self) -> Array:
        """Derivatives of the factors' entries with respect to their coordinates."""
        slopes = self.problem._scale.copy()
        slopes[self.problem._diagonal] *= np.concatenate([A.diagonal() for A in self.factors])
        return slopes

    def entropy_parts(self) -> tuple[float, Array, Array]:
        """Entropy above its minimum, its gradient and the diagonal of its Hessian."""
        diagonal = self.problem._diagonal
        roots = np.sqrt(self.problem._widths[diagonal])
        # N (A^2 - 1 - 2 log A) with A = exp(x / sqrt(4 N)), without cancellation near A = 1.
        exponent = self.x[diagonal] / roots
        growth = np.expm1(exponent)
        gradient, curvature = self.x.copy(), np.ones_like(self.x)
        value = 0.5 * (self.x @ self.x - self.x[diagonal] @ self.x[diagonal])
        value += float(np.sum(roots**2 * (growth - exponent)))
        gradient[diagonal] = roots * growth
        curvature[diagonal] = growth + 1
        return value, gradient, curvature

    @cached_property
    def energy_coordinates(self) -> Array:
        """Gradient of the energy in x."""
        pulled = self.problem.factors.pull_back(
            self.factors, self.products, 2 * self.energy_gradient @ self.products[0]
        )
        return self.problem.from_factors(pulled) * self._slopes

    def value_and_gradient(self) -> tuple[float, Array]:
        """Value and gradient in x."""
        entropy, gradient, _ = self.entropy_parts()
        return entropy + self.energy.value, gradient + self.energy_coordinates

    def hessian_product(self, vector: Array) -> Array:
        """Hessian in x times a vector."""
        problem = self.problem
        problem.evaluations += 1
        steps = problem.to_factors(vector * self._slopes)
        moved = problem.factors.push_forward(self.factors, self.products, steps)
        B, dB, g = self.products[0], moved[0], self.energy_gradient
        cross = dB @ B.T
        dg = self.energy.gradient_step(cross + cross.T)
        derivative = problem.factors.pull_back_derivative(
            self.factors, self.products, steps, moved, 2 * g @ B, 2 * (dg @ B + g @ dB)
        )
        result = self.entropy_parts()[2] * vector + problem.from_factors(derivative) * self._slopes
        # The diagonal's exponential map bends.
        bend = self.energy_coordinates * problem._scale * vector
        result[problem._diagonal] += bend[problem._diagonal]
        return result

    def hessian(self) -> Array:
        """The whole Hessian in x."""
        self.energy.prepare_hessian()
        rows = np.stack([self.hessian_product(row) for row in np.eye(len(self.x))])
        return (rows + rows.T) / 2


def smallest_eigenvalue(product: Any, size: int) -> float:
    """Smallest eigenvalue of a symmetric operator given by its products with vectors."""
    if size <= 300:
        dense = np.stack([product(row) for row in np.eye(size)])
        return float(np.linalg.eigvalsh((dense + dense.T) / 2)[0])
    operator = LinearOperator((size, size), matvec=product, dtype=float)
    start = np.random.default_rng(0).normal(size=size)
    values = eigsh(operator, k=1, which="SA", v0=start, tol=1e-4, return_eigenvectors=False)
    return float(values[0])


def _solve(
    problem: Problem,
    x: Array,
    metric: Array | None,
    tol: float,
    max_evaluations: int,
    check_minimum: bool,
) -> OrderParameter:
    small = problem.dimensions <= DENSE_COORDINATES
    if small or (metric is not None and len(metric) != len(x)):
        metric = None
    # The optimiser's coordinates: with a metric from a neighbouring problem, a change of basis.
    basis = None if metric is None else cholesky(metric, lower=True)

    def function(z: Array) -> tuple[float, Array]:
        if basis is None:
            return problem.value_and_gradient(z)
        value, gradient = problem.value_and_gradient(x + basis @ z)
        return value, basis.T @ gradient

    size = np.abs(problem.point(x).energy_coordinates).max()
    result = minimize(
        function,
        x if basis is None else np.zeros_like(x),
        jac=True,
        method="L-BFGS-B",
        options={
            "maxcor": 40,
            "ftol": 0.0,
            # From here on Newton steps are cheaper, and free of the action's rounding error.
            "gtol": max(tol, 1e-4 * min(1.0, size)),
            "maxfun": max_evaluations,
            "maxiter": max_evaluations,
        },
    )
    point = problem.point(result.x if basis is None else x + basis @ result.x)
    metric = None
    if small:
        hessian = point.hessian()
        curvature = float(np.linalg.eigvalsh(hessian)[0])
        solver = _dense_solver(hessian)
    else:
        curvature = np.inf
        inverse = result.hess_inv
        if len(x) <= METRIC_COORDINATES:
            metric = inverse.todense()
            if basis is not None:
                metric = basis @ metric @ basis.T
            metric = inverse = (metric + metric.T) / 2
        solver = _krylov_solver(inverse)
    point, residual, noise = _newton(point, tol, solver, max_evaluations)
    if check_minimum and not small:
        curvature = lowest_ritz_value(point)
    problems = []
    if residual > max(tol, noise):
        problems.append(f"relative gradient {residual:.2g} instead of {tol:.2g}")
    if curvature <= 0:
        problems.append(f"negative curvature {curvature:.2g}: not a minimum but a saddle point")
    message = "; ".join(problems) or (
        "gradient small enough" if residual <= tol else "gradient at rounding level"
    )
    if problems:
        warnings.warn(f"not a minimum of the action: {message}", ConvergenceWarning, stacklevel=3)
    matrices = problem.matrices(point.x)
    gradients = problem.gradient(matrices, point.energy_gradient)
    norm = max(np.abs(g + g.T).max() / 2 for g in gradients) / problem.largest
    energy = (point.energy.value + problem.unfitted_energy) / problem.largest
    entropy = problem.entropy(matrices) / problem.largest
    readout = matrices.pop()
    return OrderParameter(
        layers=tuple(matrices),
        readout=float(readout[0, 0]) if problem.outputs == 1 else readout,
        architecture=problem.architecture,
        action=energy + entropy,
        energy=energy,
        entropy=entropy,
        gradient_norm=float(norm),
        converged=not problems,
        evaluations=problem.evaluations,
        message=message,
        temperature=problem.temperature,
        _data=problem.data,
        _metric=metric,
    )


def _relative_gradient(point: FactorPoint) -> tuple[Array, float]:
    """Gradient, and its largest entry relative to the two parts that cancel in it."""
    entropy, energy = point.entropy_parts()[1], point.energy_coordinates
    gradient = entropy + energy
    size = max(np.abs(entropy).max(), np.abs(energy).max())
    # Parts below rounding of the coordinates: without data to fit, the limit itself is the minimum.
    floor = 1e-12 * np.sqrt(point.problem.largest)
    return gradient, float(np.abs(gradient).max() / max(size, floor))


NewtonSolver = Callable[[FactorPoint, Array], Array]


def _dense_solver(hessian: Array) -> NewtonSolver:
    """Newton steps with one Hessian, its negative eigenvalues turned round."""
    values, vectors = np.linalg.eigh(hessian)
    values = np.maximum(np.abs(values), 1e-12 * np.abs(values).max())
    return lambda _, gradient: vectors @ ((vectors.T @ gradient) / values)


def _krylov_solver(inverse: LinearOperator | Array) -> NewtonSolver:
    """Newton steps by conjugate gradients, with the inverse that L-BFGS built to precondition."""

    def solve(point: FactorPoint, gradient: Array) -> Array:
        size = len(gradient)
        operator = LinearOperator((size, size), matvec=point.hessian_product, dtype=float)
        return cg(operator, gradient, rtol=1e-3, maxiter=min(size, 100), M=inverse)[0]

    return solve


def _newton(
    point: FactorPoint, tol: float, solver: NewtonSolver, max_evaluations: int
) -> tuple[FactorPoint, float, float]:
    """Newton steps from a point near a minimum, down to `tol` or to rounding level.

    Steps are judged by the gradient: the action's own rounding error hides the last digits of the
    minimum. Returns the point, its relative gradient and the rounding level of that.
    """
    problem = point.problem
    gradient, residual = _relative_gradient(point)
    for _ in range(30):
        if residual <= tol or problem.evaluations > max_evaluations:
            break
        try:
            trial = FactorPoint(problem, point.x - solver(point, gradient))
        except LinAlgError:
            break
        trial_gradient, trial_residual = _relative_gradient(trial)
        if not trial_residual < residual / 2:
            break
        point, gradient, residual = trial, trial_gradient, trial_residual
    noise = 0.0
    if residual > tol:
        # Rounding level, measured: what a shift in the last digits changes.
        shifted = FactorPoint(problem, point.x * (1 + 4e-16) + 4e-16)
        change = np.abs(_relative_gradient(shifted)[0] - gradient).max()
        noise = min(10 * change * residual / np.abs(gradient).max(), 1e-4)
    return point, residual, noise


def lowest_ritz_value(point: FactorPoint) -> float:
    """Smallest curvature that a few Lanczos steps find.

    An upper bound of the smallest eigenvalue, so a negative one proves a saddle point.
    """
    vector = np.random.default_rng(0).normal(size=len(point.x))
    basis = [vector / np.linalg.norm(vector)]
    diagonal, off_diagonal = [], []
    for _ in range(LANCZOS_STEPS):
        image = point.hessian_product(basis[-1])
        diagonal.append(basis[-1] @ image)
        known = np.array(basis)
        for _ in range(2):  # once leaves rounding errors that look like curvature
            image = image - known.T @ (known @ image)
        off_diagonal.append(np.linalg.norm(image))
        if off_diagonal[-1] < 1e-8 * np.abs(diagonal).max():
            break  # the whole space that this start can reach
        basis.append(image / off_diagonal[-1])
    return float(eigvalsh_tridiagonal(np.array(diagonal), np.array(off_diagonal[:-1]))[0])
