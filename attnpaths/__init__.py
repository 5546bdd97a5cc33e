"""Attention paths in the statistical mechanics of transformers.

Kernels, order parameters, exact posteriors and pruning for deep multi-head attention networks with
linear values, after Tiberi, Mignacco, Irie and Sompolinsky (NeurIPS 2024, arXiv:2405.15926).
"""

from attnpaths.attention import bilinear_attention, query_key_attention
from attnpaths.paths import path_inputs, path_names

__version__ = "0.1.0"

__all__ = ["bilinear_attention", "path_inputs", "path_names", "query_key_attention"]
