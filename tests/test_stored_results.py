"""A small part of each stored result of the book, made again and compared."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from attnpaths import Architecture, head_scores, solve_order_parameter
from attnpaths._files import read_arrays
from attnpaths.one_shot_theory import draw_set, grid_of_draw, load_grids
from attnpaths.pruning import (
    empirical_criterion,
    gradient_criterion,
    magnitude_criterion,
    measured_drop_criterion,
    pruning_curve,
)
from attnpaths.trained import load_trained_heads

DATA = Path(__file__).resolve().parents[1] / "book" / "data"
GRIDS = sorted(DATA.glob("grid_*.npz"))
SAMPLINGS = sorted(DATA.glob("sampling_*.npz"))
STUDIES = sorted(DATA.glob("pruning_*.json"))

needs_omniglot = pytest.mark.skipif(
    not os.environ.get("ATTNPATHS_DATA"), reason="needs Omniglot: ATTNPATHS_DATA is not set"
)


def names(paths):
    return [path.stem for path in paths]


def test_results_are_stored_and_small():
    assert GRIDS
    assert SAMPLINGS
    assert STUDIES
    for path in DATA.iterdir():
        assert path.stat().st_size < 2e6, path


@pytest.mark.parametrize("path", [*GRIDS, *SAMPLINGS, *STUDIES], ids=lambda path: path.stem)
def test_each_result_says_how_it_was_made(path):
    if path.suffix == ".json":
        about = json.loads(path.read_text())["about"]
    else:
        about = json.loads(str(read_arrays([path])["about"]))
    assert about["command"].startswith("python -m attnpaths.one_shot_theory ")
    assert about["network"] in about["command"]
    shipped = load_trained_heads(about["network"]).metadata
    assert about["training"]["accuracies"] == shipped["accuracies"]  # of the very heads shipped


@needs_omniglot
@pytest.mark.slow
@pytest.mark.parametrize("path", GRIDS, ids=names(GRIDS))
def test_one_width_of_a_grid(path):
    stored = load_grids(path)
    trained = load_trained_heads(stored.about["network"])
    again, reached = grid_of_draw(
        trained, stored.about["draws"][0], widths=[1000], temperatures=[1.0, 0.5], progress=False
    )
    grid = stored.grids[0]
    rows = [int(np.flatnonzero(grid.widths == width)[0]) for width in (1000, np.inf)]
    columns = np.flatnonzero(np.isin(grid.temperatures, [0.5, 1.0]))
    here = np.ix_(rows, columns)
    np.testing.assert_allclose(again.log_evidence, grid.log_evidence[here], atol=1e-3)
    np.testing.assert_allclose(
        again.order_parameters, grid.order_parameters[here], rtol=1e-3, atol=1e-4
    )
    for name in ("validation", "test", "digits"):
        # an output next to zero may fall on the other side on another machine
        np.testing.assert_allclose(again.accuracy[name], grid.accuracy[name][here], atol=0.003)
        assert reached[name] == pytest.approx(stored.trained[name][0], abs=0.003)


@needs_omniglot
@pytest.mark.slow
@pytest.mark.parametrize("path", SAMPLINGS, ids=names(SAMPLINGS))
def test_theory_beside_the_samples_and_samples_near_it(path):
    stored = read_arrays([path])
    trained = load_trained_heads(json.loads(str(stored["about"]))["network"])
    last = int(np.argmax(stored["width"]))
    training = draw_set(trained, "training", 0)
    solution = solve_order_parameter(
        *training,
        Architecture(trained.heads, int(stored["width"][last])),
        float(stored["temperature"][last]),
    )
    np.testing.assert_allclose(solution.matrix, stored["U_theory"][last], rtol=1e-3, atol=1e-4)
    distance = np.linalg.norm(stored["U"] - stored["U_theory"], axis=(1, 2))
    assert distance[last] == distance.min()  # the theory is exact in the limit


@needs_omniglot
@pytest.mark.slow
@pytest.mark.parametrize("path", STUDIES, ids=names(STUDIES))
def test_cheap_scores_and_a_curve_of_a_pruning_study(path):
    study = json.loads(path.read_text())
    trained = load_trained_heads(study["about"]["network"])
    network = trained.path_network()
    validation, test = (
        draw_set(trained, part, study["seed"], study["sizes"][part])
        for part in ("validation", "test")
    )
    for name, criterion in {
        "empirical U": empirical_criterion,
        "gradient": gradient_criterion,
        "magnitude": magnitude_criterion,
    }.items():
        for again, before in zip(
            criterion(network, *validation), study["scores"][name], strict=True
        ):
            np.testing.assert_allclose(again, before, rtol=1e-3, err_msg=name)
    for again, before in zip(measured_drop_criterion(network, *test), study["lost"], strict=True):
        np.testing.assert_allclose(again, before, atol=0.002)
    curve = pruning_curve(network, study["scores"]["gradient"], *test)
    before = study["curves"]["gradient"]
    assert [list(head) for head in curve.order] == before["order"]
    np.testing.assert_allclose(curve.accuracy, before["accuracy"], atol=0.002)


@needs_omniglot
@pytest.mark.slow
def test_theory_scores_of_the_smallest_study():
    path = min(STUDIES, key=lambda path: np.prod(json.loads(path.read_text())["heads"]))
    study = json.loads(path.read_text())
    trained = load_trained_heads(study["about"]["network"])
    xi, y = draw_set(trained, "training", study["seed"], study["sizes"]["training"])
    solution = solve_order_parameter(
        xi, y, Architecture(trained.heads, 100), study["theory"]["100"]["temperature"], tol=1e-6
    )
    for again, before in zip(
        head_scores(solution), study["scores"]["theory, N = 100"], strict=True
    ):
        np.testing.assert_allclose(again, before, rtol=1e-3)
