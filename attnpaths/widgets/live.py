"""Live cells: sliders over a function that Python runs again, and its picture where no Python runs.

Where the browser's own solver is not enough (new noise, new data, more heads), Python does the
work. In Jupyter `live` shows controls over the figure that a function draws; in a static page the
same cell shows that figure and one line saying that it is live in Jupyter.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO
from typing import Any

import ipywidgets
import numpy as np

from attnpaths._validation import as_count, as_positive
from attnpaths.kernels import kernel, kernel_task_alignment
from attnpaths.order_parameter import Architecture, gp_order_parameter, solve_order_parameter
from attnpaths.plotting import plot_alignment, plot_order_parameter
from attnpaths.predictor import predict
from attnpaths.tasks.hidden_markov import (
    HiddenMarkovChain,
    four_path_heads,
    good_path_heads,
    path_labels,
    sample_path_inputs,
    two_path_heads,
)

__all__ = ["LiveFigure", "LogSlider", "live", "live_hidden_markov"]

# Which heads exist, and so which paths.
HIDDEN_MARKOV_NETWORKS: dict[str, Callable[[HiddenMarkovChain, int], list[Any]]] = {
    "g, d and two adversarial paths": four_path_heads,
    "g and d": lambda chain, seed: two_path_heads(chain),
    "g alone": lambda chain, seed: good_path_heads(chain),
}


@dataclass(frozen=True)
class LogSlider:
    """A control for a positive number, in equal steps of its logarithm.

    Parameters
    ----------
    low, high : float
        Ends.
    value : float
        Where it starts.
    per_decade : int
        Steps a factor of ten.

    Raises
    ------
    ValueError
        If the numbers are not positive or not in order.

    Examples
    --------
    >>> slider = LogSlider(1, 1000, value=10, per_decade=5)
    >>> slider.widget().value
    10.0
    """

    low: float
    high: float
    value: float
    per_decade: int = 10

    def __post_init__(self) -> None:
        for name in ("low", "high", "value"):
            as_positive(name, getattr(self, name))
        as_count("per_decade", self.per_decade)
        if not self.low <= self.value <= self.high or self.low == self.high:
            raise ValueError(
                f"value must lie between low and high, got {self.low}, {self.value}, {self.high}"
            )

    def widget(self) -> ipywidgets.FloatLogSlider:
        """The slider.

        Examples
        --------
        >>> widget = LogSlider(1, 1000, value=10).widget()
        >>> widget.min, widget.max, widget.value  # the ends are logarithms
        (0.0, 3.0, 10.0)
        """
        return ipywidgets.FloatLogSlider(
            value=self.value,
            min=float(np.log10(self.low)),
            max=float(np.log10(self.high)),
            step=1 / self.per_decade,
            readout_format=".3g",
        )


class LiveFigure:
    """Controls over a figure in Jupyter; the figure and a line of text elsewhere. Made by `live`.

    Attributes
    ----------
    values : dict
        The controls' present values.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths.plotting import plot_order_parameter
    >>> figure = live(lambda size: plot_order_parameter(np.eye(size)), size=(1, 6))
    >>> figure.widget().children[0].value = 4  # as the reader does by hand
    >>> figure.values
    {'size': 4}
    >>> "there size can be changed" in figure.to_html()
    True
    """

    def __init__(
        self, function: Callable[..., Any], controls: dict[str, Any], alt: str, note: str
    ) -> None:
        self.function, self.alt, self.note = function, alt, note
        self._controls = controls
        self.values = {name: _first_value(name, control) for name, control in controls.items()}
        self._picture = self._draw()
        self._box: ipywidgets.VBox | None = None

    def _draw(self) -> bytes:
        import matplotlib.pyplot as plt

        figure = _figure_of(self.function(**self.values))
        buffer = BytesIO()
        figure.savefig(buffer, format="png", bbox_inches="tight")
        plt.close(figure)
        return buffer.getvalue()

    def widget(self) -> ipywidgets.VBox:
        """The controls over the picture, as one ipywidget.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths.plotting import plot_order_parameter
        >>> figure = live(lambda size: plot_order_parameter(np.eye(size)), size=(1, 6))
        >>> slider = figure.widget().children[0]
        >>> slider.description, slider.value
        ('size', 3)
        """
        if self._box is not None:
            return self._box
        image = ipywidgets.HTML(self._image())
        message = ipywidgets.HTML()
        sliders = {name: _as_widget(name, control) for name, control in self._controls.items()}

        def change(_: Any) -> None:
            self.values = {name: slider.value for name, slider in sliders.items()}
            message.value = "<i>solving …</i>"
            try:
                self._picture = self._draw()
                image.value = self._image()
                message.value = ""
            except Exception as error:  # shown beside the controls: a callback has no other place
                message.value = f"<b>{escape(type(error).__name__)}</b>: {escape(str(error))}"

        for name, slider in sliders.items():
            slider.description = slider.description or name.replace("_", " ")
            slider.style = {"description_width": "9em"}
            slider.layout = {"width": "28em", "max_width": "100%"}
            if slider.has_trait("continuous_update"):
                slider.continuous_update = False
            slider.observe(change, "value")
        self._box = ipywidgets.VBox([*sliders.values(), message, image])
        return self._box

    def to_html(self) -> str:
        """The picture and one line on where it is live.

        Examples
        --------
        >>> import numpy as np
        >>> from attnpaths.plotting import plot_order_parameter
        >>> figure = live(lambda size: plot_order_parameter(np.eye(size)), size=(1, 6), note="U")
        >>> figure.to_html().count("<img"), "<em>U</em>" in figure.to_html()
        (1, True)
        """
        names = [name.replace("_", " ") for name in self._controls]
        listed = ", ".join(names[:-1]) + (" and " if names[:-1] else "") + names[-1]
        note = (
            self.note or f"Live in Jupyter: there {listed} can be changed, and Python solves again."
        )
        return (
            f'<figure class="attnpaths-live" style="margin:0">{self._image()}'
            f'<figcaption class="attnpaths-live-note"><em>{escape(note)}</em></figcaption></figure>'
        )

    def _image(self) -> str:
        data = base64.b64encode(self._picture).decode()
        return (
            f'<img src="data:image/png;base64,{data}" alt="{escape(self.alt)}" '
            'style="max-width:100%">'
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, Any]:
        # Jupyter prefers the widget view, a static page (see the book's settings) the HTML.
        bundle = self.widget()._repr_mimebundle_(**kwargs)
        data = bundle[0] if isinstance(bundle, tuple) else bundle
        return {**data, "text/plain": f"LiveFigure({self.values})", "text/html": self.to_html()}


def live(
    function: Callable[..., Any], *, alt: str = "", note: str = "", **controls: Any
) -> LiveFigure:
    """Show controls over a figure that Python draws again at every change.

    Parameters
    ----------
    function : callable
        Called with the controls' values by name; returns a matplotlib Figure, Axes, or a sequence
        of Axes of one figure.
    alt : str
        What the figure shows, for readers who do not see it.
    note : str
        The line below the picture in a static page; a fitting one by default.
    **controls
        One for each argument of `function`: a `LogSlider`, an ipywidget, or what
        `ipywidgets.interact` takes (a range as tuple, choices as list, a bool, a text).

    Returns
    -------
    LiveFigure

    Raises
    ------
    ValueError
        If there is no control, one is of no known kind, or the function returns no figure.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths.plotting import plot_order_parameter
    >>> figure = live(lambda size: plot_order_parameter(np.eye(size)), size=(1, 6))
    >>> figure.values
    {'size': 3}
    """
    if not callable(function):
        raise ValueError(f"function must be callable, got {type(function).__name__}")
    if not controls:
        raise ValueError("controls must hold at least one control, got none")
    return LiveFigure(function, dict(controls), str(alt), str(note))


def live_hidden_markov(
    *, width: float = 10, temperature: float = 0.01, sigma_perp: float = 1.0, seed: int = 0
) -> LiveFigure:
    """Live figure of the hidden Markov chain task: new data, new noise, other paths.

    Every change draws the task anew, solves it in Python and shows the order parameter beside the
    kernel's alignment with the labels. The arguments say where the controls start.

    Parameters
    ----------
    width : float
        Width N of all layers, 1 to 10,000.
    temperature : float
        Temperature T, 0.001 to 10.
    sigma_perp : float
        Strength of the noise outside the plane of the states, 0 to 10.
    seed : int
        Seed of data and random heads.

    Returns
    -------
    LiveFigure

    Raises
    ------
    ValueError
        If a start is out of range.

    Examples
    --------
    >>> figure = live_hidden_markov(width=100, sigma_perp=5)
    >>> figure.values["width"], figure.values["sigma_perp"], figure.values["seed"]
    (100, 5.0, 0)
    """
    return live(
        draw_hidden_markov,
        alt="Order parameter as a heat map, and overlap of the kernel's components with the labels",
        width=LogSlider(1, 10_000, width),
        temperature=LogSlider(1e-3, 10, temperature),
        sigma_perp=ipywidgets.FloatSlider(
            value=sigma_perp, min=0, max=10, step=0.5, description="sigma perp"
        ),
        paths=list(HIDDEN_MARKOV_NETWORKS),
        seed=ipywidgets.BoundedIntText(
            value=as_count("seed", seed, 0), min=0, max=2**31 - 1, description="data seed"
        ),
    )


def draw_hidden_markov(
    width: float, temperature: float, sigma_perp: float, paths: str, seed: int
) -> Any:
    """Draw the task, solve it and draw the figure of `live_hidden_markov`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    import matplotlib.pyplot as plt

    chain, rng = HiddenMarkovChain(sigma_perp=sigma_perp), np.random.default_rng(seed)
    heads = HIDDEN_MARKOV_NETWORKS[paths](chain, seed)
    xi, y = sample_path_inputs(chain, heads, 100, rng)
    xi_test, y_test = sample_path_inputs(chain, heads, 1000, rng, chunk=1000)
    counts = [len(layer) for layer in heads]
    network = Architecture(counts, width)
    points = {
        "theory": solve_order_parameter(xi, y, network, temperature),
        "gp": gp_order_parameter(network),
    }
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(8.2, 3.2), width_ratios=(1, 1.5), layout="constrained"
    )
    plot_order_parameter(points["theory"].matrix, path_labels(counts), ax=left)
    left.set_title(f"U at N = {width:.3g}")
    for regime, point in points.items():
        mean = predict(xi, y, xi_test, point, temperature).mean
        accuracy = np.mean(mean * y_test > 0)
        name = "theory" if regime == "theory" else "GP limit"
        overlaps = kernel_task_alignment(kernel(xi, point.matrix), y)
        plot_alignment(
            overlaps, regime=regime, label=f"{name}: {100 * accuracy:.1f} % right", ax=right
        )
    right.legend(frameon=False)
    return figure


def _as_widget(name: str, control: Any) -> Any:
    if isinstance(control, LogSlider):
        return control.widget()
    if isinstance(control, ipywidgets.ValueWidget):
        return control
    widget = ipywidgets.interactive.widget_from_abbrev(control)
    if widget is None:
        raise ValueError(f"{name} must be a control, got {control!r}")
    return widget


def _first_value(name: str, control: Any) -> Any:
    return control.value if isinstance(control, LogSlider) else _as_widget(name, control).value


def _figure_of(drawn: Any) -> Any:
    """The matplotlib figure of what a function returned."""
    if isinstance(drawn, Sequence | np.ndarray) and len(drawn):
        drawn = np.ravel(np.asarray(drawn, dtype=object))[0]
    figure = getattr(drawn, "figure", None) or drawn
    if not hasattr(figure, "savefig"):
        raise ValueError(
            f"function must return a matplotlib Figure or Axes, got {type(drawn).__name__}"
        )
    return figure
