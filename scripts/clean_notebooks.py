#!/usr/bin/env python3
"""Keep the book's notebooks small in a diff.

A committed notebook holds no output, except the text of cells tagged ``nbval-check-output``: those
are the key numbers that ``make test`` compares. Each chapter's set-up cell is kept up to date.

    python scripts/clean_notebooks.py [NOTEBOOK ...]            clean in place (all by default)
    python scripts/clean_notebooks.py --check [NOTEBOOK ...]    only say what would change; exit 1
    python scripts/clean_notebooks.py --execute NOTEBOOK ...    run, then keep the key numbers only
"""

import argparse
import os
import re
import sys
from pathlib import Path

import nbformat

KEPT = "nbval-check-output"
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
# What editors add to a cell's metadata and nobody reads.
NOISE = ("ExecuteTime", "collapsed", "editable", "execution", "jukit_cell_id", "scrolled")


# The second cell of each chapter, left out of the page, makes the Colab button work.
SETUP_ID = "set-up"
SETUP = """\
# Where the package is missing (on Colab, say), fetch it.
import importlib.util

if importlib.util.find_spec("attnpaths") is None:
    %pip install --quiet "attnpaths[posterior,sweeps,training,widgets] @ git+{url}"
"""


def setup_cell():
    """Cell that installs the package from the repository named in _config.yml."""
    config = (Path(__file__).resolve().parents[1] / "_config.yml").read_text(encoding="utf-8")
    url = re.search(r"^  url: (\S+)$", config, re.MULTILINE).group(1)
    cell = nbformat.v4.new_code_cell(SETUP.format(url=url).rstrip(), id=SETUP_ID)
    cell.metadata["tags"] = ["remove-cell"]
    return cell


def clean(notebook):
    """Strip a notebook in place, keeping the text outputs of the cells tagged to be compared."""
    cells = [cell for cell in notebook.cells if cell.get("id") != SETUP_ID]
    notebook.cells = [*cells[:1], setup_cell(), *cells[1:]]
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    run = 0
    for cell in notebook.cells:
        for key in NOISE:
            cell.metadata.pop(key, None)
        if cell.cell_type != "code":
            continue
        run += 1
        if KEPT not in cell.metadata.get("tags", []):
            cell.outputs = []
        # nbval refuses outputs of a cell that looks never run.
        cell.execution_count = run if cell.outputs else None
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = None
    return notebook


def execute(notebook, folder):
    """Run a notebook as Jupyter would when it is opened from its folder."""
    from nbclient import NotebookClient

    client = NotebookClient(
        notebook,
        timeout=600,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        coalesce_streams=True,  # one output a cell, however the prints were timed
    )
    client.execute()


def main():
    """Clean, check or execute the notebooks named on the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("notebooks", nargs="*", type=Path)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--check", action="store_true", help="change nothing; exit 1 if unclean")
    action.add_argument("--execute", action="store_true", help="run the notebooks first")
    arguments = parser.parse_args()
    book = Path(__file__).resolve().parents[1] / "book"
    if arguments.execute and not arguments.notebooks:
        parser.error("--execute needs the notebooks to run")

    unclean = 0
    for path in arguments.notebooks or sorted(book.glob("*.ipynb")):
        before = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(before, as_version=4)
        if arguments.execute:
            execute(notebook, path.resolve().parent)
        clean(notebook)
        nbformat.validate(notebook)
        after = nbformat.writes(notebook).rstrip("\n") + "\n"
        if after == before:
            continue
        unclean += 1
        if arguments.check:
            print(f"{path}: holds outputs or metadata that are not committed")
            continue
        temporary = path.with_suffix(".ipynb.tmp")
        temporary.write_text(after, encoding="utf-8")
        os.replace(temporary, path)
        print(f"{path}: cleaned")
    if arguments.check and unclean:
        sys.exit("run: python scripts/clean_notebooks.py")


if __name__ == "__main__":
    main()
