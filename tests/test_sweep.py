"""Sweeps: the same table however it is run, stopped, or stored."""

import warnings

import joblib
import numpy as np
import pandas as pd
import pytest

from attnpaths import Architecture, ConvergenceWarning, predict, solve_order_parameter
from attnpaths.sweep import HiddenMarkovProblem, SweepData, sweep
from attnpaths.tasks.hidden_markov import HiddenMarkovChain

SMALL = HiddenMarkovProblem(HiddenMarkovChain(length=8, dimension=10), 20, 30)
GRID = {"widths": [10, 100], "temperatures": [0.05, 0.5], "progress": False}
# What has to agree between two runs; times differ.
COMPARED = ["heads", "seed", "width", "temperature", "accuracy", "action", "gradient_norm"]


class Counting:
    """A problem that counts how often its data are made."""

    calls = 0

    def __call__(self, seed, heads):
        type(self).calls += 1
        return SMALL(seed, heads)


def regression(seed, heads):
    rng = np.random.default_rng(seed)
    xi, xi_test = rng.normal(size=(12, 2, 3)), rng.normal(size=(5, 2, 3))
    weights = rng.normal(size=(6, heads))
    return SweepData(
        xi, xi.reshape(12, -1) @ weights, xi_test, xi_test.reshape(5, -1) @ weights, (2,)
    )


def test_a_row_is_what_the_functions_of_the_package_say():
    table = sweep(SMALL, **GRID, seeds=[0, 1], heads=["four_paths", "two_paths"])
    assert len(table) == 16
    assert isinstance(table, pd.DataFrame)
    row = table.query("heads == 'two_paths' and seed == 1 and width == 10 and temperature == 0.5")
    data = SMALL(1, "two_paths")
    solution = solve_order_parameter(data.xi, data.y, Architecture((2, 1), 10), 0.5)
    mean = predict(data.xi, data.y, data.xi_test, solution, 0.5).mean
    assert row["action"].item() == pytest.approx(solution.action, rel=1e-9)
    assert row["accuracy"].item() == np.mean(np.sign(mean) == data.y_test)
    np.testing.assert_allclose(row["order_parameter"].item().matrix, solution.matrix, rtol=1e-5)
    assert table["converged"].all()


def test_the_order_is_that_of_the_arguments():
    table = sweep(SMALL, **GRID | {"widths": [10, np.inf, 30]}, seeds=[3, 1], heads=["good"])
    assert table["seed"].tolist() == [3] * 6 + [1] * 6
    assert table["width"].tolist() == [10, np.inf, 30] * 4
    assert table["temperature"].tolist() == ([0.05] * 3 + [0.5] * 3) * 2


def test_infinite_width_is_the_limit_of_wide_networks():
    table = sweep(
        SMALL,
        widths=[1e7, np.inf],
        temperatures=[0.1],
        seeds=range(3),
        heads=["four_paths"],
        progress=False,
    )
    wide, limit = (table[table["width"] == width] for width in (1e7, np.inf))
    np.testing.assert_allclose(
        wide["mean_squared_error"].to_numpy(), limit["mean_squared_error"].to_numpy(), rtol=1e-4
    )
    np.testing.assert_array_equal(limit["order_parameter"].iloc[0].matrix, np.eye(4))


def test_a_stopped_sweep_goes_on(tmp_path):
    Counting.calls = 0
    arguments = GRID | {"cache": tmp_path / "cache", "heads": ["good"]}
    first = sweep(Counting(), **arguments, seeds=[0])
    files = sorted(arguments["cache"].glob("*.npz"))
    assert (len(files), Counting.calls) == (4, 1)
    # More of the same: only what is new is computed.
    sweep(Counting(), **arguments, seeds=[0, 1])
    assert Counting.calls == 2
    again = sweep(Counting(), **arguments, seeds=[0])
    assert Counting.calls == 2
    pd.testing.assert_frame_equal(first[COMPARED], again[COMPARED])
    np.testing.assert_array_equal(
        first["order_parameter"].iloc[0].matrix, again["order_parameter"].iloc[0].matrix
    )
    # A lost or damaged point is computed again.
    files[0].write_bytes(b"PK\x03\x04 cut off")
    files[1].unlink()
    mended = sweep(Counting(), **arguments, seeds=[0])
    pd.testing.assert_frame_equal(first[COMPARED], mended[COMPARED])
    assert len(list(arguments["cache"].iterdir())) == 8


def test_other_settings_are_other_points(tmp_path):
    arguments = GRID | {"cache": tmp_path, "heads": ["good"]}
    plain = sweep(SMALL, **arguments)
    other = sweep(SMALL, **arguments, variances=0.5)
    assert (plain["action"] != other["action"]).all()
    noisy = HiddenMarkovProblem(HiddenMarkovChain(length=8, dimension=10, sigma_perp=5.0), 20, 30)
    assert (sweep(noisy, **arguments)["action"] != plain["action"]).all()


def test_several_outputs_and_targets(tmp_path):
    arguments = {"widths": [20], "temperatures": [0.1], "heads": [2], "progress": False}
    table = sweep(regression, **arguments, cache=tmp_path)
    assert table["order_parameter"].iloc[0].readout.shape == (2, 2)
    again = sweep(regression, **arguments, cache=tmp_path)
    np.testing.assert_array_equal(
        table["order_parameter"].iloc[0].readout, again["order_parameter"].iloc[0].readout
    )
    # Real targets of one output have no accuracy.
    one = sweep(lambda seed, heads: single(regression(seed, heads)), **arguments)
    assert np.isnan(one["accuracy"].item())
    assert one["mean_squared_error"].item() < 3


def single(data):
    return data._replace(y=data.y[:, 0], y_test=data.y_test[:, 0])


def test_warm_starts_reach_the_same_minimum(tmp_path):
    arguments = GRID | {"widths": [10, 30, 100], "heads": ["two_paths"], "seeds": [0]}
    cold, warm = sweep(SMALL, **arguments), sweep(SMALL, **arguments, warm_start=True)
    np.testing.assert_allclose(warm["action"], cold["action"], rtol=1e-7)
    # A resumed warm sweep starts from the stored solution beside the missing one.
    sweep(SMALL, **arguments | {"widths": [100, 30]}, warm_start=True, cache=tmp_path)
    resumed = sweep(SMALL, **arguments, warm_start=True, cache=tmp_path)
    pd.testing.assert_frame_equal(resumed[COMPARED], warm[COMPARED])


@pytest.mark.slow  # starts processes
def test_two_processes_make_the_same_table():
    arguments = GRID | {"heads": ["two_paths"], "seeds": [0, 1]}
    one, two = sweep(SMALL, **arguments), sweep(SMALL, **arguments, n_jobs=2)
    pd.testing.assert_frame_equal(one[COMPARED], two[COMPARED], rtol=1e-6)


@pytest.mark.slow
def test_a_dask_cluster_makes_the_same_table(tmp_path):
    distributed = pytest.importorskip("distributed")
    arguments = GRID | {"heads": ["two_paths"], "seeds": [0, 1]}
    here = sweep(SMALL, **arguments)
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=str(tmp_path / "dask"),
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        there = sweep(SMALL, **arguments, cache=tmp_path / "cache")
        assert len(list((tmp_path / "cache").iterdir())) == len(there)
        with pytest.raises(ValueError, match="heads must be one of"):
            sweep(SMALL, **arguments | {"heads": ["bad"]})
    pd.testing.assert_frame_equal(here[COMPARED], there[COMPARED], rtol=1e-6)


def test_points_that_are_no_minimum_are_told(monkeypatch):
    import attnpaths.sweep as module

    solve = module.solve_order_parameter
    monkeypatch.setattr(
        module, "solve_order_parameter", lambda *a, **k: solve(*a, **k, max_evaluations=1)
    )
    with pytest.warns(ConvergenceWarning, match="4 of 4 points"):
        table = sweep(SMALL, **GRID, heads=["four_paths"])
    assert not table["converged"].any()


def test_a_good_sweep_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sweep(SMALL, **GRID, heads=["good"])


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"widths": []}, "widths"),
        ({"widths": 10}, "widths"),
        ({"widths": [0.5]}, "widths"),
        ({"widths": [np.nan]}, "widths"),
        ({"widths": [10, 10.0]}, "widths"),
        ({"temperatures": [0.0]}, "temperatures"),
        ({"temperatures": "0.1"}, "temperatures"),
        ({"seeds": [-1]}, "seeds"),
        ({"seeds": [0.5]}, "seeds"),
        ({"heads": [np.zeros(2)]}, "heads"),
        ({"heads": ["neither"]}, "heads"),
        ({"variances": 0}, "variances"),
        ({"variances": [1, 1]}, "variances"),
        ({"tol": -1}, "tol"),
    ],
)
def test_wrong_arguments_are_named(change, name):
    with pytest.raises(ValueError, match=rf"^{name}"):
        sweep(SMALL, **GRID | {"heads": ["good"]} | change)


def test_a_wrong_problem_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"^problem must be a callable"):
        sweep(None, **GRID)
    with pytest.raises(ValueError, match=r"^problem must return"):
        sweep(lambda seed, heads: 3, **GRID)
    with pytest.raises(ValueError, match=r"^problem must be picklable"):
        sweep(lambda seed, heads: SMALL(seed, "good"), **GRID, cache=tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"^cache must be a folder"):
        sweep(SMALL, **GRID, heads=["good"], cache=tmp_path / "file")
