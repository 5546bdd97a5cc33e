"""`python -m attnpaths prune`: which heads can go, and what the network is worth without them."""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from attnpaths._files import check_output, read_arrays, write_result
from attnpaths._validation import Array
from attnpaths.cli import CommandError
from attnpaths.cli.types import count, positive
from attnpaths.order_parameter import Architecture, ConvergenceWarning, solve_order_parameter
from attnpaths.paths import as_heads
from attnpaths.pruning import (
    PathNetwork,
    empirical_criterion,
    gradient_criterion,
    head_scores,
    magnitude_criterion,
    measured_drop_criterion,
    pruning_curve,
    pruning_order,
    random_criterion,
)

CRITERIA = ("theory", "empirical", "gradient", "magnitude", "drop", "random")
TEMPERATURES = (1.5, 1.0, 0.5, 0.25, 0.1)
EPILOG = """INPUT is
  - the result of `python -m attnpaths solve` (.npz): heads are ranked by the theory's scores;
  - trained heads, a file of `python -m attnpaths train` or the name of shipped ones: heads are
    dropped one by one, lowest score first, and the accuracy on unseen one-shot tasks is measured.

criteria: theory (scores of U at --width), empirical (of the trained network's own U), gradient
(Michel et al. 2019), magnitude (of the weights), drop (measured single-head drop), random
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = EPILOG
    parser.add_argument("input", metavar="INPUT", help="result of solve, or trained heads")
    parser.add_argument(
        "--criteria", nargs="+", choices=CRITERIA, default=["theory"], help="default: theory"
    )
    parser.add_argument("-N", "--width", type=width, default=10.0, help="default: 10")
    parser.add_argument(
        "-T",
        "--temperature",
        type=temperature,
        help="of the theory; default: the one of best validation accuracy among "
        + ", ".join(f"{value:g}" for value in TEMPERATURES),
    )
    parser.add_argument("--examples", type=count, default=600, help="training tasks, default 600")
    parser.add_argument("--tasks", type=count, default=2000, help="test tasks, default 2000")
    parser.add_argument("--seed", type=count, default=0, help="draw of tasks, default 0")
    parser.add_argument(
        "--data", type=Path, help="folder that holds omniglot/; default: $ATTNPATHS_DATA"
    )
    parser.add_argument("-o", "--output", type=Path, help="result as .npz or .json")
    parser.add_argument("--no-progress", action="store_true", help="no progress bar")


def width(text: str) -> float:
    """Argument type: a width."""
    return float(positive(text, several=False, minimum=1.0))  # type: ignore[arg-type]


def temperature(text: str) -> float:
    """Argument type: a temperature."""
    return float(positive(text, several=False))  # type: ignore[arg-type]


def run(arguments: argparse.Namespace) -> int:
    """Rank or prune, by what the input is."""
    if arguments.output is not None:
        check_output(arguments.output)
    path = Path(arguments.input)
    arrays = read_arrays([path]) if path.suffix in (".npz", ".safetensors") else {}
    solved = "U_1" in arrays and "heads" in arrays
    result = _rank(arrays) if solved else _prune(arguments)
    if arguments.output is not None:
        write_result(arguments.output, result)
        print(f"written to {arguments.output}")
    return 0


def _rank(arrays: dict[str, Array]) -> dict[str, Any]:
    """Heads of a solution by increasing score."""
    heads = as_heads(list(np.ravel(arrays["heads"])))
    scores = head_scores(arrays["U_1"], Architecture(heads, 1))
    order = pruning_order(scores)
    print("heads by increasing score; the last of a layer stays")
    print("layer head score")
    for layer, head in order:
        print(f"{layer:>5} {head:>4} {scores[layer - 1][head - 1]:.3f}")
    result: dict[str, Any] = {"order": np.array(order).reshape(-1, 2)}
    return result | {f"scores_{layer}": value for layer, value in enumerate(scores, start=1)}


def _prune(arguments: argparse.Namespace) -> dict[str, Any]:
    """Pruning curves of a trained network."""
    from attnpaths.one_shot_theory import draw_set
    from attnpaths.tasks.one_shot import load_images
    from attnpaths.trained import load_trained_heads

    trained = load_trained_heads(arguments.input)
    if arguments.data is not None:
        if not arguments.data.is_dir():
            raise CommandError(f"there is no folder {arguments.data} for --data")
        os.environ["ATTNPATHS_DATA"] = str(arguments.data)
    kind = trained.metadata.get("config", {}).get("data", "omniglot")
    sets = {}
    for part, split, size in (
        ("training", "train", arguments.examples),
        ("validation", "validation", arguments.tasks),
        ("test", "test", arguments.tasks),
    ):
        sets[part] = draw_set(trained, part, arguments.seed, size, load_images(kind, split))
    network = trained.path_network()
    validation, test = sets["validation"], sets["test"]
    result: dict[str, Any] = {}
    bar = tqdm(arguments.criteria, desc="criteria", disable=arguments.no_progress)
    curves = {}
    for name in bar:
        scores: Any
        if name == "theory":
            scores, result["temperature"] = _theory(sets, trained.heads, arguments)
        else:
            scores = {
                "empirical": empirical_criterion,
                "gradient": gradient_criterion,
                "magnitude": magnitude_criterion,
                "drop": measured_drop_criterion,
                "random": random_criterion(arguments.seed),
            }[name](network, validation.xi, validation.y)
        curve = pruning_curve(network, scores, test.xi, test.y)
        curves[name] = curve
        result[f"order_{name}"] = np.array(curve.order).reshape(-1, 2)
        for field in ("accuracy", "lower", "upper"):
            result[f"{field}_{name}"] = getattr(curve, field)
        for layer, value in enumerate(scores, start=1):
            result[f"scores_{name}_{layer}"] = value
    for name, curve in curves.items():
        print(f"{name}: accuracy on {len(test.y)} tasks (95 % interval), heads as layer-head")
        steps = ["none", *(f"{layer}-{head}" for layer, head in curve.order)]
        for step, accuracy, low, high in zip(
            steps, curve.accuracy, curve.lower, curve.upper, strict=True
        ):
            print(f"  {step:>6} {100 * accuracy:5.1f} % ({100 * low:.1f} to {100 * high:.1f})")
    return result


def _theory(
    sets: dict[str, Any], heads: tuple[int, ...], arguments: argparse.Namespace
) -> tuple[list[Array], float]:
    """Head scores of the theory, and the temperature used."""
    (xi, y), validation = sets["training"], sets["validation"]
    network = Architecture(heads, arguments.width)
    given = arguments.temperature
    best, solution = -1.0, None
    chosen, scores = 0.0, []
    for value in TEMPERATURES if given is None else (given,):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            solution = solve_order_parameter(
                xi, y, network, value, start=solution, tol=1e-6, check_minimum=False
            )
        if not solution.converged:
            raise CommandError(f"the theory found no minimum at T = {value:g}: {solution.message}")
        predictor = PathNetwork.from_theory(xi, y, solution, value)
        accuracy = float(np.mean((predictor.predict(validation.xi) > 0) == (validation.y > 0)))
        if accuracy > best:
            best, chosen, scores = accuracy, value, head_scores(solution)
    return scores, chosen
