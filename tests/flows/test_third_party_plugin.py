"""A plugin that somebody wrote from docs/writing-a-provider.md alone, through the command line."""

import json
import re
import sqlite3
from pathlib import Path

from wellkept.llm.scripted import Says, call
from wellkept.testing.loopback_servers import LoopbackOpenAI

GUIDE = Path(__file__).parents[2] / "docs" / "writing-a-provider.md"

MAIN = '''
"""Cards in a SQLite file."""

import json

from wellkept.providers.base import MemoryProvider, Rejected

from .cards import Cards


class CardIndex(MemoryProvider):
    name = "card-index"

    def is_available(self):
        return True

    def initialize(self, session_id, **context):
        from .settings import load  # as late as possible

        self.limit = load(context["kept_home"])["limit"]
        self.cards = Cards(f"{context['kept_home']}/cards.db", context["user_id"])
        print("card index opened")

    def get_tool_schemas(self):
        if self.limit < 1:
            return []
        text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return [{"name": "card_add", "description": "Write a card.", "parameters": text}]

    def handle_tool_call(self, name, args, **context):
        self.cards.add(args["text"], context["session_id"], "tool")
        return json.dumps({"cards": self.cards.count()})

    def prefetch(self, query, *, session_id=""):
        return "\\n".join(self.cards.find(query)[: self.limit])

    def sync_turn(self, user, assistant, *, session_id="", idempotency_key=""):
        if len(user) > 10_000:
            raise Rejected("too long for a card")
        self.cards.add(user, session_id, idempotency_key)

    def forget_content(self, request):
        return self.cards.remove(request.texts)

    def holds_content(self, request):
        return any(self.cards.find(text) for text in request.texts)

    def get_config_schema(self):
        return [{"key": "limit", "description": "How many cards are recalled", "default": 3}]

    def get_status(self, kept_home, user_id):
        return {"cards": Cards(f"{kept_home}/cards.db", user_id).count()}

    def shutdown(self):
        self.cards.close()


def register(ctx):
    ctx.register_memory_provider(CardIndex())
'''
CARDS = """
import sqlite3


class Cards:
    def __init__(self, path, user):
        self.user = user
        self.db = sqlite3.connect(path, check_same_thread=False)
        self.db.execute("CREATE TABLE IF NOT EXISTS cards (user TEXT, session TEXT, key TEXT UNIQUE, text TEXT)")

    def add(self, text, session, key):
        with self.db:
            self.db.execute("INSERT OR IGNORE INTO cards VALUES (?, ?, ?, ?)", (self.user, session, key, text))

    def find(self, query):
        words = {word.strip("?.!").lower() for word in query.split() if len(word) > 3}
        rows = self.db.execute("SELECT text FROM cards WHERE user = ?", (self.user,))
        return [text for (text,) in rows if words & {word.strip("?.!").lower() for word in text.split()}]

    def remove(self, texts):
        with self.db:
            for text in texts:
                gone = self.db.execute("DELETE FROM cards WHERE text LIKE ?", (f"%{text}%",))
            return gone.rowcount

    def count(self):
        return self.db.execute("SELECT count(*) FROM cards WHERE user = ?", (self.user,)).fetchone()[0]

    def close(self):
        self.db.close()
"""
SETTINGS = """
import json, pathlib


def load(home):
    path = pathlib.Path(home, "card-index.json")
    return {"limit": 3, **(json.loads(path.read_text()) if path.exists() else {})}
"""


def write(home, folder, files):
    target = home / "plugins" / folder
    target.mkdir(parents=True)
    for name, text in files.items():
        (target / name).write_text(text)


def test_a_plugin_written_from_the_guide_works(kept, home):
    """Setup, tools, recall, storing, status and forgetting; its folder has another name."""
    files = {"__init__.py": MAIN, "cards.py": CARDS, "settings.py": SETTINGS}
    files["plugin.yaml"] = "name: card-index\nversion: 0.3\nport: 1\ndescription: Cards in a box\n"
    write(home, "cards-of-mine", files)
    setup = kept("providers", "setup", "card-index", "--set", "limit=2")
    script = [Says(tool_calls=(call("card_add", text="The deploy day is Friday"),)), Says("Noted."), Says("On Friday.")]
    with LoopbackOpenAI(script) as server:
        model = ("-m", "openai/loopback-model", "--json")
        first = kept("run", "Please write down our deploy day", *model, env=server.environment)
        second = kept("run", "Which deploy day did we choose?", *model, env=server.environment)
        asked = json.dumps(server.bodies[-1]["messages"][-1])
    (status,) = kept("providers", "status", "--json").json["active"]
    forgotten = kept("forget", "--query", "deploy", "--yes", "--json")

    assert setup.code == 0, setup.err
    assert (first.json["answer"], second.json["answer"]) == ("Noted.", "On Friday.")
    assert "The deploy day is Friday" in asked
    assert (status["name"], status["health"], status["facts"]) == ("cards-of-mine", "ok", {"cards": 3})
    assert json.loads((home / "card-index.json").read_text()) == {"limit": 2}
    assert "card index opened" in (home / "logs" / "kept.log").read_text()
    assert forgotten.code == 0, forgotten.err
    with sqlite3.connect(home / "cards.db") as cards:
        assert cards.execute("SELECT count(*) FROM cards").fetchone() == (0,)


def test_the_example_of_the_guide_works_as_it_is_printed(kept, home):
    """Stored in one turn, recalled in the next."""
    example = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)[1]
    write(home, "notebook", {"__init__.py": example})
    setup = kept("providers", "setup", "notebook")
    with LoopbackOpenAI([Says("Noted."), Says("On Friday.")]) as server:
        model = ("-m", "openai/loopback-model", "--json")
        kept("run", "The deploy day is Friday", *model, env=server.environment)
        kept("run", "Which deploy day did we choose?", *model, env=server.environment)
        asked = json.dumps(server.bodies[-1]["messages"][-1])

    assert setup.code == 0, setup.err
    assert "The deploy day is Friday" in asked
