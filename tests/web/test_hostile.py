"""Texts that try to become markup or script go through every screen in the browser, and none of them runs."""

import pytest

from wellkept.core.text import dumps
from wellkept.memory.page import Add, Author, Target
from wellkept.operations import sessions, skills
from wellkept.operations.receipts import record_receipt
from wellkept.sessions.receipts import ShownMessage

PAYLOADS = [
    "<script>window.ran=1</script>",
    "<img src=x onerror='window.ran=2'>",
    '"><svg onload=window.ran=3>',
    "'><body onload=window.ran=4>",
    "</textarea><script>window.ran=5</script>",
    "</title><script>window.ran=6</script>",
    '<a href="javascript:window.ran=7">click</a>',
    "{{ self._TemplateReference__context }}{% raw %}",
    "<iframe srcdoc='<script>parent.ran=8</script>'>",
    "<div hx-get='/memory' hx-trigger='load' hx-on:load='window.ran=9'>",
    "<style>*{display:none}</style>",
    "\u202etxt.exe\u202c \u0000\u001b[31m مرحبا بالعالم שלום",
    "<button autofocus onfocus=window.ran=10>",
    "--><script>window.ran=11</script>",
    "<form action='/settings/backup' method=post><input name=form_token>",
    "A" * 4_000,
]
SCREENS = ["/", "/memory", "/memory/time?page=user", "/memory/stale", "/search?q=payload", "/sessions", "/receipts", "/receipts/{receipt}", "/skills",
           "/skills/hostile", "/usage", "/preview?prompt=payload+of+the+attacker&project=/tmp", "/chat?session=hostile", "/sessions/hostile", "/settings",
           "/agents", "/providers", "/forget?session=hostile"]  # fmt: skip


@pytest.fixture
def poisoned(site):
    """The payloads in every place where a model, a tool, a transcript or a file can put text."""
    owner = site.owner
    for number, payload in enumerate(PAYLOADS):
        line = {"session_id": "hostile" if not number else f"hostile-{number}", "source": f"src{payload[:60]}", "project": f"/tmp/{payload[:200]}",
                "title": f"title {payload[:300]}", "model": payload[:80], "role": "user", "content": f"payload {payload}", "timestamp": 1.79e9 + number}  # fmt: skip
        call = {"id": f"c{number}", "name": payload[:60], "arguments": dumps({"path": payload})}
        answer = {
            **line,
            "role": "assistant",
            "content": f"payload answer {payload}",
            "reasoning": payload,
            "timestamp": 1.79e9 + number + 1,
            "tool_calls": [call],
        }
        tool = {
            **line,
            "role": "tool",
            "content": payload,
            "tool_name": payload[:60],
            "tool_call_id": f"c{number}",
            "timestamp": 1.79e9 + number + 2,
        }
        sessions.import_sessions(owner, [dumps(one).encode() for one in (line, answer, tool)], source="hostile")
        if number < 8:
            owner.space.memory.apply(Target.USER, Add(payload[:120]), Author(origin=payload[:30], reason=payload))
            owner.space.approvals.stage(
                Target.USER,
                (Add(f"waits {payload[:200]}"),),
                Author(origin=payload[:20]),
                why=payload[:40],
                rules=(payload[:20],),
            )
    found = sessions.show_session(owner, "hostile").messages[0]
    site.receipt = record_receipt(
        owner, kind="prompt", client=PAYLOADS[0], query=PAYLOADS[1], session="hostile", project=PAYLOADS[2],
        shown=[ShownMessage(found.id, found.session_id, 1.0, {PAYLOADS[1]: 1.0})], candidates=1, tokens=1,
    )  # fmt: skip
    body = "---\nname: hostile\ndescription: a hostile skill\n---\n" + "\n".join(PAYLOADS)
    skills.create_skill(owner, "hostile", body)
    folder = owner.space.home.skills / "hostile"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "SKILL.md").write_text(body, encoding="utf-8")
    return site


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_no_payload_runs_on_any_screen(poisoned, open_page, device):
    """Nothing runs, nothing loads from elsewhere, no dialog opens, and the page keeps its shape."""
    page = open_page(poisoned, "/more", device)
    for address in SCREENS:
        page.goto(address.format(receipt=poisoned.receipt))
        page.evaluate("() => { for (const one of document.querySelectorAll('main details')) one.open = true; }")
        page.wait_for_timeout(60)

        assert page.evaluate("window.ran") is None, address
        assert page.locator("main h1").is_visible(), address
        assert page.evaluate("document.documentElement.scrollWidth - window.innerWidth") <= 0, address
        assert page.locator("main [onerror], main [onload], main iframe, main a[href^='javascript']").count() == 0, (
            address
        )


def test_an_answer_of_a_model_is_text(poisoned, open_page):
    """What is streamed into a chat is shown, not run; the extractive answer quotes the payloads."""
    page = open_page(poisoned, "/chat")
    page.fill("#message", "what is the payload answer <img src=x onerror='window.ran=20'>?")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message.assistant .said", timeout=60_000)
    page.wait_for_timeout(500)

    assert page.evaluate("window.ran") is None
