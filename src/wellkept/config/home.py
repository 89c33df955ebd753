"""The home folder: the paths of one profile, with a folder for each user other than the owner."""

import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from wellkept.core.errors import NotFound, UsageError
from wellkept.core.ids import OWNER, UserId, sha256
from wellkept.core.text import is_encodable
from wellkept.storage.files import is_foreign, make_folder, read_bytes, write_atomically

DEFAULT_PROFILE = "default"
_PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PLAIN_USER = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_HASH_DIGITS = 8
_ENDS_IN_HASH = re.compile(rf"-[0-9a-f]{{{_HASH_DIGITS}}}")


class Home(Struct, frozen=True):
    """The folder of one profile under its root, as one user sees it; every path is computed on access.

    Settings, secrets, plugins, logs and the database belong to the profile. Pages, pending writes, skills and
    input history belong to the user: the owner's are in the profile's folder, another user's in `users/<id>`.
    """

    root: Path
    profile: str = DEFAULT_PROFILE
    user: UserId = OWNER

    @property
    def path(self) -> Path:
        """Return the folder of this profile."""
        return self.root if self.profile == DEFAULT_PROFILE else self.root / "profiles" / self.profile

    def for_user(self, user: UserId) -> "Home":
        """Return the same home as another user sees it."""
        return replace(self, user=user)

    @property
    def users(self) -> Path:
        """Return the folder with one folder for each user other than the owner."""
        return self.path / "users"

    @property
    def own(self) -> Path:
        """Return the folder of the user's own files."""
        return self.path if self.user == OWNER else self.users / user_folder(self.user)

    @property
    def memories(self) -> Path:
        """Return the folder of the two pages and their ledger."""
        return self.own / "memories"

    @property
    def pending(self) -> Path:
        """Return the folder of pending writes."""
        return self.own / "pending"

    @property
    def skills(self) -> Path:
        """Return the folder of the user's own skills, the only one that their changes are written to."""
        return self.own / "skills"

    @property
    def shared_skills(self) -> Path:
        """Return the owner's skills, which every user may read."""
        return self.path / "skills"

    @property
    def plugins(self) -> Path:
        """Return the folder of the owner's plugins."""
        return self.path / "plugins"

    @property
    def chat_history(self) -> Path:
        """Return the file with the input history of chats."""
        return self.own / "chat_history"

    @property
    def forget_reports(self) -> Path:
        """Return the folder of the reports that `kept forget` writes."""
        return self.own / "forgotten"

    @property
    def connections(self) -> Path:
        """Return the folder with the record of connected agents, and backups of their changed files."""
        return self.own / "connect"

    @property
    def spool(self) -> Path:
        """Return the folder of turns that could not be captured in time."""
        return self.own / "spool"

    @property
    def migration(self) -> Path:
        """Return the folder of the reports that imports write."""
        return self.own / "migration"

    @property
    def backups(self) -> Path:
        """Return the folder of automatic backups and of those before a change."""
        return self.own / "backups"

    @property
    def restoring(self) -> Path:
        """Return the folder that exists while a backup is being restored; the next command completes it."""
        return self.path / "restoring"

    @property
    def unfinished_forgets(self) -> Path:
        """Return the folder of interrupted forgets; the next command completes them."""
        return self.path / "forgotten" / "unfinished"

    @property
    def logs(self) -> Path:
        """Return the folder of log files."""
        return self.path / "logs"

    @property
    def env_file(self) -> Path:
        """Return the file of secrets."""
        return self.path / ".env"

    @property
    def serve_token(self) -> Path:
        """Return the file with the start-up token of the server."""
        return self.path / "serve-token"

    @property
    def is_shared(self) -> bool:
        """Whether another agent has its database here; its files are then read, never written."""
        return (self.path / "kept.yaml").exists() or is_foreign(self.path / "state.db")

    @property
    def database(self) -> Path:
        """Return the database of sessions, outbox and usage."""
        return self.path / ("kept.db" if is_foreign(self.path / "state.db") else "state.db")

    @property
    def config_file(self) -> Path:
        """Return the settings file that we write."""
        return self.path / ("kept.yaml" if self.is_shared else "config.yaml")

    @property
    def foreign_config_file(self) -> Path | None:
        """Return another agent's settings file, from which shared settings are read."""
        theirs = self.path / "config.yaml"
        return theirs if self.is_shared and theirs.exists() else None

    def create(self) -> None:
        """Create the folder with mode 0700."""
        make_folder(self.path)


def find_home(flag: str | None, profile: str | None, environ: Mapping[str, str]) -> Home:
    """Return the home that `--home`, `$KEPT_HOME` or the default names, in the chosen profile."""
    chosen = flag or environ.get("KEPT_HOME") or "~/.kept"
    if "\0" in chosen or not is_encodable(chosen):
        raise UsageError(f"the home {chosen!r} is not a UTF-8 path", "give another path with --home")
    try:
        root = Path(chosen).expanduser().absolute()
    except RuntimeError as error:
        raise UsageError(f"cannot find the folder {chosen!r}: {error}", "give a full path with --home") from error
    name = profile or environ.get("KEPT_PROFILE") or active_profile(root)
    home = Home(root, check_profile_name(name))
    if home.profile != DEFAULT_PROFILE and not home.path.is_dir():
        raise NotFound(
            f"there is no profile {name!r}",
            f"`kept profile create {name}` creates it; `kept profile list` shows all",
        )
    return home


def check_profile_name(name: str) -> str:
    """Return `name` if it can name a profile."""
    if not _PROFILE_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a profile",
            "use 1 to 64 lowercase letters, digits, - or _, beginning with a letter or digit",
        )
    return name


def active_profile(root: Path) -> str:
    """Return the profile that `kept profile use` chose."""
    names = _chosen_profiles(root)
    return next((name for name in names if Home(root, name).path.is_dir()), names[0])


def choose_profile(root: Path, *names: str) -> None:
    """Make the first of `names` that exists the profile that commands use when none is named.

    With two names, moving a folder also changes the active profile.
    """
    make_folder(root)
    write_atomically(root / "active_profile", "".join(f"{name}\n" for name in names).encode())


def settle_active_profile(root: Path) -> None:
    """Reduce the choice to the profile that is active now, so that a new folder does not change it."""
    if len(_chosen_profiles(root)) > 1:
        choose_profile(root, active_profile(root))


def _chosen_profiles(root: Path) -> list[str]:
    words = (read_bytes(root / "active_profile") or b"").decode("utf-8", "replace").split()
    return words if words and all(map(_PROFILE_NAME.fullmatch, words)) else [DEFAULT_PROFILE]


def user_folder(user: UserId) -> str:
    """Return a folder name for a user id; two ids never share one.

    A plain id is its own name. Any other id is reduced to plain characters and gets a hash of the original. An id
    that already ends like a hash gets one too, so that nobody can choose the folder of somebody else.
    """
    if _PLAIN_USER.fullmatch(user) and not _ENDS_IN_HASH.search(user[-_HASH_DIGITS - 1 :]):
        return user

    plain = re.sub(r"[^a-z0-9._-]+", "_", user.lower()).strip("._-")[:48] or "user"
    return f"{plain}-{sha256(user.encode('utf-8', 'surrogatepass')).hexdigest()[:_HASH_DIGITS]}"
