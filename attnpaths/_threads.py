"""Threads of the linear algebra library."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

__all__ = ["one_blas_thread"]


@cache
def _controller() -> Any:
    # Finding the loaded libraries takes milliseconds: once a process is enough.
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def one_blas_thread() -> AbstractContextManager[Any]:
    """Context in which BLAS runs on one thread."""
    return _controller().limit(limits=1, user_api="blas")
