"""One-shot images: where they come from, what happens when they cannot be had, and the tasks."""

import functools
import gzip
import hashlib
import http.server
import io
import os
import struct
import threading
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from attnpaths.tasks import one_shot
from attnpaths.tasks.one_shot import (
    CHANNELS,
    DataUnavailableError,
    available_images,
    draw_tasks,
    label_embedding,
    load_images,
    patches,
    positions,
    read_idx,
    read_omniglot_npz,
    read_omniglot_zip,
    resize,
    task_tokens,
    token_table,
)

CHARACTERS = 3


def omniglot_folder():
    folder = os.environ.get("ATTNPATHS_DATA")
    if not folder:
        pytest.skip("needs Omniglot: set ATTNPATHS_DATA")
    return Path(folder)


def drawings(first, count=CHARACTERS):
    rng = np.random.default_rng(first)
    return rng.random((count, 20, 105, 105)) > 0.1


def write_zip(path, part, first, images):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"images_{part}/", "")
        for number, character in enumerate(images):
            folder = f"images_{part}/Alphabet/character{number + 1:02}"
            for index, image in enumerate(character):
                file = io.BytesIO()
                Image.fromarray(image).save(file, "PNG")
                name = f"{folder}/{first + number:04}_{index + 1:02}.png"
                archive.writestr(name, file.getvalue())


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """No data folder, no cache of downloads, and no network."""
    monkeypatch.delenv("ATTNPATHS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    caches = (one_shot._omniglot, one_shot._idx)
    for cache in caches:
        cache.cache_clear()

    def no_network(self, *arguments, **settings):
        raise ConnectionError("no route to the host")

    monkeypatch.setattr("requests.Session.request", no_network)
    yield monkeypatch
    for cache in caches:
        cache.cache_clear()


@pytest.fixture
def small(fresh, tmp_path):
    """Omniglot of three characters a part; its zips are in the folder `served`."""
    served = tmp_path / "served"
    served.mkdir()
    archives = {}
    for part, first in (("background", 1), ("evaluation", 965)):
        file = served / f"images_{part}.zip"
        write_zip(file, part, first, drawings(first))
        md5 = hashlib.md5(file.read_bytes()).hexdigest()
        archives[part] = one_shot._OMNIGLOT[part]._replace(md5=md5, characters=CHARACTERS)
    fresh.setattr(one_shot, "_OMNIGLOT", archives)
    return served


@pytest.fixture
def server(small, fresh):
    """The small zips on the loopback interface; gives their folder and the list of requests."""
    requests = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            requests.append(self.path)

    fresh.undo()  # the network is back
    fresh.delenv("ATTNPATHS_DATA", raising=False)
    fresh.setenv("XDG_CACHE_HOME", str(small.parent / "cache"))
    fresh.setenv("NO_PROXY", "127.0.0.1")
    handler = functools.partial(Handler, directory=str(small))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        archives = {}
        for part in ("background", "evaluation"):
            name = f"images_{part}.zip"
            archives[part] = one_shot._OMNIGLOT[part]._replace(
                url=f"http://127.0.0.1:{running.server_address[1]}/{name}",
                md5=hashlib.md5((small / name).read_bytes()).hexdigest(),
                characters=CHARACTERS,
            )
        fresh.setattr(one_shot, "_OMNIGLOT", archives)
        yield small, requests
        running.shutdown()


def cut_short(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_a_byte(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 255
    path.write_bytes(data)


# -- where images come from --------------------------------------------------------------------


def test_the_data_sets_zip_and_the_npz_hold_the_same_arrays():
    folder = omniglot_folder() / "omniglot"
    every = read_omniglot_npz(folder / "images_background.npz")
    images, characters = read_omniglot_zip(folder / "images_background_small1.zip")
    assert every.shape == (964, 20, 105, 105)
    assert len(characters) > 100
    np.testing.assert_array_equal(images, every[characters - 1])


def test_a_folder_of_zips_and_a_folder_of_npz_give_the_same_images(small, tmp_path):
    for kind in ("zip", "npz"):
        (tmp_path / kind / "omniglot").mkdir(parents=True)
    for part, first in (("background", 1), ("evaluation", 965)):
        zipped = small / f"images_{part}.zip"
        (tmp_path / "zip" / "omniglot" / zipped.name).write_bytes(zipped.read_bytes())
        file = tmp_path / "npz" / "omniglot" / f"images_{part}.npz"
        np.savez_compressed(file, images=drawings(first))
    for split in one_shot.SPLITS:
        zips, npz = (load_images("omniglot", split, tmp_path / kind) for kind in ("zip", "npz"))
        np.testing.assert_array_equal(zips.pixels, npz.pixels)
        np.testing.assert_array_equal(zips.classes, npz.classes)
    assert zips.classes.tolist() == [965, 966, 967]


def test_the_environment_names_the_folder(small, fresh, tmp_path):
    fresh.setenv("ATTNPATHS_DATA", str(tmp_path))
    small.rename(tmp_path / "omniglot")
    assert load_images("omniglot", "test").shape == (CHARACTERS, 20)


def test_images_are_downloaded_once(server):
    _, requests = server
    first = load_images("omniglot", "test")
    one_shot._omniglot.cache_clear()
    again = load_images("omniglot", "test", download=False)
    np.testing.assert_array_equal(first.pixels, again.pixels)
    np.testing.assert_array_equal(first.pixels, resize(drawings(965)))
    assert requests == ["/images_evaluation.zip"]


@pytest.mark.parametrize("damage", [cut_short, flip_a_byte])
def test_a_damaged_download_is_downloaded_again(server, tmp_path, damage):
    _, requests = server
    wanted = load_images("omniglot", "test").pixels
    (cached,) = (tmp_path / "cache").rglob("*.zip")
    damage(cached)
    one_shot._omniglot.cache_clear()
    np.testing.assert_array_equal(load_images("omniglot", "test").pixels, wanted)
    assert len(requests) == 2


def test_a_download_that_is_not_the_data_set_is_refused(server, tmp_path):
    served, _ = server
    cut_short(served / "images_evaluation.zip")
    with pytest.raises(DataUnavailableError, match="hash"):
        load_images("omniglot", "test")
    assert not list((tmp_path / "cache").rglob("*.zip"))


@pytest.mark.parametrize("damage", [cut_short, flip_a_byte])
def test_a_damaged_zip_in_the_folder_is_replaced_by_a_download(server, tmp_path, damage):
    served, _ = server
    (tmp_path / "omniglot").mkdir()
    copy = tmp_path / "omniglot" / "images_evaluation.zip"
    copy.write_bytes((served / copy.name).read_bytes())
    damage(copy)
    images = load_images("omniglot", "test", tmp_path)
    np.testing.assert_array_equal(images.pixels, resize(drawings(965)))
    assert images.source == "download"


@pytest.mark.parametrize("suffix", ["zip", "npz"])
def test_a_damaged_file_without_a_network_is_named(small, tmp_path, suffix):
    (tmp_path / "omniglot").mkdir()
    (tmp_path / "omniglot" / f"images_background.{suffix}").write_bytes(b"PK half a file")
    with pytest.raises(DataUnavailableError, match=rf"damaged.*images_background\.{suffix}"):
        load_images("omniglot", "train", tmp_path)


def test_a_zip_that_lacks_a_drawing_is_not_half_read(tmp_path):
    images = drawings(1)
    write_zip(tmp_path / "whole.zip", "background", 1, images)
    with (
        zipfile.ZipFile(tmp_path / "whole.zip") as whole,
        zipfile.ZipFile(tmp_path / "lacking.zip", "w") as lacking,
    ):
        for name in whole.namelist()[:-1]:
            lacking.writestr(name, whole.read(name))
    np.testing.assert_array_equal(read_omniglot_zip(tmp_path / "whole.zip")[0], images)
    with pytest.raises(ValueError, match="59 drawings of 3 characters"):
        read_omniglot_zip(tmp_path / "lacking.zip")


def test_a_zip_of_fewer_characters_does_not_pass_for_the_data_set(small, tmp_path):
    (tmp_path / "omniglot").mkdir()
    file = tmp_path / "omniglot" / "images_background.zip"
    write_zip(file, "background", 1, drawings(1, 2))
    with pytest.raises(DataUnavailableError, match="3 characters, got 2"):
        load_images("omniglot", "train", tmp_path)


def test_without_folder_and_network_the_error_says_three_ways_out(fresh):
    with pytest.raises(DataUnavailableError) as error:
        load_images("omniglot", "train")
    text = str(error.value)
    for way in ("connect to the network", "ATTNPATHS_DATA", "load_images('digits')"):
        assert way in text


def test_without_folder_and_network_digits_stand_in_and_say_so(fresh):
    with pytest.warns(UserWarning, match="digits stand in for Omniglot"):
        images = available_images("test")
    assert images.name == "digits"


def test_a_folder_that_does_not_exist_is_an_error_of_use(fresh, tmp_path):
    with pytest.raises(ValueError, match="folder must be an existing folder"):
        load_images("omniglot", "train", tmp_path / "nowhere")
    fresh.setenv("ATTNPATHS_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="ATTNPATHS_DATA must be an existing folder"):
        load_images("omniglot", "train")


@pytest.mark.parametrize(
    ("name", "split"), [("faces", "test"), ("omniglot", "all"), ("mnist", "train")]
)
def test_unknown_names_are_errors(name, split):
    with pytest.raises(ValueError, match="must be"):
        load_images(name, split)


@pytest.mark.slow
def test_splits_of_omniglot_share_no_character():
    folder = omniglot_folder()
    sets = [load_images("omniglot", split, folder) for split in one_shot.SPLITS]
    assert [images.shape for images in sets] == [(803, 20), (161, 20), (659, 20)]
    classes = np.concatenate([images.classes for images in sets])
    np.testing.assert_array_equal(np.sort(classes), np.arange(1, 1624))
    assert sets[2].classes.min() == 965  # other alphabets


def test_splits_of_the_digits_share_no_digit():
    sets = [load_images("digits", split) for split in one_shot.SPLITS]
    classes = np.concatenate([images.classes for images in sets])
    np.testing.assert_array_equal(np.sort(classes), np.arange(10))
    for images in sets:
        assert images.pixels.shape[1:] == (174, 32, 32)
        assert images.pixels.mean() > 127  # dark ink on bright paper


def idx_bytes(array):
    header = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return gzip.compress(header + array.tobytes())


@pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
def test_digits_of_a_folder_are_sorted_by_class_and_inverted(fresh, tmp_path, name):
    (tmp_path / name).mkdir()
    labels = np.array([1, 0, 1, 1, 0], np.uint8)
    bright = np.array([10, 20, 30, 40, 50], np.uint8)
    pixels = np.broadcast_to(bright[:, None, None], (5, 28, 28))
    for file, array in zip(one_shot._IDX, (pixels, labels), strict=True):
        (tmp_path / name / file).write_bytes(idx_bytes(np.ascontiguousarray(array)))
    images = load_images(name, "test", tmp_path)
    assert images.classes.tolist() == [0, 1]
    # two of each: the smaller class has no more
    assert images.pixels[:, :, 0, 0].tolist() == [[235, 205], [245, 225]]


def test_a_half_downloaded_idx_file_is_never_half_read(fresh, tmp_path):
    whole = idx_bytes(np.arange(100, dtype=np.uint8).reshape(4, 5, 5))
    (tmp_path / "whole.gz").write_bytes(whole)
    (tmp_path / "half.gz").write_bytes(whole[:-20])
    assert read_idx(tmp_path / "whole.gz").shape == (4, 5, 5)
    with pytest.raises(ValueError, match=r"half\.gz cannot be read"):
        read_idx(tmp_path / "half.gz")


def test_mnists_test_digits_can_be_read():
    images = load_images("mnist", "test", omniglot_folder(), download=False)
    assert images.pixels.shape == (10, 892, 32, 32)
    zeros_and_ones = images.select([1, 0])
    assert zeros_and_ones.classes.tolist() == [1, 0]
    # a nought takes more ink than a one
    ink = (255 - zeros_and_ones.pixels.astype(float)).mean((1, 2, 3))
    assert ink[1] > ink[0]


def test_a_class_that_is_not_there_is_an_error():
    with pytest.raises(ValueError, match=r"classes must be among.*\[5\]"):
        load_images("digits", "test").select([0, 5])


# -- patches and tokens ------------------------------------------------------------------------


def test_resizing_keeps_a_flat_image_flat_and_the_mean_of_any():
    np.testing.assert_array_equal(resize(np.ones((2, 105, 105), bool)), 255)
    images = np.random.default_rng(0).random((105, 105)) > 0.5
    assert resize(images).mean() == pytest.approx(255 * images.mean(), rel=0.02)


@settings(deadline=None, max_examples=20)
@given(shape=st.lists(st.integers(1, 3), max_size=2), seed=st.integers(0, 1000))
def test_patches_are_cut_row_by_row_and_layer_normalised(shape, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, size=(*shape, 32, 32))
    found = patches(pixels)
    assert found.shape == (*shape, 16, 64)
    np.testing.assert_allclose(found.mean(-1), 0, atol=1e-5)
    np.testing.assert_allclose(found.std(-1), 1, rtol=1e-4)
    block = pixels[..., 8:16, 16:24].reshape(*shape, 64).astype(float)  # second row, third column
    block -= block.mean(-1, keepdims=True)
    block /= block.std(-1, keepdims=True)
    np.testing.assert_allclose(found[..., 4 + 2, :], block, atol=1e-4)


def test_a_blank_patch_is_zero():
    np.testing.assert_allclose(patches(np.full((32, 32), 255)), 0, atol=1e-4)


def test_positions_are_sinusoids_normalised_over_the_table():
    table = positions()
    assert table.shape == (48, 192)
    assert table.mean() == pytest.approx(0, abs=1e-12)
    assert table.std() == pytest.approx(1)
    scale = table[0, 1] - table[0, 0]  # cosine minus sine of 0
    wanted = np.sin(5 / 10_000 ** (4 / 192)) * scale + table[0, 0]
    assert table[5, 4] == pytest.approx(wanted)


def test_tokens_are_patches_in_three_channels_plus_positions_plus_label():
    images = load_images("digits", "test")
    tasks = draw_tasks(1, 6, images)
    embedding = label_embedding(2)
    x = task_tokens(images, tasks, embedding)
    assert x.shape == (6, 48, 192)
    assert x.dtype == np.float64
    for slot in range(3):
        image = images.pixels[tasks.classes[4, slot], tasks.drawings[4, slot]]
        for patch in (0, 7):
            token = 16 * slot + patch
            expected = np.repeat(patches(image)[patch], 3) + positions()[token] + embedding[slot]
            np.testing.assert_allclose(x[4, token], expected, atol=1e-6)
    p = images.patches[tasks.classes, tasks.drawings].reshape(6, 48, 64)
    np.testing.assert_allclose(x, p @ CHANNELS.T + token_table(embedding), atol=1e-12)


def test_few_and_many_tasks_have_the_same_tokens():
    """Two ways of spreading patches over channels: by image where images are used often."""
    images = load_images("digits", "test")
    tasks = draw_tasks(1, 400, images)
    embedding = label_embedding(2)
    every = task_tokens(images, tasks, embedding, np.float32)
    assert every.dtype == np.float32
    few = task_tokens(images, tasks[100:110], embedding, np.float32)
    np.testing.assert_array_equal(every[100:110], few)


def test_tokens_take_little_more_memory_than_they_are():
    images = load_images("digits", "test")
    images.patches  # noqa: B018 - made once, not counted
    tasks = draw_tasks(0, 3000, images)
    tracemalloc.start()
    x = task_tokens(images, tasks, label_embedding(0), np.float32)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * x.nbytes


# -- tasks -------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(
    n_tasks=st.integers(1, 50),
    n_classes=st.integers(2, 6),
    n_drawings=st.integers(2, 5),
    balanced=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_a_task_asks_for_another_drawing_of_one_of_two_characters(
    n_tasks, n_classes, n_drawings, balanced, seed
):
    tasks = draw_tasks(seed, n_tasks, (n_classes, n_drawings), balanced=balanced)
    first, second, query = tasks.classes.T
    assert len(tasks) == n_tasks
    assert (first != second).all()
    np.testing.assert_array_equal(query, np.where(tasks.y > 0, second, first))
    assert set(tasks.y) <= {-1.0, 1.0}
    support = np.where(tasks.y > 0, tasks.drawings[:, 1], tasks.drawings[:, 0])
    assert (support != tasks.drawings[:, 2]).all()
    assert tasks.classes.min() >= 0
    assert tasks.classes.max() < n_classes
    assert tasks.drawings.min() >= 0
    assert tasks.drawings.max() < n_drawings
    if balanced:
        assert abs(tasks.y.sum()) == n_tasks % 2


def test_all_pairs_of_characters_and_of_drawings_are_equally_likely():
    tasks = draw_tasks(0, 60_000, (4, 3))
    pairs = np.zeros((4, 4))
    np.add.at(pairs, (tasks.classes[:, 0], tasks.classes[:, 1]), 1)
    np.testing.assert_allclose(pairs[~np.eye(4, dtype=bool)], 5000, rtol=0.08)
    same = np.where(tasks.y > 0, tasks.drawings[:, 1], tasks.drawings[:, 0])
    pairs = np.zeros((3, 3))
    np.add.at(pairs, (same, tasks.drawings[:, 2]), 1)
    np.testing.assert_allclose(pairs[~np.eye(3, dtype=bool)], 10_000, rtol=0.08)


def test_a_hundred_thousand_tasks_are_drawn_at_once_and_a_seed_fixes_them():
    tasks, same = (draw_tasks(7, 100_000, (659, 20)) for _ in range(2))
    np.testing.assert_array_equal(tasks.classes, same.classes)
    np.testing.assert_array_equal(tasks.drawings, same.drawings)
    assert len(tasks) == 100_000


def test_the_pictures_of_a_task_can_be_had():
    images = load_images("digits", "test")
    tasks = draw_tasks(0, 5, images)
    pictures = tasks.images(images)
    assert pictures.shape == (5, 3, 32, 32)
    np.testing.assert_array_equal(
        pictures[2, 1], images.pixels[tasks.classes[2, 1], tasks.drawings[2, 1]]
    )


@pytest.mark.parametrize("shape", [(1, 5), (5, 1)])
def test_too_few_classes_or_drawings_are_an_error(shape):
    with pytest.raises(ValueError, match="shape must be at least 2"):
        draw_tasks(0, 3, shape)


def test_shapes_that_disagree_are_errors():
    images = load_images("digits", "test")
    tasks = draw_tasks(0, 3, images)
    with pytest.raises(ValueError, match="embedding must have shape"):
        task_tokens(images, tasks, np.zeros((3, 5)))
    with pytest.raises(ValueError, match="images must have shape"):
        task_tokens(images.pixels, tasks, label_embedding(0))
    with pytest.raises(ValueError, match="pixels must have shape"):
        patches(np.zeros((8, 8)))
