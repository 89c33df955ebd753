"""Installing and removing through the hub, ended in the middle."""

import pytest

from wellkept.skills.changes import Changed
from wellkept.skills.editor import SkillEditor
from wellkept.skills.hub.hub import Hub, Prepared
from wellkept.skills.hub.sources import LockFile
from wellkept.skills.library import SkillLibrary
from wellkept.skills.settings import SkillSettings
from wellkept.skills.versions import Versions


class Ended(BaseException):
    """Simulates the end of the process."""


@pytest.fixture
def package(tmp_path):
    folder = tmp_path / "delta"
    (folder / "references").mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: delta\ndescription: Does delta. Use for delta.\n---\n\n# Delta\n")
    (folder / "references" / "notes.md").write_text("Notes.\n")
    return folder


def open_hub(tmp_path):
    return Hub(SkillEditor(SkillLibrary(tmp_path / "skills", settings=SkillSettings(bundled=False))))


def installed(tmp_path, package):
    hub = open_hub(tmp_path)
    prepared = hub.prepare(str(package))
    assert isinstance(prepared, Prepared)
    return hub, hub.install(prepared)


@pytest.mark.parametrize(
    ("owner", "method"), [(LockFile, "put"), (LockFile, "announce"), (SkillEditor, "_count"), (Versions, "apply")]
)
def test_an_installation_that_ended_is_not_known_at_all_or_known_as_installed(
    tmp_path, package, monkeypatch, owner, method
):
    """A skill of the hub never becomes a skill of the person, and installing it again succeeds."""

    def end(*args, **options):
        raise Ended

    monkeypatch.setattr(owner, method, end)
    with pytest.raises(Ended):
        installed(tmp_path, package)
    monkeypatch.undo()
    hub = open_hub(tmp_path)
    names = {folder.name for folder in hub._library.home_folders()}
    assert set(hub.lock.read()) == names

    hub, changed = installed(tmp_path, package)

    assert isinstance(changed, Changed)
    assert [audited.clean for audited in hub.audit()] == [True]


def test_a_removal_that_ended_is_completed(tmp_path, package, monkeypatch):
    """The skill is in the archive and its source is forgotten, in the first run or in the second."""
    hub, _ = installed(tmp_path, package)

    def end(*args, **options):
        raise Ended

    monkeypatch.setattr(LockFile, "drop", end)
    with pytest.raises(Ended):
        hub.remove("delta")
    monkeypatch.undo()

    assert isinstance(open_hub(tmp_path).remove("delta"), Changed)
    assert open_hub(tmp_path).lock.read() == {}
