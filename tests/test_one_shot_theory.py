"""The theory on one-shot tasks: path inputs, the grid of widths and temperatures, the study."""

import json

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from attnpaths import (
    Architecture,
    gp_order_parameter,
    kernel,
    path_inputs,
    predict,
    query_key_attention,
    solve_order_parameter,
)
from attnpaths.one_shot_theory import (
    draw_set,
    load_grids,
    pruning_study,
    solve_grid,
    task_path_inputs,
)
from attnpaths.tasks.one_shot import draw_tasks, label_embedding, load_images, task_tokens
from attnpaths.trained import TrainedHeads


@pytest.fixture
def images():
    return load_images("digits", "test")


def random_heads(seed, heads=(2, 3), size=6):
    rng = np.random.default_rng(seed)
    queries, keys = ([rng.normal(size=(h, size, 192)) / 4 for h in heads] for _ in range(2))
    return queries, keys, label_embedding(seed)


def problem(seed=0, examples=40):
    rng = np.random.default_rng(seed)
    xi, xi_new = rng.normal(size=(examples, 4, 8)), rng.normal(size=(60, 4, 8))
    w = rng.normal(size=8)
    return xi, np.sign(xi[:, 1] @ w), xi_new, np.sign(xi_new[:, 1] @ w)


def test_path_inputs_of_tasks_are_those_of_their_tokens(images):
    queries, keys, embedding = random_heads(0)
    tasks = draw_tasks(1, 20, images)
    x = task_tokens(images, tasks, embedding)
    attentions = [query_key_attention(x, q, k) for q, k in zip(queries, keys, strict=True)]
    got = task_path_inputs(images, tasks, queries, keys, embedding, batch=7)
    np.testing.assert_allclose(got, path_inputs(x, attentions, "mean"), atol=1e-10)


def test_evidence_of_the_infinite_width_limit_is_the_gaussian_density_of_the_labels():
    xi, y, xi_new, y_new = problem()
    grid = solve_grid(
        xi,
        y,
        (2, 2),
        evaluate={"test": (xi_new, y_new)},
        widths=[1e6],
        temperatures=[0.1, 0.5],
        progress=False,
    )
    for j, temperature in enumerate(grid.temperatures):
        K = kernel(xi, np.eye(4)) + temperature * np.eye(len(y))
        expected = multivariate_normal(cov=K).logpdf(y)
        assert grid.log_evidence[-1, j] == pytest.approx(expected, abs=1e-8)
        # and large widths tend to it
        assert grid.log_evidence[0, j] == pytest.approx(expected, abs=0.01)


def test_each_point_of_the_grid_is_a_solution_and_its_accuracy_that_of_the_mean_predictor():
    xi, y, xi_new, y_new = problem()
    grid = solve_grid(
        xi,
        y,
        (2, 2),
        evaluate={"test": (xi_new, y_new), "training": (xi, y)},
        widths=[100, 10],
        temperatures=[0.5, 0.05],
        tol=1e-8,
        progress=False,
    )
    assert grid.converged.all()
    np.testing.assert_array_equal(grid.widths, [10, 100, np.inf])
    alone = solve_order_parameter(xi, y, Architecture((2, 2), 10), 0.05)
    np.testing.assert_allclose(grid.order_parameters[0, 0], alone.matrix, rtol=1e-5)
    expected = np.mean((predict(xi, y, xi_new, alone, 0.05).mean > 0) == (y_new > 0))
    assert grid.accuracy["test"][0, 0] == expected
    gp = gp_order_parameter(Architecture((2, 2), 10))
    expected = np.mean((predict(xi, y, xi_new, gp, 0.5).mean > 0) == (y_new > 0))
    assert grid.accuracy["test"][2, 1] == expected


def test_choosing_on_the_test_set_is_never_worse_there():
    xi, y, xi_new, y_new = problem(3)
    grid = solve_grid(
        xi,
        y,
        (2, 2),
        evaluate={"test": (xi_new[:30], y_new[:30]), "validation": (xi_new[30:], y_new[30:])},
        widths=[5, 50],
        temperatures=[0.01, 0.1, 1.0],
        progress=False,
    )
    best = grid.chosen_accuracy("test")
    for by in ("validation", "evidence"):
        assert (grid.chosen_accuracy(by) <= best).all()
    np.testing.assert_array_equal(grid.chosen("evidence"), grid.log_evidence.argmax(axis=1))
    with pytest.raises(ValueError, match="by must be one of"):
        grid.chosen("luck")
    with pytest.raises(ValueError, match="on must be one of"):
        grid.chosen_accuracy("test", "training")


def test_pruning_study_of_a_small_network_on_digits(images, monkeypatch):
    monkeypatch.setattr(
        "attnpaths.one_shot_theory.available_images", lambda split: load_images("digits", split)
    )
    queries, keys, embedding = random_heads(2, (2, 2))
    rng = np.random.default_rng(3)
    trained = TrainedHeads(
        queries,
        keys,
        embedding,
        rng.normal(size=(4, 192)),
        [np.eye(4), np.eye(2)],
        [np.ones(2), np.ones(2)],
    )
    sizes = {"training": 40, "validation": 30, "test": 50, "fine_tuning": 30}
    study = pruning_study(trained, sizes=sizes, widths=[10], resolve=True, progress=False)
    again = pruning_study(trained, sizes=sizes, widths=[10], resolve=True, progress=False)
    assert json.loads(json.dumps(study)) == json.loads(json.dumps(again))
    for curve in [*study["curves"].values(), *study["fine_tuned"].values()]:
        assert len(curve["order"]) == 2
        assert len(curve["accuracy"]) == 3
    assert set(study["theory_itself"]) == {"cut", "solved again"}
    whole = study["curves"]["gradient"]["accuracy"][0]
    test = draw_set(trained, "test", 0, 50)
    assert whole == np.mean((trained.path_network().predict(test.xi) > 0) == (test.y > 0))


def test_a_file_that_holds_something_else_is_refused(tmp_path):
    path = tmp_path / "grid.npz"
    np.savez(path, widths=np.ones(2))
    with pytest.raises(ValueError, match="does not hold stored grids"):
        load_grids(path)
