#!/usr/bin/env python3
"""Run the book's notebooks, one on each processor, into the cache that the build reads.

The build itself would run them one after another; with this before it, it finds them done.

    python scripts/execute_book.py
"""

import logging
import os
import sys
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.executors import load_executor
from sphinx_external_toc.parsing import parse_toc_yaml

ROOT = Path(__file__).resolve().parents[1]
CELL_SECONDS = 170  # as in _config.yml


def main():
    """Run the notebooks of _toc.yml that the cache does not hold."""
    # One thread a notebook: they share the processors, and the matrices are small.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    logging.basicConfig(format="%(message)s")
    cache = get_cache(ROOT / "_build" / ".jupyter_cache")
    todo = []
    for name in parse_toc_yaml(ROOT / "_toc.yml"):
        path = ROOT / f"{name}.ipynb"
        if path.exists():
            cache.add_nb_to_project(str(path))
            if cache.get_cached_project_nb(str(path)) is None:
                todo.append(str(path))
    if not todo:
        print("All notebooks are in the cache.")
        return
    print(f"Running {len(todo)} notebooks ...", flush=True)
    executor = load_executor("local-parallel", cache, logging.getLogger("book"))
    result = executor.run_and_cache(filter_uris=todo, timeout=CELL_SECONDS)
    for path in result.succeeded:
        seconds = cache.get_cached_project_nb(path).data["execution_seconds"]
        print(f"  {Path(path).name}: {seconds:.0f} s")
    failed = [Path(path).name for path in result.excepted + result.errored]
    if failed:
        sys.exit(f"Failed, see above: {', '.join(failed)}")


if __name__ == "__main__":
    main()
