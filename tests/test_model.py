"""The estimator as a scikit-learn user meets it."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score

from attnpaths import (
    Architecture,
    AttentionPathModel,
    BilinearAttention,
    QueryKeyAttention,
    head_scores,
    laplace_approximation,
    predict,
    query_key_attention,
    solve_order_parameter,
)
from attnpaths.model import encode_target
from attnpaths.tasks.hidden_markov import (
    HiddenMarkovChain,
    four_path_heads,
    task_path_inputs,
)


@pytest.fixture(scope="module")
def chain():
    task = HiddenMarkovChain(length=12, dimension=20)
    heads = four_path_heads(task, seed=0)
    return BilinearAttention(heads), task.sample(60, seed=1), task.sample(80, seed=2), heads


@pytest.fixture
def small():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(24, 4, 3))
    attention = QueryKeyAttention(
        [rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5, 3))],
        [rng.normal(size=(2, 5, 3)), rng.normal(size=(2, 5, 3))],
    )
    return attention, x, x[:, :, 0].mean(axis=1)


def test_it_is_the_functions_of_the_package_put_together(chain):
    attention, train, test, heads = chain
    model = AttentionPathModel(attention, 10, 0.01, readout="last").fit(train.x, train.y)
    xi, xi_test = task_path_inputs(train.x, heads), task_path_inputs(test.x, heads)
    solution = solve_order_parameter(xi, train.y, Architecture((2, 2), 10), 0.01)
    by_hand = predict(xi, train.y, xi_test, solution, 0.01)
    mean, std = model.predict(test.x, return_std=True)
    np.testing.assert_allclose(mean, by_hand.mean, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(std**2, by_hand.variance, rtol=1e-6)
    np.testing.assert_array_equal(model.predict(test.x), np.sign(by_hand.mean))
    assert model.score(test.x, test.y) == np.mean(np.sign(by_hand.mean) == test.y)
    for ours, theirs in zip(model.head_scores_, head_scores(solution), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert model.temperature_ == 0.01
    assert model.n_features_in_ == train.x.shape[2]


def test_the_constructor_only_stores_and_clone_copies_parameters(small):
    attention, x, y = small
    model = AttentionPathModel(attention, [5, 6, 7], 0.1, variances=2.0).fit(x, y)
    other = clone(model)
    assert not hasattr(other, "order_parameter_")
    assert other.get_params()["widths"] == [5, 6, 7]
    assert other.set_params(temperature=0.3) is other
    assert other.temperature == 0.3
    assert model.temperature == 0.1
    # Wrong values are told at fit, as everywhere in scikit-learn.
    wrong = AttentionPathModel(attention, 5, -1.0)
    with pytest.raises(ValueError, match="temperature"):
        wrong.fit(x, y)


def test_a_pickled_model_predicts_the_same(small):
    attention, x, y = small
    model = AttentionPathModel(attention, 10, 0.1).fit(x, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(model.predict(x), again.predict(x))


def test_grid_search_over_width_and_temperature(chain):
    attention, train, test, _ = chain
    search = GridSearchCV(
        AttentionPathModel(attention, 10, 0.1, readout="last", task="classification"),
        {"widths": [10, 300], "temperature": [0.01, 1.0]},
        cv=3,
    ).fit(train.x, train.y)
    assert set(search.best_params_) == {"widths", "temperature"}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.score(test.x, test.y) == search.best_estimator_.score(test.x, test.y) > 0.55
    assert cross_val_score(search.best_estimator_, train.x, train.y, cv=2).shape == (2,)


def test_any_two_labels_make_the_same_classifier(chain):
    attention, train, test, _ = chain
    numbers = AttentionPathModel(attention, 10, 0.1, readout="last").fit(train.x, train.y)
    words = np.where(train.y > 0, "stay", "hop")
    named = AttentionPathModel(attention, 10, 0.1, readout="last").fit(train.x, words)
    assert list(named.classes_) == ["hop", "stay"]
    np.testing.assert_array_equal(named.decision_function(test.x), numbers.predict(test.x, True)[0])
    np.testing.assert_array_equal(named.predict(test.x) == "stay", numbers.predict(test.x) == 1)
    assert named.score(test.x, np.where(test.y > 0, "stay", "hop")) == numbers.score(test.x, test.y)
    listed = AttentionPathModel(attention, 10, 0.1, readout="last").fit(train.x, list(words))
    assert listed.score(train.x, list(words)) == named.score(train.x, words)
    flags = AttentionPathModel(attention, 10, 0.1, readout="last").fit(train.x, train.y > 0)
    assert flags.predict(test.x).dtype == bool


def test_three_classes_have_one_output_each(small):
    attention, x, _ = small
    means = x.mean(axis=1) @ np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    labels = np.array(["a", "b", "c"])[np.argmax(np.c_[means, -means.sum(axis=1)], axis=1)]
    model = AttentionPathModel(attention, 20, 0.01).fit(x, labels)
    assert list(model.classes_) == ["a", "b", "c"]
    mean, std = model.predict(x, return_std=True)
    assert mean.shape == std.shape == (24, 3)
    np.testing.assert_allclose(mean.sum(axis=1), 0, atol=1e-6)
    np.testing.assert_array_equal(model.predict(x), model.classes_[mean.argmax(axis=1)])
    assert model.score(x, labels) > 0.8
    assert model.order_parameter_.n_outputs == 3


def test_real_targets_are_regressed(small):
    attention, x, y = small
    model = AttentionPathModel(attention, 20, 1e-3).fit(x, y)
    assert not hasattr(model, "classes_")
    assert model.score(x, y) > 0.9
    several = AttentionPathModel(attention, 20, 1e-3).fit(x, np.c_[y, -2 * y])
    assert several.predict(x).shape == (24, 2)
    assert several.score(x, np.c_[y, -2 * y]) > 0.9
    # A second fit forgets the classes of the first.
    assert not hasattr(model.fit(x, y > 0).fit(x, y), "classes_")


@pytest.mark.parametrize(
    ("labels", "classification"),
    [
        ([0, 1, 2, 1], True),
        ([True, False, True, True], True),
        (["a", "b", "c", "a"], True),
        (np.array(["a", "b", "a", "b"], dtype=object), True),
        ([1.0, -1.0, 1.0, 1.0], True),
        ([0.5, 1.0, 2.0, 1.0], False),
        ([3.0, 3.0, 3.0, 3.0], False),
        ([[1, 0], [0, 1], [1, 1], [0, 0]], False),
        ([[1.0], [-1.0], [1.0], [1.0]], True),
    ],
)
def test_the_rule_that_tells_classes_from_targets(labels, classification):
    target = encode_target(labels)
    assert (target.classes is not None) == classification
    assert len(target.values) == 4


def test_the_rule_can_be_overruled(small):
    attention, x, y = small
    counts = np.arange(24)
    assert encode_target(counts, "regression").classes is None
    assert encode_target([0.5, 1.0, 2.0], "classification").values.shape == (3, 3)
    model = AttentionPathModel(attention, 20, 0.1, task="regression")
    assert is_regressor(model)
    assert is_classifier(AttentionPathModel(attention, 20, 0.1, task="classification"))
    assert is_classifier(AttentionPathModel(attention, 20, 0.1).fit(x, y > 0))
    # Two values fitted as numbers: the mean comes back, and R^2.
    sign = np.where(y > 0, 1.0, -1.0)
    assert len(np.unique(model.fit(x, sign).predict(x))) > 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", "a", "a"], "two classes"),
        ([1.0, np.nan, 2.0], "finite"),
        ([None, "a", "b"], "one type"),
        ([], "empty"),
        ([1j, 2, 3], "complex"),
        (np.zeros((2, 2, 2)), "shape"),
        ([["a", "b"], ["b", "a"]], "one column"),
        ([[1, 2], [3]], "y must"),
    ],
)
def test_labels_that_make_no_sense_are_named(labels, message):
    with pytest.raises(ValueError, match=message) as caught:
        encode_target(labels)
    assert str(caught.value).startswith("y ")


def test_evidence_finds_the_noise_that_made_the_labels(small):
    attention, _, _ = small
    rng = np.random.default_rng(8)
    x = rng.normal(size=(150, 4, 3))
    signal = AttentionPathModel(attention, 20, 1e-3).fit(x[:30], x[:30, :, 0].mean(axis=1))
    clean = signal.predict(x)
    for noise in (0.01, 0.1):
        y = clean + np.sqrt(noise) * rng.normal(size=150)
        model = AttentionPathModel(attention, 200, "evidence").fit(x, y)
        assert 0.6 * noise < model.temperature_ < 1.6 * noise


def test_evidence_is_no_worse_at_its_choice_than_beside_it(small):
    attention, x, y = small
    y = y + 0.3 * np.random.default_rng(4).normal(size=24)
    model = AttentionPathModel(attention, 20, "evidence").fit(x, y)

    def evidence(temperature):
        other = AttentionPathModel(attention, 20, temperature).fit(x, y)
        return laplace_approximation(other.order_parameter_).log_evidence

    chosen = evidence(model.temperature_)
    assert chosen >= evidence(0.8 * model.temperature_) - 1e-6
    assert chosen >= evidence(1.25 * model.temperature_) - 1e-6


def test_evidence_without_laplace_follows_the_action(small):
    attention, x, y = small
    y = y + 0.3 * np.random.default_rng(4).normal(size=24)
    # Narrower than the order parameter of four paths, or not a whole number.
    for width in (2, 20.5):
        model = AttentionPathModel(attention, width, "evidence").fit(x, y)
        actions = [
            AttentionPathModel(attention, width, factor * model.temperature_)
            .fit(x, y)
            .order_parameter_.action
            for factor in (1.0, 0.7, 1.4)
        ]
        assert actions[0] == min(actions)


def test_wrong_arguments_are_named(small):
    attention, x, y = small
    for keywords, name in [
        ({"widths": 0}, "widths"),
        ({"widths": [5, 5]}, "widths"),
        ({"widths": "wide"}, "widths"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": "best"}, "temperature"),
        ({"temperature": np.nan}, "temperature"),
        ({"readout": "middle"}, "readout"),
        ({"variances": -1.0}, "variances"),
        ({"task": "ranking"}, "task"),
        ({"temperature_bounds": (1.0, 0.1)}, "temperature_bounds"),
        ({"attention": None}, "attention"),
        ({"attention": lambda x: np.ones((2, 2))}, "attention"),
        ({"attention": lambda x: [np.ones((2, 2))]}, "attention"),
    ]:
        arguments = {"attention": attention, "widths": 5, "temperature": 0.1} | keywords
        with pytest.raises(ValueError, match=rf"^{name}"):
            AttentionPathModel(**arguments).fit(x, y)
    model = AttentionPathModel(attention, 5, 0.1)
    with pytest.raises(NotFittedError):
        model.predict(x)
    with pytest.raises(ValueError, match=r"^x must have shape"):
        model.fit(x[0], y)
    with pytest.raises(ValueError, match=r"^y must have 24 entries"):
        model.fit(x, y[:-1])
    model.fit(x, y)
    with pytest.raises(ValueError, match=r"^x must have shape"):
        model.predict(x[:, :, :2])
    with pytest.raises(ValueError, match=r"^y must have shape"):
        model.score(x, y[:-1])
    with pytest.raises(ValueError, match=r"^y must hold classes"):
        model.fit(x, y > 0).score(x, np.where(y > 0, "yes", "no"))


def test_ready_made_attention_checks_its_matrices():
    with pytest.raises(ValueError, match="weights"):
        BilinearAttention(np.zeros((2, 3, 3)))
    with pytest.raises(ValueError, match="weights"):
        BilinearAttention([])
    with pytest.raises(ValueError, match=r"weights\[1\]"):
        BilinearAttention([np.zeros((2, 3, 3)), np.zeros((3, 3))])
    with pytest.raises(ValueError, match="keys"):
        QueryKeyAttention([np.zeros((2, 4, 3))], [np.zeros((2, 5, 3))])
    with pytest.raises(ValueError, match="nonlinearity"):
        QueryKeyAttention([np.zeros((2, 4, 3))], [np.zeros((2, 4, 3))], "relu")
    x, q = np.ones((2, 4, 3)), np.ones((1, 2, 3))
    np.testing.assert_array_equal(QueryKeyAttention([q], [q])(x)[0], query_key_attention(x, q, q))


def test_fitting_warns_of_nothing(small):
    attention, x, y = small
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        AttentionPathModel(attention, 20, "evidence").fit(x, y > 0).predict(x)
