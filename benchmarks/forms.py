"""How often a search finds a session when its words are asked for in other forms, with and without `word_forms`.

    python benchmarks/forms.py FOLDER [--dictionaries FOLDER] [--joins 50]

FOLDER has a text CODE.txt for each language (de.txt, fr.txt, …): a message on each line, sessions separated by empty
lines. Of sampled messages, two or three words are replaced by other forms of them that the text has, and the session of
the message is looked for with these words. Forms are words with the same Snowball stem and, so that the stemmer does
not judge itself, words with the same stem in a Hunspell dictionary (CODE_*.aff and .dic; needs the program `hunspell`).
`--joins` prints so many words of each language with the words that a search joins with them, for a person to read.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import Stemmer

sys.path.insert(0, str(Path(__file__).parent.parent))
from wellkept.core.ids import OWNER, SessionId
from wellkept.core.messages import Message, NewMessage, Origin, Role, Session
from wellkept.core.search import SearchRequest
from wellkept.core.text import WORD
from wellkept.languages.language import stop_words_by_language
from wellkept.languages.stems import STEMMERS
from wellkept.sessions.search.engine import search
from wellkept.sessions.search.terms import WordForms
from wellkept.sessions.sqlite.postings import SqliteCatalog, SqlitePostings
from wellkept.sessions.sqlite.store import SqliteSessionStore
from wellkept.storage.sqlite import open_state

SEED = 7
ASKED = 300
"""Messages of each language that are looked for."""
LEAST_LETTERS = 4
WORDS = (2, 3)


class EnglishOnly(SqlitePostings):
    """A store whose languages nobody knows: words are joined by the English stemmer alone."""

    @property
    def languages(self) -> Sequence[str]:
        """No language."""
        return ()


@dataclass(frozen=True)
class Case:
    """Words in other forms, and the session of the message that they come from."""

    query: str
    session_id: str


def read_sessions(path: Path) -> list[list[str]]:
    """Return the messages of each session."""
    parts = path.read_text(encoding="utf-8").split("\n\n")
    return [lines for part in parts if (lines := [line for line in part.splitlines() if line.strip()])]


def fill(store: SqliteSessionStore, sessions: Sequence[Sequence[str]]) -> None:
    """Store the sessions, each named by its number."""
    now = time.time() - 60.0 * len(sessions)
    for number, lines in enumerate(sessions):
        name = SessionId(str(number))
        store.create(Session(name, "cli", now + 60.0 * number))
        store.append(name, [NewMessage(Message(Role.USER, line), now + 60.0 * number, Origin.PERSON) for line in lines])
    store.file.catch_up()


def group_by_stem(words: Sequence[str], language: str) -> dict[str, set[str]]:
    """Return the words with the same Snowball stem as each."""
    families: dict[str, set[str]] = defaultdict(set)
    for word, stem in zip(words, Stemmer.Stemmer(STEMMERS[language]).stemWords(list(words)), strict=True):
        families[stem].add(word)
    return {word: family for family in families.values() for word in family}


def group_by_dictionary(words: Sequence[str], dictionary: Path) -> dict[str, set[str]]:
    """Return the words with a common stem in a Hunspell dictionary as each."""
    # a noun of German is known with its capital only
    asked = "\n".join(form for word in words for form in (word, word.capitalize()))
    command = ["hunspell", "-s", "-i", "utf-8", "-d", str(dictionary.with_suffix(""))]
    answer = subprocess.run(command, input=asked, capture_output=True, text=True, check=True).stdout
    families: dict[str, set[str]] = defaultdict(set)
    stems: dict[str, set[str]] = defaultdict(set)
    for line in answer.lower().splitlines():
        word, _, stem = line.strip().partition(" ")
        if stem:
            families[stem].add(word)
            stems[word].add(stem)
    return {word: set().union(*(families[stem] for stem in stems[word])) for word in stems}


def make_cases(
    sessions: Sequence[Sequence[str]], families: Mapping[str, set[str]], stops: frozenset[str], chance: random.Random
) -> Iterator[Case]:
    """Yield questions whose words are other forms of words of one message."""
    lines = [(str(number), line) for number, part in enumerate(sessions) for line in part]
    chance.shuffle(lines)
    for session_id, line in lines:
        said = {word.lower() for word in WORD.findall(line)}
        words = [word for word in sorted(said - stops) if len(word) >= LEAST_LETTERS and word.isalpha()]
        # another form that the message itself has would be found without any
        others = {word: sorted(families.get(word, set()) - said) for word in words}
        chosen = [chance.choice(forms) for forms in others.values() if forms]
        chance.shuffle(chosen)
        if len(chosen) >= WORDS[0]:
            yield Case(" ".join(chosen[: WORDS[1]]), session_id)


def count_found(store: SqliteSessionStore, cases: Sequence[Case], kind: type[SqlitePostings]) -> tuple[int, int]:
    """Return how many of the sessions come first, and how many are among five."""
    connection, now = store.database.connection, time.time()
    first = among = 0
    for case in cases:
        catalog = SqliteCatalog(connection, user=OWNER)
        found = search(kind(connection), catalog, SearchRequest(case.query, limit=5), now=now)
        names = [str(one.session_id) for one in found.sessions]
        first += names[:1] == [case.session_id]
        among += case.session_id in names
    return first, among


def print_joins(store: SqliteSessionStore, words: Sequence[str], count: int, chance: random.Random) -> None:
    """Print words of the text with the words that a search joins with them."""
    postings = SqlitePostings(store.database.connection)
    for word in chance.sample(list(words), len(words)):
        forms = WordForms(postings, postings.languages).find(word)
        others = [form for form in forms if postings.stem(form) != postings.stem(word)]
        if others and count:
            print("   ", word, "=", " ".join(others))
            count -= 1


def measure(path: Path, dictionaries: Path | None, joins: int) -> None:
    """Print the rows of one language."""
    language, sessions = path.stem, read_sessions(path)
    said = sorted({word.lower() for part in sessions for line in part for word in WORD.findall(line)})
    stops = stop_words_by_language()[language]
    words = [word for word in said if word.isalpha() and len(word) >= LEAST_LETTERS and word not in stops]
    families = {"stem": group_by_stem(words, language)}
    found = sorted(dictionaries.glob(f"{language}*.aff")) if dictionaries is not None else []
    if found:
        families["dictionary"] = group_by_dictionary(words, found[0])
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteSessionStore(open_state(Path(folder) / "state.db"))
        fill(store, sessions)
        for name, family in families.items():
            cases = []
            for case in make_cases(sessions, family, stops, random.Random(SEED)):
                cases.append(case)
                if len(cases) == ASKED:
                    break
            cells = [f"{language} | {name} | {len(cases)}"]
            for kind in (EnglishOnly, SqlitePostings):
                cells += [f"{100.0 * hits / max(1, len(cases)):.1f}" for hits in count_found(store, cases, kind)]
            print("|", " | ".join(cells), "|", flush=True)
        print_joins(store, words, joins, random.Random(SEED))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--dictionaries", type=Path)
    parser.add_argument("--joins", type=int, default=0)
    parser.add_argument("--languages", nargs="+", help="only these")
    chosen = parser.parse_args()
    print("| language | forms by | asked | first % without | among five | first % with | among five |")
    print("|---|---|---|---|---|---|---|")
    for path in sorted(chosen.folder.glob("*.txt")):
        if path.stem in STEMMERS and path.stem in (chosen.languages or [path.stem]):
            measure(path, chosen.dictionaries, chosen.joins)
    return 0


if __name__ == "__main__":
    sys.exit(main())
