"""Sweeps of the theory over widths, temperatures, seeds and heads.

`sweep` runs over the grid on several processes (joblib) or a cluster (joblib's Dask backend), keeps
every point on disk as it is done, and picks up where it was stopped. The table is a pandas
DataFrame with one row a point: the order parameters of different heads have different sizes, so
that a labelled array (xarray) would be ragged, and questions asked of a sweep are selections and
averages of rows.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import time
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import product
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import joblib
import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import attnpaths
from attnpaths._files import atomic_path
from attnpaths._validation import Array, as_array, as_count, as_positive
from attnpaths.order_parameter import (
    Architecture,
    ConvergenceWarning,
    OrderParameter,
    check_problem,
    gp_order_parameter,
    solve_order_parameter,
)
from attnpaths.predictor import predict
from attnpaths.tasks.hidden_markov import (
    HiddenMarkovChain,
    four_path_heads,
    sample_path_inputs,
    two_path_heads,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["HiddenMarkovProblem", "SweepData", "sweep"]

# Part of every cache key: raise it when the meaning of a stored point changes.
FORMAT = 1
_SOLUTION_FIELDS = ("action", "energy", "entropy", "converged", "gradient_norm", "evaluations")
_NOT_STORED = ("heads", "width", "order_parameter")
COLUMNS = (
    *("heads", "seed", "width", "temperature"),
    *("accuracy", "mean_squared_error"),
    *_SOLUTION_FIELDS,
    *("seconds", "order_parameter"),
)


class SweepData(NamedTuple):
    """One problem of a sweep.

    Attributes
    ----------
    xi : ndarray, shape (P, Pi, N0)
        Path inputs of the training set.
    y : ndarray, shape (P,) or (P, m)
        Labels; for accuracies +1 and -1, or one output a class.
    xi_test, y_test : ndarray
        The same of the test set.
    heads : tuple of int
        Heads a layer.

    Examples
    --------
    >>> import numpy as np
    >>> def two_paths(seed, heads):
    ...     rng = np.random.default_rng(seed)
    ...     xi, y = rng.normal(size=(30, 2, 4)), np.resize([1.0, -1.0], 30)
    ...     xi[:, 0, 0] += y
    ...     return SweepData(xi[:20], y[:20], xi[20:], y[20:], heads=(2,))
    >>> table = sweep(
    ...     two_paths, widths=[10, 100], temperatures=[0.1], seeds=[0, 1], progress=False
    ... )
    >>> len(table), bool(table["converged"].all())
    (4, True)
    """

    xi: Array
    y: Array
    xi_test: Array
    y_test: Array
    heads: tuple[int, ...]


@dataclass(frozen=True)
class HiddenMarkovProblem:
    """The hidden Markov chain task as a problem of `sweep`.

    Heads are named: "four_paths" and "two_paths" (Figure 2 of the paper), "good" (the good path
    alone), "good_denoising" (the good and the denoising path of the four). A seed draws the data
    and the random heads, which are the same for "four_paths" and "good_denoising".

    Parameters
    ----------
    task : HiddenMarkovChain
        Settings of the task.
    examples, test_examples : int
        Sizes of training and test set.

    Examples
    --------
    >>> problem = HiddenMarkovProblem(examples=10, test_examples=5)
    >>> problem(0, "four_paths").xi.shape
    (10, 4, 231)
    """

    task: HiddenMarkovChain = field(default_factory=HiddenMarkovChain)
    examples: int = 100
    test_examples: int = 1000

    def __call__(self, seed: int, heads: Hashable) -> SweepData:
        """Data of one seed through the heads of one name."""
        if heads not in HIDDEN_MARKOV_HEADS:
            raise ValueError(
                f"heads must be one of {', '.join(map(repr, HIDDEN_MARKOV_HEADS))}, got {heads!r}"
            )
        network, paths, counts = HIDDEN_MARKOV_HEADS[heads]
        xi, y, xi_test, y_test = _draw_hidden_markov(self, seed, network)
        return SweepData(xi[:, paths], y, xi_test[:, paths], y_test, counts)


# Which network's path inputs, which of its paths, and the heads a layer of what is left.
HIDDEN_MARKOV_HEADS: dict[Hashable, tuple[str, list[int], tuple[int, ...]]] = {
    "four_paths": ("four_paths", [0, 1, 2, 3], (2, 2)),
    "good_denoising": ("four_paths", [0, 2], (2, 1)),
    "good": ("four_paths", [0], (1, 1)),
    "two_paths": ("two_paths", [0, 1], (2, 1)),
}


@lru_cache(maxsize=1)
def _draw_hidden_markov(
    problem: HiddenMarkovProblem, seed: int, network: str
) -> tuple[Array, Array, Array, Array]:
    """Training and test set of one seed; the last is kept, to look at it through other heads."""
    # Independent streams, so that data do not depend on which heads look at them.
    train, test, weights = map(np.random.default_rng, np.random.SeedSequence(seed).spawn(3))
    task = problem.task
    layers = four_path_heads(task, weights) if network == "four_paths" else two_path_heads(task)
    return (
        *sample_path_inputs(task, layers, problem.examples, train),
        *sample_path_inputs(task, layers, problem.test_examples, test),
    )


def sweep(
    problem: Callable[[int, Any], SweepData | Sequence[Any]],
    *,
    widths: Iterable[float],
    temperatures: Iterable[float],
    seeds: Iterable[int] = (0,),
    heads: Iterable[Hashable] = ("default",),
    variances: float | Sequence[float] = 1.0,
    cache: str | Path | None = None,
    n_jobs: int | None = None,
    warm_start: bool = False,
    tol: float = 1e-8,
    progress: bool = True,
) -> pd.DataFrame:
    """Solve and test the theory on a grid of heads, seeds, widths and temperatures.

    Parameters
    ----------
    problem : callable
        ``problem(seed, heads)`` returns a `SweepData` (or the same five values as a tuple). It must
        be picklable and determined by its arguments: a function of a module, or an instance such as
        `HiddenMarkovProblem`.
    widths : iterable of float
        Widths N, all layers alike; infinity is the infinite-width (GP) limit.
    temperatures : iterable of float
        Variances of the label noise.
    seeds : iterable of int
        Passed to `problem`.
    heads : iterable of hashable
        Passed to `problem`: names, or whatever it understands and JSON can write.
    variances : float or sequence of float
        Prior variances, see `attnpaths.Architecture`.
    cache : path, optional
        Folder that keeps each point as it is done. A second call with the same problem takes what
        is there, so that a stopped sweep goes on. Worker machines of a cluster need not see it.
    n_jobs : int, optional
        Workers, as for joblib (-1: all cores). Default: joblib's, one, or what
        ``joblib.parallel_config`` says. With ``parallel_config(backend="dask")`` and a Dask
        client the same call runs on its cluster.
    warm_start : bool
        Whether each point starts from the solution beside it (from wide to narrow within a
        temperature), not from the infinite-width limit. Several times faster on large problems;
        where the action has more than one minimum it may follow another one.
    tol : float
        See `attnpaths.solve_order_parameter`.
    progress : bool
        Whether to show a progress bar with the time left.

    Returns
    -------
    pandas.DataFrame
        One row a point, in the order heads, seed, temperature, width as given. Columns: ``heads,
        seed, width, temperature``; ``accuracy`` (sign, or largest output) and
        ``mean_squared_error`` on the test set; ``action, energy, entropy, converged, gradient_norm,
        evaluations, seconds``; ``order_parameter``, an `attnpaths.OrderParameter` without its data.

    Raises
    ------
    ValueError
        If an argument is wrong or `problem` cannot be sent to a worker.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths.tasks.hidden_markov import HiddenMarkovChain
    >>> problem = HiddenMarkovProblem(HiddenMarkovChain(length=8, dimension=10), 20, 30)
    >>> table = sweep(problem, widths=[10, np.inf], temperatures=[0.1], heads=["good"],
    ...               progress=False)
    >>> table["width"].tolist()
    [10.0, inf]
    """
    pandas = _pandas()
    if not callable(problem):
        raise ValueError(f"problem must be a callable, got {type(problem).__name__}")
    settings = _Settings(
        _unique("widths", widths, _as_width),
        _variances(variances),
        as_positive("tol", tol),
        bool(warm_start),
    )
    places = list(
        product(
            _unique("heads", heads, _as_key),
            _unique("seeds", seeds, lambda name, value: as_count(name, value, 0)),
            _unique("temperatures", temperatures, as_positive),
        )
    )
    store = None if cache is None else _Store(Path(cache), problem, settings)
    known = [{} if store is None else store.load(*place) for place in places]
    done = sum(map(len, known))
    unfinished = [n for n, rows in enumerate(known) if len(rows) < len(settings.widths)]
    unfinished.sort(key=lambda n: places[n][1])  # a seed's data serve all heads that look at them
    parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    # Several workers share the cores: one thread of linear algebra each.
    threads = 1 if effective_n_jobs(n_jobs) > 1 else None
    tasks = (
        delayed(_solve_row)(problem, settings, *places[n], known[n], threads, n) for n in unfinished
    )
    with tqdm(
        total=len(places) * len(settings.widths),
        initial=done,
        desc="sweep",
        unit="point",
        disable=not progress,
    ) as bar:
        for n, rows in parallel(tasks):
            if store is not None:
                for row in rows.values():
                    store.save(row)
            known[n].update(rows)
            bar.update(len(rows))
    table = [known[n][width] for n in range(len(places)) for width in settings.widths]
    lost = sum(not row["converged"] for row in table)
    if lost:
        warnings.warn(
            f"{lost} of {len(table)} points are not a minimum of the action; see the column "
            "'converged'",
            ConvergenceWarning,
            stacklevel=2,
        )
    return pandas.DataFrame(table, columns=list(COLUMNS))


def _pandas() -> Any:
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "a sweep's table needs pandas: pip install 'attnpaths[sweeps]'", name="pandas"
        ) from error
    return pandas


class _Settings(NamedTuple):
    """What all points share."""

    widths: tuple[float, ...]
    variances: float | tuple[float, ...]
    tol: float
    warm_start: bool


def _unique(name: str, values: Any, check: Callable[[str, Any], Any]) -> tuple[Any, ...]:
    if isinstance(values, str) or not np.iterable(values):
        raise ValueError(f"{name} must be a list, got {values!r}")
    checked = tuple(check(name, value) for value in values)
    if not checked:
        raise ValueError(f"{name} must not be empty")
    if len(set(checked)) < len(checked):
        raise ValueError(f"{name} must not repeat values, got {checked}")
    return checked


def _as_width(name: str, value: Any) -> float:
    width = np.inf if isinstance(value, Real) and value == np.inf else as_positive(name, value)
    if width < 1:
        raise ValueError(f"{name} must be at least 1, got {value!r}")
    return float(width)


def _variances(value: Any) -> float | tuple[float, ...]:
    if np.ndim(value) == 0:
        return as_positive("variances", value)
    return tuple(as_positive("variances", entry) for entry in value)


def _as_key(name: str, value: Any) -> Hashable:
    try:
        hash(value)
        json.dumps(value)
    except TypeError as error:
        raise ValueError(
            f"{name} must be names, numbers or tuples of them, got {value!r}"
        ) from error
    return value


def _solve_row(
    problem: Callable[[int, Any], Any],
    settings: _Settings,
    head: Any,
    seed: int,
    temperature: float,
    known: dict[float, dict[str, Any]],
    threads: int | None,
    place: int,
) -> tuple[int, dict[float, dict[str, Any]]]:
    """Solve the widths of one row that are not known yet, from wide to narrow."""
    with threadpool_limits(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # told by the caller, and in the table
        data = _load(problem, seed, head)
        rows: dict[float, dict[str, Any]] = {}
        previous = None
        for width in sorted(settings.widths, reverse=True):
            if width not in known:
                started = time.perf_counter()
                start = previous if settings.warm_start else None
                solution = _solve_point(data, width, temperature, settings, start)
                scores = _scores(data, solution, temperature)
                rows[width] = {
                    "heads": head,
                    "seed": seed,
                    "width": width,
                    "temperature": temperature,
                    **scores,
                    **{name: getattr(solution, name) for name in _SOLUTION_FIELDS},
                    "seconds": time.perf_counter() - started,
                    "order_parameter": solution,
                }
            previous = (rows if width in rows else known)[width]["order_parameter"]
    return place, rows


def _load(problem: Callable[[int, Any], Any], seed: int, head: Any) -> SweepData:
    """Data of a problem; the last is kept, since a worker gets several rows of it in turn."""
    try:
        identity = joblib.hash((problem, seed, head))
    except Exception:  # a lambda, say: it works where it is, without memory
        return _check_data(problem(seed, head))
    if _last.get("identity") != identity:
        _last.update(identity=identity, data=_check_data(problem(seed, head)))
    return _last["data"]


_last: dict[str, Any] = {}


def _check_data(data: Any) -> SweepData:
    if not isinstance(data, (tuple, list)) or len(data) != len(SweepData._fields):
        raise ValueError(
            f"problem must return {', '.join(SweepData._fields)}, got {type(data).__name__}"
        )
    xi, y, xi_test, y_test, heads = data
    network = Architecture(heads, 1)
    xi, _, _, _ = check_problem(xi, y, network, 1.0)
    y = as_array("y", y)
    xi_test = as_array("xi_test", xi_test, ("P'", *xi.shape[1:]))
    return SweepData(
        xi, y, xi_test, as_array("y_test", y_test, (len(xi_test), *y.shape[1:])), network.heads
    )


def _solve_point(
    data: SweepData,
    width: float,
    temperature: float,
    settings: _Settings,
    start: OrderParameter | None,
) -> OrderParameter:
    if np.isinf(width):
        outputs = 1 if data.y.ndim == 1 else data.y.shape[1]
        return gp_order_parameter(Architecture(data.heads, 1, settings.variances), outputs)
    network = Architecture(data.heads, width, settings.variances)
    solution = solve_order_parameter(
        data.xi, data.y, network, temperature, start=start, tol=settings.tol
    )
    return replace(solution, _data=None)  # the data are the problem's, not the point's


def _scores(data: SweepData, solution: OrderParameter, temperature: float) -> dict[str, float]:
    mean = predict(data.xi, data.y, data.xi_test, solution, temperature).mean
    if mean.ndim == 2:
        right = mean.argmax(axis=1) == data.y_test.argmax(axis=1)
    else:
        right = (mean > 0) == (data.y_test > 0)
    classes = mean.ndim == 2 or bool(np.all(np.abs(data.y_test) == 1))
    return {
        "accuracy": float(right.mean()) if classes else np.nan,
        "mean_squared_error": float(np.mean((mean - data.y_test) ** 2)),
    }


class _Store:
    """Points of a sweep on disk, one .npz each, named by what determines the point."""

    def __init__(self, folder: Path, problem: Any, settings: _Settings) -> None:
        self.folder, self.settings = folder, settings
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(f"cache must be a folder, got {str(folder)!r} ({error})") from error
        try:
            identity = joblib.hash(problem)
        except Exception as error:
            raise ValueError(
                "problem must be picklable to be cached: a function of a module or an instance of "
                f"its class, got {problem!r}"
            ) from error
        code = problem if inspect.isroutine(problem) else type(problem)
        try:
            source = inspect.getsource(code)
        except (OSError, TypeError):
            source = ""
        self.problem = [identity, source]

    def path(self, head: Any, seed: int, temperature: float, width: float) -> Path:
        """File of a point. Warm-started points depend on the wider ones before them."""
        settings = self.settings
        wider = [w for w in settings.widths if w > width] if settings.warm_start else None
        key = json.dumps(
            [
                FORMAT,
                attnpaths.__version__,
                *self.problem,
                settings.variances,
                settings.tol,
                head,
                seed,
                temperature,
                width,
                wider and sorted(wider),
            ]
        )
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.npz"

    def load(self, head: Any, seed: int, temperature: float) -> dict[float, dict[str, Any]]:
        """Known points of one row; damaged files count as not there."""
        rows = {}
        for width in self.settings.widths:
            try:
                with np.load(self.path(head, seed, temperature, width), allow_pickle=False) as file:
                    row = json.loads(str(file["row"]))
                    heads, widths, variances = json.loads(str(file["architecture"]))
                    layers = tuple(file[f"U_{l}"] for l in range(1, len(heads) + 1))  # noqa: E741
                    readout = file["readout"]
            except Exception:  # missing, or damaged in any way: to be computed
                continue
            row = {name: np.nan if value is None else value for name, value in row.items()}
            solution = OrderParameter(
                layers,
                float(readout) if readout.ndim == 0 else readout,
                Architecture(heads, widths, variances),
                **{name: row[name] for name in _SOLUTION_FIELDS},
                message=row.pop("message"),
                temperature=temperature,
            )
            rows[width] = row | {"heads": head, "width": width, "order_parameter": solution}
        return rows

    def save(self, row: dict[str, Any]) -> None:
        """Write one point; a reader sees it whole or not at all."""
        solution: OrderParameter = row["order_parameter"]
        network = solution.architecture
        plain = {name: value for name, value in row.items() if name not in _NOT_STORED}
        plain["message"] = solution.message
        plain = {
            name: None if isinstance(value, float) and np.isnan(value) else value
            for name, value in plain.items()
        }
        arrays = {f"U_{l}": U for l, U in enumerate(solution.layers, 1)}  # noqa: E741
        path = self.path(*(row[name] for name in ("heads", "seed", "temperature", "width")))
        with atomic_path(path) as temporary:
            np.savez(
                temporary,
                allow_pickle=False,
                row=json.dumps(plain),
                architecture=json.dumps([network.heads, network.widths, network.variances]),
                readout=solution.readout,
                **arrays,
            )
