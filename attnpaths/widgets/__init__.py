"""Interactive figures: the in-browser explorer, and live cells in which Python does the work."""

from attnpaths.widgets.examples import (
    digits_task,
    four_path_task,
    hidden_markov_explorer,
    landscape_explorer,
    landscape_task,
    paper_explorer,
    two_path_task,
)
from attnpaths.widgets.explorer import Explorer, ExplorerTask, Solution, compress_inputs
from attnpaths.widgets.live import LiveFigure, LogSlider, live, live_hidden_markov

__all__ = [
    "Explorer",
    "ExplorerTask",
    "LiveFigure",
    "LogSlider",
    "Solution",
    "compress_inputs",
    "digits_task",
    "four_path_task",
    "hidden_markov_explorer",
    "landscape_explorer",
    "landscape_task",
    "live",
    "live_hidden_markov",
    "paper_explorer",
    "two_path_task",
]
