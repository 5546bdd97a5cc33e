"""Heads for the one-shot task that no training made: random ones, and one made by hand.

Random queries and keys know nothing of the task. `matching_head` shows what a head would have to
do: each patch of the query image looks for its like in the two labelled images.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from attnpaths._validation import Array, as_array, as_count, as_number, as_positive
from attnpaths.attention import bilinear_attention
from attnpaths.paths import path_inputs
from attnpaths.tasks.one_shot import (
    CHANNELS,
    FEATURES,
    PATCHES,
    PIXELS,
    TOKENS,
    Images,
    Tasks,
    task_tokens,
    token_table,
)

__all__ = ["matching_head", "random_heads", "task_path_inputs", "uniform_heads"]

READOUT = "mean"
# Directions of the token table with smaller singular values (the largest is about 76) are too faint
# to read a token's place from: neighbouring positions differ little.
FAINTEST_DIRECTION = 0.3


def random_heads(
    heads: int, seed: int | np.random.Generator | None = None, *, width: int = 64
) -> Array:
    """Heads with random queries and keys, as bilinear forms.

    ``W = K^T Q / sqrt(width)`` with independent N(0, 1 / N0) entries of Q and K: scores are of
    order one.

    Parameters
    ----------
    heads : int
        Number of heads H.
    seed : int or numpy Generator
        Source of randomness.
    width : int
        Rows of Q and K.

    Returns
    -------
    ndarray, shape (H, 192, 192)
        Key on the left, query on the right.

    Raises
    ------
    ValueError
        If a number is below one.

    Examples
    --------
    >>> random_heads(4, seed=0).shape
    (4, 192, 192)
    """
    shape = (as_count("heads", heads), as_count("width", width), FEATURES)
    rng = np.random.default_rng(seed)
    queries, keys = rng.normal(scale=FEATURES**-0.5, size=(2, *shape))
    return keys.swapaxes(1, 2) @ queries / np.sqrt(width)


def uniform_heads(heads: int = 1) -> Array:
    """Heads that attend to all tokens alike: W = 0, shape (heads, 192, 192).

    Examples
    --------
    >>> uniform_heads(2).shape, bool(uniform_heads(2).any())
    ((2, 192, 192), False)
    """
    return np.zeros((as_count("heads", heads), FEATURES, FEATURES))


def matching_head(
    embedding: ArrayLike, *, content: float = 10.0, place: float = 10.0, elsewhere: float = 30.0
) -> Array:
    """Head by which each patch of the query image looks for its like in the two labelled images.

    The score of a key for a query token is ``content`` times the cosine-like overlap of the two
    patches (mean of the product of their pixels), plus ``place`` if a key of a labelled image has
    the same place in its image as the query has in its own, minus ``elsewhere`` if both are in the
    query image. Contents are read exactly; places only as well as sinusoidal positions allow, whose
    neighbours are alike.

    Parameters
    ----------
    embedding : array_like, shape (3, 192)
        The label embedding of the tasks.
    content, place, elsewhere : float
        Strengths, in units of the score.

    Returns
    -------
    ndarray, shape (192, 192)
        Key on the left, query on the right.

    Raises
    ------
    ValueError
        If the embedding has another shape or a number is not finite.

    Examples
    --------
    >>> from attnpaths.tasks.one_shot import label_embedding
    >>> matching_head(label_embedding(0)).shape
    (192, 192)
    """
    embedding = as_array("embedding", embedding, (3, FEATURES))
    content = as_positive("content", content)
    table = token_table(embedding)
    # Patches lie in the 64 directions of three equal channels; the other 128 hold only the table.
    channels = CHANNELS / np.sqrt(3)
    rest = np.eye(FEATURES) - channels @ channels.T
    seen = table @ rest
    faintest = FAINTEST_DIRECTION / np.linalg.norm(seen, 2)
    token = np.linalg.pinv(seen.T, rcond=faintest) @ rest  # (48, 192): x to about one-hot
    pixels = (channels.T - (table @ channels).T @ token) / np.sqrt(3)  # (64, 192): x to its patch

    image, cell = np.divmod(np.arange(TOKENS), PATCHES)
    asking = image == 2
    score = np.zeros((TOKENS, TOKENS))  # key, query
    score[np.ix_(asking, asking)] = -as_number("elsewhere", elsewhere)
    same_place = (cell[:, None] == cell) & ~asking[:, None] & asking
    score[same_place] = as_number("place", place)
    return content / PIXELS * pixels.T @ pixels + token.T @ score @ token


def task_path_inputs(
    images: Images | Array,
    tasks: Tasks,
    embedding: ArrayLike,
    heads: Sequence[Array],
    *,
    chunk: int = 50,
) -> Array:
    """Path inputs of one-shot tasks: softmax attention, mean over tokens.

    Parameters
    ----------
    images : Images or array_like
        As for `attnpaths.tasks.one_shot.task_tokens`.
    tasks : Tasks
        P tasks.
    embedding : array_like, shape (3, 192)
        Label embedding.
    heads : sequence of ndarray, each (H_l, 192, 192)
        Bilinear forms of each layer.
    chunk : int
        Tasks at once, which bounds the memory.

    Returns
    -------
    ndarray, shape (P, Pi, 192)

    Raises
    ------
    ValueError
        If shapes disagree or `chunk` is below one.

    Examples
    --------
    >>> from attnpaths.tasks.one_shot import draw_tasks, label_embedding, load_images
    >>> images, embedding = load_images("digits", "test"), label_embedding(0)
    >>> heads = [matching_head(embedding)[None], uniform_heads(2)]
    >>> task_path_inputs(images, draw_tasks(0, 5, images), embedding, heads).shape
    (5, 2, 192)
    """
    chunk = as_count("chunk", chunk)
    parts = []
    for start in range(0, len(tasks), chunk):
        x = task_tokens(images, tasks[start : start + chunk], embedding)
        parts.append(path_inputs(x, [bilinear_attention(x, w) for w in heads], READOUT))
    return np.concatenate(parts)
