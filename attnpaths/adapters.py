"""Your own model: attention of a trained torch model, and heads switched off in it.

`record_attention` runs a model once and returns what the theory needs: the tokens that enter the
first attention layer, and every layer's attention matrices. From there it is
`attnpaths.path_inputs`, `attnpaths.solve_order_parameter` and `attnpaths.head_scores`.
`as_attentions` takes attention tensors that a model already gives back, say Hugging Face's
``output_attentions=True``. `TorchModel` drops heads of the model itself, so that
`attnpaths.pruning` can measure what the scores claim.

What the theory then describes is *not* that model but the paper's network with that model's
attention: linear values, no residual stream, no feed-forward layers, every layer attending as
recorded.

Torch is imported when a function needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from attnpaths._validation import Array, as_array, as_count
from attnpaths.pruning import Head, check_dropped

if TYPE_CHECKING:
    from torch import nn

__all__ = [
    "Recording",
    "TorchModel",
    "as_attentions",
    "attention_modules",
    "dropped_heads",
    "record_attention",
]

# Rows of attention may miss one by rounding in half precision, not by dropout.
ROW_SUM_TOLERANCE = 2e-2


class Recording(NamedTuple):
    """What a model's attention saw and did.

    Attributes
    ----------
    x : ndarray, shape (P, T, N0)
        Tokens that entered the first recorded layer.
    attentions : list of ndarray, each (P, H_l, T, T)
        Attention of each layer; row = query, column = key.
    output : ndarray
        The model's output.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> recording = record_attention(layer, torch.randn(5, 3, 8))
    >>> recording.heads, recording.output.shape, recording.attentions[0].shape
    ((2,), (5, 3, 8), (5, 2, 3, 3))
    """

    x: Array
    attentions: list[Array]
    output: Array

    @property
    def heads(self) -> tuple[int, ...]:
        """Heads a layer, for `attnpaths.Architecture`."""
        return tuple(attention.shape[1] for attention in self.attentions)


def as_attentions(attentions: Iterable[Any]) -> list[Array]:
    """Attention tensors of any library, checked and as float64 arrays.

    Parameters
    ----------
    attentions : iterable of array_like, each (P, H_l, T, T)
        One tensor or array a layer; row = query, column = key.

    Returns
    -------
    list of ndarray
        Each (P, H_l, T, T), rows summing to one.

    Raises
    ------
    ValueError
        If shapes disagree, an entry is negative or not finite, or rows do not sum to one (masked
        or dropped-out attention, or keys before queries).

    Examples
    --------
    >>> import numpy as np
    >>> [layer.shape for layer in as_attentions([np.full((2, 3, 4, 4), 0.25)])]
    [(2, 3, 4, 4)]
    """
    if hasattr(attentions, "ndim"):
        raise ValueError(
            "attentions must be a list with one (P, H, T, T) tensor a layer, got one tensor"
        )
    layers: list[Array] = []
    for index, value in enumerate(attentions):
        name = f"attentions[{index}]"
        if hasattr(value, "detach"):
            value = value.detach().float().cpu().numpy()
        layer = as_array(name, value, ("P", "H", "T", "T"))
        if layer.shape[2] != layer.shape[3] or (
            layers and (layer.shape[0], layer.shape[2]) != (layers[0].shape[0], layers[0].shape[2])
        ):
            raise ValueError(
                f"{name} must have shape (P, H, T, T) with the same P and T in all layers, got "
                f"shape {layer.shape}"
            )
        sums = layer.sum(axis=-1)
        worst = float(np.abs(sums - 1).max())
        if worst > ROW_SUM_TOLERANCE or layer.min() < -1e-6:
            raise ValueError(
                f"{name} must be attention after the softmax, whose rows (last axis: keys) sum to "
                f"one, got sums that miss it by up to {worst:.2g}; is dropout on, or are keys and "
                "queries exchanged?"
            )
        layers.append(layer / sums[..., None])
    if not layers:
        raise ValueError("attentions must hold at least one layer, got an empty list")
    return layers


def attention_modules(model: nn.Module) -> list[nn.Module]:
    """List the attention modules of a model: its `torch.nn.MultiheadAttention`, in order.

    Parameters
    ----------
    model : torch.nn.Module
        The model.

    Returns
    -------
    list of torch.nn.Module

    Raises
    ------
    ValueError
        If there is none.

    Examples
    --------
    >>> import torch
    >>> layers = [torch.nn.TransformerEncoderLayer(8, 2, 16) for _ in range(3)]
    >>> len(attention_modules(torch.nn.Sequential(*layers)))
    3
    """
    from torch import nn

    found: list[nn.Module] = [
        part for part in model.modules() if isinstance(part, nn.MultiheadAttention)
    ]
    if not found:
        raise ValueError(
            "model must contain torch.nn.MultiheadAttention modules, got "
            f"{type(model).__name__} with none; name its attention modules with modules="
        )
    return found


def record_attention(
    model: nn.Module,
    inputs: Any,
    *,
    modules: Sequence[nn.Module] | None = None,
    read: Callable[[nn.Module, tuple[Any, ...], Any], tuple[Any, Any]] | None = None,
    batch: int = 256,
) -> Recording:
    """Run a model and record tokens and attention by hooks.

    The model is run in evaluation mode without gradients, and left as it was.

    Parameters
    ----------
    model : torch.nn.Module
        Called with one batch of inputs.
    inputs : torch.Tensor or array_like, shape (P, ...)
        Examples on the first axis.
    modules : sequence of torch.nn.Module, optional
        The attention modules, first layer first. Default: all `torch.nn.MultiheadAttention`.
    read : callable, optional
        For modules of another kind: ``(module, arguments, output) -> (tokens, attention)``, where
        attention is (P, H, T, T). Default: as `torch.nn.MultiheadAttention` does it.
    batch : int
        Examples at once.

    Returns
    -------
    Recording
        Named tuple (x, attentions, output).

    Raises
    ------
    ValueError
        If there is no attention module, a module runs not exactly once, or what was recorded is
        not attention.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> recording = record_attention(layer, torch.randn(5, 3, 8))
    >>> recording.x.shape, recording.heads
    ((5, 3, 8), (2,))
    """
    import torch

    parts = attention_modules(model) if modules is None else list(modules)
    if not parts:
        raise ValueError("modules must name at least one attention module, got an empty list")
    batch = as_count("batch", batch)
    if not isinstance(inputs, torch.Tensor):
        inputs = torch.as_tensor(np.asarray(inputs))
    tokens: list[Array] = []
    layers: list[list[Array]] = [[] for _ in parts]
    seen: list[tuple[int, Any, Any]] = []

    def ask(module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        return arguments, {**options, "need_weights": True, "average_attn_weights": False}

    def keep(index: int) -> Callable[..., None]:
        def hook(
            module: nn.Module, arguments: tuple[Any, ...], options: dict[str, Any], output: Any
        ) -> None:
            if read is None:
                entered = arguments[0] if arguments else options["query"]
                if not getattr(module, "batch_first", True):
                    entered = entered.transpose(0, 1)
                attention = output[1]
            else:
                entered, attention = read(module, arguments, output)
            seen.append((index, entered, attention))

        return hook

    with _evaluating(model):
        handles = [
            part.register_forward_hook(keep(index), with_kwargs=True)
            for index, part in enumerate(parts)
        ]
        if read is None:
            handles += [part.register_forward_pre_hook(ask, with_kwargs=True) for part in parts]
        try:
            outputs = []
            for start in range(0, len(inputs), batch):
                seen.clear()
                output = model(inputs[start : start + batch])
                outputs.append(_as_numpy(output))
                if sorted(index for index, _, _ in seen) != list(range(len(parts))):
                    raise ValueError(
                        "modules must each run once when the model is called, got runs of modules "
                        f"number {[index for index, _, _ in seen]}"
                    )
                for index, entered, attention in seen:
                    layers[index].append(_as_numpy(attention))
                    if index == 0:
                        tokens.append(_as_numpy(entered))
        finally:
            for handle in handles:
                handle.remove()
    x = as_array("tokens", np.concatenate(tokens), ("P", "T", "N0"))
    attentions = as_attentions([np.concatenate(layer) for layer in layers])
    return Recording(x, attentions, np.concatenate(outputs))


@contextmanager
def dropped_heads(
    model: nn.Module, dropped: Iterable[Head], *, rescale: bool = False
) -> Iterator[nn.Module]:
    """Switch heads of a torch model off for the length of a `with` block.

    The head's columns of its module's output projection are set to zero, and put back at the end.

    Parameters
    ----------
    model : torch.nn.Module
        Its `torch.nn.MultiheadAttention` modules are the layers.
    dropped : iterable of (layer, head)
        Heads, counted from 1.
    rescale : bool
        Whether to multiply what is left of a layer by ``sqrt(H / (H - dropped))``, as the paper's
        network does. Models with a residual stream are usually pruned without.

    Yields
    ------
    torch.nn.Module
        The model.

    Raises
    ------
    ValueError
        If there is no such head, or a layer would lose all of its heads.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.MultiheadAttention(8, 2)
    >>> with dropped_heads(layer, [(1, 2)]):
    ...     layer.out_proj.weight[0, 4:].tolist()  # what the second head's four features add
    [0.0, 0.0, 0.0, 0.0]
    >>> bool((layer.out_proj.weight[0, 4:] != 0).all())
    True
    """
    import torch

    parts = attention_modules(model)
    heads = tuple(int(part.num_heads) for part in parts)  # type: ignore[arg-type]
    _, kept = check_dropped(heads, dropped)
    saved = []
    try:
        with torch.no_grad():
            for part, left in zip(parts, kept, strict=True):
                if left.all():
                    continue
                weight: Any = part.out_proj.weight  # type: ignore[union-attr]
                saved.append((weight, weight.clone()))
                factor = np.sqrt(len(left) / left.sum()) if rescale else 1.0
                gates = torch.as_tensor(left * factor, dtype=weight.dtype, device=weight.device)
                weight.mul_(gates.repeat_interleave(weight.shape[1] // len(left)))
        yield model
    finally:
        with torch.no_grad():
            for weight, before in saved:
                weight.copy_(before)


class TorchModel:
    """A torch model that can lose heads, for `attnpaths.pruning`.

    Parameters
    ----------
    model : torch.nn.Module
        With `torch.nn.MultiheadAttention` modules and one output, whose sign is the class.
    rescale : bool
        See `dropped_heads`.
    batch : int
        Examples at once.

    Raises
    ------
    ValueError
        If the model has no such module.

    Examples
    --------
    >>> import torch
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> model = torch.nn.Sequential(layer, torch.nn.Flatten(), torch.nn.Linear(24, 1))
    >>> whole, inputs = TorchModel(model), torch.randn(5, 3, 8)
    >>> smaller = whole.drop([(1, 2)])
    >>> whole.heads, bool((whole.predict(inputs) != smaller.predict(inputs)).any())
    ((2,), True)
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        rescale: bool = False,
        batch: int = 256,
        dropped: Iterable[Head] = (),
    ) -> None:
        self.model = model
        self.rescale = rescale
        self.batch = as_count("batch", batch)
        self.heads = tuple(int(part.num_heads) for part in attention_modules(model))  # type: ignore[arg-type]
        self.dropped = check_dropped(self.heads, dropped)[0]

    def drop(self, dropped: Iterable[Head]) -> TorchModel:
        """Model without these heads; the torch model itself is shared and unchanged.

        Examples
        --------
        >>> import torch
        >>> whole = TorchModel(torch.nn.TransformerEncoderLayer(8, 4, 16, batch_first=True))
        >>> sorted(whole.drop([(1, 2)]).drop([(1, 4)]).dropped), sorted(whole.dropped)
        ([(1, 2), (1, 4)], [])
        """
        return TorchModel(
            self.model,
            rescale=self.rescale,
            batch=self.batch,
            dropped=self.dropped | check_dropped(self.heads, dropped)[0],
        )

    def predict(self, inputs: ArrayLike) -> Array:
        """Outputs, shape (P',), of inputs (P', ...).

        Examples
        --------
        >>> import torch
        >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> model = torch.nn.Sequential(layer, torch.nn.Flatten(), torch.nn.Linear(24, 1))
        >>> TorchModel(model).predict(torch.randn(5, 3, 8)).shape
        (5,)
        """
        import torch

        if not isinstance(inputs, torch.Tensor):
            inputs = torch.as_tensor(np.asarray(inputs))
        with dropped_heads(self.model, self.dropped, rescale=self.rescale), _evaluating(self.model):
            parts = [
                _as_numpy(self.model(inputs[start : start + self.batch]))
                for start in range(0, len(inputs), self.batch)
            ]
        output = np.concatenate(parts)
        return output.reshape(len(inputs), -1)[:, 0] if output[0].size == 1 else output


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every part is in the mode it was in."""
    import torch

    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part in training:
            part.training = True


def _as_numpy(value: Any) -> Array:
    if not hasattr(value, "detach"):
        raise ValueError(f"model must return torch tensors, got {type(value).__name__}")
    return value.detach().double().cpu().numpy()
