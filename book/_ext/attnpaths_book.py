"""Sphinx extension of this book: pages that need no other host.

It puts MathJax, which comes in a pinned wheel, beside the pages, and leaves the saved state of
Jupyter widgets out of them (the static page shows each widget's HTML, see ``_config.yml``). It also
resolves references to the names that ``attnpaths`` exports.
"""

import html
import inspect
from collections import _tuplegetter
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from sphinx.errors import ExtensionError
from sphinx.util.fileutil import copy_asset

MATHJAX_WHEEL = "sphinx-mathjax-offline"
# SVG output draws its own glyphs: no font files, so equations also render from file:// pages.
MATHJAX_PARTS = ("tex-svg.js", "input/tex/extensions", "a11y", "sre")


FIRST_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="icon" href="_static/favicon.svg">
<meta http-equiv="refresh" content="0; url={first}">
</head>
<body><a href="{first}">{title}</a></body>
</html>
"""


def mathjax_folder() -> Path:
    """Folder of MathJax's files inside the installed wheel."""
    try:
        folder = distribution(MATHJAX_WHEEL).locate_file(
            f"{MATHJAX_WHEEL}/static/mathjax"
        )
    except PackageNotFoundError as error:
        raise ExtensionError(
            f"MathJax is missing: install {MATHJAX_WHEEL} (pip install -r requirements.txt)"
        ) from error
    return Path(str(folder))


def copy_mathjax(app, exception):
    """Copy the parts of MathJax that a page can ask for."""
    if exception is not None or app.builder.format != "html":
        return
    source, target = mathjax_folder(), Path(app.outdir, "_static", "mathjax")
    for part in MATHJAX_PARTS:
        copy_asset(
            source / part,
            target / part if (source / part).is_dir() else target,
        )


def write_first_page(app, exception):
    """Lead from the folder's index to the first chapter (with an icon, so none is asked for)."""
    if exception is not None or app.builder.format != "html":
        return
    first = app.builder.get_relative_uri("index", app.config.root_doc)
    Path(app.outdir, "index.html").write_text(
        FIRST_PAGE.format(
            title=html.escape(app.config.html_title), first=first
        ),
        encoding="utf-8",
    )


def drop_widget_state(app, doctree):
    """Leave out widget state: nothing on a static page reads it, and it can weigh megabytes."""
    metadata = getattr(app.env, "nb_metadata", {}).get(app.env.docname, {})
    metadata.get("js_files", {}).pop("ipywidgets_state", None)


def resolve_public_name(app, env, node, contnode):
    """Let a reference name a function by where it is imported from.

    The reference pages list ``attnpaths.kernels.kernel``; a chapter writes ``attnpaths.kernel``.
    """
    target = node.get("reftarget", "")
    if node.get("refdomain") != "py":
        return None
    first, _, rest = target.removeprefix("attnpaths.").partition(".")
    public = getattr(import_module("attnpaths"), first, None)
    if not (inspect.isfunction(public) or inspect.isclass(public)):
        return None
    full_name = f"{public.__module__}.{public.__qualname__}" + (
        f".{rest}" if rest else ""
    )
    if full_name == target:
        return None
    return env.get_domain("py").resolve_xref(
        env,
        node["refdoc"],
        app.builder,
        node["reftype"],
        full_name,
        node,
        contnode,
    )


def skip_foreign_members(app, what, name, obj, skip, options):
    """Leave out what others wrote: "Alias for field number 0", scikit-learn's request methods."""
    foreign = str(getattr(obj, "__module__", "")).startswith("sklearn.")
    return True if foreign or isinstance(obj, _tuplegetter) else None


def setup(app):
    """Register the hooks with Sphinx."""
    app.connect("missing-reference", resolve_public_name)
    app.connect("autodoc-skip-member", skip_foreign_members)
    app.connect("doctree-read", drop_widget_state)
    app.connect("build-finished", copy_mathjax)
    app.connect(
        "build-finished", write_first_page, priority=400
    )  # before sphinx_external_toc's
    return {"parallel_read_safe": True, "parallel_write_safe": True}
