"""Speed and memory of the order-parameter solver, as ratios against baselines run beside it.

    python benchmarks/solver.py [--rows adam grid large] [--quick]

- adam: the four-path hidden Markov task at N = 10, from the infinite-width limit to a gradient of
  1e-8, against Adam (torch, rate 0.1, gradient to 1e-5), on U_1 and U_2 as in the paper's
  reference code and on their Cholesky factors.
- grid: 100 (N, temperature) points of the one-shot task on the shipped trained heads, P = 600,
  16 paths, warm-started, against the same points solved from the infinite-width limit by L-BFGS on
  plain Cholesky factors. Omniglot where it can be had, else scikit-learn's digits.
- large: one solve with 64 paths at P = 600 and one with 512 paths at P = 200; seconds and memory.

Times are processor time on one thread; they are noisy, and only ratios of one run mean something.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

# One thread for both sides of a ratio: small matrices gain nothing from more.
if "--threads" not in sys.argv:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")

import numpy as np
from scipy.linalg import cholesky
from scipy.optimize import minimize
from tqdm import tqdm

import attnpaths
from attnpaths.one_shot_theory import TEMPERATURES, WIDTHS, draw_set, solve_grid
from attnpaths.order_parameter import Problem, TrainingData
from attnpaths.tasks import hidden_markov
from attnpaths.tasks.one_shot import available_images
from attnpaths.trained import load_trained_heads


def hidden_markov_inputs(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Path inputs and labels of the four-path task."""
    rng = np.random.default_rng(seed)
    task = hidden_markov.HiddenMarkovChain()
    data = task.sample(100, rng)
    heads = hidden_markov.four_path_heads(task, rng)
    return hidden_markov.task_path_inputs(data.x, heads), data.y


def adam(
    xi: np.ndarray, y: np.ndarray, width: float, temperature: float, tol: float, factors: bool
) -> tuple[np.ndarray, int]:
    """Minimise the action of a two-layer network (unit variances) by Adam and autodiff.

    The free variables are the matrices U_1 and U_2, as in the paper's reference code (over 1,700
    steps on its own data), or their Cholesky factors. The readout is solved for.
    """
    import torch

    torch.set_default_dtype(torch.float64)
    paths, examples = xi.shape[1], len(y)
    heads = round(np.sqrt(paths))
    kernels = torch.from_numpy(attnpaths.path_kernels(xi).reshape(paths**2, -1)) / paths
    labels, noise = torch.from_numpy(y), temperature * torch.eye(examples)
    free = [torch.eye(paths, requires_grad=True), torch.eye(heads, requires_grad=True)]
    optimiser = torch.optim.Adam(free, lr=0.1)
    for step in range(20_000):
        optimiser.zero_grad()
        if factors:
            lower = [torch.tril(factor) for factor in free]
            U1, U2 = (factor @ factor.T for factor in lower)
        else:
            U1, U2 = ((U + U.T) / 2 for U in free)
        K = (U1.reshape(-1) @ kernels).reshape(examples, examples) + noise
        factor = torch.linalg.cholesky(K)
        alpha = torch.cholesky_solve(labels[:, None], factor)[:, 0]
        energy = 2 * torch.log(torch.diagonal(factor)).sum() + labels @ alpha
        traced = torch.einsum("hahb->ab", U1.reshape(heads, heads, heads, heads))
        u = (-(heads - 1) + torch.sqrt((heads - 1) ** 2 + 4 * torch.trace(U2))) / 2
        entropy = (
            (u - torch.log(u))
            + (torch.trace(U2) / u - torch.logdet(U2) + heads * torch.log(u))
            + torch.trace(torch.linalg.solve(U2, traced))
            - torch.logdet(U1)
            + heads * torch.logdet(U2)
        )
        (energy / width + entropy).backward()
        if max(float(variable.grad.abs().max()) for variable in free) < tol:
            return U1.detach().numpy(), step
        optimiser.step()
    raise RuntimeError("Adam did not reach the gradient")


def plain_cholesky(problem: Problem, tol: float = 1e-6) -> int:
    """Minimise by L-BFGS on the Cholesky factors of the matrices; returns the evaluations."""
    sizes = problem.architecture.sizes()
    triangles = [np.tril_indices(size) for size in sizes]
    counts = np.cumsum([len(rows) for rows, _ in triangles])[:-1]
    evaluations = 0

    def function(x):
        nonlocal evaluations
        evaluations += 1
        roots = []
        for size, triangle, part in zip(sizes, triangles, np.split(x, counts), strict=True):
            root = np.zeros((size, size))
            root[triangle] = part
            roots.append(root)
        matrices = [root @ root.T for root in roots]
        point = problem.energy(matrices[0])
        value = point.value + problem.entropy(matrices)
        gradients = problem.gradient(matrices, point.gradient())
        parts = [
            (2 * g @ root)[triangle]
            for g, root, triangle in zip(gradients, roots, triangles, strict=True)
        ]
        return value / problem.largest, np.concatenate(parts) / problem.largest

    start = attnpaths.gp_order_parameter(problem.architecture)
    matrices = [*start.layers, np.atleast_2d(start.readout)]
    x = np.concatenate(
        [cholesky(U, lower=True)[t] for U, t in zip(matrices, triangles, strict=True)]
    )
    options = {"maxcor": 20, "gtol": tol, "ftol": 0.0, "maxfun": 2000, "maxiter": 2000}
    minimize(function, x, jac=True, method="L-BFGS-B", options=options)
    return evaluations


def row_adam(quick: bool) -> None:
    """Print the first row: ours against Adam on the four-path task."""
    xi, y = hidden_markov_inputs()
    network = attnpaths.Architecture((2, 2), 10)
    attnpaths.solve_order_parameter(xi, y, network, 0.01)  # warm the libraries up
    ours = []
    for _ in range(25):
        begin = time.process_time()
        solution = attnpaths.solve_order_parameter(xi, y, network, 0.01)
        ours.append(time.process_time() - begin)
    for name, factors in (("Adam on U", False), ("Adam on Cholesky factors", True)):
        begin = time.process_time()
        U, steps = adam(xi, y, 10.0, 0.01, 1e-3 if quick else 1e-5, factors)
        baseline = time.process_time() - begin
        print(
            f"| solve, four paths, N = 10 | {np.median(ours) * 1e3:.0f} ms, "
            f"{solution.evaluations} evaluations, gradient {solution.gradient_norm:.0e} | {name}: "
            f"{baseline:.1f} s, {steps} steps, U within {np.abs(U - solution.matrix).max():.0e} | "
            f"{baseline / np.median(ours):.0f} x |",
            flush=True,
        )


def row_grid(quick: bool) -> None:
    """Print the second row: the grid of the one-shot figure, on the shipped trained heads."""
    trained = load_trained_heads("2x4_seed0")
    images = available_images()
    xi, y = draw_set(trained, "training", size=100 if quick else None, images=images)
    begin, wall = time.process_time(), time.perf_counter()
    grid = solve_grid(xi, y, trained.heads, evaluate={})
    ours, wall = time.process_time() - begin, time.perf_counter() - wall
    # The baseline is slow: the diagonal, which has every width and every temperature once, stands
    # for all points.
    data = TrainingData(xi, y[:, None])
    some = list(zip(WIDTHS, TEMPERATURES, strict=True))
    begin = time.process_time()
    plain = sum(
        plain_cholesky(Problem(data, attnpaths.Architecture(trained.heads, width), temperature))
        for width, temperature in tqdm(some, desc="grid, plain", disable=None)
    )
    points = len(WIDTHS) * len(TEMPERATURES)
    baseline = (time.process_time() - begin) * points / len(some)
    print(
        f"| one-shot grid ({images.name}), {points} points, P = {len(xi)}, 16 paths | {ours:.0f} s "
        f"({wall:.0f} s by the clock), {grid.evaluations.sum() / points:.0f} evaluations a point, "
        f"converged: {grid.converged.sum() - len(TEMPERATURES)} | plain Cholesky factors from the "
        f"limit: {baseline:.0f} s, {plain / len(some):.0f} evaluations a point | "
        f"{baseline / ours:.1f} x |",
        flush=True,
    )


def peak_memory() -> float:
    """Largest resident memory of this process in bytes."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count the process that started this one, too
        (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
        return 1024 * float(line.split()[1])
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def large(heads: tuple[int, ...], examples: int) -> None:
    """Solve one large problem and print seconds and peak memory (in a process of its own)."""
    rng = np.random.default_rng(0)
    paths = int(np.prod(heads))
    # Paths share most of what they see, as those of a network do.
    common = rng.normal(size=(examples, 1, 192))
    xi = common + 0.5 * rng.normal(size=(examples, paths, 192))
    y = np.sign(common[:, 0] @ rng.normal(size=192))
    begin = time.perf_counter()
    solution = attnpaths.solve_order_parameter(xi, y, attnpaths.Architecture(heads, 100), 0.1)
    seconds = time.perf_counter() - begin
    memory = peak_memory() / 2**30
    kernels = 8 * paths**2 * examples**2 / 2**30
    print(
        f"| one solve, {paths} paths, P = {examples} | {seconds:.0f} s, {solution.evaluations} "
        f"evaluations, converged: {solution.converged} | all path kernels: {kernels:.0f} GiB | "
        f"{kernels / memory:.0f} x less memory ({memory:.1f} GiB) |"
    )


def row_large(quick: bool) -> None:
    """Print the third row."""
    for heads, examples in (((8, 8), 600), ((8, 8, 8), 200)):
        examples = examples // 4 if quick else examples
        command = [sys.executable, __file__, "--large", ",".join(map(str, heads)), str(examples)]
        subprocess.run(command, check=True)


def main() -> None:
    """Run the rows that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    rows = {"adam": row_adam, "grid": row_grid, "large": row_large}
    parser.add_argument("--rows", nargs="+", choices=rows, default=list(rows))
    parser.add_argument("--quick", action="store_true", help="smaller problems")
    parser.add_argument("--threads", action="store_true", help="leave the threads of BLAS alone")
    parser.add_argument("--large", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.large:
        large(tuple(map(int, args.large[0].split(","))), int(args.large[1]))
        return
    print("| what | attnpaths | baseline | ratio |\n|---|---|---|---|", flush=True)
    for name in args.rows:
        rows[name](args.quick)


if __name__ == "__main__":
    main()
