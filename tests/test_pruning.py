"""Dropping heads: what must hold whatever the network, and what a user of a pruning curve sees."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_problems import VECTORS, reference_problem

from attnpaths import (
    Architecture,
    gp_order_parameter,
    head_scores,
    path_inputs,
    path_names,
    predict,
    solve_order_parameter,
)
from attnpaths.pruning import (
    PathNetwork,
    TheoryPredictor,
    drop_heads,
    empirical_criterion,
    empirical_order_parameter,
    fine_tune,
    gradient_criterion,
    kept_paths,
    magnitude_criterion,
    measured_drop_criterion,
    path_scores,
    pruning_curve,
    pruning_order,
    random_criterion,
    rank_correlation,
    theory_criterion,
    wilson_interval,
)


class TokenNetwork:
    """The network written layer by layer, token by token, with a list of heads that are off."""

    def __init__(self, rng, heads, width=7, features=5):
        self.heads, self.width, self.features = heads, width, features
        self.v0 = rng.normal(size=(width, features))
        self.values = [rng.normal(size=(count, width, width)) for count in heads]
        self.a = rng.normal(size=width)

    def forward(self, x, attentions, dropped=()):
        z = x @ self.v0.T / np.sqrt(self.features)
        for layer, (values, attention) in enumerate(zip(self.values, attentions, strict=True), 1):
            on = [h for h in range(len(values)) if (layer, h + 1) not in dropped]
            z = sum(attention[:, h] @ z @ values[h].T for h in on) / np.sqrt(len(on) * self.width)
        return (z.mean(axis=1) @ self.a) / np.sqrt(self.width)

    def path_network(self):
        """w_pi of f = sum_pi w_pi . xi_pi, and the empirical U from the weights above V0."""
        above = np.empty((len(path_names(self.heads)), self.width))
        for index, path in enumerate(path_names(self.heads)):
            vector = self.a / np.sqrt(self.width)
            for layer in reversed(range(len(self.heads))):
                values = self.values[layer]
                vector = vector @ values[path[layer] - 1] / np.sqrt(len(values) * self.width)
            above[index] = vector
        weights = above @ self.v0 / np.sqrt(self.features)
        return PathNetwork(weights, self.heads, empirical_order_parameter(above))


def random_attention(rng, examples, heads, tokens=4):
    return [rng.dirichlet(np.ones(tokens), size=(examples, count, tokens)) for count in heads]


@pytest.mark.parametrize(
    ("heads", "dropped"),
    [
        ((3,), [(1, 2)]),
        ((2, 3), [(2, 1), (2, 3)]),
        ((2, 3), [(1, 1), (2, 2)]),
        ((2, 2, 2), [(3, 1), (1, 2)]),
    ],
)
def test_dropping_heads_of_the_path_network_is_switching_them_off_in_the_layers(heads, dropped):
    rng = np.random.default_rng(0)
    network = TokenNetwork(rng, heads)
    x, attentions = rng.normal(size=(6, 4, 5)), random_attention(rng, 6, heads)
    xi = path_inputs(x, attentions)
    paths = network.path_network()
    np.testing.assert_allclose(paths.predict(xi), network.forward(x, attentions), atol=1e-12)
    np.testing.assert_allclose(
        paths.drop(dropped).predict(xi), network.forward(x, attentions, dropped), atol=1e-12
    )
    one_by_one = paths
    for head in dropped:
        one_by_one = one_by_one.drop([head])
    np.testing.assert_allclose(one_by_one.predict(xi), paths.drop(dropped).predict(xi))


def test_empirical_order_parameter_of_prior_weights_tends_to_the_identity():
    rng = np.random.default_rng(1)
    U = np.mean(
        [TokenNetwork(rng, (2, 2), 60).path_network().order_parameter for _ in range(40)], 0
    )
    np.testing.assert_allclose(U, np.eye(4), atol=0.15)


def test_theory_without_a_head_is_the_theory_of_the_smaller_network():
    problem = reference_problem(VECTORS[0])
    xi, y, net, temperature = problem.xi, problem.y, problem.architecture, problem.temperature
    whole = solve_order_parameter(xi, y, net, temperature)
    dropped = [(1, 1)]
    kept = kept_paths(net.heads, dropped)
    smaller = Architecture((net.heads[0] - 1, *net.heads[1:]), net.widths, net.variances)
    alone = solve_order_parameter(xi[:, kept], y, smaller, temperature)
    predictor = TheoryPredictor(xi, y, whole, temperature, resolve=True).drop(dropped)
    np.testing.assert_allclose(predictor.reduced.matrix, alone.matrix, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(
        predictor.predict(problem.xi_test),
        predict(xi[:, kept], y, problem.xi_test[:, kept], alone, temperature).mean,
        rtol=1e-4,
        atol=1e-6,
    )


def test_cut_order_parameter_is_the_block_of_the_paths_that_are_left():
    rng = np.random.default_rng(2)
    xi, y = rng.normal(size=(20, 6, 5)), np.sign(rng.normal(size=20))
    net = Architecture((2, 3), 10)
    whole = solve_order_parameter(xi, y, net, 0.1)
    dropped = [(1, 1), (2, 2)]
    kept = kept_paths(net.heads, dropped)
    cut = drop_heads(whole, dropped)
    np.testing.assert_array_equal(cut.matrix, whole.matrix[np.ix_(kept, kept)])
    np.testing.assert_array_equal(cut.layers[1], whole.layers[1][np.ix_([0, 2], [0, 2])])
    assert cut.architecture.heads == (1, 2)
    xi_new = rng.normal(size=(7, 6, 5))
    expected = predict(xi[:, kept], y, xi_new[:, kept], cut, 0.1).mean
    got = TheoryPredictor(xi, y, whole, 0.1).drop(dropped).predict(xi_new)
    np.testing.assert_allclose(got, expected)


def test_cutting_from_the_infinite_width_limit_gives_that_of_the_smaller_network():
    cut = drop_heads(gp_order_parameter(Architecture((3, 2, 2), 10), 2), [(1, 3), (3, 1)])
    smaller = gp_order_parameter(Architecture((2, 2, 1), 10), 2)
    for got, expected in zip(cut.layers, smaller.layers, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_network_made_from_the_theory_is_its_mean_predictor():
    rng = np.random.default_rng(3)
    xi, y = rng.normal(size=(20, 4, 5)), np.sign(rng.normal(size=20))
    solution = solve_order_parameter(xi, y, Architecture((2, 2), 10, 1.3), 0.1)
    xi_new = rng.normal(size=(9, 4, 5))
    network = PathNetwork.from_theory(xi, y, solution, 0.1)
    expected = predict(xi, y, xi_new, solution, 0.1).mean
    np.testing.assert_allclose(network.predict(xi_new), expected, atol=1e-10)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_path_scores_are_the_head_scores_of_a_network_with_a_head_for_each_path(heads, seed):
    paths = int(np.prod(heads))
    U = np.random.default_rng(seed).normal(size=(paths, paths))
    U = U @ U.T
    one_layer = head_scores(U, Architecture((paths,), 10))[0]
    np.testing.assert_allclose(path_scores(U, Architecture(tuple(heads), 10)), one_layer)


@given(st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_head_scores_count_each_pair_once(seed):
    heads = (2, 3, 2)
    U = np.random.default_rng(seed).normal(size=(12, 12))
    U = U @ U.T
    names = path_names(heads)
    direct = [
        np.array(
            [
                sum(
                    abs(U[i, j])
                    for i, a in enumerate(names)
                    for j, b in enumerate(names)
                    if h in (a[layer], b[layer])
                )
                for h in range(1, count + 1)
            ]
        )
        for layer, count in enumerate(heads)
    ]
    largest = max(layer.max() for layer in direct)
    for got, expected in zip(head_scores(U, Architecture(heads, 10)), direct, strict=True):
        np.testing.assert_allclose(got, expected / largest)


def planted(rng, examples=300):
    """Network and data where only head 2 of each layer carries the class."""
    heads = (3, 2)
    xi = rng.normal(size=(examples, 6, 4))
    useful = path_names(heads).index((2, 2))
    y = np.where(xi[:, useful, 0] > 0, 1.0, -1.0)
    weights = 0.03 * rng.normal(size=(6, 4))
    weights[useful, 0] += 1
    return PathNetwork(weights, heads), xi, y


@pytest.mark.parametrize(
    "criterion",
    [
        theory_criterion(10, 0.1),
        empirical_criterion,
        gradient_criterion,
        magnitude_criterion,
        measured_drop_criterion,
    ],
    ids=["theory", "empirical", "gradient", "magnitude", "measured"],
)
def test_every_informed_criterion_keeps_the_heads_of_the_only_useful_path(criterion):
    network, xi, y = planted(np.random.default_rng(4))
    scores = criterion(network, xi[:150], y[:150])
    assert [len(layer) for layer in scores] == [3, 2]
    curve = pruning_curve(network, criterion, xi[150:], y[150:], calibration=(xi[:150], y[:150]))
    assert not {(1, 2), (2, 2)} & set(curve.order)
    assert curve.accuracy[-1] >= 0.97
    assert (curve.lower < curve.accuracy).all()
    assert (curve.accuracy <= curve.upper).all()


def test_dropping_the_useful_head_first_destroys_the_network():
    network, xi, y = planted(np.random.default_rng(5))
    curve = pruning_curve(network, [[0.5, 0.0, 1.0], [1.0, 0.5]], xi, y)
    assert curve.order[0] == (1, 2)
    assert curve.accuracy[0] > 0.95
    assert curve.accuracy[1] < 0.7


def test_fine_tuning_repairs_what_pruning_broke():
    rng = np.random.default_rng(6)
    heads, weights = (4,), rng.normal(size=(4, 3))
    base = rng.normal(size=(600, 1, 3))
    xi = base + 0.1 * rng.normal(size=(600, 4, 3))  # four paths see nearly the same
    network = PathNetwork(weights, heads)
    y = np.where(network.predict(xi) > 0, 1.0, -1.0)
    train, test = slice(0, 300), slice(300, None)
    scores = [[0.1, 0.2, 0.3, 0.4]]
    plain = pruning_curve(network, scores, xi[test], y[test])
    tuned = pruning_curve(
        network,
        scores,
        xi[test],
        y[test],
        fine_tune=lambda smaller: fine_tune(smaller, xi[train], y[train], 0.01),
    )
    assert plain.accuracy[-1] < 0.9 < tuned.accuracy[-1]
    held = fine_tune(network, xi[train], y[train], 1e12)
    np.testing.assert_allclose(held.weights, network.weights, atol=1e-8)


def test_fine_tuned_weights_minimise_what_the_docstring_says():
    rng = np.random.default_rng(7)
    xi, y = rng.normal(size=(30, 6, 2)), rng.normal(size=30)
    network = PathNetwork(rng.normal(size=(6, 2)), (3, 2)).drop([(1, 3)])
    tuned = fine_tune(network, xi, y, 0.7)
    kept, scale = network.kept, network.scale

    def cost(weights):
        output = scale * np.einsum("pai,ai->p", xi[:, kept], weights[kept])
        moved = scale * (weights - network.weights)[kept]
        return np.sum((output - y) ** 2) + 0.7 * moved.size * np.sum(moved**2)

    best = cost(tuned.weights)
    for _ in range(20):
        step = 1e-4 * rng.normal(size=(6, 2))
        assert cost(tuned.weights + step) > best
        assert cost(tuned.weights - step) > best


def test_gradient_criterion_is_the_derivative_with_respect_to_a_gate_on_each_head():
    rng = np.random.default_rng(8)
    network = TokenNetwork(rng, (2, 2))
    x, attentions = rng.normal(size=(5, 4, 5)), random_attention(rng, 5, (2, 2))
    y = np.sign(rng.normal(size=5))
    layer, step = 1, 1e-6
    values = [v.copy() for v in network.values]
    importance = []
    for head in (0, 1):
        losses = []
        for gate in (1 + step, 1 - step):
            network.values = [v.copy() for v in values]
            network.values[layer][head] *= gate
            losses.append((network.forward(x, attentions) - y) ** 2)
        importance.append(np.abs((losses[0] - losses[1]) / (2 * step)).mean())
    network.values = values
    got = gradient_criterion(network.path_network(), path_inputs(x, attentions), y)[layer]
    np.testing.assert_allclose(got, importance / np.linalg.norm(importance), rtol=1e-6)


def test_magnitudes_of_the_parameters_are_used_when_given():
    network = PathNetwork(np.eye(4), (2, 2), magnitudes=[[1.0, 2.0], [4.0, 3.0]])
    assert pruning_order(magnitude_criterion(network, None, None)) == [(1, 1), (2, 2)]


def test_random_orders_differ_between_calls_and_agree_between_seeds():
    network = PathNetwork(np.eye(16), (4, 4))
    criterion = random_criterion(0)
    first, second = criterion(network, None, None), criterion(network, None, None)
    assert pruning_order(first) != pruning_order(second)
    assert pruning_order(random_criterion(0)(network, None, None)) == pruning_order(first)


def test_the_last_head_of_a_layer_stays():
    order = pruning_order([[0.0, 0.1], [5.0, 6.0, 7.0]])
    assert order == [(1, 1), (2, 1), (2, 2)]


def test_theory_predictor_makes_a_curve_too():
    rng = np.random.default_rng(9)
    _, xi, y = planted(rng)
    solution = solve_order_parameter(xi[:150], y[:150], Architecture((3, 2), 10), 0.1)
    for resolve in (False, True):
        theory = TheoryPredictor(xi[:150], y[:150], solution, 0.1, resolve)
        curve = pruning_curve(theory, head_scores(solution), xi[150:], y[150:], steps=2)
        assert curve.dropped.tolist() == [0, 1, 2]
        assert curve.accuracy[-1] > 0.85


def test_wilson_interval_is_the_score_interval():
    lower, upper = wilson_interval([0, 50, 100], 100)
    z, p, n = 1.959963984540054, 0.5, 100
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    np.testing.assert_allclose([lower[1], upper[1]], [0.5 - half, 0.5 + half], atol=1e-9)
    assert lower[0] == 0
    assert upper[2] == 1
    assert upper[0] > 0.03


def test_rank_correlation_of_unrelated_scores_has_uniform_p_values():
    rng = np.random.default_rng(10)
    p_values = []
    for _ in range(200):
        scores = [[rng.normal(size=4), rng.normal(size=4)] for _ in range(3)]
        lost = [[rng.normal(size=4), rng.normal(size=4)] for _ in range(3)]
        p_values.append(rank_correlation(scores, lost, permutations=200).p_value)
    assert abs(np.mean(p_values) - 0.5) < 0.08
    assert 0.01 < np.mean(np.array(p_values) <= 0.1) < 0.2


def test_rank_correlation_is_spearmans():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(11)
    a, b = rng.integers(5, size=8), rng.normal(size=8)  # with ties
    result = rank_correlation([[a[:4], a[4:]]], [[b[:4], b[4:]]], permutations=10)
    assert result.correlation == pytest.approx(spearmanr(a, b).statistic)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: kept_paths((2, 2), [(1, 3)]), "dropped must name heads"),
        (lambda: kept_paths((2, 2), [(0, 1)]), "dropped must be at least 1"),
        (lambda: kept_paths((2, 2), [(1, 1), (1, 2)]), "all of layer 1"),
        (lambda: kept_paths((2, 2), [1]), "dropped must name heads as"),
        (lambda: PathNetwork(np.eye(3), (2, 2)), "weights must have shape"),
        (lambda: PathNetwork(np.full((4, 1), np.nan), (2, 2)), "weights must be finite"),
        (lambda: pruning_order([[1.0, np.nan]]), "must not be NaN"),
        (
            lambda: pruning_curve(
                PathNetwork(np.eye(2), (2,)), magnitude_criterion, np.ones((3, 2, 2)), np.ones(3)
            ),
            "calibration must be given",
        ),
        (
            lambda: pruning_curve(
                PathNetwork(np.eye(2), (2,)), [[1, 2]], np.ones((3, 2, 2)), [0, 1, 1]
            ),
            r"y must hold the classes \+1 and -1",
        ),
        (
            lambda: pruning_curve(
                PathNetwork(np.eye(2), (2,)), [[1, 2], [3]], np.ones((3, 2, 2)), np.ones(3)
            ),
            "scores must hold 1 arrays",
        ),
        (lambda: wilson_interval([3], 2), "successes must be between"),
        (lambda: rank_correlation([[[1, 1, 1]]], [[[1, 2, 3]]]), "must vary"),
        (lambda: rank_correlation([[[1, 2, 3]]], [[[1, 2]]]), r"lost\[0\] must name 3 heads"),
        (lambda: empirical_order_parameter(np.ones(3)), "weights must have shape"),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
