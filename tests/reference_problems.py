"""The check problems: inputs made from formulas, and what the reference code gives for them.

The values come from the paper's public reference implementation, run in float64; see
`reference_vectors.json` for what each field holds.
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

import attnpaths

VECTORS = json.loads((Path(__file__).parent / "reference_vectors.json").read_text())


class ReferenceProblem(NamedTuple):
    """One check problem, its inputs made and its network set up."""

    vector: dict
    xi: np.ndarray
    xi_test: np.ndarray
    y: np.ndarray
    architecture: attnpaths.Architecture
    temperature: float


def reference_problem(vector: dict) -> ReferenceProblem:
    """Make the inputs of a check problem from their formulas."""
    tokens, features = vector["T"], vector["I"]
    x = _tokens(vector["P"], tokens, features, 0.0)
    x_test = _tokens(vector["P_test"], tokens, features, 0.21)
    number = np.arange(1, vector["P"] + 1)
    y = np.where(np.sin(2.3 * number**1.5) >= 0, 1.0, -1.0)
    heads = [_heads(vector, layer, count) for layer, count in enumerate(vector["heads"])]

    def inputs(x: np.ndarray) -> np.ndarray:
        if vector["style"] == "w":
            layers = [attnpaths.bilinear_attention(x, w, vector["nonlinearity"]) for w in heads]
        else:
            layers = [
                attnpaths.query_key_attention(x, q, k, vector["nonlinearity"]) for q, k in heads
            ]
        return attnpaths.path_inputs(x, layers, vector["readout"])

    network = attnpaths.Architecture(vector["heads"], vector["widths"], vector["variances"])
    return ReferenceProblem(vector, inputs(x), inputs(x_test), y, network, vector["temperature"])


def _tokens(examples: int, tokens: int, features: int, shift: float) -> np.ndarray:
    p, t, i = np.ogrid[:examples, :tokens, :features]
    phase = 0.37 * (p + 1) * (t + 2) + 0.11 * (i + 1) * (p + 3) + 0.53 * (i + 1) * (t + 1)
    return np.sin(phase + shift)


def _heads(vector: dict, layer: int, count: int):
    features = vector["I"]
    if vector["style"] == "w":
        h, i, j = np.ogrid[:count, :features, :features]
        return 0.4 * np.cos(
            0.29 * (i + 1) * (j + 2) + 1.7 * (h + 1) + 0.9 * (layer + 1) * (i + 2 * j + 1)
        )
    h, g, i = np.ogrid[:count, : vector["qk_dim"], :features]
    rest = 1.1 * (h + 1) + 0.7 * (layer + 1) * (g + i + 1)
    product = (g + 1) * (i + 1)
    return 0.6 * np.sin(0.31 * product + rest), 0.6 * np.sin(0.47 * product + rest)
