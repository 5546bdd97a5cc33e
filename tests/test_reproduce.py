"""The reproduction report: its rule, its tables, and a run that can be stopped."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

import attnpaths.reproduce as module
from attnpaths.cli import main
from attnpaths.published import published_case
from attnpaths.report import (
    RULE,
    FigureResult,
    Number,
    Statement,
    load_report,
    prediction_interval,
    report_html,
    report_markdown,
    table_markdown,
)
from attnpaths.reproduce import FIGURES, Context, FigureSpec, MissingInputError, draw, reproduce
from attnpaths.sweep import HiddenMarkovProblem

TOY = {"toy": FigureSpec("a toy", None, lambda series, figure: figure.subplots())}
GOOD = Statement("up", "it goes up", [True] * 4)
BAD = Statement("down", "it goes down", [True, False, False, False], why="it went up")


def verdict(published, values, statement=""):
    return Number("q", values, published, statement=statement).verdict({"up": GOOD, "down": BAD})


def test_the_interval_holds_a_new_draw_as_often_as_it_says():
    rng = np.random.default_rng(0)
    draws = rng.normal(3.0, 2.0, size=(4000, 6))
    inside = 0
    for row in draws:
        low, high = prediction_interval(row[:-1])
        inside += low <= row[-1] <= high
    assert inside / len(draws) == pytest.approx(0.95, abs=0.012)


def test_verdicts_follow_the_rule():
    ours = [1.0, 1.1, 0.9, 1.0, 1.05]
    assert verdict(1.05, ours) == "reproduced"
    assert verdict(2.0, ours) == "not reproduced"
    assert verdict(2.0, ours, "up") == "reproduced in kind"
    assert verdict(2.0, ours, "down") == "not reproduced"
    assert verdict(None, ours) == "nothing to compare"
    assert verdict(1.0, []) == "not computed"
    # A few values have no spread to speak of: they can agree in kind only.
    assert verdict(1.0, [1.0], "up") == verdict(1.0, ours[:4], "up") == "reproduced in kind"
    assert [GOOD.verdict, BAD.verdict] == ["reproduced", "not reproduced"]
    assert Statement("s", "s", [True] * 19 + [False]).verdict == "reproduced"
    assert Statement("s", "s", [True] * 3 + [False]).verdict == "reproduced in kind"


def test_a_difference_comes_with_its_reason():
    number = Number("q", [1.0, 1.1, 0.9, 1.0, 1.0], 2.0, statement="down", why="another split")
    result = FigureResult([number], [GOOD, BAD]).as_dict()
    text = table_markdown(result)
    assert "**not reproduced**" in text
    assert "- another split\n- it went up\n" in text
    agreeing = replace(number, published=1.0).as_dict({})
    assert agreeing["why"] == ""
    with pytest.raises(ValueError, match="values"):
        prediction_interval([1.0])


def toy_context(tmp_path, monkeypatch, compute):
    monkeypatch.setattr(module, "FIGURES", {"toy": replace(TOY["toy"], compute=compute)})
    return Context(tmp_path, seeds=3, progress=False)


def test_tables_show_percent_signs_and_spread(tmp_path, monkeypatch):
    def compute(context):
        number = Number("accuracy | odd", [0.5, 0.6, 0.7, 0.6, 0.6], 0.65, "%", digits=1)
        entry = Number("U", [-1.0, -2.0, -3.0], None)
        return FigureResult([number, entry], [GOOD], {}, "a note <b>")

    report = reproduce(toy_context(tmp_path, monkeypatch, compute))
    markdown = report_markdown(report)
    assert "| 65.0 % | 60.0 ± 7.1 % | 38.5 to 81.5 % | reproduced |" in markdown
    assert "| – | −2.00 ± 1.00 |" in markdown
    page = report_html(report)
    assert "accuracy \\| odd" in markdown
    assert "<td>accuracy | odd</td>" in page
    assert "a note &lt;b&gt;" in page
    parser = HTMLParser()
    parser.feed(page)
    assert page.count("<tr>") == page.count("</tr>") > 4
    assert not re.search(r"https?://|<script", page)


def test_a_figure_without_its_inputs_says_so(tmp_path, monkeypatch, capsys):
    def compute(context):
        raise MissingInputError("no trained heads here")

    context = toy_context(tmp_path, monkeypatch, compute)
    report = reproduce(context)
    assert report["figures"]["toy"]["status"] == "not computed"
    assert "no trained heads here" in (tmp_path / "report.md").read_text()
    options = ["--no-progress", "--seeds", "3", "-o", str(tmp_path)]
    assert main(["reproduce", *options]) == 0
    assert "not computed" in capsys.readouterr().out
    # Asked for by name, it is a failure.
    assert main(["reproduce", "toy", *options]) == 1


def test_a_finished_figure_is_not_computed_again(tmp_path, monkeypatch):
    calls = []

    def compute(context):
        calls.append(context)
        return FigureResult([Number("q", [1.0, 2.0, 3.0], 2.0)], [], {})

    context = toy_context(tmp_path, monkeypatch, compute)
    first = reproduce(context)
    assert reproduce(context) == first
    assert len(calls) == 1
    reproduce(context, force=True)
    reproduce(replace(context, seeds=4, draws=4))
    (tmp_path / "figures" / "toy.json").write_text("{ damaged")
    reproduce(context)
    assert len(calls) == 4
    # A figure that is not asked for stays as an earlier run left it.
    monkeypatch.setitem(module.FIGURES, "other", replace(TOY["toy"], compute=compute))
    assert list(reproduce(replace(context, seeds=5), ["other"])["figures"]) == ["toy", "other"]
    assert len(calls) == 5


def test_points_survive_an_interruption(tmp_path):
    done = []

    def point(number):
        if number == 2 and len(done) < 3:
            done.append(number)
            raise KeyboardInterrupt
        done.append(number)
        return {"square": number**2}

    context = Context(tmp_path, progress=False)
    with pytest.raises(KeyboardInterrupt):
        context.map("squares", point, [(n,) for n in range(4)])
    results = context.map("squares", point, [(n,) for n in range(4)])
    assert [int(result["square"]) for result in results] == [0, 1, 4, 9]
    assert done == [0, 1, 2, 2, 3]


@pytest.fixture(scope="module")
def small_run(tmp_path_factory):
    """All figures of the hidden Markov chain task, on small sequences."""
    folder = tmp_path_factory.mktemp("report")
    patch = pytest.MonkeyPatch()
    patch.setattr(
        module,
        "HiddenMarkovProblem",
        lambda task: HiddenMarkovProblem(replace(task, length=10, dimension=20), 30, 60),
    )
    options = ["--quick", "--seeds", "3", "--no-progress", "-o", str(folder)]
    code = main(["reproduce", "2c", "2d", "2e", *options])
    patch.undo()
    return code, folder


def test_the_command_writes_a_whole_report(small_run):
    code, folder = small_run
    assert code == 0
    report = json.loads((folder / "report.json").read_text())
    assert list(report["figures"]) == ["2c", "2d", "2e"]
    text = (folder / "report.md").read_text()
    for name, figure in report["figures"].items():
        assert figure["status"] == "done"
        assert (folder / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
        assert f"figures/{name}.png" in text
        for number in figure["numbers"]:
            assert number["quantity"] in text
    assert report["rule"] in text
    assert "/" + str(folder).split("/")[1] + "/" not in json.dumps(report)


def test_published_numbers_in_the_report_are_the_published_ones(small_run):
    report = json.loads((small_run[1] / "report.json").read_text())
    numbers = {n["quantity"]: n["published"] for n in report["figures"]["2c"]["numbers"]}
    case = published_case("four_paths")
    assert numbers["accuracy, theory, N = 10"] == case["accuracy"][0]
    assert numbers["N = 10, U(g, d)"] == case["U"][0][0, 2]
    assert numbers["N = 1000, U(a22, a22)"] == case["U"][-1][3, 3]


def test_figures_are_drawn_from_the_json_alone(small_run):
    report = json.loads((small_run[1] / "report.json").read_text())
    figure = draw("2c", report["figures"]["2c"])
    assert len(figure.axes) == 4
    with pytest.raises(ValueError, match="computed"):
        draw("2c", {"status": "not computed"})
    with pytest.raises(ValueError, match="name"):
        draw("9z", report["figures"]["2c"])


def test_the_shipped_report_holds_every_figure_and_follows_the_rule():
    report = load_report()
    assert list(report["figures"]) == list(FIGURES)
    assert report["rule"] == RULE
    for figure in report["figures"].values():
        assert figure["status"] == "done"
        statements = {
            entry["name"]: Statement(
                entry["name"],
                entry["text"],
                [True] * entry["holds"] + [False] * (entry["seeds"] - entry["holds"]),
            )
            for entry in figure["statements"]
        }
        for entry in figure["statements"]:
            assert statements[entry["name"]].verdict == entry["verdict"]
        for entry in figure["numbers"]:
            number = Number(
                entry["quantity"], entry["values"], entry["published"], "", entry["statement"]
            )
            assert number.verdict(statements) == entry["verdict"]
            if entry["values"]:
                assert entry["mean"] == pytest.approx(np.mean(entry["values"]), rel=1e-4)
        # What differs is explained.
        for entry in [*figure["numbers"], *figure["statements"]]:
            if entry["verdict"] in ("reproduced in kind", "not reproduced"):
                assert entry["why"], entry


@pytest.mark.slow
def test_small_networks_subtract_the_denoising_path(tmp_path):
    report = reproduce(Context(tmp_path, seeds=4, progress=False), ["2e"])
    statements = {s["name"]: s["verdict"] for s in report["figures"]["2e"]["statements"]}
    assert statements["subtracts"] == "reproduced"
    assert statements["falls"] == "reproduced"


def test_wrong_usage(tmp_path, capsys):
    for argv in (["5z"], ["--seeds", "1"], ["--seeds", "x"], ["--jobs", "0"], ["--jobs", "two"]):
        assert main(["reproduce", *argv]) == 2
        assert "error:" in capsys.readouterr().err
    with pytest.raises(ValueError, match="figures"):
        reproduce(Context(tmp_path), ["5z"])
    assert set(FIGURES) >= {"2c", "2d", "2e"}
