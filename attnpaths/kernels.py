"""Path-path kernels, their weighted sum, and how well a kernel is aligned with the task.

``C_{pi pi'}(x, x') = xi^pi(x) . xi^pi'(x') / N0`` compares two examples through two paths;
``K = (s_0^2 / Pi) sum_{pi pi'} U_{pi pi'} C_{pi pi'}`` is the network's kernel. `PathKernelMap`
computes the sum and its transpose many times over, for solvers and samplers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigh

from attnpaths._validation import Array, as_array, as_positive, check_overflow

__all__ = ["PathKernelMap", "kernel", "kernel_task_alignment", "path_kernels"]

# Up to this many bytes the pairwise kernels are stored; above, they are never formed.
STORED_BYTES = 2**28


def path_kernels(xi: ArrayLike, xi_other: ArrayLike | None = None) -> Array:
    """Kernels between all pairs of paths.

    ``C_{pi pi'}(x, x') = xi^pi(x) . xi^pi'(x') / N0``.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs (see `attnpaths.path_inputs`).
    xi_other : array_like, shape (P', Pi, N0), optional
        Path inputs of the second argument; default `xi`.

    Returns
    -------
    ndarray, shape (Pi, Pi, P, P')
        Path-path kernels, without the variance s_0^2. This takes ``8 Pi^2 P P'`` bytes: `kernel`
        gives their weighted sum without forming them.

    Raises
    ------
    ValueError
        If an argument is not finite or the shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> xi = np.random.default_rng(0).normal(size=(6, 4, 3))
    >>> path_kernels(xi).shape
    (4, 4, 6, 6)
    """
    xi = as_array("xi", xi, ("P", "Pi", "N0"))
    other = xi if xi_other is None else as_array("xi_other", xi_other, ("P'", *xi.shape[1:]))
    by_path = xi.swapaxes(0, 1)[:, None]  # (Pi, 1, P, N0)
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        result = by_path @ np.ascontiguousarray(other.transpose(1, 2, 0)) / xi.shape[2]
    return check_overflow("xi and xi_other", result)


def kernel(
    xi: ArrayLike, U: ArrayLike, xi_other: ArrayLike | None = None, variance: float = 1.0
) -> Array:
    """Kernel of the network: the path-path kernels weighted by the order parameter.

    ``K(x, x') = (s_0^2 / Pi) sum_{pi pi'} U_{pi pi'} C_{pi pi'}(x, x')``. The path-path kernels are
    not formed: the order parameter mixes the path inputs first.

    Parameters
    ----------
    xi : array_like, shape (P, Pi, N0)
        Path inputs.
    U : array_like, shape (Pi m, Pi m)
        Order parameter of the first layer, m outputs last in its index (m = 1: shape (Pi, Pi)).
    xi_other : array_like, shape (P', Pi, N0), optional
        Path inputs of the second argument; default `xi`.
    variance : float
        Prior variance s_0^2 of the input projection.

    Returns
    -------
    ndarray, shape (P m, P' m)
        The kernel; for several outputs the index is (example, output) in C order.

    Raises
    ------
    ValueError
        If an argument is not finite, `variance` is not positive, or the shapes disagree.

    Examples
    --------
    >>> import numpy as np
    >>> xi = np.random.default_rng(0).normal(size=(6, 4, 3))
    >>> K = kernel(xi, np.eye(4))
    >>> bool(np.allclose(K, path_kernels(xi).trace() / 4))
    True
    """
    xi = as_array("xi", xi, ("P", "Pi", "N0"))
    other = xi if xi_other is None else as_array("xi_other", xi_other, ("P'", *xi.shape[1:]))
    variance = as_positive("variance", variance)
    paths = xi.shape[1]
    U = as_array("U", U, ("Pi m", "Pi m"))
    if U.shape[0] != U.shape[1] or U.shape[0] % paths:
        raise ValueError(
            f"U must be square with {paths} paths times the number of outputs, got shape {U.shape}"
        )
    outputs = U.shape[0] // paths
    scale = variance / (paths * xi.shape[2])
    weights = U.reshape(paths, outputs, paths, outputs)
    result = np.empty((len(xi), outputs, len(other), outputs))
    flat = other.reshape(len(other), -1).T
    with np.errstate(over="ignore", invalid="ignore"):  # told below
        for c in range(outputs):
            for d in range(outputs):
                mixed = weights[:, c, :, d].T @ xi  # sum over pi, for each pi'
                result[:, c, :, d] = (scale * mixed).reshape(len(xi), -1) @ flat
    check_overflow("xi, xi_other and U", result)
    return result.reshape(len(xi) * outputs, len(other) * outputs)


def kernel_task_alignment(K: ArrayLike, y: ArrayLike) -> Array:
    """Overlap of a kernel's principal components with the labels.

    With eigenvectors v of K by decreasing eigenvalue, the overlaps are ``|v . y| / |y|``; their
    squares add up to one.

    Parameters
    ----------
    K : array_like, shape (P, P)
        Symmetric kernel matrix of the training set, without temperature.
    y : array_like, shape (P,)
        Labels (for several outputs, flattened as K is).

    Returns
    -------
    ndarray, shape (P,)
        Overlaps between 0 and 1, by decreasing eigenvalue.

    Raises
    ------
    ValueError
        If K is not square, sizes disagree, an entry is not finite, or y is zero.

    Examples
    --------
    >>> import numpy as np
    >>> y = np.array([1.0, -1.0, 1.0])
    >>> overlaps = kernel_task_alignment(np.outer(y, y), y)
    >>> bool(np.isclose(overlaps[0], 1))
    True
    """
    K = as_array("K", K, ("P", "P"))
    if K.shape[0] != K.shape[1]:
        raise ValueError(f"K must be square, got shape {K.shape}")
    labels = as_array("y", y).ravel()
    if len(labels) != len(K):
        raise ValueError(f"y must have {len(K)} entries like K, got {len(labels)}")
    largest = np.abs(labels).max()
    if largest == 0:
        raise ValueError("y must not be zero everywhere")
    labels = labels / largest  # squares of huge or tiny labels would leave the range of floats
    norm = np.linalg.norm(labels)
    _, vectors = eigh((K + K.T) / 2)
    return np.abs(vectors[:, ::-1].T @ labels) / norm


class PathKernelMap:
    """The linear map from U to K and its transpose, prepared for many evaluations.

    Small problems store each pair of path kernels once, as triangles, since U, K and what
    multiplies them are symmetric; large ones and several outputs keep only the path inputs, and
    both maps are matrix products.

    Parameters
    ----------
    xi : ndarray, shape (P, Pi, N0)
        Path inputs, checked.
    scale : float
        Factor of the sum, s_0^2 / Pi.
    outputs : int
        Number of outputs m.
    stored_bytes : int
        Largest size of the stored pairwise kernels.

    Examples
    --------
    >>> import numpy as np
    >>> xi = np.random.default_rng(0).normal(size=(6, 4, 3))
    >>> kernels = PathKernelMap(xi, 1 / 4)
    >>> K = kernels.combine(np.eye(4))
    >>> bool(np.allclose(K, kernel(xi, np.eye(4))))
    True
    >>> D = kernels.contract(np.ones((6, 6)))  # the transpose: <D, U> = <1, K>
    >>> bool(np.isclose(np.trace(D), K.sum()))
    True
    """

    def __init__(
        self, xi: Array, scale: float, outputs: int = 1, stored_bytes: int = STORED_BYTES
    ) -> None:
        examples, paths, features = xi.shape
        self.outputs = outputs
        self.size = examples * outputs
        self.paths = paths
        pairs = paths * (paths + 1) // 2
        entries = examples * (examples + 1) // 2
        self.triangles: Array | None = None
        if outputs == 1 and 8 * pairs * entries <= stored_bytes:
            self._store_triangles(xi * np.sqrt(scale / features), pairs, entries)
        else:
            self.by_example = xi * np.sqrt(scale / features)  # (P, Pi, N0)
            self.by_path = np.ascontiguousarray(self.by_example.swapaxes(0, 1))

    def _store_triangles(self, xi: Array, pairs: int, entries: int) -> None:
        examples, paths, _ = xi.shape
        self.rows, self.columns = np.tril_indices(examples)
        self.flat = self.rows * examples + self.columns
        self.flat_mirror = self.columns * examples + self.rows
        self.path_rows, self.path_columns = np.tril_indices(paths)
        self.pair_weight = np.where(self.path_rows == self.path_columns, 1.0, 2.0)
        self.entry_weight = np.where(self.rows == self.columns, 1.0, 2.0)
        self.triangles = np.empty((pairs, entries))
        by_path = np.ascontiguousarray(xi.swapaxes(0, 1))
        for pair, (a, b) in enumerate(zip(self.path_rows, self.path_columns, strict=True)):
            product = by_path[a] @ by_path[b].T
            self.triangles[pair] = (product + product.T).ravel()[self.flat] / 2

    def to_pairs(self, U: Array) -> Array:
        """Entries of a symmetric U by pair of paths, off-diagonal ones doubled.

        Examples
        --------
        >>> import numpy as np
        >>> kernels = PathKernelMap(np.ones((3, 2, 1)), 1 / 2)
        >>> kernels.to_pairs(np.array([[1.0, 2.0], [2.0, 3.0]]))  # U_11, 2 U_21, U_22
        array([1., 4., 3.])
        """
        return self.pair_weight * U[self.path_rows, self.path_columns]

    def from_pairs(self, pairs: Array) -> Array:
        """Symmetric matrix with one entry a pair of paths.

        Examples
        --------
        >>> import numpy as np
        >>> kernels = PathKernelMap(np.ones((3, 2, 1)), 1 / 2)
        >>> kernels.from_pairs(np.array([1.0, 2.0, 3.0]))
        array([[1., 2.],
               [2., 3.]])
        """
        D = np.empty((self.paths, self.paths))
        D[self.path_rows, self.path_columns] = pairs
        D[self.path_columns, self.path_rows] = pairs
        return D

    def pair_kernels(self) -> Array | None:
        """All symmetrised, scaled pairwise kernels (pairs, P, P); None where not stored.

        Examples
        --------
        >>> import numpy as np
        >>> kernels = PathKernelMap(np.ones((3, 2, 1)), 1 / 2)
        >>> kernels.pair_kernels().shape  # two paths: three pairs
        (3, 3, 3)
        """
        if self.triangles is None:
            return None
        kernels = np.empty((len(self.triangles), self.size**2))
        kernels[:, self.flat] = self.triangles
        kernels[:, self.flat_mirror] = self.triangles
        return kernels.reshape(-1, self.size, self.size)

    def combine(self, U: Array) -> Array:
        """K of a symmetric U, shape (P m, P m); both triangles are filled.

        Examples
        --------
        >>> import numpy as np
        >>> kernels = PathKernelMap(np.ones((3, 2, 1)), 1 / 2)
        >>> kernels.combine(np.eye(2))[0]  # two equal paths, averaged
        array([1., 1., 1.])
        """
        if self.triangles is not None:
            entries = self.to_pairs(U) @ self.triangles
            K = np.empty(self.size * self.size)
            K[self.flat] = entries
            K[self.flat_mirror] = entries
            return K.reshape(self.size, self.size)
        return self._product(U)

    def contract(self, G: Array) -> Array:
        """Transpose of `combine`: ``scale * sum_{mu nu} G C``, shape (Pi m, Pi m).

        G is symmetric; only its lower triangle is read.

        Examples
        --------
        >>> import numpy as np
        >>> kernels = PathKernelMap(np.ones((3, 2, 1)), 1 / 2)
        >>> kernels.contract(np.eye(3))
        array([[1.5, 1.5],
               [1.5, 1.5]])
        """
        if self.triangles is not None:
            pairs = self.triangles @ (self.entry_weight * G.ravel()[self.flat])
            return self.from_pairs(pairs)
        m, paths = self.outputs, self.paths
        examples = self.size // m
        G = np.tril(G)
        blocks = (G + np.tril(G, -1).T).reshape(examples, m, examples, m)
        D = np.empty((paths, m, paths, m))
        for c in range(m):
            for d in range(c + 1):
                weighted = np.ascontiguousarray(blocks[:, c, :, d]) @ self.by_example.reshape(
                    examples, -1
                )
                weighted = weighted.reshape(self.by_example.shape).swapaxes(0, 1)
                D[:, c, :, d] = self.by_path.reshape(paths, -1) @ weighted.reshape(paths, -1).T
                if c != d:
                    D[:, d, :, c] = D[:, c, :, d].T
        flat = D.reshape(paths * m, paths * m)
        return (flat + flat.T) / 2

    def _product(self, U: Array) -> Array:
        m, paths = self.outputs, self.paths
        examples = self.size // m
        weights = U.reshape(paths, m, paths, m)
        K = np.empty((examples, m, examples, m))
        for c in range(m):
            for d in range(c + 1):
                mixed = np.ascontiguousarray(weights[:, c, :, d].T) @ self.by_path.reshape(
                    paths, -1
                )
                mixed = mixed.reshape(self.by_path.shape).swapaxes(0, 1)
                block = mixed.reshape(examples, -1) @ self.by_example.reshape(examples, -1).T
                K[:, c, :, d] = block
                if c != d:
                    K[:, d, :, c] = block.T
        K = K.reshape(self.size, self.size)
        return (K + K.T) / 2
