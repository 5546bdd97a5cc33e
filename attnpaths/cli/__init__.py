"""The command line, `python -m attnpaths`.

Each command is a module with `add_arguments(parser)` and `run(arguments)`; the module is loaded
only when its command is called, so that `--help` is quick and a missing extra stops only what needs
it.

Exit codes: 0 done, 1 failed (a file that cannot be read, a solve that finds no minimum, data that
do not match their checksums), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

import attnpaths

__all__ = ["COMMANDS", "CommandError", "main"]


class CommandError(Exception):
    """A failure with a message for the user."""


class Command(NamedTuple):
    """Where a command lives, what it does, and the optional dependencies it needs."""

    module: str
    summary: str
    extra: str | None = None


COMMANDS = {
    "reproduce": Command(
        "attnpaths.reproduce", "compute the paper's figures and compare the numbers"
    ),
    "solve": Command("attnpaths.cli.solve", "solve for the order parameter of your own heads"),
    "train": Command("attnpaths.training", "train a network by gradient descent", "training"),
    "prune": Command("attnpaths.cli.prune", "rank heads and measure pruning"),
    "data": Command("attnpaths.cli.data", "download or verify the images of the one-shot task"),
}

EPILOG = """exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments; by default the process's.

    Returns
    -------
    int
        Exit code.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    debug = bool(os.environ.get("ATTNPATHS_DEBUG"))
    try:
        arguments = _parse(argv)
        code = arguments.run(arguments)
        sys.stdout.flush()
        return 0 if code is None else int(code)
    except SystemExit as stop:  # argparse: 0 after --help, 2 after a wrong option
        if isinstance(stop.code, str):
            return _fail(stop.code)
        return int(stop.code or 0)
    except KeyboardInterrupt:
        print("\nattnpaths: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader (head, less) left: nothing more to say, nor to flush at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CommandError, ValueError, OSError, MemoryError) as error:
        if debug:
            traceback.print_exc()
        return _fail(str(error) or type(error).__name__)


def _fail(message: str) -> int:
    print(f"attnpaths: error: {message}", file=sys.stderr)
    return 1


def _formatter(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=30)


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m attnpaths",
        description="Theory, training and pruning of networks of attention paths.",
        epilog=EPILOG,
        formatter_class=_formatter,
    )
    parser.add_argument("--version", action="version", version=f"attnpaths {attnpaths.__version__}")
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", dest="command")
    # The command is the first word that is no option: only its module is loaded.
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, command in COMMANDS.items():
        child = choices.add_parser(
            name,
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            formatter_class=_formatter,
        )
        if name == chosen:
            module = _load(name, command)
            module.add_arguments(child)
            child.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)
    if arguments.command is None:
        parser.print_usage(sys.stderr)
        print(
            f"attnpaths: error: a command is needed, one of {', '.join(COMMANDS)}", file=sys.stderr
        )
        raise SystemExit(2)
    return arguments


def _load(name: str, command: Command) -> Any:
    try:
        return importlib.import_module(command.module)
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        if missing.split(".")[0] == "attnpaths":
            raise CommandError(f"{name} is not part of this installation ({missing})") from error
        advice = f"attnpaths[{command.extra}]" if command.extra else missing
        raise CommandError(
            f"{name} needs {missing}, which is not installed: pip install '{advice}'"
        ) from error
