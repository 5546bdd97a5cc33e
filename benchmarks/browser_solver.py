"""Speed of the in-browser explorer: solves and redraws in Chromium, four paths, P = 100.

    python benchmarks/browser_solver.py [--steps 60]

Moves the width and temperature sliders of the published figure, and
prints the median time of a solve from the last one, of a solve from the infinite-width
limit, and from the key press to the finished drawing; for comparison, Python's solve on the same
machine. On a busy machine all of them grow alike.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright
from tqdm import tqdm

from attnpaths import widgets

PAGE = '<!doctype html><html lang="en"><meta charset="utf-8"><title>explorer</title><body>{}</body>'
READY = "document.querySelector('.attnpaths')?.dataset.state === 'settled'"
VIEW = "document.querySelector('.attnpaths').parentElement.explorer"
# Waits for two frames after the drawing: then it is on the screen.
PRESS = f"""async (key) => {{
    const view = {VIEW}, input = document.activeElement, began = performance.now();
    input.value = Number(input.value) + (key === "ArrowRight" ? 1 : -1);
    input.dispatchEvent(new Event("input", {{ bubbles: true }}));
    while (view.root.dataset.state === "busy") await new Promise(requestAnimationFrame);
    await new Promise(requestAnimationFrame);
    return {{ redraw: performance.now() - began, solve: view.result.milliseconds,
              evaluations: view.result.evaluations }};
}}"""
COLD = f"""async (source) => {{
    const view = {VIEW}, module = await globalThis.attnpathsExplorer, times = [];
    for (const width of view.task.width_stops) {{
        times.push(module.solve(view.problem, width, view.model.get("temperature")).milliseconds);
    }}
    return times;
}}"""


def measure(steps: int) -> dict[str, list[float]]:
    """Times in milliseconds of every step, by what was measured."""
    task = widgets.four_path_task()
    times: dict[str, list[float]] = {"solve": [], "redraw": [], "evaluations": []}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        page_file = Path(folder) / "explorer.html"
        page_file.write_text(PAGE.format(widgets.Explorer(task).to_html()), "utf-8")
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 900, "height": 1200})
        page.goto(page_file.as_uri())
        page.wait_for_function(READY, timeout=60_000)
        for label, key in (("Network width N", "ArrowRight"), ("Temperature T", "ArrowLeft")):
            page.get_by_label(label).focus()
            for _ in tqdm(range(steps // 2), desc=label, leave=False, mininterval=0.5):
                for name, value in page.evaluate(PRESS, key).items():
                    times[name].append(value)
        times["cold solve"] = page.evaluate(COLD)
        browser.close()
    times["Python"] = []
    for width in task.width_stops[::8]:
        began = time.perf_counter()
        task.solve(width)
        times["Python"].append(1e3 * (time.perf_counter() - began))
    return times


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=60, help="slider steps to measure")
    times = measure(parser.parse_args().steps)
    rows = {
        "solve, from the last one (ms)": "solve",
        "  evaluations": "evaluations",
        "solve, from infinite width (ms)": "cold solve",
        "slider to redraw (ms)": "redraw",
        "Python: solve and predict (ms)": "Python",
    }
    print(f"{'':36}{'median':>8}{'90 %':>8}{'worst':>8}")
    for name, key in rows.items():
        values = sorted(times[key])
        high = values[int(0.9 * (len(values) - 1))]
        print(f"{name:36}{statistics.median(values):8.1f}{high:8.1f}{values[-1]:8.1f}")


if __name__ == "__main__":
    main()
