#!/usr/bin/env python3
"""Make the stored samples of the chapter "How exact is the theory?".

    python scripts/sample_finite_width.py [--jobs 2] [--output FILE.npz]

They go where `attnpaths.stored` reads them, unless another file is named. Takes about half an
hour on two free cores. Every finished part is saved; started again, only missing parts are
computed.
"""

import argparse
import warnings
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from tqdm import tqdm

from attnpaths import (
    Architecture,
    laplace_approximation,
    predict,
    sample_posterior,
    solve_order_parameter,
)
from attnpaths._files import atomic_path
from attnpaths.order_parameter import TrainingData
from attnpaths.posterior import FactorDensity
from attnpaths.stored import STORED
from attnpaths.tasks.hidden_markov import HiddenMarkovChain, four_path_heads, task_path_inputs

OUTPUT = STORED / "finite_width.npz"
WIDTHS = (1, 2, 3, 5, 10, 30, 50, 100, 300, 500, 1000)  # the paper's, and four below
DATA_SEEDS = range(20)
SCALING_WIDTHS = (5, 10, 20, 40, 80)
SCALING_SEEDS = range(4)
EXAMPLES_PER_WIDTH = 2
LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
CALIBRATION_WIDTHS = (5, 20)
CALIBRATION_SETS = 12
RANK_SETS = 200
RANK_DRAWS = 99
TEMPERATURE = 0.01
HEADS_SEED = 1000  # added to the seed of the data


def markov_task(seed, examples, test_examples=1000):
    """Path inputs and labels of the four-path task: training and test set."""
    task = HiddenMarkovChain()
    heads = four_path_heads(task, HEADS_SEED + seed)
    train = task.sample(examples, seed)
    test = task.sample(test_examples, 10_000 + seed)
    return task_path_inputs(train.x, heads), train.y, task_path_inputs(test.x, heads), test.y


def draw(xi, y, network, temperature, **settings):
    """Sample quietly in this process; R-hat is stored instead of warned about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sample_posterior(xi, y, network, temperature, n_jobs=1, progress=False, **settings)


def figure_point(width, draws=800):
    """One width of the Markov figure, sampled and in theory."""
    xi, y, xi_test, y_test = markov_task(0, 100)
    network = Architecture((2, 2), width)
    saddle = solve_order_parameter(xi, y, network, TEMPERATURE)
    posterior = draw(xi, y, network, TEMPERATURE, draws=draws, seed=width)
    table = posterior.summary()
    prediction = posterior.predict(xi_test, max_draws=400)
    low, high = posterior.interval(xi_test, 0.9, noise=True, max_draws=400)
    theory = predict(xi, y, xi_test, saddle, TEMPERATURE)
    return {
        "mean": posterior.mean,
        "deviation": posterior.order_parameter.std(axis=(0, 1)),
        "error": table["mcse_mean"].iloc[0],
        "effective": table["ess_bulk"].iloc[0],
        "rhat": table["r_hat"].max(),
        "gradients": posterior.n_steps.mean(),
        "accuracy": np.mean(np.sign(prediction.mean) == y_test),
        "coverage": np.mean((low < y_test) & (y_test < high)),
        "saddle": saddle.matrix,
        "saddle_accuracy": np.mean(np.sign(theory.mean) == y_test),
    }


def ratio_point(seed, draws=400):
    """Sampled, Laplace and saddle-point U at N = 10 on one data set."""
    xi, y, _, _ = markov_task(seed, 100, 1)
    saddle = solve_order_parameter(xi, y, Architecture((2, 2), 10), TEMPERATURE)
    posterior = draw(
        xi, y, saddle.architecture, TEMPERATURE, draws=draws, warmup=150, chains=2, seed=seed
    )
    return {
        "sampled": posterior.mean,
        "laplace": laplace_approximation(saddle).mean,
        "saddle": saddle.matrix,
    }


def scaling_point(width, seed, draws=600):
    """Error of the saddle point at a fixed number of examples per width."""
    xi, y, _, _ = markov_task(seed, EXAMPLES_PER_WIDTH * width, 1)
    saddle = solve_order_parameter(xi, y, Architecture((2, 2), width), TEMPERATURE)
    posterior = draw(
        xi, y, saddle.architecture, TEMPERATURE, draws=draws, warmup=150, chains=2, seed=seed
    )
    return {
        "sampled": posterior.mean,
        "laplace": laplace_approximation(saddle).mean,
        "saddle": saddle.matrix,
        "error": posterior.summary()["mcse_mean"].iloc[0],
    }


def calibration_point(width, seed, examples=40, test_examples=200, draws=200):
    """How often intervals hold the labels of a random network of this width."""
    xi, _, xi_test, _ = markov_task(seed, examples, test_examples)
    network = Architecture((2, 2), width)
    rng = np.random.default_rng([width, seed])
    both = np.concatenate([xi, xi_test])
    y = labels_from_prior(both, network, TEMPERATURE, rng)
    y, y_test = y[:examples], y[examples:]
    posterior = draw(xi, y, network, TEMPERATURE, draws=draws, warmup=100, chains=2, seed=seed)
    saddle = solve_order_parameter(xi, y, network, TEMPERATURE, check_minimum=False)
    theory = predict(xi, y, xi_test, saddle, TEMPERATURE)
    exact, approximate = [], []
    for level in LEVELS:
        low, high = posterior.interval(xi_test, level, noise=True, max_draws=200)
        exact.append(np.mean((low < y_test) & (y_test < high)))
        reach = quantile((1 + level) / 2) * np.sqrt(theory.variance + TEMPERATURE)
        approximate.append(np.mean(np.abs(y_test - theory.mean) < reach))
    return {"exact": exact, "saddle": approximate}


def quantile(probability):
    """Quantile of the standard Gaussian."""
    from scipy.special import ndtri

    return ndtri(probability)


def labels_from_prior(xi, network, temperature, rng, order_parameter=None):
    """Labels of a random network: U from its prior, then a Gaussian process, then noise."""
    from attnpaths import kernel

    if order_parameter is None:
        density = FactorDensity(TrainingData(xi, np.zeros((len(xi), 1))), network, temperature)
        order_parameter = density.matrices(density.prior_draw(rng))[0]
    K = kernel(xi, order_parameter, variance=network.variances[0])
    values, vectors = np.linalg.eigh(K)
    f = vectors @ (np.sqrt(np.maximum(values, 0)) * rng.normal(size=len(K)))
    return f + np.sqrt(temperature) * rng.normal(size=len(K))


def rank_point(seed):
    """Ranks of a true U among draws of its posterior, on one simulated data set."""
    rng = np.random.default_rng([7, seed])
    network = Architecture((2,), (2 + seed % 4, 3), (1.0, 1.2, 0.8))  # both kinds of factor
    xi = rng.normal(size=(6, 2, 3))
    density = FactorDensity(TrainingData(xi, np.zeros((6, 1))), network, 0.1)
    truth = density.matrices(density.prior_draw(rng))[0]
    y = labels_from_prior(xi, network, 0.1, rng, truth)
    posterior = draw(xi, y, network, 0.1, draws=RANK_DRAWS * 3, warmup=100, chains=1, seed=seed)
    thin = posterior.order_parameter[0, ::3]
    return {"ranks": [np.sum(thin[:, i, j] < truth[i, j]) for i, j in ((0, 0), (1, 0), (1, 1))]}


def parts():
    """Name every part of the file and say how it is made; the quickest first."""
    yield from ((f"rank_{seed}", rank_point, (seed,)) for seed in range(RANK_SETS))
    yield from ((f"ratio_{seed}", ratio_point, (seed,)) for seed in DATA_SEEDS)
    yield from ((f"figure_{width}", figure_point, (width,)) for width in reversed(WIDTHS))
    for width in SCALING_WIDTHS:
        yield from (
            (f"scaling_{width}_{seed}", scaling_point, (width, seed)) for seed in SCALING_SEEDS
        )
    for width in CALIBRATION_WIDTHS[::-1]:
        yield from (
            (f"calibration_{width}_{seed}", calibration_point, (width, seed))
            for seed in range(CALIBRATION_SETS)
        )


def compute(name, function, arguments):
    """One part, its arrays named."""
    return {f"{name}/{key}": np.asarray(v) for key, v in function(*arguments).items()}


def main():
    """Compute what is missing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    arrays = {}
    if options.output.exists():
        with np.load(options.output, allow_pickle=False) as file:
            arrays = dict(file)
    have = {key.split("/")[0] for key in arrays}
    missing = [part for part in parts() if part[0] not in have]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    run = Parallel(n_jobs=options.jobs, return_as="generator_unordered")
    results = run(delayed(compute)(*part) for part in missing)
    for result in tqdm(results, total=len(missing)):
        arrays |= result
        with atomic_path(options.output) as temporary:
            np.savez_compressed(temporary, **arrays)


if __name__ == "__main__":
    main()
