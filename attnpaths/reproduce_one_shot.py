"""Figure 3 of the report: one-shot image classification with trained heads.

The theory takes the heads of a network trained by gradient descent. Each draw of tasks gives one
value of every number; what does not depend on the draw (the network's own accuracy on other
characters) still carries the spread of the test tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnpaths._validation import Array
from attnpaths.kernels import kernel, kernel_task_alignment
from attnpaths.one_shot_theory import (
    TEMPERATURES,
    WIDTHS,
    draw_set,
    out_of_distribution_images,
    solve_grid,
)
from attnpaths.order_parameter import Architecture
from attnpaths.paths import path_names
from attnpaths.pruning import head_scores, pruning_curve, random_criterion
from attnpaths.published import published_case
from attnpaths.report import (
    FigureResult,
    MissingInputError,
    Number,
    Statement,
    alignment_entries,
)
from attnpaths.tasks.one_shot import DataUnavailableError, load_images
from attnpaths.trained import TrainedHeads, load_trained_heads

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnpaths.reproduce import Context

__all__: list[str] = []  # called by `attnpaths.reproduce` alone

HEADS, MANY_HEADS = "2x4_seed0", "2x8_seed0"
DRAWS, DRAWS_QUICK = 10, 2
COARSE_WIDTHS, COARSE_TEMPERATURES = (10, 100, 1000), (0.1, 0.5, 1.0)
NARROW = 10  # the width of panels c to e
SPLIT = (
    "other characters: we train on Omniglot's background characters and test on other alphabets, "
    "the paper uses another split, of 1,028, 172 and 423 characters; and one trained network each"
)
ORDER = (
    "another trained network: heads of the same rank by score are different heads, and the order "
    "is noisy where scores are close"
)


def _one_shot_draw(
    name: str, _: str, seed: int, widths: list[float], temperatures: list[float]
) -> dict[str, Any]:
    """Everything that one draw of tasks gives, for all panels."""
    trained = load_trained_heads(name)
    training = draw_set(trained, "training", seed)
    sets = {part: draw_set(trained, part, seed) for part in ("validation", "test")}
    for other, images in out_of_distribution_images().items():
        sets[other] = draw_set(trained, "ood", seed, images=images)
    grid = solve_grid(
        training.xi,
        training.y,
        trained.heads,
        evaluate=sets,
        widths=widths,
        temperatures=temperatures,
        tol=1e-4,  # far below what an accuracy or a printed U shows
        progress=False,
    )
    result: dict[str, Any] = {
        "widths": grid.widths,
        "temperatures": grid.temperatures,
        "log_evidence": grid.log_evidence,
    }
    network = trained.path_network()
    for part, (xi, y) in sets.items():
        result[f"accuracy_{part}"] = grid.accuracy[part]
        result[f"trained_{part}"] = np.mean((network.predict(xi) > 0) == (y > 0))
    narrow = int(np.flatnonzero(grid.widths == NARROW)[0])
    U = grid.order_parameters[narrow, grid.chosen("validation")[narrow]]
    scores = head_scores(U, Architecture(trained.heads, NARROW))
    test = sets["test"]
    kept = [
        [
            np.mean((network.drop([(layer, head)]).predict(test.xi) > 0) == (test.y > 0))
            for head in range(1, count + 1)
        ]
        for layer, count in enumerate(trained.heads, start=1)
    ]
    K, K_gp = (kernel(training.xi, matrix) for matrix in (U, np.eye(len(U))))
    return result | {
        "U": U,
        "U_trained": trained.order_parameters[0],
        "scores": np.concatenate(scores),
        "kept": np.concatenate(kept),
        "overlaps": kernel_task_alignment(K, training.y),
        "overlaps_gp": kernel_task_alignment(K_gp, training.y),
    }


def settings(context: Context, name: str) -> dict[str, Any]:
    """What decides the result of one panel."""
    coarse = _coarse(context)
    if name == "3f":
        heads, grid = MANY_HEADS, f"N = 10, {1 if coarse else 4} temperatures"
    else:
        heads, size = _heads_name(context), 3 if coarse else 10
        grid = f"{size} widths, {size} temperatures"
    return {
        "grid": grid,
        "draws": draw_count(context),
        "heads": f"{Path(heads).stem} ({_digest(heads)})",
        **({"quick": True} if context.quick else {}),
    }


def draw_count(context: Context) -> int:
    """Draws of tasks of a run."""
    if context.draws is not None:
        return context.draws
    return DRAWS_QUICK if context.quick else DRAWS


def _coarse(context: Context) -> bool:
    return context.quick or context.coarse


def _heads_name(context: Context) -> str:
    return HEADS if context.heads is None else str(context.heads)


def _digest(name: str) -> str:
    try:
        return load_trained_heads(name).digest
    except ValueError:
        return "missing"


def _trained(name: str) -> TrainedHeads:
    try:
        trained = load_trained_heads(name)
    except ValueError as error:
        raise MissingInputError(
            f"trained heads are needed: {error}; make them with python -m attnpaths train"
        ) from error
    try:
        load_images("omniglot", "test")
    except DataUnavailableError as error:
        raise MissingInputError(
            "Omniglot's images are needed: name their folder with --data, or run python -m "
            "attnpaths data download"
        ) from error
    return trained


def _draws(context: Context) -> list[dict[str, Array]]:
    """Results of all draws of one network."""
    name = _heads_name(context)
    _trained(name)
    widths, temperatures = list(map(float, WIDTHS)), list(TEMPERATURES)
    if _coarse(context):
        widths, temperatures = list(map(float, COARSE_WIDTHS)), list(COARSE_TEMPERATURES)
    items = [
        (name, _digest(name), seed, widths, temperatures) for seed in range(draw_count(context))
    ]
    return context.map("one_shot", _one_shot_draw, items)


def _training(name: str) -> str:
    """How a network was trained, in words."""
    metadata = load_trained_heads(name).metadata
    steps, accuracy = metadata.get("steps"), metadata.get("accuracies", {}).get("test")
    text = f"{steps:,} steps" if steps else "an unknown number of steps"
    return text + (f", {100 * accuracy:.1f} % on unseen alphabets" if accuracy else "")


def _note(context: Context, draws: list[dict[str, Array]]) -> str:
    return (
        f"2 layers of 4 heads, trained for {_training(_heads_name(context))}; P = 600 training "
        f"tasks, 1,000 test tasks of unseen alphabets, {len(draws)} draws of tasks; for each N the "
        "temperature is the one of best validation accuracy among "
        f"{', '.join(f'{t:g}' for t in draws[0]['temperatures'])}."
    )


def _chosen(draws: list[dict[str, Array]], by: str, on: str) -> Array:
    """Accuracy on one set at the temperatures chosen by another criterion, (draws, widths)."""
    rows = []
    for draw in draws:
        criterion = draw["log_evidence"] if by == "evidence" else draw[f"accuracy_{by}"]
        best = np.argmax(criterion, axis=1)
        rows.append(draw[f"accuracy_{on}"][np.arange(len(best)), best])
    return np.array(rows)


def _stack(draws: list[dict[str, Array]], name: str) -> Array:
    return np.array([draw[name] for draw in draws])


def figure_3b(context: Context) -> FigureResult:
    """Accuracy against width, GP limit, gradient descent."""
    draws = _draws(context)
    widths = [float(width) for width in draws[0]["widths"][:-1]]
    accuracy = {by: _chosen(draws, by, "test") for by in ("validation", "evidence", "test")}
    theory, gp = accuracy["validation"][:, :-1], accuracy["validation"][:, -1]
    trained = _stack(draws, "trained_test")
    published = published_case("one_shot")
    best: Any = theory.max(axis=1)
    other_heads = (
        f"our heads are others, trained for {_training(_heads_name(context))}; the paper's were "
        "trained for about 40,000 steps and tested on another split of the characters"
    )
    statements = [
        Statement(
            "learned", "the gradient-descent network is better than the GP limit", trained > gp
        ),
        Statement(
            "finite", "the best finite width is better than the GP limit", best > gp, other_heads
        ),
        Statement(
            "narrow",
            "the narrowest network (N = 10) is better than the GP limit",
            theory[:, 0] > gp,
            other_heads,
        ),
    ]
    numbers = [
        Number(
            "accuracy, gradient descent",
            trained.tolist(),
            float(published["trained_accuracy"]),
            "%",
            "learned",
            f"{SPLIT}; our training: {_training(_heads_name(context))}",
            digits=1,
        )
    ]
    numbers += [
        Number(f"accuracy, theory, N = {width:g}", theory[:, n].tolist(), unit="%", digits=1)
        for n, width in enumerate(widths)
    ]
    numbers.append(Number("accuracy, GP limit", gp.tolist(), unit="%", digits=1))
    for by, what in (("evidence", "by evidence"), ("test", "on the test set, as the paper's code")):
        values = accuracy[by][:, 0].tolist()
        numbers.append(Number(f"N = 10, T chosen {what}", values, unit="%", digits=1))
    series = {
        "widths": widths,
        "theory": theory,
        "by_evidence": accuracy["evidence"][:, :-1],
        "by_test": accuracy["test"][:, :-1],
        "gp": gp,
        "trained": trained,
        "published": published["trained_accuracy"],
    }
    return FigureResult(numbers, statements, series, _note(context, draws))


def draw_3b(series: Mapping[str, Any], figure: Figure) -> None:
    """Accuracy against width."""
    from attnpaths.plotting import COLOURS, plot_accuracy, plot_limit

    figure.set_size_inches(8, 3.8)
    ax = figure.subplots()
    plot_accuracy(series["widths"], series["theory"], label="theory, T by validation", ax=ax)
    for key, label, style in (
        ("by_evidence", "theory, T by evidence", ":"),
        ("by_test", "theory, T by test", "--"),
    ):
        mean = np.mean(series[key], axis=0)
        plot_accuracy(series["widths"], mean, label=label, ax=ax, ls=style, marker="", lw=1.2)
    plot_limit(series["gp"], ax=ax)
    plot_limit(series["trained"], colour=COLOURS["trained"], label="gradient descent", ax=ax)
    plot_limit(
        series["published"],
        colour=COLOURS["published"],
        label="gradient descent, published",
        ax=ax,
        ls=":",
    )
    ax.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))


def figure_3c(context: Context) -> FigureResult:
    """Order parameter of the theory beside the trained network's."""
    draws = _draws(context)
    U, U_trained = _stack(draws, "U"), draws[0]["U_trained"]
    scale = [np.trace(matrix) / len(matrix) for matrix in (*U, U_trained)]
    theory = np.array([u / s for u, s in zip(U, scale[:-1], strict=True)])
    trained = U_trained / scale[-1]
    lower = np.tril_indices(len(trained))
    correlation = [float(np.corrcoef(u[lower], trained[lower])[0, 1]) for u in theory]
    diagonal = [float(np.corrcoef(np.diag(u), np.diag(trained))[0, 1]) for u in theory]
    negative: Any = np.array(
        [
            np.mean(u[np.tril_indices(len(u), -1)] * trained[np.tril_indices(len(u), -1)])
            for u in theory
        ]
    )
    statements = [
        Statement(
            "alike",
            "U of the theory (N = 10) and of the gradient-descent network go together: their "
            "entries are positively correlated",
            [value > 0 for value in correlation],
        ),
        Statement(
            "off-diagonal",
            "so are the pairs of different paths: the products of their entries are positive on "
            "average",
            negative > 0,
        ),
    ]
    numbers = [
        Number("correlation of the entries of U, theory and gradient descent", correlation),
        Number("correlation of the diagonal entries", diagonal),
    ]
    heads = (int(np.sqrt(len(trained))),) * 2
    labels = ["-".join(map(str, path)) for path in path_names(heads)]
    series = {"theory": theory.mean(axis=0), "trained": trained, "labels": labels}
    note = " Matrices are divided by the mean of their diagonal."
    return FigureResult(numbers, statements, series, _note(context, draws) + note)


def draw_3c(series: Mapping[str, Any], figure: Figure) -> None:
    """Two order parameters side by side."""
    from attnpaths.plotting import plot_order_parameter

    figure.set_size_inches(9, 4.4)
    axes = figure.subplots(1, 2)
    for ax, key, title in zip(
        axes, ("theory", "trained"), ("theory, N = 10", "gradient descent"), strict=True
    ):
        plot_order_parameter(series[key], series["labels"], ax=ax)
        ax.set_title(f"{title} (mean diagonal 1)")


def figure_3d(context: Context) -> FigureResult:
    """Kernel-task alignment of the first 50 components."""
    draws = _draws(context)
    theory, gp = _stack(draws, "overlaps"), _stack(draws, "overlaps_gp")
    numbers, aligned = alignment_entries(theory, gp, components=10)
    series = {"theory": theory[:, :50], "gp": gp[:, :50]}
    return FigureResult(numbers, [aligned], series, _note(context, draws))


def figure_3e(context: Context) -> FigureResult:
    """Head scores of the theory beside the accuracy that each head is worth."""
    draws = _draws(context)
    scores, kept = _stack(draws, "scores"), _stack(draws, "kept")
    whole = _stack(draws, "trained_test")
    published = published_case("one_shot")
    their_kept = np.asarray(published["accuracy_without_one_head"])
    lost = whole[:, None] - kept
    correlation = [_spearman(*pair) for pair in zip(scores, lost, strict=True)]
    theirs = _spearman(np.arange(len(their_kept)), published["trained_accuracy"] - their_kept)
    by_rank = np.take_along_axis(kept, np.argsort(scores, axis=1), axis=1)
    half = by_rank.shape[1] // 2
    statements = [
        Statement(
            "ranked",
            "heads with a larger score cost more when dropped: their rank correlation is positive",
            [value > 0 for value in correlation],
            "the score is noisy, being read from 600 tasks: the mean score of all draws has a rank "
            f"correlation of {_spearman(scores.mean(axis=0), lost.mean(axis=0)):.2f} with the mean "
            "loss",
        ),
        Statement(
            "halves",
            "dropping one head of the lower half by score costs less than one of the upper half, "
            "on average",
            by_rank[:, :half].mean(axis=1) > by_rank[:, half:].mean(axis=1),
        ),
    ]
    numbers = [
        Number(
            "rank correlation of score and accuracy lost", correlation, theirs, "", "ranked", ORDER
        )
    ]
    numbers += [
        Number(
            f"accuracy without the head of rank {rank + 1} by score",
            by_rank[:, rank].tolist(),
            float(their_kept[rank]) if by_rank.shape[1] == len(their_kept) else None,
            "%",
            "halves",
            f"{SPLIT}; {ORDER}",
            digits=1,
        )
        for rank in range(by_rank.shape[1])
    ]
    series = {
        "scores": scores,
        "kept": kept,
        "whole": whole,
        "by_rank": by_rank,
        "published": their_kept,
        "published_whole": published["trained_accuracy"],
    }
    return FigureResult(numbers, statements, series, _note(context, draws))


def _spearman(first: Any, second: Any) -> float:
    """Rank correlation."""
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)


def draw_3e(series: Mapping[str, Any], figure: Figure) -> None:
    """Accuracy lost against score, and against rank beside the published."""
    from attnpaths.plotting import COLOURS

    figure.set_size_inches(9, 3.6)
    left, right = figure.subplots(1, 2)
    lost = 100 * (np.array(series["whole"])[:, None] - np.array(series["kept"]))
    left.errorbar(
        np.mean(series["scores"], axis=0),
        lost.mean(axis=0),
        xerr=_sd(series["scores"]),
        yerr=_sd(lost),
        fmt="o",
        color=COLOURS["theory"],
    )
    left.set(xlabel="head score of the theory, N = 10", ylabel="accuracy lost (%)")
    ranks = np.arange(1, lost.shape[1] + 1)
    ours = 100 * (np.array(series["whole"])[:, None] - np.array(series["by_rank"]))
    right.errorbar(
        ranks, ours.mean(axis=0), yerr=_sd(ours), marker="o", color=COLOURS["theory"], label="ours"
    )
    theirs = 100 * (series["published_whole"] - np.array(series["published"]))
    right.plot(
        np.arange(1, len(theirs) + 1),
        theirs,
        "D",
        color=COLOURS["published"],
        mfc="none",
        label="published",
    )
    right.set(xlabel="rank of the dropped head by score", ylabel="accuracy lost (%)")
    right.legend(loc="upper left")


def _sd(values: Any) -> Any:
    values = np.array(values)
    return values.std(axis=0, ddof=1) if len(values) > 1 else None


def _pruning_draw(
    name: str, _: str, seed: int, temperatures: list[float], examples: int
) -> dict[str, Any]:
    """Pruning curves of one draw: by the theory's score, and at random."""
    trained = load_trained_heads(name)
    training = draw_set(trained, "training", seed, examples)
    validation, test = (draw_set(trained, part, seed) for part in ("validation", "test"))
    grid = solve_grid(
        training.xi,
        training.y,
        trained.heads,
        evaluate={"validation": validation},
        widths=[NARROW],
        temperatures=temperatures,
        progress=False,
    )
    U = grid.order_parameters[0, grid.chosen("validation")[0]]
    scores = head_scores(U, Architecture(trained.heads, NARROW))
    network = trained.path_network()
    by_score = pruning_curve(network, scores, test.xi, test.y)
    at_random = [
        pruning_curve(
            network, random_criterion(100 * seed + order), test.xi, test.y, calibration=validation
        ).accuracy
        for order in range(10)
    ]
    return {
        "accuracy": by_score.accuracy,
        "random": np.mean(at_random, axis=0),
        "dropped": by_score.dropped,
    }


def figure_3f(context: Context) -> FigureResult:
    """Accuracy after dropping a growing number of heads, lowest score first."""
    _trained(MANY_HEADS)
    temperatures = [0.5] if _coarse(context) else [1.0, 0.5, 0.25, 0.1]
    count, version = draw_count(context), _digest(MANY_HEADS)
    examples = 200 if context.quick else 600
    items = [(MANY_HEADS, version, seed, temperatures, examples) for seed in range(count)]
    draws = context.map("pruning", _pruning_draw, items)
    accuracy, at_random = _stack(draws, "accuracy"), _stack(draws, "random")
    dropped = draws[0]["dropped"]
    quarter_lost = accuracy[:, 0] - accuracy[:, len(dropped) // 4]
    statements = [
        Statement(
            "better",
            "dropping heads by score, lowest first, keeps more accuracy than at random, on average "
            "over the curve",
            accuracy.mean(axis=1) > at_random.mean(axis=1),
        ),
        Statement(
            "quarter",
            "a quarter of the heads can be dropped by score for less than 5 % of accuracy",
            quarter_lost < 0.05,
            f"from draw to draw, {100 * quarter_lost.min():.1f} to "
            f"{100 * quarter_lost.max():.1f} % are lost; the network was trained for "
            f"{_training(MANY_HEADS)}",
        ),
    ]
    numbers = [
        Number(f"accuracy, {n} heads dropped", accuracy[:, n].tolist(), unit="%", digits=1)
        for n in range(0, len(dropped), 2)
    ]
    series = {"dropped": dropped, "theory": accuracy, "random": at_random}
    note = (
        f"2 layers of 8 heads, trained for {_training(MANY_HEADS)}; U at N = 10 from P = "
        f"{examples} training tasks, {len(draws)} draws of tasks, no fine-tuning."
    )
    return FigureResult(numbers, statements, series, note)


def draw_3f(series: Mapping[str, Any], figure: Figure) -> None:
    """Pruning curves."""
    from attnpaths.plotting import COLOURS

    figure.set_size_inches(7, 3.6)
    ax = figure.subplots()
    for key, colour, label in (
        ("theory", COLOURS["theory"], "lowest score of the theory first"),
        ("random", COLOURS["gp"], "random order"),
    ):
        values = 100 * np.array(series[key])
        ax.errorbar(
            series["dropped"],
            values.mean(axis=0),
            yerr=_sd(values),
            marker="o",
            ms=4,
            color=colour,
            label=label,
        )
    ax.set(xlabel="heads dropped", ylabel="test accuracy (%)")
    ax.legend()


def figure_ood(context: Context) -> FigureResult:
    """Accuracy on image sets that the heads have never seen, class 0 against 1."""
    draws = _draws(context)
    names = [n for n in ("mnist", "fashion_mnist", "digits") if f"trained_{n}" in draws[0]]
    widths = [float(width) for width in draws[0]["widths"][:-1]]
    numbers, statements, series = [], [], {"widths": widths, "names": names}
    for name in names:
        accuracy = _chosen(draws, "validation", name)
        trained: Any = _stack(draws, f"trained_{name}")
        gp: Any = accuracy[:, -1]
        title = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "digits": "8 x 8 digits"}[name]
        for what, values in (
            ("theory, N = 10", accuracy[:, 0]),
            ("GP limit", gp),
            ("gradient descent", trained),
        ):
            numbers.append(Number(f"{title}, {what}", values.tolist(), unit="%", digits=1))
        statements.append(
            Statement(
                name,
                f"{title}: the theory at N = 10 is better than chance by more than 5 %",
                accuracy[:, 0] > 0.55,
            )
        )
        series |= {
            f"theory_{name}": accuracy[:, :-1],
            f"gp_{name}": gp,
            f"trained_{name}": trained,
        }
    note = " Heads, theory and temperature know Omniglot only."
    return FigureResult(numbers, statements, series, _note(context, draws) + note)


def draw_ood(series: Mapping[str, Any], figure: Figure) -> None:
    """One panel an image set."""
    from attnpaths.plotting import COLOURS, plot_accuracy, plot_limit

    figure.set_size_inches(9, 3.2)
    axes = figure.subplots(1, len(series["names"]), sharey=True, squeeze=False)[0]
    for ax, name in zip(axes, series["names"], strict=True):
        plot_accuracy(series["widths"], series[f"theory_{name}"], ax=ax)
        plot_limit(series[f"gp_{name}"], ax=ax)
        plot_limit(
            series[f"trained_{name}"], colour=COLOURS["trained"], label="gradient descent", ax=ax
        )
        ax.set_title(name.replace("_", "-"))
        if ax is not axes[0]:
            ax.set_ylabel("")
    axes[-1].legend()
