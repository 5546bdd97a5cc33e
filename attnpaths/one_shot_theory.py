"""The theory on trained heads of the one-shot task, and the results of it that are stored.

`task_path_inputs` sends tasks through trained heads; `solve_grid` solves the theory on a grid of
widths and temperatures, each point started from the one before; `Grid.chosen` picks the temperature
of each width by validation accuracy, by evidence, or, as the paper's code does, on the test set.

What takes longer than a chapter may is stored in the package (`attnpaths.stored`) and made again by

    python -m attnpaths.one_shot_theory grid
    python -m attnpaths.one_shot_theory sampling
    python -m attnpaths.one_shot_theory pruning 2x8_seed0
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import ArrayLike
from scipy.linalg import cho_factor, cho_solve
from scipy.special import softmax
from tqdm import tqdm

import attnpaths
from attnpaths._files import check_output, read_arrays, write_result
from attnpaths._threads import one_blas_thread
from attnpaths._validation import Array, as_array, as_choice, as_count, as_positive
from attnpaths.kernels import kernel
from attnpaths.order_parameter import (
    Architecture,
    OrderParameter,
    gp_order_parameter,
    solve_order_parameter,
)
from attnpaths.pruning import (
    Criterion,
    PathNetwork,
    PruningCurve,
    TheoryPredictor,
    empirical_criterion,
    fine_tune,
    gradient_criterion,
    head_scores,
    magnitude_criterion,
    measured_drop_criterion,
    pruning_curve,
    random_criterion,
)
from attnpaths.stored import STORED, load_stored
from attnpaths.tasks.one_shot import (
    CHANNELS,
    FEATURES,
    TOKENS,
    DataUnavailableError,
    Images,
    Tasks,
    available_images,
    draw_tasks,
    load_images,
    token_table,
)
from attnpaths.trained import TrainedHeads, load_trained_heads

__all__ = [
    "TEMPERATURES",
    "WIDTHS",
    "Grid",
    "StoredGrids",
    "TaskSet",
    "draw_set",
    "load_grids",
    "out_of_distribution_images",
    "solve_grid",
    "task_path_inputs",
]

WIDTHS = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)
TEMPERATURES = (0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5)
CRITERIA = ("validation", "evidence", "test")


class TaskSet(NamedTuple):
    """Tasks as the theory sees them.

    Attributes
    ----------
    xi : ndarray, shape (P, Pi, N0)
        Path inputs.
    y : ndarray, shape (P,)
        +1 if the query is of class 1, else -1.

    Examples
    --------
    >>> from attnpaths.tasks.one_shot import load_images
    >>> from attnpaths.trained import load_trained_heads
    >>> images, trained = load_images("digits", "test"), load_trained_heads("2x4_seed0")
    >>> xi, y = draw_set(trained, "test", size=6, images=images)
    >>> xi.shape, y.shape
    ((6, 16, 192), (6,))
    """

    xi: Array
    y: Array


@dataclass(frozen=True)
class Grid:
    """The theory on a grid of widths and temperatures.

    Attributes
    ----------
    widths : ndarray, shape (n,)
        Widths N; infinity, the GP limit, comes last.
    temperatures : ndarray, shape (m,)
        Variances of the label noise.
    accuracy : dict of str to ndarray, shape (n, m)
        Of the mean predictor on each data set.
    log_evidence : ndarray, shape (n, m)
        Logarithm of p(y) of the training labels to leading order in the width.
    order_parameters : ndarray, shape (n, m, Pi, Pi)
        U_1 at each point.
    evaluations : ndarray of int, shape (n, m)
        Evaluations that each solve took.
    converged : ndarray of bool, shape (n, m)
        Whether each solve reached the needed gradient.

    Examples
    --------
    >>> grid = load_grids("grid_2x4_seed0").grids[0]
    >>> grid.accuracy["test"].shape == (len(grid.widths), len(grid.temperatures))
    True
    >>> narrow = grid.order_parameters[0, grid.chosen("validation")[0]]
    >>> narrow.shape, float(grid.widths[0]), float(grid.widths[-1])
    ((16, 16), 10.0, inf)
    """

    widths: Array
    temperatures: Array
    accuracy: dict[str, Array]
    log_evidence: Array
    order_parameters: Array
    evaluations: Array
    converged: Array

    def chosen(self, by: str = "validation") -> Array:
        """For each width, the index of the temperature chosen.

        Parameters
        ----------
        by : {"validation", "evidence", "test"}
            What is largest at the chosen temperature: accuracy on validation tasks, the evidence of
            the training labels, or accuracy on the very test tasks (too good by design).

        Returns
        -------
        ndarray of int, shape (n,)

        Raises
        ------
        ValueError
            If `by` is another word, or the grid was not evaluated on that set.

        Examples
        --------
        >>> grid = load_grids("grid_2x4_seed0").grids[0]
        >>> grid.temperatures[grid.chosen("evidence")].shape == grid.widths.shape
        True
        """
        as_choice("by", by, CRITERIA)
        if by != "evidence" and by not in self.accuracy:
            raise ValueError(
                f"by must be a set that was evaluated, {list(self.accuracy)}, got {by!r}"
            )
        return np.nanargmax(self.log_evidence if by == "evidence" else self.accuracy[by], axis=1)

    def chosen_accuracy(self, by: str = "validation", on: str = "test") -> Array:
        """Accuracy on the set `on` at the chosen temperatures, shape (n,); see `chosen`.

        Examples
        --------
        >>> grid = load_grids("grid_2x4_seed0").grids[0]
        >>> best, honest = grid.chosen_accuracy(by="test"), grid.chosen_accuracy(by="validation")
        >>> bool((honest <= best).all())
        True
        """
        if on not in self.accuracy:
            raise ValueError(f"on must be one of {list(self.accuracy)}, got {on!r}")
        return self.accuracy[on][np.arange(len(self.widths)), self.chosen(by)]


def task_path_inputs(
    images: Images,
    tasks: Tasks,
    queries: Sequence[ArrayLike],
    keys: Sequence[ArrayLike],
    embedding: ArrayLike,
    *,
    batch: int = 64,
) -> Array:
    """Path inputs of one-shot tasks: softmax attention, mean over tokens.

    Equal to `attnpaths.path_inputs` of `attnpaths.tasks.one_shot.task_tokens` with
    `attnpaths.query_key_attention`, several times faster: a token is 64 pixels in three equal
    channels plus a fixed table, so that the scores need 64 numbers a token and not 192.

    Parameters
    ----------
    images : Images
        From `attnpaths.tasks.one_shot.load_images`.
    tasks : Tasks
        From `attnpaths.tasks.one_shot.draw_tasks`.
    queries, keys : sequence of array_like, each (H_l, G, 192)
        One array a layer.
    embedding : array_like, shape (3, 192)
        Of the labels.
    batch : int
        Tasks at once.

    Returns
    -------
    ndarray, shape (P, Pi, 192)

    Raises
    ------
    ValueError
        If shapes disagree.

    Examples
    --------
    >>> from attnpaths.tasks.one_shot import draw_tasks, load_images
    >>> from attnpaths.trained import load_trained_heads
    >>> images, trained = load_images("digits", "test"), load_trained_heads("2x4_seed0")
    >>> tasks = draw_tasks(0, 6, images)
    >>> task_path_inputs(images, tasks, trained.queries, trained.keys, trained.embedding).shape
    (6, 16, 192)
    """
    table = token_table(embedding)
    basis = np.concatenate([CHANNELS, table.T], axis=1)  # (192, 64 + 48)
    layers = []
    for index, (q, k) in enumerate(zip(queries, keys, strict=True)):
        q = as_array(f"queries[{index}]", q, ("H", "G", FEATURES))
        k = as_array(f"keys[{index}]", k, q.shape)
        layers.append((q @ basis).swapaxes(1, 2) @ (k @ basis) / np.sqrt(q.shape[1]))
    pixels = CHANNELS.shape[1]
    paths = int(np.prod([len(scores) for scores in layers]))
    found = images.patches
    result = np.empty((len(tasks.y), paths, FEATURES))
    for start in range(0, len(result), as_count("batch", batch)):
        part = slice(start, start + batch)
        p = found[tasks.classes[part], tasks.drawings[part]].reshape(-1, TOKENS, pixels)
        p = p.astype(np.float64)
        rows = np.full((len(p), 1, TOKENS), 1 / TOKENS)
        for scores in reversed(layers):
            # Score of query t, key s: (p_t, e_t) S (p_s, e_s), e the unit vector of the position.
            mixed = p[:, None] @ scores[:, :pixels] + scores[:, pixels:]  # (P, H, T, 64 + 48)
            logits = mixed[..., :pixels] @ p[:, None].swapaxes(2, 3) + mixed[..., pixels:]
            attention = softmax(logits, axis=-1)
            rows = (rows[:, None] @ attention).reshape(len(p), -1, TOKENS)
        result[part] = np.repeat(rows @ p, 3, axis=-1) + rows @ table
    return result


def solve_grid(
    xi: ArrayLike,
    y: ArrayLike,
    heads: Sequence[int],
    *,
    evaluate: Mapping[str, tuple[ArrayLike, ArrayLike]],
    widths: Sequence[float] = WIDTHS,
    temperatures: Sequence[float] = TEMPERATURES,
    variances: float | Sequence[float] = 1.0,
    tol: float = 1e-6,
    progress: bool = True,
) -> Grid:
    """Solve the theory on a grid and measure its accuracy.

    Each width goes from the highest temperature to the lowest, each solve starting from the one
    before: high temperatures are nearest to the GP limit, where the first starts.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the training tasks.
    y : array_like, shape (P,)
        Labels, +1 or -1.
    heads : sequence of int
        Heads a layer.
    evaluate : mapping of str to (xi, y)
        Sets to measure the accuracy on.
    widths, temperatures : sequence of float
        The grid; the GP limit is added to the widths.
    variances : float or sequence of float
        Prior variances, see `attnpaths.Architecture`.
    tol : float
        See `attnpaths.solve_order_parameter`.
    progress : bool
        Whether to show a bar with the time left.

    Returns
    -------
    Grid

    Raises
    ------
    ValueError
        If shapes disagree or a value is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> xi, y = np.random.default_rng(0).normal(size=(30, 4, 5)), np.resize([1.0, -1.0], 30)
    >>> xi[:, 0, 0] += y
    >>> test = xi[20:], y[20:]
    >>> grid = solve_grid(
    ...     xi[:20],
    ...     y[:20],
    ...     (2, 2),
    ...     evaluate={"test": test},
    ...     widths=[10, 100],
    ...     temperatures=[0.1, 1.0],
    ...     progress=False,
    ... )
    >>> grid.widths, grid.accuracy["test"].shape
    (array([ 10., 100.,  inf]), (3, 2))
    """
    architecture = Architecture(heads, 1, variances)
    xi = as_array("xi", xi, ("P", architecture.paths, "N0"))
    y = as_array("y", y, (len(xi),))
    sets = {
        name: TaskSet(
            as_array(f"evaluate[{name!r}]", inputs, ("P'", *xi.shape[1:])), as_array("y", labels)
        )
        for name, (inputs, labels) in evaluate.items()
    }
    sizes = np.array(sorted(as_positive("widths", width) for width in widths))
    noises = np.array(sorted(as_positive("temperatures", value) for value in temperatures))
    shape = (len(sizes) + 1, len(noises))
    accuracy = {name: np.empty(shape) for name in sets}
    log_evidence, evaluations = np.empty(shape), np.zeros(shape, dtype=int)
    converged = np.ones(shape, dtype=bool)
    order_parameters = np.empty((*shape, architecture.paths, architecture.paths))
    bar = tqdm(total=log_evidence.size, desc="grid", unit="point", disable=not progress)
    for i, width in enumerate([*sizes, np.inf]):
        previous: OrderParameter | None = None
        for j in reversed(range(len(noises))):
            temperature = float(noises[j])
            if np.isinf(width):
                solution = gp_order_parameter(architecture)
            else:
                solution = previous = solve_order_parameter(
                    xi,
                    y,
                    architecture.with_widths(width),
                    temperature,
                    start=previous,
                    tol=tol,
                    check_minimum=False,
                )
            log_evidence[i, j] = _log_evidence(xi, y, solution, temperature)
            order_parameters[i, j] = solution.matrix
            evaluations[i, j], converged[i, j] = solution.evaluations, solution.converged
            network = PathNetwork.from_theory(xi, y, solution, temperature)
            for name, (inputs, labels) in sets.items():
                accuracy[name][i, j] = np.mean((network.predict(inputs) > 0) == (labels > 0))
            bar.update()
    bar.close()
    return Grid(
        np.append(sizes, np.inf),
        noises,
        accuracy,
        log_evidence,
        order_parameters,
        evaluations,
        converged,
    )


def _log_evidence(xi: Array, y: Array, solution: OrderParameter, temperature: float) -> float:
    """Log p(y) to leading order: the action above the prior's, which is least at the GP point."""
    network = solution.architecture
    if np.isfinite(solution.action):
        entropy = max(network.widths) * solution.entropy - _prior_entropy(network)
        energy = max(network.widths) * solution.energy
    else:  # the GP limit
        K = kernel(xi, solution.matrix, variance=network.variances[0])
        K[np.diag_indices_from(K)] += temperature
        factor = cho_factor(K, lower=True)
        logdet = 2 * np.log(np.diagonal(factor[0])).sum()
        entropy, energy = 0.0, logdet + y @ cho_solve(factor, y)
    return float(-0.5 * (energy + entropy + len(y) * np.log(2 * np.pi)))


def _prior_entropy(network: Architecture) -> float:
    """Entropy at its minimum, the GP point, not divided by the width."""
    sizes = network.sizes()
    value, total = network.variances[-1], network.widths[-1] * (1 - np.log(network.variances[-1]))
    above = value
    for layer in reversed(range(network.layers)):
        size = sizes[layer]
        here = above * network.variances[layer + 1]
        total += network.widths[layer] * size * (1 - np.log(here) + np.log(above))
        above = here
    return float(total)


# -- data sets ---------------------------------------------------------------------------------

# Streams of random numbers of one draw: far from those that training uses.
STREAMS = {"training": 101, "validation": 102, "test": 103, "ood": 104, "fine_tuning": 105}
SIZES = {"training": 600, "validation": 1000, "test": 1000}
SPLITS = {"training": "train", "validation": "validation", "test": "test", "fine_tuning": "train"}


def draw_set(
    trained: TrainedHeads,
    part: str,
    seed: int = 0,
    size: int | None = None,
    images: Images | None = None,
) -> TaskSet:
    """Draw one-shot tasks and send them through trained heads.

    Parameters
    ----------
    trained : TrainedHeads
        From `attnpaths.trained.load_trained_heads`.
    part : {"training", "validation", "test", "fine_tuning", "ood"}
        What the tasks are for; each has characters and random numbers of its own ("fine_tuning"
        shares its characters with "training").
    seed : int
        Number of the draw.
    size : int, optional
        Number of tasks, half of each answer; default the paper's.
    images : Images, optional
        Default: Omniglot's if they can be had, else scikit-learn's digits.

    Returns
    -------
    TaskSet

    Raises
    ------
    ValueError
        If `part` is another word.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths.tasks.one_shot import load_images
    >>> from attnpaths.trained import load_trained_heads
    >>> images, trained = load_images("digits", "test"), load_trained_heads("2x4_seed0")
    >>> xi, y = draw_set(trained, "test", size=6, images=images)
    >>> xi.shape, float(y.sum())
    ((6, 16, 192), 0.0)
    """
    as_choice("part", part, tuple(STREAMS))
    if images is None:
        if part == "ood":
            raise ValueError("images must be given for tasks out of distribution, got None")
        images = available_images(SPLITS[part])
    size = SIZES.get(part, 1000) if size is None else size
    tasks = draw_tasks([as_count("seed", seed, 0), STREAMS[part]], size, images, balanced=True)
    xi = task_path_inputs(images, tasks, trained.queries, trained.keys, trained.embedding)
    return TaskSet(xi, tasks.y)


def out_of_distribution_images(*, download: bool = True) -> dict[str, Images]:
    """Image sets whose classes 0 and 1 the heads have never seen, as far as they can be had.

    Parameters
    ----------
    download : bool
        Whether the network may be used.

    Returns
    -------
    dict of str to Images
        Digits always; MNIST and Fashion-MNIST from a folder or a download.

    Examples
    --------
    >>> found = out_of_distribution_images(download=False)
    >>> found["digits"].classes.tolist()
    [0, 1]
    """
    found = {}
    for name in ("mnist", "fashion_mnist", "digits"):
        try:
            found[name] = load_images(name, "test", download=download).select([0, 1])
        except DataUnavailableError:
            continue
    return found


# -- stored results ----------------------------------------------------------------------------


def grid_of_draw(
    trained: TrainedHeads,
    seed: int,
    *,
    widths: Sequence[float] = WIDTHS,
    temperatures: Sequence[float] = TEMPERATURES,
    tol: float = 1e-6,
    progress: bool = True,
) -> tuple[Grid, dict[str, float]]:
    """Grid of one draw of training, validation and test tasks.

    Parameters
    ----------
    trained : TrainedHeads
        The heads.
    seed : int
        Number of the draw.
    widths, temperatures, tol
        See `solve_grid`.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    grid : Grid
        Evaluated on validation and test tasks and on those out of distribution.
    trained_accuracy : dict of str to float
        Accuracy of the trained network itself on the same tasks.
    """
    xi, y = draw_set(trained, "training", seed)
    sets = {part: draw_set(trained, part, seed) for part in ("validation", "test")}
    for name, images in out_of_distribution_images().items():
        sets[name] = draw_set(trained, "ood", seed, images=images)
    network = trained.path_network()
    reached = {
        name: float(np.mean((network.predict(part.xi) > 0) == (part.y > 0)))
        for name, part in sets.items()
    }
    grid = solve_grid(
        xi,
        y,
        trained.heads,
        evaluate=sets,
        widths=widths,
        temperatures=temperatures,
        tol=tol,
        progress=progress,
    )
    return grid, reached


def make_grids(
    name: str,
    draws: Sequence[int],
    folder: Path,
    *,
    n_jobs: int | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Compute the grids of several draws, each kept in `folder` as it is done.

    The first draw is solved to a gradient of 1e-6. The others, which are for error bars of
    accuracies, stop at 1e-4.

    Parameters
    ----------
    name : str
        Of trained heads.
    draws : sequence of int
        Numbers of the draws.
    folder : path
        Where finished draws are kept; a second call goes on from there.
    n_jobs : int, optional
        Draws at once, each in a process of its own with one thread of BLAS; by default as many as
        there are processors.
    progress : bool
        Whether to show a bar with the time left.

    Returns
    -------
    dict of str to ndarray
        What `load_grids` reads.
    """
    trained = load_trained_heads(name)
    folder.mkdir(parents=True, exist_ok=True)
    # Draws of other heads of this name, trained longer or shorter, must not be taken for these.
    stem = f"{Path(name).stem}_{trained.digest}"
    paths = {seed: folder / f"{stem}_draw{seed}.npz" for seed in draws}
    missing = [seed for seed in draws if not paths[seed].exists()]
    n_jobs = min(effective_n_jobs(-1 if n_jobs is None else n_jobs), max(len(missing), 1))
    tasks = (
        delayed(_store_draw)(
            trained, seed, 1e-6 if seed == draws[0] else 1e-4, paths[seed], progress and n_jobs == 1
        )
        for seed in missing
    )
    done = Parallel(n_jobs=n_jobs, return_as="generator_unordered")(tasks)
    bar = tqdm(done, total=len(missing), desc="draws", unit="draw", disable=not progress)
    for _ in bar:  # each is written as it comes
        pass
    parts = [read_arrays([path]) for path in paths.values()]
    merged = {
        key: np.stack([part[key] for part in parts])
        for key in parts[0]
        if key not in (*AXES, "order_parameters")
    }
    merged["order_parameters"] = parts[0]["order_parameters"].astype(np.float32)
    about = {
        "command": f"python -m attnpaths.one_shot_theory grid {name} --draws {len(parts)}",
        "images": available_images("test").name,
        "sizes": SIZES,
        "draws": list(draws),
        **_about(name, trained),
    }
    return {**merged, **{key: parts[0][key] for key in AXES}, "about": json.dumps(about)}


AXES = ("widths", "temperatures")


def _store_draw(trained: TrainedHeads, seed: int, tol: float, path: Path, progress: bool) -> None:
    """Compute one draw's grid and write it."""
    started = time.perf_counter()
    with one_blas_thread():
        grid, reached = grid_of_draw(trained, seed, tol=tol, progress=progress)
    result = {
        "seconds": time.perf_counter() - started,
        "widths": grid.widths,
        "temperatures": grid.temperatures,
    }
    for field in ("log_evidence", "order_parameters", "evaluations", "converged"):
        result[field] = getattr(grid, field)
    result |= {f"accuracy_{key}": value for key, value in grid.accuracy.items()}
    result |= {f"trained_{key}": value for key, value in reached.items()}
    write_result(path, result)


def _about(name: str, trained: TrainedHeads) -> dict[str, Any]:
    keys = ("command", "seed", "steps", "best_step", "accuracies")
    return {
        "network": Path(name).stem,
        "training": {key: trained.metadata.get(key) for key in keys},
        "attnpaths": attnpaths.__version__,
    }


class StoredGrids(NamedTuple):
    """Grids of several draws, as stored.

    Attributes
    ----------
    grids : list of Grid
        One a draw; all with the order parameters of the first.
    trained : dict of str to ndarray, shape (draws,)
        Accuracy of the trained network on each draw's tasks.
    seconds : ndarray, shape (draws,)
        What each draw took where it was computed.
    about : dict
        Command, network and settings.

    Examples
    --------
    >>> stored = load_grids("grid_2x4_seed0")
    >>> stored.about["network"], len(stored.grids) == len(stored.trained["test"])
    ('2x4_seed0', True)
    """

    grids: list[Grid]
    trained: dict[str, Array]
    seconds: Array
    about: dict[str, Any]


def load_grids(path: str | Path) -> StoredGrids:
    """Read the grids that ``python -m attnpaths.one_shot_theory grid`` has stored.

    Parameters
    ----------
    path : path or str
        An .npz file, or the name of a stored result, see `attnpaths.stored.stored_names`.

    Returns
    -------
    StoredGrids

    Raises
    ------
    ValueError
        If there is neither such a file nor such a name, or the file is damaged or holds something
        else.

    Examples
    --------
    >>> grids = load_grids("grid_2x4_seed0").grids
    >>> [accuracy.shape for accuracy in (grids[0].accuracy["test"], grids[0].log_evidence)]
    [(11, 10), (11, 10)]
    """
    arrays = read_arrays([path]) if Path(path).suffix == ".npz" else load_stored(str(path))
    try:
        about = json.loads(str(arrays["about"]))
        names = [key[len("accuracy_") :] for key in arrays if key.startswith("accuracy_")]
        grids = [
            Grid(
                arrays["widths"],
                arrays["temperatures"],
                {name: arrays[f"accuracy_{name}"][draw] for name in names},
                arrays["log_evidence"][draw],
                arrays["order_parameters"].astype(np.float64),
                np.full(arrays["log_evidence"][draw].shape, arrays["evaluations"][draw]),
                np.full(arrays["log_evidence"][draw].shape, arrays["converged"][draw]),
            )
            for draw in range(len(arrays["log_evidence"]))
        ]
        trained = {name: arrays[f"trained_{name}"] for name in names}
        return StoredGrids(grids, trained, arrays["seconds"], about)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"{path} does not hold stored grids: {error}") from error


def sample_draw(
    trained: TrainedHeads,
    width: int,
    temperature: float,
    *,
    seed: int = 0,
    draws: int = 300,
    warmup: int = 100,
    chains: int = 4,
    n_jobs: int | None = None,
    checkpoint: Path | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Sample the exact finite-width posterior on one draw of training tasks.

    Parameters
    ----------
    trained : TrainedHeads
        The heads.
    width : int
        Width N of all layers.
    temperature : float
        Variance of the label noise.
    seed : int
        Number of the draw, and seed of the sampler.
    draws, warmup, chains, n_jobs, checkpoint, progress
        See `attnpaths.sample_posterior`.

    Returns
    -------
    dict of str to ndarray
        Mean and standard deviation of U_1 (``U``, ``U_sd``), of the theory (``U_theory``),
        accuracies on test tasks, and the sampler's diagnostics.
    """
    from attnpaths.posterior import sample_posterior

    training, test = (draw_set(trained, part, seed) for part in ("training", "test"))
    architecture = Architecture(trained.heads, width)
    solution = solve_order_parameter(*training, architecture, temperature)
    posterior = sample_posterior(
        *training,
        architecture,
        temperature,
        draws=draws,
        warmup=warmup,
        chains=chains,
        seed=seed,
        n_jobs=n_jobs,
        checkpoint=checkpoint,
        progress=progress,
    )
    summary = posterior.summary()
    U = posterior.order_parameter.reshape(-1, *solution.matrix.shape)
    mean = posterior.predict(test.xi, max_draws=200).mean
    theory = PathNetwork.from_theory(*training, solution, temperature)
    return {
        "width": width,
        "temperature": temperature,
        "U": U.mean(axis=0).astype(np.float32),
        "U_sd": U.std(axis=0).astype(np.float32),
        "U_theory": solution.matrix.astype(np.float32),
        "accuracy": np.mean((mean > 0) == (test.y > 0)),
        "accuracy_theory": _accuracy(theory, test),
        "same_answer": np.mean((mean > 0) == (theory.predict(test.xi) > 0)),
        "ess": float(summary["ess_bulk"].min()),
        "r_hat": float(summary["r_hat"].max()),
        "draws": U.shape[0],
        "steps": float(np.mean(posterior.n_steps)),
    }


# -- pruning -----------------------------------------------------------------------------------

PRUNING_TEMPERATURES = (1.0, 0.5, 0.25, 0.1)
RANDOM_ORDERS = 20


def pruning_study(
    trained: TrainedHeads,
    *,
    seed: int = 0,
    widths: Sequence[float] = (10, 100),
    sizes: Mapping[str, int] | None = None,
    resolve: bool = False,
    tune: bool = True,
    progress: bool = True,
) -> dict[str, Any]:
    """Compare criteria for pruning a trained network.

    Scores may look at training tasks (the theory) or validation tasks (all others); accuracies are
    measured on test tasks. The theory's temperature is the one of best validation accuracy.

    Parameters
    ----------
    trained : TrainedHeads
        The network.
    seed : int
        Number of the draw of tasks.
    widths : sequence of float
        Widths N at which the theory is asked; the first one's solution also makes the predictor
        that loses heads itself.
    sizes : mapping of str to int, optional
        Numbers of tasks: training, validation, test, fine_tuning.
    resolve : bool
        Whether the theory is also solved again after each drop.
    tune : bool
        Whether to repeat the curves with `attnpaths.pruning.fine_tune` after each drop.
    progress : bool
        Whether to show a bar.

    Returns
    -------
    dict
        Numbers, texts and lists, as `attnpaths.pruning` names them; JSON can hold it.
    """
    sizes = {
        "training": 600,
        "validation": 2000,
        "test": 4000,
        "fine_tuning": 4000 if len(trained.weights) <= 32 else 1000,  # costs tasks times paths
        **(sizes or {}),
    }
    network = trained.path_network()
    sets = {
        part: draw_set(trained, part, seed, sizes[part])
        for part in STREAMS
        if part != "ood" and (tune or part != "fine_tuning")
    }
    (xi, y), test = sets["training"], sets["test"]
    bar = tqdm(
        total=len(widths) * len(PRUNING_TEMPERATURES) + (len(widths) + 4) * (1 + tune),
        desc="pruning",
        disable=not progress,
    )
    scores: dict[str, list[Array]] = {}
    theory: dict[str, Any] = {}
    solution: OrderParameter | None = None
    for width in widths:
        best, previous = -1.0, None
        for temperature in PRUNING_TEMPERATURES:
            previous = solve_order_parameter(
                xi,
                y,
                Architecture(trained.heads, width),
                temperature,
                start=previous,
                tol=1e-5,
                check_minimum=False,
            )
            predictor = PathNetwork.from_theory(xi, y, previous, temperature)
            found = _accuracy(predictor, sets["validation"])
            bar.update()
            if found > best:
                best, chosen = found, previous
                theory[f"{width:g}"] = {
                    "temperature": temperature,
                    "validation": found,
                    "test": _accuracy(predictor, test),
                }
        scores[f"theory, N = {width:g}"] = head_scores(chosen)
        solution = chosen if solution is None else solution
    others: dict[str, Criterion] = {
        "empirical U": empirical_criterion,
        "gradient": gradient_criterion,
        "magnitude": magnitude_criterion,
        "measured drop": measured_drop_criterion,
    }
    for name, criterion in others.items():
        scores[name] = criterion(network, *sets["validation"])
    lost = measured_drop_criterion(network, *test)
    steps = sum(trained.heads) - len(trained.heads)
    curves, tuned = {}, {}
    for name, values in scores.items():
        curves[name] = pruning_curve(network, values, *test)
        bar.update()
    if tune:
        data = sets["fine_tuning"]
        for name, values in scores.items():
            tuned[name] = pruning_curve(
                network,
                values,
                *test,
                fine_tune=lambda smaller: fine_tune(smaller, *data, iterations=30),
            )
            bar.update()
    by_chance = random_criterion(seed)
    random = np.array(
        [
            pruning_curve(network, by_chance(network, xi, y), *test).accuracy
            for _ in range(RANDOM_ORDERS)
        ]
    )
    reference = curves[next(iter(curves))]
    result = {
        "heads": list(trained.heads),
        "sizes": dict(sizes),
        "seed": seed,
        "images": available_images("test").name,
        "theory": theory,
        "scores": {name: [layer.tolist() for layer in layers] for name, layers in scores.items()},
        "lost": [layer.tolist() for layer in lost],
        "curves": {name: _curve(curve, reference) for name, curve in curves.items()},
        "fine_tuned": {
            name: _curve(curve, tuned[next(iter(tuned))]) for name, curve in tuned.items()
        },
        "random": random.round(5).tolist(),
        "theory_itself": {},
    }
    assert solution is not None
    temperature = theory[f"{widths[0]:g}"]["temperature"]
    for name, again in (("cut", False), ("solved again", True))[: 1 + resolve]:
        losing = TheoryPredictor(xi, y, solution, temperature, again)
        curve = pruning_curve(losing, head_scores(solution), *test, steps=steps)
        result["theory_itself"][name] = _curve(curve, curve)
    bar.close()
    return result


def _accuracy(network: PathNetwork, data: TaskSet) -> float:
    return float(np.mean((network.predict(data.xi) > 0) == (data.y > 0)))


def _curve(curve: PruningCurve, reference: PruningCurve) -> dict[str, Any]:
    """A curve for JSON, with the paired difference to another on the same tasks."""
    difference = curve.correct.astype(float) - reference.correct
    return {
        "order": [list(head) for head in curve.order],
        "accuracy": curve.accuracy.round(5).tolist(),
        "lower": curve.lower.round(5).tolist(),
        "upper": curve.upper.round(5).tolist(),
        "difference": difference.mean(axis=1).round(5).tolist(),
        "standard_error": (difference.std(axis=1) / np.sqrt(difference.shape[1])).round(5).tolist(),
    }


# -- command line ------------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> None:
    """Make stored results again; see the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="python -m attnpaths.one_shot_theory",
        description="Make again the stored results on trained heads, which the book reads.",
    )
    parser.add_argument("what", choices=("grid", "sampling", "pruning"))
    parser.add_argument("network", nargs="?", default="2x4_seed0", help="name or .npz of heads")
    parser.add_argument("--draws", type=int, default=10, help="draws of training tasks (grid)")
    parser.add_argument("--jobs", type=int, help="draws at once (grid); default all processors")
    parser.add_argument("--resolve", action="store_true", help="solve again after drops (pruning)")
    parser.add_argument(
        "--out", type=Path, default=STORED, help="folder of the result; default the package's own"
    )
    parser.add_argument(
        "--cache", type=Path, default=Path("runs/theory"), help="folder of what is done already"
    )
    parser.add_argument(
        "--widths", type=int, nargs="+", default=(10, 100), help="widths to sample (sampling)"
    )
    parser.add_argument("--chains", type=int, default=2, help="Markov chains (sampling)")
    parser.add_argument("--kept", type=int, default=160, help="draws kept a chain (sampling)")
    parser.add_argument("--warmup", type=int, default=80, help="draws before those (sampling)")
    arguments = parser.parse_args(argv)
    name, stem = arguments.network, Path(arguments.network).stem
    kind = "json" if arguments.what == "pruning" else "npz"
    try:
        output = check_output(arguments.out / f"{arguments.what}_{stem}.{kind}")
    except OSError as error:
        parser.error(str(error))
    if arguments.what == "grid":
        grids = make_grids(name, range(arguments.draws), arguments.cache, n_jobs=arguments.jobs)
        write_result(output, grids)
    elif arguments.what == "sampling":
        stored = load_grids(arguments.out / f"grid_{stem}.npz").grids[0]
        chosen = dict(zip(stored.widths, stored.temperatures[stored.chosen()], strict=True))
        arguments.cache.mkdir(parents=True, exist_ok=True)
        trained = load_trained_heads(name)
        parts = [
            sample_draw(
                trained,
                width,
                float(chosen[width]),
                draws=arguments.kept,
                warmup=arguments.warmup,
                chains=arguments.chains,
                checkpoint=arguments.cache / f"{stem}_posterior_{width}.npz",
            )
            for width in arguments.widths
        ]
        command = f"python -m attnpaths.one_shot_theory sampling {name}"
        command += f" --chains {arguments.chains} --kept {arguments.kept}"
        command += f" --warmup {arguments.warmup}"
        merged = {key: np.stack([part[key] for part in parts]) for key in parts[0]}
        merged["about"] = np.array(json.dumps({"command": command, **_about(name, trained)}))
        write_result(output, merged)
    else:
        trained = load_trained_heads(name)
        command = f"python -m attnpaths.one_shot_theory pruning {name}"
        command += " --resolve" if arguments.resolve else ""
        study = pruning_study(trained, resolve=arguments.resolve)
        about = {"command": command, **_about(name, trained)}
        write_result(output, {"about": about, **study})


if __name__ == "__main__":
    main()
