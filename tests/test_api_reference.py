"""What a user may call: its examples, and its place on the reference pages."""

import ast
import builtins
import doctest
import importlib
import inspect
import pkgutil
import re
from functools import cached_property
from types import FunctionType

import pytest
from conftest import ROOT

import attnpaths

MEMBERS = (FunctionType, classmethod, staticmethod, property, cached_property)


def public_modules():
    """Names of the modules that a user may import from, the package itself first."""
    yield "attnpaths"
    for module in pkgutil.walk_packages(attnpaths.__path__, "attnpaths."):
        private = any(part.startswith("_") for part in module.name.split("."))
        if not private and not module.name.startswith("attnpaths.cli"):  # it has --help
            yield module.name


EACH_MODULE = pytest.mark.parametrize("name", list(public_modules()))


def public_objects(module):
    """Functions and classes that a module exports, by name; without `__all__` all that it makes."""
    names = getattr(module, "__all__", None)
    if names is None:
        made = {n: v for n, v in vars(module).items() if not n.startswith("_")}
        names = [n for n, v in made.items() if getattr(v, "__module__", None) == module.__name__]
    named = {name: getattr(module, name) for name in names}
    return {name: each for name, each in named.items() if callable(each)}


def examples_of(module):
    """Examples that doctest finds in a module, by the name of what they belong to."""
    tests = doctest.DocTestFinder().find(module, module.__name__)
    return {test.name: test.examples for test in tests if test.examples}


def source_of(examples):
    return "".join(example.source for example in examples)


@EACH_MODULE
def test_every_public_name_has_an_example(name):
    """A class's own example may stand for a method or property, if it uses it."""
    missing = []
    for each in public_objects(importlib.import_module(name)).values():
        examples = examples_of(importlib.import_module(each.__module__))
        whole = f"{each.__module__}.{each.__qualname__}"
        if whole not in examples:
            missing.append(whole)
            continue
        for member, value in vars(each).items() if inspect.isclass(each) else ():
            if member.startswith("_") or not isinstance(value, MEMBERS):
                continue
            shown = re.search(rf"(\.|def ){member}\b", source_of(examples[whole]))
            if not shown and f"{whole}.{member}" not in examples:
                missing.append(f"{whole}.{member}")
    assert not missing, f"no example: {', '.join(missing)}"


@EACH_MODULE
def test_examples_run_as_they_stand(name):
    """None is skipped, and each imports what it uses unless the module itself exports it."""
    module = importlib.import_module(name)
    known = {*dir(builtins), *getattr(module, "__all__", public_objects(module))}
    for place, examples in examples_of(module).items():
        assert not any(doctest.SKIP in example.options for example in examples), place
        nodes = list(ast.walk(ast.parse(source_of(examples))))
        names = [node for node in nodes if isinstance(node, ast.Name)]
        made = {node.id for node in names if not isinstance(node.ctx, ast.Load)}
        made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
        for node in nodes:  # imports, functions, classes, caught exceptions
            made.add(getattr(node, "asname", None) or getattr(node, "name", None))
        assert {node.id for node in names} <= made | known, place


@EACH_MODULE
def test_every_public_name_stands_on_the_reference_pages(name):
    pages = "".join(path.read_text() for path in (ROOT / "book").glob("api_*.md"))
    listed = map(importlib.import_module, re.findall(r"automodule:: (\S+)", pages))
    shown = {id(each) for module in listed for each in public_objects(module).values()}
    exported = public_objects(importlib.import_module(name))
    assert {n for n, each in exported.items() if id(each) not in shown} == set()
