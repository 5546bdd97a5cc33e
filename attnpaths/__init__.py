"""Attention paths in the statistical mechanics of transformers.

Kernels, order parameters, exact posteriors and pruning for deep multi-head attention networks with
linear values, after Tiberi, Mignacco, Irie and Sompolinsky (NeurIPS 2024, arXiv:2405.15926).
"""

from typing import TYPE_CHECKING, Any

from attnpaths.attention import bilinear_attention, query_key_attention
from attnpaths.kernels import kernel, kernel_task_alignment, path_kernels
from attnpaths.order_parameter import (
    Action,
    Architecture,
    ConvergenceWarning,
    OrderParameter,
    action,
    gp_order_parameter,
    solve_order_parameter,
)
from attnpaths.paths import path_inputs, path_names
from attnpaths.posterior import (
    Laplace,
    Posterior,
    SamplingWarning,
    laplace_approximation,
    sample_posterior,
)
from attnpaths.predictor import Prediction, predict
from attnpaths.pruning import head_scores

if TYPE_CHECKING:
    from attnpaths.model import AttentionPathModel, BilinearAttention, QueryKeyAttention

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Architecture",
    "AttentionPathModel",
    "BilinearAttention",
    "ConvergenceWarning",
    "Laplace",
    "OrderParameter",
    "Posterior",
    "Prediction",
    "QueryKeyAttention",
    "SamplingWarning",
    "action",
    "bilinear_attention",
    "gp_order_parameter",
    "head_scores",
    "kernel",
    "kernel_task_alignment",
    "laplace_approximation",
    "path_inputs",
    "path_kernels",
    "path_names",
    "predict",
    "query_key_attention",
    "sample_posterior",
    "solve_order_parameter",
]

# The estimator needs scikit-learn; it is loaded when asked for, so that the core starts fast.
_IN_MODEL = ("AttentionPathModel", "BilinearAttention", "QueryKeyAttention")


def __getattr__(name: str) -> Any:
    if name in _IN_MODEL:
        import attnpaths.model

        return getattr(attnpaths.model, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
