"""Attention recorded from torch models, and heads switched off in them."""

import numpy as np
import pytest

from attnpaths import (
    Architecture,
    head_scores,
    path_inputs,
    query_key_attention,
    solve_order_parameter,
)
from attnpaths.adapters import TorchModel, as_attentions, dropped_heads, record_attention
from attnpaths.pruning import measured_drop_criterion, pruning_curve

torch = pytest.importorskip("torch")
nn = torch.nn


class Classifier(nn.Module):
    """A small transformer: embedding, two encoder layers, mean over tokens, one output."""

    def __init__(self, features=5, width=8, heads=2, batch_first=True):
        super().__init__()
        self.batch_first = batch_first
        self.embedding = nn.Linear(features, width)
        layer = nn.TransformerEncoderLayer(width, heads, 16, 0.1, batch_first=batch_first)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.readout = nn.Linear(width, 1)

    def forward(self, x):
        z = self.embedding(x)
        if not self.batch_first:
            z = z.transpose(0, 1)
        z = self.encoder(z)
        return self.readout(z.mean(1 if self.batch_first else 0))[:, 0]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Classifier()


@pytest.fixture
def inputs():
    return torch.randn(11, 6, 5, generator=torch.Generator().manual_seed(1))


def test_recorded_attention_is_the_softmax_of_the_modules_queries_and_keys(model, inputs):
    recording = record_attention(model, inputs, batch=4)
    assert recording.heads == (2, 2)
    x = model.embedding(inputs).detach().double().numpy()
    np.testing.assert_allclose(recording.x, x, atol=1e-6)
    attention = model.encoder.layers[0].self_attn
    q, k, _ = attention.in_proj_weight.detach().double().numpy().reshape(3, 2, 4, 8)
    bq, bk, _ = attention.in_proj_bias.detach().double().numpy().reshape(3, 2, 4)
    ones = np.concatenate([x, np.ones((11, 6, 1))], axis=2)  # biases as one more feature
    expected = query_key_attention(
        ones, np.concatenate([q, bq[..., None]], 2), np.concatenate([k, bk[..., None]], 2)
    )
    np.testing.assert_allclose(recording.attentions[0], expected, atol=1e-6)


def test_recording_neither_changes_the_model_nor_needs_batch_first(model, inputs):
    model.train()
    model.encoder.layers[1].eval()
    modes = [part.training for part in model.modules()]
    weights = [parameter.clone() for parameter in model.parameters()]
    recording = record_attention(model, inputs)
    assert [part.training for part in model.modules()] == modes
    for before, after in zip(weights, model.parameters(), strict=True):
        assert torch.equal(before, after)
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())

    other = Classifier(batch_first=False)
    other.load_state_dict(model.state_dict())
    second = record_attention(other, inputs)
    np.testing.assert_allclose(second.x, recording.x, atol=1e-6)
    np.testing.assert_allclose(second.attentions[1], recording.attentions[1], atol=1e-5)
    np.testing.assert_allclose(second.output, recording.output, atol=1e-5)


def test_head_scores_of_a_model_in_a_few_lines(model, inputs):
    y = np.where(inputs[:, 0, 0].numpy() > 0, 1.0, -1.0)
    recording = record_attention(model, inputs)
    xi = path_inputs(recording.x, recording.attentions, "mean")
    U = solve_order_parameter(xi, y, Architecture(recording.heads, 10), 0.1)
    assert U.converged
    assert [len(layer) for layer in head_scores(U)] == [2, 2]


def test_a_module_of_another_kind_is_read_by_a_function():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.score = nn.Linear(4, 4, bias=False)

        def forward(self, x):
            self.weights = torch.softmax(x @ self.score(x).transpose(1, 2), dim=-1)
            return self.weights @ x

    model = nn.Sequential(Own(), Own())
    x = torch.randn(3, 5, 4)
    recording = record_attention(
        model,
        x,
        modules=list(model),
        read=lambda module, arguments, output: (arguments[0], module.weights[:, None]),
    )
    assert recording.heads == (1, 1)
    xi = path_inputs(recording.x, recording.attentions, "mean")
    np.testing.assert_allclose(xi[:, 0], recording.output.mean(axis=1), atol=1e-6)


def test_a_dropped_head_is_zero_and_comes_back(model, inputs):
    model.eval()
    before = model(inputs)
    attention = model.encoder.layers[0].self_attn
    weight = attention.out_proj.weight.detach().clone()
    with dropped_heads(model, [(1, 2)]):
        assert not torch.allclose(model(inputs), before)
        assert torch.equal(attention.out_proj.weight[:, 4:], torch.zeros(8, 4))
        assert torch.equal(attention.out_proj.weight[:, :4], weight[:, :4])
    with dropped_heads(model, [(1, 2)], rescale=True):
        torch.testing.assert_close(attention.out_proj.weight[:, :4], 2**0.5 * weight[:, :4])
    assert torch.equal(attention.out_proj.weight, weight)
    torch.testing.assert_close(model(inputs), before)


def test_weights_come_back_after_an_error(model, inputs):
    weight = model.encoder.layers[0].self_attn.out_proj.weight.detach().clone()
    with pytest.raises(RuntimeError), dropped_heads(model, [(1, 1)]):
        model(inputs[:, :, :3])
    assert torch.equal(model.encoder.layers[0].self_attn.out_proj.weight, weight)


def test_pruning_curve_of_a_torch_model(model, inputs):
    network = TorchModel(model, batch=4)
    y = np.where(network.predict(inputs) > 0, 1.0, -1.0)
    assert set(y) == {-1.0, 1.0} or np.unique(y).size == 1
    scores = measured_drop_criterion(network, inputs, y)
    curve = pruning_curve(network, scores, inputs, y)
    assert curve.accuracy[0] == 1.0
    assert len(curve.order) == 2  # one head a layer stays
    with dropped_heads(model, curve.order[:1]):
        model.eval()
        expected = model(inputs).detach().numpy() > 0
    np.testing.assert_array_equal(curve.correct[1], expected == (y > 0))


def test_half_precision_attention_is_accepted_and_made_to_sum_to_one():
    attention = torch.softmax(torch.randn(2, 3, 7, 7), dim=-1).to(torch.bfloat16)
    (layer,) = as_attentions([attention])
    np.testing.assert_allclose(layer.sum(axis=-1), 1, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: as_attentions([]), "at least one layer"),
        (lambda: as_attentions(np.full((2, 3, 4, 4), 0.25)), "must be a list"),
        (lambda: as_attentions([np.full((2, 3, 4, 4), 0.2)]), "sum to one"),
        (lambda: as_attentions([np.full((2, 4, 4), 0.25)]), r"attentions\[0\] must have shape"),
        (lambda: as_attentions([np.full((2, 3, 4, 5), 0.2)]), "the same P and T"),
        (
            lambda: as_attentions([np.full((2, 3, 4, 4), 0.25), np.full((2, 3, 2, 2), 0.5)]),
            r"attentions\[1\] must have shape",
        ),
        (lambda: record_attention(nn.Linear(2, 2), torch.ones(3, 2)), "MultiheadAttention"),
        (lambda: TorchModel(nn.Linear(2, 2)), "MultiheadAttention"),
        (lambda: TorchModel(Classifier()).drop([(3, 1)]), "dropped must name heads"),
        (
            lambda: record_attention(Classifier(), torch.ones(3, 6, 5), modules=[nn.Linear(5, 5)]),
            "modules must each run once",
        ),
    ],
)
def test_errors_name_the_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()
