"""Odd input to every public function: the right answer, or a ValueError that names the argument."""

import inspect
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import attnpaths
from attnpaths import (
    Architecture,
    AttentionPathModel,
    BilinearAttention,
    QueryKeyAttention,
    gp_order_parameter,
)
from attnpaths.model import encode_target

RNG = np.random.default_rng(7)
P, T, N0, HEADS = 6, 3, 4, (2, 2)
NETWORK = Architecture(HEADS, 10)
GP = gp_order_parameter(NETWORK)


def whole(*shape):
    """Small whole numbers: the same in float32 and as integers."""
    return RNG.integers(-3, 4, size=shape).astype(float)


X, XI, XI_NEW = whole(P, T, N0), whole(P, 4, N0), whole(5, 4, N0)
Y = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
U = np.diag([3.0, 1.0, 2.0, 1.0])
WEIGHTS = BilinearAttention([whole(2, N0, N0), whole(2, N0, N0)])
ATTENTIONS = [np.full((P, 2, T, T), 0.5), np.full((P, 2, T, T), 0.25)]


def fit(x, y):
    return AttentionPathModel(WEIGHTS, 10, 0.5).fit(x, y).decision_function(X)


def fitted(x):
    return AttentionPathModel(WEIGHTS, 10, 0.5).fit(X, Y).predict(x, return_std=True)


def scored(x, y):
    return AttentionPathModel(WEIGHTS, 10, 0.5).fit(X, Y).score(x, y)


def laplace(xi, y):
    solution = attnpaths.solve_order_parameter(xi, y, NETWORK, 0.5)
    return attnpaths.laplace_approximation(solution).mean


def sampled(xi, y):
    return attnpaths.sample_posterior(
        xi, y, NETWORK, 0.5, draws=4, warmup=4, chains=1, seed=0, n_jobs=1, progress=False
    ).order_parameter


# Every public function with arguments that are right; arrays among them are spoilt below.
CALLS = {
    "bilinear_attention": (attnpaths.bilinear_attention, {"x": X, "w": whole(2, N0, N0)}),
    "query_key_attention": (
        attnpaths.query_key_attention,
        {"x": X, "q": whole(2, 5, N0), "k": whole(2, 5, N0)},
    ),
    "path_inputs": (
        lambda x, attentions: attnpaths.path_inputs(x, [attentions, attentions]),
        {"x": X, "attentions": ATTENTIONS[0]},
    ),
    "path_kernels": (attnpaths.path_kernels, {"xi": XI, "xi_other": XI_NEW}),
    "kernel": (attnpaths.kernel, {"xi": XI, "U": U, "xi_other": XI_NEW}),
    "kernel_task_alignment": (
        attnpaths.kernel_task_alignment,
        {"K": np.diag([3.0, 1.0, 2.0, 6.0, 4.0, 5.0]), "y": Y},
    ),
    "action": (
        lambda xi, y, layers: attnpaths.action(xi, y, [layers, GP.layers[1]], NETWORK, 0.5),
        {"xi": XI, "y": Y, "layers": U},
    ),
    "solve_order_parameter": (
        lambda xi, y: attnpaths.solve_order_parameter(xi, y, NETWORK, 0.5).layers,
        {"xi": XI, "y": Y},
    ),
    "predict": (
        lambda xi, y, xi_new: attnpaths.predict(xi, y, xi_new, GP, 0.5),
        {"xi": XI, "y": Y, "xi_new": XI_NEW},
    ),
    "head_scores": (
        lambda order_parameter: attnpaths.head_scores(order_parameter, NETWORK),
        {"order_parameter": U},
    ),
    "BilinearAttention": (
        lambda weights: BilinearAttention([weights])(X),
        {"weights": whole(2, N0, N0)},
    ),
    "QueryKeyAttention": (
        lambda queries, keys: QueryKeyAttention([queries], [keys])(X),
        {"queries": whole(2, 5, N0), "keys": whole(2, 5, N0)},
    ),
    "laplace_approximation": (laplace, {"xi": XI, "y": Y}),
    "sample_posterior": (sampled, {"xi": XI, "y": Y}),
    "AttentionPathModel.fit": (fit, {"x": X, "y": Y}),
    "AttentionPathModel.predict": (fitted, {"x": X}),
    "AttentionPathModel.score": (scored, {"x": X, "y": Y}),
}
ARGUMENTS = [(name, key) for name, (_, arguments) in CALLS.items() for key in arguments]
# Public names that take no arrays of data, or are tested in a file of their own.
NO_ARRAYS = {
    *("Action", "Architecture", "AttentionPathModel", "ConvergenceWarning", "OrderParameter"),
    *("Laplace", "Posterior", "Prediction", "SamplingWarning", "gp_order_parameter", "path_names"),
}


def strided(array):
    spaced = np.zeros((*array.shape[:-1], 2 * array.shape[-1]))
    spaced[..., ::2] = array
    return spaced[..., ::2]


def read_only(array):
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def backwards(array):
    return array[::-1].copy()[::-1]


SAME_VALUES = {
    "Fortran order": np.asfortranarray,
    "strided": strided,
    "negative stride": backwards,
    "read-only": read_only,
    "float32": lambda array: array.astype(np.float32),
    "float16": lambda array: array.astype(np.float16),
    "long double": lambda array: array.astype(np.longdouble),
    "big endian": lambda array: array.astype(">f8"),
    "list": lambda array: array.tolist(),
    "masked": np.ma.masked_array,
    "memory map's class": lambda array: array.view(np.memmap),
}


def outcome(function, *arguments, **keywords):
    """Result and no message, or no result and the message of the ValueError."""
    try:
        return function(*arguments, **keywords), ""
    except ValueError as error:
        return None, str(error) or "no message"


def flat(result):
    """All numbers of a result, whatever its form."""
    if isinstance(result, np.ndarray):
        return result.ravel()
    if np.iterable(result):
        return np.concatenate([flat(part) for part in result])
    return np.array([result], dtype=float)


def test_every_public_function_is_in_the_table():
    covered = {name.split(".")[0] for name in CALLS} | NO_ARRAYS
    assert set(attnpaths.__all__) <= covered


@pytest.mark.parametrize("form", SAME_VALUES)
@pytest.mark.parametrize(("name", "key"), ARGUMENTS)
def test_the_form_of_an_array_does_not_matter(name, key, form):
    function, arguments = CALLS[name]
    expected = flat(function(**arguments))
    before = {k: v.copy() for k, v in arguments.items()}
    result = flat(function(**arguments | {key: SAME_VALUES[form](arguments[key])}))
    assert result.dtype == np.float64
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)
    for k, v in arguments.items():
        np.testing.assert_array_equal(v, before[k])


@pytest.mark.parametrize("name", CALLS)
def test_results_lie_in_memory_as_they_are_indexed(name):
    # safetensors, for one, writes the memory of an array and silently ignores its strides.
    function, arguments = CALLS[name]
    result = function(**arguments)
    several = isinstance(result, (tuple, list))
    for array in result if several else [result]:
        assert np.asarray(array).flags.c_contiguous


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint8])
@pytest.mark.parametrize(("name", "key"), ARGUMENTS)
def test_integers_are_numbers(name, key, kind):
    function, arguments = CALLS[name]
    value = np.rint(arguments[key])
    if key == "y" or not np.all(value == arguments[key]) or (kind is np.uint8 and value.min() < 0):
        # ints as labels are classes in the estimator; the rest has no such whole numbers
        value = np.abs(value) + np.eye(value.shape[-1])[0] if value.ndim > 1 else value
        kind = np.int64
    expected = flat(function(**arguments | {key: value}))
    result = flat(function(**arguments | {key: value.astype(kind)}))
    np.testing.assert_allclose(result, expected, rtol=1e-9, atol=1e-12)


def put(value):
    def spoil(array):
        spoilt = array.copy()
        spoilt.flat[array.size // 2] = value
        return spoilt

    return spoil


SPOILT = {
    "NaN": put(np.nan),
    "infinite": put(np.inf),
    "minus infinite": put(-np.inf),
    "empty": lambda array: array[:0],
    "no features": lambda array: array[..., :0],
    "one axis more": lambda array: array[None, None],
    "a number": lambda array: 1.0,
    "None": lambda array: None,
    "complex": lambda array: array.astype(complex),
    "words": lambda array: np.full(array.shape, "word"),
    "objects": lambda array: np.full(array.shape, object()),
    "ragged": lambda array: [[1.0, 2.0], [3.0]],
    "dates": lambda array: np.full(array.shape, np.datetime64("2024-01-01")),
    "a mapping": lambda array: {"a": 1},
    "a function": lambda array: np.sum,
}
# What is not wrong for these.
RIGHT = {
    ("path_kernels", "xi_other", "None"),  # the default
    ("kernel", "xi_other", "None"),
    ("kernel_task_alignment", "y", "one axis more"),  # labels of several outputs are flattened
}


@pytest.mark.parametrize("fault", SPOILT)
@pytest.mark.parametrize(("name", "key"), ARGUMENTS)
def test_what_is_wrong_is_named(name, key, fault):
    function, arguments = CALLS[name]
    spoilt = arguments | {key: SPOILT[fault](arguments[key])}
    if (name, key, fault) in RIGHT:
        function(**spoilt)
        return
    with pytest.raises(ValueError, match=rf"^{key}") as caught:
        function(**spoilt)
    assert len(str(caught.value)) < 300


# Arguments whose last axis may have any size.
FREE_FEATURES = {
    ("path_inputs", "x"),
    ("action", "xi"),
    ("solve_order_parameter", "xi"),
    ("laplace_approximation", "xi"),
    ("sample_posterior", "xi"),
}


@pytest.mark.parametrize(("name", "key"), ARGUMENTS)
def test_a_shape_that_does_not_fit_the_others_is_an_error(name, key):
    function, arguments = CALLS[name]
    if (name, key) in FREE_FEATURES:
        return
    array = arguments[key]
    changed = array[:-1] if array.ndim == 1 else array[..., :-1]
    with pytest.raises(ValueError, match=r"must"):
        function(**arguments | {key: changed})


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
@pytest.mark.parametrize(("name", "key"), ARGUMENTS)
def test_huge_and_tiny_numbers_end_in_numbers_or_an_error(name, key, scale):
    function, arguments = CALLS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result, message = outcome(function, **arguments | {key: scale * arguments[key]})
    if message:
        assert message.startswith((*arguments, "w", "temperature"))
    else:
        assert np.isfinite(flat(result)).all()


@pytest.mark.parametrize("temperature", [0, -1.0, np.nan, np.inf, "1", None, 1j, True, [1.0, 2.0]])
def test_temperature_must_be_a_positive_number(temperature):
    for call in (
        lambda: attnpaths.solve_order_parameter(XI, Y, NETWORK, temperature),
        lambda: attnpaths.action(XI, Y, GP.layers, NETWORK, temperature),
        lambda: attnpaths.sample_posterior(XI, Y, NETWORK, temperature),
        lambda: attnpaths.predict(XI, Y, XI_NEW, GP, temperature),
        lambda: AttentionPathModel(WEIGHTS, 10, temperature).fit(X, Y),
    ):
        with pytest.raises(ValueError, match=r"^temperature"):
            call()


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (((), 10), "heads"),
        (((0, 2), 10), "heads"),
        (((2.5,), 10), "heads"),
        (("ab", 10), "heads"),
        ((None, 10), "heads"),
        (((np.nan,), 10), "heads"),
        (((2,), 0), "widths"),
        (((2,), np.nan), "widths"),
        (((2,), np.inf), "widths"),
        (((2,), (10, 10, 10)), "widths"),
        (((2,), "10"), "widths"),
        (((2,), None), "widths"),
        (((2,), 10, 0.0), "variances"),
        (((2,), 10, (1, 1)), "variances"),
        (((2,), 10, [1, -1, 1]), "variances"),
        (((2,), 10, {"s_0": 1.0}), "variances"),
    ],
)
def test_an_impossible_network_is_an_error(arguments, name):
    with pytest.raises(ValueError, match=rf"^{name}"):
        Architecture(*arguments)


@pytest.mark.parametrize("value", [None, "u", 3, np.eye(4), (2, 2)])
def test_what_is_no_network_and_no_solution_is_an_error(value):
    with pytest.raises(ValueError, match=r"^architecture"):
        attnpaths.solve_order_parameter(XI, Y, value, 0.5)
    with pytest.raises(ValueError, match=r"^architecture"):
        gp_order_parameter(value)
    with pytest.raises(ValueError, match=r"^architecture"):
        attnpaths.sample_posterior(XI, Y, value, 0.5)
    with pytest.raises(ValueError, match=r"^order_parameter"):
        attnpaths.laplace_approximation(value)
    with pytest.raises(ValueError, match=r"^order_parameter"):
        attnpaths.predict(XI, Y, XI_NEW, value, 0.5)
    with pytest.raises(ValueError, match=r"^n_outputs"):
        gp_order_parameter(NETWORK, "one")


@settings(max_examples=60, deadline=None)
@given(
    x=hnp.arrays(
        st.sampled_from([np.float64, np.float32, np.int16, bool, "U2", complex, object]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    )
)
def test_any_array_as_tokens(x):
    attention, message = outcome(WEIGHTS, x)
    if message:
        assert message.startswith(("x ", "w "))
        return
    assert attention[0].shape == (len(x), 2, x.shape[1], x.shape[1])
    np.testing.assert_allclose(attention[0].sum(axis=-1), 1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(st.floats(), st.integers(), st.text(max_size=3), st.booleans(), st.none()),
        max_size=6,
    )
)
def test_any_list_as_labels(labels):
    target, message = outcome(encode_target, labels)
    if message:
        assert message.startswith("y ")
        return
    assert len(target.values) == len(labels)
    assert np.isfinite(target.values).all()
    if target.classes is not None:
        codes = target.values > 0 if target.values.ndim == 1 else target.values.argmax(axis=1)
        decoded = target.classes[np.asarray(codes, dtype=int)]
        assert [str(d) for d in decoded] == [str(v) for v in np.asarray(labels)]


@settings(max_examples=40, deadline=None)
@given(
    examples=st.integers(1, 12),
    features=st.integers(1, 5),
    heads=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    width=st.floats(1, 1e6),
    temperature=st.floats(1e-3, 1e3),
    outputs=st.sampled_from([None, 1, 2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_sizes_can_be_solved(examples, features, heads, width, temperature, outputs, seed):
    rng = np.random.default_rng(seed)
    network = Architecture(heads, width)
    xi = rng.normal(size=(examples, network.paths, features))
    y = rng.normal(size=examples if outputs is None else (examples, outputs))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", attnpaths.ConvergenceWarning)
        solution = attnpaths.solve_order_parameter(xi, y, network, temperature)
    assert np.linalg.eigvalsh(solution.matrix)[0] > 0
    start = gp_order_parameter(network, outputs or 1)
    at_start = attnpaths.action(xi, y, start.layers, network, temperature, start.readout)
    assert solution.action <= at_start.total + 1e-9 * abs(at_start.total)
    prediction = attnpaths.predict(xi, y, xi[:1], solution, temperature)
    assert prediction.mean.shape == prediction.variance.shape == y[:1].shape
    assert (prediction.variance >= 0).all()


def test_public_functions_have_docstrings_with_their_arguments():
    for name in attnpaths.__all__:
        value = getattr(attnpaths, name)
        assert inspect.getdoc(value), name
        if inspect.isfunction(value):
            for argument in inspect.signature(value).parameters:
                assert argument in inspect.getdoc(value), (name, argument)
