"""The in-browser explorer's solver, run in Node, against the solver in Python."""

import base64
import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from reference_problems import VECTORS, reference_problem

import attnpaths
from attnpaths import widgets
from attnpaths.tasks import hidden_markov

MODULE = Path(widgets.__file__).parent / "explorer.js"
# Reads {spec, settings} and prints what the module finds for each setting.
SCRIPT = """
import {{ readFileSync }} from "node:fs";
import {{ Task, Problem, solve, gaussianProcess, headScores, alignment }} from "{module}";
const {{ spec, settings }} = JSON.parse(readFileSync(0, "utf8"));
const task = new Task(spec);
let last = null;
const results = settings.map(({{ widths, temperature, noise, heads_on, warm }}) => {{
  const problem = new Problem(task, heads_on, noise);
  const found = solve(problem, widths, temperature, {{ start: warm ? last : null }});
  const gp = gaussianProcess(problem, temperature);
  last = found;
  const {{ U, layers, readout, action, energy, entropy, gradient, accuracy, means }} = found;
  const list = (matrix) => Array.from(matrix);
  return {{
    U: list(U), layers: layers.map(list), readout, action, energy, entropy, gradient, accuracy,
    means: list(means), gp_accuracy: gp.accuracy, gp_means: list(gp.means),
    paths: problem.active, scores: headScores(problem, heads_on, U),
    overlaps: alignment(problem.kernel(U), task.y).overlaps,
  }};
}});
console.log(JSON.stringify(results));
"""


def run_module(folder, task, settings):
    """Solve each setting with the explorer's own module."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node.js: the module can not be run outside a browser")
    shutil.copy(MODULE, folder / "explorer.mjs")
    script = folder / "script.mjs"
    script.write_text(SCRIPT.format(module=(folder / "explorer.mjs").as_uri()))
    spec = {
        key: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for key, value in task.state().items()
    }
    defaults = {
        "temperature": task.temperature,
        "noise": task.noise,
        "heads_on": [[True] * count for count in task.heads],
        "warm": False,
    }
    message = json.dumps({"spec": spec, "settings": [{**defaults, **s} for s in settings]})
    done = subprocess.run([node, script], input=message, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def random_settings(task, rng, count):
    """Widths, temperatures, noises and switched-off heads that a reader may choose."""
    low, high = np.log10(task.width_range)
    settings = []
    for _ in range(count):
        heads_on = [(rng.random(n) < 0.7).tolist() for n in task.heads]
        for layer in heads_on:
            layer[rng.integers(len(layer))] = True
        settings.append(
            {
                "widths": 10 ** rng.uniform(low, high),
                "temperature": 10 ** rng.uniform(-2.5, 0.5),
                "noise": float(rng.choice(task.noises)) if task.noises else 1.0,
                "heads_on": heads_on,
            }
        )
    return settings


def normal_task(rng, heads, **options):
    """Random path inputs that share features and carry some of the labels."""
    paths = int(np.prod(heads))
    data = []
    for examples in (30, 80):
        y = np.resize([1.0, -1.0], examples)
        xi = rng.normal(size=(examples, paths, 12)) + rng.normal(size=(examples, 1, 12))
        xi[:, :, 0] += y[:, None] * np.linspace(-0.3, 1, paths)
        data += [xi, y]
    return widgets.ExplorerTask("random", *data, heads, **options)


def assert_same(found, solution, setting):
    solved = solution.order_parameter
    U = solved.matrix
    np.testing.assert_allclose(np.reshape(found["U"], U.shape), U, rtol=1e-6, atol=1e-7 * U.max())
    for ours, theirs in zip(found["layers"], solved.layers, strict=True):
        np.testing.assert_allclose(
            np.reshape(ours, theirs.shape), theirs, rtol=1e-6, atol=1e-7 * theirs.max()
        )
    assert found["readout"] == pytest.approx(solved.readout, rel=1e-6)
    assert found["action"] == pytest.approx(solved.action, rel=1e-9), setting
    assert found["energy"] == pytest.approx(solved.energy, rel=1e-6, abs=1e-6)
    assert found["entropy"] == pytest.approx(solved.entropy, rel=1e-6)
    assert found["accuracy"] == solution.accuracy
    assert found["gp_accuracy"] == solution.gp_accuracy
    assert tuple(found["paths"]) == solution.paths


TASKS = {
    "four paths": lambda rng: widgets.four_path_task(3, test_examples=100),
    "two noisy paths": lambda rng: widgets.two_path_task(3, test_examples=100),
    "one layer": lambda rng: normal_task(rng, (3,), variances=(1.2, 0.7, 1.5)),
    "three layers": lambda rng: normal_task(rng, (2, 1, 2), variances=(0.9, 1.1, 1.3, 0.8, 1.2)),
    "2 x 4 heads": lambda rng: normal_task(rng, (4, 4), temperature=0.1),
}


@pytest.mark.parametrize("name", TASKS)
def test_module_and_python_find_the_same_minimum(name, tmp_path):
    rng = np.random.default_rng(7)
    task = TASKS[name](rng)
    settings = random_settings(task, rng, 6)
    for found, setting in zip(run_module(tmp_path, task, settings), settings, strict=True):
        solution = task.solve(
            setting["widths"],
            setting["temperature"],
            noise=setting["noise"],
            heads_on=setting["heads_on"],
        )
        assert_same(found, solution, setting)


@pytest.fixture(scope="module")
def four_paths():
    """The four-path task as the book's pages hold it, with more test examples."""
    return widgets.four_path_task(0, test_examples=300)


def test_sliding_the_width_ends_where_a_fresh_search_ends(tmp_path, four_paths):
    task = four_paths
    widths = [10, 11, 13, 20, 50, 200, 1000, 30, 10]
    slid = run_module(tmp_path, task, [{"widths": n, "warm": n != 10} for n in widths])
    for found, width in zip(slid, widths, strict=True):
        assert_same(found, task.solve(width), width)


def test_predictor_scores_and_kernel_components_agree(tmp_path, four_paths):
    task = four_paths
    (found,) = run_module(tmp_path, task, [{"widths": 20}])
    solved = task.solve(20).order_parameter
    mean = attnpaths.predict(task.xi, task.y, task.xi_test, solved, task.temperature).mean
    np.testing.assert_allclose(found["means"], mean, rtol=1e-6, atol=1e-6)
    for ours, theirs in zip(found["scores"], attnpaths.head_scores(solved), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    K = attnpaths.kernel(task.xi, solved.matrix)
    np.testing.assert_allclose(
        found["overlaps"][:20], attnpaths.kernel_task_alignment(K, task.y)[:20], atol=1e-5
    )


@pytest.mark.parametrize("vector", VECTORS, ids=[v["name"] for v in VECTORS])
def test_module_reaches_the_published_check_values(vector, tmp_path):
    problem = reference_problem(vector)
    network = problem.architecture
    task = widgets.ExplorerTask(
        vector["name"],
        problem.xi,
        problem.y,
        problem.xi_test,
        np.ones(len(problem.xi_test)),
        network.heads,
        temperature=vector["temperature"],
        variances=network.variances,
    )
    (found,) = run_module(tmp_path, task, [{"widths": list(network.widths)}])
    solution = vector["solution"]
    for ours, theirs in zip(found["layers"], solution["layers"], strict=True):
        np.testing.assert_allclose(ours, np.ravel(theirs), rtol=2e-6, atol=2e-6)
    assert found["readout"] == pytest.approx(solution["readout_scalar"], rel=1e-6)
    assert found["action"] == pytest.approx(solution["action"], rel=1e-7)
    # the test inputs are rounded for the page
    np.testing.assert_allclose(found["means"], solution["mean"], atol=3e-4)


def test_rounding_for_the_page_changes_no_accuracy_and_no_digit_that_is_shown(tmp_path, four_paths):
    task, chain, rng = four_paths, hidden_markov.HiddenMarkovChain(), np.random.default_rng(0)
    heads = hidden_markov.four_path_heads(chain, rng)
    xi, y = hidden_markov.sample_path_inputs(chain, heads, 100, rng)
    xi_test, y_test = hidden_markov.sample_path_inputs(chain, heads, 1000, rng)
    for found, width in zip(
        run_module(tmp_path, task, [{"widths": n} for n in (10, 100)]), (10, 100), strict=True
    ):
        exact = attnpaths.solve_order_parameter(
            xi, y, attnpaths.Architecture((2, 2), width), task.temperature
        )
        mean = attnpaths.predict(xi, y, xi_test[:300], exact, task.temperature).mean
        assert found["accuracy"] == np.mean(mean * y_test[:300] > 0)
        largest = np.abs(exact.matrix).max()
        np.testing.assert_allclose(found["U"], exact.matrix.ravel(), atol=1e-6 * largest)


def test_two_path_noise_slider_is_the_task_at_that_noise():
    task = widgets.two_path_task(2, test_examples=40)
    for sigma in (0.0, 5.0):
        chain, rng = hidden_markov.HiddenMarkovChain(sigma_perp=sigma), np.random.default_rng(2)
        heads = hidden_markov.two_path_heads(chain)
        xi, y = hidden_markov.sample_path_inputs(chain, heads, 100, rng)
        direct = attnpaths.solve_order_parameter(
            xi, y, attnpaths.Architecture((2, 1), 30), task.temperature
        )
        ours = task.solve(30, noise=sigma).order_parameter
        np.testing.assert_allclose(ours.matrix, direct.matrix, rtol=1e-5)


EXPLORERS = (widgets.hidden_markov_explorer, widgets.paper_explorer, widgets.landscape_explorer)


@pytest.mark.parametrize("make", EXPLORERS, ids=lambda make: make.__name__)
def test_explorers_are_small_and_name_no_other_host(make, monkeypatch):
    # The curve, a few hundred bytes, takes most of the time.
    monkeypatch.setattr(
        widgets.ExplorerTask, "curve", lambda task: np.zeros(len(task.curve_widths))
    )
    html = make().to_html()
    # With a chapter's text and pictures, up to 0.3 MB, a page stays below 1.6 MB.
    assert len(html.encode()) < 1_300_000
    assert "http://www.w3.org/2000/svg" in html  # the name of SVG, which nothing fetches
    assert html.count("http") == 1


def test_jupyter_gets_the_widget_and_a_static_page_the_html():
    explorer = widgets.landscape_explorer()
    data, _ = explorer._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert "</script>" in data["text/html"]
    assert data["text/html"].count("<script") == data["text/html"].count("</script>")


def test_python_solves_what_the_explorer_shows():
    explorer = widgets.landscape_explorer()
    explorer.width = 50
    assert explorer.solve().order_parameter.architecture.widths == (50.0, 50.0)
    explorer.heads_on = [[True, False]]
    assert explorer.solve().paths == (0,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y": np.zeros(6)}, r"y must hold \+1 and -1"),
        ({"xi_test": np.ones((4, 2, 2))}, r"xi_test must have shape \(P', 2, 3\)"),
        ({"heads": (3,)}, "xi must have shape"),
        ({"width_range": (100, 10)}, "width_range must be"),
        ({"path_names": ["only one"]}, "path_names must hold 2"),
        ({"head_names": [["a", "b"], ["c"]]}, "head_names must hold 1"),
        ({"noises": (0, 1)}, "noises and noise_from"),
        ({"noises": (0, 1), "noise_from": 9}, "noise_from must be at most the 3"),
    ],
)
def test_tasks_that_make_no_sense_are_refused(options, message):
    rng = np.random.default_rng(0)
    good = {
        "name": "toy",
        "xi": rng.normal(size=(6, 2, 3)),
        "y": np.resize([1, -1], 6),
        "xi_test": rng.normal(size=(4, 2, 3)),
        "y_test": np.resize([1, -1], 4),
        "heads": (2,),
    }
    with pytest.raises(ValueError, match=message):
        widgets.ExplorerTask(**{**good, **options})


def test_settings_that_make_no_sense_are_refused():
    task = widgets.landscape_task()
    with pytest.raises(ValueError, match="at least one head in every layer"):
        task.solve(10, heads_on=[[False, False]])
    with pytest.raises(ValueError, match="heads_on must hold one flag a head"):
        task.solve(10, heads_on=[[True]])
    with pytest.raises(ValueError, match="views must be one of"):
        widgets.Explorer(task, views=["everything"])
    with pytest.raises(ValueError, match="tasks must be ExplorerTask"):
        widgets.Explorer([])


def test_compressed_inputs_keep_the_kernel_when_nothing_is_dropped():
    rng = np.random.default_rng(0)
    xi, xi_test = rng.normal(size=(9, 2, 5)), rng.normal(size=(4, 2, 5))
    small, small_test = widgets.compress_inputs(xi, xi_test, 5)
    U = np.array([[2.0, -0.5], [-0.5, 1.0]])
    np.testing.assert_allclose(
        attnpaths.kernel(small_test, U, small), attnpaths.kernel(xi_test, U, xi)
    )


def test_live_figure_is_redrawn_by_its_controls_and_stays_a_picture_without_them():
    plt = pytest.importorskip("matplotlib.pyplot")
    seen = []

    def draw(width, kind):
        seen.append((width, kind))
        if width > 500:
            raise ValueError("too wide")
        return plt.subplots()[1]

    figure = widgets.live(
        draw, alt="an empty figure", width=widgets.LogSlider(1, 1000, 10), kind=["a", "b"]
    )
    assert seen == [(10, "a")]
    box = figure.widget()
    slider, dropdown, message, image = box.children
    image.value = ""
    slider.value = 100
    dropdown.value = "b"
    assert seen[-1] == (100, "b")
    assert 'alt="an empty figure"' in image.value
    slider.value = 1000
    assert "too wide" in message.value
    html = figure.to_html()
    assert "live in Jupyter" in html.replace("Live", "live")
    assert 'alt="an empty figure"' in html
    assert "<input" not in html


def test_live_refuses_what_it_cannot_draw():
    with pytest.raises(ValueError, match="at least one control"):
        widgets.live(lambda: None)
    with pytest.raises(ValueError, match="Figure or Axes, got int"):
        widgets.live(lambda size: 3, size=(1, 4))
    with pytest.raises(ValueError, match="size must be a control"):
        widgets.live(lambda size: 3, size=object())
    with pytest.raises(ValueError, match="value must lie between"):
        widgets.LogSlider(1, 10, 100)


def test_hidden_markov_can_be_drawn_live():
    figure = widgets.live_hidden_markov(width=30, seed=1)
    assert figure.values["width"] == pytest.approx(30)
    assert figure.to_html().startswith("<figure")
