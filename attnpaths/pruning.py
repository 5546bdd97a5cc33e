"""Heads and paths: their scores, and what is left when heads are dropped.

Three things are kept apart and combine freely:

- *networks* that can lose heads: `PathNetwork`, a trained network reduced to one weight vector a
  path, and `TheoryPredictor`, the theory's predictor. `attnpaths.adapters.TorchModel` is a third.
  Each has ``heads``, ``drop(heads)`` and ``predict(inputs)``;
- *criteria*, functions ``(network, xi, y) -> scores`` with one array of scores a layer: the
  theory's (`theory_criterion`), and what it is to be compared with;
- `pruning_curve`, which drops the heads of one network in the order of some scores.

Heads are named ``(layer, head)``, both counted from 1 as in `attnpaths.path_names`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse.linalg import lsmr

from attnpaths._validation import Array, as_array, as_count, as_positive
from attnpaths.kernels import kernel
from attnpaths.order_parameter import Architecture, OrderParameter, solve_order_parameter
from attnpaths.paths import as_heads
from attnpaths.predictor import predict

__all__ = [
    "Network",
    "PathNetwork",
    "PruningCurve",
    "RankCorrelation",
    "TheoryPredictor",
    "drop_heads",
    "empirical_criterion",
    "empirical_order_parameter",
    "fine_tune",
    "gradient_criterion",
    "head_scores",
    "kept_paths",
    "magnitude_criterion",
    "measured_drop_criterion",
    "path_scores",
    "pruning_curve",
    "pruning_order",
    "random_criterion",
    "rank_correlation",
    "theory_criterion",
]

Head = tuple[int, int]
Scores = list[Array]


# -- scores from an order parameter ------------------------------------------------------------


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
    >>> from attnpaths import Architecture
    >>> head_scores(np.diag([3.0, 1.0]), Architecture((2,), 10))
    [array([1.        , 0.33333333])]
    """
    heads, weight = _path_weights(order_parameter, architecture)
    uses = _uses(heads)
    # Pairs through a head: its rows and its columns, less the block counted twice.
    rows = weight.sum(axis=1)
    scores = [2 * layer @ rows - ((layer @ weight) * layer).sum(axis=1) for layer in uses]
    largest = max(score.max() for score in scores)
    return [score / largest for score in scores]


def path_scores(
    order_parameter: OrderParameter | ArrayLike, architecture: Architecture | None = None
) -> Array:
    """Score every path by the weight of the pairs that it belongs to.

    ``score(pi) = sum of |U_{pi' pi''}| over pairs with pi' = pi or pi'' = pi``, divided by the
    largest: the rule of `head_scores` for one path instead of the paths through one head.

    Parameters
    ----------
    order_parameter : OrderParameter or array_like, shape (Pi, Pi)
        A solution, or U_1 itself.
    architecture : Architecture, optional
        Needed with an array: its heads.

    Returns
    -------
    ndarray, shape (Pi,)
        Scores in the order of `attnpaths.path_names`; the largest is 1.

    Raises
    ------
    ValueError
        If an array comes without architecture, or its shape does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture
    >>> path_scores(np.diag([4.0, 1.0]), Architecture((2,), 10))
    array([1.  , 0.25])
    """
    _, weight = _path_weights(order_parameter, architecture)
    scores = 2 * weight.sum(axis=1) - np.diagonal(weight)
    return scores / scores.max()


def _path_weights(
    order_parameter: OrderParameter | ArrayLike, architecture: Architecture | None
) -> tuple[tuple[int, ...], Array]:
    """Heads, and |U_1| summed over outputs, shape (Pi, Pi)."""
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
    if not weight.any():
        raise ValueError("order_parameter must not be zero everywhere")
    return architecture.heads, weight


def _uses(heads: tuple[int, ...]) -> list[Array]:
    """For each layer, which paths use which head: 0 or 1, shape (H_l, Pi)."""
    index = np.indices(heads).reshape(len(heads), -1)
    return [
        (index[layer] == np.arange(count)[:, None]).astype(float)
        for layer, count in enumerate(heads)
    ]


def empirical_order_parameter(weights: ArrayLike) -> Array:
    """Order parameter of a trained network, from its effective weights.

    ``U_{pi pi'} = Pi v_pi . v_pi'``, the Gram matrix of the effective weights path by path, in the
    theory's scale when v is normalised so that ``f = sum_pi v_pi . (V0 xi_pi / sqrt(N0))``. With
    weights on the bare path inputs (`PathNetwork.weights`) it is the same for a random V0 of unit
    variance, on average.

    Parameters
    ----------
    weights : array_like, shape (Pi, N)
        Effective weights of each path.

    Returns
    -------
    ndarray, shape (Pi, Pi)

    Raises
    ------
    ValueError
        If `weights` is not a finite matrix.

    Examples
    --------
    >>> empirical_order_parameter([[1.0, 0.0], [1.0, 2.0]])
    array([[ 2.,  2.],
           [ 2., 10.]])
    """
    weights = as_array("weights", weights, ("Pi", "N"))
    return len(weights) * weights @ weights.T


# -- which paths are left ----------------------------------------------------------------------


def kept_paths(heads: Sequence[int], dropped: Iterable[Head]) -> Array:
    """Tell which paths are left when heads are dropped.

    Parameters
    ----------
    heads : sequence of int
        Heads a layer, (H_1, ..., H_L).
    dropped : iterable of (layer, head)
        Heads to drop, counted from 1.

    Returns
    -------
    ndarray of bool, shape (Pi,)
        In the order of `attnpaths.path_names`.

    Raises
    ------
    ValueError
        If there is no such head, or a layer would lose all of its heads.

    Examples
    --------
    >>> kept_paths((2, 2), [(1, 2)])
    array([ True,  True, False, False])
    """
    counts = as_heads(heads)
    _, kept = check_dropped(counts, dropped)
    mask = kept[0]
    for layer in kept[1:]:
        mask = np.logical_and.outer(mask, layer)
    return np.ravel(mask)


def check_dropped(
    heads: tuple[int, ...], dropped: Iterable[Head]
) -> tuple[frozenset[Head], list[Array]]:
    """Check names of heads; also give the heads left, one array of bool a layer."""
    if isinstance(dropped, str) or not np.iterable(dropped):
        raise ValueError(f"dropped must be a list of heads (layer, head), got {dropped!r}")
    names: set[Head] = set()
    kept = [np.ones(count, dtype=bool) for count in heads]
    for name in dropped:
        if not np.iterable(name) or len(tuple(name)) != 2:
            raise ValueError(f"dropped must name heads as (layer, head), got {name!r}")
        layer, head = (as_count("dropped", number) for number in name)
        if layer > len(heads) or head > heads[layer - 1]:
            raise ValueError(
                f"dropped must name heads (layer, head) of a network with {heads} heads a layer, "
                f"counted from 1, got ({layer}, {head})"
            )
        names.add((layer, head))
        kept[layer - 1][head - 1] = False
    for layer, left in enumerate(kept, start=1):
        if not left.any():
            raise ValueError(f"dropped must leave a head in every layer, got all of layer {layer}")
    return frozenset(names), kept


# -- networks that can lose heads --------------------------------------------------------------


class Network(Protocol):
    """What a pruning curve needs of a network.

    Examples
    --------
    Whatever has the three can be pruned:

    >>> import numpy as np
    >>> class Votes:
    ...     def __init__(self, dropped=()):
    ...         self.heads, self.dropped = (3,), set(dropped)
    ...     def drop(self, dropped):
    ...         return Votes(self.dropped | set(dropped))
    ...     def predict(self, inputs):
    ...         left = [h for h in (1, 2, 3) if (1, h) not in self.dropped]
    ...         return inputs[:, [h - 1 for h in left]].sum(axis=1)
    >>> inputs = np.array([[2.0, -1.0, -1.5], [-2.0, 1.0, 1.5]])
    >>> pruning_curve(Votes(), [[3, 1, 2]], inputs, [1, -1]).accuracy
    array([0., 1., 1.])
    """

    @property
    def heads(self) -> tuple[int, ...]:
        """Heads a layer before any was dropped."""
        ...

    def drop(self, dropped: Iterable[Head]) -> Network:
        """Copy without these heads, named as in the whole network."""
        ...

    def predict(self, inputs: Any) -> Array:
        """Outputs f, shape (P',), whose sign is the class."""
        ...


@dataclass(frozen=True)
class PathNetwork:
    """A trained network with given attention, reduced to one weight vector a path.

    Values are linear, so ``f = sum_pi w_pi . xi_pi``. Dropping heads removes their paths and, for
    every layer, puts ``1 / sqrt(H_l - dropped)`` in the place of ``1 / sqrt(H_l)``.

    Parameters
    ----------
    weights : array_like, shape (Pi, N0)
        Effective weights w of the path inputs, with all normalisation.
    heads : sequence of int
        Heads a layer.
    order_parameter : array_like, shape (Pi, Pi), optional
        Its empirical order parameter; default `empirical_order_parameter` of `weights`.
    magnitudes : sequence of array_like, optional
        For `magnitude_criterion`: a norm of each head's own parameters, one array a layer.

    Raises
    ------
    ValueError
        If shapes disagree or an entry is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> network = PathNetwork(np.eye(2), (2,))
    >>> network.drop([(1, 2)]).predict(np.ones((1, 2, 2))) / np.sqrt(2)
    array([1.])
    >>> smaller = network.drop([(1, 2)])
    >>> smaller.kept, round(smaller.scale**2, 12)
    (array([ True, False]), 2.0)
    """

    weights: Array
    heads: tuple[int, ...]
    order_parameter: Array | None = None
    magnitudes: Sequence[Array] | None = None
    dropped: frozenset[Head] = field(default=frozenset())

    def __post_init__(self) -> None:
        counts = as_heads(self.heads)
        paths = int(np.prod(counts))
        weights = as_array("weights", self.weights, (paths, "N0"))
        U = self.order_parameter
        U = (
            empirical_order_parameter(weights)
            if U is None
            else as_array("order_parameter", U, (paths, paths))
        )
        object.__setattr__(self, "heads", counts)
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "order_parameter", U)
        object.__setattr__(self, "dropped", check_dropped(counts, self.dropped)[0])
        if self.magnitudes is not None:
            object.__setattr__(
                self, "magnitudes", _as_scores("magnitudes", self.magnitudes, counts)
            )

    @classmethod
    def from_theory(
        cls, xi: ArrayLike, y: ArrayLike, order_parameter: OrderParameter, temperature: float
    ) -> PathNetwork:
        """Network whose output is the theory's mean predictor.

        Its weights are the posterior mean ``w_pi = s_0^2 / (Pi N0) sum_{pi'} U_{pi pi'} sum_mu
        alpha_mu xi_mu^{pi'}`` with ``alpha = (K + T 1)^-1 y``. Dropping heads from it, unlike from
        a `TheoryPredictor`, does not look at the training set again.

        Parameters
        ----------
        xi : array_like, shape (P, Pi, N0)
            Path inputs of the training set.
        y : array_like, shape (P,)
            Labels.
        order_parameter : OrderParameter
            For one output.
        temperature : float
            Variance of the label noise.

        Returns
        -------
        PathNetwork

        Raises
        ------
        ValueError
            If shapes disagree.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture, predict, solve_order_parameter
        >>> xi, y = np.random.default_rng(0).normal(size=(8, 4, 3)), np.resize([1.0, -1.0], 8)
        >>> solution = solve_order_parameter(xi, y, Architecture((2, 2), 10), 0.1)
        >>> network = PathNetwork.from_theory(xi, y, solution, 0.1)
        >>> bool(np.allclose(network.predict(xi), predict(xi, y, xi, solution, 0.1).mean))
        True
        """
        net = order_parameter.architecture
        xi = as_array("xi", xi, ("P", net.paths, "N0"))
        y = as_array("y", y, (len(xi),))
        U = as_array("order_parameter", order_parameter.matrix, (net.paths, net.paths))
        K = kernel(xi, U, variance=net.variances[0])
        K[np.diag_indices_from(K)] += as_positive("temperature", temperature)
        alpha = cho_solve(cho_factor(K, lower=True), y)
        mean = np.tensordot(alpha, xi, 1)  # (Pi, N0)
        weights = net.variances[0] / (net.paths * xi.shape[2]) * (U @ mean)
        return cls(weights, net.heads, U)

    @property
    def kept(self) -> Array:
        """Which paths are left, bool (Pi,)."""
        return kept_paths(self.heads, self.dropped)

    @property
    def scale(self) -> float:
        """Factor that dropped heads put on what is left, ``prod_l sqrt(H_l / (H_l - dropped))``."""
        return float(np.sqrt(len(self.kept) / np.count_nonzero(self.kept)))

    def contributions(self, xi: ArrayLike) -> Array:
        """What each path adds to the output.

        Parameters
        ----------
        xi : array_like, shape (P', Pi, N0)
            Path inputs.

        Returns
        -------
        ndarray, shape (P', Pi)
            ``w_pi . xi_pi``, zero for dropped paths, rescaled for the heads dropped.

        Examples
        --------
        >>> import numpy as np
        >>> PathNetwork(np.eye(2), (2,)).contributions(np.arange(4.0).reshape(1, 2, 2))
        array([[0., 3.]])
        """
        xi = as_array("xi", xi, ("P'", *self.weights.shape))
        every = np.einsum("pai,ai->pa", xi, self.weights)
        return np.where(self.kept, every * self.scale, 0.0)

    def predict(self, xi: ArrayLike) -> Array:
        """Outputs f, shape (P',), of path inputs (P', Pi, N0).

        Examples
        --------
        >>> import numpy as np
        >>> PathNetwork(np.eye(2), (2,)).predict(np.arange(4.0).reshape(1, 2, 2))
        array([3.])
        """
        return self.contributions(xi).sum(axis=1)

    def drop(self, dropped: Iterable[Head]) -> PathNetwork:
        """Network without these heads (in addition to those dropped before).

        Examples
        --------
        >>> import numpy as np
        >>> network = PathNetwork(np.ones((4, 3)), (2, 2))
        >>> network.drop([(1, 1)]).drop([(2, 2)]).kept
        array([False, False,  True, False])
        """
        return replace(self, dropped=self.dropped | check_dropped(self.heads, dropped)[0])


@dataclass(frozen=True)
class TheoryPredictor:
    """The theory's mean predictor, with or without some of its heads.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the training set.
    y : array_like, shape (P,)
        Labels.
    order_parameter : OrderParameter
        Of the whole network.
    temperature : float
        Variance of the label noise.
    resolve : bool
        After dropping heads: whether the order parameter is solved again for the smaller network
        (True), or the rows and columns of the dropped paths are cut (False).

    Raises
    ------
    ValueError
        If shapes disagree or the temperature is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture, solve_order_parameter
    >>> xi, y = np.random.default_rng(0).normal(size=(8, 4, 3)), np.resize([1.0, -1.0], 8)
    >>> solution = solve_order_parameter(xi, y, Architecture((2, 2), 10), 0.1)
    >>> whole = TheoryPredictor(xi, y, solution, 0.1)
    >>> smaller = whole.drop([(2, 1)])
    >>> whole.heads, smaller.kept, smaller.reduced.matrix.shape
    ((2, 2), array([False,  True, False,  True]), (2, 2))
    >>> whole.predict(xi).shape, smaller.predict(xi).shape  # both take all paths
    ((8,), (8,))
    """

    xi: Array
    y: Array
    order_parameter: OrderParameter
    temperature: float
    resolve: bool = False
    dropped: frozenset[Head] = field(default=frozenset())

    def __post_init__(self) -> None:
        if not isinstance(self.order_parameter, OrderParameter):
            raise ValueError(
                "order_parameter must be an OrderParameter, got "
                f"{type(self.order_parameter).__name__}"
            )
        object.__setattr__(
            self,
            "xi",
            as_array("xi", self.xi, ("P", self.order_parameter.architecture.paths, "N0")),
        )
        object.__setattr__(self, "y", as_array("y", self.y, (len(self.xi),)))
        as_positive("temperature", self.temperature)

    @property
    def heads(self) -> tuple[int, ...]:
        """Heads a layer before any was dropped."""
        return self.order_parameter.architecture.heads

    @property
    def kept(self) -> Array:
        """Which paths are left, bool (Pi,)."""
        return kept_paths(self.heads, self.dropped)

    @cached_property
    def reduced(self) -> OrderParameter:
        """Order parameter over the paths that are left."""
        if not self.dropped:
            return self.order_parameter
        cut = drop_heads(self.order_parameter, self.dropped)
        if not self.resolve:
            return cut
        return solve_order_parameter(
            self.xi[:, self.kept], self.y, cut.architecture, self.temperature, start=cut
        )

    def predict(self, xi: ArrayLike) -> Array:
        """Mean of f, shape (P',), at path inputs (P', Pi, N0) of the whole network.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture, predict, solve_order_parameter
        >>> xi, y = np.random.default_rng(0).normal(size=(8, 4, 3)), np.resize([1.0, -1.0], 8)
        >>> solution = solve_order_parameter(xi, y, Architecture((2, 2), 10), 0.1)
        >>> mean = TheoryPredictor(xi, y, solution, 0.1).predict(xi)
        >>> bool(np.allclose(mean, predict(xi, y, xi, solution, 0.1).mean))
        True
        """
        xi = as_array("xi", xi, ("P'", *self.xi.shape[1:]))
        kept = self.kept
        return predict(self.xi[:, kept], self.y, xi[:, kept], self.reduced, self.temperature).mean

    def drop(self, dropped: Iterable[Head]) -> TheoryPredictor:
        """Predictor without these heads (in addition to those dropped before).

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths import Architecture, solve_order_parameter
        >>> xi, y = np.random.default_rng(0).normal(size=(8, 4, 3)), np.resize([1.0, -1.0], 8)
        >>> solution = solve_order_parameter(xi, y, Architecture((2, 2), 10), 0.1)
        >>> solved_again = TheoryPredictor(xi, y, solution, 0.1, resolve=True).drop([(2, 1)])
        >>> solved_again.reduced.converged
        True
        """
        return replace(self, dropped=self.dropped | check_dropped(self.heads, dropped)[0])


def drop_heads(order_parameter: OrderParameter, dropped: Iterable[Head]) -> OrderParameter:
    """Cut heads from an order parameter.

    Rows and columns of the paths through dropped heads are removed from every U_l; the network is
    the smaller one, whose ``1 / Pi`` belongs to the paths that are left.

    Parameters
    ----------
    order_parameter : OrderParameter
        Of the whole network.
    dropped : iterable of (layer, head)
        Counted from 1.

    Returns
    -------
    OrderParameter
        For the smaller network. It is not a minimum of its action: `solve_order_parameter` with
        ``start=`` this one finds that.

    Raises
    ------
    ValueError
        If there is no such head, or a layer would lose all of its heads.

    Examples
    --------
    >>> from attnpaths import Architecture, gp_order_parameter
    >>> whole = gp_order_parameter(Architecture((2, 3), 10))
    >>> drop_heads(whole, [(1, 2), (2, 1)]).matrix.shape
    (2, 2)
    """
    net = order_parameter.architecture
    names, kept = check_dropped(net.heads, dropped)
    outputs = order_parameter.n_outputs
    layers = []
    for layer, U in enumerate(order_parameter.layers):
        above = [head for head in names if head[0] > layer]
        mask = kept_paths(net.heads[layer:], [(lower - layer, head) for lower, head in above])
        index = np.flatnonzero(np.repeat(mask, outputs))
        layers.append(U[np.ix_(index, index)])
    smaller = Architecture(tuple(int(left.sum()) for left in kept), net.widths, net.variances)
    return OrderParameter(
        tuple(layers),
        order_parameter.readout,
        smaller,
        temperature=order_parameter.temperature,
        message="cut from a larger network" if names else order_parameter.message,
    )


def fine_tune(
    network: PathNetwork,
    xi: ArrayLike,
    y: ArrayLike,
    strength: float = 1.0,
    *,
    iterations: int | None = None,
) -> PathNetwork:
    """Fit the weights that are left to data again, staying near where they are.

    Minimises ``sum_mu (f(x_mu) - y_mu)^2 + strength * n |v - v_now|^2`` over the n weights v that
    are left, in units in which ``f = v . xi`` (`PathNetwork.weights` times `PathNetwork.scale`);
    attention stays as it is. This is what gradient descent on linear values does when stopped
    early, without its steps: `strength` takes their place.

    Parameters
    ----------
    network : PathNetwork
        Usually with heads dropped.
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the data to fit, all paths of the whole network.
    y : array_like, shape (P,)
        Labels.
    strength : float
        How strongly the weights are held.
    iterations : int, optional
        Bound on the iterations of the solver (LSMR); default until it is exact.

    Returns
    -------
    PathNetwork
        With new weights.

    Raises
    ------
    ValueError
        If shapes disagree or `strength` is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> xi = np.random.default_rng(0).normal(size=(8, 4, 3))
    >>> y = np.resize([1.0, -1.0], 8)
    >>> pruned = PathNetwork(np.ones((4, 3)), (2, 2)).drop([(1, 2)])
    >>> tuned = fine_tune(pruned, xi, y, strength=0.01)
    >>> bool(np.square(tuned.predict(xi) - y).sum() < np.square(pruned.predict(xi) - y).sum())
    True
    """
    strength = as_positive("strength", strength)
    xi = as_array("xi", xi, ("P", *network.weights.shape))
    y = as_array("y", y, (len(xi),))
    kept = network.kept
    left = xi[:, kept].reshape(len(xi), -1)
    left *= left.shape[1] ** -0.5
    step = lsmr(
        left,
        y - network.predict(xi),
        damp=np.sqrt(strength),
        atol=1e-10,
        btol=1e-10,
        maxiter=None if iterations is None else as_count("iterations", iterations),
    )[0]
    step *= left.shape[1] ** -0.5 / network.scale
    weights = network.weights.copy()
    weights[kept] += step.reshape(-1, weights.shape[1])
    return replace(network, weights=weights, order_parameter=None)


# -- criteria ----------------------------------------------------------------------------------

Criterion = Callable[[Any, Array, Array], Scores]


def theory_criterion(
    widths: float | Sequence[float],
    temperature: float,
    *,
    variances: float | Sequence[float] = 1.0,
) -> Criterion:
    """Criterion: `head_scores` of the theory's order parameter at a chosen width.

    Parameters
    ----------
    widths : float or sequence of float
        See `attnpaths.Architecture`.
    temperature : float
        Variance of the label noise.
    variances : float or sequence of float
        See `attnpaths.Architecture`.

    Returns
    -------
    callable
        ``(network, xi, y) -> scores``; it solves for U on (xi, y) and reads only ``network.heads``.

    Examples
    --------
    >>> import numpy as np
    >>> xi, y = np.random.default_rng(0).normal(size=(8, 4, 3)), np.resize([1.0, -1.0], 8)
    >>> network = PathNetwork(np.ones((4, 3)), (2, 2))
    >>> scores = theory_criterion(10, 0.1)(network, xi, y)
    >>> [layer.shape for layer in scores]
    [(2,), (2,)]
    """

    def criterion(network: Network, xi: Array, y: Array) -> Scores:
        architecture = Architecture(network.heads, widths, variances)
        return head_scores(solve_order_parameter(xi, y, architecture, temperature))

    return criterion


def empirical_criterion(network: PathNetwork, xi: Array, y: Array) -> Scores:
    """Criterion: `head_scores` of the network's own, empirical order parameter.

    Parameters
    ----------
    network : PathNetwork
    xi, y : ndarray
        Not used: weights alone count.

    Returns
    -------
    list of ndarray

    Examples
    --------
    >>> import numpy as np
    >>> network = PathNetwork(np.diag([2.0, 1.0]), (2,))
    >>> empirical_criterion(network, np.ones((1, 2, 2)), np.ones(1))
    [array([1.  , 0.25])]
    """
    assert network.order_parameter is not None
    return head_scores(network.order_parameter, Architecture(network.heads, 1))


def gradient_criterion(network: PathNetwork, xi: ArrayLike, y: ArrayLike) -> Scores:
    """Criterion: head importance by gradients (Michel, Levy and Neubig 2019).

    With a gate g on each head's output, all gates at 1, the importance is the mean over examples
    of ``|d loss / d g|``; the loss is ``(f - y)^2``. As they advise, each layer's scores are
    divided by the layer's Euclidean norm.

    Parameters
    ----------
    network : PathNetwork
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the data to judge by.
    y : array_like, shape (P,)
        Labels.

    Returns
    -------
    list of ndarray

    Raises
    ------
    ValueError
        If shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> network = PathNetwork(np.diag([3.0, 4.0]), (2,))
    >>> gradient_criterion(network, np.ones((1, 2, 2)), np.ones(1))
    [array([0.6, 0.8])]
    """
    added = network.contributions(xi)
    y = as_array("y", y, (len(added),))
    slope = np.abs(2 * (added.sum(axis=1) - y))
    scores = []
    for uses in _uses(network.heads):
        importance = (slope[:, None] * np.abs(added @ uses.T)).mean(axis=0)
        scores.append(importance / max(np.linalg.norm(importance), np.finfo(float).tiny))
    return scores


def magnitude_criterion(network: PathNetwork, xi: Array, y: Array) -> Scores:
    """Criterion: norm of a head's parameters.

    Parameters
    ----------
    network : PathNetwork
        Its ``magnitudes`` if it has them, else the norm of the effective weights of all paths
        through the head.
    xi, y : ndarray
        Not used: weights alone count.

    Returns
    -------
    list of ndarray

    Examples
    --------
    >>> import numpy as np
    >>> network = PathNetwork(np.diag([3.0, 4.0]), (2,))
    >>> magnitude_criterion(network, np.ones((1, 2, 2)), np.ones(1))
    [array([3., 4.])]
    """
    if network.magnitudes is not None:
        return [np.array(layer) for layer in network.magnitudes]
    squares = np.where(network.kept, np.sum(network.weights**2, axis=1), 0.0)
    return [np.sqrt(uses @ squares) for uses in _uses(network.heads)]


def random_criterion(seed: int | np.random.Generator | None = None) -> Criterion:
    """Criterion: no knowledge at all, a random number a head.

    Parameters
    ----------
    seed : int or numpy Generator
        Source of randomness; a Generator gives new scores with every call.

    Returns
    -------
    callable
        ``(network, xi, y) -> scores``.

    Examples
    --------
    >>> import numpy as np
    >>> network = PathNetwork(np.ones((6, 3)), (2, 3))
    >>> [layer.shape for layer in random_criterion(seed=0)(network, None, None)]
    [(2,), (3,)]
    """
    rng = np.random.default_rng(seed)

    def criterion(network: Network, xi: Any, y: Any) -> Scores:
        return [rng.random(count) for count in network.heads]

    return criterion


def measured_drop_criterion(network: Network, xi: Any, y: ArrayLike) -> Scores:
    """Criterion: accuracy lost on (xi, y) when this head alone is dropped.

    Parameters
    ----------
    network : Network
        Anything that can drop heads and predict.
    xi : array_like
        Inputs that ``network.predict`` takes.
    y : array_like, shape (P,)
        Labels, +1 or -1.

    Returns
    -------
    list of ndarray
        Fractions (0.05 is five points of accuracy); infinite for a layer's only head.

    Raises
    ------
    ValueError
        If shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> xi = np.random.default_rng(0).normal(size=(200, 2, 2))
    >>> network = PathNetwork(np.diag([2.0, 0.0]), (2,))
    >>> y = np.sign(network.predict(xi))
    >>> useful, useless = measured_drop_criterion(network, xi, y)[0]
    >>> bool(useful > 0.3), float(useless)
    (True, 0.0)
    """
    y = as_array("y", y, ("P",))
    whole = _correct(network, xi, y).mean()
    scores = []
    for layer, count in enumerate(network.heads, start=1):
        lost = np.full(count, np.inf)
        if count > 1:
            for head in range(1, count + 1):
                lost[head - 1] = whole - _correct(network.drop([(layer, head)]), xi, y).mean()
        scores.append(lost)
    return scores


# -- pruning curves ----------------------------------------------------------------------------


class PruningCurve(NamedTuple):
    """Accuracy after dropping a growing number of heads.

    Attributes
    ----------
    order : list of (layer, head)
        Heads in the order in which they were dropped, counted from 1.
    dropped : ndarray of int, shape (n,)
        How many heads were dropped; starts at 0.
    accuracy, lower, upper : ndarray, shape (n,)
        Fraction of examples classified right, and Wilson's confidence interval.
    correct : ndarray of bool, shape (n, P')
        Example by example, for paired comparisons of curves on the same examples.

    Examples
    --------
    >>> import numpy as np
    >>> xi = np.random.default_rng(0).normal(size=(200, 3, 3))
    >>> network = PathNetwork(np.diag([2.0, 0.1, 0.1]), (3,))
    >>> curve = pruning_curve(network, [[1.0, 0.2, 0.1]], xi, np.sign(xi[:, 0, 0]))
    >>> curve.order, curve.dropped, curve.correct.shape
    ([(1, 3), (1, 2)], array([0, 1, 2]), (3, 200))
    >>> bool((curve.lower <= curve.accuracy).all() and (curve.accuracy <= curve.upper).all())
    True
    """

    order: list[Head]
    dropped: Array
    accuracy: Array
    lower: Array
    upper: Array
    correct: Array


def pruning_order(scores: Sequence[ArrayLike]) -> list[Head]:
    """Order in which heads are dropped: lowest score first, the last head of a layer never.

    Parameters
    ----------
    scores : sequence of array_like
        One array a layer; infinite scores are allowed.

    Returns
    -------
    list of (layer, head)
        Counted from 1; one head a layer is missing from it.

    Raises
    ------
    ValueError
        If a score is NaN.

    Examples
    --------
    >>> pruning_order([[0.2, 1.0], [0.1, 0.3, 0.6]])
    [(2, 1), (1, 1), (2, 2)]
    """
    layers = _as_scores("scores", scores, None)
    left = [len(layer) for layer in layers]
    named = [
        (score, layer, head)
        for layer, values in enumerate(layers, start=1)
        for head, score in enumerate(values, start=1)
    ]
    order = []
    for _, layer, head in sorted(named):
        if left[layer - 1] > 1:
            left[layer - 1] -= 1
            order.append((layer, head))
    return order


def pruning_curve(
    network: Network,
    scores: Criterion | Sequence[ArrayLike],
    inputs: Any,
    y: ArrayLike,
    *,
    calibration: tuple[Any, Any] | None = None,
    fine_tune: Callable[[Any], Network] | None = None,
    steps: int | None = None,
    confidence: float = 0.95,
) -> PruningCurve:
    """Drop heads one after the other, lowest score first, and measure what is left.

    Parameters
    ----------
    network : Network
        `PathNetwork`, `TheoryPredictor`, `attnpaths.adapters.TorchModel` or alike.
    scores : callable or sequence of array_like
        A criterion, which is called with `calibration`, or scores, one array a layer.
    inputs : array_like
        Test inputs as ``network.predict`` takes them, say path inputs (P', Pi, N0) of all paths.
    y : array_like, shape (P',)
        Test labels, +1 or -1.
    calibration : (inputs, y), optional
        Data that the criterion may look at; needed with a criterion. It should not be test data.
    fine_tune : callable, optional
        Applied to each pruned network before it is measured.
    steps : int, optional
        Heads to drop at most; default all but one a layer.
    confidence : float
        Level of the confidence intervals.

    Returns
    -------
    PruningCurve

    Raises
    ------
    ValueError
        If a criterion comes without calibration data, shapes disagree, or labels are not +1 or -1.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> network = PathNetwork(np.diag([2.0, 0.1, 0.1]), (3,))
    >>> xi = rng.normal(size=(200, 3, 3))
    >>> curve = pruning_curve(network, magnitude_criterion, xi, np.sign(xi[:, 0, 0]),
    ...                       calibration=(xi, np.sign(xi[:, 0, 0])))
    >>> curve.order, float(curve.accuracy[-1])
    ([(1, 2), (1, 3)], 1.0)
    """
    y = as_array("y", y, ("P'",))
    if not np.isin(y, (-1, 1)).all():
        raise ValueError(f"y must hold the classes +1 and -1, got {np.unique(y)[:5]}")
    if callable(scores):
        if calibration is None:
            raise ValueError(
                "calibration must be given with a criterion: (inputs, y) that it may look at, got "
                "None"
            )
        scores = scores(network, *calibration)
    order = pruning_order(_as_scores("scores", scores, network.heads))
    if steps is not None:
        order = order[: as_count("steps", steps, 0)]
    correct = [_correct(network, inputs, y)]
    for count in range(1, len(order) + 1):
        smaller = network.drop(order[:count])
        if fine_tune is not None:
            smaller = fine_tune(smaller)
        correct.append(_correct(smaller, inputs, y))
    results = np.array(correct)
    lower, upper = wilson_interval(results.sum(axis=1), len(y), confidence)
    return PruningCurve(order, np.arange(len(results)), results.mean(axis=1), lower, upper, results)


def wilson_interval(
    successes: ArrayLike, trials: int, confidence: float = 0.95
) -> tuple[Array, Array]:
    """Wilson's confidence interval of a fraction.

    Parameters
    ----------
    successes : array_like of int
        Numbers of successes.
    trials : int
        Out of how many.
    confidence : float
        Level, between 0 and 1.

    Returns
    -------
    lower, upper : ndarray
        Shaped like `successes`.

    Raises
    ------
    ValueError
        If there are more successes than trials, or the level is not between 0 and 1.
    """
    from scipy.stats import binomtest  # loads as long as all the rest: only when it is needed

    counts = as_array("successes", successes)
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence!r}")
    trials = as_count("trials", trials)
    if counts.max() > trials or counts.min() < 0:
        raise ValueError(f"successes must be between 0 and trials ({trials}), got {counts.max():g}")
    bounds = [
        binomtest(int(count), trials).proportion_ci(confidence, method="wilson")
        for count in counts.ravel()
    ]
    lower = np.array([bound.low for bound in bounds]).reshape(counts.shape)
    upper = np.array([bound.high for bound in bounds]).reshape(counts.shape)
    return lower, upper


def _correct(network: Network, inputs: Any, y: Array) -> Array:
    """Which examples a network classifies right; output zero counts as class -1."""
    output = as_array("output", network.predict(inputs), (len(y),))
    return (output > 0) == (y > 0)


def _as_scores(
    name: str, scores: Sequence[ArrayLike], heads: tuple[int, ...] | None
) -> list[Array]:
    """Check one array of numbers a layer; infinite ones may pass, NaN not."""
    if not np.iterable(scores) or len(scores) == 0:
        raise ValueError(f"{name} must hold one array a layer, got {scores!r}")
    if heads is not None and len(scores) != len(heads):
        raise ValueError(f"{name} must hold {len(heads)} arrays, one a layer, got {len(scores)}")
    layers = [
        as_array(
            f"{name}[{index}]", layer, ("H",) if heads is None else (heads[index],), finite=False
        )
        for index, layer in enumerate(scores)
    ]
    if any(np.isnan(layer).any() for layer in layers):
        raise ValueError(f"{name} must not be NaN")
    return layers


class RankCorrelation(NamedTuple):
    """Spearman's rank correlation of two scores, averaged over networks.

    Attributes
    ----------
    correlation : float
        Mean over networks.
    each : ndarray
        Of each network.
    p_value : float
        Chance of a mean at least as large (one-sided) when heads are permuted in each network.

    Examples
    --------
    >>> result = rank_correlation([[[1, 2, 3]], [[1, 2, 3]]], [[[0, 1, 2]], [[2, 1, 0]]])
    >>> result.each.round(12), result.correlation
    (array([ 1., -1.]), 0.0)
    >>> result.p_value > 0.3
    True
    """

    correlation: float
    each: Array
    p_value: float


def rank_correlation(
    scores: Sequence[Sequence[ArrayLike]],
    lost: Sequence[Sequence[ArrayLike]],
    *,
    permutations: int = 10_000,
    seed: int | np.random.Generator | None = 0,
) -> RankCorrelation:
    """Do heads with a higher score lose more? Rank correlation with a permutation test.

    Parameters
    ----------
    scores : sequence of (sequence of array_like)
        For each network, its scores, one array a layer.
    lost : sequence of (sequence of array_like)
        For each network, what each head's drop costs, alike.
    permutations : int
        Random permutations of the heads within each network.
    seed : int or numpy Generator
        Source of randomness.

    Returns
    -------
    RankCorrelation

    Raises
    ------
    ValueError
        If the two do not match, or a network has fewer than three heads or no variation.

    Examples
    --------
    >>> result = rank_correlation([[[1, 2], [3, 4]]], [[[0.1, 0.2], [0.3, 0.4]]])
    >>> round(result.correlation, 12), 0.03 < result.p_value < 0.05  # one of 24 orders
    (1.0, True)
    """
    from scipy.stats import rankdata

    permutations = as_count("permutations", permutations)
    if len(scores) != len(lost) or not len(scores):
        raise ValueError(f"lost must be for {len(scores)} networks like scores, got {len(lost)}")
    rng = np.random.default_rng(seed)
    each, null = [], np.zeros(permutations)
    for index, (first, second) in enumerate(zip(scores, lost, strict=True)):
        a = np.concatenate(_as_scores(f"scores[{index}]", first, None))
        b = np.concatenate(_as_scores(f"lost[{index}]", second, None))
        if len(a) != len(b) or len(a) < 3:
            raise ValueError(
                f"lost[{index}] must name {max(len(a), 3)} heads (at least three), got {len(b)}"
            )
        ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (a, b)]
        norms = [np.linalg.norm(rank) for rank in ranks]
        if min(norms) == 0:
            raise ValueError(f"scores[{index}] and lost[{index}] must vary between heads")
        a, b = (rank / norm for rank, norm in zip(ranks, norms, strict=True))
        each.append(a @ b)
        null += rng.permuted(np.tile(b, (permutations, 1)), axis=1) @ a
    null /= len(each)
    mean = float(np.mean(each))
    # The observed order is one of the permutations.
    p_value = (1 + np.count_nonzero(null >= mean - 1e-12)) / (permutations + 1)
    return RankCorrelation(mean, np.array(each), float(p_value))
