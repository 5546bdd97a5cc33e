"""Results do not depend on how many threads the linear algebra uses."""

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from attnpaths import Architecture, order_parameter, predict, solve_order_parameter

# Stored pairs of kernels, kernels never formed (several outputs), more rows than path features.
PROBLEMS = {
    "four paths": ((100, 4, 40), (2, 2), None),
    "sixteen paths": ((60, 9, 20), (3, 3), None),
    "two outputs": ((40, 4, 20), (2, 2), 2),
    "low rank": ((120, 4, 10), (2, 2), None),
}


def solved(name, threads):
    """Order parameters, action and predictions with a number of threads."""
    shape, heads, outputs = PROBLEMS[name]
    rng = np.random.default_rng(5)
    xi, xi_new = rng.normal(size=shape), rng.normal(size=(20, *shape[1:]))
    y = np.sign(rng.normal(size=shape[0] if outputs is None else (shape[0], outputs)))
    with threadpool_limits(threads):
        solution = solve_order_parameter(xi, y, Architecture(heads, 20), 0.1)
        prediction = predict(xi, y, xi_new, solution, 0.1)
    assert solution.converged
    return [*solution.layers, np.array(solution.action), prediction.mean, prediction.variance]


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_solve_is_the_same_with_one_thread_and_with_two(name, monkeypatch):
    # Small problems take one thread whatever is allowed; here they shall take what they get.
    monkeypatch.setattr(order_parameter, "ONE_THREAD_SIZE", 0)
    if not any(pool["user_api"] == "blas" for pool in threadpool_info()):
        pytest.skip("threadpoolctl knows no way to limit this BLAS")
    one = solved(name, 1)
    for alone, together in zip(one, solved(name, 2), strict=True):
        scale = np.abs(alone).max()
        np.testing.assert_allclose(together, alone, rtol=0, atol=1e-8 * scale)


def test_the_number_of_threads_is_indeed_changed():
    with threadpool_limits(1):
        assert {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"} <= {1}
    with threadpool_limits(2):
        assert {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"} <= {2}
