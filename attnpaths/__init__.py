"""Attention paths in the statistical mechanics of transformers.

Kernels, order parameters, exact posteriors and pruning for deep multi-head attention networks with
linear values, after Tiberi, Mignacco, Irie and Sompolinsky (NeurIPS 2024, arXiv:2405.15926).
"""

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
from attnpaths.predictor import Prediction, predict
from attnpaths.pruning import head_scores

__version__ = "0.1.0"

__all__ = [
    "Action",
    "Architecture",
    "ConvergenceWarning",
    "OrderParameter",
    "Prediction",
    "action",
    "bilinear_attention",
    "gp_order_parameter",
    "head_scores",
    "kernel",
    "kernel_task_alignment",
    "path_inputs",
    "path_kernels",
    "path_names",
    "predict",
    "query_key_attention",
    "solve_order_parameter",
]
