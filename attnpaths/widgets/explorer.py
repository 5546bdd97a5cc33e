"""The in-browser explorer: the theory solved where it is read, in Jupyter and in static pages.

`ExplorerTask` is one set of path inputs and labels, `Explorer` the widget that shows one or more
of them. The data travels in the widget's state; the ES module beside this file (``explorer.js``)
minimises the action and draws. In a static page the same module runs on a small stand-in for
Jupyter's model, so that a published book needs no kernel, no server and no other host.

Training inputs travel in 24-bit steps of each feature's range, test inputs in 16-bit steps. Python
solves on the same rounded numbers, so that both give the same order parameter and the same
accuracy.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import anywidget
import numpy as np
import traitlets
from numpy.typing import ArrayLike

from attnpaths._validation import Array, as_array, as_choice, as_count, as_number, as_positive
from attnpaths.order_parameter import (
    Architecture,
    OrderParameter,
    gp_order_parameter,
    solve_order_parameter,
)
from attnpaths.paths import path_names
from attnpaths.plotting import COLOURS
from attnpaths.predictor import predict

__all__ = [
    "VIEWS",
    "Explorer",
    "ExplorerTask",
    "Solution",
    "compress_inputs",
]

VIEWS = ("heads", "order_parameter", "accuracy", "landscape", "components", "kernel")
# Slider positions of one decade; they hold the values that the book's figures use.
STOPS = (
    1,
    1.1,
    1.2,
    1.3,
    1.5,
    1.7,
    2,
    2.2,
    2.5,
    2.7,
    3,
    3.3,
    3.6,
    4,
    4.5,
    5,
    5.5,
    6,
    6.5,
    7,
    7.5,
    8,
    9,
)
CURVE_STOPS = (1, 1.5, 2, 3, 5, 7)
HERE = Path(__file__).parent


class Solution(NamedTuple):
    """What the theory says at one setting, solved in Python.

    Attributes
    ----------
    order_parameter : OrderParameter
        Of the network with the heads that are on.
    accuracy : float
        Share of test examples on the right side of zero.
    gp_accuracy : float
        The same in the limit of infinite width.
    paths : tuple of int
        Indices of the paths that are on, the rows of the order parameter.

    Examples
    --------
    >>> from attnpaths.widgets import landscape_task
    >>> solution = landscape_task().solve(width=10, heads_on=[[True, False]])
    >>> solution.paths, solution.order_parameter.matrix.shape
    ((0,), (1, 1))
    >>> 0 <= solution.gp_accuracy <= 1
    True
    """

    order_parameter: OrderParameter
    accuracy: float
    gp_accuracy: float
    paths: tuple[int, ...]


class ExplorerTask:
    """Path inputs and labels of one task, and the settings a reader may choose.

    Parameters
    ----------
    name : str
        As the reader sees it.
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the training set (see `attnpaths.path_inputs`).
    y : array_like, shape (P,)
        Labels, +1 or -1.
    xi_test : array_like, shape (P', Pi, N0)
        Path inputs of the test set.
    y_test : array_like, shape (P',)
        Labels of the test set.
    heads : sequence of int
        Heads a layer.
    temperature : float
        Where the temperature slider starts.
    temperature_range, width_range : (float, float)
        Ends of the sliders.
    variances : float or sequence of float
        Prior variances (s_0^2, ..., s_a^2).
    path_names, path_colours : sequence of str, optional
        One a path; names default to the path's heads, as "1·2".
    head_names : sequence of sequence of str, optional
        One list a layer; default "head 1" and so on.
    noises : sequence of float
        Strengths of the noise that the reader may choose from; empty for none.
    noise : float, optional
        Where that slider starts; default the first.
    noise_from : int, optional
        Index of the first feature of `xi` that is proportional to the noise; `xi` and `xi_test`
        hold these features at strength 1. All features before it must not depend on the noise.

    Raises
    ------
    ValueError
        If shapes disagree, labels are not +1 or -1, or a range is empty.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y, y_test = np.resize([1, -1], 12), np.resize([1, -1], 20)
    >>> task = ExplorerTask(
    ...     "toy", rng.normal(size=(12, 2, 5)), y, rng.normal(size=(20, 2, 5)), y_test, heads=(2,)
    ... )
    >>> task.solve(width=10).order_parameter.converged
    True
    >>> task.heads, task.width_stops[:3] == [10, 11, 12], task.temperature_stops[-1] == 10
    ((2,), True, True)
    >>> set(task.curve_widths) < set(task.width_stops)
    True
    """

    def __init__(
        self,
        name: str,
        xi: ArrayLike,
        y: ArrayLike,
        xi_test: ArrayLike,
        y_test: ArrayLike,
        heads: Sequence[int],
        *,
        temperature: float = 0.01,
        temperature_range: tuple[float, float] = (0.001, 10.0),
        width_range: tuple[float, float] = (10, 10_000),
        variances: float | Sequence[float] = 1.0,
        path_names: Sequence[str] | None = None,
        path_colours: Sequence[str] | None = None,
        head_names: Sequence[Sequence[str]] | None = None,
        noises: Sequence[float] = (),
        noise: float | None = None,
        noise_from: int | None = None,
    ) -> None:
        self.name = str(name)
        self.architecture = Architecture(heads, 1, variances)
        paths = self.architecture.paths
        given_xi = as_array("xi", xi, ("P", paths, "N0"))
        self._train_steps, self._train_scale, self.xi = _in_steps(given_xi, bits=24)
        examples, _, features = given_xi.shape
        self.y = _as_labels("y", y, examples)
        tests = as_array("xi_test", xi_test, ("P'", paths, features))
        self.y_test = _as_labels("y_test", y_test, len(tests))
        self.temperature = as_positive("temperature", temperature)
        self.temperature_range = _as_range("temperature_range", temperature_range)
        self.width_range = _as_range("width_range", width_range, minimum=1)
        self.path_names = _as_names("path_names", path_names, _default_path_names(self.heads))
        self.path_colours = None
        if path_colours is not None:
            self.path_colours = _as_names("path_colours", path_colours, [""] * paths)
        given = [None] * len(self.heads) if head_names is None else list(head_names)
        if len(given) != len(self.heads):
            raise ValueError(
                f"head_names must hold {len(self.heads)} lists, one a layer, got {len(given)}"
            )
        self.head_names = [
            _as_names(f"head_names[{layer}]", names, [f"head {h + 1}" for h in range(count)])
            for layer, (names, count) in enumerate(zip(given, self.heads, strict=True))
        ]
        self.noises = tuple(as_number("noises", value) for value in noises)
        if any(value < 0 for value in self.noises):
            raise ValueError(f"noises must not be negative, got {min(self.noises)!r}")
        if bool(self.noises) != (noise_from is not None):
            raise ValueError("noises and noise_from must be given together")
        self.noise_from = features if noise_from is None else as_count("noise_from", noise_from, 0)
        if self.noise_from > features:
            raise ValueError(
                f"noise_from must be at most the {features} features of xi, got {noise_from}"
            )
        self.noise = 1.0
        if self.noises:
            self.noise = self.noises[0] if noise is None else as_number("noise", noise)
        self._test_steps, self._test_scale, self.xi_test = _in_steps(tests, bits=16)

    @property
    def heads(self) -> tuple[int, ...]:
        """Heads a layer."""
        return self.architecture.heads

    @property
    def width_stops(self) -> list[float]:
        """Positions of the width slider."""
        return _stops(self.width_range, STOPS)

    @property
    def temperature_stops(self) -> list[float]:
        """Positions of the temperature slider."""
        return _stops(self.temperature_range, STOPS)

    @property
    def curve_widths(self) -> list[float]:
        """Widths at which the accuracy curve is drawn."""
        return _stops(self.width_range, CURVE_STOPS)

    def active_paths(self, heads_on: Sequence[Sequence[bool]] | None = None) -> tuple[int, ...]:
        """Indices of the paths whose heads are all on, in the order of `attnpaths.path_names`.

        Examples
        --------
        >>> import numpy as np
        >>> xi, y = np.random.default_rng(0).normal(size=(12, 4, 5)), np.resize([1, -1], 12)
        >>> task = ExplorerTask("toy", xi, y, xi, y, heads=(2, 2))
        >>> task.active_paths([[True, False], [True, True]])
        (0, 1)
        """
        return tuple(
            index for index, path in enumerate(product(*self._check_heads(heads_on))) if all(path)
        )

    def solve(
        self,
        width: float,
        temperature: float | None = None,
        *,
        noise: float | None = None,
        heads_on: Sequence[Sequence[bool]] | None = None,
        start: OrderParameter | None = None,
    ) -> Solution:
        """Solve in Python what the explorer shows, on the same rounded numbers.

        Parameters
        ----------
        width : float
            Width N of all layers and of the readout.
        temperature : float, optional
            Default: the task's.
        noise : float, optional
            Noise strength; default: the task's.
        heads_on : sequence of sequence of bool, optional
            Which heads are on, a list a layer; default all. The theory is that of the smaller
            network.
        start : OrderParameter, optional
            Where the search starts; default the GP point.

        Returns
        -------
        Solution

        Raises
        ------
        ValueError
            If a value is out of range or a layer has no head that is on.

        Examples
        --------
        >>> from attnpaths.widgets import landscape_task
        >>> task = landscape_task()
        >>> narrow = task.solve(width=10)
        >>> wide = task.solve(width=1000, temperature=0.5, start=narrow.order_parameter)
        >>> wide.order_parameter.temperature, wide.order_parameter.converged
        (0.5, True)
        """
        noise = self.noise if noise is None else as_number("noise", noise)
        temperature = self.temperature if temperature is None else temperature
        layers = self._check_heads(heads_on)
        paths = self.active_paths(layers)
        network = Architecture([sum(layer) for layer in layers], width, self.architecture.variances)
        xi = self._at_noise(self.xi[:, paths], noise)
        tests = self._at_noise(self.xi_test[:, paths], noise)
        solved = solve_order_parameter(xi, self.y, network, temperature, start=start)
        accuracies = [
            float(np.mean(predict(xi, self.y, tests, point, temperature).mean * self.y_test > 0))
            for point in (solved, gp_order_parameter(network))
        ]
        return Solution(solved, accuracies[0], accuracies[1], paths)

    def curve(self) -> Array:
        """Test accuracy at `curve_widths`, at the task's temperature and noise, all heads on.

        Examples
        --------
        >>> from attnpaths.widgets import landscape_task
        >>> task = landscape_task()
        >>> task.curve().shape == (len(task.curve_widths),)
        True
        """
        accuracies, start = [], None
        for width in reversed(self.curve_widths):  # from the GP's side: each starts at the last
            solution = self.solve(width, start=start)
            start = solution.order_parameter
            accuracies.append(solution.accuracy)
        return np.array(accuracies[::-1])

    def state(self) -> dict[str, Any]:
        """Everything the module needs, with arrays as bytes.

        Examples
        --------
        >>> from attnpaths.widgets import landscape_task
        >>> state = landscape_task().state()
        >>> state["heads"], state["path_names"], type(state["train"])
        ([2], ['1', '2'], <class 'bytes'>)
        """
        return {
            "name": self.name,
            "heads": list(self.heads),
            "variances": list(self.architecture.variances),
            "features": self.xi.shape[2],
            "train": _low_bytes(self._train_steps, 3),
            "train_scale": self._train_scale.astype("<f4").tobytes(),
            "labels": self.y.astype("i1").tobytes(),
            "test": _low_bytes(self._test_steps, 2),
            "test_scale": self._test_scale.astype("<f4").tobytes(),
            "test_labels": self.y_test.astype("i1").tobytes(),
            "path_names": self.path_names,
            "path_colours": self.path_colours,
            "head_names": self.head_names,
            "temperature": self.temperature,
            "temperature_stops": self.temperature_stops,
            "width_stops": self.width_stops,
            "widths": self.curve_widths,
            "noise_from": self.noise_from,
            "noises": list(self.noises),
            "noise": self.noise,
            "curve": {
                "temperature": self.temperature,
                "noise": self.noise,
                "accuracy": self.curve().tolist(),
            },
        }

    def _check_heads(self, heads_on: Sequence[Sequence[bool]] | None) -> list[list[bool]]:
        if heads_on is None:
            return [[True] * count for count in self.heads]
        layers = [[bool(on) for on in layer] for layer in heads_on]
        if [len(layer) for layer in layers] != list(self.heads):
            raise ValueError(
                f"heads_on must hold one flag a head, {list(self.heads)} of them a layer, got "
                f"{[len(layer) for layer in layers]}"
            )
        if not all(any(layer) for layer in layers):
            raise ValueError(f"heads_on must leave at least one head in every layer, got {layers}")
        return layers

    def _at_noise(self, xi: Array, noise: float) -> Array:
        if self.noise_from == xi.shape[2]:
            return xi
        scaled = xi.copy()
        scaled[:, :, self.noise_from :] *= noise
        return scaled


class Explorer(anywidget.AnyWidget):
    """Interactive figure of the theory, solved where it is shown.

    In JupyterLab, a notebook, VS Code or Colab this is an ordinary widget, whose settings can be
    read and set from Python. Its ``text/html`` form needs no kernel: it is what a static page
    shows.

    Parameters
    ----------
    tasks : ExplorerTask or sequence of ExplorerTask
        What the reader can choose from.
    views : sequence of str
        Any of "heads" (switches), "order_parameter", "accuracy", "landscape" (one layer of two
        heads), "components" and "kernel", in the order shown.
    width : float
        Where the width slider starts.
    temperature : float, optional
        Where the temperature slider starts; default the first task's.
    title : str
        Line above the controls.

    Attributes
    ----------
    task, width, temperature, noise, heads_on
        Present settings; assigning moves the explorer.
    result : dict
        The browser's last solution: "order_parameter", "action", "accuracy" and more.

    Raises
    ------
    ValueError
        If there is no task, or a view or a setting is unknown.

    Examples
    --------
    >>> from attnpaths.widgets import landscape_task
    >>> explorer = Explorer(landscape_task(), views=["order_parameter", "accuracy"], width=20)
    >>> explorer.width = 100  # moves the slider
    >>> explorer.solve().order_parameter.architecture.widths
    (100.0, 100.0)
    """

    _esm = HERE / "explorer.js"
    _css = HERE / "explorer.css"
    tasks = traitlets.List(traitlets.Dict()).tag(sync=True)
    task = traitlets.Int(0).tag(sync=True)
    width = traitlets.Float(10.0).tag(sync=True)
    temperature = traitlets.Float(0.01).tag(sync=True)
    noise = traitlets.Float(1.0).tag(sync=True)
    heads_on = traitlets.List(traitlets.List(traitlets.Bool())).tag(sync=True)
    views = traitlets.List(traitlets.Unicode()).tag(sync=True)
    title = traitlets.Unicode("").tag(sync=True)
    palette = traitlets.Dict().tag(sync=True)
    result = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        tasks: ExplorerTask | Sequence[ExplorerTask],
        *,
        views: Sequence[str] = ("heads", "order_parameter", "accuracy", "components", "kernel"),
        width: float = 10,
        temperature: float | None = None,
        title: str = "",
    ) -> None:
        chosen = [tasks] if isinstance(tasks, ExplorerTask) else list(tasks)
        if not chosen or not all(isinstance(task, ExplorerTask) for task in chosen):
            kinds = [type(task).__name__ for task in chosen]
            raise ValueError(f"tasks must be ExplorerTask objects, at least one, got {kinds}")
        self.task_data = chosen
        first = chosen[0]
        super().__init__(
            tasks=[task.state() for task in chosen],
            views=[as_choice("views", view, VIEWS) for view in views],
            width=as_positive("width", width),
            temperature=as_positive(
                "temperature", first.temperature if temperature is None else temperature
            ),
            noise=first.noise,
            heads_on=[[True] * count for count in first.heads],
            title=str(title),
            palette={"theory": COLOURS["theory"], "gp": COLOURS["gp"]},
        )

    def solve(self) -> Solution:
        """Solve the present settings in Python: what the browser should show.

        Examples
        --------
        >>> from attnpaths.widgets import landscape_task
        >>> explorer = Explorer(landscape_task())
        >>> explorer.heads_on = [[True, False]]
        >>> explorer.solve().paths
        (0,)
        """
        return self.task_data[self.task].solve(
            self.width, self.temperature, noise=self.noise, heads_on=self.heads_on
        )

    def to_html(self) -> str:
        """HTML that works by itself: module, style and data, no kernel and no other host.

        Examples
        --------
        >>> from attnpaths.widgets import landscape_task
        >>> page = Explorer(landscape_task(), title="Two heads").to_html()
        >>> page.startswith('<div class="attnpaths-live">'), "Two heads" in page
        (True, True)
        """
        state = {
            name: getattr(self, name)
            for name in (
                "task",
                "width",
                "temperature",
                "noise",
                "heads_on",
                "views",
                "title",
                "palette",
            )
        }
        state["tasks"] = [
            {
                key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
                for key, value in task.items()
            }
            for task in self.tasks
        ]
        key = f"attnpaths-{uuid.uuid4().hex[:12]}"
        style, source = ((HERE / f"explorer.{kind}").read_text("utf-8") for kind in ("css", "js"))
        return TEMPLATE.format(
            key=key, style=style, source=_script_json(source), state=_script_json(state)
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        # Jupyter shows the widget view; a static book, which has no kernel, the HTML.
        data, metadata = super()._repr_mimebundle_(**kwargs) or ({}, {})
        names = [task.name for task in self.task_data]
        return {**data, "text/plain": f"Explorer({names})", "text/html": self.to_html()}, metadata


# One import a page, however many explorers it shows. The class keeps the book from giving the
# figure a light ground in dark mode.
TEMPLATE = """<div class="attnpaths-live">
<div id="{key}"><noscript>This figure needs JavaScript.</noscript></div>
<style>
{style}</style>
<script type="module">
const source = new Blob([{source}], {{ type: "text/javascript" }});
globalThis.attnpathsExplorer ??= import(URL.createObjectURL(source));
const {{ default: explorer, standIn }} = await globalThis.attnpathsExplorer;
explorer.render({{ model: standIn({state}), el: document.getElementById("{key}") }});
</script>
</div>
"""


def _script_json(value: Any) -> str:
    """JSON that may stand inside a script element."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def _single(value: Array) -> Array:
    return value.astype("f4").astype(float)


def _in_steps(values: Array, bits: int) -> tuple[Array, Array, Array]:
    """Signed integers of so many bits, their scale a path and feature, and what they stand for."""
    largest = 2 ** (bits - 1) - 2  # one less than fits: rounding the scale may add one
    scale = _single(np.abs(values).max(axis=0) / largest)
    scale = np.where(scale > 0, scale, 1.0)
    steps = np.round(values / scale)
    return steps.astype(np.int32), scale, _single(steps * scale)


def _low_bytes(steps: Array, count: int) -> bytes:
    """The lowest bytes of each integer, which hold it if it is small enough."""
    return steps.astype("<i4").view("u1").reshape(-1, 4)[:, :count].tobytes()


def _as_labels(name: str, value: ArrayLike, count: int) -> Array:
    labels = as_array(name, value, (count,))
    if not np.isin(labels, (-1, 1)).all():
        raise ValueError(f"{name} must hold +1 and -1 only, got {np.unique(labels)[:5]}")
    return labels


def _as_range(name: str, value: tuple[float, float], minimum: float = 0) -> tuple[float, float]:
    low, high = (as_positive(name, number) for number in value)
    if not minimum <= low < high:
        raise ValueError(f"{name} must be (low, high) with {minimum} <= low < high, got {value!r}")
    return low, high


def _as_names(name: str, value: Sequence[str] | None, default: list[str]) -> list[str]:
    names = default if value is None else [str(item) for item in value]
    if len(names) != len(default):
        raise ValueError(f"{name} must hold {len(default)} names, got {len(names)}")
    return names


def _default_path_names(heads: tuple[int, ...]) -> list[str]:
    return ["·".join(map(str, path)) for path in path_names(heads)]


def _stops(ends: tuple[float, float], marks: Sequence[float]) -> list[float]:
    """Round numbers from one end to the other, both included."""
    low, high = ends
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    inside = {float(f"{mark * 10.0**power:.6g}") for power in powers for mark in marks}
    kept = {value for value in inside if low * (1 + 1e-9) < value < high * (1 - 1e-9)}
    return sorted({low, high, *kept})


def compress_inputs(xi: ArrayLike, xi_test: ArrayLike, features: int) -> tuple[Array, Array]:
    """Path inputs in their leading principal directions, to make a page's data smaller.

    The directions are those of the training inputs of all paths. Kernels keep their scale; what
    the dropped directions held is lost, so the result is a task of its own.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs of the training set.
    xi_test : array_like, shape (P', Pi, N0)
        Path inputs of the test set.
    features : int
        Directions to keep, at most N0.

    Returns
    -------
    tuple of ndarray
        Both in the new features.

    Raises
    ------
    ValueError
        If shapes disagree or `features` is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> xi = np.random.default_rng(0).normal(size=(8, 2, 5))
    >>> compress_inputs(xi, xi, 3)[0].shape
    (8, 2, 3)
    """
    xi = as_array("xi", xi, ("P", "Pi", "N0"))
    xi_test = as_array("xi_test", xi_test, ("P'", *xi.shape[1:]))
    features, total = as_count("features", features), xi.shape[2]
    if features > total:
        raise ValueError(f"features must be at most {total}, got {features}")
    flat = xi.reshape(-1, total)
    _, vectors = np.linalg.eigh(flat.T @ flat)
    directions = vectors[:, ::-1][:, :features] * np.sqrt(features / total)
    return xi @ directions, xi_test @ directions
