"""The hidden Markov chain task is the paper's: its chain, its noise, its heads."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnpaths import (
    Architecture,
    bilinear_attention,
    gp_order_parameter,
    predict,
    solve_order_parameter,
)
from attnpaths.published import published_case
from attnpaths.tasks.hidden_markov import (
    HiddenMarkovChain,
    four_path_heads,
    good_path_heads,
    path_labels,
    previous_token_head,
    random_head,
    sample_path_inputs,
    task_path_inputs,
    two_path_heads,
    uniform_head,
)

PAPER = HiddenMarkovChain()


@pytest.fixture(scope="module")
def sequences():
    return HiddenMarkovChain(sigma_perp=5.0).sample(400, seed=0)


def noise_of(task, data):
    """Observation minus state vector, split into the plane of the two states and the rest."""
    clean = np.where(data.states[..., None] > 0, task.plus, task.minus)
    noise = data.x[:, 1:, : task.dimension] - clean
    basis = np.stack([task.plus, task.minus]) / np.linalg.norm(task.plus)
    inside = noise @ basis.T
    return inside, noise - inside @ basis


def test_settings_are_the_paper_s():
    assert (PAPER.length, PAPER.dimension, PAPER.tokens, PAPER.features) == (30, 200, 31, 231)
    assert (PAPER.stay, PAPER.sigma_parallel, PAPER.sigma_perp, PAPER.beta) == (0.7, 1.0, 1.0, 10.0)


def test_state_vectors_are_orthogonal_and_of_norm_squared_200():
    assert PAPER.plus @ PAPER.minus == 0
    assert PAPER.plus @ PAPER.plus == pytest.approx(200)
    assert PAPER.minus @ PAPER.minus == pytest.approx(200)
    np.testing.assert_allclose(PAPER.plus[:100], np.sqrt(2))


def test_a_sequence_is_a_start_token_of_zeros_then_thirty_observations(sequences):
    assert sequences.x.shape == (400, 31, 231)
    assert sequences.states.shape == (400, 30)
    assert not sequences.x[:, 0, :200].any()
    assert np.array_equal(sequences.x[7, :, 200:], np.eye(31))


def test_classes_stay_with_probability_070_and_030():
    data = HiddenMarkovChain(dimension=2).sample(4000, seed=1)
    stays = (data.states[:, 1:] == data.states[:, :-1]).mean(axis=1)
    for label, probability in ((1, 0.7), (-1, 0.3)):
        chosen = stays[data.y == label]
        error = np.sqrt(0.7 * 0.3 / 29 / len(chosen))
        assert abs(chosen.mean() - probability) < 5 * error


def test_the_first_state_is_a_fair_coin_in_both_classes():
    data = HiddenMarkovChain(length=2, dimension=2).sample(4000, seed=2)
    for label in (1, -1):
        first = data.states[data.y == label, 0]
        assert abs(first.mean()) < 5 / np.sqrt(len(first))


def test_noise_has_strength_1_in_the_plane_of_the_states_and_sigma_perp_outside(sequences):
    task = HiddenMarkovChain(sigma_perp=5.0)
    inside, outside = noise_of(task, sequences)
    # 24,000 numbers inside and 2.4 million outside: 1 % is more than twice the standard error.
    assert inside.std() == pytest.approx(1.0, rel=0.02)
    assert np.sqrt((outside**2).sum(axis=-1).mean() / 198) == pytest.approx(5.0, rel=0.01)
    assert abs(np.corrcoef(inside[..., 0].ravel(), inside[..., 1].ravel())[0, 1]) < 0.05


def test_noise_can_be_switched_off_in_either_part():
    data = HiddenMarkovChain(sigma_parallel=0.0).sample(10, seed=0)
    inside, outside = noise_of(PAPER, data)
    np.testing.assert_allclose(inside, 0, atol=1e-12)
    assert outside.std() > 0.5
    silent = HiddenMarkovChain(sigma_parallel=0.0, sigma_perp=0.0).sample(10, seed=0)
    for part in noise_of(PAPER, silent):
        np.testing.assert_allclose(part, 0, atol=1e-12)


@settings(deadline=None, max_examples=25)
@given(examples=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
def test_half_of_each_class_the_odd_one_stays(examples, seed):
    y = HiddenMarkovChain(length=2, dimension=2).sample(examples, seed).y
    assert set(y) <= {1.0, -1.0}
    assert y.sum() == examples % 2


def test_classes_can_be_fair_coins_instead():
    task = HiddenMarkovChain(length=2, dimension=2)
    sums = {task.sample(20, seed, balanced=False).y.sum() for seed in range(20)}
    assert len(sums) > 3


def test_a_seed_fixes_the_data_and_another_changes_them():
    first, again, other = (PAPER.sample(5, seed) for seed in (3, 3, 4))
    assert np.array_equal(first.x, again.x)
    assert np.array_equal(first.y, again.y)
    assert not np.array_equal(first.x, other.x)
    generator = np.random.default_rng(3)
    assert np.array_equal(PAPER.sample(5, generator).x, first.x)
    assert not np.array_equal(PAPER.sample(5, generator).x, first.x)


def test_drawing_does_not_touch_numpys_global_state():
    np.random.seed(0)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    PAPER.sample(5, seed=1)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


def test_the_previous_token_head_has_the_stated_blocks():
    w = previous_token_head(PAPER) / PAPER.beta
    difference = PAPER.plus - PAPER.minus
    q = 2 * difference / (difference @ difference)
    np.testing.assert_allclose(w[:200, :200], np.outer(q, q))
    assert not w[:200, 200:].any()
    assert not w[200:, :200].any()
    positions = np.zeros((31, 31))
    for key in range(31):
        for query in range(31):
            if query >= 2 and key + 1 == query:
                positions[key, query] = 1.0
    positions[0, 1:] = 1.5
    np.testing.assert_array_equal(w[200:, 200:], positions)


def test_without_noise_the_previous_token_head_looks_back_only_to_its_own_state():
    task = HiddenMarkovChain(sigma_parallel=0.0, sigma_perp=0.0)
    data = task.sample(20, seed=0)
    attention = bilinear_attention(data.x, previous_token_head(task)[None])[:, 0]
    for query in range(2, 31):
        same = data.states[:, query - 1] == data.states[:, query - 2]
        back, start = attention[:, query, query - 1], attention[:, query, 0]
        # Scores: 20 or 0 for the previous token, 15 for the start, 10 for others in the same state.
        assert (back[same] > 0.98).all()
        assert (back[~same] < 1e-5).all()
        assert (start[~same] > 0.8).all()


def test_without_noise_the_good_path_counts_the_stays_but_for_a_leak():
    task = HiddenMarkovChain(sigma_parallel=0.0, sigma_perp=0.0)
    data = task.sample(50, seed=0)
    xi = task_path_inputs(data.x, good_path_heads(task))[:, 0, :200]
    stays = (data.states[:, 1:] == data.states[:, :-1]).sum(axis=1)
    counted = xi @ (task.plus + task.minus) / 200 * task.tokens
    # The start token scores nothing, so its own query averages the 30 observations. Where the chain
    # hopped, some attention leaks from the start to tokens in the same state.
    leak = counted - 30 / 31 - stays
    assert (leak > -0.02 * stays).all()
    assert (leak < 0.16 * (30 - stays)).all()


def test_the_uniform_head_averages():
    data = PAPER.sample(3, seed=0)
    attention = bilinear_attention(data.x, uniform_head(PAPER)[None])
    np.testing.assert_allclose(attention, 1 / 31)


def test_the_random_head_has_the_stated_scales():
    w = random_head(PAPER, seed=0) / PAPER.beta
    assert w[:200, :200].std() == pytest.approx(1 / 200, rel=0.02)
    assert w[200:, 200:].std() == pytest.approx(1.0, rel=0.1)
    for cross in (w[:200, 200:], w[200:, :200]):
        assert cross.std() == pytest.approx(200**-0.5, rel=0.05)
    assert not np.array_equal(w, random_head(PAPER, seed=1) / PAPER.beta)


def test_paths_and_their_names_in_order():
    assert path_labels((2, 2)) == ["g", "a12", "d", "a22"]
    assert path_labels((2, 1)) == ["g", "d"]
    data = PAPER.sample(4, seed=0)
    heads = four_path_heads(PAPER, seed=5)
    xi = task_path_inputs(data.x, heads)
    assert xi.shape == (4, 4, 231)
    good = task_path_inputs(data.x, good_path_heads(PAPER))
    np.testing.assert_allclose(xi[:, [0]], good)
    denoising = task_path_inputs(data.x, [heads[0][1:], heads[1][:1]])
    np.testing.assert_allclose(xi[:, [2]], denoising)
    assert not np.allclose(heads[0][1], heads[1][1]), "the two random heads are drawn apart"


def test_the_two_path_network_averages_in_its_denoising_path():
    data = PAPER.sample(4, seed=0)
    xi = task_path_inputs(data.x, two_path_heads(PAPER))
    np.testing.assert_allclose(xi[:, 1], data.x.mean(axis=1))


def test_path_inputs_drawn_in_chunks_are_those_of_the_sequences():
    heads = two_path_heads(PAPER)
    xi, y = sample_path_inputs(PAPER, heads, 25, seed=0, chunk=10)
    rng = np.random.default_rng(0)
    parts = [PAPER.sample(count, rng) for count in (10, 10, 5)]
    np.testing.assert_allclose(xi, np.concatenate([task_path_inputs(p.x, heads) for p in parts]))
    assert np.array_equal(y, np.concatenate([p.y for p in parts]))


def solved(task, heads, seed, widths):
    rng = np.random.default_rng(seed)
    xi, y = sample_path_inputs(task, heads, 100, rng)
    xi_new, y_new = sample_path_inputs(task, heads, 400, rng)
    network = Architecture(tuple(len(w) for w in heads), widths)
    accuracy = {}
    for name, order in {
        "gp": gp_order_parameter(network),
        "theory": solve_order_parameter(xi, y, network, 0.01),
    }.items():
        mean = predict(xi, y, xi_new, order, 0.01).mean
        accuracy[name] = float(np.mean(np.sign(mean) == y_new))
    return order.matrix, accuracy


@pytest.mark.parametrize("seed", [0, 1])
def test_a_narrow_network_subtracts_the_denoising_path_and_beats_the_gp(seed):
    U, accuracy = solved(PAPER, four_path_heads(PAPER, seed), seed, 10)
    assert U[0, 2] < -2, "g and d are weighed with opposite signs"
    assert max(U[1, 1], U[3, 3]) < 1 < min(U[0, 0], U[2, 2]) / 3, "adversarial paths shrink"
    assert accuracy["theory"] > accuracy["gp"] + 0.03


def test_the_order_parameter_of_a_wide_network_is_close_to_the_identity():
    U, _ = solved(PAPER, four_path_heads(PAPER, 0), 0, 1e6)
    np.testing.assert_allclose(U, np.eye(4), atol=0.01)


def test_with_loud_noise_the_denoising_path_carries_the_good_one():
    task = HiddenMarkovChain(sigma_perp=5.0)
    _, both = solved(task, two_path_heads(task), 0, 10)
    _, alone = solved(task, good_path_heads(task), 0, 10)
    assert both["theory"] > 0.88
    assert alone["gp"] < 0.7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "task", "make_heads"),
    [
        ("four_paths", PAPER, four_path_heads),
        ("two_paths_noisy", HiddenMarkovChain(sigma_perp=5.0), two_path_heads),
    ],
)
def test_the_published_order_parameters_are_one_draw_of_ours(case, task, make_heads):
    figures = published_case(case)
    index = int(np.flatnonzero(figures["widths"] == 10)[0])
    draws = []
    for seed in range(12):
        heads = make_heads(task, seed) if make_heads is four_path_heads else make_heads(task)
        xi, y = sample_path_inputs(task, heads, 100, seed)
        network = Architecture(tuple(len(w) for w in heads), 10)
        draws.append(solve_order_parameter(xi, y, network, 0.01).matrix)
    # Four standard deviations: this fails for another task, hardly for another draw.
    z = (figures["U"][index] - np.mean(draws, axis=0)) / np.std(draws, axis=0, ddof=1)
    assert np.abs(z).max() < 4


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("length", 1),
        ("length", 2.5),
        ("length", True),
        ("dimension", 0),
        ("dimension", 7),
        ("stay", 0.0),
        ("stay", 1.0),
        ("stay", "0.7"),
        ("sigma_parallel", -1.0),
        ("sigma_perp", -0.1),
        ("sigma_perp", float("nan")),
        ("beta", float("inf")),
    ],
)
def test_a_bad_setting_is_named(setting, value):
    with pytest.raises(ValueError, match=setting):
        HiddenMarkovChain(**{setting: value})


@settings(deadline=None, max_examples=25)
@given(value=st.one_of(st.floats(max_value=0), st.sampled_from([float("nan"), "10", None, [3]])))
def test_a_bad_number_of_examples_is_named(value):
    with pytest.raises(ValueError, match="examples"):
        PAPER.sample(value)


@settings(deadline=None, max_examples=25)
@given(seed=st.one_of(st.integers(max_value=-1), st.floats(0.1, 0.9), st.sampled_from(["0", True])))
def test_a_bad_seed_is_named(seed):
    with pytest.raises(ValueError, match="seed"):
        HiddenMarkovChain(length=2, dimension=2).sample(2, seed)


def test_bad_path_input_requests_are_named():
    with pytest.raises(ValueError, match="chunk"):
        sample_path_inputs(PAPER, two_path_heads(PAPER), 10, 0, chunk=5)
    with pytest.raises(ValueError, match="x must have shape"):
        task_path_inputs(np.ones((31, 231)), two_path_heads(PAPER))
    with pytest.raises(ValueError, match="w must have shape"):
        task_path_inputs(np.ones((2, 31, 230)), two_path_heads(PAPER))
