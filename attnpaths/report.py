"""The reproduction report: numbers, statements, their verdicts, and the report's text.

Every number of the paper that we compute stands beside ours, with its spread over data seeds and a
verdict by one rule (`RULE`). A report is a plain dictionary (JSON); the book's chapter and the
files that `python -m attnpaths reproduce` writes are both made from it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import numpy as np
from scipy.special import stdtrit

from attnpaths._validation import Array, as_array, as_choice, as_number

__all__ = [
    "RULE",
    "VERDICTS",
    "Number",
    "Statement",
    "alignment_entries",
    "count_verdicts",
    "load_report",
    "notes_markdown",
    "prediction_interval",
    "report_html",
    "report_markdown",
    "summary_markdown",
    "table_markdown",
]

REPRODUCED, IN_KIND, NOT = "reproduced", "reproduced in kind", "not reproduced"
OURS_ONLY, MISSING = "nothing to compare", "not computed"
VERDICTS = (REPRODUCED, IN_KIND, NOT, OURS_ONLY, MISSING)

RULE = (
    "A published number belongs to one draw of data and heads, so it is compared with the "
    "spread of ours over data seeds. It is reproduced if it lies in the interval that holds a new "
    "draw with 95 % probability, mean ± t s √(1 + 1/n) (mean and standard deviation s of n seeds, "
    "t the 97.5 % point of Student's distribution with n − 1 degrees of freedom). It is "
    "reproduced in kind if it lies outside, but the statement that it stands for holds in our "
    "data. Else it is not reproduced. With fewer than five seeds the interval says too little, and "
    "a number is at best reproduced in kind. A statement is reproduced if it holds in at least "
    "95 % of the seeds, in kind if in more than half."
)
# Fewest seeds whose interval is compared with a published number.
FEWEST = 5


def prediction_interval(values: Sequence[float]) -> tuple[float, float]:
    """Interval that holds a new draw with 95 % probability.

    ``mean +- t s sqrt(1 + 1/n)`` with the 97.5 % point of Student's distribution with n - 1 degrees
    of freedom.

    Parameters
    ----------
    values : sequence of float
        One value a seed, at least two.

    Returns
    -------
    low, high : float

    Raises
    ------
    ValueError
        If there are fewer than two values, or one is not finite.

    Examples
    --------
    >>> low, high = prediction_interval([1.0, 2.0, 3.0])
    >>> round(low, 2), round(high, 2)
    (-2.97, 6.97)
    """
    draws = as_array("values", values, ("n",))
    n = len(draws)
    if n < 2:
        raise ValueError(f"values must hold at least two numbers, got {n}")
    half = stdtrit(n - 1, 0.975) * draws.std(ddof=1) * np.sqrt(1 + 1 / n)
    return float(draws.mean() - half), float(draws.mean() + half)


class MissingInputError(Exception):
    """What a figure needs is not there; the message says what, and how to get it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from attnpaths.reproduce import FIGURES, Context, MissingInputError
    >>> try:
    ...     FIGURES["3b"].compute(Context(Path("runs"), heads=Path("lost")))
    ... except MissingInputError as error:
    ...     print(str(error)[:24])
    trained heads are needed
    """


@dataclass(frozen=True)
class Statement:
    """Something that must be seen in a figure, judged seed by seed.

    Parameters
    ----------
    name : str
        Short name, to which numbers refer.
    text : str
        The statement.
    holds : sequence of bool
        Whether it holds, one entry a seed.
    why : str
        What explains it where it does not hold.

    Examples
    --------
    >>> rises = Statement("rises", "accuracy rises", [True] * 19 + [False])
    >>> rises.verdict, rises.as_dict()["holds"], rises.as_dict()["seeds"]
    ('reproduced', 19, 20)
    """

    name: str
    text: str
    holds: Sequence[bool] | Array
    why: str = ""

    @property
    def verdict(self) -> str:
        """By `RULE`."""
        share = float(np.mean(self.holds)) if len(self.holds) else 0.0
        return REPRODUCED if share >= 0.95 else IN_KIND if share > 0.5 else NOT

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        holds = [bool(value) for value in self.holds]
        return {
            "name": self.name,
            "text": self.text,
            "holds": sum(holds),
            "seeds": len(holds),
            "verdict": self.verdict,
            "why": "" if self.verdict == REPRODUCED else self.why,
        }


@dataclass(frozen=True)
class Number:
    """A number of the paper beside ours.

    Parameters
    ----------
    quantity : str
        What it is, with its settings.
    values : sequence of float
        Ours, one a seed.
    published : float, optional
        The number to compare with; None if there is none.
    unit : {"", "%"}
        "%": values are fractions, shown in percent.
    statement : str
        Name of the statement that the number stands for; empty if it stands for none.
    why : str
        What explains a difference.
    digits : int
        Digits shown after the point.

    Examples
    --------
    >>> ours = [0.80, 0.82, 0.81, 0.83, 0.79]
    >>> number = Number("accuracy at N = 10", ours, published=0.826, unit="%")
    >>> number.verdict({})
    'reproduced'
    >>> entry = number.as_dict({})
    >>> round(entry["mean"], 3), [round(end, 3) for end in entry["interval"]]
    (0.81, [0.762, 0.858])
    """

    quantity: str
    values: Sequence[float]
    published: float | None = None
    unit: str = ""
    statement: str = ""
    why: str = ""
    digits: int = 2

    def verdict(self, statements: Mapping[str, Statement]) -> str:
        """By `RULE`.

        Examples
        --------
        >>> rises = Statement("rises", "accuracy rises", [True] * 20)
        >>> number = Number("accuracy", [0.80, 0.82, 0.81, 0.83, 0.79], 0.90, statement="rises")
        >>> number.verdict({}), number.verdict({"rises": rises})
        ('not reproduced', 'reproduced in kind')
        """
        if not len(self.values):
            return MISSING
        if self.published is None:
            return OURS_ONLY
        if len(self.values) >= FEWEST:
            low, high = prediction_interval(self.values)
            if low <= self.published <= high:
                return REPRODUCED
        statement = statements.get(self.statement)
        return IN_KIND if statement is not None and statement.verdict != NOT else NOT

    def as_dict(self, statements: Mapping[str, Statement]) -> dict[str, Any]:
        """For the report."""
        values = [as_number("values", value) for value in self.values]
        verdict = self.verdict(statements)
        several = len(values) > 1
        return {
            "quantity": self.quantity,
            "unit": as_choice("unit", self.unit, ("", "%")),
            "digits": self.digits,
            "published": self.published,
            "mean": float(np.mean(values)) if values else None,
            "sd": float(np.std(values, ddof=1)) if several else None,
            "interval": list(prediction_interval(values)) if several else None,
            "values": values,
            "statement": self.statement,
            "verdict": verdict,
            "why": self.why if verdict in (IN_KIND, NOT) else "",
        }


@dataclass(frozen=True)
class FigureResult:
    """What was computed for one figure.

    Parameters
    ----------
    numbers, statements : list
        What is compared.
    series : dict of str to array
        What the figure draws.
    notes : str
        What a reader should know of the settings.
    """

    numbers: list[Number] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    series: dict[str, Any] = field(default_factory=dict)
    notes: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For the report."""
        by_name = {statement.name: statement for statement in self.statements}
        return {
            "status": "done",
            "notes": self.notes,
            "numbers": [number.as_dict(by_name) for number in self.numbers],
            "statements": [statement.as_dict() for statement in self.statements],
            "series": self.series,
        }


def alignment_entries(theory: Array, gp: Array, components: int) -> tuple[list[Number], Statement]:
    """How much of the labels the first kernel components hold, beside the GP limit's.

    Parameters
    ----------
    theory, gp : ndarray, shape (draws, P)
        Overlaps of components and labels at N = 10 and in the GP limit, see
        `attnpaths.kernel_task_alignment`.
    components : int
        How many count.

    Returns
    -------
    numbers : list of Number
        Share of the labels (sum of squared overlaps), of the network and of its limit.
    statement : Statement
        That the network's is larger.

    Examples
    --------
    >>> import numpy as np
    >>> theory, gp = np.array([[0.8, 0.6], [0.6, 0.8]]), np.array([[0.6, 0.8], [0.5, 0.9]])
    >>> numbers, statement = alignment_entries(theory, gp, components=1)
    >>> [round(value, 2) for value in numbers[0].values], statement.verdict
    ([0.64, 0.36], 'reproduced')
    """
    captured: list[Any] = [(overlap[:, :components] ** 2).sum(axis=1) for overlap in (theory, gp)]
    numbers = [
        Number(
            f"share of the labels (squared overlaps) in the first {components} PCs, {what}",
            values.tolist(),
            unit="%",
            digits=1,
        )
        for what, values in zip(("N = 10", "GP limit"), captured, strict=True)
    ]
    statement = Statement(
        "aligned",
        f"the first {components} PCs of the N = 10 kernel hold more of the labels than the GP's",
        captured[0] > captured[1],
    )
    return numbers, statement


def load_report() -> dict[str, Any]:
    """Report that the package ships: a full run of `python -m attnpaths reproduce`.

    Returns
    -------
    dict
        "about", "rule", "versions" and "figures", a dictionary of figures by name.

    Examples
    --------
    >>> sorted(load_report())[:2]
    ['about', 'figures']
    """
    path = files("attnpaths").joinpath("data", "reproduction.json")
    return json.loads(path.read_text(encoding="utf-8"))


def count_verdicts(figure: Mapping[str, Any]) -> dict[str, int]:
    """How many numbers and statements of a figure have each verdict.

    Examples
    --------
    >>> counts = count_verdicts(load_report()["figures"]["2c"])
    >>> tuple(counts) == VERDICTS, counts["reproduced"] > 0
    (True, True)
    """
    entries = [*figure.get("numbers", ()), *figure.get("statements", ())]
    return {name: sum(entry["verdict"] == name for entry in entries) for name in VERDICTS}


def summary_markdown(report: Mapping[str, Any]) -> str:
    """Table of all figures with the number of verdicts of each kind, in Markdown.

    Parameters
    ----------
    report : dict
        From `load_report` or a report's JSON file.

    Returns
    -------
    str

    Examples
    --------
    >>> print(summary_markdown(load_report()).splitlines()[0])
    | figure | what | reproduced | in kind | not |  |
    """
    rows = []
    for name, figure in report["figures"].items():
        if figure["status"] != "done":
            rows.append([name, figure["title"], "", "", "", figure["status"]])
            continue
        counts = count_verdicts(figure)
        shown = [counts[verdict] or "" for verdict in (REPRODUCED, IN_KIND, NOT)]
        rows.append([name, figure["title"], *shown, ""])
    header = ["figure", "what", REPRODUCED, "in kind", "not", ""]
    return _table(header, rows)


def table_markdown(figure: Mapping[str, Any]) -> str:
    """Numbers and statements of one figure with their verdicts, in Markdown.

    Parameters
    ----------
    figure : dict
        One entry of a report's "figures".

    Returns
    -------
    str

    Examples
    --------
    >>> table = table_markdown(load_report()["figures"]["2c"])
    >>> print(table.splitlines()[0])
    | quantity | published | ours ± sd | new draw, 95 % | verdict |
    """
    if figure["status"] != "done":
        return f"Not computed: {figure['reason']}.\n"
    parts = []
    if figure["numbers"]:
        rows = [
            [
                number["quantity"],
                _show(number, "published"),
                _spread(number),
                _interval(number),
                _verdict(number),
            ]
            for number in figure["numbers"]
        ]
        header = ["quantity", "published", "ours ± sd", "new draw, 95 %", "verdict"]
        parts.append(_table(header, rows))
    if figure["statements"]:
        rows = [
            [entry["text"], f"{entry['holds']} of {entry['seeds']}", _verdict(entry)]
            for entry in figure["statements"]
        ]
        parts.append(_table(["statement", "seeds where it holds", "verdict"], rows))
    whys = dict.fromkeys(
        entry["why"] for entry in [*figure["numbers"], *figure["statements"]] if entry["why"]
    )
    if whys:
        parts.append("Where they differ:\n\n" + "\n".join(f"- {why}" for why in whys) + "\n")
    return "\n".join(parts)


def report_markdown(report: Mapping[str, Any], pictures: Mapping[str, str] | None = None) -> str:
    """Whole report in Markdown.

    Parameters
    ----------
    report : dict
        From `load_report` or a report's JSON file.
    pictures : dict of str to str, optional
        File of each figure's picture, relative to the report.

    Returns
    -------
    str

    Examples
    --------
    >>> text = report_markdown(load_report(), pictures={"2c": "figures/2c.png"})
    >>> "(figures/2c.png)" in text, text.splitlines()[0]
    (True, '# Reproduction report')
    """
    parts = ["# Reproduction report\n", report["about"] + "\n", _versions(report) + "\n"]
    parts += ["**Rule.** " + report["rule"] + "\n", summary_markdown(report)]
    for name, figure in report["figures"].items():
        parts.append(f"## Figure {name}: {figure['title']}\n")
        if pictures and name in pictures:
            parts.append(f"![Figure {name}: {figure['title']}]({pictures[name]})\n")
        parts.append(notes_markdown(figure) + table_markdown(figure))
    return "\n".join(parts)


def report_html(report: Mapping[str, Any], pictures: Mapping[str, str] | None = None) -> str:
    """Whole report as one HTML page without scripts; arguments as `report_markdown`.

    Examples
    --------
    >>> report_html(load_report()).startswith("<!doctype html>")
    True
    """
    body = [f"<h1>Reproduction report</h1><p>{html.escape(report['about'])}</p>"]
    body.append(f"<p>{html.escape(_versions(report))}</p>")
    body.append(f"<p><strong>Rule.</strong> {html.escape(report['rule'])}</p>")
    body.append(_as_html(summary_markdown(report)))
    for name, figure in report["figures"].items():
        title = html.escape(f"Figure {name}: {figure['title']}")
        body.append(f"<h2>{title}</h2>")
        if pictures and name in pictures:
            body.append(f'<img src="{html.escape(pictures[name])}" alt="{title}">')
        body.append(_as_html(notes_markdown(figure) + table_markdown(figure)))
    return HTML_PAGE.format(body="\n".join(body))


HTML_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Reproduction report</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem
}} table {{ border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }}
td, th {{ border-bottom: 1px solid #ccc; padding: .2rem .6rem; text-align: left }}
img {{ max-width: 100% }}
</style></head><body>
{body}
</body></html>
"""


def _versions(report: Mapping[str, Any]) -> str:
    return "Made with " + ", ".join(f"{k} {v}" for k, v in report["versions"].items()) + "."


def notes_markdown(figure: Mapping[str, Any]) -> str:
    """What a figure was computed with, in one paragraph.

    Examples
    --------
    >>> "data seeds" in notes_markdown(load_report()["figures"]["2c"])
    True
    """
    if figure["status"] != "done":
        return ""
    settings = ", ".join(f"{name}: {value}" for name, value in figure["settings"].items())
    return f"{figure['notes']} Run with {settings}.\n\n"


def _show(number: Mapping[str, Any], key: str) -> str:
    value = number[key]
    if value is None:
        return "–"
    factor = 100 if number["unit"] == "%" else 1
    text = f"{factor * value:.{number['digits']}f}".replace("-", "−")
    return f"{text} %" if number["unit"] == "%" else text


def _spread(number: Mapping[str, Any]) -> str:
    if number["sd"] is None:
        return _show(number, "mean")
    unit = " %" if number["unit"] else ""
    plain = {**number, "unit": "", "mean": _scaled(number, "mean"), "sd": _scaled(number, "sd")}
    return f"{_show(plain, 'mean')} ± {_show(plain, 'sd')}{unit}"


def _scaled(number: Mapping[str, Any], key: str) -> float:
    return number[key] * (100 if number["unit"] == "%" else 1)


def _interval(number: Mapping[str, Any]) -> str:
    if number["interval"] is None:
        return "–"
    ends = [_show({**number, "end": end}, "end") for end in number["interval"]]
    return f"{ends[0].removesuffix(' %')} to {ends[1]}"


def _verdict(entry: Mapping[str, Any]) -> str:
    verdict = entry["verdict"]
    return f"**{verdict}**" if verdict == NOT else verdict


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    escaped = [[str(cell).replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in escaped) + "\n"


def _as_html(markdown: str) -> str:
    """HTML of what this module writes as Markdown: tables, lists, paragraphs, bold."""
    blocks = []
    for block in markdown.strip().split("\n\n"):
        lines = block.split("\n")
        if lines[0].startswith("| "):
            cells = [
                [cell.strip().replace("\\|", "|") for cell in line[2:-2].split(" | ")]
                for line in lines
            ]
            rows = [
                "<tr>" + "".join(f"<{tag}>{_inline(cell)}</{tag}>" for cell in row) + "</tr>"
                for tag, row in [("th", cells[0]), *(("td", row) for row in cells[2:])]
            ]
            blocks.append("<table>" + "".join(rows) + "</table>")
        elif lines[0].startswith("- "):
            blocks.append("<ul>" + "".join(f"<li>{_inline(li[2:])}</li>" for li in lines) + "</ul>")
        else:
            blocks.append(f"<p>{_inline(' '.join(lines))}</p>")
    return "\n".join(blocks)


def _inline(text: str) -> str:
    pieces = html.escape(text).split("**")
    return "".join(f"<strong>{p}</strong>" if n % 2 else p for n, p in enumerate(pieces))
