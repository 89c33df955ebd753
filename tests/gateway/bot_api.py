"""A double of Telegram's Bot API on loopback, with its limits and its faults."""

import json
import re
import threading
import time
from collections import defaultdict
from html.parser import HTMLParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "7654321098:AAzq-Wm3TestOnlyTokenOfADouble_kept19"
BOT = {"id": 7654321098, "is_bot": True, "first_name": "Kept", "username": "kept_test_bot"}
TAGS = {"b", "i", "s", "u", "code", "pre", "a", "blockquote"}
POLL_SECONDS = 0.4
"""How long a poll is held without updates; the real one holds it as long as it was asked to."""


class Fault(Exception):
    """An error that the API answers with."""

    def __init__(self, code, description, **parameters):
        super().__init__(description)
        self.body = {"ok": False, "error_code": code, "description": description}
        if parameters:
            self.body["parameters"] = parameters


DROP = "drop"
"""The connection breaks before an answer."""
NOT_PARSED = (400, "Bad Request: can't parse entities: Can't find end of the entity starting at byte offset 3")


class Markup(HTMLParser):
    """Reads Telegram's HTML as strictly as Telegram does."""

    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.open = []
        self.text = ""

    def handle_starttag(self, tag, attrs):
        if tag not in TAGS:
            raise Fault(400, f'Bad Request: can\'t parse entities: Unsupported start tag "{tag}" at byte offset 0')
        if "code" in self.open or ("pre" in self.open and tag != "code"):
            raise Fault(400, "Bad Request: can't parse entities: nested entities are not allowed inside code")
        self.open.append(tag)

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            raise Fault(400, f'Bad Request: can\'t parse entities: Unmatched end tag "{tag}"')

    def handle_data(self, data):
        self.text += data


def read_html(text):
    """Return the text that people see; a lone < is an error there, too."""
    if re.search(r"<(?![a-z/])", text):
        raise Fault(400, "Bad Request: can't parse entities: Unexpected end of tag")
    markup = Markup()
    markup.feed(text)
    markup.close()
    if markup.open:
        raise Fault(400, f"Bad Request: can't parse entities: Can't find end tag corresponding to {markup.open[-1]!r}")
    return markup.text


def units(text):
    return len(text.encode("utf-16-le", "surrogatepass")) // 2


class BotApi:
    """The server; `sent` is what people see in each chat."""

    def __init__(self):
        self.lock = threading.Condition()
        self.updates = []
        self.confirmed = set()
        self.calls = []
        self.faults = defaultdict(list)
        self.held = {}
        self.sent = defaultdict(dict)
        self.drafts = []
        self.files = {}
        self.moved = {}
        self.webhook = None
        self.number = 1_000
        self.update_id = 500
        self.polls = 0
        self.unknown = set()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                api.answer(self)

            def do_GET(self):
                api.answer_file(self)

            def log_message(self, *_arguments):
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_error):
        for event in self.held.values():
            event.set()
        self.server.shutdown()
        self.server.server_close()

    # what people do

    def make_message(self, text=None, chat=7, user=None, **more):
        """Return a message as Telegram would describe it."""
        self.number += 1
        private = chat > 0
        person = {"id": user or chat, "is_bot": False, "first_name": f"P{user or chat}"}
        where = {"id": chat, "type": "private", "first_name": "P"} if private else {
            "id": chat, "type": "supergroup", "title": "Team"
        }  # fmt: skip
        made = {"message_id": self.number, "date": int(time.time()), "chat": where, "from": person, **more}
        if text is not None:
            made["text"] = text
            name = f"@{BOT['username']}"
            if name in text:
                start = units(text[: text.index(name)])
                made["entities"] = [{"type": "mention", "offset": start, "length": len(name)}]
        return made

    def make_update(self, value, kind="message"):
        self.update_id += 1
        return {"update_id": self.update_id, kind: value}

    def deliver(self, *updates):
        """Put updates into the queue that is polled."""
        with self.lock:
            self.updates += updates
            self.lock.notify_all()

    def say(self, text=None, chat=7, user=None, **more):
        """Say something, and return the message."""
        message = self.make_message(text, chat, user, **more)
        self.deliver(self.make_update(message))
        return message

    def redeliver(self, updates):
        """Deliver again what was confirmed, as Telegram does when it is not sure."""
        self.deliver(*updates)

    def hold(self, method):
        """Let the next calls of a method wait; return what releases them."""
        self.held[method] = threading.Event()
        return self.held[method]

    # what is looked at

    def texts(self, chat=7):
        """Return what the bot wrote in a chat, as people see it now."""
        with self.lock:
            return [self.sent[chat][number]["text"] for number in sorted(self.sent[chat])]

    def wait_texts(self, count, chat=7, seconds=60):
        self.wait_for(lambda: len(self.texts(chat)) >= count, seconds, lambda: self.texts(chat))
        return self.texts(chat)

    def wait_for(self, holds, seconds=60, shown=None):
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, shown() if shown else [name for name, _ in self.calls][-20:]
            time.sleep(0.02)

    def named(self, method):
        return [given for name, given in self.calls if name == method]

    # the server

    def answer(self, handler):
        raw = handler.rfile.read(int(handler.headers.get("content-length", "0")))
        found = re.fullmatch(r"/bot([^/]+)/(\w+)", handler.path)
        if found is None or found[1] != TOKEN:
            self.write(handler, 401, {"ok": False, "error_code": 401, "description": "Unauthorized"})
            return
        method = found[2]
        is_json = handler.headers.get("content-type", "").startswith("application/json")
        given = json.loads(raw) if is_json else read_form(handler.headers["content-type"], raw)
        event = self.held.get(method)
        try:
            with self.lock:
                self.calls.append((method, given))
                if self.faults[method]:
                    fault = self.faults[method].pop(0)
                    if fault == DROP:
                        handler.close_connection = True
                        return
                    self.fail(*fault)
            if event is not None:
                event.wait(60)
            result = getattr(self, f"do_{method}")(given) if method not in self.unknown else self.reject_method()
            self.write(handler, 200, {"ok": True, "result": result})
        except Fault as fault:
            self.write(handler, fault.body["error_code"], fault.body)

    def fail(self, code, description, parameters=None):
        raise Fault(code, description, **(parameters or {}))

    def reject_method(self):
        raise Fault(404, "Not Found")

    def write(self, handler, status, value):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        try:
            handler.send_response(status)
            handler.send_header("content-type", "application/json")
            handler.send_header("content-length", str(len(body)))
            handler.end_headers()
            handler.wfile.write(body)
        except OSError:  # the client was killed
            return

    def answer_file(self, handler):
        prefix = f"/file/bot{TOKEN}/"
        name = handler.path.removeprefix(prefix)
        if not handler.path.startswith(prefix) or name not in self.files:
            self.write(handler, 404, b"not found")
            return
        self.write(handler, 200, self.files[name])

    def do_getMe(self, _given):
        return {**BOT, "can_join_groups": True, "can_read_all_group_messages": False, "supports_inline_queries": False}

    def do_setMyCommands(self, given):
        for one in given["commands"]:
            assert re.fullmatch("[a-z0-9_]{1,32}", one["command"]), one
            assert 1 <= len(one["description"]) <= 256, one
        return True

    def do_deleteWebhook(self, _given):
        self.webhook = None
        return True

    def do_setWebhook(self, given):
        assert re.fullmatch("[A-Za-z0-9_-]{1,256}", given["secret_token"])
        self.webhook = given
        return True

    def do_getUpdates(self, given):
        assert 1 <= given["limit"] <= 100
        if self.webhook is not None:
            what = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
            raise Fault(409, f"Conflict: {what}")
        offset = given.get("offset") or 0
        with self.lock:
            self.polls += 1
            mine = self.polls
            self.lock.notify_all()
            self.confirmed |= {one["update_id"] for one in self.updates if one["update_id"] < offset}
            self.updates = [one for one in self.updates if one["update_id"] >= offset]
            end = time.monotonic() + min(given["timeout"], POLL_SECONDS)
            while not self.updates and time.monotonic() < end and mine == self.polls:
                self.lock.wait(end - time.monotonic())
            if mine != self.polls:
                what = "terminated by other getUpdates request; make sure that only one bot instance is running"
                raise Fault(409, f"Conflict: {what}")
            kinds = given["allowed_updates"]
            return [one for one in self.updates if set(one) & set(kinds)][: given["limit"]]

    def check_text(self, given, least=1):
        text = given.get("text", "")
        shown = read_html(text) if given.get("parse_mode") == "HTML" else text
        if len(shown.strip()) < least:
            raise Fault(400, "Bad Request: message text is empty")
        if units(shown) > 4_096:
            raise Fault(400, "Bad Request: message is too long")
        return shown

    def find_chat(self, given):
        chat = given["chat_id"]
        assert isinstance(chat, int)
        if chat in self.moved:
            what = "Bad Request: group chat was upgraded to a supergroup chat"
            raise Fault(400, what, migrate_to_chat_id=self.moved[chat])
        return chat

    def add(self, chat, **fields):
        with self.lock:
            self.number += 1
            self.sent[chat][self.number] = fields
            kind = {"id": chat, "type": "private" if chat > 0 else "supergroup"}
            return {"message_id": self.number, "date": int(time.time()), "chat": kind, "from": BOT}

    def do_sendMessage(self, given):
        return self.add(self.find_chat(given), **{**given, "text": self.check_text(given)})

    def do_sendRichMessage(self, given):
        (kind,) = given["rich_message"]
        assert kind in {"markdown", "html"}
        return self.add(self.find_chat(given), **given, text=given["rich_message"][kind])

    def do_editMessageText(self, given):
        chat, shown = self.find_chat(given), self.check_text(given)
        with self.lock:
            message = self.sent[chat].get(given["message_id"])
            if message is None:
                raise Fault(400, "Bad Request: message to edit not found")
            if message["text"] == shown and message.get("parse_mode") == given.get("parse_mode"):
                what = "specified new message content and reply markup are exactly the same as the current content"
                raise Fault(400, f"Bad Request: message is not modified: {what} and reply markup of the message")
            message.update({**given, "text": shown})
        return {"message_id": given["message_id"], "date": 0, "chat": {"id": chat, "type": "supergroup"}}

    def do_sendMessageDraft(self, given):
        assert given["draft_id"] != 0
        if self.find_chat(given) < 0:
            raise Fault(400, "Bad Request: method is available for private chats only")
        with self.lock:
            self.drafts.append({**given, "text": self.check_text(given, least=0)})
        return True

    def do_sendChatAction(self, given):
        assert given["action"] == "typing"
        self.find_chat(given)
        return True

    def do_sendDocument(self, given):
        return self.add(int(given["chat_id"]), **given, text=f"[file {len(given['document'])}]")

    def do_getFile(self, given):
        name = given["file_id"]
        if name not in self.files:
            raise Fault(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        if len(self.files[name]) > 20_000_000:
            raise Fault(400, "Bad Request: file is too big")
        return {"file_id": name, "file_unique_id": name, "file_size": len(self.files[name]), "file_path": name}


def read_form(content_type, raw):
    """Return the fields of a multipart body."""
    boundary = re.search("boundary=(.+)", content_type)[1].strip('"').encode()
    found = {}
    for piece in raw.split(b"--" + boundary)[1:-1]:
        head, _, body = piece.strip(b"\r\n").partition(b"\r\n\r\n")
        found[re.search(rb'name="(\w+)"', head)[1].decode()] = body.decode("utf-8", "replace")
    return found
