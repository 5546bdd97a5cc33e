"""`python -m attnpaths data`: the images of the one-shot task."""

from __future__ import annotations

import argparse
from pathlib import Path

from attnpaths.cli import CommandError
from attnpaths.tasks.one_shot import DataUnavailableError, load_images

NAMES = ("omniglot", "mnist", "fashion_mnist", "digits")
EPILOG = """Images are looked for in --folder (default: $ATTNPATHS_DATA), then in the user's cache;
`download` fetches what is missing to that cache, checked by its MD5 sum. `verify` uses no network.
Digits come with scikit-learn.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.epilog = EPILOG
    parser.add_argument("action", choices=("download", "verify"))
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)} (default: omniglot)"
    )
    parser.add_argument("--folder", type=Path, help="holds omniglot/, mnist/ or fashion_mnist/")


def run(arguments: argparse.Namespace) -> int:
    """Load every part of every set, say what was found; 1 if a set is missing or damaged."""
    names = arguments.names or ["omniglot"]
    if unknown := [name for name in names if name not in NAMES]:
        raise CommandError(f"there are no images {unknown[0]!r}; known are {', '.join(NAMES)}")
    failures = []
    for name in dict.fromkeys(names):
        splits = ("test",) if "mnist" in name else ("train", "validation", "test")
        for split in splits:
            try:
                images = load_images(
                    name, split, arguments.folder, download=arguments.action == "download"
                )
            except DataUnavailableError as error:
                failures.append(name)
                print(f"{name:<14} missing: {error}")
                break
            classes, drawings = images.shape
            print(
                f"{name:<14} {split:<11} {classes:>4} classes of {drawings:>4} images, "
                f"from {images.source}"
            )
    if failures:
        raise CommandError(f"images of {', '.join(failures)} are missing or damaged")
    return 0
