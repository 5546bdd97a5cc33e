"""Attention matrices of given heads.

In the paper's network attention looks at the bare input in every layer and is given, not sampled.
Two ways to give a head are common: one bilinear form W, or a query matrix Q and a key matrix K.
Both return arrays `(examples P, heads H, query tokens T, key tokens T)` whose rows sum to one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import softmax

from attnpaths._validation import Array, as_array, as_choice, check_overflow

__all__ = ["bilinear_attention", "query_key_attention"]

NONLINEARITIES = ("softmax", "hardmax")


def bilinear_attention(x: ArrayLike, w: ArrayLike, nonlinearity: str = "softmax") -> Array:
    """Attention of heads given as bilinear forms.

    The score of key token s for query token t is ``x_s^T W x_t``.

    Parameters
    ----------
    x : array_like, shape (P, T, N0)
        Tokens of each example.
    w : array_like, shape (H, N0, N0)
        One matrix a head, key on the left and query on the right.
    nonlinearity : {"softmax", "hardmax"}
        What is applied to the scores over the keys. Hardmax shares the weight equally among tied
        largest scores, as softmax does in the limit of large scores.

    Returns
    -------
    ndarray, shape (P, H, T, T)
        Entry [p, h, t, s] is the weight of key s for query t.

    Raises
    ------
    ValueError
        If an argument is not finite or the shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(5, 4, 3))
    >>> bilinear_attention(x, np.zeros((2, 3, 3))).shape
    (5, 2, 4, 4)
    """
    x = as_array("x", x, ("P", "T", "N0"))
    w = as_array("w", w, ("H", x.shape[2], x.shape[2]))
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        keys = _project(x, w)  # (P, H, T, N0)
        scores = x[:, None] @ keys.swapaxes(2, 3)  # query rows, key columns
    return _normalise(check_overflow("x and w", scores), nonlinearity)


def query_key_attention(
    x: ArrayLike, q: ArrayLike, k: ArrayLike, nonlinearity: str = "softmax"
) -> Array:
    """Attention of heads given as query and key matrices.

    The score of key token s for query token t is ``(Q x_t) . (K x_s) / sqrt(G)``.

    Parameters
    ----------
    x : array_like, shape (P, T, N0)
        Tokens of each example.
    q, k : array_like, shape (H, G, N0)
        Query and key matrices of each head.
    nonlinearity : {"softmax", "hardmax"}
        See `bilinear_attention`.

    Returns
    -------
    ndarray, shape (P, H, T, T)
        Entry [p, h, t, s] is the weight of key s for query t.

    Raises
    ------
    ValueError
        If an argument is not finite or the shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> x, q, k = (rng.normal(size=s) for s in [(5, 4, 3), (2, 6, 3), (2, 6, 3)])
    >>> attention = query_key_attention(x, q, k)
    >>> bool(np.allclose(attention.sum(axis=-1), 1))
    True
    """
    x = as_array("x", x, ("P", "T", "N0"))
    q = as_array("q", q, ("H", "G", x.shape[2]))
    k = as_array("k", k, q.shape)
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        queries = _project(x, q.swapaxes(1, 2))  # (P, H, T, G)
        keys = _project(x, k.swapaxes(1, 2))
        scores = queries @ keys.swapaxes(2, 3) / np.sqrt(q.shape[1])
    return _normalise(check_overflow("x, q and k", scores), nonlinearity)


def _project(x: Array, w: Array) -> Array:
    """Tokens (P, T, N0) times the matrix of each head (H, N0, G), shape (P, H, T, G).

    One large product a head: small ones, one an example, wait for each other's threads where the
    processor is busy.
    """
    examples, tokens, features = x.shape
    projected = x.reshape(-1, features) @ w
    return projected.reshape(len(w), examples, tokens, -1).swapaxes(0, 1)


def _normalise(scores: Array, nonlinearity: str) -> Array:
    """Turn scores (..., query, key) into weights over the keys.

    The result is in C order whatever products left: some file formats (safetensors) write an
    array's memory as it lies.
    """
    scores = np.ascontiguousarray(scores)
    if as_choice("nonlinearity", nonlinearity, NONLINEARITIES) == "softmax":
        return softmax(scores, axis=-1)
    largest = scores == scores.max(axis=-1, keepdims=True)
    return largest / largest.sum(axis=-1, keepdims=True)
