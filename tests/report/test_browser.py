"""The page in a real browser: what it shows, what its controls do, that names in it are text."""

import math
from dataclasses import replace

import pytest

from ritz import report
from ritz.report.articles import Article, Number, Section, Table
from ritz.report.charts import Axis, Chart, Series
from ritz.report.page import page as page_of
from ritz.report.typesetting import numerals
from ritz.spectrum.estimate import digits_within
from tests.report.conftest import HOSTILE

SIZES = {"desktop": (1440, 1000), "phone": (390, 844)}


@pytest.fixture(scope="module")
def address(records, tmp_path_factory):
    return report.write(records, tmp_path_factory.mktemp("page") / "report.html").as_uri()


@pytest.fixture(scope="module")
def open_page(browser, address):
    """A page that is ready; `complaints` has everything that it said or asked for."""
    contexts = []

    def opened(size="desktop", **options):
        width, height = SIZES[size]
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        page = context.new_page()
        page.complaints = complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.on("request", lambda request: complaints.append(request.url) if request.url != address else None)
        page.goto(address)
        page.wait_for_function("document.documentElement.dataset.ready && document.querySelector('.plot svg')")
        return page

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture
def page(open_page, shared=[]):
    """One page on a desktop, as it is after loading."""
    if not shared:
        shared.append(open_page())
    shared[0].reload()
    shared[0].wait_for_function("document.querySelector('.plot svg')")
    return shared[0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_the_page_opens_without_a_complaint_and_fits_the_window(open_page, size, scheme):
    page = open_page(size, color_scheme=scheme)
    assert page.complaints == []
    assert page.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]
    assert page.locator("figure.chart .plot svg").count() == page.locator("figure.chart").count() == 4
    colour = "name => getComputedStyle(document.querySelector(name[0]))[name[1]]"
    paper = page.evaluate(colour, ["body", "backgroundColor"])
    assert (_luminance(paper) > 0.9) == (scheme == "light")
    assert _contrast(page.evaluate(colour, ["body", "color"]), paper) >= 7
    assert all(
        _contrast(page.evaluate(colour, [name, "color"]), paper) >= 4.5 for name in ("caption", ".label", "nav a, a")
    )


def _luminance(colour):
    """The luminance of "rgb(r, g, b)", as the guidelines for accessible pages define it."""
    channels = [int(part) / 255 for part in colour[4:-1].split(",")]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return sum(share * c for share, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _contrast(first, second):
    low, high = sorted(map(_luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


def test_hostile_names_are_text(page, records):
    assert page.locator("article h1").inner_text() == records[0].config["factory"]
    assert page.get_by_text(f"body{HOSTILE}", exact=True).count() >= 2  # in a table, and beside a curve
    assert page.locator("article img").count() == 0
    assert page.locator("article b").count() == 0
    assert page.complaints == []


def test_hovering_over_an_eigenvalue_shows_the_value_of_the_record(page, records):
    value, residual = (float(records[0].arrays[key][0]) for key in ("eigenvalues", "residuals"))
    x, y = page.evaluate(
        """value => { const { frame, plot, view } = ritzPanels[0], box = plot.getBoundingClientRect();
        const stems = view.chart.series[1]; return [box.left + frame.x(value), box.top + frame.y(stems.y[0])]; }""",
        value,
    )
    page.mouse.move(x + 2, y + 2)
    seen = page.locator(".tip").first.inner_text()
    assert f"λ₁ = {digits_within(value, residual)} ± " in seen and numerals(f"{residual:.1g}") in seen
    page.mouse.move(5, 5)
    assert page.locator(".tip").first.is_hidden()


def test_a_box_zooms_in_and_a_double_click_shows_all(page):
    plot = page.locator(".plot").first
    plot.scroll_into_view_if_needed()
    box, whole = plot.bounding_box(), page.evaluate("ritzPanels[0].view.window")
    page.mouse.move(box["x"] + 300, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 500, box["y"] + 200, steps=3)
    page.mouse.up()
    inside = page.evaluate("ritzPanels[0].view.window")
    for axis in "xy":
        assert whole[axis][0] < inside[axis][0] < inside[axis][1] < whole[axis][1]
    plot.dblclick()
    assert page.evaluate("ritzPanels[0].view.window") == whole


def test_axes_switch_and_parts_hide(page):
    figure, marks = (
        page.locator("figure.chart").first,
        page.locator("figure.chart").first.locator("svg g[clip-path] path"),
    )
    before, many = marks.first.get_attribute("d"), marks.count()
    figure.locator("select[data-axis=y]").select_option("linear")
    linear = marks.first.get_attribute("d")
    assert linear != before
    ticks = figure.locator("svg > text").all_text_contents()
    figure.locator("select[data-axis=x]").select_option("symlog")
    assert marks.first.get_attribute("d") != linear
    assert figure.locator("svg > text").all_text_contents() != ticks
    figure.get_by_label("Gauss-Newton", exact=True).uncheck()
    assert marks.count() < many
    figure.get_by_label("Gauss-Newton", exact=True).check()
    assert marks.count() == many


def test_everything_is_reached_by_the_keyboard(page, records):
    page.locator(".plot").first.focus()
    page.keyboard.press("ArrowDown")  # from the curve to its eigenvalues
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    value = float(records[0].arrays["eigenvalues"].max())
    assert f"{value:.5f}"[:6] in page.locator(".tip").first.inner_text()
    span = "ritzPanels[0].view.window.x[1] - ritzPanels[0].view.window.x[0]"
    whole = page.evaluate(span)
    page.keyboard.press("+")
    assert page.evaluate(span) == pytest.approx(whole / 2)
    page.keyboard.press("0")
    assert page.evaluate(span) == pytest.approx(whole)
    page.locator("dfn").first.focus()
    assert page.evaluate("getComputedStyle(document.querySelector('dfn'), '::after').content") not in ("none", "")


def test_every_number_leads_to_its_certificate(page):
    links = page.locator("a[href^='#']")
    targets = {link.get_attribute("href") for link in links.all()[:40]}
    assert len(targets) > 5 and all(page.locator(target).count() == 1 for target in targets)
    page.locator(".numbers a").first.click()
    assert page.locator(page.evaluate("location.hash")).is_visible()


def test_numbers_and_pictures_can_be_saved(page, records):
    with page.expect_download() as download:
        page.locator("figure.chart .csv").first.click()
    rows = download.value.path().read_text().splitlines()
    assert rows[0] == "series,x,y,lower,upper,note" and len(rows) > 1000
    assert sum("λ₁ = " in row for row in rows) == 3  # of H, G and E
    with page.expect_download() as download:
        page.locator("figure.chart .svg").first.click()
    text = download.value.path().read_text()
    assert text.startswith("<svg") and "Hessian" in text and "var(" not in text


def test_the_saved_picture_names_the_colours_that_it_has(page):
    """A curve and its eigenvalues have one colour, in the picture and beside their names."""
    picture = "new DOMParser().parseFromString(ritzPanels[0].image(), 'image/svg+xml')"
    colours = page.evaluate(
        f"""[...{picture}.querySelectorAll('svg > line[stroke-width="3"]')].map((line) => line.style.stroke)"""
    )
    drawn = page.evaluate(
        f"""[...{picture}.querySelectorAll('g[clip-path] path[fill="none"]')].map((path) => path.style.stroke)"""
    )
    assert len(colours) == 6 and colours[::2] == colours[1::2] and len({*colours}) == 3
    assert list(dict.fromkeys(drawn)) == colours[::2]


def test_names_are_typeset_wherever_they_stand(page):
    figure = page.locator("figure.chart", has_text="with each part taken away")
    assert "G_" not in figure.inner_text() and figure.locator("label sub").first.inner_text() == "class"
    index = int(figure.get_attribute("data-chart"))
    texts = page.evaluate(
        f"""() => {{ const panel = ritzPanels[{index}]; panel.point({{ series: 1, point: panel.view.chart.series[1].y
        .findIndex((y) => y !== null) }}); const svg = new DOMParser().parseFromString(panel.image(), "image/svg+xml");
        return [panel.tip.innerHTML, svg.documentElement.innerHTML]; }}"""
    )
    assert all("G_class" not in text for text in texts)
    assert "<sub>class</sub>" in texts[0] and '<tspan dy="3" font-size="75%">class</tspan>' in texts[1]


def test_marks_of_an_axis_are_written_alike(page):
    write = "values => marksWritten(values)"
    assert page.evaluate(write, [1e-4, 1e-3, 1e-2, 0.1, 1, 10]) == ["10⁻⁴", "10⁻³", "10⁻²", "10⁻¹", "1", "10"]
    assert page.evaluate(write, [0.01, 0.1, 1, 10]) == ["0.01", "0.1", "1", "10"]
    assert page.evaluate(write, [-1e-5, 0, 1e-5, 1e-3]) == ["−10⁻⁵", "0", "10⁻⁵", "10⁻³"]
    assert page.evaluate(write, [0, 5000, 10000, 15000]) == ["0", "5,000", "10,000", "15,000"]
    assert page.evaluate(write, [0, 2e-5, 4e-5]) == ["0", "2·10⁻⁵", "4·10⁻⁵"]


def test_zero_is_marked_on_an_axis_that_is_logarithmic_on_both_sides(page):
    marks = "([low, high, c]) => { const at = SCALES.symlog(c).place; return symmetricMarks(at(low), at(high), c); }"
    assert page.evaluate(marks, [-1.1, 11, 4.25e-4]) == [-1, -0.1, -0.01, 0, 0.01, 0.1, 1, 10]
    assert page.evaluate(marks, [0.02, 4.5, 4.25e-4]) == [0.1, 1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_button_switches_between_light_and_dark(open_page, scheme):
    page = open_page(color_scheme=scheme)
    paper = lambda: _luminance(page.evaluate("getComputedStyle(document.body).backgroundColor")) > 0.9
    assert paper() == (scheme == "light")
    page.locator("#theme").click()
    assert paper() != (scheme == "light")
    page.locator("#theme").click()
    assert paper() == (scheme == "light")


def test_what_is_not_resolved_is_grey_down_to_the_edge_of_the_window(page):
    """Of whatever window: looking from farther away shows more of it."""
    for _ in range(2):
        low, high = page.evaluate(
            """() => { const panel = ritzPanels.find((one) => one.view.chart.unknown.length);
            const grey = panel.plot.querySelector("svg g[clip-path] rect").getBBox(); panel.zoom(2);
            return [grey.x, grey.width]; }"""
        )
        assert low <= 62 and high > 20


def test_a_page_prints_in_the_colours_of_paper(open_page):
    page = open_page(color_scheme="dark")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("figure.chart button").first.is_hidden()
    assert page.locator("#theme").is_hidden() and page.locator(".sure").first.is_hidden()
    assert page.pdf()[:4] == b"%PDF"


def test_a_page_prints_charts_of_the_width_of_paper_with_their_colours_named(open_page):
    page = open_page()
    width = "+document.querySelector('.plot svg').getAttribute('viewBox').split(' ')[2]"
    page.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = {width} }})")
    on_screen = page.evaluate(width)
    page.pdf()
    assert page.evaluate("printed") == 700 < on_screen  # its words are as large as those around it
    page.wait_for_function(f"{width} === {on_screen}")
    page.emulate_media(media="print")
    swatch = "getComputedStyle(document.querySelector('.swatch')).printColorAdjust"
    assert page.evaluate(swatch) == "exact" and page.locator("figure.chart .swatch").first.is_visible()


def test_cards_hold_their_numbers_and_are_not_stretched(browser):
    texts = ["0.0145343 ± 2e-08", "0.117 (0.036 to 0.64)", "(1.23 ± 0.04)e-05", "1.59582432e-24 ± 6e-40"]
    texts += ["0.11423883 ± 0.00000002"]
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    for shown in (texts, texts[:1]):
        numbers = [Number(f"n{rank}", text, "Proof.", hint="what it says") for rank, text in enumerate(shown)]
        page.set_content(page_of([replace(_article([]), numbers=numbers)], title="Cards"))
        for width in (1440, 700, 390):
            page.set_viewport_size({"width": width, "height": 900})
            cards = page.locator(".numbers li")
            assert cards.count() == len(shown) and cards.first.bounding_box()["width"] < 300
            for media in ("screen", "print"):
                page.emulate_media(media=media)
                assert cards.evaluate_all("cards => cards.every((card) => card.scrollWidth <= card.clientWidth)")
                assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.close()


def test_commands_and_pictures_are_not_cut(open_page):
    page = open_page("phone")
    assert page.locator("pre").evaluate_all("all => all.every((pre) => pre.scrollWidth <= pre.clientWidth)")


def test_the_headline_is_one_row_on_paper(open_page):
    page = open_page()
    page.set_viewport_size({"width": 700, "height": 900})  # A4 within its margins
    page.emulate_media(media="print")
    tops = {card.bounding_box()["y"] for card in page.locator(".numbers li").all()}
    assert page.locator(".numbers li").count() == 5 and len(tops) == 1


LONG_NAMES = ["transformer.encoder.layers.11.self_attention.output_projection.dense", "vision_model.blocks.0.1.norm"]


@pytest.mark.parametrize("width", [390, 700])  # a phone, and paper
def test_names_of_layers_end_their_lines_at_a_dot(browser, width):
    columns = {"layer": LONG_NAMES, **{f"number {rank}": ["1.2345 ± 0.0067"] * 2 for rank in range(5)}}
    section = Section("Layers", tables=[Table("All 0.5 of them.", columns)])
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_content(page_of([_article([section])], title="Names"))
    page.emulate_media(media="print" if width == 700 else "screen")
    names = page.locator("tbody th.long")
    lines = names.evaluate_all(
        """cells => cells.map((cell) => { const range = document.createRange(), lines = [];
        const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT); let top = null;
        while (walker.nextNode()) for (let i = 0; i < walker.currentNode.length; i++) {
            range.setStart(walker.currentNode, i); range.setEnd(walker.currentNode, i + 1);
            const at = range.getBoundingClientRect().top;
            if (top === null || at > top + 4) { lines.push(""); top = at; }
            lines[lines.length - 1] += walker.currentNode.data[i]; }
        return lines; })"""
    )
    page.close()
    assert ["".join(parts) for parts in lines] == LONG_NAMES and len(lines[0]) > 1  # as copied, and on several lines
    assert all(line[-1] in "._" for parts in lines for line in parts[:-1])


def _large():
    """Twenty spectra of 1,024 points with bands, and 10,000 eigenvalues."""
    x = [0.01 * i for i in range(1024)]
    series = []
    for rank in range(20):
        y = [1e-4 + math.exp(-((v - 0.1 * rank) ** 2)) for v in x]
        band = [0.8 * v for v in y], [1.2 * v for v in y]
        series.append(Series(f"curve {rank}", "line", x, y, *band, colour=rank))
        stems = [0.02 * i + 0.001 * rank for i in range(500)]
        notes = [f"λ = {v}" for v in stems]
        series.append(Series(f"eigenvalues {rank}", "stems", stems, [1e-3] * 500, notes=notes, colour=rank))
    axes = Axis("eigenvalue λ", ("linear", "symlog")), Axis("density", ("log", "linear"))
    return _article([Section("Density", charts=[Chart("Twenty", "Many.", *axes, tuple(series))])])


def _article(sections):
    ends = Section("What was analysed"), [], sections, Section("How to reproduce it")
    return Article("Large", "Many.", "Counted.", *ends)


def test_the_page_with_all_its_charts_is_there_in_less_than_a_second(browser, address):
    """Of the time of its own thread, from an empty window to the last chart."""
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    busy = lambda: {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    before = busy()["TaskDuration"]
    page.goto(address)
    page.wait_for_function("[...document.querySelectorAll('.plot')].every((plot) => plot.querySelector('svg'))")
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length === 1")
    spent = busy()["TaskDuration"] - before
    page.close()
    assert 0.001 < spent < 1


def test_a_zoom_into_twenty_spectra_takes_less_than_200_ms(browser, tmp_path):
    """Of the time of its own thread: what else the machine does counts for nothing."""
    (tmp_path / "large.html").write_text(page_of([_large()], title="Large"))
    page = browser.new_page(viewport={"width": 1440, "height": 1000})
    page.goto((tmp_path / "large.html").as_uri())
    page.wait_for_function("document.querySelector('.plot svg')")
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    busy = lambda: {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    before = busy()["TaskDuration"]
    page.evaluate(
        """async () => { const soon = (next) => requestAnimationFrame(() => requestAnimationFrame(next));
        const frame = () => new Promise(soon);
        for (let i = 0; i < 6; i++) { ritzPanels[0].zoom(i % 2 ? 2 : 0.7, ["x", "y"]); await frame(); } }"""
    )
    spent = (busy()["TaskDuration"] - before) / 6
    page.close()
    assert 0.001 < spent < 0.2


def test_a_curve_is_drawn_through_few_points_and_stays_where_it_is(page):
    """All points lie within a fifth of a pixel of what is drawn, also on steps and where the curve is one point."""
    far, few = page.evaluate(
        """() => { const n = 1000, xs = [...Array(n).keys()].map((i) => i - (i % 7 ? 0.5 : 0)).sort((a, b) => a - b);
        xs[501] = xs[500]; const ys = xs.map((x, i) => 100 * Math.sin(x / 60) + (i > 500 ? 80 : 0));
        const drawn = thinned(xs, ys, 0, n).map((text) => text.split(" ").map(Number));
        const away = (x, y) => Math.min(...drawn.slice(1).map(([c, d], k) => { const [a, b] = drawn[k];
            const along = ((x - a) * (c - a) + (y - b) * (d - b)) / ((c - a) ** 2 + (d - b) ** 2 || 1);
            const t = Math.max(0, Math.min(1, along));
            return Math.hypot(x - a - t * (c - a), y - b - t * (d - b)); }));
        return [Math.max(...xs.map((x, i) => away(x, ys[i]))), drawn.length]; }"""
    )
    assert far < 0.25 and few < 200
    assert page.evaluate("thinned([3], [4], 0, 1)") == ["3 4"]
    assert page.evaluate("stretches([false, true, true, false, true])") == [[1, 3], [4, 5]]
