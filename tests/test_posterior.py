"""The sampled posterior is the posterior over all weights, at every width."""

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import logsumexp

import attnpaths
from attnpaths import posterior as sampling
from attnpaths.order_parameter import TrainingData
from attnpaths.posterior import FactorDensity, SamplingWarning, laplace_approximation
from attnpaths.predictor import gaussian_prediction
from attnpaths.stored import load_stored

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scripts"))
import sample_finite_width as chapter


def sample(xi, y, network, temperature, **options):
    """Draws in this process, with few or no complaints about few draws."""
    options = {"n_jobs": 1, "progress": False, "seed": 0} | options
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SamplingWarning)
        return attnpaths.sample_posterior(xi, y, network, temperature, **options)


def random_problem(seed, heads, widths, *, examples=6, features=3, outputs=1):
    rng = np.random.default_rng(seed)
    network = attnpaths.Architecture(heads, widths, rng.uniform(0.7, 1.4, len(heads) + 2))
    xi = rng.normal(size=(examples, network.paths, features))
    y = rng.normal(size=(examples, outputs))
    return xi, (y[:, 0] if outputs == 1 else y), network


def draw_networks(xi, network, outputs, count, rng):
    """Outputs and order parameters of networks with random weights, straight from their definition.

    Returns f (count, P, m) and the Gram matrices U_1, ..., u of the effective weights, by count.
    """
    widths = [int(width) for width in network.widths]
    deviations = np.sqrt(network.variances)
    # Weights from a layer's values up to the output, by path and output: (count, paths m, N).
    effective = deviations[-1] * rng.normal(size=(count, outputs, widths[-1]))
    grams = [effective @ effective.swapaxes(1, 2) / widths[-1]]
    effective = effective / np.sqrt(widths[-1])
    for layer in reversed(range(network.layers)):
        heads, width = network.heads[layer], widths[layer]
        V = deviations[layer + 1] * rng.normal(size=(count, heads, effective.shape[2], width))
        effective = (effective[:, None] @ V).reshape(count, -1, width)
        grams.append(effective @ effective.swapaxes(1, 2) / width)
        effective = effective / np.sqrt(width)
    features = xi.shape[2]
    V0 = deviations[0] * rng.normal(size=(count, widths[0], features)) / np.sqrt(features)
    by_path = (effective @ V0).reshape(count, network.paths, outputs, features)
    by_path /= np.sqrt(network.paths)
    f = np.einsum("spci,xpi->sxc", by_path, xi, optimize=True)
    return f, grams[::-1]


CASES = st.tuples(
    st.integers(0, 2**31),
    st.lists(st.integers(1, 3), min_size=1, max_size=3).filter(lambda h: np.prod(h) <= 9),
    st.integers(1, 2),
)


# -- the density ----------------------------------------------------------------------------------


@given(CASES)
@settings(max_examples=25, deadline=None)
def test_derivatives_of_the_density_at_any_width(drawn):
    seed, heads, outputs = drawn
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 8, len(heads) + 1)
    xi, y, network = random_problem(seed, tuple(heads), widths, outputs=outputs)
    density = FactorDensity(TrainingData(xi, y.reshape(len(xi), -1)), network, 0.3)
    x, direction = rng.normal(size=(2, density.dimensions))
    h = 1e-5
    up, up_gradient = density.value_and_gradient(x + h * direction)
    down, down_gradient = density.value_and_gradient(x - h * direction)
    point = density.point(x)
    assert (up - down) / (2 * h) == pytest.approx(point.gradient @ direction, rel=1e-5, abs=1e-5)
    product = point.hessian_product(direction)
    np.testing.assert_allclose(
        (up_gradient - down_gradient) / (2 * h), product, atol=2e-5 * (np.abs(product).max() + 1)
    )


def test_prior_of_the_readout_is_chi_squared():
    xi, y, network = random_problem(0, (2,), (5, 7))
    density = FactorDensity(TrainingData(xi, y[:, None]), network, 1.0)
    rng = np.random.default_rng(0)
    u = [density.matrices(density.prior_draw(rng))[-1][0, 0] for _ in range(4000)]
    statistic = np.array(u) * 7 / network.variances[-1]
    assert stats.kstest(statistic, stats.chi2(7).cdf).pvalue > 1e-3


@pytest.mark.parametrize(
    ("heads", "widths", "outputs"),
    [
        ((2, 2), (3, 5, 4), 1),
        ((2, 2), (6, 2, 1), 1),
        ((2,), (3, 3), 2),
        ((2, 1, 2), (5, 1, 3, 2), 1),
    ],
)
def test_prior_draws_match_the_moments_of_random_networks(heads, widths, outputs):
    xi, y, network = random_problem(3, heads, widths, examples=3, outputs=outputs)
    rng = np.random.default_rng(1)
    f, grams = draw_networks(xi, network, outputs, 40_000, rng)
    density = FactorDensity(TrainingData(xi, y.reshape(3, -1)), network, 1.0)
    drawn = [density.matrices(density.prior_draw(rng)) for _ in range(10_000)]
    for gram, matrices in zip(grams, zip(*drawn, strict=True), strict=True):
        U = np.array(matrices)
        for power in (1, 2):
            a, b = gram**power, U**power
            error = np.sqrt(a.var(axis=0) / len(a) + b.var(axis=0) / len(b))
            assert np.abs(a.mean(axis=0) - b.mean(axis=0)).max() < 5 * error.max()
            assert (np.abs(a.mean(axis=0) - b.mean(axis=0)) < 5 * error + 1e-12).all()
    # The outputs are a mixture of Gaussians: E f_a^2 f_b^2 = E [K_aa K_bb + 2 K_ab^2].
    flat = f.reshape(len(f), -1)
    a, b = 0, flat.shape[1] - 1
    products = flat[:, a] ** 2 * flat[:, b] ** 2
    kernels = np.array(
        [attnpaths.kernel(xi, U[0], variance=network.variances[0]) for U in drawn[:4000]]
    )
    mixture = kernels[:, a, a] * kernels[:, b, b] + 2 * kernels[:, a, b] ** 2
    error = np.sqrt(products.var() / len(products) + mixture.var() / len(mixture))
    assert abs(products.mean() - mixture.mean()) < 5 * error


# -- the same as sampling all weights -------------------------------------------------------------


@pytest.mark.parametrize(
    ("heads", "widths", "outputs"),
    [((2, 2), (5, 3, 1), 1), ((2,), (4, 5), 1), ((2,), (3, 2), 2)],
)
def test_posterior_equals_weighted_random_networks(heads, widths, outputs):
    """All weights integrated by brute force: random networks, weighted by their likelihood."""
    xi, y, network = random_problem(5, heads, widths, examples=4, outputs=outputs)
    train, labels, new = xi[:3], 1.5 * y[:3], xi[3:]
    temperature = 0.4
    rng = np.random.default_rng(2)
    f, grams = draw_networks(xi, network, outputs, 200_000, rng)
    misfit = np.sum((f[:, :3] - labels.reshape(3, -1)) ** 2, axis=(1, 2))
    weights = np.exp(-(misfit - misfit.min()) / (2 * temperature))
    weights /= weights.sum()

    posterior = sample(train, labels, network, temperature, draws=300, warmup=100)
    prediction = posterior.predict(new)
    U, f_new = grams[0], f[:, 3]
    mean = np.einsum("s,sij->ij", weights, U)
    error = np.sqrt(np.einsum("s,sij->ij", weights**2, (U - mean) ** 2))
    spread = posterior.order_parameter.std(axis=(0, 1))
    assert (np.abs(posterior.mean - mean) < 5 * error + 0.15 * spread).all()
    f_mean = weights @ f_new
    f_error = np.sqrt(weights**2 @ (f_new - f_mean) ** 2)
    f_variance = weights @ (f_new - f_mean) ** 2
    deviation = np.sqrt(f_variance)
    assert (np.abs(prediction.mean.ravel() - f_mean) < 5 * f_error + 0.05 * deviation).all()
    np.testing.assert_allclose(prediction.variance.ravel(), f_variance, rtol=0.1)


@pytest.mark.slow
def test_posterior_equals_sampling_every_weight():
    """No-U-Turn on V0, V and a of the network, written out, gives the same U and predictor."""
    torch = pytest.importorskip("torch")
    mici = pytest.importorskip("mici")
    torch.set_num_threads(1)
    rng = np.random.default_rng(4)
    widths, features, temperature = (3, 2, 3), 2, 0.2
    network = attnpaths.Architecture((2, 2), widths)
    xi = rng.normal(size=(6, 4, features))
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    tokens = torch.tensor(xi)
    shapes = [(3, features), (2, 2, 3), (2, 3, 2), (3,)]
    sizes = [int(np.prod(shape)) for shape in shapes]

    def unpack(w):
        parts = torch.split(w, sizes)
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def effective(w):
        _, V1, V2, a = unpack(w)
        upper = torch.einsum("hab,a->hb", V2, a) / 3**0.5
        return torch.einsum("hab,ka->hkb", V1, upper).reshape(4, 3) / 2**0.5

    def outputs(w):
        V0, V1, V2, a = unpack(w)
        values = torch.einsum("ni,xpi->xpn", V0, tokens) / features**0.5
        values = values.reshape(6, 2, 2, 3)  # heads of layer 1, of layer 2
        values = torch.einsum("hab,xhkb->xka", V1, values) / (2 * 3) ** 0.5
        values = torch.einsum("kab,xkb->xa", V2, values) / (2 * 2) ** 0.5
        return values @ a / 3**0.5

    labels = torch.tensor(y)

    def gradient(position):
        w = torch.tensor(position, requires_grad=True)
        value = w @ w / 2 + torch.sum((outputs(w)[:5] - labels) ** 2) / (2 * temperature)
        value.backward()
        return w.grad.numpy(), value.item()

    system = mici.systems.EuclideanMetricSystem(
        neg_log_dens=lambda w: gradient(w)[1], grad_neg_log_dens=gradient
    )
    sampler = mici.samplers.DynamicMultinomialHMC(
        system, mici.integrators.LeapfrogIntegrator(system), np.random.default_rng(0)
    )

    def trace(state):
        w = torch.tensor(state.pos)
        v = effective(w)
        return {"U": (v @ v.T / 3).numpy().ravel(), "f": float(outputs(w)[5])}

    result = sampler.sample_chains(
        300,
        1500,
        [np.random.default_rng(chain).normal(size=sum(sizes)) for chain in range(2)],
        adapters=[mici.adapters.DualAveragingStepSizeAdapter(0.8)],
        trace_funcs=[trace],
        display_progress=False,
    )
    az = sampling._arviz()
    every = np.array(result.traces["U"]).reshape(2, 1500, 4, 4)
    f_new = np.array(result.traces["f"])

    posterior = sample(xi[:5], y, network, temperature, draws=1000)
    for i in range(4):
        for j in range(i + 1):
            ours, theirs = posterior.order_parameter[..., i, j], every[..., i, j]
            error = np.hypot(
                ours.std() / np.sqrt(float(az.ess(ours))),
                theirs.std() / np.sqrt(float(az.ess(theirs))),
            )
            assert abs(ours.mean() - theirs.mean()) < 4.5 * error
    prediction = posterior.predict(xi[5:])
    error = f_new.std() / np.sqrt(float(az.ess(f_new)))
    assert abs(prediction.mean[0] - f_new.mean()) < 4.5 * error + 0.02
    assert prediction.variance[0] == pytest.approx(f_new.var(), rel=0.15)


def ranks_are_uniform(ranks):
    """Chi-squared test over ten bins, for each entry of U."""
    for column in np.asarray(ranks).T:
        counts = np.histogram(column, bins=10, range=(0, chapter.RANK_DRAWS + 1))[0]
        assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.slow
def test_simulation_based_calibration():
    """True U among draws of its posterior: all ranks alike, over 200 simulated data sets."""
    joblib = pytest.importorskip("joblib")
    jobs = (joblib.delayed(chapter.rank_point)(seed) for seed in range(1000, 1200))
    results = joblib.Parallel(n_jobs=joblib.cpu_count())(jobs)
    ranks_are_uniform([result["ranks"] for result in results])


# -- limits and expansions ------------------------------------------------------------------------


def test_posterior_mean_tends_to_the_saddle_point_as_width_and_examples_grow():
    distances = []
    for width in (6, 60):
        rng = np.random.default_rng(0)
        xi = rng.normal(size=(width, 2, 2 * width))
        y = np.sign(xi[:, 0, 0])
        network = attnpaths.Architecture((2,), width)
        saddle = attnpaths.solve_order_parameter(xi, y, network, 0.1)
        posterior = sample(xi, y, network, 0.1, draws=400, warmup=100)
        distances.append(np.abs(posterior.mean - saddle.matrix).max() / saddle.matrix.max())
    assert distances[1] < distances[0] / 2.5
    assert distances[1] < 0.05


def test_laplace_approximation_has_the_moments_of_the_draws():
    xi, _, network = random_problem(7, (2, 2), 40, examples=20, features=8)
    y = np.sign(xi[:, 0, 0] + 0.3 * xi[:, 3, 1])
    saddle = attnpaths.solve_order_parameter(xi, y, network, 0.1)
    laplace = laplace_approximation(saddle)
    posterior = sample(xi, y, network, 0.1, draws=800, warmup=100)
    spread = posterior.order_parameter.std(axis=(0, 1))
    assert np.abs((laplace.mean - posterior.mean) / spread).max() < 0.12
    np.testing.assert_allclose(laplace.standard_deviation, spread, rtol=0.15)
    # Better than the saddle point, and than the mode alone.
    assert laplace.skewness < 0.5
    distance = np.linalg.norm(laplace.mean - posterior.mean)
    assert distance < np.linalg.norm(saddle.matrix - posterior.mean) / 1.5
    np.testing.assert_allclose(
        np.einsum("ijij->ij", laplace.covariance()), laplace.standard_deviation**2
    )


def test_evidence_is_the_average_likelihood_over_the_prior():
    xi, y, network = random_problem(8, (2,), (12, 15), examples=4)
    saddle = attnpaths.solve_order_parameter(xi, y, network, 0.5)
    density = FactorDensity(TrainingData(xi, y[:, None]), network, 0.5)
    rng = np.random.default_rng(0)
    logs = []
    for _ in range(8000):
        U = density.matrices(density.prior_draw(rng))[0]
        K = attnpaths.kernel(xi, U, variance=network.variances[0]) + 0.5 * np.eye(4)
        logs.append(stats.multivariate_normal(cov=K).logpdf(y))
    exact = logsumexp(logs) - np.log(len(logs))
    assert laplace_approximation(saddle).log_evidence == pytest.approx(exact, abs=0.05)


def test_evidence_does_not_depend_on_redundant_examples_being_rotated_away():
    """More examples than the rank of their path inputs: labels beyond it count exactly."""
    xi, y, network = random_problem(9, (2,), (30, 30), examples=9, features=2)
    assert len(xi) > xi.shape[1] * xi.shape[2]
    saddle = attnpaths.solve_order_parameter(xi, y, network, 0.5)
    padded = np.concatenate([xi, np.zeros((9, 2, 9))], axis=2) * np.sqrt(11 / 2)
    same = attnpaths.solve_order_parameter(padded, y, network, 0.5)
    assert laplace_approximation(saddle).log_evidence == pytest.approx(
        laplace_approximation(same).log_evidence, abs=1e-6
    )


def test_laplace_approximation_far_from_its_limit_says_so_and_stays_positive():
    xi, y, _, _ = chapter.markov_task(1, 20, 1)
    network = attnpaths.Architecture((2, 2), 10)
    laplace = laplace_approximation(attnpaths.solve_order_parameter(xi, y, network, 0.01))
    assert laplace.skewness > 1
    assert np.linalg.eigvalsh(laplace.mean)[0] > 0


def test_laplace_approximation_says_what_it_needs():
    xi, y, network = random_problem(0, (2, 2), 3)
    with pytest.raises(ValueError, match="widths above the sizes"):
        laplace_approximation(attnpaths.solve_order_parameter(xi, y, network, 0.1))
    with pytest.raises(ValueError, match="solved for data"):
        laplace_approximation(attnpaths.gp_order_parameter(network))
    with pytest.raises(ValueError, match="OrderParameter"):
        laplace_approximation(np.eye(4))


# -- what a run promises --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def problem():
    return random_problem(1, (2,), (6, 8))


def test_a_seed_reproduces_every_bit_whatever_the_number_of_processes(problem):
    runs = [
        sample(*problem, 0.1, draws=30, warmup=20, seed=5, n_jobs=n_jobs) for n_jobs in (1, 1, 2)
    ]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.coordinates, runs[0].coordinates)
    other = sample(*problem, 0.1, draws=30, warmup=20, seed=6)
    assert not np.array_equal(other.coordinates, runs[0].coordinates)


@pytest.fixture
def interrupt(monkeypatch):
    """Let Ctrl-C come after some calls for draws, in rounds of ten draws."""
    original, calls = sampling._advance, []

    def arrange(after):
        def advance(key, payload, index, chain, steps, warmup, total):
            calls.append(index)
            if len(calls) > after:
                raise KeyboardInterrupt
            return original(key, payload, index, chain, 10, warmup, total)

        monkeypatch.setattr(sampling, "_advance", advance)

    yield arrange
    monkeypatch.undo()


def test_interruption_keeps_the_draws_and_a_checkpoint_goes_on(problem, interrupt, tmp_path):
    path = tmp_path / "run.npz"
    whole = sample(*problem, 0.1, draws=40, warmup=20, seed=5, chains=2)
    interrupt(after=9)
    with pytest.warns(SamplingWarning, match="interrupted after 20 of 40"):
        partial = attnpaths.sample_posterior(
            *problem,
            0.1,
            draws=40,
            warmup=20,
            seed=5,
            chains=2,
            n_jobs=1,
            progress=False,
            checkpoint=path,
        )
    assert not partial.complete
    np.testing.assert_array_equal(partial.coordinates, whole.coordinates[:, :20])
    interrupt(after=10_000)
    resumed = sample(*problem, 0.1, draws=40, warmup=20, chains=2, seed=5, checkpoint=path)
    np.testing.assert_array_equal(resumed.coordinates, whole.coordinates)
    assert resumed.complete
    longer = sample(*problem, 0.1, draws=60, warmup=20, chains=2, seed=None, checkpoint=path)
    assert longer.draws == 60
    np.testing.assert_array_equal(longer.coordinates[:, :40], whole.coordinates)


def test_interruption_during_warmup_is_passed_on(problem, interrupt):
    interrupt(after=1)
    with pytest.raises(KeyboardInterrupt):
        sample(*problem, 0.1, draws=40, warmup=20, chains=2)


def test_checkpoint_of_another_run_is_refused(problem, tmp_path):
    path = tmp_path / "run.npz"
    sample(*problem, 0.1, draws=10, warmup=10, chains=2, checkpoint=path)
    with pytest.raises(ValueError, match="another run"):
        sample(*problem, 0.2, draws=10, warmup=10, chains=2, checkpoint=path)
    with pytest.raises(ValueError, match="another run"):
        sample(*problem, 0.1, draws=10, warmup=10, chains=2, seed=9, checkpoint=path)
    path.write_bytes(b"not a zip archive")
    with pytest.raises(ValueError, match="must be a file of sample_posterior"):
        sample(*problem, 0.1, draws=10, warmup=10, chains=2, checkpoint=path)


def test_bad_diagnostics_are_said(problem, monkeypatch):
    with pytest.warns(SamplingWarning, match="R-hat"):
        attnpaths.sample_posterior(
            *problem, 0.1, draws=4, warmup=5, seed=0, n_jobs=1, progress=False
        )
    good = sample(*problem, 0.1, draws=500)
    assert good.problems() == []
    diverged = good.diverging.copy()
    diverged[0, 3] = True
    from dataclasses import replace

    assert replace(good, diverging=diverged).problems() == ["1 divergent trajectories"]


@pytest.mark.parametrize(
    ("widths", "temperature"), [(100_000, 1e-4), (100_000, 10.0), (5, 1e-4), (1, 0.1)]
)
def test_extreme_widths_and_temperatures(widths, temperature):
    rng = np.random.default_rng(0)
    xi = rng.normal(size=(8, 4, 10))
    y = np.sign(xi[:, 0, 0])
    posterior = sample(
        xi, y, attnpaths.Architecture((2, 2), widths), temperature, draws=100, warmup=100
    )
    assert np.isfinite(posterior.order_parameter).all()
    assert posterior.diverging.mean() < 0.05
    assert posterior.summary()["r_hat"].max() < 1.1
    if widths == 100_000:
        np.testing.assert_allclose(posterior.mean, np.eye(4), atol=0.01)


@pytest.mark.slow
def test_metric_of_large_problems_samples_the_same_posterior(monkeypatch):
    xi, y, network = random_problem(3, (2, 2), (6, 8, 5), examples=8, features=8)
    whole = sample(xi, y, network, 0.1, draws=200, warmup=50)
    monkeypatch.setattr(sampling, "DENSE_COORDINATES", 10)
    monkeypatch.setattr(sampling, "STIFF_DIRECTIONS", 5)
    stiff = sample(xi, y, network, 0.1, draws=200, warmup=50)
    assert stiff.diverging.mean() < 0.01
    assert not np.array_equal(stiff.coordinates, whole.coordinates)
    tables = [one.summary() for one in (stiff, whole)]
    error = np.hypot(*(table["mcse_mean"] for table in tables))
    z = (tables[0]["mean"] - tables[1]["mean"]) / error
    assert np.abs(z).max() < 4.5


def test_cost_of_a_draw_does_not_grow_with_width():
    rng = np.random.default_rng(0)
    xi = rng.normal(size=(10, 4, 5))
    y = np.sign(xi[:, 0, 0])
    runs = [
        sample(xi, y, attnpaths.Architecture((2, 2), width), 0.1, draws=100, warmup=100)
        for width in (100, 100_000)
    ]
    assert runs[1].coordinates.shape == runs[0].coordinates.shape == (4, 100, 14)
    assert runs[1].n_steps.mean() <= 1.5 * runs[0].n_steps.mean()


# -- what is made of the draws --------------------------------------------------------------------


def test_prediction_is_the_mixture_over_draws(problem):
    xi, y, network = problem
    new = np.random.default_rng(0).normal(size=(5, *xi.shape[1:]))
    posterior = sample(xi, y, network, 0.1, draws=25, warmup=20, chains=2)
    each = [
        gaussian_prediction(xi, y, new, U, network.variances[0], 0.1)
        for U in posterior.order_parameter.reshape(-1, 2, 2)
    ]
    means, variances = map(np.array, zip(*each, strict=True))
    prediction = posterior.predict(new)
    np.testing.assert_allclose(prediction.mean, means.mean(axis=0))
    np.testing.assert_allclose(prediction.variance, variances.mean(axis=0) + means.var(axis=0))
    low, high = posterior.interval(new, 0.8, noise=True)
    deviations = np.sqrt(variances + 0.1)
    for bound, probability in ((low, 0.1), (high, 0.9)):
        inside = stats.norm.cdf((bound - means) / deviations).mean(axis=0)
        np.testing.assert_allclose(inside, probability, atol=1e-9)


def test_several_outputs_predict_in_the_shape_of_y():
    xi, y, network = random_problem(2, (2,), (5, 6), outputs=2)
    posterior = sample(xi, y, network, 0.3, draws=20, warmup=20, chains=2)
    assert posterior.order_parameter.shape == (2, 20, 4, 4)
    assert posterior.readout.shape == (2, 20, 2, 2)
    assert posterior.predict(xi[:4]).variance.shape == (4, 2)
    assert posterior.to_inference_data().posterior["U"].shape == (2, 20, 4, 4)
    assert "U[(1):2, (1):1]" in posterior.summary().index


def test_more_examples_than_their_rank_predict_the_same():
    xi, y, network = random_problem(9, (2,), (10, 10), examples=9, features=2)
    padded = np.concatenate([xi, np.zeros((9, 2, 9))], axis=2) * np.sqrt(11 / 2)
    posterior = sample(xi, y, network, 0.2, draws=20, warmup=20, chains=2)
    U = posterior.order_parameter.reshape(-1, 2, 2)
    means = [
        gaussian_prediction(padded, y, padded, matrix, network.variances[0], 0.2)[0] for matrix in U
    ]
    np.testing.assert_allclose(posterior.predict(xi).mean, np.mean(means, axis=0), atol=1e-9)


def test_summary_and_inference_data(problem):
    posterior = sample(*problem, 0.1, draws=50, warmup=30)
    table = posterior.summary()
    assert list(table.index) == ["U[(1), (1)]", "U[(2), (1)]", "U[(2), (2)]", "readout"]
    assert table.loc["U[(2), (1)]", "mean"] == pytest.approx(posterior.mean[1, 0])
    assert {"ess_bulk", "r_hat", "sd"} <= set(table.columns)
    data = posterior.to_inference_data()
    assert data.posterior["U"].sel(path="(1)", other_path="(2)").shape == (4, 50)
    assert data.sample_stats["lp"].shape == (4, 50)
    assert posterior.layers[0].shape == (4, 50, 2, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architecture": attnpaths.Architecture((2,), 6.5)}, "whole-number widths"),
        ({"draws": 0}, "draws must be at least 1"),
        ({"chains": 1.5}, "chains must be a whole number"),
        ({"temperature": -1.0}, "temperature must be positive"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"n_jobs": 0}, "n_jobs must be at least 1"),
        ({"y": np.full(6, np.nan)}, "y must be finite"),
    ],
)
def test_bad_input_names_the_argument(problem, change, message):
    xi, y, network = problem
    arguments = {"xi": xi, "y": y, "architecture": network, "temperature": 0.1, "progress": False}
    with pytest.raises(ValueError, match=message):
        attnpaths.sample_posterior(**(arguments | change))


def test_bad_level_and_bad_examples_are_named(problem):
    posterior = sample(*problem, 0.1, draws=5, warmup=5, chains=2)
    with pytest.raises(ValueError, match="level must be between 0 and 1"):
        posterior.interval(problem[0], 90)
    with pytest.raises(ValueError, match="xi_new must have shape"):
        posterior.predict(problem[0][:, :1])


# -- the paper's task, from the stored draws of the chapter ---------------------------------------


@pytest.fixture(scope="module")
def stored():
    return load_stored("finite_width")


def test_all_parts_of_the_chapter_are_stored(stored):
    assert {key.split("/")[0] for key in stored} == {name for name, _, _ in chapter.parts()}


def test_stored_ranks_are_uniform(stored):
    ranks_are_uniform([stored[f"rank_{seed}/ranks"] for seed in range(chapter.RANK_SETS)])


# The reference implementation on the four-path task, N = 10: U_gg, U_gd, U_dd by its sampling of
# all weights (error of U_gg: 0.66) and at its saddle point. Its data set is its own.
REFERENCE_SAMPLED = np.array([14.659, -5.92, 7.212])
REFERENCE_SADDLE = np.array([13.36491, -5.39687, 6.74514])
GOOD = (np.array([0, 0, 2]), np.array([0, 2, 2]))


def test_finite_width_changes_the_order_parameter_as_all_weights_sampling_found(stored):
    """Sampled over saddle point: alike for all data sets, so for the reference's too."""
    sampled, saddle = (
        np.array([stored[f"ratio_{seed}/{name}"][GOOD] for seed in chapter.DATA_SEEDS])
        for name in ("sampled", "saddle")
    )
    ratio = sampled / saddle
    spread = np.hypot(ratio.std(axis=0, ddof=1), 0.66 / 14.659)  # and the reference's own error
    assert (np.abs(REFERENCE_SAMPLED / REFERENCE_SADDLE - ratio.mean(axis=0)) < 2.5 * spread).all()
    assert (ratio.mean(axis=0) > 1.03).all()  # finite width is seen
    # Where the saddle point is the same as the reference's, so is what was sampled.
    slope, offset = np.polyfit(saddle[:, 0], sampled[:, 0], 1)
    assert abs(slope * REFERENCE_SADDLE[0] + offset - REFERENCE_SAMPLED[0]) < 2 * 0.66


@pytest.mark.slow
def test_reference_data_set_is_an_ordinary_one():
    """Its saddle point lies within those of eighty other draws of data and random heads."""
    entries = []
    for seed in range(80):
        xi, y, _, _ = chapter.markov_task(seed, 100, 2)
        network = attnpaths.Architecture((2, 2), 10)
        saddle = attnpaths.solve_order_parameter(xi, y, network, 0.01, check_minimum=False)
        entries.append(saddle.matrix[GOOD])
    assert (np.min(entries, axis=0) < REFERENCE_SADDLE).all()
    assert (np.max(entries, axis=0) > REFERENCE_SADDLE).all()


@pytest.mark.slow
def test_stored_draws_are_made_again_within_their_error(stored):
    width = 10
    again = chapter.figure_point(width, draws=150)
    error = stored[f"figure_{width}/deviation"] / np.sqrt(200)
    assert (np.abs(again["mean"] - stored[f"figure_{width}/mean"]) < 5 * error).all()
    assert again["accuracy"] == pytest.approx(stored[f"figure_{width}/accuracy"], abs=0.01)
