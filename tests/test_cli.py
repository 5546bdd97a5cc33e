"""The command line as a user meets it: help, results, exit codes, and no traceback."""

import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnpaths import Architecture, bilinear_attention, path_inputs, predict, solve_order_parameter
from attnpaths.cli import COMMANDS, main

RNG = np.random.default_rng(0)
X, W = RNG.normal(size=(16, 4, 3)), RNG.normal(size=(2, 2, 3, 3))
Y = np.where(X[:, :, 0].mean(axis=1) > 0, 1.0, -1.0)
XI = path_inputs(X, [bilinear_attention(X, w) for w in W])


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "problem.npz"
    np.savez(path, x=X, w_1=W[0], w_2=W[1], y=Y)
    return path


def failure(capsys, *argv, code=1):
    """Run what must fail; return its one line of explanation."""
    assert main([str(word) for word in argv]) == code
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    last = captured.err.strip().splitlines()[-1]
    assert "error:" in last
    return last


def test_help_names_every_command(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert f"\n    {name}" in text
        assert COMMANDS[name].summary in text
    assert "exit codes" in text


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    if name == "train":
        pytest.importorskip("torch")
    assert main([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: python -m attnpaths {name}")
    assert len(text) > 300


def test_it_runs_as_a_module_without_torch_and_scikit_learn():
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('torch', 'matplotlib', 'pandas', 'sklearn', 'joblib'):\n"
        "            raise ModuleNotFoundError(name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "from attnpaths.cli import main\n"
        "sys.exit(main(['--version']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:10]) == (0, "attnpaths "), done.stderr
    done = subprocess.run(
        [sys.executable, "-m", "attnpaths"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "a command is needed" in done.stderr


def test_a_missing_extra_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch", None)
    for name in [name for name in sys.modules if name.startswith("attnpaths.training")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("attnpaths.network")]:
        monkeypatch.delitem(sys.modules, name)
    assert "attnpaths[training]" in failure(capsys, "train", "--help")


def test_wrong_usage_is_told_apart_from_failure(problem, capsys):
    for argv in (
        [],
        ["nonsense"],
        ["solve"],
        ["solve", problem],
        ["solve", problem, "-N", "ten"],
        ["solve", problem, "-N", "0.5"],
        ["solve", problem, "-N", "10,nan"],
        ["solve", problem, "-N", "10", "-T", "cold"],
        ["solve", problem, "-N", "10", "-T", "-1"],
        ["solve", problem, "-N", "10", "--readout", "middle"],
        ["solve", problem, "-N", "10", "--no-such-option"],
    ):
        failure(capsys, *argv, code=2)


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_solve_writes_what_the_package_computes(problem, tmp_path, capsys, suffix):
    output = tmp_path / f"result{suffix}"
    assert main(["solve", str(problem), "-N", "20", "-T", "0.1", "-o", str(output)]) == 0
    text = capsys.readouterr().out
    assert "converged" in text
    solution = solve_order_parameter(XI, Y, Architecture((2, 2), 20), 0.1)
    if suffix == ".npz":
        with np.load(output, allow_pickle=False) as file:
            result = dict(file)
    else:
        result = json.loads(output.read_text())
    np.testing.assert_allclose(result["U_1"], solution.matrix, rtol=1e-8)
    np.testing.assert_allclose(result["U_2"], solution.layers[1], rtol=1e-8)
    assert float(result["action"]) == pytest.approx(solution.action)
    assert list(result["classes"]) == [-1, 1]
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_solve_reads_every_form_of_heads(problem, tmp_path, capsys):
    safetensors = pytest.importorskip("safetensors.numpy")
    attention = {f"attention_{i + 1}": bilinear_attention(X, w) for i, w in enumerate(W)}
    safetensors.save_file({"x": X, **attention}, tmp_path / "attention.safetensors")
    np.savez(tmp_path / "labels.npz", y=np.where(Y > 0, "yes", "no"))
    np.savez(tmp_path / "paths.npz", xi=XI, heads=np.array([2, 2]), y=Y)
    q = RNG.normal(size=(2, 2, 2, 3))
    np.savez(tmp_path / "qk.npz", x=X, q_1=q[0], k_1=q[1], y=Y.astype(np.float32))
    files = [
        [problem],
        [tmp_path / "attention.safetensors", tmp_path / "labels.npz"],
        [tmp_path / "paths.npz"],
    ]
    actions = []
    for number, names in enumerate(files):
        output = tmp_path / f"{number}.json"
        argv = ["solve", *names, "-N", "20,30,40", "-T", "0.1", "-o", output]
        assert main([str(word) for word in argv]) == 0
        actions.append(json.loads(output.read_text())["action"])
    assert actions == pytest.approx([actions[0]] * 3)
    assert main(["solve", str(tmp_path / "qk.npz"), "-N", "20"]) == 0
    assert "heads (2,)" in capsys.readouterr().out.split("written")[-1]


def test_solve_predicts_a_test_set(tmp_path, capsys):
    np.savez(
        tmp_path / "problem.npz",
        **{"x": X[:10], "w_1": W[0], "w_2": W[1], "y": Y[:10]},
        **{"x_test": X[10:], "y_test": Y[10:]},
    )
    argv = ["solve", tmp_path / "problem.npz", "-N", "20", "-T", "0.1", "-o", tmp_path / "r.json"]
    assert main([str(word) for word in argv]) == 0
    result = json.loads((tmp_path / "r.json").read_text())
    solution = solve_order_parameter(XI[:10], Y[:10], Architecture((2, 2), 20), 0.1)
    mean = predict(XI[:10], Y[:10], XI[10:], solution, 0.1).mean
    np.testing.assert_allclose(result["test_mean"], mean, atol=1e-8)
    assert result["test_accuracy"] == np.mean(np.sign(mean) == Y[10:])
    assert f"{result['test_accuracy']:.4f}" in capsys.readouterr().out


def test_what_a_user_gets_wrong_in_files_is_explained(tmp_path, problem, capsys):
    def write(name, **arrays):
        np.savez(tmp_path / name, **arrays)
        return tmp_path / name

    def solve(*files):
        return failure(capsys, "solve", *files, "-N", "10", "-T", "0.1")

    assert "there is no file" in solve(tmp_path / "missing.npz")
    assert ".npz or .safetensors" in solve(tmp_path / "table.csv")
    assert "must hold y" in solve(write("a.npz", x=X))
    assert "must hold x or xi" in solve(write("b.npz", y=Y))
    assert "attention_1" in solve(write("c.npz", y=Y, x=X))
    assert "without gaps" in solve(write("d.npz", y=Y, x=X, w_2=W[0]))
    assert "as many" in solve(write("e.npz", y=Y, x=X, q_1=W[0], k_1=W[0], k_2=W[1]))
    assert "must hold heads" in solve(write("f.npz", y=Y, xi=XI))
    assert "heads" in solve(write("g.npz", y=Y, xi=XI, heads=np.array([2.5, 2])))
    assert "xi must have shape" in solve(write("h.npz", y=Y, xi=XI, heads=np.array([2, 3])))
    assert "y must be finite" in solve(write("i.npz", y=Y * np.nan, x=X, w_1=W[0]))
    assert "x must be finite" in solve(write("j.npz", y=Y, x=X * np.inf, w_1=W[0]))
    assert "y must have 16 entries" in solve(write("k.npz", y=Y[:3], x=X, w_1=W[0]))
    assert "must not repeat" in solve(problem, write("l.npz", y=Y))
    assert "widths" in failure(capsys, "solve", problem, "-N", "1,2", "-T", "1")
    output = tmp_path / "nowhere" / "r.npz"
    assert "no folder" in failure(capsys, "solve", problem, "-N", "10", "-o", output)
    assert ".npz or .json" in failure(capsys, "solve", problem, "-N", "10", "-o", "result.txt")


def test_a_file_with_python_objects_is_refused(tmp_path, capsys):
    path = tmp_path / "objects.npz"
    np.savez(path, x=X, w_1=W[0], y=np.array([print, None], dtype=object), allow_pickle=True)
    assert "Python objects" in failure(capsys, "solve", path, "-N", "10")


def test_a_point_that_is_no_minimum_is_a_failure(problem, monkeypatch, capsys):
    import attnpaths.cli.solve as module

    solve = module.solve_order_parameter
    monkeypatch.setattr(
        module, "solve_order_parameter", lambda *a, **k: solve(*a, **k, max_evaluations=1)
    )
    assert main(["solve", str(problem), "-N", "10", "-T", "0.1"]) == 1
    captured = capsys.readouterr()
    assert "NOT a minimum" in captured.out
    assert captured.err == ""


def test_interruption_is_told_by_the_exit_code(problem, monkeypatch, capsys):
    import attnpaths.cli.solve as module

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "read_arrays", interrupt)
    assert main(["solve", str(problem), "-N", "10"]) == 130
    assert "Traceback" not in capsys.readouterr().err


@pytest.fixture(scope="module")
def digit_heads(tmp_path_factory):
    """Heads of a network that was never trained, for the images that are always there."""
    from attnpaths.trained import TrainedHeads, save_trained_heads

    rng = np.random.default_rng(1)
    layers = range(2)
    trained = TrainedHeads(
        queries=[0.1 * rng.normal(size=(2, 4, 192)) for _ in layers],
        keys=[0.1 * rng.normal(size=(2, 4, 192)) for _ in layers],
        embedding=rng.normal(size=(3, 192)),
        weights=rng.normal(size=(4, 192)),
        order_parameters=[np.eye(4), np.eye(2)],
        magnitudes=[np.ones(2), np.ones(2)],
        metadata={"config": {"data": "digits"}},
    )
    path = tmp_path_factory.mktemp("heads") / "digits.npz"
    save_trained_heads(path, trained)
    return path


def test_prune_drops_all_but_one_head_a_layer(digit_heads, tmp_path, capsys):
    criteria = ["theory", "empirical", "gradient", "magnitude", "drop", "random"]
    output = tmp_path / "pruned.json"
    argv = ["prune", digit_heads, "--criteria", *criteria, "--examples", "30", "--tasks", "60"]
    assert main([str(word) for word in [*argv, "--no-progress", "-o", output]]) == 0
    result = json.loads(output.read_text())
    for name in criteria:
        assert len(result[f"order_{name}"]) == 2
        assert len(result[f"accuracy_{name}"]) == 3
        assert sorted(layer for layer, _ in result[f"order_{name}"]) == [1, 2]
    assert result["temperature"] in (1.5, 1.0, 0.5, 0.25, 0.1)
    text = capsys.readouterr().out
    assert all(f"{name}: accuracy on 60 tasks" in text for name in criteria)


def test_prune_ranks_the_heads_of_a_solution(problem, tmp_path, capsys):
    solved = tmp_path / "solved.npz"
    assert main(["solve", str(problem), "-N", "10", "-T", "0.1", "-o", str(solved)]) == 0
    assert main(["prune", str(solved), "-o", str(tmp_path / "order.json")]) == 0
    result = json.loads((tmp_path / "order.json").read_text())
    order = [tuple(head) for head in result["order"]]
    scores = [result[f"scores_{layer}"][head - 1] for layer, head in order]
    assert scores == sorted(scores)
    assert "layer head score" in capsys.readouterr().out


def test_prune_explains_what_it_cannot_read(problem, digit_heads, tmp_path, capsys):
    assert "does not hold trained heads" in failure(capsys, "prune", problem)
    assert "shipped names" in failure(capsys, "prune", "no_such_heads")
    assert "there is no file" in failure(capsys, "prune", tmp_path / "none.npz")
    assert "no folder" in failure(capsys, "prune", digit_heads, "--data", tmp_path / "none")
    failure(capsys, "prune", digit_heads, "--criteria", "beauty", code=2)
    failure(capsys, "prune", digit_heads, "--tasks", "-5", code=2)
    failure(capsys, "prune", digit_heads, "-N", "0", code=2)


def test_train_makes_heads_that_prune_reads(tmp_path, capsys):
    pytest.importorskip("torch")
    options = ["--data", "digits", "--heads", "2", "2", "--width", "16", "--key-width", "4"]
    options += ["--batch", "4", "--validation-tasks", "20", "--test-tasks", "20", "--quiet"]
    folder = tmp_path / "run"
    assert main(["train", "--steps", "2", *options, "--folder", str(folder)]) == 0
    assert "best of 2 steps" in capsys.readouterr().out
    # A longer run goes on from the checkpoint of the shorter one.
    assert main(["train", "--steps", "3", *options, "--folder", str(folder)]) == 0
    heads = folder / "trained_heads.npz"
    sizes = ["--examples", "20", "--tasks", "20", "-T", "1", "--no-progress"]
    assert main(["prune", str(heads), *sizes]) == 0
    assert "theory: accuracy on 20 tasks" in capsys.readouterr().out
    assert "no folder" in failure(
        capsys, "train", "--steps", "2", *options, "--output", tmp_path / "none" / "heads.npz"
    )


def test_data_says_what_is_there_and_what_is_not(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("ATTNPATHS_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["data", "verify", "digits"]) == 0
    assert "3 classes" in capsys.readouterr().out
    assert "omniglot are missing" in failure(capsys, "data", "verify")
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(b"not an archive")
    assert "missing or damaged" in failure(capsys, "data", "verify", "mnist")
    assert "no images" in failure(capsys, "data", "verify", "imagenet")
    failure(capsys, "data", "delete", code=2)
    assert "folder" in failure(capsys, "data", "verify", "--folder", tmp_path / "none")


def npz_bytes(folder):
    path = folder / "whole.npz"
    np.savez(path, x=X[:4], w_1=W[0], y=Y[:4])
    return path.read_bytes()


def safetensors_bytes(folder):
    safetensors = pytest.importorskip("safetensors.numpy")
    return safetensors.save({"x": X[:4], "w_1": W[0], "y": Y[:4]})


@pytest.mark.parametrize(
    ("make", "suffix"), [(npz_bytes, "npz"), (safetensors_bytes, "safetensors")]
)
def test_damaged_files_end_in_an_answer_or_a_clear_error(tmp_path_factory, make, suffix):
    folder = tmp_path_factory.mktemp("fuzz")
    whole = make(folder)
    path = folder / f"damaged.{suffix}"

    @settings(max_examples=150, deadline=None)
    @given(
        changes=st.lists(
            st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=6
        ),
        cut=st.one_of(st.none(), st.integers(0, len(whole))),
    )
    def damaged(changes, cut):
        content = bytearray(whole)
        for place, value in changes:
            content[place] = value
        path.write_bytes(content[:cut])
        assert main(["solve", str(path), "-N", "10", "-T", "1"]) in (0, 1)

    damaged()


@pytest.mark.parametrize("suffix", ["npz", "safetensors"])
@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=200))
def test_arbitrary_bytes_are_no_result(tmp_path_factory, suffix, content):
    path = tmp_path_factory.mktemp("bytes") / f"file.{suffix}"
    path.write_bytes(content)
    assert main(["solve", str(path), "-N", "10"]) == 1
