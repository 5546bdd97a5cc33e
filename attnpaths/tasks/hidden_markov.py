"""The hidden Markov chain task and its hand-made heads (Section 4 and Figure 2 of the paper).

A chain hops between two hidden states; whether it tends to stay or to hop is the class to be told
from noisy observations of the states. Two kinds of head solve it: one that asks whether the
previous token is in the state of the present one, and one that averages. Random heads disturb.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from attnpaths._validation import Array, as_array, as_count, as_number
from attnpaths.attention import bilinear_attention
from attnpaths.paths import path_inputs, path_names

__all__ = [
    "HiddenMarkovChain",
    "Sequences",
    "four_path_heads",
    "good_path_heads",
    "path_labels",
    "previous_token_head",
    "random_head",
    "sample_path_inputs",
    "task_path_inputs",
    "two_path_heads",
    "uniform_head",
]

READOUT = "last"


@dataclass(frozen=True)
class Sequences:
    """Labelled sequences.

    Attributes
    ----------
    x : ndarray, shape (P, T + 1, N0)
        Tokens: a beginning-of-sequence token, then the observations; one-hot positions appended.
    y : ndarray, shape (P,)
        Classes, +1 (the chain tends to stay) or -1 (it tends to hop).
    states : ndarray of int, shape (P, T)
        Hidden states, +1 or -1.

    Examples
    --------
    >>> data = HiddenMarkovChain(length=5, dimension=4).sample(3, seed=0)
    >>> data.x.shape, data.y.shape, data.states.shape
    ((3, 6, 10), (3,), (3, 5))
    """

    x: Array
    y: Array
    states: Array


@dataclass(frozen=True)
class HiddenMarkovChain:
    """Settings of the task; the defaults are the paper's.

    Parameters
    ----------
    length : int
        Observations in a sequence, T = 30.
    dimension : int
        Dimension of an observation, 200; must be even.
    stay : float
        Probability to stay in the present state for class +1; class -1 stays with 1 - `stay`.
    sigma_parallel : float
        Strength of the noise inside the plane of the two state vectors.
    sigma_perp : float
        Strength of the noise in all other directions.
    beta : float
        Sharpness of the heads: their matrices are multiplied by it.

    Raises
    ------
    ValueError
        If a setting is out of range.

    Examples
    --------
    >>> task = HiddenMarkovChain(sigma_perp=1.0)
    >>> data = task.sample(10, seed=0)
    >>> data.x.shape, int(data.y.sum())
    ((10, 31, 231), 0)
    >>> task.tokens, task.features
    (31, 231)
    """

    length: int = 30
    dimension: int = 200
    stay: float = 0.7
    sigma_parallel: float = 1.0
    sigma_perp: float = 1.0
    beta: float = 10.0
    plus: Array = field(init=False, repr=False, compare=False)
    minus: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "length", as_count("length", self.length, 2))
        object.__setattr__(self, "dimension", as_count("dimension", self.dimension, 2))
        if self.dimension % 2:
            raise ValueError(f"dimension must be even, got {self.dimension}")
        if not 0 < as_number("stay", self.stay) < 1:
            raise ValueError(f"stay must be between 0 and 1, got {self.stay!r}")
        for name in ("sigma_parallel", "sigma_perp"):
            if as_number(name, getattr(self, name)) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)!r}")
        as_number("beta", self.beta)
        half = self.dimension // 2
        plus = np.sqrt(2) * np.repeat([1.0, 0.0], half)
        object.__setattr__(self, "plus", plus)
        object.__setattr__(self, "minus", plus[::-1].copy())

    @property
    def tokens(self) -> int:
        """Tokens of a sequence: the observations and the beginning-of-sequence token."""
        return self.length + 1

    @property
    def features(self) -> int:
        """Features of a token, N0: the observation and the one-hot position."""
        return self.dimension + self.tokens

    def sample(
        self, examples: int, seed: int | np.random.Generator | None = None, *, balanced: bool = True
    ) -> Sequences:
        """Draw labelled sequences.

        Parameters
        ----------
        examples : int
            Number of sequences P.
        seed : int or numpy Generator
            Source of randomness; the same seed gives the same data.
        balanced : bool
            Half of each class (to within one, the odd one of class +1) in random order, instead of
            fair coins.

        Returns
        -------
        Sequences
            Tokens, labels and hidden states.

        Raises
        ------
        ValueError
            If `examples` is below one.

        Examples
        --------
        >>> data = HiddenMarkovChain(length=1000, dimension=2, stay=0.9).sample(2, seed=0)
        >>> stays = (data.states[:, 1:] == data.states[:, :-1]).mean(axis=1)
        >>> bool(((stays > 0.5) == (data.y > 0)).all())
        True
        """
        examples = as_count("examples", examples)
        rng = as_generator(seed)
        if balanced:
            y = rng.permutation(np.resize([1.0, -1.0], examples))
        else:
            y = rng.choice([1.0, -1.0], examples)
        stays = np.where(y > 0, self.stay, 1 - self.stay)
        moves = np.where(rng.random((examples, self.length - 1)) < stays[:, None], 1, -1)
        first = rng.choice([1, -1], (examples, 1))
        states = np.cumprod(np.concatenate([first, moves], axis=1), axis=1)

        clean = np.where(states[..., None] > 0, self.plus, self.minus)
        noise = rng.normal(size=clean.shape)
        plane = np.stack([self.plus, self.minus])
        plane = plane / np.linalg.norm(plane, axis=1, keepdims=True)  # orthonormal
        inside = (noise @ plane.T) @ plane
        observed = (
            clean + self.sigma_perp * noise + (self.sigma_parallel - self.sigma_perp) * inside
        )

        x = np.zeros((examples, self.tokens, self.features))
        x[:, 1:, : self.dimension] = observed
        x[:, :, self.dimension :] = np.eye(self.tokens)
        return Sequences(x, y, states)


def as_generator(seed: int | np.random.Generator | None) -> np.random.Generator:
    """Turn a seed into a numpy Generator; `ValueError` for anything else."""
    if seed is not None and not isinstance(seed, np.random.Generator):
        seed = as_count("seed", seed, 0)
    return np.random.default_rng(seed)


def previous_token_head(task: HiddenMarkovChain) -> Array:
    """Head that asks whether the previous token is in the present token's state.

    Features are compared along the difference of the two states, positions point one token back,
    and every observation can also turn to the beginning-of-sequence token (score 1.5), which holds
    zeros.

    Parameters
    ----------
    task : HiddenMarkovChain
        Settings.

    Returns
    -------
    ndarray, shape (N0, N0)
        The bilinear form W, key on the left, query on the right.

    Examples
    --------
    >>> import numpy as np
    >>> from attnpaths import bilinear_attention
    >>> task = HiddenMarkovChain(length=8, dimension=4, sigma_parallel=0, sigma_perp=0)
    >>> data = task.sample(1, seed=0)
    >>> attention = bilinear_attention(data.x, [previous_token_head(task)])[0, 0]
    >>> looks_back = np.diagonal(attention[2:, 1:]) > 0.9
    >>> bool(np.array_equal(looks_back, data.states[0, 1:] == data.states[0, :-1]))
    True
    """
    n, tokens = task.dimension, task.tokens
    w = np.zeros((task.features, task.features))
    difference = task.plus - task.minus
    direction = 2 * difference / (difference @ difference)
    w[:n, :n] = np.outer(direction, direction)
    positions = w[n:, n:]
    query = np.arange(2, tokens)
    positions[query - 1, query] = 1.0
    positions[0, 1:] = 1.5
    return task.beta * w


def uniform_head(task: HiddenMarkovChain) -> Array:
    """Head that attends to all tokens alike: W = 0, shape (N0, N0).

    Examples
    --------
    >>> bool(uniform_head(HiddenMarkovChain(length=5, dimension=4)).any())
    False
    """
    return np.zeros((task.features, task.features))


def random_head(task: HiddenMarkovChain, seed: int | np.random.Generator | None = None) -> Array:
    """Head with a random bilinear form.

    Parameters
    ----------
    task : HiddenMarkovChain
        Settings.
    seed : int or numpy Generator
        Source of randomness.

    Returns
    -------
    ndarray, shape (N0, N0)
        W: features N(0, 1) / 200, positions N(0, 1), across N(0, 1) / sqrt(200), all times `beta`
        (200 being the dimension of an observation).

    Examples
    --------
    >>> random_head(HiddenMarkovChain(length=5, dimension=4), seed=0).shape
    (10, 10)
    """
    n = task.dimension
    scale = np.concatenate([np.full(n, n**-0.5), np.ones(task.tokens)])
    w = as_generator(seed).normal(size=(task.features, task.features))
    return task.beta * w * np.outer(scale, scale)


def good_path_heads(task: HiddenMarkovChain) -> list[Array]:
    """Only the good path: one head a layer, each array (1, N0, N0).

    Examples
    --------
    >>> [w.shape for w in good_path_heads(HiddenMarkovChain(length=5, dimension=4))]
    [(1, 10, 10), (1, 10, 10)]
    """
    return [previous_token_head(task)[None], uniform_head(task)[None]]


def four_path_heads(
    task: HiddenMarkovChain, seed: int | np.random.Generator | None = None
) -> list[Array]:
    """Heads of the four-path network of Figure 2 (c) and (d).

    Layer 1: previous-token head, random head; layer 2: uniform head, random head.

    Parameters
    ----------
    task : HiddenMarkovChain
        Settings.
    seed : int or numpy Generator
        Draws the random heads.

    Returns
    -------
    list of ndarray, each (2, N0, N0)
        One array a layer.

    Examples
    --------
    >>> [w.shape for w in four_path_heads(HiddenMarkovChain(length=5, dimension=4), seed=0)]
    [(2, 10, 10), (2, 10, 10)]
    """
    rng = as_generator(seed)
    first = np.stack([previous_token_head(task), random_head(task, rng)])
    second = np.stack([uniform_head(task), random_head(task, rng)])
    return [first, second]


def two_path_heads(task: HiddenMarkovChain) -> list[Array]:
    """Heads of the two-path network of Figure 2 (e).

    Layer 1: previous-token head, uniform head; layer 2: uniform head.

    Examples
    --------
    >>> [w.shape for w in two_path_heads(HiddenMarkovChain(length=5, dimension=4))]
    [(2, 10, 10), (1, 10, 10)]
    """
    first = np.stack([previous_token_head(task), uniform_head(task)])
    return [first, uniform_head(task)[None]]


def path_labels(heads: Sequence[int]) -> list[str]:
    """Short names of the paths of a two-layer network, in the order of `path_names`.

    Through the good second layer, path (1, 1) is the good one, "g", and (2, 1) the denoising one,
    "d"; all others are adversarial and named by their heads.

    Parameters
    ----------
    heads : sequence of int
        Heads a layer.

    Returns
    -------
    list of str

    Examples
    --------
    >>> path_labels((2, 2))
    ['g', 'a12', 'd', 'a22']
    """
    special: dict[tuple[int, ...], str] = {(1, 1): "g", (2, 1): "d"}
    return [special.get(path, "a" + "".join(map(str, path))) for path in path_names(heads)]


def task_path_inputs(x: Array, heads: Sequence[Array]) -> Array:
    """Path inputs of the task's sequences: softmax attention, last token read.

    Parameters
    ----------
    x : ndarray, shape (P, T, N0)
        Tokens.
    heads : sequence of ndarray, each (H_l, N0, N0)
        Bilinear forms of each layer.

    Returns
    -------
    ndarray, shape (P, Pi, N0)

    Raises
    ------
    ValueError
        If shapes disagree.

    Examples
    --------
    >>> task = HiddenMarkovChain(length=5, dimension=4)
    >>> task_path_inputs(task.sample(3, seed=0).x, two_path_heads(task)).shape
    (3, 2, 10)
    """
    x = as_array("x", x, ("P", "T", "N0"))
    return path_inputs(x, [bilinear_attention(x, w) for w in heads], READOUT)


def sample_path_inputs(
    task: HiddenMarkovChain,
    heads: Sequence[Array],
    examples: int,
    seed: int | np.random.Generator | None = None,
    *,
    chunk: int = 100,
) -> tuple[Array, Array]:
    """Draw labelled sequences and keep only their path inputs, which are all that the theory needs.

    Sequences are drawn a few at a time: their tokens never fill the memory, and fewer of them at
    once are also three times as fast as a thousand.

    Parameters
    ----------
    task : HiddenMarkovChain
        Settings.
    heads : sequence of ndarray, each (H_l, N0, N0)
        Bilinear forms of each layer.
    examples : int
        Number of sequences P, half of each class.
    seed : int or numpy Generator
        Source of randomness.
    chunk : int
        Sequences drawn at once; an even number, so that each chunk is half of each class.

    Returns
    -------
    xi : ndarray, shape (P, Pi, N0)
        Path inputs.
    y : ndarray, shape (P,)
        Classes, +1 or -1.

    Raises
    ------
    ValueError
        If a count is below one, `chunk` is odd, or shapes disagree.

    Examples
    --------
    >>> task = HiddenMarkovChain()
    >>> xi, y = sample_path_inputs(task, two_path_heads(task), 10, seed=0)
    >>> xi.shape, int(y.sum())
    ((10, 2, 231), 0)
    """
    examples = as_count("examples", examples)
    if as_count("chunk", chunk, 2) % 2:
        raise ValueError(f"chunk must be even, got {chunk}")
    rng = as_generator(seed)
    inputs, labels = [], []
    for start in range(0, examples, chunk):
        drawn = task.sample(min(chunk, examples - start), rng)
        inputs.append(task_path_inputs(drawn.x, heads))
        labels.append(drawn.y)
    return np.concatenate(inputs), np.concatenate(labels)
