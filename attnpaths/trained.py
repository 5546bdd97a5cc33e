"""Trained heads as files: what the figures need of a network trained by gradient descent.

Values are linear, so that of all values only the effective weights, one vector a path, matter to
the output. With the queries, keys and label embedding they make a network whole, in less than 2 MB
and without torch. `attnpaths.training` makes these files; the package ships some.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import numpy as np

from attnpaths._files import atomic_path, read_arrays
from attnpaths._validation import Array, as_array
from attnpaths.paths import as_heads
from attnpaths.pruning import PathNetwork

__all__ = ["TrainedHeads", "load_trained_heads", "save_trained_heads", "trained_heads_names"]

FORMAT = 1


@dataclass(frozen=True)
class TrainedHeads:
    """A trained network, reduced to its heads and one weight vector a path.

    Attributes
    ----------
    queries, keys : list of ndarray, each (H_l, G, N0)
        Heads of each layer, as `attnpaths.query_key_attention` takes them.
    embedding : ndarray, shape (3, N0)
        Frozen embedding of the labels 0, 1 and unknown; see
        `attnpaths.tasks.one_shot.task_tokens`.
    weights : ndarray, shape (Pi, N0)
        Effective weights: the output is ``sum_pi weights_pi . xi_pi``.
    order_parameters : list of ndarray
        Empirical U_1, ..., U_L (see `attnpaths.network.AttentionPathNetwork.order_parameters`).
    magnitudes : list of ndarray, each (H_l,)
        Relative size of each head's own parameters.
    metadata : dict
        How it was made and what it reached: command, seed, steps, accuracies, training curve, ...

    Examples
    --------
    >>> trained = load_trained_heads("2x4_seed0")
    >>> trained.heads, trained.weights.shape, trained.queries[0].shape[::2]
    ((4, 4), (16, 192), (4, 192))
    >>> trained.metadata["seed"], trained.path_network().heads
    (0, (4, 4))
    """

    queries: list[Array]
    keys: list[Array]
    embedding: Array
    weights: Array
    order_parameters: list[Array]
    magnitudes: list[Array]
    metadata: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        heads = as_heads([len(layer) for layer in self.queries])
        if len(self.keys) != len(heads):
            raise ValueError(f"keys must have {len(heads)} layers, got {len(self.keys)}")
        for index, (queries, keys) in enumerate(zip(self.queries, self.keys, strict=True)):
            q = as_array(f"queries[{index}]", queries, ("H", "G", "N0"))
            as_array(f"keys[{index}]", keys, q.shape)
        features = self.queries[0].shape[2]
        as_array("embedding", self.embedding, (3, features))
        as_array("weights", self.weights, (int(np.prod(heads)), features))
        for name in ("order_parameters", "magnitudes"):
            if len(getattr(self, name)) != len(heads):
                raise ValueError(
                    f"{name} must have one entry a layer, {len(heads)}, "
                    f"got {len(getattr(self, name))}"
                )
        for layer, count in enumerate(heads):
            size = int(np.prod(heads[layer:]))
            as_array(f"order_parameters[{layer}]", self.order_parameters[layer], (size, size))
            as_array(f"magnitudes[{layer}]", self.magnitudes[layer], (count,))

    @property
    def heads(self) -> tuple[int, ...]:
        """Heads a layer."""
        return tuple(len(layer) for layer in self.queries)

    @property
    def digest(self) -> str:
        """Which version of a network this is: others of its name were trained longer or shorter.

        Examples
        --------
        >>> len(load_trained_heads("2x4_seed0").digest)
        8
        """
        return hashlib.sha256(self.weights.tobytes()).hexdigest()[:8]

    def path_network(self) -> PathNetwork:
        """The network on path inputs, which can lose heads.

        Examples
        --------
        >>> network = load_trained_heads("2x4_seed0").path_network()
        >>> int(network.drop([(1, 3), (2, 1)]).kept.sum())  # of 16 paths
        9
        """
        return PathNetwork(self.weights, self.heads, self.order_parameters[0], self.magnitudes)


def save_trained_heads(path: str | Path, trained: TrainedHeads) -> None:
    """Write trained heads to an .npz file.

    Queries and keys are stored in half precision, which moves scores by about one part in a
    thousand; all else in single precision, metadata as JSON text.

    Parameters
    ----------
    path : path
        Ends in .npz; written whole or not at all.
    trained : TrainedHeads
        What to write.

    Raises
    ------
    ValueError
        If the name does not end in .npz, or a number is too large for half precision.

    Examples
    --------
    >>> import tempfile
    >>> from dataclasses import replace
    >>> trained = load_trained_heads("2x4_seed0")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_trained_heads(f"{folder}/mine.npz", replace(trained, metadata={"seed": 5}))
    ...     load_trained_heads(f"{folder}/mine.npz").metadata
    {'seed': 5}
    """
    path = Path(path)
    if path.suffix != ".npz":
        raise ValueError(f"path must end in .npz, got {path.name!r}")
    arrays: dict[str, Array] = {
        "embedding": trained.embedding.astype(np.float32),
        "weights": trained.weights.astype(np.float32),
    }
    for layer in range(len(trained.heads)):
        for name in ("queries", "keys"):
            values = getattr(trained, name)[layer]
            if np.abs(values).max() > np.finfo(np.float16).max:
                raise ValueError(f"{name} must fit half precision, got {np.abs(values).max():g}")
            arrays[f"{name}_{layer + 1}"] = values.astype(np.float16)
        for name in ("order_parameters", "magnitudes"):
            arrays[f"{name}_{layer + 1}"] = getattr(trained, name)[layer].astype(np.float32)
    metadata = json.dumps({"format": FORMAT, **trained.metadata}, allow_nan=False)
    with atomic_path(path) as temporary:
        np.savez_compressed(temporary, allow_pickle=False, metadata=np.array(metadata), **arrays)


def load_trained_heads(path: str | Path) -> TrainedHeads:
    """Read trained heads.

    Parameters
    ----------
    path : path or str
        A file of `save_trained_heads`, or a name from `trained_heads_names`.

    Returns
    -------
    TrainedHeads
        All arrays float64.

    Raises
    ------
    ValueError
        If there is neither such a file nor such a name, or the file is damaged or of another kind.

    Examples
    --------
    >>> load_trained_heads("2x4_seed0").heads
    (4, 4)
    """
    if Path(path).suffix == ".npz":
        return _from_arrays(read_arrays([path]), path)
    names = trained_heads_names()
    if str(path) not in names:
        raise ValueError(
            f"path must be an .npz file or one of the shipped names {names}, got {str(path)!r}"
        )
    with as_file(_shipped() / f"{path}.npz") as file:
        return _from_arrays(read_arrays([file]), path)


def trained_heads_names() -> list[str]:
    """Names of the trained heads that the package ships.

    Examples
    --------
    >>> "2x4_seed0" in trained_heads_names()
    True
    """
    folder = _shipped()
    if not folder.is_dir():
        return []
    return sorted(file.name[:-4] for file in folder.iterdir() if file.name.endswith(".npz"))


def _shipped() -> Any:
    return files("attnpaths") / "data" / "trained"


def _from_arrays(arrays: Mapping[str, Array], path: str | Path) -> TrainedHeads:
    try:
        metadata = json.loads(str(arrays["metadata"]))
        if metadata.pop("format") != FORMAT:
            raise ValueError("another format")
        layers = range(1, sum(name.startswith("queries_") for name in arrays) + 1)

        def each(name: str) -> list[Array]:
            return [arrays[f"{name}_{layer}"].astype(np.float64) for layer in layers]

        return TrainedHeads(
            each("queries"),
            each("keys"),
            arrays["embedding"].astype(np.float64),
            arrays["weights"].astype(np.float64),
            each("order_parameters"),
            each("magnitudes"),
            metadata,
        )
    except (KeyError, IndexError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} does not hold trained heads: {error}") from error
