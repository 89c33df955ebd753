"""Skills, hub and curator as operations: what a caller without the scope `write` may do."""

from pathlib import Path

import pytest

from wellkept.app import open_app
from wellkept.app.caller import Scope
from wellkept.core.errors import NotAllowed
from wellkept.core.ids import UserId
from wellkept.operations import curator, skills
from wellkept.skills.curator.consolidate import Plan

TEXT = "---\nname: ship-it\ndescription: Ship a release. Use when asked to release.\n---\n\n# Ship\n"

WRITES = {
    "create": lambda caller: skills.create_skill(caller, "ship-it", TEXT),
    "edit": lambda caller: skills.edit_skill(caller, "ship-it", TEXT),
    "delete": lambda caller: skills.delete_skill(caller, "ship-it"),
    "purge": lambda caller: skills.purge_skill(caller, "ship-it"),
    "undo": lambda caller: skills.undo_change(caller, "ship-it"),
    "approve": lambda caller: skills.approve(caller, "0123abcd"),
    "reject": lambda caller: skills.reject(caller, "0123abcd"),
    "trust": lambda caller: skills.trust_project(caller, Path()),
    "prepare": lambda caller: skills.prepare(caller, "nowhere"),
    "install": lambda caller: skills.install(caller, None),
    "prepare update": lambda caller: skills.prepare_update(caller, "ship-it"),
    "remove": lambda caller: skills.remove(caller, "ship-it"),
    "run": curator.run,
    "propose": curator.propose_merges,
    "carry out": lambda caller: curator.carry_out_plan(caller, Plan("0123abcd", (), ())),
    "pause": curator.pause,
    "pin": lambda caller: curator.pin_skill(caller, "ship-it"),
    "archive": lambda caller: curator.archive_skill(caller, "ship-it"),
    "restore": lambda caller: curator.restore_skill(caller, "ship-it"),
    "back up": curator.back_up,
    "roll back": curator.roll_back,
}

READS = {
    "list": skills.list_skills,
    "show": lambda caller: skills.show_skill(caller, "ship-it"),
    "log": lambda caller: skills.read_log(caller, "ship-it"),
    "stats": skills.measure_skills,
    "pending": skills.list_pending,
    "check": skills.check_skills,
    "audit": skills.audit,
    "status": curator.report_status,
    "dry run": lambda caller: curator.run(caller, dry_run=True),
    "report": curator.read_report,
}


@pytest.fixture
def app(home):
    app = open_app(str(home), environ={})
    yield app
    app.close()


@pytest.fixture
def reader(app):
    """A caller who may look and change nothing."""
    return app.caller(scopes=frozenset({Scope.READ}))


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_needs_the_scope(reader, write):
    """No operation that changes skills runs for a caller who may only read."""
    with pytest.raises(NotAllowed):
        write(reader)


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_read_needs_no_more(reader, home, read):
    """What only looks runs without the scope `write`, and creates no folder of skills."""
    read(reader)

    assert not (home / "skills").exists()


def test_a_skill_belongs_to_the_caller_who_wrote_it(app):
    """Each caller writes their own folder; the change carries the caller's session."""
    anna = app.caller(UserId("anna"), session_id="s1")

    skills.create_skill(anna, "ship-it", TEXT)

    assert skills.read_log(anna, "ship-it").versions[0].session_id == "s1"
    assert "ship-it" in {one.skill.name for one in skills.list_skills(anna).skills}
    assert "ship-it" not in {one.skill.name for one in skills.list_skills(app.caller()).skills}
