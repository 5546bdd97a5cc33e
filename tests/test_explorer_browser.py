"""The explorer as a reader uses it: in Chromium, without kernel, against Python's numbers."""

import functools
import http.server
import re
import threading

import numpy as np
import pytest
from conftest import ROOT, QuietHandler

from attnpaths import widgets

pytestmark = pytest.mark.browser

SCREENSHOTS = ROOT / "artifacts"
PAGE = """<!doctype html><html lang="en"{theme}><head><meta charset="utf-8"><title>explorer</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"></head>
<body style="font-family: sans-serif; margin: 8px auto; max-width: 860px">{body}</body></html>"""
SETTLED = """() => { const all = [...document.querySelectorAll('.attnpaths')];
    return all.length && all.every(e => e.dataset.state === 'settled'); }"""
CONTRAST = """node => {
    const rgb = text => { const c = document.createElement('canvas').getContext('2d');
        c.fillStyle = text; c.fillRect(0, 0, 1, 1);
        return [...c.getImageData(0, 0, 1, 1).data].slice(0, 3).map(v => v / 255); };
    const light = text => rgb(text)
        .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const paper = light(getComputedStyle(node.closest('.attnpaths')).backgroundColor);
    const style = getComputedStyle(node);
    const ink = light(node.namespaceURI.endsWith('svg') ? style.fill : style.color);
    return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05); }"""


@pytest.fixture(scope="module")
def explorer():
    """Four paths, two noisy paths and digits."""
    return widgets.paper_explorer(test_examples=200)


@pytest.fixture(scope="module")
def site(tmp_path_factory, explorer):
    """Folder with small static pages, served on the loopback address."""
    folder = tmp_path_factory.mktemp("site")
    landscape = widgets.landscape_explorer()
    pages = {
        "explorer": ("", explorer.to_html()),
        "landscape": ("", landscape.to_html()),
        "both": ("", explorer.to_html() + landscape.to_html()),
        "dark": (' data-theme="dark"', explorer.to_html() + landscape.to_html()),
    }
    for name, (theme, body) in pages.items():
        (folder / f"{name}.html").write_text(PAGE.format(theme=theme, body=body), "utf-8")
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.fixture
def visit(browser, site):
    """Open a page and wait for its figures; at the end no error and no foreign request."""
    opened, trouble = [], []

    def open_page(name, width=900, **context):
        page = browser.new_page(viewport={"width": width, "height": 900}, **context)
        page.on("console", lambda m: trouble.append(m.text) if m.type == "error" else None)
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on(
            "request",
            lambda r: None if r.url.startswith((site, "blob:", "data:")) else trouble.append(r.url),
        )
        page.goto(f"{site}/{name}.html")
        opened.append(page)
        settle(page)
        return page

    yield open_page
    for page in opened:
        page.close()
    assert trouble == []


def settle(page):
    page.wait_for_function(SETTLED, timeout=60_000)


def shown(page, key):
    return page.locator(f'[data-value="{key}"]').first.inner_text()


def assert_page_shows(page, solution):
    """The page's visible numbers are Python's."""
    settle(page)
    solved = solution.order_parameter
    assert shown(page, "accuracy") == f"{100 * solution.accuracy:.1f} %"
    assert shown(page, "gp") == f"{100 * solution.gp_accuracy:.1f} %"
    digits = np.format_float_positional(solved.action, 6, fractional=False, min_digits=6)
    assert shown(page, "action") == digits.replace("-", "−")
    if not page.locator("details[open]").count():
        page.get_by_text("All values").first.click()
        page.locator(".ax-values table td").first.wait_for(state="attached")
    cells = page.locator(".ax-values table td").all_inner_texts()
    values = [float(text.replace("−", "-")) for text in cells if text]
    np.testing.assert_allclose(
        np.reshape(values, solved.matrix.shape), solved.matrix, rtol=1e-4, atol=1e-7
    )


def test_slider_moved_by_keyboard_gives_pythons_numbers(visit, explorer):
    page, task = visit("explorer"), explorer.task_data[0]
    assert_page_shows(page, task.solve(10))
    slider = page.get_by_label("Network width N")
    slider.focus()
    for _ in range(9):
        page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == f"N = {task.width_stops[9]:.0f}"
    assert_page_shows(page, task.solve(task.width_stops[9]))
    temperature = page.get_by_label("Temperature T")
    temperature.focus()
    page.keyboard.press("End")
    assert temperature.get_attribute("aria-valuetext").startswith("T = 10,")
    assert_page_shows(page, task.solve(task.width_stops[9], 10.0))
    page.get_by_role("button", name="Reset").click()
    assert_page_shows(page, task.solve(10))


def test_switched_off_head_gives_the_smaller_network(visit, explorer):
    page, task = visit("explorer"), explorer.task_data[0]
    page.get_by_label("Layer 2, head 2: random").focus()
    page.keyboard.press("Space")
    assert_page_shows(page, task.solve(10, heads_on=[[True, True], [True, False]]))
    assert shown(page, "gain") == f"{100 * task.solve(10).accuracy:.1f} %"
    page.get_by_label("Layer 1, head 1: previous token").uncheck()
    solution = task.solve(10, heads_on=[[False, True], [True, False]])
    assert solution.paths == (2,)
    assert_page_shows(page, solution)


def test_the_last_head_of_a_layer_stays_on(visit):
    page = visit("explorer")
    page.get_by_label("Layer 1, head 2: random").uncheck()
    last = page.get_by_label("Layer 1, head 1: previous token")
    last.focus()
    page.keyboard.press("Space")
    assert last.is_checked()
    assert page.get_by_role("status").inner_text() == "Layer 1 needs at least one head."


def test_every_task_can_be_chosen(visit, explorer):
    page = visit("explorer")
    for index, task in enumerate(explorer.task_data):
        page.get_by_label("Task").select_option(str(index))
        assert_page_shows(page, task.solve(10))
    page.get_by_label("Task").select_option("1")
    noise = page.get_by_label("Noise strength")
    noise.focus()
    page.keyboard.press("Home")
    assert_page_shows(page, explorer.task_data[1].solve(10, noise=0))


def test_accuracy_curve_is_pythons(visit, explorer):
    page, task = visit("explorer"), explorer.task_data[0]
    page.get_by_label("Layer 2, head 2: random").uncheck()
    settle(page)
    curve = page.evaluate(
        """() => { const e = document.querySelector('.attnpaths').parentElement.explorer,
        c = e.curve(e.problem); return c.widths.map((w, i) => [w, c.accuracy[i]]); }"""
    )
    heads_on = [[True, True], [True, False]]
    for width, accuracy in curve[::4]:
        assert task.solve(width, heads_on=heads_on).accuracy == accuracy


def test_marked_point_can_be_dragged(visit, explorer):
    page = visit("explorer")
    box = page.locator(".ax-panel-accuracy .ax-plot svg").bounding_box()
    point = page.locator(".ax-panel-accuracy .ax-point").bounding_box()
    page.mouse.move(point["x"] + 6, point["y"] + 6)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 50, steps=5)
    page.mouse.up()
    settle(page)
    text = page.get_by_label("Network width N").get_attribute("aria-valuetext")
    width = float(re.sub(r"[^\d.]", "", text))
    assert 100 < width < 2000
    assert_page_shows(page, explorer.task_data[0].solve(width))


def test_landscape_answers_its_choices(visit):
    page = visit("landscape")
    before = page.locator(".ax-panel-landscape svg").get_attribute("aria-label")
    assert before.startswith("action over two order parameters; minimum at U11 = ")
    page.get_by_label("energy").check()
    page.get_by_label("U₁₁ and correlation").check()
    label = page.locator(".ax-panel-landscape svg").get_attribute("aria-label")
    assert label.startswith("energy over two")
    assert "correlation" in page.locator(".ax-panel-landscape svg").text_content()


def test_landscape_minimum_lies_where_the_solver_says(visit):
    page = visit("landscape")
    lowest = page.evaluate(
        """() => { const e = document.querySelector('.attnpaths').parentElement.explorer,
        U = e.result.U, at = (dx, dy, dz) => e.actionAt([U[0] * (1 + dx), U[1] * (1 + dz),
            U[2] * (1 + dz), U[3] * (1 + dy)], 10, 0.1, 1, 1), here = at(0, 0, 0);
        return [here, ...[[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]]
            .map(d => at(...d.map(v => 0.02 * v)) - here)]; }"""
    )
    task = widgets.landscape_task()
    assert lowest[0] == pytest.approx(task.solve(10).order_parameter.action, rel=1e-9)
    assert min(lowest[1:]) > 0


def test_screen_readers_hear_controls_figures_and_results(visit):
    page = visit("explorer")
    names = page.evaluate(
        "[...document.querySelectorAll('.attnpaths :is(input, select, button, summary)')]"
        ".map(e => e.getAttribute('aria-label') || e.innerText || e.labels?.[0]?.innerText || '')"
    )
    assert len(names) > 7
    assert all(name.strip() for name in names)
    figures = page.locator(".attnpaths svg[role=img]")
    assert figures.count() == 4
    assert all(figure.get_attribute("aria-label") for figure in figures.all())
    status = page.get_by_role("status").inner_text()
    assert shown(page, "accuracy") in status
    assert "most negative correlation: g with d" in status


@pytest.mark.parametrize("page_name", ["both", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_page_fits_and_is_readable(visit, page_name, width):
    page = visit(page_name, width)
    SCREENSHOTS.mkdir(exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"explorer-{page_name}-{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for place in (".ax-stat-note", ".ax-control label", ".ax-tick", ".ax-label", ".ax-status"):
        for node in page.locator(place).all()[:12]:
            assert node.evaluate(CONTRAST) > 4.5, place
    for place in (".ax-stat-value", ".ax-legend span", "figcaption"):
        for node in page.locator(place).all()[:12]:
            assert node.evaluate(CONTRAST) > 3.5, place


def test_system_dark_mode_is_followed_where_the_page_has_no_theme(visit):
    dark = visit("landscape", color_scheme="dark")
    assert dark.locator(".attnpaths[data-dark]").count() == 1
    light = visit("landscape", color_scheme="light")
    assert light.locator(".attnpaths[data-dark]").count() == 0
    light.evaluate("document.documentElement.dataset.theme = 'dark'")
    light.wait_for_selector(".attnpaths[data-dark]")


def test_two_explorers_share_a_page_and_the_module(visit):
    page = visit("both")
    assert page.locator(".attnpaths").count() == 2
    page.get_by_label("Network width N").nth(1).focus()
    before = shown(page, "action")
    page.keyboard.press("End")
    settle(page)
    assert shown(page, "action") == before, "the other explorer stays as it was"
