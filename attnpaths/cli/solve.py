"""`python -m attnpaths solve`: the theory for heads of one's own, from array files."""

from __future__ import annotations

import argparse
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnpaths._files import check_output, read_arrays, write_result
from attnpaths._validation import Array, as_array
from attnpaths.attention import bilinear_attention, query_key_attention
from attnpaths.cli import CommandError
from attnpaths.cli.types import positive, widths
from attnpaths.model import TASKS, choose_temperature, encode_target
from attnpaths.order_parameter import (
    Architecture,
    ConvergenceWarning,
    OrderParameter,
    solve_order_parameter,
)
from attnpaths.paths import READOUTS, as_heads, path_inputs, path_names
from attnpaths.predictor import predict
from attnpaths.pruning import head_scores

EPILOG = """arrays in the files (several files are taken together):
  y                        labels (P,) or (P, m): numbers, or strings in a .npz
and one of
  x, attention_1, ...      tokens (P, T, N0) and attention (P, H, T, T) of each layer
  x, w_1, ...              ... or bilinear forms (H, N0, N0), key left, query right
  x, q_1, k_1, ...         ... or queries and keys (H, G, N0)
  xi, heads                path inputs (P, H_1 ... H_L, N0) and heads of each layer (H_1, ..., H_L)
to predict as well
  x_test (with w or q, k), x_test and attention_test_1, ..., or xi_test; y_test for the score

example:
  python -m attnpaths solve heads.safetensors labels.npz -N 100 -T evidence -o result.npz
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = EPILOG
    parser.add_argument("files", nargs="+", type=Path, help=".npz or .safetensors files")
    parser.add_argument(
        "-N",
        "--widths",
        type=widths,
        required=True,
        help="one width for all, or N_1,...,N_L,N_a",
    )
    parser.add_argument(
        "-T",
        "--temperature",
        default="evidence",
        type=_temperature,
        help="variance of the label noise, or 'evidence' (default) to choose it by the labels",
    )
    parser.add_argument(
        "--variances", type=positive, default=1.0, help="prior variances, one or s0^2,...,sL^2,sa^2"
    )
    parser.add_argument("--readout", choices=READOUTS, default="mean", help="default: mean")
    parser.add_argument(
        "--task", choices=TASKS, default="auto", help="what y holds; default: told by its values"
    )
    parser.add_argument(
        "--tol", type=positive, default=1e-8, help="relative gradient (default 1e-8)"
    )
    parser.add_argument("-o", "--output", type=Path, help="result as .npz or .json")


def _temperature(text: str) -> float | str:
    return text if text == "evidence" else float(positive(text, several=False))  # type: ignore[arg-type]


def run(arguments: argparse.Namespace) -> int:
    """Solve, report, write; 1 if the point found is not a minimum."""
    if arguments.output is not None:
        check_output(arguments.output)
    arrays = read_arrays(arguments.files)
    if "y" not in arrays:
        raise CommandError(f"the files must hold y, got {_list(arrays)}")
    target = encode_target(arrays["y"], arguments.task)
    xi, heads = _path_inputs(arrays, "", arguments.readout)
    if len(target.values) != len(xi):
        raise ValueError(f"y must have {len(xi)} entries like x, got {len(target.values)}")
    network = Architecture(heads, arguments.widths, arguments.variances)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the report below says it
        if arguments.temperature == "evidence":
            scale = float(np.mean(target.values**2)) or 1.0
            solution = choose_temperature(xi, target.values, network, (1e-4 * scale, 10 * scale))
        else:
            solution = solve_order_parameter(
                xi, target.values, network, arguments.temperature, tol=arguments.tol
            )
    result = _result(solution)
    if target.classes is not None:
        result["classes"] = target.classes
    _report(solution)
    if "xi_test" in arrays or "x_test" in arrays:
        _predict(arrays, arguments.readout, xi, target.values, target.classes, solution, result)
    if arguments.output is not None:
        write_result(arguments.output, result)
        print(f"written to {arguments.output}")
    return 0 if solution.converged else 1


def _path_inputs(
    arrays: Mapping[str, Array], suffix: str, readout: str
) -> tuple[Array, tuple[int, ...]]:
    """Path inputs of the training set (suffix "") or of the test set ("_test")."""
    if f"xi{suffix}" in arrays:
        if "heads" not in arrays:
            raise CommandError("the files must hold heads beside xi, the heads of each layer")
        heads = as_heads(list(as_array("heads", arrays["heads"]).ravel()))
        paths = int(np.prod(heads))
        return as_array(f"xi{suffix}", arrays[f"xi{suffix}"], ("P", paths, "N0")), heads
    if f"x{suffix}" not in arrays:
        raise CommandError(f"the files must hold x or xi, got {_list(arrays)}")
    x = as_array(f"x{suffix}", arrays[f"x{suffix}"], ("P", "T", "N0"))
    if layers := _numbered(arrays, f"attention{suffix}"):
        attentions = layers
    elif forms := _numbered(arrays, "w"):
        attentions = [bilinear_attention(x, w) for w in forms]
    elif (queries := _numbered(arrays, "q")) and (keys := _numbered(arrays, "k")):
        if len(queries) != len(keys):
            raise CommandError(
                f"the files must hold as many k_1, ... as q_1, ..., got {len(keys)}, {len(queries)}"
            )
        attentions = [query_key_attention(x, q, k) for q, k in zip(queries, keys, strict=True)]
    else:
        raise CommandError(
            f"the files must hold attention{suffix}_1, ..., w_1, ..., or q_1, k_1, ... beside "
            f"x{suffix}, got {_list(arrays)}"
        )
    xi = path_inputs(x, attentions, readout)
    return xi, tuple(np.shape(layer)[1] for layer in attentions)


def _numbered(arrays: Mapping[str, Array], stem: str) -> list[Array]:
    """Arrays stem_1, ..., stem_L, without gaps."""
    pattern = re.compile(rf"{stem}_([0-9]+)")
    found = sorted(int(m[1]) for name in arrays if (m := pattern.fullmatch(name)))
    if found != list(range(1, len(found) + 1)):
        raise CommandError(
            f"the files must number {stem}_1, {stem}_2, ... without gaps, got "
            + ", ".join(f"{stem}_{number}" for number in found)
        )
    return [arrays[f"{stem}_{number}"] for number in found]


def _list(arrays: Mapping[str, Array]) -> str:
    return ", ".join(sorted(arrays)[:12]) or "no arrays"


def _result(solution: OrderParameter) -> dict[str, Any]:
    network = solution.architecture
    result: dict[str, Any] = {
        "heads": np.array(network.heads),
        "widths": np.array(network.widths),
        "variances": np.array(network.variances),
        "temperature": solution.temperature,
        "readout_order_parameter": np.asarray(solution.readout),
        "action": solution.action,
        "energy": solution.energy,
        "entropy": solution.entropy,
        "gradient_norm": solution.gradient_norm,
        "converged": solution.converged,
        "evaluations": solution.evaluations,
        "message": solution.message,
    }
    for layer, (U, scores) in enumerate(
        zip(solution.layers, head_scores(solution), strict=True), start=1
    ):
        result[f"U_{layer}"] = U
        result[f"head_scores_{layer}"] = scores
    return result


def _report(solution: OrderParameter) -> None:
    network = solution.architecture
    print(
        f"heads {network.heads}, widths {tuple(f'{w:g}' for w in network.widths)}".replace("'", "")
    )
    print(f"temperature {solution.temperature:.6g}")
    print(
        f"action {solution.action:.8g} = energy {solution.energy:.8g} + entropy "
        f"{solution.entropy:.8g} (each divided by the largest width)"
    )
    print(
        f"{'converged' if solution.converged else 'NOT a minimum'}: {solution.message}; "
        f"{solution.evaluations} evaluations, gradient {solution.gradient_norm:.2g}"
    )
    for layer, scores in enumerate(head_scores(solution), start=1):
        print(f"head scores, layer {layer}: " + " ".join(f"{score:.3f}" for score in scores))
    names, weights = path_names(network.heads), np.diag(solution.matrix)
    weights = weights.reshape(len(names), -1).mean(axis=1)
    largest = np.argsort(-weights, kind="stable")[:10]
    print("largest paths (heads of layers 1, 2, ...: diagonal of U):")
    for path in largest:
        print(f"  {'-'.join(map(str, names[path]))}: {weights[path]:.5g}")


def _predict(
    arrays: Mapping[str, Array],
    readout: str,
    xi: Array,
    y: Array,
    classes: Array | None,
    solution: OrderParameter,
    result: dict[str, Any],
) -> None:
    xi_test, heads = _path_inputs(arrays, "_test", readout)
    if heads != solution.architecture.heads:
        raise ValueError(
            f"attention_test must have {solution.architecture.heads} heads as in training, "
            f"got {heads}"
        )
    prediction = predict(xi, y, xi_test, solution, solution.temperature)  # type: ignore[arg-type]
    result["test_mean"] = mean = prediction.mean
    result["test_std"] = np.sqrt(prediction.variance)
    if classes is not None:
        codes = (mean > 0).astype(int) if mean.ndim == 1 else mean.argmax(axis=1)
        result["test_prediction"] = classes[codes]
    if "y_test" not in arrays:
        return
    true = np.asarray(arrays["y_test"])
    true = true[:, 0] if true.ndim == 2 and true.shape[1] == 1 else true
    if true.shape[:1] != mean.shape[:1]:
        raise ValueError(f"y_test must have {len(mean)} entries like x_test, got {true.shape}")
    if classes is not None:
        result["test_accuracy"] = float(np.mean(result["test_prediction"] == true))
        print(f"accuracy on {len(mean)} test examples: {result['test_accuracy']:.4f}")
    else:
        error = as_array("y_test", true, mean.shape) - mean
        result["test_mean_squared_error"] = float(np.mean(error**2))
        print(f"mean squared error on {len(mean)}: {result['test_mean_squared_error']:.6g}")
