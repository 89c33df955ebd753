"""Every screen in a browser: nothing overlaps or is cut, nothing is inaccessible, and pages stay small."""

import pathlib

import pytest

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
