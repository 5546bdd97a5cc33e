"""One-shot image classification (Section 4.2 and Figure 3 of the paper): images and tasks.

A task shows two support images, drawings of two different characters labelled 0 and 1, then a query
that is another drawing of one of the two; y = +1 if it is of class 1. The network sees 48 tokens:
16 patches an image, layer-normalised, plus positions, plus an embedding of the label.

Images come from Omniglot (`load_images`), or, where there is neither a folder nor a network, from
scikit-learn's digits. MNIST and Fashion-MNIST are for tests out of distribution. All are kept as
one grey channel; `task_tokens` spreads the patches over three equal channels at the very end, and
`CHANNELS` and `token_table` let faster code do without: ``x = patch @ CHANNELS.T + table``.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import struct
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from attnpaths._validation import Array, as_array, as_choice, as_count

__all__ = [
    "CHANNELS",
    "FEATURES",
    "TOKENS",
    "DataUnavailableError",
    "Images",
    "Tasks",
    "available_images",
    "draw_tasks",
    "label_embedding",
    "load_images",
    "patches",
    "positions",
    "read_idx",
    "read_omniglot_npz",
    "read_omniglot_zip",
    "resize",
    "task_tokens",
    "token_table",
]

SIZE = 32  # pixels a side, after resizing
PATCH = 8  # pixels a side of a patch
PATCHES = (SIZE // PATCH) ** 2
PIXELS = PATCH**2
TOKENS = 3 * PATCHES
FEATURES = 3 * PIXELS
MEAN, STANDARD_DEVIATION = 0.922, 0.084

#: (192, 64): a patch's pixels, repeated in three equal channels (row, column, channel).
CHANNELS = np.kron(np.eye(PIXELS), np.ones((3, 1)))

SETS = ("omniglot", "digits", "mnist", "fashion_mnist")
SPLITS = ("train", "validation", "test")
#: Which of scikit-learn's digits are seen in which split.
DIGITS = {"train": (3, 4, 5, 6, 7), "validation": (2, 8), "test": (0, 1, 9)}


class DataUnavailableError(OSError):
    """Images are neither in a folder nor can they be downloaded.

    Examples
    --------
    >>> try:
    ...     images = load_images("mnist", "test", download=False)
    ... except DataUnavailableError:
    ...     images = load_images("digits", "test")
    >>> images.name in ("mnist", "digits")
    True
    """


class _Archive(NamedTuple):
    url: str
    md5: str
    first: int = 1  # number of the first character
    characters: int = 0


_OMNIGLOT = {
    part: _Archive(
        f"https://raw.githubusercontent.com/brendenlake/omniglot/master/python/images_{part}.zip",
        md5,
        first,
        count,
    )
    for part, md5, first, count in (
        ("background", "68d2efa1b9178cc56df9314c21c6e718", 1, 964),
        ("evaluation", "6b91aef0f799c5bb55b94e3f2daec811", 965, 659),
    )
}
_IDX = ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
_FASHION = "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"
_IDX_FILES = {
    "mnist": (
        _Archive(_MNIST + _IDX[0], "9fb629c4189551a2d022fa330f9573f3"),
        _Archive(_MNIST + _IDX[1], "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "fashion_mnist": (
        _Archive(_FASHION + _IDX[0], "bef4ecab320f06d8554ea6380940ec79"),
        _Archive(_FASHION + _IDX[1], "bb300cfdad3c16e7a12a480ee83cd310"),
    ),
}


# -- images ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Images:
    """Images sorted by class.

    Attributes
    ----------
    pixels : ndarray of uint8, shape (classes, drawings, 32, 32)
        Ink is dark (0), paper is bright (255).
    classes : ndarray of int, shape (classes,)
        Number of each class in its data set (Omniglot's character, the digit, ...).
    name, split : str
        Which data set, and which part of its classes.
    source : str
        Where the images were found, in words.

    Examples
    --------
    >>> images = load_images("digits", "validation")
    >>> images.name, images.split, images.classes.tolist(), images.pixels.dtype
    ('digits', 'validation', [2, 8], dtype('uint8'))
    >>> images.shape == images.pixels.shape[:2] == images.patches.shape[:2]
    True
    """

    pixels: Array
    classes: Array
    name: str
    split: str
    source: str

    @cached_property
    def patches(self) -> Array:
        """Patches of all images, float32 (classes, drawings, 16, 64); see `patches`."""
        return patches(self.pixels)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of classes and of drawings of each."""
        return self.pixels.shape[:2]

    def select(self, classes: ArrayLike) -> Images:
        """Keep some classes only, given by their numbers (`classes`).

        Examples
        --------
        >>> load_images("digits", "test").select([9, 0]).classes.tolist()
        [9, 0]
        """
        wanted = np.atleast_1d(np.asarray(classes))
        place = {int(number): index for index, number in enumerate(self.classes)}
        missing = [c for c in wanted.tolist() if c not in place]
        if missing:
            raise ValueError(f"classes must be among those of {self.name}, got {missing}")
        index = [place[c] for c in wanted.tolist()]
        return replace(self, pixels=self.pixels[index], classes=self.classes[index])


def load_images(
    name: str = "omniglot",
    split: str = "train",
    folder: str | Path | None = None,
    *,
    download: bool = True,
) -> Images:
    """Load a data set's images, 32 x 32 pixels, dark ink on bright paper.

    Parameters
    ----------
    name : {"omniglot", "digits", "mnist", "fashion_mnist"}
        Data set. MNIST and Fashion-MNIST have a test part only.
    split : {"train", "validation", "test"}
        Classes never overlap between splits. Omniglot: five sixths of the background characters,
        the other sixth, and the evaluation characters (other alphabets). Digits: 3 to 7; 2 and 8;
        0, 1 and 9.
    folder : path, optional
        A folder that holds ``omniglot/`` (the data set's two zips, or two .npz), ``mnist/`` or
        ``fashion_mnist/`` (the two test files in IDX format). Default: the environment variable
        ``ATTNPATHS_DATA``. What is not found there is downloaded once to a cache of the user.
    download : bool
        Whether the network may be used.

    Returns
    -------
    Images
        Every class with the same number of images: that of the smallest class.

    Raises
    ------
    ValueError
        If there is no such data set or split, or `folder` is no folder.
    DataUnavailableError
        If the images are in no folder and cannot be downloaded.

    Examples
    --------
    >>> load_images("digits", "test").classes.tolist()
    [0, 1, 9]
    """
    as_choice("name", name, SETS)
    as_choice("split", split, SPLITS)
    if name in _IDX_FILES and split != "test":
        raise ValueError(f"split must be 'test' for {name}, got {split!r}")
    if name == "digits":
        return _digits(split)
    place = os.environ.get("ATTNPATHS_DATA") if folder is None else folder
    root = Path(place) if place else None
    if root is not None and not root.is_dir():
        given = "ATTNPATHS_DATA" if folder is None else "folder"
        raise ValueError(f"{given} must be an existing folder, got {str(root)!r}")
    if name == "omniglot":
        pixels, source = _omniglot(
            "evaluation" if split == "test" else "background", root, download
        )
        index = np.arange(len(pixels))
        if split != "test":
            # One fixed split for every training seed, so that accuracies can be compared.
            order = np.random.default_rng(0).permutation(len(pixels))
            held_back = round(len(pixels) / 6)
            index = np.sort(order[held_back:] if split == "train" else order[:held_back])
        first = _OMNIGLOT["evaluation" if split == "test" else "background"].first
        return Images(pixels[index], index + first, name, split, source)
    pixels, classes, source = _idx(name, root, download)
    return Images(pixels, classes, name, split, source)


def available_images(
    split: str = "train", folder: str | Path | None = None, *, download: bool = True
) -> Images:
    """Load Omniglot if it can be had, else scikit-learn's digits, with a warning.

    The result's `name` says which. Arguments as for `load_images`.

    Examples
    --------
    >>> import tempfile, warnings
    >>> with tempfile.TemporaryDirectory() as empty, warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # it says that digits stand in
    ...     images = available_images("test", empty, download=False)
    >>> images.name in ("omniglot", "digits"), images.pixels.shape[2:]
    (True, (32, 32))
    """
    try:
        return load_images("omniglot", split, folder, download=download)
    except DataUnavailableError as error:
        warnings.warn(
            f"scikit-learn's digits stand in for Omniglot: {str(error).splitlines()[0]}",
            stacklevel=2,
        )
        return load_images("digits", split)


@lru_cache(maxsize=4)
def _omniglot(part: str, root: Path | None, download: bool) -> tuple[Array, str]:
    archive = _OMNIGLOT[part]
    damaged = []
    if root is not None:
        for suffix, read in (("npz", read_omniglot_npz), ("zip", _read_whole_zip)):
            path = root / "omniglot" / f"images_{part}.{suffix}"
            if path.exists():
                try:
                    images = read(path)
                    if len(images) != archive.characters:
                        raise ValueError(
                            f"{path} must hold {archive.characters} characters, got {len(images)}"
                        )
                    return resize(images), f"folder of {suffix} files"
                except ValueError as error:
                    damaged.append(str(error))
    path = _fetch(archive, f"omniglot_{part}.zip", download, damaged, "omniglot")
    return resize(_read_whole_zip(path)), "download"


@lru_cache(maxsize=2)
def _idx(name: str, root: Path | None, download: bool) -> tuple[Array, Array, str]:
    damaged = []
    if root is not None and all((root / name / file).exists() for file in _IDX):
        try:
            images, labels = (read_idx(root / name / file) for file in _IDX)
            return (*_by_class(images, labels), "folder")
        except ValueError as error:
            damaged.append(str(error))
    files = [
        _fetch(archive, f"{name}_{file}", download, damaged, name)
        for archive, file in zip(_IDX_FILES[name], _IDX, strict=True)
    ]
    images, labels = map(read_idx, files)
    return (*_by_class(images, labels), "download")


def _by_class(images: Array, labels: Array) -> tuple[Array, Array]:
    if len(images) != len(labels):
        raise ValueError(f"images and labels must agree, got {len(images)} and {len(labels)}")
    classes, counts = np.unique(labels, return_counts=True)
    sorted_ = np.stack([images[labels == c][: counts.min()] for c in classes])
    return resize(255 - sorted_), classes.astype(int)  # published bright on dark


@lru_cache(maxsize=3)
def _digits(split: str) -> Images:
    from sklearn.datasets import load_digits

    found = load_digits()
    images = np.round(found.images * (255 / 16)).astype(np.uint8)
    pixels, classes = _by_class(images, found.target)
    every = Images(pixels, classes, "digits", split, "scikit-learn")
    return every.select(DIGITS[split])


def _fetch(archive: _Archive, file: str, download: bool, damaged: list[str], name: str) -> Path:
    """Download once, checked; pooch replaces a file in its cache whose checksum is wrong."""
    import pooch

    cache = Path(pooch.os_cache("attnpaths"))
    known = f"md5:{archive.md5}"
    path = cache / file
    try:
        if not download:
            if path.exists() and pooch.file_hash(str(path), "md5") == archive.md5:
                return path
            raise OSError("download=False")
        return Path(pooch.retrieve(archive.url, known, file, cache, progressbar=True))
    except Exception as error:
        # requests, urllib3, the checksum, the disk: for the user all mean the same
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        found = "".join(f"\nIgnored, since damaged: {text}" for text in damaged)
        layout = (
            "omniglot/images_background and images_evaluation, each .zip or .npz"
            if name == "omniglot"
            else f"{name}/{_IDX[0]} and {_IDX[1]}"
        )
        raise DataUnavailableError(
            f"The images of {name} are not on this machine and could not be downloaded ({reason})."
            f"{found}\nThree ways out: connect to the network and call again; or name a folder, as"
            " argument or in the environment variable ATTNPATHS_DATA, that holds"
            f" {layout}; or use the images that are always there, load_images('digits')."
        ) from error


# -- files -------------------------------------------------------------------------------------


def read_omniglot_npz(path: str | Path) -> Array:
    """Read images, bool (characters, 20, 105, 105), from an .npz file.

    Raises
    ------
    ValueError
        If the file is damaged or holds something else.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/some.npz", images=np.ones((2, 20, 105, 105), dtype=bool))
    ...     read_omniglot_npz(f"{folder}/some.npz").shape
    (2, 20, 105, 105)
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            images = file["images"]
    except (OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error, ValueError) as error:
        raise ValueError(f"{path} cannot be read as an .npz with images: {error}") from error
    if images.ndim != 4 or images.dtype != bool or images.shape[2:] != (105, 105):
        raise ValueError(
            f"{path} must hold images, bool (characters, drawings, 105, 105), "
            f"got {images.dtype} {images.shape}"
        )
    return images


def read_omniglot_zip(path: str | Path) -> tuple[Array, Array]:
    """Read one of Omniglot's own zips, whole or not at all.

    Parameters
    ----------
    path : path
        Holds ``<part>/<Alphabet>/character<n>/<character>_<drawing>.png``.

    Returns
    -------
    images : ndarray of bool, shape (characters, 20, 105, 105)
        Ink is False. Sorted by character, then drawing, as the files' names number them.
    characters : ndarray of int, shape (characters,)
        Their numbers in the files' names.

    Raises
    ------
    ValueError
        If the file is damaged, or a character lacks drawings.

    Examples
    --------
    >>> import io, tempfile, zipfile
    >>> from PIL import Image
    >>> drawing = io.BytesIO()
    >>> Image.new("1", (105, 105)).save(drawing, "png")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with zipfile.ZipFile(f"{folder}/some.zip", "w") as archive:
    ...         for number in range(1, 21):
    ...             name = f"some/Latin/character01/0001_{number:02}.png"
    ...             archive.writestr(name, drawing.getvalue())
    ...     images, characters = read_omniglot_zip(f"{folder}/some.zip")
    >>> images.shape, characters
    ((1, 20, 105, 105), array([1]))
    """
    from PIL import Image

    names: dict[tuple[int, int], str] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if match := re.fullmatch(r"[^/]+/[^/]+/character\d+/(\d{4})_(\d\d)\.png", name):
                    names[int(match[1]), int(match[2])] = name
            characters = np.array(sorted({character for character, _ in names}), dtype=int)
            wanted = [(c, drawing) for c in characters.tolist() for drawing in range(1, 21)]
            if not names or wanted != sorted(names):
                raise ValueError(f"got {len(names)} drawings of {len(characters)} characters")
            images = np.empty((len(wanted), 105, 105), dtype=bool)
            for image, key in zip(images, wanted, strict=True):
                with Image.open(io.BytesIO(archive.read(names[key]))) as drawing:
                    image[:] = np.asarray(drawing.convert("1"))  # raises if not 105 x 105
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, ValueError) as error:
        raise ValueError(
            f"{path} must be a whole zip of 20 drawings a character, but: {error}"
        ) from error
    return images.reshape(len(characters), 20, 105, 105), characters


def _read_whole_zip(path: Path) -> Array:
    return read_omniglot_zip(path)[0]


def read_idx(path: str | Path) -> Array:
    """Read an array of bytes in gzipped IDX format.

    Raises
    ------
    ValueError
        If the file is damaged or holds something else.

    Examples
    --------
    >>> import gzip, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with gzip.open(f"{folder}/labels.gz", "wb") as file:
    ...         count = file.write(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1]))
    ...     read_idx(f"{folder}/labels.gz")
    array([7, 2, 1], dtype=uint8)
    """
    try:
        with gzip.open(path) as file:
            data = file.read()
        zero, kind, dimensions = struct.unpack(">HBB", data[:4])
        shape = struct.unpack(f">{dimensions}I", data[4 : 4 + 4 * dimensions])
        if zero != 0 or kind != 8:
            raise ValueError("it does not start as bytes in IDX format do")
        return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, zlib.error, struct.error, ValueError) as error:
        raise ValueError(f"{path} cannot be read as gzipped IDX: {error}") from error


def resize(images: Array, size: int = SIZE) -> Array:
    """Resize square images, averaging over the pixels that fall together (Pillow's bilinear).

    Parameters
    ----------
    images : ndarray of bool or uint8, shape (..., n, n)
        True counts as 255.
    size : int
        Pixels a side of the result.

    Returns
    -------
    ndarray of uint8, shape (..., size, size)

    Examples
    --------
    >>> import numpy as np
    >>> resize(np.eye(64, dtype=bool)[None]).shape
    (1, 32, 32)
    """
    from PIL import Image

    size = as_count("size", size)
    images = np.asarray(images)
    if images.dtype not in (np.bool_, np.uint8) or images.ndim < 2:
        raise ValueError(
            f"images must be bool or uint8, of at least two axes, got {images.dtype} {images.shape}"
        )
    if images.dtype == bool:
        images = images.astype(np.uint8) * np.uint8(255)
    flat = np.ascontiguousarray(images).reshape(-1, *images.shape[-2:])
    out = np.empty((len(flat), size, size), np.uint8)
    for index, image in enumerate(flat):
        small = Image.fromarray(image).resize((size, size), Image.Resampling.BILINEAR)
        out[index] = np.asarray(small)
    return out.reshape(*images.shape[:-2], size, size)


def patches(pixels: ArrayLike) -> Array:
    """Cut images into patches and normalise each.

    Pixels are normalised to mean 0.922 and standard deviation 0.084 of Omniglot, then each patch to
    mean 0 and variance 1 over its pixels (layer normalisation without learned scale, epsilon 1e-5;
    three equal channels leave it unchanged). A blank patch is zero.

    Parameters
    ----------
    pixels : array_like, shape (..., 32, 32)
        Grey values from 0 to 255.

    Returns
    -------
    ndarray of float32, shape (..., 16, 64)
        Patches row by row, pixels row by row.

    Examples
    --------
    >>> import numpy as np
    >>> found = patches(load_images("digits", "test").pixels[0, 0])
    >>> found.shape, bool(np.allclose(found.mean(axis=1), 0, atol=1e-4))
    ((16, 64), True)
    """
    x: Array = np.asarray(pixels, dtype=np.float32)
    if x.shape[-2:] != (SIZE, SIZE):
        raise ValueError(f"pixels must have shape (..., {SIZE}, {SIZE}), got shape {x.shape}")
    x = (x / 255 - np.float32(MEAN)) / np.float32(STANDARD_DEVIATION)
    side = SIZE // PATCH
    x = x.reshape(*x.shape[:-2], side, PATCH, side, PATCH)
    x = np.moveaxis(x, -3, -2).reshape(*x.shape[:-4], PATCHES, PIXELS)
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + np.float32(1e-5))


# -- tasks -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tasks:
    """Which images make up each task, and the answer.

    Attributes
    ----------
    classes : ndarray of int, shape (P, 3)
        Class of support 0, support 1 and query, as index into `Images.pixels`.
    drawings : ndarray of int, shape (P, 3)
        Which drawing of the class; the query is never one of the two support images.
    y : ndarray, shape (P,)
        +1 if the query is of the class of support 1, -1 if of support 0.

    Examples
    --------
    >>> tasks = draw_tasks(0, 100, (10, 5))
    >>> support_0, support_1, query = tasks.classes.T
    >>> bool(((query == support_1) == (tasks.y > 0)).all())
    True
    >>> len(tasks), len(tasks[tasks.y > 0]) + len(tasks[tasks.y < 0])
    (100, 100)
    """

    classes: Array
    drawings: Array
    y: Array

    def images(self, images: Images) -> Array:
        """Pixels of each task, uint8 (P, 3, 32, 32).

        Examples
        --------
        >>> images = load_images("digits", "test")
        >>> draw_tasks(0, 5, images).images(images).shape
        (5, 3, 32, 32)
        """
        return images.pixels[self.classes, self.drawings]

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.y)

    def __getitem__(self, index: slice | Array) -> Tasks:
        """Return some of the tasks, by slice, mask or indices."""
        return Tasks(self.classes[index], self.drawings[index], self.y[index])


def draw_tasks(
    seed: int | Sequence[int] | np.random.Generator,
    n_tasks: int,
    shape: tuple[int, int] | Images,
    *,
    balanced: bool = False,
) -> Tasks:
    """Draw tasks: two classes, which of them is asked for, and three different drawings.

    Parameters
    ----------
    seed : int, sequence of int or numpy Generator
        Randomness.
    n_tasks : int
        Number of tasks P.
    shape : (int, int) or Images
        Number of classes and of drawings of each: at least two of both.
    balanced : bool
        Whether half of the answers are +1, in random order; else each is a fair coin.

    Returns
    -------
    Tasks

    Raises
    ------
    ValueError
        If there are too few classes or drawings, or no task.

    Examples
    --------
    >>> draw_tasks(0, 4, (10, 5), balanced=True).y.sum()
    np.float64(0.0)
    """
    rng = np.random.default_rng(seed)
    n_tasks = as_count("n_tasks", n_tasks)
    if isinstance(shape, Images):
        shape = shape.shape
    n_classes, n_drawings = (as_count("shape", number, 2) for number in shape)
    first = rng.integers(n_classes, size=n_tasks)
    second = (first + rng.integers(1, n_classes, size=n_tasks)) % n_classes
    coins = np.arange(n_tasks) % 2
    label = rng.permutation(coins) if balanced else rng.integers(2, size=n_tasks)
    classes = np.stack([first, second, np.where(label == 1, second, first)], 1)
    supports = rng.integers(n_drawings, size=(n_tasks, 2))
    same = supports[np.arange(n_tasks), label]
    query = (same + rng.integers(1, n_drawings, size=n_tasks)) % n_drawings
    return Tasks(classes, np.concatenate([supports, query[:, None]], 1), 2.0 * label - 1.0)


def positions(tokens: int = TOKENS, features: int = FEATURES, base: float = 10_000.0) -> Array:
    """Sinusoidal positions, normalised to mean 0 and standard deviation 1 over the whole table.

    Parameters
    ----------
    tokens, features : int
        Shape of the table; `features` is even.
    base : float
        Ratio of the longest to the shortest wavelength.

    Returns
    -------
    ndarray, shape (tokens, features)
        Sine and cosine of ``t / base^(2 i / features)`` in columns 2 i and 2 i + 1.

    Examples
    --------
    >>> table = positions()
    >>> table.shape, round(float(table.std()), 12)
    ((48, 192), 1.0)
    """
    tokens, features = as_count("tokens", tokens), as_count("features", features, 2)
    if features % 2:
        raise ValueError(f"features must be even, got {features}")
    angle = np.arange(tokens)[:, None] / base ** (np.arange(0, features, 2) / features)
    table = np.empty((tokens, features))
    table[:, 0::2] = np.sin(angle)
    table[:, 1::2] = np.cos(angle)
    return (table - table.mean()) / table.std()


def label_embedding(seed: int | np.random.Generator, features: int = FEATURES) -> Array:
    """Frozen N(0, 1) embedding of the labels 0, 1 and unknown, shape (3, features).

    Examples
    --------
    >>> label_embedding(seed=0).shape
    (3, 192)
    """
    return np.random.default_rng(seed).standard_normal((3, as_count("features", features)))


def token_table(embedding: ArrayLike) -> Array:
    """What is added to the patches: positions and label embedding, shape (48, 192).

    Parameters
    ----------
    embedding : array_like, shape (3, 192)
        Of the labels 0, 1 and unknown: one for each image of a task.

    Examples
    --------
    >>> token_table(label_embedding(seed=0)).shape
    (48, 192)
    """
    embedding = as_array("embedding", embedding, (3, FEATURES))
    return positions() + np.repeat(embedding, PATCHES, axis=0)


def task_tokens(
    images: Images | Array, tasks: Tasks, embedding: ArrayLike, dtype: DTypeLike = np.float64
) -> Array:
    """Tokens of tasks.

    Parameters
    ----------
    images : Images or array_like, shape (classes, drawings, 16, 64)
        Images or their `patches`.
    tasks : Tasks
        From `draw_tasks`.
    embedding : array_like, shape (3, 192)
        See `label_embedding`.
    dtype : numpy dtype
        float64, or float32 for half the memory (37 kB a task).

    Returns
    -------
    ndarray, shape (P, 48, 192)

    Examples
    --------
    >>> images = load_images("digits", "test")
    >>> task_tokens(images, draw_tasks(0, 5, images), label_embedding(1)).shape
    (5, 48, 192)
    """
    table = token_table(embedding).astype(dtype)
    found = images.patches if isinstance(images, Images) else np.asarray(images)
    if found.ndim != 4 or found.shape[2:] != (PATCHES, PIXELS):
        raise ValueError(
            f"images must have shape (classes, drawings, {PATCHES}, {PIXELS}), got {found.shape}"
        )
    n_tasks = len(tasks)
    flat = found.reshape(-1, PATCHES, PIXELS)
    index = tasks.classes * found.shape[1] + tasks.drawings
    if index.size > len(flat):  # spread each image once, not each time it is used
        flat = np.repeat(flat, 3, axis=2)
    out = np.empty((n_tasks, TOKENS, FEATURES), dtype)
    for start in range(0, n_tasks, 64):  # a few MB at a time stay in the processor's cache
        part = slice(start, start + 64)
        chosen = flat[index[part]]
        if chosen.shape[-1] == PIXELS:
            chosen = np.repeat(chosen, 3, axis=3)
        np.add(chosen.reshape(-1, TOKENS, FEATURES), table, out=out[part])
    return out
