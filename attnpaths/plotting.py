"""Figures of the book: functions that take results and return matplotlib Axes.

One palette, safe for colour blindness (after Okabe and Ito): a regime or a path keeps its colour in
every figure. Signed matrices are drawn in a diverging map centred at zero, spreads over data seeds
as bands of one standard deviation. matplotlib is imported when a figure is drawn, not with the
module.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from attnpaths._validation import Array, as_array, as_choice, as_count, as_positive
from attnpaths.paths import path_names

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "COLOURS",
    "PATH_COLOURS",
    "path_colours",
    "plot_accuracy",
    "plot_alignment",
    "plot_attention",
    "plot_chain",
    "plot_images",
    "plot_limit",
    "plot_order_parameter",
    "plot_paths",
    "plot_published",
    "use_style",
]

COLOURS = {
    "theory": "#0072B2",
    "sampled": "#D55E00",
    "gp": "#595959",
    "trained": "#009E73",
    "published": "#000000",
}
PATH_COLOURS = {"g": "#CC79A7", "d": "#56B4E9", "adversarial": "#E69F00"}
SIGNED_MAP = "RdBu_r"
REGIME_NAMES = {
    "theory": "theory",
    "sampled": "sampled posterior",
    "gp": "GP limit",
    "trained": "trained network",
    "published": "published draw",
}
STATE_COLOURS = {1: COLOURS["sampled"], -1: COLOURS["theory"]}


def use_style() -> None:
    """Set matplotlib's defaults for the book: white ground, readable sizes, thin axes.

    The ground is opaque, so that figures stay readable on a dark page.

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> with plt.rc_context():  # to leave other figures as they are
    ...     use_style()
    ...     plt.rcParams["axes.spines.top"]
    False
    """
    import matplotlib as mpl
    from cycler import cycler

    mpl.rcParams.update(
        {
            "figure.dpi": 144,
            "savefig.dpi": 144,
            "figure.figsize": (5.2, 3.4),
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "axes.prop_cycle": cycler(color=list(COLOURS.values())[:4]),
            "font.size": 10.5,
            "legend.frameon": False,
            "image.cmap": SIGNED_MAP,
        }
    )


def path_colours(labels: Sequence[str]) -> list[str]:
    """Colours of named paths: those of g and d, the adversarial colour for all others.

    Parameters
    ----------
    labels : sequence of str
        Names of paths (see `attnpaths.tasks.hidden_markov.path_labels`).

    Returns
    -------
    list of str
        Hexadecimal colours.

    Examples
    --------
    >>> path_colours(["g", "a12"])
    ['#CC79A7', '#E69F00']
    """
    return [PATH_COLOURS.get(label, PATH_COLOURS["adversarial"]) for label in labels]


def plot_accuracy(
    widths: ArrayLike,
    accuracy: ArrayLike,
    *,
    regime: str = "theory",
    label: str | None = None,
    ax: Axes | None = None,
    **line: Any,
) -> Axes:
    """Draw accuracy against width, with its spread over data seeds.

    Parameters
    ----------
    widths : array_like, shape (n,)
        Widths N, all positive; the axis is logarithmic.
    accuracy : array_like, shape (n,) or (seeds, n)
        Fractions of right answers, between 0 and 1; drawn in percent. Several seeds give their mean
        and a band of one standard deviation.
    regime : {"theory", "sampled", "gp", "trained", "published"}
        Which colour and which name.
    label : str, optional
        Entry of the legend; default the regime's name.
    ax : Axes, optional
        Where to draw; default a new figure.
    **line
        Passed to `Axes.plot`.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If sizes disagree, a width is not positive, an accuracy is not between 0 and 1, or
        the regime is unknown.

    Examples
    --------
    >>> ax = plot_accuracy([10, 100, 1000], [[0.91, 0.86, 0.83], [0.89, 0.87, 0.82]])
    >>> ax = plot_limit([0.82, 0.84], ax=ax)
    >>> ax.get_legend_handles_labels()[1], ax.get_xscale()
    (['theory', 'GP limit'], 'log')
    """
    widths = as_array("widths", widths, ("n",))
    if widths.min() <= 0:
        raise ValueError(f"widths must be positive, got {widths.min()!r}")
    seeds = _as_fractions("accuracy", accuracy, len(widths))
    regime = as_choice("regime", regime, tuple(COLOURS))
    ax = _axes(ax)
    mean = 100 * seeds.mean(axis=0)
    style = {"color": COLOURS[regime], "marker": "o", "markersize": 4, **line}
    ax.plot(widths, mean, label=REGIME_NAMES[regime] if label is None else label, **style)
    if len(seeds) > 1:
        spread = 100 * seeds.std(axis=0, ddof=1)
        ax.fill_between(
            widths, mean - spread, mean + spread, color=style["color"], alpha=0.18, lw=0
        )
    ax.set_xscale("log")
    ax.set(xlabel="width $N$", ylabel="test accuracy (%)")
    return ax


def plot_limit(
    accuracy: ArrayLike,
    *,
    colour: str = COLOURS["gp"],
    label: str | None = "GP limit",
    ax: Axes | None = None,
    band: bool = True,
    **line: Any,
) -> Axes:
    """Draw an accuracy that does not depend on width as a level line.

    Parameters
    ----------
    accuracy : float or array_like, shape (seeds,)
        Fractions of right answers; several seeds give their mean and a band of one standard
        deviation.
    colour : str
        Colour of line and band.
    label : str, optional
        Entry of the legend.
    ax : Axes, optional
        Where to draw; default a new figure.
    band : bool
        Whether to draw the band.
    **line
        Passed to `Axes.axhline`.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If an accuracy is not between 0 and 1.

    Examples
    --------
    >>> ax = plot_limit(0.83, label="chance", colour="black")
    >>> [float(height) for height in ax.lines[0].get_ydata()]  # in percent
    [83.0, 83.0]
    """
    seeds = _as_fractions("accuracy", np.reshape(as_array("accuracy", accuracy), (-1, 1)), 1)
    ax = _axes(ax)
    mean = 100 * seeds.mean()
    ax.axhline(mean, **{"color": colour, "ls": "--", "lw": 1.5, "label": label, **line})
    if band and len(seeds) > 1:
        spread = 100 * seeds.std(ddof=1)
        ax.axhspan(mean - spread, mean + spread, color=colour, alpha=0.12, lw=0)
    ax.set(ylabel="test accuracy (%)")
    return ax


def plot_published(
    widths: ArrayLike,
    accuracy: ArrayLike,
    *,
    label: str | None = "published draw",
    ax: Axes | None = None,
    **marks: Any,
) -> Axes:
    """Mark the accuracies of the published draw: open black diamonds, without line.

    Parameters
    ----------
    widths, accuracy : array_like, shape (n,)
        Widths and fractions of right answers.
    label : str, optional
        Entry of the legend.
    ax : Axes, optional
        Where to draw; default a new figure.
    **marks
        Passed to `Axes.plot`.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        As `plot_accuracy`.

    Examples
    --------
    >>> from attnpaths.published import published_case
    >>> case = published_case("four_paths")
    >>> ax = plot_published(case["widths"], case["accuracy"])
    >>> len(ax.lines[0].get_xdata()) == len(case["widths"])
    True
    """
    accuracy = as_array("accuracy", accuracy, ("n",))
    style = {"ls": "none", "marker": "D", "markersize": 5, "markerfacecolor": "none", **marks}
    return plot_accuracy(widths, accuracy, regime="published", label=label, ax=ax, **style)


def plot_alignment(
    overlaps: ArrayLike,
    *,
    regime: str = "theory",
    label: str | None = None,
    components: int = 30,
    ax: Axes | None = None,
    **line: Any,
) -> Axes:
    """Draw the overlap of a kernel's principal components with the labels.

    Parameters
    ----------
    overlaps : array_like, shape (P,) or (seeds, P)
        From `attnpaths.kernel_task_alignment`; several seeds give their mean and a band of one
        standard deviation.
    regime : {"theory", "sampled", "gp", "trained", "published"}
        Which colour and which name.
    label : str, optional
        Entry of the legend; default the regime's name.
    components : int
        How many components to draw, from the largest eigenvalue.
    ax : Axes, optional
        Where to draw; default a new figure.
    **line
        Passed to `Axes.plot`.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If an overlap is not between 0 and 1, `components` is below one, or the regime is unknown.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import kernel_task_alignment
    >>> K = np.diag([3.0, 2.0, 1.0])
    >>> ax = plot_alignment(kernel_task_alignment(K, [1.0, 1.0, -1.0]), components=2)
    >>> ax.lines[0].get_ydata().round(3)
    array([0.577, 0.577])
    """
    overlaps = as_array("overlaps", overlaps)
    seeds = _as_fractions("overlaps", overlaps, overlaps.shape[-1] if overlaps.ndim else 1)
    regime = as_choice("regime", regime, tuple(COLOURS))
    seeds = seeds[:, : as_count("components", components)]
    ax = _axes(ax)
    rank = np.arange(1, seeds.shape[1] + 1)
    mean = seeds.mean(axis=0)
    style = {"color": COLOURS[regime], "marker": "o", "markersize": 3, "lw": 1.2, **line}
    ax.plot(rank, mean, label=REGIME_NAMES[regime] if label is None else label, **style)
    if len(seeds) > 1:
        spread = seeds.std(axis=0, ddof=1)
        low = np.maximum(mean - spread, 0)
        ax.fill_between(rank, low, mean + spread, color=style["color"], alpha=0.18, lw=0)
    ax.set(xlabel="kernel principal component", ylabel="overlap with the labels")
    ax.set_ylim(bottom=0)
    return ax


def plot_attention(
    attention: ArrayLike, *, ax: Axes | None = None, limit: float | None = None
) -> Axes:
    """Draw an attention matrix: rows ask (query), columns answer (key).

    Parameters
    ----------
    attention : array_like, shape (T, T)
        Attention of one head on one example.
    ax : Axes, optional
        Where to draw; default a new figure.
    limit : float, optional
        End of the colour scale, which starts at zero; default the largest entry.

    Returns
    -------
    Axes
        Its image is ``ax.images[0]``, for a colour bar.

    Raises
    ------
    ValueError
        If the matrix is not square or `limit` is not positive.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import bilinear_attention
    >>> attention = bilinear_attention(np.ones((1, 4, 3)), np.zeros((1, 3, 3)))
    >>> ax = plot_attention(attention[0, 0], limit=1.0)
    >>> ax.get_ylabel(), ax.images[0].get_clim() == (0, 1)
    ('query position', True)
    """
    attention = as_array("attention", attention, ("T", "T"))
    if attention.shape[0] != attention.shape[1]:
        raise ValueError(f"attention must be square, got shape {attention.shape}")
    limit = attention.max() if limit is None else as_positive("limit", limit)
    ax = _axes(ax)
    ax.imshow(attention, cmap="Greys", vmin=0, vmax=limit, interpolation="nearest")
    ax.spines[:].set_visible(True)
    ax.set(xlabel="key position", ylabel="query position")
    return ax


def plot_chain(
    states: ArrayLike, observed: ArrayLike | None = None, *, ax: Axes | None = None
) -> Axes:
    """Draw one sequence of two hidden states and what is seen of them.

    Parameters
    ----------
    states : array_like, shape (T,)
        Hidden states, +1 or -1.
    observed : array_like, shape (T,), optional
        Noisy observations along the line on which the states lie at +1 and -1.
    ax : Axes, optional
        Where to draw; default a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If a state is neither +1 nor -1 or the lengths disagree.

    Examples
    --------
    >>> from attnpaths.tasks.hidden_markov import HiddenMarkovChain
    >>> data = HiddenMarkovChain().sample(1, seed=0)
    >>> ax = plot_chain(data.states[0])
    >>> [float(end) for end in ax.get_xlim()]
    [0.0, 31.0]
    """
    states = as_array("states", states, ("T",))
    if not np.isin(states, (-1, 1)).all():
        raise ValueError(f"states must be +1 or -1, got {np.unique(states).tolist()}")
    if observed is not None:
        observed = as_array("observed", observed, (len(states),))
    ax = _axes(ax)
    time = np.arange(1, len(states) + 1)
    ax.step(time, states, where="mid", color="#8c8c8c", lw=1.2, label="hidden state", zorder=1)
    if observed is not None:
        for state, name in ((1, "+"), (-1, "−")):
            mine = states == state
            ax.scatter(
                time[mine],
                observed[mine],
                s=16,
                color=STATE_COLOURS[state],
                marker="o" if state > 0 else "s",
                label=f"seen in state {name}",
                zorder=2,
            )
    ax.set_yticks([-1, 1], ["−", "+"])
    ax.set(xlabel="position in the sequence", xlim=(0, len(states) + 1))
    return ax


def plot_images(
    images: ArrayLike,
    titles: Sequence[str] | None = None,
    *,
    patch: int | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Draw grey images side by side, cut into the patches that are the tokens.

    Parameters
    ----------
    images : array_like, shape (n, height, width)
        Images of any scale: the smallest value of all is black, the largest white.
    titles : sequence of str, optional
        One for each image.
    patch : int, optional
        Side of a patch, whose borders are then drawn.
    axes : sequence of Axes, optional
        Where to draw; default a new figure of one row.

    Returns
    -------
    list of Axes

    Raises
    ------
    ValueError
        If the number of titles or axes is not that of the images.

    Examples
    --------
    >>> from attnpaths.tasks.one_shot import load_images
    >>> images = load_images("digits", "test").pixels[:, 0]
    >>> axes = plot_images(images, ["0", "1", "9"], patch=8)
    >>> [ax.get_title() for ax in axes]
    ['0', '1', '9']
    """
    import matplotlib.pyplot as plt

    images = as_array("images", images, ("n", "height", "width"))
    count, height, width = images.shape
    for name, given in (("titles", titles), ("axes", axes)):
        if given is not None and len(given) != count:
            raise ValueError(f"{name} must have one entry an image ({count}), got {len(given)}")
    side = None if patch is None else as_count("patch", patch)
    if axes is None:
        _, row = plt.subplots(1, count, figsize=(1.5 * count, 1.9), squeeze=False)
        axes = list(row[0])
    for index, (image, ax) in enumerate(zip(images, axes, strict=True)):
        ax.imshow(image, cmap="gray", vmin=images.min(), vmax=images.max())
        if side is not None:
            for line in range(side, width, side):
                ax.axvline(line - 0.5, color=COLOURS["theory"], lw=0.6)
            for line in range(side, height, side):
                ax.axhline(line - 0.5, color=COLOURS["theory"], lw=0.6)
        ax.set_xticks([])
        ax.set_yticks([])
        ax.spines[:].set_visible(True)
        if titles is not None:
            ax.set_title(titles[index])
    return list(axes)


def plot_order_parameter(
    U: ArrayLike,
    labels: Sequence[str] | None = None,
    *,
    ax: Axes | None = None,
    limit: float | None = None,
    annotate: bool | None = None,
) -> Axes:
    """Draw an order parameter as a signed heat map centred at zero.

    Parameters
    ----------
    U : array_like, shape (Pi, Pi)
        Order parameter of the first layer.
    labels : sequence of str, optional
        Names of the paths; default their numbers.
    ax : Axes, optional
        Where to draw; default a new figure.
    limit : float, optional
        End of the colour scale; default the largest entry in absolute value.
    annotate : bool, optional
        Whether to write the numbers; default for up to six paths.

    Returns
    -------
    Axes
        Its image is ``ax.images[0]``, for a colour bar.

    Raises
    ------
    ValueError
        If U is not a square matrix, the number of labels is another, or `limit` is not positive.

    Examples
    --------
    >>> ax = plot_order_parameter([[2.0, -0.5], [-0.5, 1.0]], ["g", "d"])
    >>> [text.get_text() for text in ax.texts]
    ['2.00', '−0.50', '−0.50', '1.00']
    >>> ax.images[0].get_clim() == (-2, 2)
    True
    """
    U = as_array("U", U, ("Pi", "Pi"))
    paths = len(U)
    if U.shape[1] != paths:
        raise ValueError(f"U must be square, got shape {U.shape}")
    labels = [str(path + 1) for path in range(paths)] if labels is None else list(labels)
    if len(labels) != paths:
        raise ValueError(f"labels must name {paths} paths, got {len(labels)}")
    limit = (np.abs(U).max() or 1.0) if limit is None else as_positive("limit", limit)
    ax = _axes(ax, figsize=(3.4, 3.0))
    ax.imshow(U, cmap=SIGNED_MAP, vmin=-limit, vmax=limit)
    ax.set_xticks(range(paths), labels, rotation=0 if paths <= 6 else 90)
    ax.set_yticks(range(paths), labels)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if annotate if annotate is not None else paths <= 6:
        for (row, column), value in np.ndenumerate(U):
            dark = abs(value) > 0.6 * limit
            ax.text(
                column,
                row,
                f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−"),
                ha="center",
                va="center",
                fontsize="small",
                color="white" if dark else "black",
            )
    return ax


def plot_paths(
    heads: Sequence[int],
    *,
    labels: Sequence[str] | None = None,
    colours: Sequence[str] | None = None,
    head_names: Sequence[Sequence[str]] | None = None,
    weights: ArrayLike | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw the attention paths of a network, from the tokens (left) to the readout (right).

    Parameters
    ----------
    heads : sequence of int
        Heads a layer, (H_1, ..., H_L).
    labels : sequence of str, optional
        Names of the paths, in the order of `attnpaths.path_names`; they colour the paths as
        `path_colours` and make the legend. Default their heads.
    colours : sequence of str, optional
        One colour a path; default by `labels` if these are given, else distinct colours.
    head_names : sequence of sequence of str, optional
        What each head does, written in its box; default "head 1" and so on.
    weights : array_like, shape (Pi,), optional
        Line width of each path, relative to the largest (for instance the diagonal of U).
    ax : Axes, optional
        Where to draw; default a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If a list does not fit the heads or a weight is negative.

    Examples
    --------
    >>> ax = plot_paths((2, 2), labels=["g", "a12", "d", "a22"], weights=[2.0, 0.5, 1.5, 0.5])
    >>> ax.get_legend_handles_labels()[1]
    ['g', 'a12', 'd', 'a22']
    """
    import matplotlib as mpl
    from matplotlib.path import Path

    paths = path_names(heads)
    counts = [max(path[layer] for path in paths) for layer in range(len(paths[0]))]
    for name, given in (("labels", labels), ("colours", colours)):
        if given is not None and len(given) != len(paths):
            raise ValueError(f"{name} must have one entry a path ({len(paths)}), got {len(given)}")
    if colours is None:
        if labels is not None:
            colours = path_colours(labels)
        else:
            shades = mpl.colormaps["viridis"](np.linspace(0, 0.9, len(paths)))
            colours = [mpl.colors.to_hex(shade) for shade in shades]
    if labels is None:
        labels = ["(" + ", ".join(map(str, path)) + ")" for path in paths]
    colours = list(colours)
    if head_names is None:
        head_names = [[f"head {h + 1}" for h in range(count)] for count in counts]
    if [len(names) for names in head_names] != counts:
        raise ValueError(
            f"head_names must name {counts} heads, got {[len(names) for names in head_names]}"
        )
    sizes = np.ones(len(paths))
    if weights is not None:
        sizes = as_array("weights", weights, (len(paths),))
        if sizes.min() < 0 or sizes.max() == 0:
            raise ValueError(f"weights must be positive numbers, got {sizes.tolist()}")
    thickest = 3.2 if len(paths) <= 6 else 1.6
    widths = np.maximum(thickest * sizes / sizes.max(), 0.5)
    # Paths of one colour (the adversarial ones) differ in their dashes.
    dashes = [("-", "--", ":", "-.")[colours[:i].count(c) % 4] for i, c in enumerate(colours)]

    layers = len(counts)
    ax = _axes(ax, figsize=(1.9 * (layers + 2), 0.55 + 0.85 * max(counts)))
    half, tall = 0.30, 0.13  # half the width and height of a box; columns are one apart
    gap = min(0.05, 2 * tall / (len(paths) + 1))
    offsets = gap * (np.arange(len(paths)) - (len(paths) - 1) / 2)

    def height(layer: int, head: int) -> float:
        return 0.5 * ((counts[layer] - 1) / 2 - head)

    for path, colour, width, dash, offset, label in zip(
        paths, colours, widths, dashes, offsets, labels, strict=True
    ):
        stops = [0.0, *(height(layer, head - 1) for layer, head in enumerate(path)), 0.0]
        points, codes = [(half, stops[0] - offset)], [Path.MOVETO]
        for column in range(1, len(stops)):
            left, right = column - 1 + half, column - half
            y0, y1 = stops[column - 1] - offset, stops[column] - offset
            middle = (left + right) / 2
            points += [(middle, y0), (middle, y1), (right, y1), (column + half, y1)]
            codes += [Path.CURVE4] * 3 + [Path.LINETO]
        line = mpl.patches.PathPatch(
            Path(points[:-1], codes[:-1]), fill=False, edgecolor=colour, lw=width, ls=dash, zorder=1
        )
        ax.add_patch(line)
        ax.plot([], [], color=colour, lw=max(width, 1.5), ls=dash, label=label)

    boxes = [(0, 0.0, "tokens $x$"), (layers + 1, 0.0, "readout")]
    for layer, names in enumerate(head_names):
        boxes += [(layer + 1, height(layer, head), name) for head, name in enumerate(names)]
        ax.text(layer + 1, height(layer, 0) + tall + 0.07, f"layer {layer + 1}", ha="center")
    for x, y, text in boxes:
        ax.add_patch(
            mpl.patches.FancyBboxPatch(
                (x - half, y - tall),
                2 * half,
                2 * tall,
                boxstyle="round,pad=0,rounding_size=0.05",
                facecolor="#f4f4f4",
                edgecolor="#595959",
                lw=0.9,
                zorder=2,
            )
        )
        ax.text(x, y, text, ha="center", va="center", fontsize="small", zorder=3)
    top = height(int(np.argmax(counts)), 0) + tall
    ax.set(xlim=(-half - 0.05, layers + 1 + half + 0.05), ylim=(-top - 0.06, top + 0.28))
    ax.axis("off")
    if len(paths) <= 8:
        ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), title="path")
    return ax


def _axes(ax: Axes | None, figsize: tuple[float, float] | None = None) -> Axes:
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=figsize)[1]


def _as_fractions(name: str, value: ArrayLike, count: int) -> Array:
    """Numbers between 0 and 1 as (seeds, count)."""
    array = as_array(name, value)
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2 or array.shape[1] != count:
        raise ValueError(
            f"{name} must have shape ({count},) or (seeds, {count}), got shape {np.shape(value)}"
        )
    # A rounding error above one is no mistake.
    if array.min() < 0 or array.max() > 1 + 1e-9:
        raise ValueError(
            f"{name} must be between 0 and 1, got {array.min():.3g} to {array.max():.3g}"
        )
    return array
