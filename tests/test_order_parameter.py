"""Facts of the theory that the action and its minimum must show."""

import pickle
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

import attnpaths
from attnpaths.kernels import PathKernelMap
from attnpaths.order_parameter import (
    ConvergenceWarning,
    FactorPoint,
    Problem,
    TrainingData,
    lowest_ritz_value,
)


def random_problem(seed, heads, *, examples=8, features=5, outputs=1, low=2.0, high=20.0):
    """Random path inputs, labels and unequal widths and variances."""
    rng = np.random.default_rng(seed)
    layers = len(heads)
    network = attnpaths.Architecture(
        heads, rng.uniform(low, high, layers + 1), rng.uniform(0.7, 1.4, layers + 2)
    )
    xi = rng.normal(size=(examples, network.paths, features))
    y = rng.choice([-1.0, 1.0], (examples, outputs))
    return xi, (y[:, 0] if outputs == 1 else y), network


ARCHITECTURES = st.tuples(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda h: np.prod(h) <= 12),
    st.integers(1, 2),
)


@given(ARCHITECTURES)
@settings(max_examples=25, deadline=None)
def test_gradient_in_the_matrices_is_the_derivative_of_the_action(drawn):
    seed, heads, outputs = drawn
    xi, y, network = random_problem(seed, heads, outputs=outputs)
    problem = Problem(TrainingData(xi, y.reshape(len(xi), -1)), network, 0.3)
    rng = np.random.default_rng(seed)
    matrices, steps = [], []
    for size in network.sizes(outputs):
        root, step = rng.normal(size=(2, size, size))
        matrices.append(np.eye(size) + 0.1 * root @ root.T)
        steps.append(step + step.T)

    def moved(t):
        return [U + t * step for U, step in zip(matrices, steps, strict=True)]

    def gradient(t):
        point = moved(t)
        return problem.gradient(point, problem.energy(point[0]).gradient())

    h = 1e-5
    slope = (problem.action(moved(h)).total - problem.action(moved(-h)).total) / (2 * h)
    inner = sum(np.sum(g * step) for g, step in zip(gradient(0), steps, strict=True))
    assert slope * problem.largest == pytest.approx(inner, rel=1e-5, abs=1e-5)
    changes = problem.hessian_product(matrices, problem.energy(matrices[0]), steps)
    for up, down, change in zip(gradient(h), gradient(-h), changes, strict=True):
        scale = np.abs(change).max() + 1
        np.testing.assert_allclose((up - down) / (2 * h), change, atol=2e-5 * scale)


@given(ARCHITECTURES)
@settings(max_examples=25, deadline=None)
def test_derivatives_in_the_factors(drawn):
    seed, heads, outputs = drawn
    xi, y, network = random_problem(seed, heads, outputs=outputs)
    problem = Problem(TrainingData(xi, y.reshape(len(xi), -1)), network, 0.3)
    rng = np.random.default_rng(seed)
    x, direction = rng.normal(size=(2, problem.dimensions))
    h = 1e-5
    up, up_gradient = problem.value_and_gradient(x + h * direction)
    down, down_gradient = problem.value_and_gradient(x - h * direction)
    _, gradient = problem.value_and_gradient(x)
    assert (up - down) / (2 * h) == pytest.approx(gradient @ direction, rel=1e-5, abs=1e-5)
    product = FactorPoint(problem, x).hessian_product(direction)
    np.testing.assert_allclose(
        (up_gradient - down_gradient) / (2 * h), product, atol=2e-5 * (np.abs(product).max() + 1)
    )


def test_hessian_formed_at_once_equals_its_products():
    xi, y, network = random_problem(0, (2, 3))
    problem = Problem(TrainingData(xi, y[:, None]), network, 0.3)
    x = np.random.default_rng(0).normal(size=problem.dimensions)
    products = [FactorPoint(problem, x).hessian_product(row) for row in np.eye(len(x))]
    np.testing.assert_allclose(FactorPoint(problem, x).hessian(), products, rtol=1e-9, atol=1e-9)


@given(ARCHITECTURES)
@settings(max_examples=15, deadline=None)
def test_both_coordinates_describe_one_action(drawn):
    seed, heads, outputs = drawn
    xi, y, network = random_problem(seed, heads, outputs=outputs)
    problem = Problem(TrainingData(xi, y.reshape(len(xi), -1)), network, 0.3)
    x = np.random.default_rng(seed).normal(size=problem.dimensions)
    matrices = problem.matrices(x)
    np.testing.assert_allclose(problem.pack(problem.factors.factorise(matrices)), x, atol=1e-7)
    origin = problem.matrices(np.zeros_like(x))
    difference = problem.action(matrices).total - problem.action(origin).total
    factors = problem.value_and_gradient(x)[0] - problem.value_and_gradient(0 * x)[0]
    assert factors / problem.largest == pytest.approx(difference, rel=1e-9, abs=1e-9)


@given(st.integers(0, 2**31), st.sampled_from([(2,), (3, 2), (2, 2, 2), (1, 2, 1, 2)]))
@settings(max_examples=10, deadline=None)
def test_solution_is_a_minimum(seed, heads):
    xi, y, network = random_problem(seed, heads)
    solution = attnpaths.solve_order_parameter(xi, y, network, 0.1)
    assert solution.converged
    assert solution.gradient_norm < 1e-8
    assert solution.hessian_minimum() > 0
    # and no small random step lowers the action
    rng = np.random.default_rng(seed)
    for _ in range(5):
        layers = []
        for U in solution.layers:
            step = 1e-3 * rng.normal(size=U.shape)
            layers.append((np.eye(len(U)) + step) @ U @ (np.eye(len(U)) + step).T)
        assert attnpaths.action(xi, y, layers, network, 0.1).total > solution.action


def test_permuting_heads_permutes_the_order_parameter():
    xi, y, network = random_problem(1, (2, 3))
    solution = attnpaths.solve_order_parameter(xi, y, network, 0.1)
    order = [3, 5, 4, 0, 2, 1]  # heads of layer 1 swapped, two heads of layer 2 swapped
    permuted = attnpaths.solve_order_parameter(xi[:, order], y, network, 0.1)
    np.testing.assert_allclose(
        permuted.matrix, solution.matrix[np.ix_(order, order)], rtol=1e-6, atol=1e-8
    )
    np.testing.assert_allclose(
        permuted.layers[1], solution.layers[1][np.ix_([0, 2, 1], [0, 2, 1])], rtol=1e-6, atol=1e-8
    )


@pytest.mark.parametrize("factor", [1e-6, 1e-2, 1e3, 1e6])
def test_scaling_of_units(factor):
    """Labels and tokens in other units: only the prior variances and the temperature change."""
    xi, y, network = random_problem(2, (2, 2))
    solution = attnpaths.solve_order_parameter(xi, y, network, 0.1)
    variances = list(network.variances)
    variances[0] /= factor**2
    scaled_inputs = attnpaths.solve_order_parameter(
        factor * xi, y, attnpaths.Architecture(network.heads, network.widths, variances), 0.1
    )
    np.testing.assert_allclose(scaled_inputs.matrix, solution.matrix, rtol=1e-6)
    variances = list(network.variances)
    variances[-1] *= factor**2
    scaled_labels = attnpaths.solve_order_parameter(
        xi,
        factor * y,
        attnpaths.Architecture(network.heads, network.widths, variances),
        0.1 * factor**2,
    )
    np.testing.assert_allclose(scaled_labels.matrix / factor**2, solution.matrix, rtol=1e-6)
    assert scaled_inputs.converged
    assert scaled_labels.converged


def test_several_outputs_with_one_output_used_twice():
    """Two independent problems side by side: a second output that carries no labels to fit."""
    xi, y, network = random_problem(3, (2, 2))
    together = attnpaths.solve_order_parameter(xi, np.stack([y, 0 * y], axis=1), network, 0.1)
    assert together.converged
    assert together.matrix.shape == (8, 8)
    blocks = together.matrix.reshape(4, 2, 4, 2)
    # The action is even in each output, so the cross terms vanish at this minimum.
    np.testing.assert_allclose(blocks[:, 0, :, 1], 0, atol=1e-7)
    assert together.readout.shape == (2, 2)


def test_one_output_equals_the_general_case():
    xi, y, network = random_problem(4, (2, 3))
    single = attnpaths.solve_order_parameter(xi, y, network, 0.1)
    column = attnpaths.solve_order_parameter(xi, y[:, None], network, 0.1)
    np.testing.assert_allclose(single.matrix, column.matrix, rtol=1e-12)
    mean, variance = attnpaths.predict(xi, y, xi[:3], single, 0.1)
    mean_column, variance_column = attnpaths.predict(xi, y[:, None], xi[:3], column, 0.1)
    np.testing.assert_allclose(mean, mean_column[:, 0])
    np.testing.assert_allclose(variance, variance_column[:, 0])


def test_rotating_several_outputs_rotates_the_order_parameter():
    xi, y, network = random_problem(5, (2,), outputs=2)
    rotation = np.array([[0.6, -0.8], [0.8, 0.6]])
    plain = attnpaths.solve_order_parameter(xi, y, network, 0.1)
    turned = attnpaths.solve_order_parameter(xi, y @ rotation.T, network, 0.1)
    both = np.kron(np.eye(2), rotation)
    np.testing.assert_allclose(turned.matrix, both @ plain.matrix @ both.T, rtol=1e-5, atol=1e-7)


def test_order_parameter_tends_to_the_infinite_width_limit():
    xi, y, _ = random_problem(6, (2, 2))
    distances = []
    for width in (1e2, 1e3, 1e4, 1e5, 1e6):
        network = attnpaths.Architecture((2, 2), width, (1.0, 1.2, 0.9, 1.1))
        solution = attnpaths.solve_order_parameter(xi, y, network, 0.1)
        limit = attnpaths.gp_order_parameter(network)
        assert solution.converged
        distances.append(np.abs(solution.matrix - limit.matrix).max())
    ratios = np.array(distances[1:]) / distances[:-1]
    np.testing.assert_allclose(ratios[1:], 0.1, rtol=0.05)  # corrections are of order P / N


@pytest.mark.parametrize("layers", [1, 2, 3, 4])
def test_one_head_a_layer_is_the_deep_linear_network(layers):
    """All L + 1 factors u, U_L / u, ... are equal, and solve a one-dimensional problem.

    Li and Sompolinsky (2021), Pacelli et al. (2023): with factor r, K = r^(L + 1) C, the action per
    width is (L + 1)(r - log r) + energy / N.
    """
    width, temperature = 12.0, 0.05
    rng = np.random.default_rng(layers)
    xi = rng.normal(size=(10, 1, 15))
    y = rng.choice([-1.0, 1.0], 10)
    network = attnpaths.Architecture((1,) * layers, width)
    solution = attnpaths.solve_order_parameter(xi, y, network, temperature)
    chain = [solution.readout, *(U.item() for U in reversed(solution.layers))]
    factors = np.array(chain) / [1.0, *chain[:-1]]
    np.testing.assert_allclose(factors, factors[0], rtol=1e-7)

    values, vectors = np.linalg.eigh(xi[:, 0] @ xi[:, 0].T / 15)
    squared = (vectors.T @ y) ** 2

    def slope(r):
        power = r ** (layers + 1)
        shifted = power * values + temperature
        energy = np.sum(values / shifted - squared * values / shifted**2) * (layers + 1) * r**layers
        return (layers + 1) * (1 - 1 / r) + energy / width

    assert factors[0] == pytest.approx(brentq(slope, 1e-3, 1e3, xtol=1e-13), rel=1e-7)


def test_readout_has_its_closed_form():
    """Minimising over u at fixed U_L gives the root of the quadratic equation."""
    xi, y, network = random_problem(7, (3,))
    U = np.diag([0.3, 2.0, 1.1])
    width, readout_width = network.widths
    variance, readout_variance = network.variances[1:]
    u = Problem(TrainingData(xi, y[:, None]), network, 0.1).best_readout(U).item()
    linear = readout_variance * (3 * width / readout_width - 1)
    constant = width * readout_variance / (readout_width * variance) * np.trace(U)
    assert u**2 + linear * u == pytest.approx(constant, rel=1e-12)
    best = attnpaths.action(xi, y, [U], network, 0.1).total
    for other in (0.99 * u, 1.01 * u):
        assert attnpaths.action(xi, y, [U], network, 0.1, readout=[[other]]).total > best


@pytest.mark.parametrize("width", [1, 2, 30, 1e6])
@pytest.mark.parametrize("temperature", [1e-6, 1e-2, 10.0])
@pytest.mark.parametrize(
    ("examples", "features"), [(3, 20), (40, 3)], ids=["fewer_examples_than_paths", "cannot_fit"]
)
def test_hard_cases(width, temperature, examples, features):
    rng = np.random.default_rng(8)
    xi = rng.normal(size=(examples, 4, features))
    y = rng.choice([-1.0, 1.0], examples)
    network = attnpaths.Architecture((2, 2), width)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        solution = attnpaths.solve_order_parameter(xi, y, network, temperature)
    assert solution.converged
    assert np.linalg.eigvalsh(solution.matrix)[0] > 0
    assert solution.hessian_minimum() > 0


@pytest.mark.parametrize("temperature", [1e-6, 0.1])
def test_duplicated_heads_share_their_weight(temperature):
    rng = np.random.default_rng(9)
    one = rng.normal(size=(12, 2, 6))
    xi = one[:, [0, 0, 1]]  # heads 1 and 2 are the same
    y = rng.choice([-1.0, 1.0], 12)
    solution = attnpaths.solve_order_parameter(xi, y, attnpaths.Architecture((3,), 10), temperature)
    assert solution.converged
    U = solution.matrix
    assert U[0, 0] == pytest.approx(U[1, 1], rel=1e-6)
    assert U[0, 2] == pytest.approx(U[1, 2], rel=1e-5, abs=1e-7)


def test_conflicting_labels_at_low_temperature():
    """Equal inputs with opposite labels: what cannot be fitted does not spoil the solution."""
    rng = np.random.default_rng(10)
    xi = rng.normal(size=(10, 2, 30))
    xi = np.concatenate([xi, xi[:2]])
    y = np.concatenate([rng.choice([-1.0, 1.0], 10), [0, 0]])
    y[-2:] = -y[:2]
    solution = attnpaths.solve_order_parameter(xi, y, attnpaths.Architecture((2,), 10), 1e-5)
    assert solution.converged


def test_path_inputs_of_zero_leave_the_infinite_width_limit():
    network = attnpaths.Architecture((2, 2), 10)
    solution = attnpaths.solve_order_parameter(np.zeros((5, 4, 3)), np.ones(5), network, 0.1)
    assert solution.converged
    np.testing.assert_allclose(solution.matrix, np.eye(4), atol=1e-10)


def test_warm_start_needs_fewer_evaluations():
    xi, y, _ = random_problem(11, (2, 2), examples=30, features=20)
    first = attnpaths.solve_order_parameter(xi, y, attnpaths.Architecture((2, 2), 10), 0.1)
    again = attnpaths.solve_order_parameter(
        xi, y, attnpaths.Architecture((2, 2), 11), 0.1, start=first
    )
    cold = attnpaths.solve_order_parameter(xi, y, attnpaths.Architecture((2, 2), 11), 0.1)
    assert again.evaluations < cold.evaluations
    np.testing.assert_allclose(again.matrix, cold.matrix, rtol=1e-6, atol=1e-8)


def test_stored_solutions_do_not_hold_their_kernels():
    solutions = []
    for seed in range(5):
        xi, y, network = random_problem(seed, (2, 2))
        solutions.append(attnpaths.solve_order_parameter(xi, y, network, 0.1))
    held = [solution for solution in solutions if solution._data._kernel_map is not None]
    assert 0 < len(held) < len(solutions)
    assert solutions[0].hessian_minimum() > 0  # prepared again when asked for


def test_stopping_early_is_said():
    xi, y, network = random_problem(12, (2, 2), examples=30, features=20)
    with pytest.warns(ConvergenceWarning, match="relative gradient"):
        solution = attnpaths.solve_order_parameter(xi, y, network, 1e-4, max_evaluations=3)
    assert not solution.converged


def test_a_stationary_point_that_is_no_minimum_is_said():
    """A deep linear network at high temperature has two minima; between them lies a maximum.

    With factor r, K = r^4: the action is 4 (r - log r) + log(K + T) + y^2 / (K + T) at N = 1.
    """
    temperature, label = 100.0, 30.0

    def slope(r):
        shifted = r**4 + temperature
        return 4 * (1 - 1 / r) + 4 * r**3 * (1 / shifted - label**2 / shifted**2)

    r = brentq(slope, 2.0, 2.5, xtol=1e-14)
    assert slope(r - 0.1) > 0 > slope(r + 0.1)
    start = [np.array([[r**power]]) for power in (4, 3, 2)]
    problem = (np.ones((1, 1, 1)), np.array([label]), attnpaths.Architecture((1, 1, 1), 1))
    with pytest.warns(ConvergenceWarning, match="negative curvature"):
        solution = attnpaths.solve_order_parameter(*problem, temperature, start=start)
    assert not solution.converged
    assert solution.hessian_minimum() < 0
    # From both sides the solver finds a proper minimum.
    for factor in (0.9, 1.1):
        side = attnpaths.solve_order_parameter(
            *problem, temperature, start=[factor * U for U in start]
        )
        assert side.converged
        assert side.hessian_minimum() > 0
        assert side.action < solution.action


def test_curvature_near_the_infinite_width_limit_is_one():
    """There the Hessian in scaled factors is the identity, which stops Lanczos at once."""
    rng = np.random.default_rng(18)
    xi = rng.normal(size=(20, 1, 10)) + 0.1 * rng.normal(size=(20, 16, 10))
    y = rng.choice([-1.0, 1.0], 20)
    network = attnpaths.Architecture((4, 4), 1e4)
    solution = attnpaths.solve_order_parameter(xi, y, network, 1.5)
    assert solution.converged
    problem = Problem(TrainingData(xi, y[:, None]), network, 1.5)
    assert lowest_ritz_value(FactorPoint(problem, problem.start(solution))) > 0.9


@pytest.mark.parametrize("outputs", [1, 2])
def test_stored_and_streamed_kernels_agree(outputs):
    rng = np.random.default_rng(14)
    xi = rng.normal(size=(7, 3, 5))
    root = rng.normal(size=(3 * outputs, 3 * outputs))
    U, G = root @ root.T, rng.normal(size=(7 * outputs, 7 * outputs))
    G = G + G.T
    expected = attnpaths.kernel(xi, U, variance=1.5)
    for stored_bytes in (0, 2**28):
        kernel_map = PathKernelMap(xi, 1.5 / 3, outputs, stored_bytes)
        np.testing.assert_allclose(kernel_map.combine(U), expected, atol=1e-12)
        inner = np.sum(kernel_map.contract(np.tril(G)) * U)
        assert inner == pytest.approx(np.sum(G * expected), rel=1e-10)


def test_infinite_width_limit_has_no_data():
    gp = attnpaths.gp_order_parameter(attnpaths.Architecture((2,), 10))
    with pytest.raises(ValueError, match="hessian_minimum"):
        gp.hessian_minimum()


def test_solution_survives_pickling():
    xi, y, network = random_problem(15, (2,))
    solution = attnpaths.solve_order_parameter(xi, y, network, 0.1)
    again = pickle.loads(pickle.dumps(solution))
    np.testing.assert_array_equal(again.matrix, solution.matrix)
    assert again.architecture == network


@pytest.mark.parametrize("outputs", [1, 2])
def test_saved_solution_predicts_the_same(tmp_path, outputs):
    xi, y, network = random_problem(19, (2, 3), outputs=outputs)
    solution = attnpaths.solve_order_parameter(xi, y, network, 0.1)
    file = tmp_path / "solution.npz"
    solution.save(file)
    loaded = attnpaths.OrderParameter.load(file)
    assert loaded.architecture == network
    assert loaded.temperature == 0.1
    assert loaded.converged is True
    assert loaded.message == solution.message
    np.testing.assert_array_equal(
        attnpaths.predict(xi, y, xi[:3], loaded, 0.1).mean,
        attnpaths.predict(xi, y, xi[:3], solution, 0.1).mean,
    )
    again = attnpaths.solve_order_parameter(xi, y, network, 0.1, start=loaded)
    np.testing.assert_allclose(again.matrix, solution.matrix, rtol=1e-6, atol=1e-9)
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_holds_something_else_is_named(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(ValueError, match="must hold a saved order parameter, got no"):
        attnpaths.OrderParameter.load(tmp_path / "other.npz")
    (tmp_path / "damaged.npz").write_bytes(b"PK not a zip")
    with pytest.raises(ValueError, match="cannot be read"):
        attnpaths.OrderParameter.load(tmp_path / "damaged.npz")
    with pytest.raises(ValueError, match=r"path must end in \.npz"):
        attnpaths.gp_order_parameter(attnpaths.Architecture((2,), 10)).save(tmp_path / "U.txt")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"temperature": 0.0}, "temperature must be positive, got 0.0"),
        ({"temperature": np.nan}, "temperature must be finite"),
        ({"temperature": "hot"}, "temperature must be a real number"),
        ({"y": np.full(8, np.nan)}, "y must be finite, got 8"),
        ({"y": np.ones(7)}, r"y must have shape \(8,\)"),
        ({"y": ["a"] * 8}, "y must be an array of real numbers"),
        ({"xi": np.ones((8, 3, 5))}, r"xi must have shape \(P, 4, N0\), got shape \(8, 3, 5\)"),
        ({"xi": np.full((8, 4, 5), np.inf)}, "xi must be finite"),
        ({"architecture": (2, 2)}, "architecture must be an attnpaths.Architecture"),
        ({"start": [np.eye(4)]}, "layers must hold 2 matrices, got 1"),
        ({"start": [np.eye(4), -np.eye(2)]}, r"layers\[1\] must be positive definite"),
        ({"tol": -1}, "tol must be positive"),
    ],
)
def test_bad_input_is_named(change, words):
    xi, y, network = random_problem(16, (2, 2))
    arguments = {"xi": xi, "y": y, "architecture": network, "temperature": 0.1} | change
    with pytest.raises(ValueError, match=words):
        attnpaths.solve_order_parameter(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (((), 10), "heads must name at least one layer"),
        (((2, 0), 10), "heads must be at least 1, got 0"),
        (((2.5,), 10), "heads must be a whole number"),
        (("22", 10), "heads must be a sequence of whole numbers"),
        (((2, 2), 0.5), "widths must be at least 1"),
        (((2, 2), (10, 10)), "widths must be one number or 3"),
        (((2, 2), 10, -1.0), "variances must be positive"),
        (((2, 2), 10, (1, 1)), "variances must be one number or 4"),
    ],
)
def test_bad_architecture_is_named(arguments, words):
    with pytest.raises(ValueError, match=words):
        attnpaths.Architecture(*arguments)


@pytest.mark.slow
def test_many_paths_stay_within_memory():
    """512 paths: the pairwise kernels alone would take 42 GB."""
    rng = np.random.default_rng(17)
    xi = rng.normal(size=(40, 512, 24))
    y = rng.choice([-1.0, 1.0], 40)
    solution = attnpaths.solve_order_parameter(xi, y, attnpaths.Architecture((8, 8, 8), 50), 0.1)
    assert solution.converged
