"""Every screen in a browser: nothing overlaps or is cut, nothing is inaccessible, and pages stay small."""

import pathlib

import pytest

from wellkept.memory.page import Add, Author, Target

from . import conftest

SCREENS = {
    "home": "/",
    "memory": "/memory",
    "time-machine": "/memory/time?page=memory&step=5",
    "staleness": "/memory/stale",
    "search": "/search?q=connection+pool+of+harbor",
    "sessions": "/sessions",
    "session": "/sessions/demo-13-long-2",
    "chat": "/chat",
    "preview": "/preview?project=/home/mara/code/harbor&prompt=when+did+we+change+the+connection+pool",
    "receipts": "/receipts",
    "receipt": "/receipts/2",
    "agents": "/agents",
    "skills": "/skills",
    "skill": "/skills/release-harbor",
    "providers": "/providers",
    "provider": "/providers/mem0",
    "usage": "/usage",
    "forget": "/forget",
    "settings": "/settings",
    "more": "/more",
}
LEAST_TARGET = 43.5
"""Pixels of a control on a phone, with room for rounding."""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("device", ["desktop", "phone"])
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_is_whole(shared, open_page, name, device, theme):
    """No screen is wider than its window, and nothing that can be read is cut off or covered."""
    page = open_page(shared, SCREENS[name], device, theme)

    assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0
    assert page.locator("h1").count() == 1
    assert page.evaluate(CUT_TEXTS) == []
    if conftest.SHOTS:
        folder = pathlib.Path(conftest.SHOTS)
        folder.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=folder / f"{name}-{device}-{theme}.png")


CUT_TEXTS = """() => [...document.querySelectorAll('main button, main a.button, main .chip, main h1, main h2, main th')]
    .filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline')
    .map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.skipif(not conftest.AXE, reason="axe-core is not installed: make test-web")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_has_no_serious_violation(shared, open_page, name, theme):
    """axe-core finds nothing serious or critical: labels, roles, contrast, order of headings."""
    page = open_page(shared, SCREENS[name], theme=theme)
    page.evaluate("() => { for (const one of document.querySelectorAll('main details')) one.open = true; }")
    page.evaluate(pathlib.Path(conftest.AXE).read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({resultTypes: ['violations']})")

    serious = [
        (one["id"], one["nodes"][0]["html"][:160], one["nodes"][0]["failureSummary"][:300])
        for one in found["violations"]
        if one["impact"] in {"serious", "critical"}
    ]
    assert serious == []


@pytest.mark.parametrize("name", ["home", "memory", "search", "sessions", "receipts", "settings"])
def test_controls_are_large_enough_for_a_thumb(shared, open_page, name):
    """On a phone every button and field is at least 44 pixels high."""
    page = open_page(shared, SCREENS[name], "phone")
    small = page.evaluate(
        """(least) => [...document.querySelectorAll('main button, main input:not([type=hidden]):not([type=checkbox]), main select, .bottom-bar a')]
            .filter((one) => one.offsetParent && one.getBoundingClientRect().height < least).map((one) => one.outerHTML.slice(0, 100))""",
        LEAST_TARGET,
    )

    assert small == []


@pytest.mark.parametrize("name", ["memory", "time-machine", "staleness"])
def test_every_tab_is_in_the_window_of_a_phone(shared, open_page, name):
    """No tab hides behind the edge, least of all the current one."""
    page = open_page(shared, SCREENS[name], "phone")
    edges = page.evaluate("[...document.querySelectorAll('.tabs a')].map((one) => one.getBoundingClientRect().right)")

    assert len(edges) == 4
    assert max(edges) <= conftest.DEVICES["phone"][0]


def test_a_field_shares_its_row_with_its_button_on_a_phone(shared, open_page):
    """The field takes the room that the button leaves."""
    page = open_page(shared, "/sessions/demo-13-long-2", "phone")
    field = page.locator("input[name=title]").bounding_box()
    button = page.locator("button:has-text('Rename')").bounding_box()

    assert field["y"] == button["y"]
    assert field["width"] > button["width"]


@pytest.mark.parametrize("name", ["time-machine", "staleness", "sessions", "usage"])
def test_the_words_of_a_chart_can_be_read_on_a_phone(shared, open_page, name):
    """A chart that shrinks with the window has larger letters, at least 8 pixels high."""
    page = open_page(shared, SCREENS[name], "phone")
    sizes = page.evaluate(
        """[...document.querySelectorAll('svg.chart text')].map((one) =>
            parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a)"""
    )

    assert sizes
    assert min(sizes) >= 8


def test_the_words_of_the_staleness_chart_are_not_cut_on_a_phone(shared, open_page):
    """The names of its axis stay in the window, although their letters are larger than the chart foresees."""
    page = open_page(shared, SCREENS["staleness"], "phone")
    left = page.evaluate(
        "[...document.querySelectorAll('svg.chart text')].map((one) => one.getBoundingClientRect().left)"
    )

    assert min(left) >= 0


def test_the_calendar_begins_where_its_card_does(shared, open_page):
    """On a wide screen it is at the left; on a phone its newest week is in view."""
    place = "document.querySelector('svg.calendar').getBoundingClientRect()"
    box = "document.querySelector('.scroll-x.newest').getBoundingClientRect()"
    wide = open_page(shared, "/sessions")
    phone = open_page(shared, "/sessions", "phone")

    assert abs(wide.evaluate(f"{place}.left - {box}.left")) <= 2
    assert abs(phone.evaluate(f"{place}.right - {box}.right")) <= 2


def test_a_long_word_breaks_no_word_of_the_next_column(site, open_page):
    """Origin, age and last use stay on one line beside an entry without spaces."""
    site.owner.space.memory.apply(Target.USER, Add("Donaudampfschifffahrtsgesellschaft" * 4), Author())
    page = open_page(site, "/memory/stale")
    lines = page.evaluate(
        """[...document.querySelectorAll('td.number, td .chip')].map((one) => {
            const range = document.createRange();
            range.selectNodeContents(one);
            return new Set([...range.getClientRects()].map((box) => box.top)).size;
        })"""
    )

    assert len(lines) > 6
    assert set(lines) == {1}


def test_the_tables_of_usage_fit_a_phone(shared, open_page):
    """Their last column, the cost, is in a window of 360 pixels."""
    page = open_page(shared, SCREENS["usage"], "phone")
    page.set_viewport_size({"width": 360, "height": 780})
    edges = page.evaluate(
        """[...document.querySelectorAll('main .table-wrap')].filter((one) => one.checkVisibility())
            .map((one) => one.scrollWidth - one.clientWidth)"""
    )

    assert edges
    assert max(edges) == 0


def test_pages_are_small(shared, open_page):
    """The first page costs at most 150 KB, and each further one 40 KB."""
    page = open_page(shared, "/more")
    sizes = {}

    def measure(answer):
        if answer.status == 200 and "/live" not in answer.url:
            sizes[answer.url] = answer

    def count():
        return sum(one.request.sizes()["responseBodySize"] for one in list(sizes.values()))

    page.on("response", measure)
    later = {}
    for name, address in SCREENS.items():
        sizes.clear()
        page.goto(address, wait_until="load")
        later[name] = count()
    fresh = open_page(shared, "about:blank")
    sizes.clear()
    fresh.on("response", measure)
    fresh.goto(shared.url + "/memory", wait_until="load")

    assert {name: size for name, size in later.items() if size > 40_000} == {}
    assert count() <= 150_000


def test_reading_works_without_javascript(shared, open_page):
    """Every screen shows its content as HTML."""
    for address in SCREENS.values():
        page = open_page(shared, address, javascript=False)

        assert page.locator("main h1").inner_text()
        assert page.locator("main").inner_text().strip()
