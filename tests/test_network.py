"""The trained network: equal to the plain forward pass, trainable, resumable, shippable."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from attnpaths import path_inputs, query_key_attention  # noqa: E402
from attnpaths.cli import main  # noqa: E402
from attnpaths.network import AttentionPathNetwork, token_by_token  # noqa: E402
from attnpaths.pruning import empirical_order_parameter  # noqa: E402
from attnpaths.tasks import one_shot  # noqa: E402
from attnpaths.trained import (  # noqa: E402
    TrainedHeads,
    load_trained_heads,
    save_trained_heads,
    trained_heads_names,
)
from attnpaths.training import (  # noqa: E402
    TrainingConfig,
    accuracy,
    describe,
    fine_tune_network,
    gradients,
    one_shot_network,
    reduce_network,
    run_name,
    train,
)

SMALL = TrainingConfig(
    heads=(2, 3),
    key_width=5,
    width=12,
    batch=8,
    seed=3,
    checkpoint_every=4,
    validation_tasks=40,
    data="digits",
)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def digits():
    return {split: one_shot.load_images("digits", split) for split in one_shot.SPLITS}


def random_network(seed, heads, *, table=False, features=6, width=9, key_width=4, tokens=5):
    """Network with large weights, so that its attention is far from uniform; and examples."""
    rng = np.random.default_rng(seed)
    embedding = offset = None
    if table:
        embedding, offset = rng.normal(size=(features, 3)), rng.normal(size=(tokens, features))
    network = AttentionPathNetwork(
        features,
        heads,
        width,
        key_width,
        embedding=embedding,
        offset=offset,
        generator=torch.Generator().manual_seed(seed),
    ).double()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter *= 3
    p = torch.from_numpy(rng.normal(size=(7, tokens, 3 if table else features)))
    if not table:
        return network, p, p
    return network, p, p @ network.embedding.T + network.offset


def all_gradients(network, output):
    network.zero_grad()
    output.square().sum().backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


@settings(deadline=None, max_examples=25)
@given(
    heads=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    table=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_outputs_and_gradients_equal_the_token_by_token_pass(heads, table, seed):
    network, tokens, x = random_network(seed, heads, table=table)
    fast, plain = network(tokens), token_by_token(network, x)
    assert torch.allclose(fast, plain, rtol=1e-9, atol=1e-9 * float(plain.detach().abs().max()))
    for one, other in zip(all_gradients(network, fast), all_gradients(network, plain), strict=True):
        assert torch.allclose(one, other, rtol=1e-8, atol=1e-9 * float(other.abs().max()))


def test_outputs_and_gradients_equal_the_token_by_token_pass_at_the_papers_size(digits):
    config = TrainingConfig(heads=(4, 4), seed=1)
    network = one_shot_network(config)
    images = digits["train"]
    tasks = one_shot.draw_tasks(0, 8, images)
    embedding = one_shot.label_embedding(config.seed)
    x = torch.from_numpy(one_shot.task_tokens(images, tasks, embedding, np.float32))
    p = torch.from_numpy(images.patches[tasks.classes, tasks.drawings]).flatten(1, 2)
    fast, plain = network(p), token_by_token(network, x)
    assert torch.allclose(fast, plain, atol=1e-5 * float(plain.detach().abs().max()))
    for one, other in zip(all_gradients(network, fast), all_gradients(network, plain), strict=True):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


def test_the_network_agrees_with_the_core_packages_attention_and_paths():
    heads = (2, 3)
    network, tokens, x = random_network(5, heads, table=True)
    q, k = (part.detach().numpy() for part in (network.queries, network.keys))
    attentions = [query_key_attention(x, q[:2], k[:2]), query_key_attention(x, q[2:], k[2:])]
    xi = path_inputs(x.numpy(), attentions)
    reduced = network.path_network()
    np.testing.assert_allclose(reduced.predict(xi), network(tokens).detach().numpy(), rtol=1e-9)


def test_a_batch_in_pieces_has_the_gradient_of_the_whole():
    network, tokens, _ = random_network(6, (3, 2))
    y = torch.tensor([1.0, -1, 1, -1, 1, 1, -1], dtype=torch.float64)
    network.zero_grad()
    loss = (network(tokens) - y).square().mean()
    loss.backward()
    whole = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()
    assert gradients(network, tokens, y) == pytest.approx(loss.item(), rel=1e-12)
    for parameter, wanted in zip(network.parameters(), whole, strict=True):
        assert torch.allclose(parameter.grad, wanted, rtol=1e-9)


@settings(deadline=None, max_examples=25)
@given(
    dropped=st.sets(st.sampled_from([(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]), max_size=4).filter(
        lambda d: len([x for x in d if x[0] == 1]) < 3 and len([x for x in d if x[0] == 2]) < 2
    )
)
def test_dropping_heads_zeroes_their_values_and_rescales_the_layer(dropped):
    network, tokens, _ = random_network(7, (3, 2))
    smaller = network.without_heads(dropped)
    scale = 1.0
    zeroed = network.without_heads([])
    with torch.no_grad():
        for layer, head in dropped:
            zeroed.values[layer - 1][:, head - 1] = 0
    for whole, left in zip(network.heads, smaller.heads, strict=True):
        scale *= math.sqrt(whole / left)
    wanted = scale * zeroed(tokens)
    assert torch.allclose(smaller(tokens), wanted, atol=1e-9)
    # the network reduced to paths drops heads in the same way
    layers = network.queries.split(network.heads), network.keys.split(network.heads)
    attentions = [
        query_key_attention(tokens, q.detach().numpy(), k.detach().numpy())
        for q, k in zip(*layers, strict=True)
    ]
    reduced = network.path_network().drop(dropped)
    found = reduced.predict(path_inputs(tokens.numpy(), attentions))
    np.testing.assert_allclose(found, wanted.detach().numpy(), atol=1e-9)


def test_dropping_leaves_the_network_itself_alone():
    network, tokens, _ = random_network(8, (3, 2))
    before = network(tokens).detach()
    smaller = network.without_heads([(1, 2)])
    with torch.no_grad():
        for parameter in smaller.parameters():
            parameter += 1
    assert torch.equal(network(tokens), before)


def test_a_layer_cannot_lose_all_of_its_heads():
    network, _, _ = random_network(9, (3, 2))
    with pytest.raises(ValueError, match="layer 2"):
        network.without_heads([(2, 1), (2, 2)])


# -- order parameters --------------------------------------------------------------------------


def prior_network(seed, heads, width, features):
    """Network drawn from the theory's prior with unit variances."""
    network = AttentionPathNetwork(features, heads, width, 2).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (network.value_0, *network.values, network.readout):
            parameter.normal_(generator=generator).div_(math.sqrt(parameter.shape[-1]))
    return network


def test_order_parameters_of_a_network_from_the_prior_tend_to_the_identity():
    for U in prior_network(0, (2, 3), width=600, features=50).order_parameters():
        np.testing.assert_allclose(U, np.eye(len(U)), atol=0.3)


def test_order_parameter_is_the_gram_matrix_written_out():
    heads, width = (2, 3), 7
    network = prior_network(1, heads, width, 5)
    a, v0 = network.readout.detach().numpy(), network.value_0.detach().numpy()
    # the theory's weights, with their square roots taken out again: V2 (head, out, in)
    v1, v2 = (v.detach().numpy().transpose(1, 0, 2) * math.sqrt(width) for v in network.values)
    e = [
        a @ v2[h2] / math.sqrt(width) @ v1[h1] for h1 in range(2) for h2 in range(3)
    ]  # a carries its own 1 / sqrt(N_a)
    e = np.array(e)
    wanted = e @ e.T / width * np.mean(v0**2) * v0.shape[1]
    U1, U2 = network.order_parameters()
    np.testing.assert_allclose(U1, wanted, rtol=1e-9)
    assert U2.shape == (3, 3)


def test_order_parameters_do_not_change_when_one_layer_is_scaled_against_another():
    network = prior_network(2, (2, 2), 20, 10)
    before = network.order_parameters()
    with torch.no_grad():
        network.value_0 *= 5
        network.values[0] /= 10
        network.values[1] *= 2
    after = network.order_parameters()
    for one, other in zip(before, after, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_for_a_wide_random_v0_both_order_parameters_agree():
    network = prior_network(3, (2, 2), width=30, features=2000)
    U = network.order_parameters()[0]
    weights = network.path_network().weights
    np.testing.assert_allclose(
        empirical_order_parameter(weights), U, atol=0.15 * np.diagonal(U).max()
    )


# -- training ----------------------------------------------------------------------------------


def run_small(steps, digits, folder=None, config=SMALL):
    return train(
        config,
        steps,
        training=digits["train"],
        validation=digits["validation"],
        folder=folder,
        progress=False,
    )


def same_parameters(one, other):
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


def test_a_stopped_run_goes_on_to_the_result_of_an_uninterrupted_one(digits, tmp_path):
    whole = run_small(14, digits)
    run_small(5, digits, tmp_path)  # stops between checkpoints: goes on from the one at step 4
    resumed = run_small(14, digits, tmp_path)
    assert same_parameters(resumed.network, whole.network)
    assert resumed[1:] == whole[1:]


def test_a_killed_run_leaves_a_checkpoint_that_can_be_read(digits, tmp_path, monkeypatch):
    whole = run_small(12, digits)

    def killed(state, path):
        path.write_bytes(b"half a check")
        raise KeyboardInterrupt

    run_small(4, digits, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            run_small(12, digits, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert same_parameters(run_small(12, digits, tmp_path).network, whole.network)


def test_the_network_of_best_validation_accuracy_is_kept(digits):
    result = run_small(40, digits)
    best = max(result.history, key=lambda entry: entry[2])  # the first of equals
    assert (result.best_step, result.best_accuracy) == (best[0], best[2])
    check = one_shot.draw_tasks([SMALL.seed, 2**32 - 1], 40, digits["validation"], balanced=True)
    assert accuracy(result.network, digits["validation"], check) == result.best_accuracy


def test_a_checkpoint_of_other_settings_is_not_mixed_in(digits, tmp_path):
    run_small(4, digits, tmp_path)
    other = TrainingConfig(**{**json.loads(SMALL.to_json()), "seed": 4})
    with pytest.raises(ValueError, match="seed 3, got 4"):
        run_small(8, digits, tmp_path, other)


def test_a_damaged_checkpoint_is_an_error_with_its_name(digits, tmp_path):
    (tmp_path / "checkpoint.pt").write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match=r"checkpoint\.pt cannot be read"):
        run_small(4, digits, tmp_path)


def test_a_finished_run_is_not_cut_short(digits, tmp_path):
    run_small(8, digits, tmp_path)
    with pytest.raises(ValueError, match="steps must be at least the 8"):
        run_small(4, digits, tmp_path)


@pytest.mark.slow
def test_training_learns_the_digits_task(digits):
    config = TrainingConfig(
        heads=(2, 2),
        batch=32,
        width=64,
        key_width=32,
        learning_rate=1e-3,
        checkpoint_every=500,
        validation_tasks=500,
        data="digits",
    )
    result = run_small(1000, digits, config=config)
    tasks = one_shot.draw_tasks(5, 1000, digits["train"], balanced=True)
    assert accuracy(result.network, digits["train"], tasks) > 0.75


def test_fine_tuning_lowers_the_error_and_leaves_the_network_alone(digits):
    network = one_shot_network(SMALL).without_heads([(2, 1)])
    before = [parameter.clone() for parameter in network.parameters()]
    config = TrainingConfig(batch=64, learning_rate=1e-3)
    tuned = fine_tune_network(network, digits["train"], 60, config)
    assert tuned.heads == (2, 2)
    assert all(torch.equal(a, b) for a, b in zip(network.parameters(), before, strict=True))
    tasks = one_shot.draw_tasks(9, 500, digits["train"], balanced=True)
    p = torch.from_numpy(digits["train"].patches[tasks.classes, tasks.drawings]).flatten(1, 2)
    y = torch.from_numpy(tasks.y.astype(np.float32))
    with torch.no_grad():
        assert (tuned(p) - y).square().mean() < (network(p) - y).square().mean()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"heads": ()}, "heads"),
        ({"width": 0}, "width"),
        ({"learning_rate": -1.0}, "learning_rate"),
        ({"weight_decay": -1.0}, "weight_decay"),
        ({"data": "faces"}, "data"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_out_of_range_are_named(setting, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**setting)


def test_the_papers_networks_have_the_papers_key_widths():
    for heads, width in (((4, 4), 128), ((8, 8), 64), ((3, 3, 3), 170)):
        assert TrainingConfig(heads=heads).key_width == width


# -- files and command line --------------------------------------------------------------------


def test_the_command_in_the_file_repeats_the_run(digits, tmp_path, capsys):
    result = run_small(8, digits)
    wanted = describe(result, SMALL, digits["test"], 60)
    _, _, _, _, *words = wanted.metadata["command"].split()
    words += ["--folder", str(tmp_path / "run"), "--test-tasks", "60", "--quiet"]
    assert main(["train", *words]) == 0
    assert "unseen digits classes" in capsys.readouterr().out
    found = load_trained_heads(tmp_path / "run" / "trained_heads.npz")
    assert found.metadata == json.loads(json.dumps(wanted.metadata))
    np.testing.assert_array_equal(found.weights, wanted.weights.astype(np.float32))


def test_heads_survive_the_file_in_half_precision(digits, tmp_path):
    network = one_shot_network(SMALL)
    embedding = one_shot.label_embedding(SMALL.seed)
    trained = reduce_network(network, embedding, {"note": "at its start"})
    save_trained_heads(tmp_path / "heads.npz", trained)
    found = load_trained_heads(tmp_path / "heads.npz")
    assert found.heads == (2, 3)
    assert found.metadata == {"note": "at its start"}
    images = digits["test"]
    tasks = one_shot.draw_tasks(0, 20, images)
    x = one_shot.task_tokens(images, tasks, found.embedding)
    attentions = [
        query_key_attention(x, q, k) for q, k in zip(found.queries, found.keys, strict=True)
    ]
    output = found.path_network().predict(path_inputs(x, attentions))
    p = torch.from_numpy(images.patches[tasks.classes, tasks.drawings]).flatten(1, 2)
    wanted = network(p).detach().numpy()
    np.testing.assert_allclose(output, wanted, atol=5e-3 * np.abs(wanted).max())


def test_a_file_of_something_else_is_an_error(tmp_path):
    np.savez(tmp_path / "other.npz", x=np.ones(3))
    with pytest.raises(ValueError, match="does not hold trained heads"):
        load_trained_heads(tmp_path / "other.npz")
    with pytest.raises(ValueError, match="one of the shipped names"):
        load_trained_heads("nothing")


def test_heads_whose_shapes_disagree_are_an_error():
    network = one_shot_network(SMALL)
    good = reduce_network(network, one_shot.label_embedding(0))
    with pytest.raises(ValueError, match=r"keys\[1\]"):
        TrainedHeads(
            good.queries,
            [good.keys[0], good.keys[1][:, :, :9]],
            good.embedding,
            good.weights,
            good.order_parameters,
            good.magnitudes,
        )


def test_names_of_networks():
    assert run_name((4, 4)) == "2x4"
    assert run_name((3, 3, 3)) == "3x3"
    assert run_name((2, 3)) == "2-3"


@pytest.mark.parametrize("name", trained_heads_names())
def test_shipped_heads_say_how_they_were_made(name):
    trained = load_trained_heads(name)
    config = trained.metadata["config"]
    assert name == f"{run_name(trained.heads)}_seed{config['seed']}"
    assert tuple(config["heads"]) == trained.heads
    assert f"--seed {config['seed']} " in trained.metadata["command"]
    assert trained.metadata["accuracies"]["test"] > 0.6
    np.testing.assert_allclose(
        trained.embedding, one_shot.label_embedding(config["seed"]), atol=1e-6
    )
    # the theory's symmetric positive definite matrices, in the right order
    for U in trained.order_parameters:
        assert np.linalg.eigvalsh(U).min() > -1e-6 * np.abs(U).max()


def test_shipped_heads_load_without_torch():
    code = (
        "import sys; from attnpaths.trained import load_trained_heads, trained_heads_names\n"
        "[load_trained_heads(name) for name in trained_heads_names()]\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", trained_heads_names())
def test_shipped_heads_reach_the_stated_accuracy(name):
    try:
        images = one_shot.load_images("omniglot", "test", download=False)
    except OSError:
        pytest.skip("needs Omniglot: set ATTNPATHS_DATA")
    from attnpaths.one_shot_theory import task_path_inputs

    trained = load_trained_heads(name)
    tasks = one_shot.draw_tasks([0, 2**32 - 2], 10_000, images, balanced=True)[:1000]
    xi = task_path_inputs(images, tasks, trained.queries, trained.keys, trained.embedding)
    found = np.mean((trained.path_network().predict(xi) > 0) == (tasks.y > 0))
    assert found == pytest.approx(trained.metadata["accuracies"]["test"], abs=0.05)
