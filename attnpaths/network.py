"""The trained network: linear values, attention of the bare input, written by paths (torch).

Every layer's attention sees the input tokens alone, and the values are linear, so the output is
linear in the path inputs,

    f(x) = sum_pi w_pi . xi_pi(x),    xi_pi(x) = sum_s (rho^T A^{L h_L} ... A^{1 h_1})_s x_s .

`AttentionPathNetwork` uses this twice. Attention *vectors* come first: from the readout downwards,
one vector of T numbers a path, instead of the width N of the values for every token. And the values
are contracted to the effective weights w_pi once a batch, not once a token. The score of query t
and key s is ``x_t^T M x_s`` with ``M = Q^T K / sqrt(G)``; where tokens are few numbers mapped into
many (``x = p E^T + B``: the 64 pixels of a patch in three equal channels, plus a table of positions
and labels), M is mapped to those few numbers, also once a batch.

`token_by_token` is the plain forward pass of the same parameters, for tests and benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from attnpaths._validation import Array, as_array, as_count
from attnpaths.paths import as_heads
from attnpaths.pruning import PathNetwork, check_dropped

__all__ = ["AttentionPathNetwork", "token_by_token"]


class AttentionPathNetwork(nn.Module):
    """Attention network with linear values, all of it trainable; readout: mean over tokens.

    Parameters
    ----------
    features : int
        Number of features N0 of a token.
    heads : sequence of int
        Heads a layer, (H_1, ..., H_L).
    width : int
        Width N of all values, N_1 = ... = N_L = N_a.
    key_width : int
        Size G of queries and keys.
    embedding : array_like, shape (N0, D), optional
        If given, tokens are passed as D numbers p each, standing for ``x = p @ embedding.T``.
    offset : array_like, shape (T, N0), optional
        If given, added to the tokens of every example (positions and labels).
    generator : torch.Generator, optional
        Randomness of the initial parameters; default torch's global one.

    Attributes
    ----------
    queries, keys : Parameter, shape (H_1 + ... + H_L, G, N0)
        Heads of all layers, layer 1 first.
    value_0 : Parameter, shape (N, N0)
        The theory's ``V0 / sqrt(N0)``.
    values : list of Parameter, each (N, H_l, N)
        The theory's ``V^{lh} / sqrt(N_l)``: output, head, input. ``1 / sqrt(H_l)`` stays explicit.
    readout : Parameter, shape (N,)
        The theory's ``a / sqrt(N_a)``.

    Raises
    ------
    ValueError
        If a size is no whole number above 0, or `embedding` or `offset` has another shape.

    Notes
    -----
    All parameters start uniform within ``1 / sqrt(fan-in)``, as in `torch.nn.Linear`.

    Examples
    --------
    >>> import torch
    >>> network = AttentionPathNetwork(features=6, heads=(2, 3), width=8, key_width=4)
    >>> network(torch.ones(5, 7, 6)).shape
    torch.Size([5])
    """

    embedding: Tensor | None
    offset: Tensor | None

    def __init__(
        self,
        features: int,
        heads: Sequence[int],
        width: int,
        key_width: int,
        *,
        embedding: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        self.features = as_count("features", features)
        self.heads = as_heads(heads)
        self.width = as_count("width", width)
        self.key_width = as_count("key_width", key_width)

        def start(*shape: int) -> nn.Parameter:
            bound = 1 / math.sqrt(shape[-1])
            return nn.Parameter(torch.empty(shape).uniform_(-bound, bound, generator=generator))

        self.queries = start(sum(self.heads), self.key_width, self.features)
        self.keys = start(sum(self.heads), self.key_width, self.features)
        self.value_0 = start(self.width, self.features)
        self.values = nn.ParameterList(start(self.width, h, self.width) for h in self.heads)
        self.readout = start(self.width)
        for name, value, shape in (
            ("embedding", embedding, (self.features, "D")),
            ("offset", offset, ("T", self.features)),
        ):
            table = None if value is None else torch.tensor(as_array(name, value, shape)).float()
            self.register_buffer(name, table, persistent=False)

    # -- forward -------------------------------------------------------------------------------

    def forward(self, tokens: Tensor) -> Tensor:
        """Outputs of examples.

        Parameters
        ----------
        tokens : Tensor, shape (P, T, D)
            D = N0, or the size of what `embedding` takes. Tokens get no gradient.

        Returns
        -------
        Tensor, shape (P,)

        Examples
        --------
        >>> import torch
        >>> network = AttentionPathNetwork(features=6, heads=(2, 3), width=8, key_width=4)
        >>> network.forward(torch.randn(5, 7, 6)).sum().backward()
        >>> network.queries.grad.shape  # of five heads
        torch.Size([5, 4, 6])
        """
        return self.evaluate(tokens, self.contracted())

    def contracted(self) -> list[Tensor]:
        """All that a batch needs of the parameters: scores of each layer, then weights.

        Splitting `forward` in this and `evaluate` lets a batch be evaluated in pieces, in several
        threads say, while the parameters are contracted, and differentiated, once.

        Returns
        -------
        list of Tensor
            L matrices of scores, (H_l, B, B), and the effective weights (paths, B). B is D, or
            D + T where there is an offset, whose T rows are tokens like the others.

        Examples
        --------
        >>> network = AttentionPathNetwork(features=6, heads=(2, 3), width=8, key_width=4)
        >>> [tuple(part.shape) for part in network.contracted()]
        [(2, 6, 6), (3, 6, 6), (6, 6)]
        """
        queries = self.queries / math.sqrt(self.key_width)
        keys: Tensor = self.keys
        weights = self.effective_weights()
        basis = self.embedding
        if self.offset is not None:
            first = torch.eye(self.features).to(self.offset) if basis is None else basis
            basis = torch.cat([first, self.offset.T], 1)
        if basis is not None:
            queries, keys, weights = queries @ basis, keys @ basis, weights @ basis
        scores = torch.bmm(queries.transpose(1, 2), keys)
        return [*scores.split(self.heads), weights]

    def evaluate(self, tokens: Tensor, contracted: Sequence[Tensor]) -> Tensor:
        """Outputs, shape (P,), of tokens (P, T, D), given `contracted` parameters.

        Examples
        --------
        >>> import torch
        >>> network = AttentionPathNetwork(features=6, heads=(2, 3), width=8, key_width=4)
        >>> tokens, contracted = torch.randn(4, 7, 6), network.contracted()
        >>> halves = [network.evaluate(half, contracted) for half in tokens.split(2)]
        >>> torch.allclose(torch.cat(halves), network(tokens), atol=1e-5)
        True
        """
        *scores, weights = contracted
        examples, length, size = tokens.shape
        vectors = _Attention.apply(tokens, scores[-1]).mean(dim=1)
        for layer in reversed(scores[:-1]):
            # new heads come behind those above, so that paths have the top layer's head slowest
            attention = _Attention.apply(tokens, layer).view(examples, length, -1)
            vectors = torch.bmm(vectors, attention).view(examples, -1, length)
        output = torch.bmm(vectors, tokens).flatten(1) @ weights[:, :size].flatten()
        if self.offset is not None:
            output = output + vectors.flatten(1) @ weights[:, size:].flatten()
        return output

    def effective_weights(self, layer: int = 0) -> Tensor:
        """Weights that run from the input of some layer's values to the output, path by path.

        Parameters
        ----------
        layer : int
            0: from the tokens, (H_L ... H_1, N0), with all normalisation. l from 1 to L: from the
            input of layer l's values, (H_L ... H_l, N), without any ``1 / sqrt(H)``; the theory's
            effective weights divided by ``sqrt(N_l)``.

        Returns
        -------
        Tensor
            The top layer's head varies slowest: the other order than `attnpaths.path_names`.

        Examples
        --------
        >>> network = AttentionPathNetwork(features=6, heads=(2, 3), width=8, key_width=4)
        >>> [tuple(network.effective_weights(layer).shape) for layer in (0, 1, 2)]
        [(6, 6), (6, 8), (3, 8)]
        """
        vectors: Tensor = self.readout[None]
        for values in reversed(self.values[max(layer - 1, 0) :]):
            vectors = (vectors @ values.flatten(1)).view(-1, self.width)
        if layer:
            return vectors
        return vectors @ (self.value_0 / math.sqrt(math.prod(self.heads)))

    # -- what the theory speaks of -------------------------------------------------------------

    @torch.no_grad()
    def path_network(self) -> PathNetwork:
        """The network as one weight vector a path, with its order parameter and magnitudes.

        Returns
        -------
        attnpaths.pruning.PathNetwork
            ``order_parameter`` is `order_parameters()[0]`; ``magnitudes`` are the root mean square
            of each head's queries, keys and values, each relative to its mean over the layer.

        Examples
        --------
        >>> import numpy as np
        >>> import torch
        >>> from attnpaths import path_inputs, query_key_attention
        >>> network = AttentionPathNetwork(features=6, heads=(3,), width=8, key_width=4)
        >>> x, q, k = torch.randn(5, 7, 6), network.queries.detach(), network.keys.detach()
        >>> xi = path_inputs(x, [query_key_attention(x, q, k)])
        >>> f = network(x).detach().numpy()
        >>> bool(np.allclose(network.path_network().predict(xi), f, atol=1e-5))
        True
        """
        weights = self._in_order(self.effective_weights(), self.heads)
        return PathNetwork(weights, self.heads, self.order_parameters()[0], self.magnitudes())

    @torch.no_grad()
    def order_parameters(self) -> list[Array]:
        """Empirical order parameters U_1, ..., U_L.

        U_l is the Gram matrix, divided by N_l, of the effective weights from the input of layer l's
        values to the output. A network's output does not change when one layer's values are
        multiplied by a factor and another's divided by it; here the values below layer l, V0
        included, are scaled to unit variance, as under the theory's prior.

        Returns
        -------
        list of ndarray
            U_l of size H_l ... H_L, index (h_l, ..., h_L) in C order.

        Examples
        --------
        >>> network = AttentionPathNetwork(features=6, heads=(2, 3), width=8, key_width=4)
        >>> [U.shape for U in network.order_parameters()]
        [(6, 6), (3, 3)]
        """
        below = float(self.value_0.square().mean()) * self.features
        result = []
        for layer, values in enumerate(self.values, start=1):
            heads = self.heads[layer - 1 :]
            effective = self._in_order(self.effective_weights(layer).double(), heads)
            result.append(below * effective @ effective.T)
            below *= float(values.square().mean()) * self.width
        return result

    @torch.no_grad()
    def magnitudes(self) -> list[Array]:
        """Size of each head's own parameters, one array of H_l a layer.

        The root mean square over queries, keys and values of the head's norm relative to the root
        mean square of the layer's heads, so that each of the three counts the same.

        Examples
        --------
        >>> network = AttentionPathNetwork(features=6, heads=(2, 3), width=8, key_width=4)
        >>> [len(layer) for layer in network.magnitudes()]
        [2, 3]
        """
        result = []
        split = zip(
            self.queries.split(self.heads), self.keys.split(self.heads), self.values, strict=True
        )
        for queries, keys, values in split:
            squares = torch.stack(
                [
                    queries.square().sum((1, 2)),
                    keys.square().sum((1, 2)),
                    values.square().sum((0, 2)),
                ]
            )
            relative = squares / squares.mean(1, keepdim=True)
            result.append(relative.mean(0).sqrt().double().numpy())
        return result

    def without_heads(self, dropped: Iterable[tuple[int, int]]) -> AttentionPathNetwork:
        """Smaller network in which some heads' outputs are zero.

        ``1 / sqrt(H_l)`` becomes ``1 / sqrt(H_l - dropped)``. All other parameters are copied.

        Parameters
        ----------
        dropped : iterable of (layer, head)
            Heads to drop, counted from 1.

        Returns
        -------
        AttentionPathNetwork

        Raises
        ------
        ValueError
            If there is no such head, or a layer would lose all of its heads.

        Examples
        --------
        >>> network = AttentionPathNetwork(features=6, heads=(2, 3), width=8, key_width=4)
        >>> smaller = network.without_heads([(2, 1)])
        >>> smaller.heads, smaller.queries.shape
        ((2, 2), torch.Size([4, 4, 6]))
        """
        _, kept = check_dropped(self.heads, dropped)
        smaller = AttentionPathNetwork(
            self.features,
            [int(layer.sum()) for layer in kept],
            self.width,
            self.key_width,
            embedding=self.embedding,
            offset=self.offset,
        ).to(self.readout)
        every = torch.from_numpy(np.concatenate(kept))
        state: dict[str, Any] = dict(self.state_dict())
        state["queries"], state["keys"] = state["queries"][every], state["keys"][every]
        for index, layer in enumerate(kept):
            state[f"values.{index}"] = state[f"values.{index}"][:, torch.from_numpy(layer)]
        smaller.load_state_dict(state)
        return smaller

    @staticmethod
    def _in_order(weights: Tensor, heads: tuple[int, ...]) -> Array:
        """From top layer slowest to C order."""
        shaped = weights.reshape(*reversed(heads), -1)
        axes = (*reversed(range(len(heads))), len(heads))
        return shaped.permute(axes).reshape(math.prod(heads), -1).double().numpy()


class _Attention(torch.autograd.Function):
    """Softmax over keys of one layer's scores, shape (P, T, H, S): query t, head, key s.

    In this order of axes every step is one product of matrices, or one a sample, without copies.
    Forward and backward are written out because each pass over these arrays takes as long as a
    product. Tokens are data and get no gradient. `scores` is (H, D, D), query on the left, or, with
    an offset, (H, D + T, D + T): its T rows are appended to the tokens' D numbers.
    """

    @staticmethod
    def forward(ctx: Any, tokens: Tensor, scores: Tensor) -> Tensor:  # type: ignore[override]
        examples, length, size = tokens.shape
        flat = tokens.reshape(-1, size)
        side = scores.transpose(0, 1)  # (query side, H, key side)
        mixed = flat @ side[:size, :, :size].reshape(size, -1)
        offset = len(side) > size
        if offset:
            mixed.view(examples, length, -1).add_(side[size:, :, :size].reshape(length, -1))
            logits = flat @ side[:size, :, size:].reshape(size, -1)
            logits.view(examples, length, -1).add_(side[size:, :, size:].reshape(length, -1))
            logits = logits.view(examples, -1, length)
            logits.baddbmm_(mixed.view(examples, -1, size), tokens.transpose(1, 2))
        else:
            logits = torch.bmm(mixed.view(examples, -1, size), tokens.transpose(1, 2))
        attention = torch.softmax(logits, dim=-1).view(examples, length, -1, length)
        ctx.save_for_backward(tokens, attention)
        ctx.offset = offset
        return attention

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:  # type: ignore[override]
        tokens, attention = ctx.saved_tensors
        examples, length, size = tokens.shape
        heads = attention.shape[2]
        logits = torch._softmax_backward_data(gradient, attention, -1, attention.dtype)
        mixed = torch.bmm(logits.view(examples, -1, length), tokens)
        flat = tokens.reshape(-1, size).T
        result = (flat @ mixed.view(-1, heads * size)).view(size, heads, size)
        if ctx.offset:
            fixed = (flat @ logits.view(-1, heads * length)).view(size, heads, length)
            table = mixed.view(examples, length, heads, size).sum(0)
            result = torch.cat(
                [torch.cat([result, fixed], 2), torch.cat([table, logits.sum(0)], 2)]
            )
        return None, result.transpose(0, 1)


def token_by_token(network: AttentionPathNetwork, x: Tensor) -> Tensor:
    """Outputs of a network, computed as transformers do: values of every token in every layer.

    Parameters
    ----------
    network : AttentionPathNetwork
        Its `embedding` and `offset` are not used.
    x : Tensor, shape (P, T, N0)
        Tokens.

    Returns
    -------
    Tensor, shape (P,)

    Examples
    --------
    >>> import torch
    >>> network = AttentionPathNetwork(features=6, heads=(2, 3), width=8, key_width=4)
    >>> x = torch.randn(5, 7, 6)
    >>> torch.allclose(token_by_token(network, x), network(x), atol=1e-5)
    True
    """
    values = x @ network.value_0.T
    split = zip(
        network.queries.split(network.heads),
        network.keys.split(network.heads),
        network.values,
        strict=True,
    )
    for queries, keys, weights in split:
        heads = len(queries)
        # one product for all heads each: (P, T, H G), then heads in front of tokens
        query = (x @ queries.flatten(0, 1).T).unflatten(2, (heads, -1)).transpose(1, 2)
        key = (x @ keys.flatten(0, 1).T).unflatten(2, (heads, -1)).transpose(1, 2)
        attention = torch.softmax(query @ key.mT / math.sqrt(network.key_width), -1)
        mixed = attention @ values[:, None]  # (P, H, T, N)
        values = mixed.transpose(1, 2).flatten(2) @ weights.flatten(1).T / math.sqrt(heads)
    return values.mean(1) @ network.readout
