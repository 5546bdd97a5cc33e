"""Figures of the book: functions that take results and return matplotlib Axes.

One palette, safe for colour blindness (after Okabe and Ito): a regime or a path keeps its colour in every
figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from attnpaths._validation import as_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLOURS", "PATH_COLOURS", "plot_order_parameter", "use_style"]

COLOURS = {
    "theory": "#0072B2",
    "sampled": "#D55E00",
    "gp": "#595959",
    "trained": "#009E73",
    "published": "#000000",
}
PATH_COLOURS = {"g": "#CC79A7", "d": "#56B4E9", "adversarial": "#E69F00"}
SIGNED_MAP = "RdBu_r"


def use_style() -> None:
    """Set matplotlib's defaults for the book: white ground, readable sizes, thin axes.

    The ground is opaque, so that figures stay readable on a dark page.
    """
    import matplotlib as mpl

    mpl.rcParams.update(
        {
            "figure.dpi": 110,
            "savefig.dpi": 110,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": "medium",
            "axes.prop_cycle": mpl.cycler(color=list(COLOURS.values())[:4]),
            "font.size": 10.5,
            "legend.frameon": False,
            "image.cmap": SIGNED_MAP,
        }
    )


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
        If U is not a square matrix or the number of labels is another.
    """
    import matplotlib.pyplot as plt

    U = as_array("U", U, ("Pi", "Pi"))
    paths = len(U)
    if U.shape[1] != paths:
        raise ValueError(f"U must be square, got shape {U.shape}")
    labels = [str(path + 1) for path in range(paths)] if labels is None else list(labels)
    if len(labels) != paths:
        raise ValueError(f"labels must name {paths} paths, got {len(labels)}")
    if ax is None:
        _, ax = plt.subplots(figsize=(3.4, 3.0))
    limit = float(np.abs(U).max()) if limit is None else limit
    ax.imshow(U, cmap=SIGNED_MAP, vmin=-limit, vmax=limit)
    ax.set_xticks(range(paths), labels, rotation=0 if paths <= 6 else 90)
    ax.set_yticks(range(paths), labels)
    ax.spines[:].set_visible(False)
    if annotate if annotate is not None else paths <= 6:
        for (row, column), value in np.ndenumerate(U):
            dark = abs(value) > 0.6 * limit
            ax.text(
                column,
                row,
                f"{value:.2f}",
                ha="center",
                va="center",
                fontsize="small",
                color="white" if dark else "black",
            )
    return ax
