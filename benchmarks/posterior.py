"""Speed of posterior sampling: effective draws of U_11 a second, four-path task, P = 100.

    python benchmarks/posterior.py [--draws 1000] [--numpyro]

For each width, after the worker processes have started: effective draws (ArviZ, bulk) divided by
the seconds of the whole call, warm-up included, and by the processor seconds of a run in one
process, which other programs on the machine disturb less. With --numpyro the same density and
whitening run through NumPyro's No-U-Turn sampler (JAX; one chain, compilation not counted).
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np

from attnpaths import Architecture, sample_posterior
from attnpaths.order_parameter import TrainingData
from attnpaths.posterior import FactorDensity, _arviz, whitening
from attnpaths.tasks.hidden_markov import HiddenMarkovChain, four_path_heads, task_path_inputs

TEMPERATURE = 0.01
WIDTHS = (10, 100, 1000)


def problem():
    task = HiddenMarkovChain()
    heads = four_path_heads(task, 1000)
    data = task.sample(100, 0)
    return task_path_inputs(data.x, heads), data.y


def effective(draws: np.ndarray) -> float:
    return float(_arviz().ess(draws))


def package(xi, y, width: int, draws: int, n_jobs: int | None) -> str:
    times = []
    for jobs in (n_jobs, 1):
        wall, processor = time.perf_counter(), time.process_time()
        posterior = sample_posterior(
            xi, y, Architecture((2, 2), width), TEMPERATURE,
            draws=draws, seed=0, n_jobs=jobs, progress=False,
        )  # fmt: skip
        times.append((time.perf_counter() - wall, time.process_time() - processor))
    count = effective(posterior.order_parameter[..., 0, 0])
    return (
        f"{count / times[0][0]:6.0f} effective draws a second; {count / times[1][1]:5.0f} a "
        f"processor second; {posterior.n_steps.mean():.1f} gradients a draw"
    )


def numpyro_density(density: FactorDensity):
    """The same minus log density, written for JAX."""
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    maps, labels = density.data.kernel_map, jnp.asarray(density.data.labels)
    size = len(labels)
    C = np.empty((len(maps.triangles), size, size))
    for one, triangle in zip(C, maps.triangles, strict=True):
        one[maps.rows, maps.columns] = one[maps.columns, maps.rows] = triangle
    C = jnp.asarray(C * maps.pair_weight[:, None, None])
    rows, columns = maps.path_rows, maps.path_columns
    log, degrees = density._log, jnp.asarray(density._degrees)
    is_log = np.zeros(density.dimensions, bool)
    is_log[log] = True

    def potential(x):
        entries = x * density._scale
        scaled = entries[log]
        entries = entries.at[log].set(density._at_zero * jnp.exp(scaled))
        factors = [
            jnp.zeros(shape).at[place].set(entries[part])
            for shape, (place, part) in zip(density.shapes, density.parts, strict=True)
        ]
        B = factors[-1]
        for factor in factors[-2::-1]:
            B = jnp.kron(jnp.eye(2), B) @ factor
        K = jnp.tensordot((B @ B.T)[rows, columns], C, 1) + TEMPERATURE * jnp.eye(size)
        lower = jnp.linalg.cholesky(K)
        white = jax.scipy.linalg.solve_triangular(lower, labels, lower=True)
        prior = jnp.sum(x**2 * ~is_log) / 2
        prior += jnp.sum(degrees / 2 * (jnp.expm1(2 * scaled) - 2 * scaled))
        return prior + jnp.log(jnp.diagonal(lower)).sum() + white @ white / 2

    return potential


def numpyro_run(xi, y, width: int, draws: int) -> str:
    import jax
    from numpyro.infer import MCMC, NUTS

    density = FactorDensity(TrainingData(xi, y[:, None]), Architecture((2, 2), width), TEMPERATURE)
    white = whitening(density, density.minimum(density.origin()))
    potential = numpyro_density(density)
    root = np.stack([white.apply(row) for row in np.eye(density.dimensions)])
    kernel = NUTS(potential_fn=lambda z: potential(white.mode + root @ z), adapt_mass_matrix=False)
    sampler = MCMC(kernel, num_warmup=200, num_samples=draws, progress_bar=False)
    start = np.zeros(density.dimensions)
    sampler.run(jax.random.PRNGKey(0), init_params=start)  # compiles
    wall, processor = time.perf_counter(), time.process_time()
    sampler.run(jax.random.PRNGKey(1), init_params=start)
    z = np.asarray(sampler.get_samples())
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    U = [density.matrices(white.to_x(one))[0][0, 0] for one in z]
    count = effective(np.array(U)[None])
    return (
        f"{count / wall:6.0f} effective draws a second, one chain; {count / processor:5.0f} a "
        "processor second"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--numpyro", action="store_true")
    options = parser.parse_args()
    xi, y = problem()
    warnings.simplefilter("ignore")
    sample_posterior(
        xi, y, Architecture((2, 2), 10), TEMPERATURE,
        draws=10, warmup=10, n_jobs=options.jobs, progress=False,
    )  # fmt: skip
    for width in WIDTHS:
        print(
            f"N = {width:4}, attnpaths (mici): {package(xi, y, width, options.draws, options.jobs)}"
        )
        if options.numpyro:
            print(f"N = {width:4}, NumPyro (JAX):   {numpyro_run(xi, y, width, options.draws)}")


if __name__ == "__main__":
    main()
