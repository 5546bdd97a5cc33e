"""`python -m attnpaths reproduce`: the paper's figures, their numbers beside ours, and a verdict.

Each figure is one entry of `FIGURES`: a function that computes it (numbers, statements, series to
draw) and one that draws the series. A figure whose inputs are not there (trained heads, images)
says so. What is computed is kept on disk point by point, so that a stopped run can go on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from joblib import Parallel, delayed, effective_n_jobs
from threadpoolctl import threadpool_limits
from tqdm import tqdm

import attnpaths
from attnpaths import reproduce_one_shot as one_shot
from attnpaths._files import atomic_path, to_json
from attnpaths._validation import Array
from attnpaths.kernels import kernel, kernel_task_alignment
from attnpaths.published import published_case
from attnpaths.report import (
    RULE,
    FigureResult,
    MissingInputError,
    Number,
    Statement,
    alignment_entries,
    count_verdicts,
    report_html,
    report_markdown,
)
from attnpaths.sweep import HiddenMarkovProblem, sweep
from attnpaths.tasks.hidden_markov import HiddenMarkovChain, path_labels

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["FIGURES", "Context", "MissingInputError", "draw", "reproduce"]

ABOUT = (
    "Numbers of the paper's figures beside ours. Figure 2 is compared with what the paper's public "
    "reference implementation gives on the paper's settings, one draw of data and heads; Figure 3 "
    "with constants recorded in that implementation."
)
WIDTHS = (10, 30, 50, 100, 300, 500, 1000)
TEMPERATURE = 0.01
SEEDS, SEEDS_QUICK = 20, 5
SAMPLED_WIDTHS = (10, 100, 1000)
SAMPLED_SEEDS, SAMPLED_SEEDS_QUICK = 10, 2


@dataclass
class Context:
    """Settings of a run, and its memory on disk.

    Parameters
    ----------
    folder : path
        Where everything is written.
    quick : bool
        Few seeds and coarse grids: under two minutes.
    seeds : int, optional
        Data seeds of Figure 2; default 20, or 5 if `quick`.
    jobs : int
        Processes.
    draws : int, optional
        Draws of tasks of Figure 3; default 10, or 2 if `quick`.
    heads : path, optional
        Trained heads for Figure 3 b to e; default those that the package ships.
    coarse : bool
        A grid of 3 widths and 3 temperatures for Figure 3, in place of 10 each; `quick` implies it.
    progress : bool
        Whether to show progress.

    Examples
    --------
    >>> from pathlib import Path
    >>> context = Context(Path("runs"), seeds=3)
    >>> context.data_seeds, context.settings("2c"), context.cache.name
    (range(0, 3), {'data seeds': 3}, 'cache')
    """

    folder: Path
    quick: bool = False
    seeds: int | None = None
    jobs: int = 1
    draws: int | None = None
    heads: Path | None = None
    coarse: bool = False
    progress: bool = True
    tables: dict[Any, Any] = field(default_factory=dict, repr=False)

    @property
    def cache(self) -> Path:
        """Folder of finished points."""
        return self.folder / "cache"

    @property
    def data_seeds(self) -> range:
        """Seeds of Figure 2."""
        return range(self.seeds or (SEEDS_QUICK if self.quick else SEEDS))

    def settings(self, name: str) -> dict[str, Any]:
        """What decides the result of one figure, and stands beside it in the report.

        Examples
        --------
        >>> from pathlib import Path
        >>> Context(Path("runs"), quick=True).settings("2c")
        {'data seeds': 5, 'quick': True}
        """
        if name.startswith("2"):
            settings: dict[str, Any] = {"data seeds": len(self.data_seeds)}
            return settings | ({"quick": True} if self.quick else {})
        return one_shot.settings(self, name)

    def markov(self, sigma_perp: float, heads: str, widths: Iterable[float]) -> pd.DataFrame:
        """Theory on the hidden Markov chain task, one row a seed and width.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     context = Context(Path(folder), seeds=1, progress=False)
        ...     table = context.markov(1.0, "good", widths=(10, 100))
        >>> table[["seed", "width"]].values.tolist()
        [[0.0, 10.0], [0.0, 100.0]]
        """
        problem = HiddenMarkovProblem(HiddenMarkovChain(sigma_perp=sigma_perp))
        key = (sigma_perp, heads, tuple(widths))
        if key not in self.tables:
            self.tables[key] = sweep(
                problem,
                widths=key[2],
                temperatures=[TEMPERATURE],
                seeds=self.data_seeds,
                heads=[heads],
                cache=self.cache,
                n_jobs=self.jobs,
                progress=self.progress,
            )
        return self.tables[key]

    def map(
        self, name: str, function: Callable[..., dict[str, Any]], items: Sequence[tuple[Any, ...]]
    ) -> list[dict[str, Array]]:
        """Results of ``function(*item)``, arrays by name, each kept on disk under its item.

        Examples
        --------
        >>> import tempfile
        >>> from pathlib import Path
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     context = Context(Path(folder), progress=False)
        ...     results = context.map("squares", lambda n: {"square": n**2}, [(2,), (3,)])
        ...     len(list(context.cache.glob("squares-*.npz")))  # kept for the next call
        2
        >>> [int(result["square"]) for result in results]
        [4, 9]
        """
        self.cache.mkdir(parents=True, exist_ok=True)
        paths = []
        for item in items:
            key = json.dumps([attnpaths.__version__, name, *item], default=repr)
            paths.append(self.cache / f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:24]}.npz")
        known: dict[int, dict[str, Array]] = {}
        for n, path in enumerate(paths):
            try:
                with np.load(path, allow_pickle=False) as file:
                    known[n] = dict(file)
            except Exception:  # missing, or damaged in any way: to be computed
                continue
        missing = [n for n in range(len(items)) if n not in known]
        threads = 1 if effective_n_jobs(self.jobs) > 1 else None
        results = Parallel(n_jobs=self.jobs, return_as="generator_unordered")(
            delayed(_call)(function, items[n], threads, n) for n in missing
        )
        with tqdm(
            results,
            total=len(items),
            initial=len(known),
            desc=name,
            disable=not self.progress,
        ) as bar:
            for n, result in bar:
                known[n] = {key: np.asarray(value) for key, value in result.items()}
                with atomic_path(paths[n]) as temporary:
                    np.savez(temporary, allow_pickle=False, **known[n])
        return [known[n] for n in range(len(items))]


def _call(
    function: Callable[..., dict[str, Any]], item: tuple[Any, ...], threads: int | None, place: int
) -> tuple[int, dict[str, Any]]:
    with threadpool_limits(threads):
        return place, function(*item)


# -- Figure 2: the hidden Markov chain task ------------------------------------------------------


def _by_seed(table: pd.DataFrame, column: str) -> Array:
    """One column as an array (seeds, widths)."""
    return np.array(table[column].tolist()).reshape(table["seed"].nunique(), -1)


def _matrices(table: pd.DataFrame, width: float) -> Array:
    """U_1 of one width, shape (seeds, Pi, Pi)."""
    rows = table[table["width"] == width]
    return np.array([solution.matrix for solution in rows["order_parameter"]])


def _sampled(sigma_perp: float, heads: str, width: float, seed: int, draws: int) -> dict[str, Any]:
    """Exact posterior of one data seed: accuracy of its mean predictor and its mean U_1."""
    from attnpaths.order_parameter import Architecture
    from attnpaths.posterior import SamplingWarning, sample_posterior

    data = HiddenMarkovProblem(HiddenMarkovChain(sigma_perp=sigma_perp))(seed, heads)
    with warnings.catch_warnings():
        # Means over a few hundred draws need no R-hat of 1.01.
        warnings.simplefilter("ignore", SamplingWarning)
        posterior = sample_posterior(
            data.xi,
            data.y,
            Architecture(data.heads, width),
            TEMPERATURE,
            draws=draws,
            warmup=100,
            chains=2,
            seed=seed,
            n_jobs=1,
            progress=False,
        )
    mean = posterior.predict(data.xi_test).mean
    return {
        "accuracy": np.mean((mean > 0) == (data.y_test > 0)),
        "U": posterior.order_parameter.mean(axis=(0, 1)),
    }


def _sampled_figure(
    context: Context, sigma_perp: float, heads: str
) -> tuple[tuple[int, ...], Array, Array]:
    """Widths, accuracies (seeds, widths) and mean U_1 (seeds, widths, Pi, Pi) of the posterior."""
    if find_spec("mici") is None:
        return (), np.zeros((0, 0)), np.zeros((0, 0, 0, 0))
    widths = SAMPLED_WIDTHS[:1] if context.quick else SAMPLED_WIDTHS
    seeds = context.data_seeds[: SAMPLED_SEEDS_QUICK if context.quick else SAMPLED_SEEDS]
    draws = 100 if context.quick else 250
    items = [(sigma_perp, heads, width, seed, draws) for seed in seeds for width in widths]
    results = context.map("sampled", _sampled, items)
    shape = len(seeds), len(widths)
    accuracy = np.array([result["accuracy"] for result in results]).reshape(shape)
    U = np.array([result["U"] for result in results])
    return widths, accuracy, U.reshape(*shape, *U.shape[1:])


TAIL = (
    "the published draw lies in the tail of ours: it is a single draw of 100 sequences and of the "
    "random heads"
)


def _entries(
    U: Array, published: Array, labels: Sequence[str], prefix: str, statements: Mapping[str, str]
) -> list[Number]:
    """Diagonal entries of U and the pair of the good and the denoising path."""
    pairs = [(p, p) for p in range(len(labels))]
    if "g" in labels and "d" in labels:
        pairs.append((labels.index("g"), labels.index("d")))
    return [
        Number(
            f"{prefix}U({labels[a]}, {labels[b]})",
            U[:, a, b].tolist(),
            float(published[a, b]),
            statement=statements["pair" if a != b else labels[a][0]],
            why=TAIL,
        )
        for a, b in pairs
    ]


def _markov_statements(
    accuracy: Array, gp: Array, U: Array, labels: Sequence[str]
) -> list[Statement]:
    """What must be seen; `U` holds N = 10, 100, 1000 along its second axis."""
    g, d = labels.index("g"), labels.index("d")
    diagonal: Any = np.diagonal(U, axis1=2, axis2=3)
    distance: Any = np.abs(U - np.eye(len(labels))).max(axis=(2, 3))
    gap: Any = accuracy - gp[:, None]
    statements = [
        Statement(
            "subtracts",
            "U(g, d) < 0 at N = 10: the network subtracts the denoising path",
            U[:, 0, g, d] < 0,
        ),
        Statement(
            "grow",
            "U(g, g) and U(d, d) at N = 10 are above 1, their infinite-width value",
            (diagonal[:, 0, [g, d]] > 1).all(axis=1),
        ),
        Statement(
            "identity",
            "U tends to the identity: its largest deviation falls from N = 10 to 100 to 1000",
            (np.diff(distance, axis=1) < 0).all(axis=1),
        ),
        Statement(
            "falls",
            "accuracy falls towards the GP's as N grows: N = 10 above 100 above 1000",
            (gap[:, 0] > gap[:, WIDTHS.index(100)]) & (gap[:, WIDTHS.index(100)] > gap[:, -1]),
        ),
        Statement("narrow", "the narrow network (N = 10) is better than the GP", gap[:, 0] > 0),
        Statement(
            "limit",
            "at N = 1000 accuracy is within 2 % of the GP's",
            np.abs(gap[:, -1]) <= 0.02,
        ),
    ]
    adversarial = [p for p, label in enumerate(labels) if label.startswith("a")]
    if adversarial:
        statements.append(
            Statement(
                "shrink",
                "the adversarial paths shrink: their diagonal entries at N = 10 are below 1",
                (diagonal[:, 0][:, adversarial] < 1).all(axis=1),
            )
        )
    return statements


ENTRY_STATEMENTS = {"g": "grow", "d": "grow", "a": "shrink", "pair": "subtracts"}


def _figure_2c(context: Context) -> FigureResult:
    """Four paths: accuracy against width, limits of path subsets, order parameters."""
    widths = (*WIDTHS, np.inf)
    table = context.markov(1.0, "four_paths", widths)
    good = context.markov(1.0, "good", (10, np.inf))
    pair = context.markov(1.0, "good_denoising", (10, np.inf))
    sampled_widths, sampled, sampled_U = _sampled_figure(context, 1.0, "four_paths")
    accuracy, gp = _by_seed(table, "accuracy")[:, :-1], _by_seed(table, "accuracy")[:, -1]
    good_accuracy: Any
    good_accuracy, pair_accuracy = _by_seed(good, "accuracy"), _by_seed(pair, "accuracy")
    U = np.stack([_matrices(table, width) for width in (10, 100, 1000)], axis=1)
    labels = path_labels((2, 2))
    statements = _markov_statements(accuracy, gp, U, labels)
    statements.append(
        Statement(
            "subsets",
            "the narrow four-path network (N = 10) is better than the GP limits of g alone and of "
            "g + d",
            accuracy[:, 0] > np.maximum(good_accuracy[:, 1], pair_accuracy[:, 1]),
            "the margin over g + d is small beside its spread over data and random heads",
        )
    )
    published = published_case("four_paths")
    only_good, only_pair = published_case("good_path_only"), published_case("good_and_denoising")

    def percent(
        what: str, values: Array, value: float, statement: str = "falls", why: str = TAIL
    ) -> Number:
        return Number(
            f"accuracy, {what}", values.tolist(), float(value), "%", statement, why, digits=1
        )

    numbers = [
        percent(f"theory, N = {width}", accuracy[:, n], published["accuracy"][n])
        for n, width in enumerate(WIDTHS)
    ]
    numbers += [
        percent("GP limit of all paths", gp, published["gp_accuracy"], "narrow"),
        percent("GP limit of g alone", good_accuracy[:, 1], only_good["gp_accuracy"], "subsets"),
        percent("GP limit of g + d", pair_accuracy[:, 1], only_pair["gp_accuracy"], "subsets"),
        percent("theory, g alone, N = 10", good_accuracy[:, 0], only_good["accuracy"][0], ""),
        percent("theory, g + d, N = 10", pair_accuracy[:, 0], only_pair["accuracy"][0], ""),
    ]
    sampled_published = published_case("four_paths_sampled")
    numbers.append(
        percent(
            "sampled posterior, N = 10",
            sampled[:, 0] if sampled.size else np.zeros(0),
            sampled_published["accuracy"][0],
            "narrow",
        )
    )
    for n, width in enumerate((10, 100, 1000)):
        numbers += _entries(
            U[:, n],
            published["U"][WIDTHS.index(width)],
            labels,
            f"N = {width}, ",
            ENTRY_STATEMENTS if width < 1000 else dict.fromkeys(ENTRY_STATEMENTS, "identity"),
        )
    if sampled.size:
        numbers += _entries(
            sampled_U[:, 0],
            sampled_published["U"][0],
            labels,
            "sampled, N = 10, ",
            ENTRY_STATEMENTS,
        )
    numbers.append(
        Number(
            "N = 10, readout order parameter u",
            [float(s.readout) for s in table[table["width"] == 10]["order_parameter"]],
            float(published["readout"][0]),
            why=TAIL,
        )
    )
    series = {
        "widths": WIDTHS,
        "theory": accuracy,
        "gp": gp,
        "gp_good": good_accuracy[:, 1],
        "gp_good_denoising": pair_accuracy[:, 1],
        "sampled_widths": sampled_widths,
        "sampled": sampled,
        "labels": labels,
        "U_widths": (10, 100, 1000),
        "U": U.mean(axis=0),
        "published": published["accuracy"],
    }
    return FigureResult(numbers, statements, series, _markov_note(context, 1.0, len(sampled)))


def _markov_note(context: Context, sigma_perp: float, sampled: int = 0) -> str:
    note = (
        f"P = 100 sequences of 30 observations, 1,000 test sequences, sigma_perp = {sigma_perp:g}, "
        f"T = {TEMPERATURE}; {len(context.data_seeds)} data seeds, each with its own random heads"
    )
    return note + (f" (sampled posterior: the first {sampled})." if sampled else ".")


def _figure_2d(context: Context) -> FigureResult:
    """Kernel-task alignment of the four-path network, N = 10 against the GP limit."""
    table = context.markov(1.0, "four_paths", (*WIDTHS, np.inf))
    problem = HiddenMarkovProblem(HiddenMarkovChain())
    items = [
        (seed, U.tolist()) for seed, U in zip(context.data_seeds, _matrices(table, 10), strict=True)
    ]
    overlaps = context.map("alignment", partial(_alignment, problem), items)
    theory = np.array([result["theory"] for result in overlaps])
    gp = np.array([result["gp"] for result in overlaps])
    numbers, aligned = alignment_entries(theory, gp, components=5)
    first = Statement(
        "first",
        "the largest single overlap is larger at N = 10 than in the GP limit",
        theory.max(axis=1) > gp.max(axis=1),
    )
    series = {"theory": theory[:, :30], "gp": gp[:, :30]}
    return FigureResult(numbers, [aligned, first], series, _markov_note(context, 1.0))


def _alignment(problem: HiddenMarkovProblem, seed: int, U: Any) -> dict[str, Any]:
    data = problem(seed, "four_paths")
    U = np.array(U)
    return {
        "theory": kernel_task_alignment(kernel(data.xi, U), data.y),
        "gp": kernel_task_alignment(kernel(data.xi, np.eye(len(U))), data.y),
    }


def _figure_2e(context: Context) -> FigureResult:
    """Two paths under strong noise: accuracy against width, order parameters."""
    table = context.markov(5.0, "two_paths", (*WIDTHS, np.inf))
    accuracy, gp = _by_seed(table, "accuracy")[:, :-1], _by_seed(table, "accuracy")[:, -1]
    U = np.stack([_matrices(table, width) for width in (10, 100, 1000)], axis=1)
    labels = path_labels((2, 1))
    statements = _markov_statements(accuracy, gp, U, labels)
    sampled_widths, sampled, _ = _sampled_figure(context, 5.0, "two_paths")
    published = published_case("two_paths_noisy")
    numbers = [
        Number(
            f"accuracy, theory, N = {width}",
            accuracy[:, n].tolist(),
            float(published["accuracy"][n]),
            "%",
            "falls",
            TAIL,
            digits=1,
        )
        for n, width in enumerate(WIDTHS)
    ]
    numbers.append(
        Number(
            "accuracy, GP limit",
            gp.tolist(),
            float(published["gp_accuracy"]),
            "%",
            "narrow",
            TAIL,
            digits=1,
        )
    )
    for n, width in enumerate((10, 100, 1000)):
        numbers += _entries(
            U[:, n],
            published["U"][WIDTHS.index(width)],
            labels,
            f"N = {width}, ",
            ENTRY_STATEMENTS if width < 1000 else dict.fromkeys(ENTRY_STATEMENTS, "identity"),
        )
    series = {
        "widths": WIDTHS,
        "theory": accuracy,
        "gp": gp,
        "sampled_widths": sampled_widths,
        "sampled": sampled,
        "labels": labels,
        "U_widths": (10, 100, 1000),
        "U": U.mean(axis=0),
        "published": published["accuracy"],
    }
    return FigureResult(numbers, statements, series, _markov_note(context, 5.0, len(sampled)))


# -- drawing -------------------------------------------------------------------------------------


def _draw_accuracy(series: Mapping[str, Any], figure: Figure) -> None:
    """Accuracy against width on the left, order parameters on the right."""
    from attnpaths.plotting import (
        PATH_COLOURS,
        plot_accuracy,
        plot_limit,
        plot_order_parameter,
        plot_published,
    )

    figure.set_size_inches(9, 5.4)
    panels = len(series["U_widths"])
    left = figure.subplot_mosaic(
        [["accuracy"] * panels, [f"U{n}" for n in range(panels)]], height_ratios=[3, 2]
    )
    ax = left["accuracy"]
    plot_accuracy(series["widths"], series["theory"], ax=ax)
    if len(series["sampled"]):
        plot_accuracy(series["sampled_widths"], series["sampled"], regime="sampled", ax=ax, ls=":")
    plot_limit(series["gp"], ax=ax)
    if "gp_good" in series:
        plot_limit(
            series["gp_good"],
            colour=PATH_COLOURS["g"],
            label="GP limit, g alone",
            ax=ax,
            band=False,
        )
        plot_limit(
            series["gp_good_denoising"],
            colour=PATH_COLOURS["d"],
            label="GP limit, g + d",
            ax=ax,
            band=False,
        )
    plot_published(series["widths"], series["published"], ax=ax)
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    for n, (width, U) in enumerate(zip(series["U_widths"], series["U"], strict=True)):
        plot_order_parameter(U, series["labels"], ax=left[f"U{n}"])
        left[f"U{n}"].set_title(f"mean U, N = {width}")


def _draw_alignment(series: Mapping[str, Any], figure: Figure) -> None:
    from attnpaths.plotting import plot_alignment

    figure.set_size_inches(7, 3.6)
    ax = figure.subplots()
    count = len(series["theory"][0])
    plot_alignment(series["theory"], label="theory, N = 10", components=count, ax=ax)
    plot_alignment(series["gp"], regime="gp", label="GP limit", components=count, ax=ax)
    ax.legend()


# -- the table of figures ------------------------------------------------------------------------


@dataclass(frozen=True)
class FigureSpec:
    """How a figure is computed and drawn."""

    title: str
    compute: Callable[[Context], FigureResult]
    draw: Callable[[Mapping[str, Any], Figure], None]


FIGURES: dict[str, FigureSpec] = {
    "2c": FigureSpec("four paths: accuracy and order parameters", _figure_2c, _draw_accuracy),
    "2d": FigureSpec("four paths: kernel-task alignment", _figure_2d, _draw_alignment),
    "2e": FigureSpec("two paths under strong noise", _figure_2e, _draw_accuracy),
    "3b": FigureSpec("one-shot images: accuracy", one_shot.figure_3b, one_shot.draw_3b),
    "3c": FigureSpec("one-shot images: order parameter", one_shot.figure_3c, one_shot.draw_3c),
    "3d": FigureSpec("one-shot images: kernel-task alignment", one_shot.figure_3d, _draw_alignment),
    "3e": FigureSpec("head scores and heads dropped", one_shot.figure_3e, one_shot.draw_3e),
    "3f": FigureSpec("pruning a network of 8 heads", one_shot.figure_3f, one_shot.draw_3f),
    "ood": FigureSpec("out of distribution", one_shot.figure_ood, one_shot.draw_ood),
}


def draw(name: str, figure: Mapping[str, Any]) -> Figure:
    """Draw one figure of a report.

    Parameters
    ----------
    name : str
        Name in `FIGURES`.
    figure : dict
        Entry of the report's "figures".

    Returns
    -------
    matplotlib.figure.Figure

    Raises
    ------
    ValueError
        If there is no such figure, or it was not computed.

    Examples
    --------
    >>> from attnpaths.report import load_report
    >>> figure = draw("2d", load_report()["figures"]["2d"])
    >>> [ax.get_xlabel() for ax in figure.axes]
    ['kernel principal component']
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    from attnpaths.plotting import use_style

    if name not in FIGURES:
        raise ValueError(f"name must be one of {', '.join(FIGURES)}, got {name!r}")
    if figure.get("status") != "done":
        raise ValueError(f"figure must be computed, got status {figure.get('status')!r}")
    with mpl.rc_context():
        use_style()
        canvas = Figure(layout="constrained")
        FigureCanvasAgg(canvas)
        FIGURES[name].draw(figure["series"], canvas)
    return canvas


def reproduce(
    context: Context, names: Sequence[str] | None = None, *, force: bool = False
) -> dict[str, Any]:
    """Compute figures and write the report.

    Parameters
    ----------
    context : Context
        Settings and the folder to write to.
    names : sequence of str, optional
        Figures to compute; default all. Others that an earlier run left in the folder stay in the
        report, with the settings of that run.
    force : bool
        Compute figures again that an earlier run has finished.

    Returns
    -------
    dict
        The report, as in its JSON file.

    Raises
    ------
    ValueError
        If a name is unknown.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     report = reproduce(Context(Path(folder), seeds=1, progress=False), ["2d"])
    ...     sorted(path.name for path in Path(folder).glob("report.*"))
    ['report.html', 'report.json', 'report.md']
    >>> report["figures"]["2d"]["statements"][0]["seeds"]
    1
    """
    names = list(FIGURES) if not names else list(dict.fromkeys(names))
    for name in names:
        if name not in FIGURES:
            raise ValueError(f"figures must be among {', '.join(FIGURES)}, got {name!r}")
    folder = context.folder
    (folder / "figures").mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    for name, spec in FIGURES.items():
        part = folder / "figures" / f"{name}.json"
        earlier = _earlier(part)
        if name not in names:
            if earlier is not None:
                figures[name] = earlier
            continue
        if earlier is not None and earlier["settings"] == context.settings(name) and not force:
            figures[name] = earlier
            continue
        if context.progress:
            tqdm.write(f"Figure {name}: {spec.title}")
        figures[name] = _compute(name, spec, context, part)
    report = {
        "about": ABOUT,
        "rule": RULE,
        "versions": {
            "attnpaths": attnpaths.__version__,
            "Python": platform.python_version(),
            "numpy": np.__version__,
            "scipy": scipy.__version__,
        },
        "figures": figures,
    }
    pictures = {
        name: f"figures/{name}.png" for name, entry in figures.items() if entry["status"] == "done"
    }
    for file, text in (
        ("report.json", to_json(report)),
        ("report.md", report_markdown(report, pictures)),
        ("report.html", report_html(report, pictures)),
    ):
        with atomic_path(folder / file) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return report


def _earlier(part: Path) -> dict[str, Any] | None:
    """Finished figure of an earlier run of the same version."""
    try:
        stored = json.loads(part.read_text(encoding="utf-8"))
        figure = stored["figure"]
        same = stored["version"] == attnpaths.__version__ and "settings" in figure
        return figure if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _compute(name: str, spec: FigureSpec, context: Context, part: Path) -> dict[str, Any]:
    started = time.perf_counter()
    try:
        result = spec.compute(context)
    except MissingInputError as error:
        return {"title": spec.title, "status": "not computed", "reason": str(error)}
    entry: dict[str, Any] = {"title": spec.title, "settings": context.settings(name)}
    entry |= _rounded(result.as_dict())
    entry["seconds"] = round(time.perf_counter() - started, 1)
    with atomic_path(part.with_suffix(".png")) as temporary:
        draw(name, entry).savefig(temporary)
    stored = {"version": attnpaths.__version__, "figure": entry}
    with atomic_path(part) as temporary:
        temporary.write_text(to_json(stored), encoding="utf-8")
    return entry


def _rounded(value: Any) -> Any:
    """Six significant digits, as plain lists: enough for a report, and small."""
    if isinstance(value, np.ndarray):
        return _rounded(value.tolist())
    if isinstance(value, dict):
        return {key: _rounded(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(entry) for entry in value]
    if isinstance(value, (float, np.floating)):
        return float(f"{value:.6g}")
    return value


# -- command line --------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    lines = "\n".join(f"  {name:<4} {spec.title}" for name, spec in FIGURES.items())
    parser.epilog = (
        f"figures:\n{lines}\n\nA stopped run goes on where it was if it is started again with the "
        "same folder."
    )
    parser.add_argument(
        "figures", nargs="*", metavar="FIGURE", help="figures to compute, as 2c (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="few seeds; under two minutes")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        help="folder (default: runs/reproduction, with --quick runs/reproduction-quick)",
    )
    parser.add_argument("--seeds", type=_count, help=f"data seeds of Figure 2 (default {SEEDS})")
    parser.add_argument(
        "--draws", type=_count, help=f"draws of tasks of Figure 3 (default {one_shot.DRAWS})"
    )
    parser.add_argument(
        "--heads", type=Path, help="trained heads (.npz) for Figure 3b to e; default: shipped ones"
    )
    parser.add_argument(
        "--data", type=Path, help="folder that holds omniglot/; default: $ATTNPATHS_DATA"
    )
    parser.add_argument(
        "--coarse", action="store_true", help="3 widths and 3 temperatures in Figure 3, not 10"
    )
    parser.add_argument(
        "--jobs", type=_jobs, default=-1, help="processes (default: -1, one a core)"
    )
    parser.add_argument("--force", action="store_true", help="compute finished figures again")
    parser.add_argument("--no-progress", action="store_true", help="no progress bars")


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 2, got {text!r}")
    return int(text)


def _jobs(text: str) -> int:
    try:
        jobs = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error
    if jobs == 0:
        raise argparse.ArgumentTypeError("must not be 0")
    return jobs


def run(arguments: argparse.Namespace) -> int:
    """Compute, report, say what came out."""
    unknown = [name for name in arguments.figures if name not in FIGURES]
    if unknown:
        raise SystemExit(
            _usage(f"there is no figure {unknown[0]!r}; figures are {', '.join(FIGURES)}")
        )
    if arguments.data is not None:
        if not arguments.data.is_dir():
            raise FileNotFoundError(f"there is no folder {arguments.data} for --data")
        os.environ["ATTNPATHS_DATA"] = str(arguments.data)  # workers read it too
    if arguments.heads is not None and not arguments.heads.is_file():
        raise FileNotFoundError(f"there is no file {arguments.heads} for --heads")
    default = "reproduction-quick" if arguments.quick else "reproduction"
    context = Context(
        folder=arguments.output or Path("runs") / default,
        quick=arguments.quick,
        seeds=arguments.seeds,
        draws=arguments.draws,
        heads=arguments.heads,
        coarse=arguments.coarse,
        jobs=arguments.jobs,
        progress=not arguments.no_progress,
    )
    report = reproduce(context, arguments.figures, force=arguments.force)
    missing = 0
    for name, figure in report["figures"].items():
        if figure["status"] == "done":
            counts = count_verdicts(figure)
            text = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        else:
            text = f"not computed: {figure['reason']}"
            missing += name in arguments.figures
        print(f"Figure {name}: {text}")
    print(f"report: {context.folder / 'report.html'}")
    return 1 if missing else 0


def _usage(message: str) -> int:
    print(f"python -m attnpaths reproduce: error: {message}", file=sys.stderr)
    return 2
