"""A small part of each stored result of the book, made again and compared."""

import json
import os

import numpy as np
import pytest

from attnpaths import Architecture, head_scores, solve_order_parameter
from attnpaths.one_shot_theory import draw_set, grid_of_draw, load_grids
from attnpaths.pruning import (
    empirical_criterion,
    gradient_criterion,
    magnitude_criterion,
    measured_drop_criterion,
    pruning_curve,
)
from attnpaths.stored import STORED, command_of, load_stored, stored_names
from attnpaths.trained import load_trained_heads

GRIDS, SAMPLINGS, STUDIES = (stored_names(kind) for kind in ("grid", "sampling", "pruning"))

needs_omniglot = pytest.mark.skipif(
    not os.environ.get("ATTNPATHS_DATA"), reason="needs Omniglot: ATTNPATHS_DATA is not set"
)


def test_results_are_stored_and_small():
    assert GRIDS
    assert SAMPLINGS
    assert STUDIES
    for path in STORED.iterdir():
        assert path.stat().st_size < 2e6, path
    assert sorted(path.stem for path in STORED.iterdir()) == stored_names()


@pytest.mark.parametrize("name", [*GRIDS, *SAMPLINGS, *STUDIES])
def test_each_result_says_how_it_was_made(name):
    about = load_stored(name)["about"]
    about = about if isinstance(about, dict) else json.loads(str(about))
    assert about["command"].startswith(command_of(name))
    assert about["network"] in about["command"]
    shipped = load_trained_heads(about["network"]).metadata
    assert about["training"]["accuracies"] == shipped["accuracies"]  # of the very heads shipped


def test_results_are_read_from_any_folder_and_a_missing_one_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_grids(GRIDS[0]).about["network"] == GRIDS[0].removeprefix("grid_")
    with pytest.raises(ValueError, match=r"pruning_2x4_seed0.*got 'pruning_9x9'") as error:
        load_stored("pruning_9x9")
    assert "python -m attnpaths.one_shot_theory pruning 9x9" in str(error.value)
    with pytest.raises(ValueError, match="name must be that of a stored result"):
        load_grids("somewhere/else")


@needs_omniglot
@pytest.mark.slow
@pytest.mark.parametrize("name", GRIDS)
def test_one_width_of_a_grid(name):
    stored = load_grids(name)
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
    for part in ("validation", "test", "digits"):
        # an output next to zero may fall on the other side on another machine
        np.testing.assert_allclose(again.accuracy[part], grid.accuracy[part][here], atol=0.003)
        assert reached[part] == pytest.approx(stored.trained[part][0], abs=0.003)


@needs_omniglot
@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLINGS)
def test_theory_beside_the_samples_and_samples_near_it(name):
    stored = load_stored(name)
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
@pytest.mark.parametrize("name", STUDIES)
def test_cheap_scores_and_a_curve_of_a_pruning_study(name):
    study = load_stored(name)
    trained = load_trained_heads(study["about"]["network"])
    network = trained.path_network()
    validation, test = (
        draw_set(trained, part, study["seed"], study["sizes"][part])
        for part in ("validation", "test")
    )
    for method, criterion in {
        "empirical U": empirical_criterion,
        "gradient": gradient_criterion,
        "magnitude": magnitude_criterion,
    }.items():
        for again, before in zip(
            criterion(network, *validation), study["scores"][method], strict=True
        ):
            np.testing.assert_allclose(again, before, rtol=1e-3, err_msg=method)
    for again, before in zip(measured_drop_criterion(network, *test), study["lost"], strict=True):
        np.testing.assert_allclose(again, before, atol=0.002)
    curve = pruning_curve(network, study["scores"]["gradient"], *test)
    before = study["curves"]["gradient"]
    assert [list(head) for head in curve.order] == before["order"]
    np.testing.assert_allclose(curve.accuracy, before["accuracy"], atol=0.002)


@needs_omniglot
@pytest.mark.slow
def test_theory_scores_of_the_smallest_study():
    study = min(map(load_stored, STUDIES), key=lambda study: np.prod(study["heads"]))
    trained = load_trained_heads(study["about"]["network"])
    xi, y = draw_set(trained, "training", study["seed"], study["sizes"]["training"])
    solution = solve_order_parameter(
        xi, y, Architecture(trained.heads, 100), study["theory"]["100"]["temperature"], tol=1e-6
    )
    for again, before in zip(
        head_scores(solution), study["scores"]["theory, N = 100"], strict=True
    ):
        np.testing.assert_allclose(again, before, rtol=1e-3)
