"""Figures to compare with: the paper's own settings, run by its public reference implementation.

They belong to one draw of data and heads (one seed): an accuracy carries the spread of one draw.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from attnpaths._validation import as_choice

__all__ = ["published_case"]

CASES = (
    "four_paths",
    "good_path_only",
    "good_and_denoising",
    "two_paths_noisy",
    "four_paths_sampled",
    "one_shot",
)


@cache
def _measurements() -> dict[str, Any]:
    text = files("attnpaths").joinpath("data", "published.json").read_text(encoding="utf-8")
    return json.loads(text)


def published_case(case: str) -> dict[str, Any]:
    """Figures measured by running the paper's public reference implementation, one seed.

    Parameters
    ----------
    case : str
        "four_paths", "good_path_only", "good_and_denoising", "two_paths_noisy" and
        "four_paths_sampled" (hidden Markov chain task, Figure 2), or "one_shot" (constants
        recorded in that implementation, Figure 3).

    Returns
    -------
    dict
        "network" says what was run; lists of numbers are arrays. The Markov cases hold "widths"
        (n,), "accuracy" (n,), "U" (n, Pi, Pi) and, where not sampled, "gp_accuracy", "action" (n,),
        "U_layer2" and "readout"; accuracies are fractions.

    Raises
    ------
    ValueError
        If there is no such case.

    Examples
    --------
    >>> published_case("four_paths")["gp_accuracy"]
    0.826
    """
    figures = _measurements()["cases"][as_choice("case", case, CASES)]
    return {
        key: np.array(value) if isinstance(value, list) else value for key, value in figures.items()
    }
