"""A scikit-learn estimator over the theory: attention heads in, predictions and head scores out.

`AttentionPathModel` computes the path inputs of its heads, minimises the action, and predicts with
the kernel found. It stands in scikit-learn's tools (`clone`, `GridSearchCV`, pickling); examples
are sequences of tokens, so X has three axes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar
from sklearn.base import BaseEstimator
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from attnpaths._validation import Array, as_array, as_choice, as_positive
from attnpaths.attention import NONLINEARITIES, bilinear_attention, query_key_attention
from attnpaths.order_parameter import Architecture, OrderParameter, solve_order_parameter
from attnpaths.paths import READOUTS, path_inputs
from attnpaths.posterior import laplace_approximation
from attnpaths.predictor import predict
from attnpaths.pruning import head_scores

__all__ = [
    "AttentionPathModel",
    "BilinearAttention",
    "QueryKeyAttention",
    "Target",
    "choose_temperature",
    "encode_target",
]

TASKS = ("auto", "classification", "regression")
# Temperatures tried on the way from warm to cold before the best one is refined.
TEMPERATURES_TRIED = 9
# Up to this many independent entries of the order parameters the Laplace approximation is cheap.
LAPLACE_COORDINATES = 60

Attention = Callable[[Array], Sequence[ArrayLike]]


@dataclass(frozen=True, eq=False)
class BilinearAttention:
    """Attention of heads given as bilinear forms, one array a layer.

    Parameters
    ----------
    weights : sequence of array_like, each (H_l, N0, N0)
        Bilinear forms W of each layer, key on the left, query on the right.
    nonlinearity : {"softmax", "hardmax"}
        See `attnpaths.bilinear_attention`.

    Raises
    ------
    ValueError
        If an array has another shape or is not finite.

    Examples
    --------
    >>> import numpy as np
    >>> attention = BilinearAttention([np.zeros((2, 3, 3)), np.zeros((1, 3, 3))])
    >>> [layer.shape for layer in attention(np.ones((5, 4, 3)))]
    [(5, 2, 4, 4), (5, 1, 4, 4)]
    """

    weights: Sequence[ArrayLike]
    nonlinearity: str = "softmax"

    def __post_init__(self) -> None:
        layers = _layers("weights", self.weights, ("H", "N0", "N0"))
        as_choice("nonlinearity", self.nonlinearity, NONLINEARITIES)
        object.__setattr__(self, "weights", layers)

    def __call__(self, x: ArrayLike) -> list[Array]:
        """Attention arrays (P, H_l, T, T) of tokens `x` (P, T, N0)."""
        return [bilinear_attention(x, w, self.nonlinearity) for w in self.weights]

    def __repr__(self) -> str:
        return f"BilinearAttention(heads={_heads(self.weights)})"


@dataclass(frozen=True, eq=False)
class QueryKeyAttention:
    """Attention of heads given as query and key matrices, one array of each a layer.

    Parameters
    ----------
    queries, keys : sequence of array_like, each (H_l, G_l, N0)
        Query and key matrices of each layer.
    nonlinearity : {"softmax", "hardmax"}
        See `attnpaths.query_key_attention`.

    Raises
    ------
    ValueError
        If an array is not finite or the shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> attention = QueryKeyAttention([np.ones((2, 6, 3))], [np.ones((2, 6, 3))])
    >>> attention(np.ones((5, 4, 3)))[0].shape
    (5, 2, 4, 4)
    """

    queries: Sequence[ArrayLike]
    keys: Sequence[ArrayLike]
    nonlinearity: str = "softmax"

    def __post_init__(self) -> None:
        queries = _layers("queries", self.queries, ("H", "G", "N0"))
        keys = _layers("keys", self.keys, ("H", "G", "N0"))
        if [q.shape for q in queries] != [k.shape for k in keys]:
            raise ValueError(
                f"keys must have the shapes of queries, {[q.shape for q in queries]}, got "
                f"{[k.shape for k in keys]}"
            )
        as_choice("nonlinearity", self.nonlinearity, NONLINEARITIES)
        object.__setattr__(self, "queries", queries)
        object.__setattr__(self, "keys", keys)

    def __call__(self, x: ArrayLike) -> list[Array]:
        """Attention arrays (P, H_l, T, T) of tokens `x` (P, T, N0)."""
        return [
            query_key_attention(x, q, k, self.nonlinearity)
            for q, k in zip(self.queries, self.keys, strict=True)
        ]

    def __repr__(self) -> str:
        return f"QueryKeyAttention(heads={_heads(self.queries)})"


def _layers(name: str, value: Any, shape: tuple[str, ...]) -> tuple[Array, ...]:
    if isinstance(value, np.ndarray) or not np.iterable(value) or isinstance(value, (str, dict)):
        raise ValueError(
            f"{name} must be a list with one array ({', '.join(shape)}) a layer, got "
            f"{type(value).__name__}"
        )
    layers = tuple(as_array(f"{name}[{index}]", layer, shape) for index, layer in enumerate(value))
    if not layers:
        raise ValueError(f"{name} must hold at least one layer, got an empty list")
    return layers


def _heads(layers: Sequence[ArrayLike]) -> tuple[int, ...]:
    return tuple(np.shape(layer)[0] for layer in layers)


class Target(NamedTuple):
    """Labels as the theory needs them: numbers (P,) or (P, m), and the classes they stand for.

    Examples
    --------
    >>> values, classes = encode_target(["cat", "dog", "owl", "dog"])
    >>> values.shape, classes.tolist()
    ((4, 3), ['cat', 'dog', 'owl'])
    """

    values: Array
    classes: Array | None


def encode_target(y: ArrayLike, task: str = "auto") -> Target:
    """Turn labels into the numbers that the theory fits.

    Two classes become -1 and +1. More become one output a class: 1 for the own class and ``-1 / (m
    - 1)`` for each other, so that the outputs of an example add up to zero.

    Parameters
    ----------
    y : array_like, shape (P,) or (P, m)
        Labels: strings, booleans or numbers.
    task : {"auto", "classification", "regression"}
        "auto" takes one column of labels for classes if they are strings, booleans or whole numbers
        of an integer type, or if they take exactly two values; all else are real targets.

    Returns
    -------
    Target
        `values`, and `classes` in sorted order (None for regression).

    Raises
    ------
    ValueError
        If labels are missing or not finite, or a classification has one class only or several
        columns.

    Examples
    --------
    >>> encode_target(["cat", "dog", "cat"]).values
    array([-1.,  1., -1.])
    >>> encode_target([0.5, 1.5, 2.5]).classes is None
    True
    """
    as_choice("task", task, TASKS)
    labels = as_labels(y)
    column = labels.ndim == 1
    named = labels.dtype.kind in "biuUS"
    if task == "auto":
        named_classes = named and (column or labels.dtype.kind in "US")
        two_values = column and len(np.unique(labels)) == 2
        task = "classification" if named_classes or two_values else "regression"
    if task == "regression":
        if labels.dtype.kind in "US":
            raise ValueError(f"y must hold numbers for regression, got dtype {labels.dtype}")
        return Target(as_array("y", labels), None)
    if not column:
        raise ValueError(f"y must have one column for classification, got shape {labels.shape}")
    classes, codes = np.unique(labels, return_inverse=True)
    count = len(classes)
    if count < 2:
        raise ValueError(f"y must hold at least two classes, got only {classes[0]!r}")
    if count == 2:
        return Target(2.0 * codes - 1.0, classes)
    values = np.full((len(codes), count), -1 / (count - 1))
    values[np.arange(len(codes)), codes] = 1.0
    return Target(values, classes)


def as_labels(y: ArrayLike) -> Array:
    """Labels (P,) or (P, m) of a plain type: strings, booleans or finite real numbers."""
    try:
        labels = np.asarray(y)
    except (TypeError, ValueError) as error:
        raise ValueError(f"y must be an array of labels, got {type(y).__name__}") from error
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind == "O":
        labels = _plain(labels)
    if labels.dtype.kind not in "biufUS":
        raise ValueError(f"y must hold strings or real numbers, got dtype {labels.dtype}")
    if labels.size == 0:
        raise ValueError(f"y must not be empty, got shape {labels.shape}")
    if labels.ndim not in (1, 2):
        raise ValueError(f"y must have shape (P,) or (P, m), got shape {labels.shape}")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        bad = int(np.count_nonzero(~np.isfinite(labels)))
        raise ValueError(f"y must be finite, got {bad} NaN or infinite entries")
    return labels


def _plain(labels: Array) -> Array:
    """Object labels (a pandas column of strings, say) as an array of one plain type."""
    kinds = {str if isinstance(entry, str) else type(entry) for entry in labels.flat}
    if len(kinds) > 1 and not all(issubclass(kind, (int, float, np.number)) for kind in kinds):
        names = sorted(kind.__name__ for kind in kinds)
        raise ValueError(f"y must hold labels of one type, got {', '.join(names)}")
    try:
        return np.asarray(labels.tolist())
    except (TypeError, ValueError) as error:
        raise ValueError("y must hold strings or real numbers, got other objects") from error


def choose_temperature(
    xi: ArrayLike,
    y: ArrayLike,
    architecture: Architecture,
    bounds: tuple[float, float],
) -> OrderParameter:
    """Solve at the temperature that maximises the evidence of the labels.

    ``log p(y | T)`` is taken from the Laplace approximation of the exact finite-width posterior
    (`attnpaths.laplace_approximation`). Where that does not exist, for widths that are not whole
    numbers or not above the sizes of the order parameters, or takes long (more than 60 numbers in
    the order parameters), its leading order stands for it: minus half the action's minimum times
    the largest width. Temperatures are tried on a logarithmic grid from warm to cold, each solve
    starting from the last, and the best is refined by Brent's method.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the training set.
    y : array_like, shape (P,) or (P, m)
        Labels.
    architecture : Architecture
        Heads, widths and variances.
    bounds : (float, float)
        Smallest and largest temperature.

    Returns
    -------
    OrderParameter
        The solution; its `temperature` is the one chosen.

    Raises
    ------
    ValueError
        If the bounds are not positive and increasing, or see `attnpaths.solve_order_parameter`.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import Architecture
    >>> xi = np.random.default_rng(0).normal(size=(20, 2, 3))
    >>> y = xi[:, 0, 0] + 0.1 * np.random.default_rng(1).normal(size=20)
    >>> solution = choose_temperature(xi, y, Architecture((2,), 10), (1e-4, 1.0))
    >>> 1e-4 < solution.temperature < 0.1  # noise of variance 0.01
    True
    """
    low, high = _check_bounds("bounds", bounds)

    def solve(log_temperature: float, start: OrderParameter | None) -> OrderParameter:
        temperature = float(np.clip(np.exp(log_temperature), low, high))
        return solve_order_parameter(xi, y, architecture, temperature, start=start)

    grid = np.linspace(np.log(high), np.log(low), TEMPERATURES_TRIED)
    solutions: list[OrderParameter] = []
    for log_temperature in grid:
        solutions.append(solve(log_temperature, solutions[-1] if solutions else None))
    cost = minus_log_evidence if _has_laplace(solutions[0]) else minus_leading_evidence
    costs = [cost(solution) for solution in solutions]
    if not np.isfinite(costs).any():  # no proper minimum at any temperature
        cost = minus_leading_evidence
        costs = [cost(solution) for solution in solutions]
    best = int(np.argmin(costs))
    around = grid[min(best + 1, len(grid) - 1)], grid[max(best - 1, 0)]
    refined = minimize_scalar(
        lambda value: cost(solve(value, solutions[best])),
        bounds=around,
        method="bounded",
        options={"xatol": 1e-3},
    )
    if refined.fun < costs[best]:
        return solve(refined.x, solutions[best])
    return solutions[best]


def _has_laplace(solution: OrderParameter) -> bool:
    """Whether the Laplace approximation exists and is cheap."""
    sizes = solution.architecture.sizes(solution.n_outputs)
    if sum(size * (size + 1) // 2 for size in sizes) > LAPLACE_COORDINATES:
        return False
    return all(
        width.is_integer() and width > size
        for width, size in zip(solution.architecture.widths, sizes, strict=True)
    )


def minus_log_evidence(solution: OrderParameter) -> float:
    """Minus the log evidence in Laplace's approximation; infinite at a point that is no minimum."""
    try:
        return -laplace_approximation(solution).log_evidence
    except np.linalg.LinAlgError:
        return np.inf


def minus_leading_evidence(solution: OrderParameter) -> float:
    """The leading order of minus the log evidence, up to a constant that has no temperature."""
    return 0.5 * solution.action * max(solution.architecture.widths)


def _check_bounds(name: str, bounds: Any) -> tuple[float, float]:
    if not np.iterable(bounds) or isinstance(bounds, str) or len(list(bounds)) != 2:
        raise ValueError(f"{name} must be two temperatures, got {bounds!r}")
    low, high = (as_positive(name, value) for value in bounds)
    if not low < high:
        raise ValueError(f"{name} must increase, got {bounds!r}")
    return low, high


class AttentionPathModel(BaseEstimator):
    """Network of given attention heads and linear values, in the theory's Bayesian limit.

    Parameters
    ----------
    attention : callable
        Maps tokens x (P, T, N0) to a list of attention arrays, one (P, H_l, T, T) a layer. Ready
        ones: `BilinearAttention`, `QueryKeyAttention`. To pickle the model it must be picklable.
    widths : int or sequence of int
        One width for all, or (N_1, ..., N_L, N_a).
    temperature : float or "evidence"
        Variance T of the label noise, or "evidence": the one under which the labels are most
        probable.
    readout : {"mean", "last", "first"}
        How the last layer's tokens are read.
    variances : float or sequence of float
        One prior variance for all, or (s_0^2, ..., s_L^2, s_a^2).
    task : {"auto", "classification", "regression"}
        What `y` holds. "auto": strings, booleans, integers or exactly two values are classes, all
        else are real targets; see `encode_target`.
    temperature_bounds : (float, float)
        Where "evidence" looks, in units of the labels' mean square.

    Attributes
    ----------
    order_parameter_ : OrderParameter
        The minimum of the action on the training set.
    head_scores_ : list of ndarray
        Scores of the heads of each layer, the largest of all 1 (`attnpaths.head_scores`).
    temperature_ : float
        The temperature used.
    classes_ : ndarray
        Classes in sorted order (classification only). Two are told apart by the sign of one output,
        positive for the second; more have one output a class, the largest wins.
    architecture_ : Architecture
        Heads, widths and variances.
    xi_ : ndarray, shape (P, Pi, N0)
        Path inputs of the training set.
    y_ : ndarray, shape (P,) or (P, m)
        Labels as numbers.
    n_features_in_ : int
        Features N0 of a token.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, labels = rng.normal(size=(20, 5, 3)), np.repeat(["hop", "stay"], 10)
    >>> x[:10] += 1.0
    >>> model = AttentionPathModel(BilinearAttention([np.zeros((2, 3, 3))]), 50, 0.1)
    >>> model.fit(x, labels).score(x, labels)
    0.9
    >>> model.classes_.tolist(), [layer.shape for layer in model.head_scores_]
    (['hop', 'stay'], [(2,)])
    """

    def __init__(
        self,
        attention: Attention,
        widths: float | Sequence[float],
        temperature: float | str,
        readout: str = "mean",
        variances: float | Sequence[float] = 1.0,
        *,
        task: str = "auto",
        temperature_bounds: tuple[float, float] = (1e-4, 10.0),
    ) -> None:
        self.attention = attention
        self.widths = widths
        self.temperature = temperature
        self.readout = readout
        self.variances = variances
        self.task = task
        self.temperature_bounds = temperature_bounds

    def fit(self, x: ArrayLike, y: ArrayLike) -> AttentionPathModel:
        """Solve for the order parameter of a training set.

        Parameters
        ----------
        x : array_like, shape (P, T, N0)
            Tokens of each example.
        y : array_like, shape (P,) or (P, m)
            Classes or real targets.

        Returns
        -------
        AttentionPathModel
            Itself, fitted.

        Raises
        ------
        ValueError
            If an argument or a parameter of the constructor is wrong; the message names it.

        Examples
        --------
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(10, 4, 3))
        >>> model = AttentionPathModel(BilinearAttention([np.zeros((2, 3, 3))]), 50, "evidence")
        >>> model.fit(x, x.mean(axis=(1, 2))).order_parameter_.converged
        True
        """
        as_choice("readout", self.readout, READOUTS)
        temperature = None  # to be chosen
        if isinstance(self.temperature, str):
            as_choice("temperature", self.temperature, ("evidence",))
        else:
            temperature = as_positive("temperature", self.temperature)
        low, high = _check_bounds("temperature_bounds", self.temperature_bounds)
        x = as_array("x", x, ("P", "T", "N0"))
        target = encode_target(y, self.task)
        if len(target.values) != len(x):
            raise ValueError(
                f"y must have {len(x)} entries like x, got shape {target.values.shape}"
            )
        xi, heads = self._path_inputs(x)
        network = Architecture(heads, self.widths, self.variances)
        if temperature is None:
            scale = float(np.mean(target.values**2)) or 1.0
            solution = choose_temperature(xi, target.values, network, (low * scale, high * scale))
        else:
            solution = solve_order_parameter(xi, target.values, network, temperature)

        self.xi_, self.y_ = xi, target.values
        if target.classes is not None:
            self.classes_ = target.classes
        elif hasattr(self, "classes_"):
            del self.classes_  # fitted before to classes
        self.architecture_ = network
        self.order_parameter_ = solution
        self.temperature_ = float(solution.temperature)  # type: ignore[arg-type]
        self.head_scores_ = head_scores(solution)
        self.n_features_in_ = x.shape[2]
        return self

    def predict(self, x: ArrayLike, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predict new examples.

        Parameters
        ----------
        x : array_like, shape (P', T, N0)
            Tokens of each example.
        return_std : bool
            Whether to return the output's mean and standard deviation instead of classes.

        Returns
        -------
        prediction : ndarray, shape (P',) or (P', m)
            Classes of a classification, or the output's mean.
        mean, std : ndarray, each (P',) or (P', m)
            With `return_std`, also for a classification: mean and standard deviation of the output
            f, without label noise.

        Raises
        ------
        ValueError
            If x does not fit the training set. scikit-learn's NotFittedError, which is a
            ValueError, before `fit`.

        Examples
        --------
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(10, 4, 3))
        >>> model = AttentionPathModel(BilinearAttention([np.zeros((2, 3, 3))]), 50, 0.1)
        >>> model.fit(x, np.repeat(["hop", "stay"], 5)).predict(x).shape
        (10,)
        >>> mean, std = model.predict(x, return_std=True)
        >>> bool((std > 0).all())
        True
        """
        mean, std = self._output(x)
        return (mean, std) if return_std else self._classes_or_mean(mean)

    def decision_function(self, x: ArrayLike) -> Array:
        """Mean of the output f.

        Parameters
        ----------
        x : array_like, shape (P', T, N0)
            Tokens of each example.

        Returns
        -------
        ndarray, shape (P',) or (P', m)
            For two classes, positive means the second.

        Raises
        ------
        ValueError
            If x does not fit the training set, or the model is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(10, 4, 3))
        >>> model = AttentionPathModel(BilinearAttention([np.zeros((2, 3, 3))]), 50, 0.1)
        >>> f = model.fit(x, np.repeat(["hop", "stay"], 5)).decision_function(x)
        >>> bool(np.array_equal(f > 0, model.predict(x) == "stay"))
        True
        """
        return self._output(x)[0]

    def score(self, x: ArrayLike, y: ArrayLike) -> float:
        """Accuracy of a classification, coefficient of determination R^2 of a regression.

        Parameters
        ----------
        x : array_like, shape (P', T, N0)
            Tokens of each example.
        y : array_like, shape (P',) or (P', m)
            True classes or targets.

        Returns
        -------
        float

        Raises
        ------
        ValueError
            If shapes disagree, or the model is not fitted.

        Examples
        --------
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(10, 4, 3))
        >>> model = AttentionPathModel(BilinearAttention([np.zeros((2, 3, 3))]), 50, 1e-3)
        >>> y = x.mean(axis=(1, 2))
        >>> model.fit(x, y).score(x, y) > 0.99  # R^2, since these are real targets
        True
        """
        prediction = self._classes_or_mean(self._output(x)[0])
        if hasattr(self, "classes_"):
            labels = as_labels(y)
            if labels.shape != (len(prediction),):
                raise ValueError(
                    f"y must have shape ({len(prediction)},) like x, got shape {labels.shape}"
                )
            if (labels.dtype.kind in "OUS") != (prediction.dtype.kind in "OUS"):
                raise ValueError(
                    f"y must hold classes as in fit, {prediction.dtype}, got {labels.dtype}"
                )
            return float(np.mean(labels == prediction))
        labels = as_array("y", y)
        if labels.reshape(len(labels), -1).shape != prediction.reshape(len(prediction), -1).shape:
            raise ValueError(
                f"y must have shape {prediction.shape} like the prediction, got {labels.shape}"
            )
        return float(r2_score(labels, prediction))

    def _output(self, x: ArrayLike) -> tuple[Array, Array]:
        check_is_fitted(self)
        x = as_array("x", x, ("P", "T", self.n_features_in_))
        xi, heads = self._path_inputs(x)
        if heads != self.architecture_.heads:
            raise ValueError(
                f"attention must return {self.architecture_.heads} heads as in fit, got {heads}"
            )
        mean, variance = predict(self.xi_, self.y_, xi, self.order_parameter_, self.temperature_)
        return mean, np.sqrt(variance)

    def _classes_or_mean(self, mean: Array) -> Array:
        if not hasattr(self, "classes_"):
            return mean
        codes = (mean > 0).astype(int) if mean.ndim == 1 else mean.argmax(axis=1)
        return self.classes_[codes]

    def _path_inputs(self, x: Array) -> tuple[Array, tuple[int, ...]]:
        """Path inputs and heads a layer."""
        if not callable(self.attention):
            raise ValueError(
                "attention must be a callable that maps x to a list of attention arrays, got "
                f"{type(self.attention).__name__}"
            )
        layers = self.attention(x)
        if isinstance(layers, np.ndarray) or not np.iterable(layers):
            raise ValueError(
                "attention must return a list with one array (P, H, T, T) a layer, got "
                f"{type(layers).__name__}"
            )
        xi = path_inputs(x, list(layers), self.readout)
        return xi, tuple(np.shape(layer)[1] for layer in layers)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "order_parameter_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        kinds = {"classification": "classifier", "regression": "regressor"}
        # Before fit "auto" is neither; afterwards the labels have told.
        if hasattr(self, "order_parameter_"):
            tags.estimator_type = "classifier" if hasattr(self, "classes_") else "regressor"
        else:
            tags.estimator_type = kinds.get(self.task)
        return tags
