"""The check problems of the paper's reference implementation."""

import numpy as np
import pytest
from reference_problems import VECTORS, reference_problem

import attnpaths
from attnpaths.order_parameter import Problem, TrainingData


@pytest.fixture(params=VECTORS, ids=[vector["name"] for vector in VECTORS])
def problem(request):
    return reference_problem(request.param)


def test_path_kernels(problem):
    kernels = attnpaths.path_kernels(problem.xi)
    assert kernels.sum() == pytest.approx(problem.vector["path_kernel_sum"], rel=1e-9)
    np.testing.assert_allclose(
        kernels[0, 1, :3, :3], problem.vector["path_kernel_01_block"], rtol=1e-9
    )


def test_infinite_width_limit(problem):
    expected = problem.vector["gp"]
    gp = attnpaths.gp_order_parameter(problem.architecture)
    value = attnpaths.action(
        problem.xi, problem.y, gp.layers, problem.architecture, problem.temperature, gp.readout
    )
    assert value.energy == pytest.approx(expected["energy"], rel=1e-9)
    assert value.entropy == pytest.approx(expected["entropy"], rel=1e-9)
    mean, variance = attnpaths.predict(
        problem.xi, problem.y, problem.xi_test, gp, problem.temperature
    )
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-9)
    np.testing.assert_allclose(variance, expected["var"], rtol=1e-9)


def test_action_and_gradient_away_from_the_minimum(problem):
    expected = problem.vector["trial"]
    layers = [np.array(U) for U in expected["layers"]]
    value = attnpaths.action(
        problem.xi, problem.y, layers, problem.architecture, problem.temperature
    )
    assert value.energy == pytest.approx(expected["energy"], rel=1e-9)
    assert value.entropy == pytest.approx(expected["entropy"], rel=1e-9)
    data = TrainingData(problem.xi, problem.y[:, None])
    whole = Problem(data, problem.architecture, problem.temperature)
    readout = whole.best_readout(layers[-1])
    assert readout.item() == pytest.approx(expected["readout_scalar"], rel=1e-9)
    gradients = whole.gradient([*layers, readout], whole.energy(layers[0]).gradient())
    largest = max(problem.architecture.widths)
    np.testing.assert_allclose(gradients[0] / largest, expected["grad_U1"], rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(gradients[-2] / largest, expected["grad_UL"], rtol=1e-8, atol=1e-12)
    assert abs(gradients[-1].item()) < 1e-9 * largest  # the readout solves its own equation


def test_solution(problem):
    expected = problem.vector["solution"]
    solution = attnpaths.solve_order_parameter(
        problem.xi, problem.y, problem.architecture, problem.temperature
    )
    assert solution.converged
    assert solution.gradient_norm < 1e-8
    assert solution.hessian_minimum() > 0
    assert solution.action == pytest.approx(expected["action"], rel=1e-6)
    assert solution.energy == pytest.approx(expected["energy"], rel=1e-6)
    assert solution.entropy == pytest.approx(expected["entropy"], rel=1e-6)
    assert solution.readout == pytest.approx(expected["readout_scalar"], rel=1e-6)
    for U, reference in zip(solution.layers, expected["layers"], strict=True):
        np.testing.assert_allclose(U, reference, rtol=1e-6, atol=1e-6 * np.abs(reference).max())
    mean, variance = attnpaths.predict(
        problem.xi, problem.y, problem.xi_test, solution, problem.temperature
    )
    np.testing.assert_allclose(mean, expected["mean"], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(variance, expected["var"], rtol=1e-6)


def test_head_scores():
    vector = next(v for v in VECTORS if "head_scores" in v)
    problem = reference_problem(vector)
    solution = attnpaths.solve_order_parameter(
        problem.xi, problem.y, problem.architecture, problem.temperature
    )
    scores = attnpaths.head_scores(solution)
    for layer, head, score in vector["head_scores"]:
        assert scores[layer][head] == pytest.approx(score, rel=1e-6)
