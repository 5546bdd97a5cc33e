"""Ready explorers: the paper's hidden Markov tasks, one-shot digits, and a landscape to look at."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from attnpaths._validation import Array
from attnpaths.attention import bilinear_attention
from attnpaths.paths import path_inputs
from attnpaths.plotting import path_colours
from attnpaths.tasks.hidden_markov import (
    HiddenMarkovChain,
    four_path_heads,
    path_labels,
    sample_path_inputs,
    two_path_heads,
)
from attnpaths.widgets.explorer import Explorer, ExplorerTask

__all__ = [
    "digits_task",
    "four_path_task",
    "hidden_markov_explorer",
    "landscape_explorer",
    "landscape_task",
    "paper_explorer",
    "two_path_task",
]

# The test set of the book's chapter; the explorer takes the first of them.
TEST_EXAMPLES = 1000


def paper_explorer(seed: int = 0, *, test_examples: int = 150, **options: Any) -> Explorer:
    """Explorer of all three tasks: four paths, two noisy paths, one-shot digits.

    Parameters
    ----------
    seed : int
        Seed of the data and of the random heads.
    test_examples : int
        Test examples of each task; 150 keep the page that shows it below 1.6 MB.
    **options
        Passed on to `Explorer`.

    Returns
    -------
    Explorer

    Examples
    --------
    >>> explorer = paper_explorer(test_examples=10)
    >>> [task.heads for task in explorer.task_data]
    [(2, 2), (2, 1), (2, 2)]
    """
    makers = (four_path_task, two_path_task, digits_task)
    return Explorer([make(seed, test_examples) for make in makers], **options)


def hidden_markov_explorer(
    seed: int = 0, *, paths: Sequence[int] = (4, 2), test_examples: int = 150, **options: Any
) -> Explorer:
    """Explorer of the hidden Markov chain task (the paper's Figure 2).

    Parameters
    ----------
    seed : int
        Seed of the data and of the random heads.
    paths : sequence of {4, 2}
        Tasks to offer, see `four_path_task` and `two_path_task`.
    test_examples : int
        Test examples of each task; 150 of two tasks keep the page that shows them below 1.6 MB.
    **options
        Passed on to `Explorer`.

    Returns
    -------
    Explorer

    Raises
    ------
    ValueError
        If a number of paths is neither 4 nor 2.

    Examples
    --------
    >>> explorer = hidden_markov_explorer(paths=[2], test_examples=10, width=100)
    >>> explorer.solve().order_parameter.converged
    True
    """
    makers = {4: four_path_task, 2: two_path_task}
    unknown = [count for count in paths if count not in makers]
    if unknown or not len(paths):
        raise ValueError(f"paths must be a selection of 4 and 2, got {tuple(paths)!r}")
    return Explorer([makers[count](seed, test_examples) for count in paths], **options)


def landscape_explorer(seed: int = 0, **options: Any) -> Explorer:
    """Explorer of the action's landscape, for a network of one layer and two heads.

    Parameters
    ----------
    seed : int
        Seed of the data.
    **options
        Passed on to `Explorer`.

    Returns
    -------
    Explorer

    Examples
    --------
    >>> explorer = landscape_explorer(width=20)
    >>> explorer.views[0], explorer.task_data[0].heads
    ('landscape', (2,))
    """
    options.setdefault("views", ("landscape", "order_parameter", "accuracy"))
    return Explorer(landscape_task(seed), **options)


def four_path_task(seed: int = 0, test_examples: int = 300) -> ExplorerTask:
    """Hidden Markov chain, four paths, sigma_perp = 1 (the paper's Figure 2 c and d).

    Parameters
    ----------
    seed : int
        Seed of heads, training and test data, drawn in this order as in the book's chapter.
    test_examples : int
        How many of the chapter's 1,000 test examples to keep.

    Returns
    -------
    ExplorerTask

    Examples
    --------
    >>> task = four_path_task(test_examples=10)
    >>> task.xi.shape, task.path_names
    ((100, 4, 231), ['g', 'a12', 'd', 'a22'])
    """
    chain, rng = HiddenMarkovChain(), np.random.default_rng(seed)
    heads = four_path_heads(chain, rng)
    labels = path_labels((2, 2))
    return ExplorerTask(
        "Hidden Markov chain, four paths",
        *_chain_data(chain, heads, rng, test_examples),
        (2, 2),
        path_names=labels,
        path_colours=path_colours(labels),
        head_names=[["previous token", "random"], ["uniform", "random"]],
    )


def two_path_task(seed: int = 0, test_examples: int = 300) -> ExplorerTask:
    """Hidden Markov chain, two paths, with a choice of sigma_perp (the paper's Figure 2 e).

    Parameters
    ----------
    seed : int
        Seed of training and test data, drawn in this order as in the book's chapter.
    test_examples : int
        How many of the chapter's 1,000 test examples to keep.

    Returns
    -------
    ExplorerTask

    Examples
    --------
    >>> task = two_path_task(test_examples=10)
    >>> task.solve(width=10, noise=2).order_parameter.matrix.shape
    (2, 2)
    """
    chain, rng = HiddenMarkovChain(sigma_perp=1.0), np.random.default_rng(seed)
    xi, y, xi_test, y_test = _chain_data(chain, two_path_heads(chain), rng, test_examples)
    # The heads see only the plane of the two states, so noise outside it scales the path inputs
    # there and nothing else: in a basis of plane, positions and the rest, the rest is the noise.
    basis = np.linalg.qr(np.stack([chain.plus, chain.minus]).T, mode="complete")[0]
    rotation = np.zeros((chain.features, chain.features))
    rotation[: chain.dimension, :2] = basis[:, :2]
    rotation[chain.dimension :, 2 : 2 + chain.tokens] = np.eye(chain.tokens)
    rotation[: chain.dimension, 2 + chain.tokens :] = basis[:, 2:]
    labels = path_labels((2, 1))
    return ExplorerTask(
        "Hidden Markov chain, two paths, noisy",
        xi @ rotation,
        y,
        xi_test @ rotation,
        y_test,
        (2, 1),
        path_names=labels,
        path_colours=path_colours(labels),
        head_names=[["previous token", "uniform"], ["uniform"]],
        noises=(0, 0.5, 1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 10),
        noise=5,
        noise_from=2 + chain.tokens,
    )


def _chain_data(
    chain: HiddenMarkovChain, heads: Sequence[Array], rng: np.random.Generator, tests: int
) -> tuple[Array, Array, Array, Array]:
    xi, y = sample_path_inputs(chain, heads, 100, rng)
    xi_test, y_test = sample_path_inputs(chain, heads, TEST_EXAMPLES, rng)
    return xi, y, xi_test[:tests], y_test[:tests]


def digits_task(seed: int = 0, test_examples: int = 300) -> ExplorerTask:
    """One-shot digits with hand-made heads: of which class is the query, the first or the second.

    scikit-learn's 8 x 8 digits in four patches an image; the network learns from digits 0 to 5
    and is tested on 6 to 9. The good head of layer 1 lets each patch of the query look for its
    like in the two labelled images; layer 2 averages. The other head of each layer is random.

    Parameters
    ----------
    seed : int
        Seed of the data and of the random heads.
    test_examples : int
        Size of the test set.

    Returns
    -------
    ExplorerTask

    Examples
    --------
    >>> task = digits_task(test_examples=10)
    >>> task.heads, task.head_names[0]
    ((2, 2), ['matching patch', 'random'])
    """
    rng = np.random.default_rng(seed)
    heads = _digit_heads(rng)
    (xi, y), (xi_test, y_test) = (
        _digit_inputs(rng, heads, 100, range(6)),
        _digit_inputs(rng, heads, test_examples, range(6, 10)),
    )
    return ExplorerTask(
        "One-shot digits, four paths",
        xi,
        y,
        xi_test,
        y_test,
        (2, 2),
        temperature=0.1,
        path_names=["m", "a12", "a21", "a22"],
        path_colours=path_colours(["g", "a12", "a21", "a22"]),
        head_names=[["matching patch", "random"], ["uniform", "random"]],
    )


# Features of a digit token: 16 pixels, which of the three images, which patch.
PIXELS, IMAGE, PATCH = slice(0, 16), slice(16, 19), slice(19, 23)


def _digit_heads(rng: np.random.Generator) -> list[Array]:
    match = np.zeros((23, 23))
    match[PIXELS, PIXELS] = 6 * np.eye(16)
    match[PATCH, PATCH] = 6 * np.eye(4)
    match[18, 18] = -50  # the query does not look at itself
    scale = np.concatenate([np.full(16, 0.25), np.ones(7)])
    first, second = 2 * rng.normal(size=(2, 23, 23)) * np.outer(scale, scale)
    return [np.stack([match, first]), np.stack([np.zeros((23, 23)), second])]


def _digit_inputs(
    rng: np.random.Generator, heads: Sequence[Array], examples: int, digits: Sequence[int]
) -> tuple[Array, Array]:
    """Path inputs and labels: +1 if the query is of the second image's class."""
    from sklearn.datasets import load_digits

    data = load_digits()
    patches = data.images.reshape(-1, 2, 4, 2, 4).swapaxes(2, 3).reshape(-1, 4, 16)
    patches = patches - patches.mean(axis=2, keepdims=True)
    patches /= np.sqrt(np.sum(patches**2, axis=2, keepdims=True) + 10)
    drawings = {digit: np.flatnonzero(data.target == digit) for digit in digits}

    x = np.zeros((examples, 3, 4, 23))
    x[:, :, :, IMAGE] = np.eye(3)[:, None]
    x[..., PATCH] = np.eye(4)
    y = rng.permutation(np.resize([1.0, -1.0], examples))
    for example, label in zip(x, y, strict=True):
        pair = rng.choice(digits, 2, replace=False)
        chosen = {digit: rng.choice(drawings[digit], 2, replace=False) for digit in pair}
        query = chosen[pair[1 if label > 0 else 0]][1]
        example[..., PIXELS] = patches[[chosen[pair[0]][0], chosen[pair[1]][0], query]]
    tokens = x.reshape(examples, 12, 23)
    return path_inputs(tokens, [bilinear_attention(tokens, w) for w in heads], "mean"), y


def landscape_task(seed: int = 0) -> ExplorerTask:
    """One layer of two heads, whose order parameter is three numbers: U_11, U_12 and U_22.

    The first path carries the class under noise; the second carries much of the same noise and no
    class, so that subtracting it helps.

    Parameters
    ----------
    seed : int
        Seed of the data.

    Returns
    -------
    ExplorerTask

    Examples
    --------
    >>> task = landscape_task()
    >>> solution = task.solve(width=10)
    >>> bool(solution.order_parameter.matrix[0, 1] < 0)  # the noise is subtracted
    True
    """
    rng = np.random.default_rng(seed)

    def draw(examples: int) -> tuple[Array, Array]:
        y = np.resize([1.0, -1.0], examples)
        noise, own = rng.normal(size=(2, examples, 30))
        signal = np.zeros((examples, 30))
        signal[:, 0] = 1.5 * y
        return 0.3 * np.stack([signal + noise, 0.8 * noise + 0.6 * own], axis=1), y

    return ExplorerTask(
        "One layer, two heads",
        *draw(40),
        *draw(400),
        (2,),
        temperature=0.1,
        temperature_range=(0.01, 10),
        width_range=(2, 2000),
        path_names=["1", "2"],
        head_names=[["signal and noise", "noise only"]],
    )
