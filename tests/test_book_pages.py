"""The built book as a reader meets it: every page in Chromium, on its own, at two widths."""

import functools
import re

import pytest
from conftest import BOOK, ROOT

pytestmark = pytest.mark.browser

PAGES = sorted(
    path.relative_to(BOOK).as_posix()
    for path in BOOK.rglob("*.html")
    if path.relative_to(BOOK).parts[0] not in ("_static", "index.html")
)
CHAPTERS = [page for page in PAGES if page.startswith("book/")] or ["book/welcome.html"]
PAGES = PAGES or CHAPTERS
SCREENSHOTS = ROOT / "artifacts"
TALLEST = 16_000  # pixels; taller pictures overtax the browser

MATHJAX_DONE = """() => !document.querySelector('.math') || (
    window.MathJax && MathJax.startup && MathJax.startup.promise
    && MathJax.startup.promise.then(() => true))"""

# Everything the tests ask of a page, read in one go.
FACTS = """() => {
    const article = document.querySelector('.bd-article') || document.body;
    const all = selector => [...article.querySelectorAll(selector)];
    const prose = article.cloneNode(true);
    prose.querySelectorAll('pre, code, script, style, mjx-container').forEach(e => e.remove());
    const scrolls = e => {
        for (e = e.parentElement; e && e !== document.body; e = e.parentElement)
            if (/auto|scroll|hidden|clip/.test(getComputedStyle(e).overflowX)) return true;
        return false;
    };
    const outside = document.documentElement.scrollWidth > innerWidth + 1;
    const gray = colour => colour.match(/[\\d.]+/g).slice(0, 3).reduce((a, b) => a + +b, 0) / 765;
    return {
        broken: [...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src),
        silent: all('img').filter(i => !i.alt.trim() || /_images\\//.test(i.alt)).map(i => i.src),
        formulas: all('span.math, div.math').length,
        rendered: all('mjx-container').length,
        failed: all('mjx-merror, [data-mjx-error]').map(e => e.textContent),
        prose: prose.textContent,
        outside: !outside ? [] : [...document.querySelectorAll('body *')]
            .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !scrolls(e))
            .slice(0, 5).map(e => e.outerHTML.slice(0, 160)).concat('page scrolls sideways'),
        theme: document.documentElement.dataset.theme,
        paper: gray(getComputedStyle(document.body).backgroundColor),
        ink: gray(getComputedStyle(article).color),
    };
}"""


def foreign(request, book_url):
    """Whether a page reached out of the book."""
    return not request.url.startswith((book_url, "data:", "blob:"))


@pytest.fixture(scope="module")
def visit(browser, book_url):
    """Open a page once for each width and colour scheme; return its facts and its trouble."""
    contexts = {
        dark: browser.new_context(color_scheme="dark" if dark else "light")
        for dark in (False, True)
    }

    @functools.cache
    def open_page(name, width=1280, dark=False):
        page = contexts[dark].new_page()
        page.set_viewport_size({"width": width, "height": 900})
        trouble = []

        def on_request(request):
            if foreign(request, book_url):
                trouble.append(f"request to another host: {request.url}")

        def on_response(response):
            if response.status >= 400:
                trouble.append(f"{response.status}: {response.url}")

        def on_console(message):
            if message.type == "error":
                trouble.append(f"console: {message.text}")

        page.on("request", on_request)
        page.on("response", on_response)
        page.on("console", on_console)
        page.on("pageerror", lambda error: trouble.append(f"script error: {error}"))
        page.goto(f"{book_url}/{name}", wait_until="load")
        page.wait_for_function(MATHJAX_DONE)
        page.wait_for_timeout(200)
        if name in CHAPTERS:
            SCREENSHOTS.mkdir(exist_ok=True)
            stem = name.removesuffix(".html").replace("/", "-")
            height = page.evaluate("document.documentElement.scrollHeight")
            page.screenshot(
                path=SCREENSHOTS / f"{stem}-{width}{'-dark' if dark else ''}.png",
                full_page=True,
                clip={"x": 0, "y": 0, "width": width, "height": min(height, TALLEST)},
            )
        facts = page.evaluate(FACTS)
        facts["address"] = page.url
        page.close()
        return facts, trouble

    yield open_page
    for context in contexts.values():
        context.close()


@pytest.mark.parametrize("name", PAGES)
def test_page_needs_no_other_host_and_reports_no_error(visit, name):
    facts, trouble = visit(name)
    assert trouble == []
    assert facts["broken"] == [], "images that do not load"


@pytest.mark.parametrize("name", PAGES)
def test_page_with_its_data_is_quick_to_load(book_url, name):
    assert (BOOK / name).stat().st_size < 1_600_000


@pytest.mark.parametrize("name", CHAPTERS)
def test_equations_and_references_are_rendered(visit, name):
    facts, _ = visit(name)
    assert facts["rendered"] >= facts["formulas"]
    assert facts["failed"] == []
    markup = r"\$\$|\\\(|\\\[|\{(?:eq|ref|numref|cite|func|class|mod|glue)(?::\w+)?\}"
    assert re.findall(markup, facts["prose"]) == [], "markup that nothing turned into a page"


@pytest.mark.parametrize("name", CHAPTERS)
def test_figures_can_be_read_aloud(visit, name):
    facts, _ = visit(name)
    assert facts["silent"] == [], "images without alternative text"


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("name", CHAPTERS)
def test_page_fits_the_window(visit, name, width):
    facts, trouble = visit(name, width)
    assert facts["outside"] == []
    assert trouble == []


@pytest.mark.parametrize("name", CHAPTERS)
def test_dark_mode_is_followed_and_readable(visit, name):
    facts, trouble = visit(name, dark=True)
    assert facts["theme"] == "dark"
    assert facts["ink"] - facts["paper"] > 0.4
    assert trouble == []


def test_first_page_leads_to_the_book(visit):
    facts, trouble = visit("index.html")
    assert facts["address"].endswith("/book/welcome.html")
    assert trouble == []


def test_search_finds_a_word_of_the_book(browser, book_url):
    page = browser.new_page()
    page.goto(f"{book_url}/search.html?q=attention")
    page.wait_for_selector("#search-results li a")
    page.close()
