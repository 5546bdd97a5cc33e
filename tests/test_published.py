"""The published draw's figures are there, as arrays, and agree with each other."""

import numpy as np
import pytest

from attnpaths import Architecture, head_scores
from attnpaths.published import CASES, published_case

MARKOV = ("four_paths", "good_path_only", "good_and_denoising", "two_paths_noisy")


@pytest.mark.parametrize("case", MARKOV)
def test_a_markov_case_has_one_row_a_width(case):
    figures = published_case(case)
    count = len(figures["widths"])
    for key in ("accuracy", "action", "U", "U_layer2", "readout"):
        assert len(figures[key]) == count, key
    assert ((figures["accuracy"] > 0.5) & (figures["accuracy"] < 1)).all()


@pytest.mark.parametrize("case", MARKOV)
def test_published_order_parameters_are_positive_definite(case):
    for U in published_case(case)["U"]:
        np.testing.assert_allclose(U, U.T)
        assert np.linalg.eigvalsh(U)[0] > 0


def test_the_published_readout_solves_its_own_equation():
    # u^2 + (H_L - 1) u - tr U_L = 0 for equal widths and unit variances
    figures = published_case("four_paths")
    u = figures["readout"]
    trace = np.trace(figures["U_layer2"], axis1=1, axis2=2)
    np.testing.assert_allclose(u**2 + u - trace, 0, atol=1e-3 * trace.max())


def test_the_published_heads_are_scored():
    scores = head_scores(published_case("four_paths")["U"][0], Architecture((2, 2), 10))
    assert scores[1][0] == pytest.approx(1)
    assert scores[1][1] < 0.2


def test_every_case_can_be_had_and_others_are_named():
    for case in CASES:
        assert published_case(case)["network"]
    with pytest.raises(ValueError, match="case must be one of"):
        published_case("figure_9")
