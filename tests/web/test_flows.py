"""What a person does on each screen, in a real browser, with a mouse and with keys alone."""

import re

from wellkept.llm.scripted import Says
from wellkept.memory.page import Add, Author, Target
from wellkept.operations import memory, receipts, sessions
from wellkept.testing.loopback_servers import LoopbackOpenAI


def read(site, target=Target.MEMORY):
    return memory.read_page(site.owner, target).entries


def wait_for(page, is_true):
    """Wait until something is true; a function inside the page cannot, because the policy forbids eval."""
    for _ in range(200):
        if is_true():
            return
        page.wait_for_timeout(100)
    raise AssertionError("it did not happen within 20 seconds")


def test_an_entry_is_added_with_a_check_while_typing_and_undone(site, open_page):
    """The box says what the scanner thinks, the toast takes the entry back, and the page is not loaded anew."""
    page = open_page(site, "/memory")
    page.evaluate("window.same = 1")
    page.fill("textarea[name=text]", "The canteen closes at two.")
    page.wait_for_selector("#verdict .chip.good")
    page.click("form[action='/memory/add'] button.primary")
    page.wait_for_selector("[data-toast]")
    assert "The canteen closes at two." in read(site)
    assert page.evaluate("window.same") == 1

    page.click("[data-toast] button[type=submit]")
    page.wait_for_selector("[data-toast] .say:has-text('Undone')")
    assert "The canteen closes at two." not in read(site)


def test_home_is_worked_through_by_keys_alone(site, open_page):
    """j and k move, y keeps, u undoes, and the toast is undone with u as well."""
    page = open_page(site, "/")
    before = page.locator("article.group").count()
    assert before >= 3
    newest = page.locator("article.group .change").first.inner_text()
    waiting = page.locator("[data-item]").count() - before
    for _ in range(waiting + 1):
        page.keyboard.press("j")
    page.keyboard.press("u")
    wait_for(page, lambda: page.locator("article.group").count() == before - 1)
    assert newest not in (*read(site), *read(site, Target.USER))

    for _ in range(waiting + 1):
        page.keyboard.press("j")
    page.keyboard.press("y")
    wait_for(page, lambda: page.locator("article.group").count() == before - 2)


def test_keys_lead_everywhere(shared, open_page):
    """g and a letter open a screen, / searches, ? shows the keys, Escape leaves a field."""
    page = open_page(shared, "/")
    for key, place in {
        "m": "/memory",
        "s": "/sessions",
        "r": "/receipts",
        "p": "/preview",
        "u": "/usage",
        "h": "/",
    }.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(shared.url + place)
    page.keyboard.press("?")
    page.wait_for_selector("dialog#keys[open]")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("connection pool")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/search\?q=connection\+pool"))
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/sessions/demo"))


def test_an_entry_is_edited_by_keys(site, open_page):
    """e opens the form of the entry, and the new text is saved."""
    page = open_page(site, "/memory")
    page.keyboard.press("j")
    page.keyboard.press("e")
    page.wait_for_selector("details.edit[open] textarea:focus")
    page.keyboard.type(" Checked today.")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("[data-toast]")

    assert read(site)[0].endswith(" Checked today.")


def test_an_entry_in_two_tabs(site, open_page):
    """The second tab is told and shown both texts; saving again is a decision."""
    first, second = open_page(site, "/memory"), open_page(site, "/memory")
    old = read(site)[0]
    memory.change_entry(site.owner, Target.MEMORY, old, f"{old} First tab.")
    del first
    second.click("details.edit summary >> nth=0")
    second.fill("details.edit[open] textarea", f"{old} Second tab.")
    open_page.problems.clear()
    second.click("details.edit[open] button.primary")
    second.wait_for_selector("text=Somebody changed this entry")
    assert f"{old} First tab." in second.inner_text("main")
    assert read(site)[0] == f"{old} First tab."

    second.click("text=Save mine instead")
    second.wait_for_selector("[data-toast]")
    assert read(site)[0] == f"{old} Second tab."
    open_page.problems[:] = [one for one in open_page.problems if "409" not in one]


def test_undo_from_home_after_a_restart(site, open_page):
    """What was written before a restart is undone after it, from a page that was open all the time."""
    site.owner.space.memory.apply(Target.USER, Add("Collects stamps."), Author(origin="review"))
    page = open_page(site, "/")
    site.stop()
    site.start()
    page.wait_for_timeout(300)
    open_page.problems.clear()
    page.click("article.group >> nth=0 >> text=Undo")
    page.wait_for_selector("[data-toast]")

    assert "Collects stamps." not in read(site, Target.USER)
    open_page.problems[:] = [one for one in open_page.problems if "ERR_" not in one and "htmx:error" not in one]


def test_a_dead_server_is_told_and_nothing_typed_is_lost(site, open_page):
    """A form that cannot be sent stays filled; when the server is back, it is sent."""
    page = open_page(site, "/memory")
    page.fill("textarea[name=text]", "The spare key is with Amira.")
    site.stop()
    page.click("form[action='/memory/add'] button.primary")
    page.wait_for_selector(".lost")
    assert page.input_value("textarea[name=text]") == "The spare key is with Amira."

    site.start()
    page.wait_for_selector(".lost", state="detached")
    page.click("form[action='/memory/add'] button.primary")
    page.wait_for_selector("[data-toast]")
    assert "The spare key is with Amira." in read(site)
    open_page.problems[:] = [one for one in open_page.problems if "ERR_" not in one and "htmx:error" not in one]


def test_the_time_machine_steps_and_restores(site, open_page):
    """Arrow keys walk over the steps; an entry of an earlier page is put back."""
    page = open_page(site, "/memory/time?page=memory")
    for step in range(7, 3, -1):
        page.keyboard.press("ArrowLeft")
        page.wait_for_url(re.compile(rf"step={step}$"))
    gone = "harbor is never deployed on Friday afternoon."
    assert gone in page.inner_text("main")
    page.click("text=Restore it")
    page.wait_for_selector("[data-toast]")

    assert gone in read(site)


def test_search_explains_itself(shared, open_page):
    """The context opens in place, the parts of the score are shown, and a message that is missing is explained."""
    page = open_page(shared, "/search?q=connection+pool")
    page.click("summary:has-text('Context') >> nth=0")
    page.wait_for_selector(".around .message.anchor")
    page.click("summary:has-text('Why this') >> nth=0")
    assert page.locator("svg.score").first.is_visible()
    page.fill("input[name=why]", "1")
    page.click("text=Why not that one?")

    assert "Message 1:" in page.inner_text("main")


def test_a_message_is_marked_and_the_mark_is_taken_back(site, open_page):
    """Never show this is one click, and so is the way back."""
    number = next(one.id for one in receipts.list_receipts(site.owner, limit=200).receipts if one.message_ids)
    page = open_page(site, f"/receipts/{number}")
    page.click("text=Never show this >> nth=0")
    page.wait_for_selector("[data-toast]")
    assert receipts.show_receipt(site.owner, number).receipt.marks
    page.click("[data-toast] button[type=submit]")
    page.wait_for_selector("[data-toast] .say:has-text('removed')")

    assert not receipts.show_receipt(site.owner, number).receipt.marks


def test_a_conversation_is_read_renamed_deleted_and_restored(site, open_page):
    """j walks over messages, the title is changed, and the trash gives the conversation back."""
    page = open_page(site, "/sessions/demo-13-long")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.classList.contains('message')")
    page.fill("input[name=title]", "The long fix")
    page.click("text=Rename")
    page.wait_for_selector("h1:has-text('The long fix')")
    page.click("button:has-text('Delete')")
    page.wait_for_url(re.compile(r"/sessions$"))
    assert sessions.list_trash(site.owner).sessions
    page.click("[data-toast] button[type=submit]")
    page.wait_for_url(re.compile(r"/sessions/demo"))

    assert not sessions.list_trash(site.owner).sessions


def test_the_chat_streams_and_saves_with_undo(site, open_page):
    """A request to remember is saved, the answer says so, and Undo stands beside it."""
    page = open_page(site, "/chat")
    page.fill("#message", "Remember that the dentist is on the fourth of May.")
    page.keyboard.press("Enter")
    page.wait_for_selector(".message.assistant .said:has-text('dentist')", timeout=60_000)
    page.wait_for_selector("#log .chip:has-text('saved')")
    assert any("dentist" in one for one in (*read(site), *read(site, Target.USER)))
    page.click("#log button:has-text('Undo')")
    page.wait_for_selector("[data-toast]")

    assert not any("dentist" in one for one in (*read(site), *read(site, Target.USER)))


def test_the_chat_follows_a_long_answer_unless_its_reader_scrolls_up(site, open_page):
    """The end of the answer is in view above the composer, also after a reload; who reads further up stays there."""
    text = "".join(f"line {number} of the answer\n\n" for number in range(60)) + "and the very end"
    with LoopbackOpenAI(lambda _body: Says(text, piece_length=60, delay_seconds=0.1)) as model:
        site.stop()
        site.environ |= {**model.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model"}
        site.start()
        page = open_page(site, "/chat", "phone")
        page.fill("#message", "Tell me everything.")
        page.keyboard.press("Enter")
        page.wait_for_selector("[data-interrupt]", state="hidden", timeout=60_000)
        page.wait_for_selector(".said:has-text('the very end')")
        assert page.evaluate(END_IS_SHOWN)
        page.reload()
        assert page.evaluate(END_IS_SHOWN)

        page.fill("#message", "And again.")
        page.keyboard.press("Enter")
        wait_for(page, lambda: page.locator(".message.assistant").last.inner_text().count("line") > 5)
        page.evaluate("window.scrollTo(0, 40)")
        page.wait_for_selector("[data-interrupt]", state="hidden", timeout=60_000)
        assert page.evaluate("window.scrollY") == 40


END_IS_SHOWN = """() => [...document.querySelectorAll('.message.assistant .said')].at(-1).getBoundingClientRect().bottom
    <= document.querySelector('#composer').getBoundingClientRect().top + 1"""


def test_a_turn_is_stopped(site, open_page):
    """Stop ends the answer; what was said so far stays, marked, and the next message can be sent."""
    with LoopbackOpenAI(lambda _body: Says("word " * 400, piece_length=20, delay_seconds=0.2)) as model:
        site.stop()
        site.environ |= {**model.environment, "KEPT_MODEL__DEFAULT": "openai/loopback-model"}
        site.start()
        page = open_page(site, "/chat")
        page.fill("#message", "Tell me everything.")
        page.keyboard.press("Enter")
        page.wait_for_selector(".message.assistant .said:has-text('word word')")
        page.click("[data-interrupt]")
        page.wait_for_selector("[data-interrupt]", state="hidden")
        told = page.inner_text(".message.assistant:last-of-type .said")

    assert 0 < told.count("word") < 400
    newest = sessions.list_sessions(site.owner).sessions[0]
    stored = sessions.show_session(site.owner, newest.id).messages
    assert stored[-1].message.text.count("word") < 400


def test_a_session_is_printed_without_the_frame(shared, open_page):
    """Only the conversation is on paper, dark on white, whatever the theme."""
    page = open_page(shared, "/sessions/demo-13-long", theme="dark")
    page.emulate_media(media="print")

    assert page.is_visible(".message")
    assert not page.is_visible(".rail")
    assert not page.is_visible("input[name=title]")
    assert page.evaluate("getComputedStyle(document.querySelector('.message')).color") == "rgb(29, 33, 38)"


def test_chat_works_without_javascript(site, open_page):
    """The form is an ordinary one."""
    page = open_page(site, "/chat", javascript=False)
    page.fill("#message", "Where does the staging database come from?")
    page.click("#composer button[type=submit]")

    page.wait_for_url(re.compile(r"/chat\?session="), timeout=60_000)
    assert "staging" in page.inner_text("#log")


def test_forgetting_takes_three_steps_and_shows_its_proof(site, open_page):
    """Nothing goes before the word is typed; afterwards no search finds it."""
    page = open_page(site, "/forget")
    page.fill("input[name=words]", "dark mode")
    page.click("text=Show what would be removed >> nth=0")
    page.wait_for_selector("text=Step 2 of 3")
    page.fill("input[name=typed]", "no")
    open_page.problems.clear()
    page.click("button:has-text('Forget')")
    page.wait_for_selector("[role=alert]")
    page.fill("input[name=typed]", "forget")
    page.click("button:has-text('Forget')")
    page.wait_for_selector("text=Step 3 of 3", timeout=60_000)
    assert "nothing found" in page.inner_text("main")
    page.click("text=Search for it yourself")

    assert page.locator("mark:has-text('dark')").count() == 0
    open_page.problems[:] = [one for one in open_page.problems if "422" not in one]


def test_the_preview_follows_its_switches_and_saves_them(site, open_page):
    """A switch changes the text at once; Save writes the setting."""
    page = open_page(site, "/preview?project=/home/mara/code/harbor")
    assert "Last sessions of this project" in page.inner_text("[data-exact=start]")
    page.select_option("select[name=sessions]", "0")
    page.wait_for_url(re.compile("sessions=0"))
    assert "Last sessions of this project" not in page.inner_text("[data-exact=start]")
    page.click("text=Save for all agents")
    page.wait_for_selector("[data-toast]")

    assert "sessions: 0" in (site.home / "config.yaml").read_text(encoding="utf-8")


def test_agents_are_paused_and_go_on(site, open_page):
    """One button stops everything, the toast undoes it."""
    page = open_page(site, "/agents")
    page.click("text=Pause all")
    page.wait_for_selector(".notice:has-text('Paused')")
    page.click("[data-toast] button[type=submit]")

    page.wait_for_selector("text=Pause all")


def test_a_skill_is_written_changed_and_undone(site, open_page):
    """Each version has its difference, and a deleted skill comes back."""
    page = open_page(site, "/skills/release-harbor/edit")
    text = page.input_value("textarea[name=text]")
    page.fill("textarea[name=text]", text + "\n4. Tell the support team.\n")
    page.click("button:has-text('Save')")
    page.wait_for_selector("text=Tell the support team")
    page.click("[data-toast] button[type=submit]")
    wait_for(page, lambda: "support team" not in page.inner_text("main pre"))
    page.click("button:has-text('Delete')")
    page.wait_for_url(re.compile(r"/skills$"))
    page.click("[data-toast] button[type=submit]")

    page.wait_for_url(re.compile(r"/skills/release-harbor"))


def test_tokens_are_made_and_revoked_and_a_backup_is_taken(site, open_page):
    """The secret is shown once; with it the browser signs in, but neither makes nor revokes tokens."""
    page = open_page(site, "/settings")
    page.click("text=Take a backup now")
    page.wait_for_selector("[data-toast]:has-text('Backup taken')", timeout=60_000)
    page.check("input[value=admin]")
    page.click("text=Create a token")
    secret = page.inner_text("pre.exact").strip()
    page.click("button:has-text('Sign out')")
    page.wait_for_url(re.compile("/sign-in"))
    page.goto("/settings")
    page.wait_for_url(re.compile("/sign-in"))
    page.fill("input[name=token]", secret)
    page.click("button:has-text('Sign in')")
    page.wait_for_url(re.compile("/settings"))
    assert page.is_disabled("text=Create a token")
    assert page.is_disabled("button:has-text('Revoke') >> nth=0")

    person = open_page(site, "/settings")
    before = person.locator("button:has-text('Revoke')").count()
    person.click("button:has-text('Revoke') >> nth=-1")
    person.wait_for_selector("[data-toast]")
    assert person.locator("button:has-text('Revoke')").count() == before - 1
    open_page.problems[:] = [one for one in open_page.problems if "401" not in one and "ERR_" not in one]


def test_news_of_another_process_are_announced(site, open_page):
    """A write elsewhere shows a button; the page does not move by itself."""
    page = open_page(site, "/")
    page.wait_for_timeout(1_000)
    height = page.evaluate("document.body.scrollHeight")
    site.owner.space.memory.apply(Target.USER, Add("Sings in a choir."), Author(origin="agent"))
    page.wait_for_selector(".news")
    assert page.evaluate("document.body.scrollHeight") == height
    page.click(".news")

    page.wait_for_selector("text=Sings in a choir.")
