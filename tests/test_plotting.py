"""Figures show the numbers they are given, in the book's colours, and refuse all else."""

import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

mpl.use("agg")
import matplotlib.pyplot as plt

from attnpaths import plotting
from attnpaths.plotting import (
    COLOURS,
    PATH_COLOURS,
    path_colours,
    plot_accuracy,
    plot_alignment,
    plot_attention,
    plot_chain,
    plot_images,
    plot_limit,
    plot_order_parameter,
    plot_paths,
    plot_published,
    use_style,
)


@pytest.fixture(autouse=True)
def _clean_slate():
    with mpl.rc_context():
        yield
    plt.close("all")


def texts(ax):
    return [text.get_text() for text in ax.texts]


def test_the_module_does_not_load_matplotlib():
    code = "import sys, attnpaths.plotting; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_package_loads_nothing_slow():
    slow = "arviz matplotlib mici pandas scipy.stats sklearn torch"
    code = f"import sys, attnpaths; sys.exit(str([m for m in {slow.split()} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == "[]"


def test_colours_of_all_regimes_and_paths_differ():
    colours = [*COLOURS.values(), *PATH_COLOURS.values()]
    assert len({colour.lower() for colour in colours}) == len(colours)


# How a red-blind and a green-blind eye map linear RGB (Machado, Oliveira and Fernandes 2009).
PROTANOPIA = [[0.152, 1.053, -0.205], [0.115, 0.786, 0.099], [-0.004, -0.048, 1.052]]
DEUTERANOPIA = [[0.367, 0.861, -0.228], [0.280, 0.673, 0.047], [-0.012, 0.043, 0.969]]


@pytest.mark.parametrize("seen", [np.eye(3), PROTANOPIA, DEUTERANOPIA])
@pytest.mark.parametrize("palette", [COLOURS, PATH_COLOURS])
def test_colours_can_be_told_apart_with_and_without_colour_blindness(palette, seen):
    rgb = np.array([mpl.colors.to_rgb(colour) for colour in palette.values()])
    linear = np.clip(rgb**2.2 @ np.transpose(seen), 0, 1) ** (1 / 2.2)
    distance = np.linalg.norm(linear[:, None] - linear[None], axis=2)
    assert distance[~np.eye(len(rgb), dtype=bool)].min() > 0.15


def test_figures_have_an_opaque_white_ground_for_dark_pages():
    use_style()
    figure, ax = plt.subplots()
    assert mpl.colors.to_rgba(figure.get_facecolor()) == (1, 1, 1, 1)
    assert mpl.colors.to_rgba(ax.get_facecolor()) == (1, 1, 1, 1)


def test_path_colours_follow_names():
    wanted = [PATH_COLOURS[name] for name in ("g", "adversarial", "d", "adversarial")]
    assert path_colours(["g", "a12", "d", "a22"]) == wanted


def test_accuracy_shows_mean_and_standard_deviation_in_percent_on_a_logarithmic_axis():
    widths = [10, 100, 1000]
    seeds = np.array([[0.9, 0.8, 0.7], [1.0, 0.8, 0.6], [0.8, 0.8, 0.5]])
    ax = plot_accuracy(widths, seeds)
    (line,) = ax.lines
    np.testing.assert_allclose(line.get_xdata(), widths)
    np.testing.assert_allclose(line.get_ydata(), [90, 80, 60])
    assert line.get_color() == COLOURS["theory"]
    assert ax.get_xscale() == "log"
    band = ax.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(100)
    assert band[:, 1].min() == pytest.approx(50)


def test_one_seed_has_no_band():
    assert not plot_accuracy([10, 100], [0.9, 0.8]).collections
    assert not plot_alignment([0.9, 0.1]).collections


@settings(deadline=None, max_examples=25)
@given(accuracy=st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_a_limit_is_drawn_at_its_mean(accuracy):
    ax = plot_limit(accuracy)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), 100 * np.mean(accuracy))
    assert len(ax.patches) == 1
    plt.close(ax.figure)


def test_a_limit_may_be_one_number_without_band():
    ax = plot_limit(0.5)
    assert not ax.patches
    assert ax.lines[0].get_color() == COLOURS["gp"]


def test_the_published_draw_is_marked_and_not_joined():
    ax = plot_accuracy([10, 100], [0.9, 0.8])
    assert plot_published([10, 100], [0.91, 0.79], ax=ax) is ax
    line = ax.lines[1]
    assert line.get_linestyle() == "None"
    assert line.get_color() == COLOURS["published"]
    assert [t.get_text() for t in ax.legend().get_texts()] == ["theory", "published draw"]


def test_alignment_shows_the_first_components_from_rank_one():
    overlaps = np.random.default_rng(0).uniform(size=(5, 50))
    ax = plot_alignment(overlaps, regime="gp", components=30)
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), np.arange(1, 31))
    np.testing.assert_allclose(ax.lines[0].get_ydata(), overlaps[:, :30].mean(axis=0))


def test_alignment_of_fewer_components_than_asked_for():
    assert len(plot_alignment([0.6, 0.8], components=30).lines[0].get_xdata()) == 2


def test_an_order_parameter_is_centred_at_zero_and_says_its_numbers():
    ax = plot_order_parameter([[2.0, -0.5], [-0.5, 1e-9]], ["g", "d"])
    low, high = ax.images[0].get_clim()
    assert (low, high) == (-2, 2)
    assert texts(ax) == ["2.00", "−0.50", "−0.50", "0.00"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["g", "d"]


def test_a_zero_order_parameter_can_be_drawn():
    low, high = plot_order_parameter(np.zeros((2, 2))).images[0].get_clim()
    assert low == -high < 0


def test_many_paths_are_not_annotated():
    assert not plot_order_parameter(np.eye(16)).texts


def test_attention_starts_at_zero():
    ax = plot_attention([[1.0, 0.0], [0.25, 0.75]])
    assert ax.images[0].get_clim() == (0, 1)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key position", "query position")


def test_a_chain_shows_each_observation_once():
    states, seen = [1, 1, -1, 1], [0.9, 1.2, -1.1, 0.8]
    ax = plot_chain(states, seen)
    shown = np.concatenate([points.get_offsets() for points in ax.collections])
    np.testing.assert_allclose(shown[np.argsort(shown[:, 0])], np.c_[[1, 2, 3, 4], seen])


def test_images_share_one_scale_and_show_their_patches():
    images = np.zeros((3, 32, 32))
    images[1] = 200
    axes = plot_images(images, ["support 0", "support 1", "query"], patch=8)
    assert all(ax.images[0].get_clim() == (0, 200) for ax in axes)
    assert all(len(ax.lines) == 6 for ax in axes)
    assert [ax.get_title() for ax in axes] == ["support 0", "support 1", "query"]


@settings(deadline=None, max_examples=25)
@given(heads=st.lists(st.integers(1, 3), min_size=1, max_size=3))
def test_every_path_is_drawn_through_every_layer(heads):
    ax = plot_paths(heads)
    lines = [patch for patch in ax.patches if not patch.get_fill()]
    boxes = [patch for patch in ax.patches if patch.get_fill()]
    assert len(lines) == np.prod(heads)
    assert len(boxes) == sum(heads) + 2
    ends = [line.get_path().vertices[[0, -1], 0] for line in lines]
    assert all(left < 1 and right > len(heads) for left, right in ends)
    plt.close(ax.figure)


def test_paths_are_named_coloured_and_told_apart_by_dashes():
    labels = ["g", "a12", "d", "a22"]
    ax = plot_paths((2, 2), labels=labels, head_names=[["one", "two"], ["three", "four"]])
    lines = ax.lines
    assert [line.get_label() for line in lines] == labels
    assert [line.get_color() for line in lines] == path_colours(labels)
    assert len({(line.get_color(), line.get_linestyle()) for line in lines}) == 4
    assert {"one", "two", "three", "four", "layer 1", "layer 2"} <= set(texts(ax))


def test_weights_make_thick_paths():
    ax = plot_paths((2,), weights=[4.0, 1.0])
    thick, thin = (p.get_linewidth() for p in ax.patches if not p.get_fill())
    assert thick == pytest.approx(4 * thin)


def test_every_function_draws_where_it_is_told():
    calls = [
        lambda ax: plot_accuracy([10, 100], [0.9, 0.8], ax=ax),
        lambda ax: plot_limit(0.8, ax=ax),
        lambda ax: plot_published([10], [0.9], ax=ax),
        lambda ax: plot_alignment([0.6, 0.8], ax=ax),
        lambda ax: plot_attention(np.eye(3), ax=ax),
        lambda ax: plot_chain([1, -1], ax=ax),
        lambda ax: plot_order_parameter(np.eye(2), ax=ax),
        lambda ax: plot_paths((2, 1), ax=ax),
    ]
    for call in calls:
        figure, ax = plt.subplots()
        assert call(ax) is ax
        figure.canvas.draw()
        assert plt.get_fignums() == [figure.number]
        plt.close(figure)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: plot_accuracy([10, 100], [0.9]), "accuracy"),
        (lambda: plot_accuracy([10, 100], [90, 80]), "accuracy"),
        (lambda: plot_accuracy([0, 100], [0.9, 0.8]), "widths"),
        (lambda: plot_accuracy([10, np.inf], [0.9, 0.8]), "widths"),
        (lambda: plot_accuracy([10], [0.9], regime="blue"), "regime"),
        (lambda: plot_limit(-0.1), "accuracy"),
        (lambda: plot_published([10], [[0.9]]), "accuracy"),
        (lambda: plot_alignment([1.5, 0.0]), "overlaps"),
        (lambda: plot_alignment([0.5], components=0), "components"),
        (lambda: plot_attention(np.ones((2, 3))), "attention"),
        (lambda: plot_attention(np.eye(2), limit=0), "limit"),
        (lambda: plot_chain([0, 1]), "states"),
        (lambda: plot_chain([1, -1], [0.5]), "observed"),
        (lambda: plot_images(np.ones((2, 8, 8)), ["one"]), "titles"),
        (lambda: plot_images(np.ones((2, 8, 8)), patch=0), "patch"),
        (lambda: plot_order_parameter(np.ones((2, 3))), "U"),
        (lambda: plot_order_parameter(np.eye(2), ["g"]), "labels"),
        (lambda: plot_order_parameter(np.eye(2), limit=-1), "limit"),
        (lambda: plot_order_parameter([[np.nan]]), "U"),
        (lambda: plot_paths((2, 0)), "heads"),
        (lambda: plot_paths((2, 2), labels=["g"]), "labels"),
        (lambda: plot_paths((2, 2), colours=["red"]), "colours"),
        (lambda: plot_paths((2, 2), head_names=[["a", "b"]]), "head_names"),
        (lambda: plot_paths((2,), weights=[1, -1]), "weights"),
    ],
)
def test_bad_arguments_are_named_and_leave_no_empty_figure(call, named):
    with pytest.raises(ValueError, match=named):
        call()
    assert not plt.get_fignums()


def test_all_public_names_are_documented():
    for name in plotting.__all__:
        thing = getattr(plotting, name)
        assert not callable(thing) or thing.__doc__
