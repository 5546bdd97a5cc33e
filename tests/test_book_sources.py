"""The book's sources before anything is built: what a chapter and the reference page must hold."""

import ast
import itertools
import pkgutil
import re
import subprocess
import sys

import pytest
from conftest import ROOT

import attnpaths

nbformat = pytest.importorskip("nbformat")
yaml = pytest.importorskip("yaml")

CHAPTERS = sorted((ROOT / "book").glob("*.ipynb"))
EACH_CHAPTER = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
LISTED = re.findall(r"^\s*- file: (\S+)", (ROOT / "_toc.yml").read_text(), re.MULTILINE)


def public_modules():
    """Names of the package's modules that a user may import from."""
    for module in pkgutil.walk_packages(attnpaths.__path__, "attnpaths."):
        private = any(part.startswith("_") for part in module.name.split("."))
        # attnpaths.widgets exports what its modules hold; the command line has --help.
        if not private and not module.name.startswith(("attnpaths.cli", "attnpaths.widgets.")):
            yield module.name


def test_contents_list_every_page_once():
    found = [*CHAPTERS, *(ROOT / "book").glob("*.md")]
    pages = {f"book/{path.stem}" for path in found} - {"book/welcome"}
    assert sorted(LISTED) == sorted(pages)


def test_chapters_have_no_file_beside_them():
    """On Colab there is none: what a chapter reads is the package's."""
    kinds = {path.suffix for path in (ROOT / "book").glob("[!._]*")}
    assert kinds <= {".bib", ".ipynb", ".md", ".toml"}  # a folder has no suffix


@pytest.mark.parametrize("name", list(public_modules()))
def test_reference_lists_the_module(name):
    reference = "".join(path.read_text() for path in (ROOT / "book").glob("api_*.md"))
    assert re.search(rf"automodule:: {re.escape(name)}\n", reference), f"{name} is not listed"


def test_notebooks_are_committed_without_outputs():
    script = ROOT / "scripts" / "clean_notebooks.py"
    done = subprocess.run(
        [sys.executable, str(script), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


@EACH_CHAPTER
def test_chapter_starts_with_its_label_and_only_title(chapter):
    cells = nbformat.read(chapter, as_version=4).cells
    label = f"(ch-{chapter.stem.replace('_', '-')})="
    assert cells[0].source.startswith(f"{label}\n# ")
    prose = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    prose = re.sub(r"```.*?```", "", prose, flags=re.DOTALL)
    levels = [len(marks) for marks in re.findall(r"^(#+) ", prose, re.MULTILINE)]
    assert levels.count(1) == 1
    assert all(lower - upper <= 1 for upper, lower in itertools.pairwise(levels))


@EACH_CHAPTER
def test_figures_of_a_chapter_have_caption_name_and_alternative_text(chapter):
    for cell in nbformat.read(chapter, as_version=4).cells:
        drawing = cell.metadata.get("mystnb", {})
        if "figure" in drawing:
            assert drawing["figure"]["name"].startswith("fig-")
            assert drawing["figure"]["caption"].strip()
            assert drawing.get("image", {}).get("alt", "").strip(), drawing["figure"]["name"]


@EACH_CHAPTER
def test_chapter_has_key_numbers_to_compare(chapter):
    cells = nbformat.read(chapter, as_version=4).cells
    compared = [c for c in cells if "nbval-check-output" in c.metadata.get("tags", [])]
    assert compared, "no cell is tagged nbval-check-output"
    for cell in compared:
        assert cell.outputs, "run scripts/clean_notebooks.py --execute to store its numbers"
        assert all(output.output_type == "stream" for output in cell.outputs)


@EACH_CHAPTER
def test_chapter_holds_no_function_longer_than_a_glance(chapter):
    """Algorithms live in the package; a chapter holds calls and small helpers."""
    for cell in nbformat.read(chapter, as_version=4).cells:
        if cell.cell_type == "code" and not re.search(r"^\s*[%!]", cell.source, re.MULTILINE):
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.FunctionDef):
                    statements = sum(isinstance(part, ast.stmt) for part in ast.walk(node))
                    assert statements <= 25, node.name
