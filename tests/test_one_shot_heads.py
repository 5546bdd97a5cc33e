"""Heads for one-shot tasks that no training made do what they say."""

import numpy as np
import pytest

from attnpaths import bilinear_attention, path_inputs
from attnpaths.tasks.one_shot import draw_tasks, label_embedding, load_images, task_tokens
from attnpaths.tasks.one_shot_heads import (
    matching_head,
    random_heads,
    task_path_inputs,
    uniform_heads,
)

EMBEDDING = label_embedding(0)
QUERY = slice(32, 48)


@pytest.fixture(scope="module")
def digits():
    return load_images("digits", "train")


@pytest.fixture(scope="module")
def tasks(digits):
    return draw_tasks(1, 300, digits, balanced=True)


@pytest.fixture(scope="module")
def tokens(digits, tasks):
    return task_tokens(digits, tasks, EMBEDDING)


def query_attention(tokens, head):
    """Attention of the query's patches: (tasks, 16 queries, 3 images, 16 keys)."""
    attention = bilinear_attention(tokens, head[None])[:, 0, QUERY]
    return attention.reshape(len(tokens), 16, 3, 16)


def test_the_matching_head_looks_at_the_labelled_images_only(tokens):
    to_query = query_attention(tokens, matching_head(EMBEDDING))[:, :, 2].sum(axis=(1, 2)) / 16
    assert to_query.max() < 0.05


def test_the_matching_head_prefers_the_same_place(tokens):
    attention = query_attention(tokens, matching_head(EMBEDDING))
    same = np.einsum("ptit->pt", attention[:, :, :2]).mean()
    assert same > 0.5, "1 in 16 by chance"


def test_the_matching_head_finds_the_right_image_most_of_the_time(tokens, tasks):
    attention = query_attention(tokens, matching_head(EMBEDDING)).sum(axis=(1, 3))
    found = np.sign(attention[:, 1] - attention[:, 0]) == tasks.y
    assert found.mean() > 0.8


def test_random_heads_do_not(tokens, tasks):
    heads = random_heads(8, seed=0)
    right = []
    for head in heads:
        attention = query_attention(tokens, head).sum(axis=(1, 3))
        right.append(np.mean(np.sign(attention[:, 1] - attention[:, 0]) == tasks.y))
    assert abs(np.mean(right) - 0.5) < 0.06


def test_without_the_place_the_head_still_matches_contents(tokens, tasks):
    attention = query_attention(tokens, matching_head(EMBEDDING, place=0.0)).sum(axis=(1, 3))
    found = np.sign(attention[:, 1] - attention[:, 0]) == tasks.y
    assert found.mean() > 0.6


def test_random_heads_have_scores_of_order_one_and_follow_their_seed(tokens):
    heads = random_heads(4, seed=3)
    scores = tokens[:20] @ heads[:, None] @ tokens[:20].swapaxes(1, 2)
    assert 1 < scores.std() < 10
    assert np.array_equal(heads, random_heads(4, seed=3))
    assert not np.array_equal(heads, random_heads(4, seed=4))


def test_path_inputs_in_chunks_are_those_of_all_tasks(digits, tasks, tokens):
    heads = [np.stack([matching_head(EMBEDDING), *random_heads(1, 0)]), uniform_heads(1)]
    whole = path_inputs(tokens, [bilinear_attention(tokens, w) for w in heads])
    chunked = task_path_inputs(digits, tasks, EMBEDDING, heads, chunk=77)
    np.testing.assert_allclose(chunked, whole, rtol=1e-10, atol=1e-12)


def test_uniform_heads_average_the_tokens(digits, tasks, tokens):
    xi = task_path_inputs(digits, tasks[:5], EMBEDDING, [uniform_heads(2)])
    np.testing.assert_allclose(xi[:, 1], tokens[:5].mean(axis=1))


def test_bad_requests_are_named(digits, tasks):
    with pytest.raises(ValueError, match="embedding"):
        matching_head(np.ones((2, 192)))
    with pytest.raises(ValueError, match="content"):
        matching_head(EMBEDDING, content=0)
    with pytest.raises(ValueError, match="place"):
        matching_head(EMBEDDING, place=float("nan"))
    with pytest.raises(ValueError, match="heads"):
        random_heads(0)
    with pytest.raises(ValueError, match="width"):
        random_heads(1, width=0)
    with pytest.raises(ValueError, match="chunk"):
        task_path_inputs(digits, tasks, EMBEDDING, [uniform_heads()], chunk=0)
