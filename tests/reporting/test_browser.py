"""The page in a browser: no error, no request, and everything that can be pressed works.

Debian's chromium, or any other that is installed, driven by playwright; skipped where none is.
"""

import json
import os
import re
import shutil

import pytest

from maar.reporting.model import Report
from maar.reporting.page import render
from maar.reporting.pdf import write_pdf
from maar.reporting.write import PAGE, read_report, save, write_report

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
expect = playwright.expect
# A machine that does other things at the same time is no failure.
TIMEOUT = 120_000
expect.set_options(timeout=TIMEOUT)
HOSTILE = '<img src=x onerror="window.hit = 1"></script><script>window.hit = 1</script>\u2028$x$'


@pytest.fixture(scope="session")
def hostile(renamed) -> Report:
    return renamed(HOSTILE)


@pytest.fixture(scope="session")
def address(hostile, tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("report") / "index.html"
    path.write_text(render(hostile))
    return path.as_uri()


@pytest.fixture(scope="session")
def browser():
    found = filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    path = next(found, None)
    if path is None:
        pytest.skip("no chromium here: apt-get install chromium")
    # The sandbox of chromium does not work for root, which is who runs in most containers.
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=arguments, timeout=TIMEOUT)
        yield browser
        browser.close()


class Visit:
    """A page opened in a window of its own, and whatever it complained about or asked for."""

    def __init__(self, browser, address: str, **options) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(TIMEOUT)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)
        expect(self.page.locator(".plot:not(.js-plotly-plot)")).to_have_count(0)

    def close(self) -> None:
        # Images in the page itself are data: they count as requests, but nothing is asked for.
        asked = [url for url in self.requests if not url.startswith(("data:", "blob:"))]
        complaints, hit = self.complaints, self.page.evaluate("window.hit")
        self.context.close()
        assert complaints == []
        assert len(asked) == 1, asked
        assert hit is None, "a name was run as code"


@pytest.fixture(scope="module")
def desk(browser, address):
    """One page for all tests that leave it as they found it: it is opened once."""
    visit = Visit(browser, address, viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield visit.page
    visit.close()


@pytest.fixture
def phone(browser, address):
    size = {"width": 375, "height": 740}
    visit = Visit(browser, address, viewport=size, is_mobile=True, has_touch=True)
    yield visit.page
    visit.close()


@pytest.fixture
def still(browser, address):
    """Without JavaScript."""
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(TIMEOUT)
    page.goto(address)
    yield page
    context.close()


def column(page, index: int) -> list[str]:
    cells = page.locator(f"#table-runs tbody:not([hidden]) tr:first-child > :nth-child({index})")
    return [text.strip() for text in cells.all_inner_texts()]


def lines(page, figure: str = "curves-verified-error") -> list[str]:
    """The colours of what is drawn in a figure; a gap makes two parts of a line."""
    paths = page.locator(f"#plot-{figure} .scatterlayer .js-line")
    return [path.evaluate("node => getComputedStyle(node).stroke") for path in paths.all()]


def test_it_is_drawn_without_a_complaint(desk, example):
    for figure in example.figures():
        expect(desk.locator(f"#plot-{figure.id} .main-svg").first).to_be_visible()
    assert (
        desk.title() == f"A report on {HOSTILE}".replace("\u2028", " ") or HOSTILE in desk.title()
    )


def test_a_hostile_name_is_text(desk):
    assert desk.locator("h1").inner_text().startswith("A report on <img src=x onerror=")
    assert desk.locator('img[src="x"]').count() == 0
    assert desk.evaluate("window.hit") is None
    # Plotly makes its own elements out of names: these too are to be text.
    label = desk.locator("#plot-cascade .annotation-text").nth(1)
    assert "<img src=x" in label.text_content()


@pytest.mark.parametrize("key", ["click", "Enter"])
def test_sorting(desk, key):
    head = desk.locator("#table-runs thead th", has_text="CR")
    button = head.get_by_role("button")
    assert head.get_attribute("aria-sort") == "none"

    def press():
        if key == "click":
            button.click()
        else:
            button.press(key)

    press()
    assert head.get_attribute("aria-sort") == "descending"
    assert column(desk, 5) == ["95.4", "95.2", "95.0", "–"]
    press()
    assert head.get_attribute("aria-sort") == "ascending"
    assert column(desk, 5) == ["95.0", "95.2", "95.4", "–"]
    desk.locator("#table-runs thead th", has_text="run").get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "none"
    assert column(desk, 1)[-2:] == ["maar-seed0", "maar-seed1"]


def test_filtering(desk):
    form = desk.locator("form[data-table=table-runs]")
    count = form.locator("output")
    form.get_by_label("Words").fill("MAAR seed1")
    expect(count).to_have_text("1 of 4 rows")
    assert column(desk, 1) == ["maar-seed1"]
    form.get_by_label("Words").fill("")
    form.get_by_label("method").select_option(HOSTILE)
    assert len(column(desk, 1)) == 1
    form.get_by_label("method").select_option("maar")
    assert len(column(desk, 1)) == 2
    form.get_by_label("state").select_option("interrupted")
    expect(count).to_have_text("0 of 4 rows")
    form.evaluate("form => form.reset()")
    expect(count).to_have_text("4 of 4 rows")


def test_what_a_row_rests_on(desk):
    button = desk.locator("#table-runs .open").first
    proof = desk.locator("#table-runs .proof").first
    expect(proof).to_be_hidden()
    button.press("Enter")
    expect(proof.get_by_text("AMD EPYC, 2 threads").first).to_be_visible()
    assert button.get_attribute("aria-expanded") == "true"
    button.press("Enter")
    expect(proof).to_be_hidden()


def test_evidence_on_hovering_and_focus(desk):
    number = desk.locator("#table-comparison-mnist td .known").first
    tip = desk.get_by_role("tooltip")
    number.hover()
    expect(tip).to_contain_text("images: 1,000 of 10,000 test")
    desk.keyboard.press("Escape")
    expect(tip).to_be_hidden()
    number.focus()
    expect(tip).to_be_visible()
    number.blur()
    expect(tip).to_be_hidden()


def test_the_legend_hides_and_shows(desk):
    button = desk.locator("#figure-curves-verified-error .legend button").first
    before = lines(desk)
    assert len(set(before)) == 2
    button.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    assert lines(desk) == before[1:]
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert lines(desk) == before


def test_the_gallery_with_keys(desk):
    cards = desk.locator("#gallery-counterexamples button")
    box = desk.locator("dialog.lightbox")
    cards.nth(1).focus()
    desk.keyboard.press("Enter")
    expect(box).to_be_visible()
    count = box.locator(".count")
    expect(count).to_have_text("2 of 6")
    assert box.locator("img").count() == 3
    for key, place in (("ArrowRight", 3), ("End", 6), ("ArrowRight", 1), ("ArrowLeft", 6)):
        desk.keyboard.press(key)
        expect(count).to_have_text(f"{place} of 6")
    expect(box.locator(".whose")).to_contain_text("<img src=x")
    desk.keyboard.press("Escape")
    expect(box).to_be_hidden()
    expect(cards.nth(5)).to_be_focused()


def test_dark_and_light(desk):
    def ground() -> str:
        return desk.evaluate("getComputedStyle(document.body).backgroundColor")

    toggle = desk.get_by_role("button", name="Dark colours")
    light, drawn = ground(), lines(desk)
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "true"
    assert ground() != light
    assert not set(drawn) & set(lines(desk))
    toggle.press("Enter")
    assert (ground(), lines(desk)) == (light, drawn)
    # Who never chose gets what the system says, at once.
    desk.evaluate("delete document.documentElement.dataset.theme")
    desk.emulate_media(color_scheme="dark")
    assert ground() != light
    desk.emulate_media(color_scheme="light")
    assert ground() == light


def test_every_control_shows_its_focus(desk):
    for control in (".theme", ".legend button", ".sort", ".gallery button", ".known", ".bar nav a"):
        desk.locator(control).first.focus()
        desk.keyboard.press("Shift")
        style = "getComputedStyle(document.activeElement).outlineStyle"
        assert desk.evaluate(style) == "solid", control


def test_on_paper_it_is_light(desk):
    desk.emulate_media(color_scheme="dark")
    desk.evaluate("dispatchEvent(new Event('beforeprint'))")
    printed = lines(desk)
    desk.evaluate("dispatchEvent(new Event('afterprint'))")
    assert not set(printed) & set(lines(desk))
    desk.emulate_media(color_scheme="light")


def test_a_phone_scrolls_downwards_only(phone):
    width = "[document.documentElement.scrollWidth, innerWidth]"
    assert phone.evaluate(width) == [375, 375]
    box = phone.locator(".scroll:has(#table-runs)")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth")  # rows are cards
    phone.locator("#gallery-counterexamples button").first.tap()
    expect(phone.locator("dialog.lightbox")).to_be_visible()
    assert phone.evaluate(width) == [375, 375]


OVERLAPS = """() => {
  const apart = (a, b) =>
    a.right <= b.left || b.right <= a.left || a.bottom <= b.top || b.bottom <= a.top;
  const title = section => {
    const range = document.createRange();
    range.selectNodeContents(section.querySelector("h2"));
    return range.getBoundingClientRect();
  };
  const links = [...document.querySelectorAll("section .files a")];
  const hit = a => !apart(a.getBoundingClientRect(), title(a.closest("section")));
  return [links.length, links.filter(hit).map(a => a.textContent)];
}"""


@pytest.mark.parametrize("width", [320, 375, 560, 800, 1280])
def test_the_links_to_files_leave_the_titles_alone(desk, width):
    desk.set_viewport_size({"width": width, "height": 740})
    count, hits = desk.evaluate(OVERLAPS)
    assert count
    assert hits == []
    desk.set_viewport_size({"width": 1280, "height": 900})


# The left ends of the lines in the first column that has some, beside texts of two lengths.
LINES = """() => {
  const table = document.querySelector(".dumbbell").closest("table");
  const column = document.querySelector(".dumbbell").closest("td").cellIndex;
  const all = [...table.querySelectorAll("td:has(.dumbbell)")];
  const cells = all.filter(td => td.cellIndex === column);
  const texts = cells.map(td => td.querySelector(".beside"));
  const before = texts.map(text => text.innerHTML);
  texts.forEach((text, n) => text.textContent = n % 2 ? "98.40" : "99.31 ± 0.07");
  const left = cells.map(td => td.querySelector(".dumbbell").getBoundingClientRect().left);
  texts.forEach((text, n) => text.innerHTML = before[n]);
  return left;
}"""


def test_the_lines_of_a_column_are_one_below_the_other(desk):
    left = desk.evaluate(LINES)
    assert len(left) > 1
    assert max(left) - min(left) < 1


def test_without_javascript_the_tables_are_there(still, example):
    for table in example.tables():
        rows = still.locator(f"#table-{table.id} tbody > tr:first-child")
        assert rows.count() == len(table.rows)
        expect(rows.last).to_be_visible()
    details = still.locator("#table-runs .proof details").first
    details.locator("summary").click()
    expect(details.get_by_text("AMD EPYC, 2 threads").first).to_be_visible()
    assert still.locator(".theme, .filters, .legend").locator("visible=true").count() == 0
    numbers = still.locator("#figure-cr-over-eps details")
    numbers.locator("summary").click()
    expect(numbers.get_by_text("96.00 %")).to_be_visible()


def test_links_lead_to_files_beside_the_page(desk):
    links = desk.locator(".files a").all()
    targets = [link.get_attribute("href") or "" for link in links]
    assert all(re.fullmatch(r"(tables|figures)/[a-z0-9-]+\.[a-z]+", target) for target in targets)
    assert len(targets) == 3 * (2 + 3)


EPOCHS = {
    "stage": [1, 1, 2],
    "epoch": [1, 2, 1],
    "verified_error": [0.3, 0.2, 0.1],
    "accuracy": [0.7, 0.8, 0.9],
    "accuracy_of": "valid",
}
EXPERIMENT = {
    "name": "fig2",
    "title": "An experiment",
    "kind": "training",
    "rows": [
        {
            "setting": "mnist-0.1",
            "system": "COLT",
            "data": "mnist",
            "eps": "0.1",
            "metrics": {"accuracy": {"mean": 0.98, "std": None}},
            "published": {"accuracy": 0.99},
            "seeds": [0],
            "runs": ["runs/gone-seed0"],
            "epochs": [EPOCHS],
        }
    ],
}


@pytest.fixture(scope="module")
def real(browser, tmp_path_factory, make_run, make_store, make_radii):
    """What `maar report` makes of runs, certifications, radii and an experiment; opened once."""
    folder = tmp_path_factory.mktemp("real")
    runs = folder / "runs"
    for name, seed, lam, verified in (
        ("maar-seed0", 0, 6.0, 6),
        ("maar-seed1", 1, 6.0, 7),
        ("maar-lam-2-seed0", 0, 2.0, 3),
    ):
        run = make_run(runs / name, seed=seed, lam=lam)
        verdicts = {"verified": verified, "falsified": 2, "unknown": 8 - verified}
        make_store(run / "certify" / "eps-0.1-aa", verdicts, network=name)
    early = runs / "maar-seed0" / "certify" / "eps-0.1-bb"
    make_store(early, {"verified": 4, "unknown": 6}, weights="stage-1-last")
    make_run(runs / "maar-seed2", seed=2, done=3)
    make_radii(folder / "certs" / "radius-aa", {0.3: 0.31, 0.002: 0.003})
    (folder / "fig2.json").write_text(json.dumps(EXPERIMENT))
    page = write_report([folder / "fig2.json", runs, folder / "certs"], folder / "report")
    size = {"width": 1280, "height": 900}
    visit = Visit(browser, page.as_uri(), viewport=size, color_scheme="light")
    yield visit.page
    visit.close()


def test_runs_have_all_their_sections(real):
    for name in ("results", "training", "stages", "certification", "radius", "images", "runs"):
        expect(real.locator(f"section#{name} .block, section#{name} figure").first).to_be_visible()
    for name in ("lambda", "curve-accuracy", "stages-cr", "radii", "fig2-curve-verified-error"):
        expect(real.locator(f"#plot-{name} .main-svg").first).to_be_visible()
    for name in ("fig2", "stages"):
        expect(real.locator(f"#table-{name}")).to_be_visible()
    assert len(lines(real, "lambda")) == 2


def test_the_table_of_real_runs_sorts_and_filters(real):
    place = 13
    head = real.locator(f"#table-runs thead th:nth-child({place})")
    assert head.inner_text().strip().startswith("CR")
    for expected in (["70.00", "60.00", "30.00", "–"], ["30.00", "60.00", "70.00", "–"]):
        head.get_by_role("button").click()
        assert column(real, place) == expected
    form = real.locator("form[data-table=table-runs]")
    form.get_by_label("state").select_option("interrupted")
    expect(form.locator("output")).to_have_text("1 of 4 rows")
    assert column(real, 1) == ["maar-seed2"]
    form.evaluate("form => form.reset()")
    form.get_by_label("Words").fill("lam-2")
    expect(form.locator("output")).to_have_text("1 of 4 rows")
    assert column(real, 1) == ["maar-lam-2-seed0"]
    form.evaluate("form => form.reset()")
    expect(form.locator("output")).to_have_text("4 of 4 rows")


def test_the_legend_of_a_real_figure(real):
    button = real.locator("#figure-curve-verified-error .legend button").first
    before = lines(real, "curve-verified-error")
    assert len(before) == 4
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert lines(real, "curve-verified-error") == before[1:]
    button.click()
    assert lines(real, "curve-verified-error") == before


@pytest.mark.parametrize(("gallery", "images"), [("counterexamples", 6), ("least-robust", 2)])
def test_the_galleries_of_real_images(real, gallery, images):
    cards = real.locator(f"#gallery-{gallery} button")
    assert cards.count() == images
    cards.first.click()
    box = real.locator("dialog.lightbox")
    expect(box.locator(".count")).to_have_text(f"1 of {images}")
    sizes = box.locator("img").evaluate_all("all => all.map(img => img.naturalWidth)")
    assert sizes
    assert all(sizes), "an image that cannot be shown has no width"
    real.keyboard.press("Escape")
    expect(box).to_be_hidden()


@pytest.fixture(scope="module")
def audited(tmp_path_factory, make_store):
    """The page for an auditor."""
    path = tmp_path_factory.mktemp("audited")
    verdicts = {"misclassified": 3, "falsified": 9, "verified": 60, "unknown": 8}
    make_store(path / "store", verdicts, network="a-network-with-a-long-name.onnx")
    save(read_report([path / "store"], path / "out", audience="audit"), path / "out")
    return path / "out" / PAGE


OVERFLOWING = """() => [...document.querySelectorAll("table")].filter(
    (table) => table.getBoundingClientRect().right > document.documentElement.clientWidth + 1
).map((table) => table.id)"""
CUT = """() => [...document.querySelectorAll("nav a, .cells td, .cells th")].filter((each) => {
    const box = each.getBoundingClientRect();
    return box.width && (box.left < -1 || box.right > innerWidth + 1);
}).map((each) => each.textContent.trim())"""


def test_a_phone_shows_every_number_and_every_section(browser, address, audited):
    size = {"width": 390, "height": 844}
    for page in (address, audited.as_uri()):
        visit = Visit(browser, page, viewport=size, is_mobile=True, has_touch=True)
        assert visit.page.evaluate(CUT) == []
        assert visit.page.locator("nav a").last.is_visible()
        visit.context.close()


def test_a_sheet_of_paper_holds_every_table(browser, real, audited):
    """A4 is 794 px wide, 688 px between the margins; turned, 1,032 px."""
    for page in (real.url, audited.as_uri()):
        visit = Visit(browser, page, viewport={"width": 688, "height": 1000})
        visit.page.emulate_media(media="print")
        wide = visit.page.evaluate(OVERFLOWING)
        visit.page.set_viewport_size({"width": 1032, "height": 700})
        assert visit.page.evaluate(OVERFLOWING) == []
        broad = ".block.broad table"
        turned = visit.page.eval_on_selector_all(broad, "found => found.map((each) => each.id)")
        assert set(wide) <= set(turned)
        visit.context.close()


def test_it_is_printed_to_a_pdf(audited, tmp_path, browser):
    write_pdf(audited, tmp_path / "out.pdf")
    assert (tmp_path / "out.pdf").read_bytes().startswith(b"%PDF")
