"""Who may call: tokens, scopes, other users, Host and Origin."""

import base64
import hashlib
import hmac
import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from wellkept.app import Scope, open_app
from wellkept.app.caller import TOKEN_SCOPES
from wellkept.core.errors import ConfigError, NotAllowed, UsageError
from wellkept.forgetting.forget import forget, plan_forget_user
from wellkept.gateway.compatible.clients import SESSION_HEADERS
from wellkept.gateway.identity import COOKIE, FAILURES_PER_MINUTE, FRONT_END_HEADERS, JWT_HEADER, Gate, read_jwt
from wellkept.gateway.server import refuse_open_address
from wellkept.gateway.state import tokens
from wellkept.operations import users

from .conftest import serve

OPEN = {"/healthz", "/readyz"}


def operations(served):
    """Yield (method, path with values, scope needed) for every documented route."""
    document = served.client(served.token()).get("/api/openapi.json").json()
    for path, methods in document["paths"].items():
        filled = path
        for name, value in {"target": "memory", "ledger_id": "1", "message_id": "1", "receipt": "1"}.items():
            filled = filled.replace(f"{{{name}}}", value)
        filled = filled.replace("{name}", "nobody-has-this").replace("{pending_id}", "none")
        filled = filled.replace("{token_id}", "none")
        for method in methods:
            yield method.upper(), filled


def test_no_route_answers_without_a_valid_token(served):
    """As soon as one token exists, every route needs one, and a wrong one gets the same answer."""
    routes = list(operations(served))
    assert len(routes) > 60
    with served.client("") as nobody, served.client("kept_00000000_wrong") as stranger:
        for method, path in routes:
            first, second = nobody.request(method, path), stranger.request(method, path)
            assert (first.status_code, second.status_code) == (401, 401), path
            assert first.content == second.content


def test_a_reading_token_changes_nothing(served):
    """Every route that is no GET, apart from tools that read, refuses a token with the scope read."""
    routes = list(operations(served))
    bodies = {
        "text": "x",
        "needle": "x",
        "name": "x",
        "message": "x",
        "mark": "useful",
        "user_id": "x",
        "code": "x",
    }
    with served.client(served.token("ann", "read")) as reader:
        for method, path in routes:
            # over MCP each tool checks the scope: test_mcp_http.py
            if method == "GET" or path == "/mcp" or path.startswith("/api/tools/"):
                continue
            answer = reader.request(method, path, json=bodies, params={"needle": "x", "person": "x"})
            assert answer.status_code == 403, (method, path, answer.text)


def test_the_tools_over_the_network_are_those_over_the_memory(served, tmp_path):
    """No token reaches a file or the terminal of the machine, whatever tools the agent has."""
    written = tmp_path / "written"
    arguments = {"command": f"touch {written}", "path": str(written), "content": "x", "task": "x", "steps": []}
    for secret in (served.secret, served.token("ann", "read"), served.token("bob")):
        with served.client(secret) as client:
            listed = {one["name"] for one in client.get("/api/tools").json()}
            others = [name for name in (*served.owner.space.tools(), "toString") if name not in listed]
            assert {"terminal", "read_file", "write_file"} <= set(others)
            for name in others:
                answer = client.post(f"/api/tools/{name}", json={"arguments": arguments})
                assert answer.status_code == 404, (name, answer.text)
    assert not written.exists()


def test_admin_routes_refuse_users(served):
    """A user's token manages nothing of the home."""
    with served.client(served.token("ann")) as ann:
        for path in ("users", "tokens", "settings", "doctor", "connections", "imports", "models"):
            assert ann.get(f"/api/{path}").status_code == 403, path
        assert ann.post("/api/tokens", json={"user_id": "owner"}).status_code == 403


def test_another_users_ids_are_unknown(served):
    """Whether a session of somebody else exists cannot be told from the answer."""
    ann, bob = served.client(served.token("ann")), served.client(served.token("bob"))
    told = ann.post("/api/chat", json={"message": "the parsnips are in row seven", "stream": False}).json()
    session = told["session_id"]
    message = ann.get("/api/search", params={"query": "parsnips"}).json()["passages"][0]["id"]
    for path in (f"sessions/{session}", f"messages/{message}", f"messages/{message}/why?query=parsnips"):
        other = path.replace(session, f"{session[:-6]}ffffff").replace(f"messages/{message}", "messages/9999")
        mine, unknown = bob.get(f"/api/{path}"), bob.get(f"/api/{other}")
        assert mine.status_code == unknown.status_code == 404
        without = [
            one.text.replace(known, "X").replace(f"message {number}", "message N")
            for one, known, number in ((mine, session, message), (unknown, f"{session[:-6]}ffffff", 9999))
        ]
        assert without[0] == without[1]
    assert bob.delete(f"/api/sessions/{session}").status_code == 404
    assert bob.post("/api/chat", json={"message": "hi", "session": session}).status_code == 404
    assert bob.get("/api/search", params={"query": "parsnips"}).json()["passages"] == []
    assert "parsnips" not in bob.get("/api/sessions/export").text
    assert "parsnips" in ann.get("/api/sessions/export").text


def test_the_token_of_a_forgotten_user_stops_working(served):
    """At once, without a restart."""
    token = served.token("ann")
    with served.client(token) as ann:
        assert ann.post("/api/memory/user/entries", json={"text": "likes tea"}).status_code == 201
        caller = served.owner.for_user(users.check_user_id("ann"))
        forget(caller, plan_forget_user(caller))
        assert ann.get("/api/memory").status_code == 401


def test_revoked_and_expired_tokens(served):
    """Neither works, and the secret is stored nowhere."""
    made = tokens.create_token(served.owner, days=0.001)
    with served.client(made.secret) as client:
        assert client.get("/api/memory").status_code == 200
        with served.app.database.writing() as unit:
            unit.execute("UPDATE tokens SET expires = ? WHERE id = ?", (time.time() - 1, made.token.id))
        assert client.get("/api/memory").status_code == 401
    kept = tokens.create_token(served.owner)
    with served.client(kept.secret) as client:
        tokens.revoke_token(served.owner, kept.token.id)
        assert client.get("/api/memory").status_code == 401
    stored = b"".join(path.read_bytes() for path in served.app.home.path.rglob("*") if path.is_file())
    assert made.secret.partition(f"_{made.token.id}_")[2].encode() not in stored


def test_a_front_end_names_its_users_with_the_scope_only(served):
    """With act-as each user has a memory of their own; without it the header is refused or ignored."""
    front, plain = served.token("owner", "read", "write", "act-as"), served.token("ann")
    served.client(front, **{"X-Kept-User": "dora"}).post("/api/memory/user/entries", json={"text": "Dora likes chess"})
    assert "chess" in served.client(front, **{"X-OpenWebUI-User-Id": "dora"}).get("/api/memory").text
    assert "chess" not in served.client(front, **{"X-Kept-User": "emil"}).get("/api/memory").text
    assert served.client(plain, **{"X-Kept-User": "dora"}).get("/api/memory").status_code == 403
    assert "chess" not in served.client(plain, **{"X-OpenWebUI-User-Id": "dora"}).get("/api/memory").text
    assert served.client(front, **{"X-Kept-User": "owner"}).get("/api/memory").status_code == 403
    assert served.client(front, **{"X-Kept-User": "dora"}).get("/api/users").status_code == 403


def sign(payload, secret, algorithm="HS256"):
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in
             ({"alg": algorithm, "typ": "JWT"}, payload)]  # fmt: skip
    digest = hmac.new(secret.encode(), ".".join(parts).encode(), hashlib.sha256).digest()
    return ".".join([*parts, base64.urlsafe_b64encode(digest).decode().rstrip("=")])


def test_a_signed_user_counts_without_the_scope(home):
    """As Open WebUI signs its users; a wrong signature is refused."""
    with serve(home, {"KEPT_JWT_SECRET": "s3cret of sixteen"}) as served:
        token, soon = served.token("owner", "read", "write"), time.time() + 300
        good = served.client(token, **{"X-OpenWebUI-User-Jwt": sign({"sub": "dora", "exp": soon}, "s3cret of sixteen")})
        bad = served.client(token, **{"X-OpenWebUI-User-Jwt": sign({"sub": "dora", "exp": soon}, "other")})
        assert good.post("/api/memory/user/entries", json={"text": "Dora likes chess"}).status_code == 201
        assert "chess" not in served.client(token).get("/api/memory").text
        assert bad.get("/api/memory").status_code == 403


@pytest.mark.parametrize(
    "token",
    [
        sign({"sub": "a", "exp": 10}, "k"),
        sign({"sub": "a"}, "k"),
        sign({"sub": "a", "exp": 10_000}, "k", "none"),
        sign({"sub": 3, "exp": 10_000}, "k"),
        sign({"exp": 10_000}, "k"),
        "a.b.c",
        "é.é.é",
        "",
    ],
)
def test_bad_signed_users(token):
    """Expired, without an end, another algorithm, no subject, garbage."""
    assert read_jwt(token, "k", now=1_000.0) is None
    assert read_jwt(sign({"sub": "a", "exp": 1_010}, "k"), "k", now=1_000.0) == "a"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil@127.0.0.1", "127.0.0.1:x", "[::1"])
def test_other_names_of_the_server_are_refused(served, host):
    """A page that points its own name at this machine reaches nothing."""
    assert served.client(Host=host).get("/api/memory").status_code == 421
    assert served.client(Host="localhost:1").get("/api/memory").status_code == 200


def test_pages_of_other_sites_are_refused(served):
    """By Origin, and where a browser sends none, by Sec-Fetch-Site."""
    host = served.url.removeprefix("http://")
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert served.client(**headers).post("/api/memory/undo", json={}).status_code == 403
    assert served.client(Origin=f"http://{host}").get("/api/memory").status_code == 200


def test_another_address_needs_a_token(home):
    """Also on a home without tokens."""
    with serve(home, host="0.0.0.0") as served:
        assert served.client("").get("/api/memory").status_code == 401
        assert served.client("").get("/healthz").status_code == 200


def test_the_documented_headers_are_read():
    """Every header that the guide tells people to configure means something to the server."""
    text = (Path(__file__).parent.parent.parent / "docs" / "gateway.md").read_text()
    configured = {name.lower() for name in re.findall(r"(X-(?:OpenWebUI|LibreChat)-[A-Za-z-]+)", text)}
    known = {*FRONT_END_HEADERS, JWT_HEADER, *SESSION_HEADERS, "x-openwebui-task"}
    assert len(configured) >= 6
    assert configured <= known


# the start-up token


def test_this_machine_needs_the_start_up_token(home):
    """It is the owner's, in a file of mode 0600, and the same after a restart; health stays open."""
    with serve(home) as served:
        secret = tokens.ensure_start_token(served.app).secret
        assert served.client("").get("/api/memory").status_code == 401
        assert "Authorization: Bearer" in served.client("").get("/api/memory").json()["next"]
        assert [served.client("").get(path).status_code for path in sorted(OPEN)] == [200, 200]
        assert served.client(secret).get("/api/tokens").json() == []
        assert served.client("any-key").get("/api/memory").status_code == 401
    assert served.app.home.serve_token.stat().st_mode & 0o777 == 0o600
    with serve(home) as served:
        assert served.client(secret).get("/api/memory").status_code == 200


def test_servers_that_start_at_once_have_one_start_up_token(home):
    """The file holds the token that all of them accept."""
    apps = [open_app(str(home), environ={"HOME": str(home.parent)}) for _ in range(6)]
    with ThreadPoolExecutor(len(apps)) as pool:
        secrets = {known.secret for known in pool.map(tokens.ensure_start_token, apps)}
    for app in apps:
        app.close()
    assert secrets == {apps[0].home.serve_token.read_text().strip()}


def test_a_home_can_do_without_a_token_but_not_behind_a_proxy(home):
    """With the setting off this machine calls freely; what comes through a reverse proxy does not."""
    with serve(home, {"KEPT_SERVE__REQUIRE_TOKEN": "false"}) as served:
        assert served.client("any-key").get("/api/memory").status_code == 200
        assert not served.app.home.serve_token.exists()
        for name in (
            "X-Forwarded-For", "X-Forwarded-Proto", "Forwarded", "Via", "X-Real-IP", "X-Original-Forwarded-For",
            "X-Client-IP", "CF-Connecting-IP", "True-Client-IP", "Fly-Client-IP", "X-Envoy-External-Address", "CDN-Loop",
            "Tailscale-User-Login",
        ):  # fmt: skip
            assert served.client("", **{name: "203.0.113.9"}).get("/api/memory").status_code == 401, name
    with serve(home, {"KEPT_SERVE__REQUIRE_TOKEN": "false", "KEPT_SERVE__HOSTS": '["memory.example"]'}) as served:
        for host in ("memory.example", "localhost"):
            assert served.client("", Host=host).get("/api/memory").status_code == 401
        with pytest.raises(UsageError, match=r"serve\.hosts"):
            refuse_open_address(served.app, "127.0.0.1")


# decisions


def principal(served, headers):
    gate = Gate(served.app, is_loopback=True, hosts=frozenset(), start_token=tokens.ensure_start_token(served.app))
    return gate.identify(headers, allows_cookie=True)


def test_no_token_decides(served):
    """Neither the start-up token, nor one with every scope, nor a page that was signed in with either."""
    secrets = [tokens.ensure_start_token(served.app).secret, served.token(), served.token("ann")]
    for secret in secrets:
        assert Scope.DECIDE not in principal(served, {"authorization": f"Bearer {secret}"}).scopes
        browser = served.client("", Accept="text/html")
        assert browser.post("/sign-in", data={"token": secret}).status_code == 303
        assert Scope.DECIDE not in principal(served, {"cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}).scopes


def test_a_page_of_a_person_decides(served):
    """The link of the terminal signs in once; its cookie is no bearer token, and is not refreshed into one."""
    code = tokens.create_link(served.owner)
    browser = served.client("", Accept="text/html")
    assert browser.get("/sign-in", params={"link": code, "to": "/memory"}).headers["location"] == "/memory"
    assert browser.get("/memory").status_code == 200
    cookie = browser.cookies[COOKIE]
    assert Scope.DECIDE in principal(served, {"cookie": f"{COOKIE}={cookie}"}).scopes
    assert served.client("", Accept="text/html").get("/sign-in", params={"link": code}).status_code == 403
    assert served.client(cookie).get("/api/memory").status_code == 401
    assert served.client("", **{"X-Kept-Token": cookie}).get("/proxy/openai/v1/models").status_code == 401
    assert served.client("").post("/sign-in", data={"token": cookie}).status_code == 403
    assert browser.get("/api/memory").status_code == 401


def test_a_link_expires_and_is_a_decision(served):
    """A caller without the scope makes none, and an old one is refused."""
    with pytest.raises(NotAllowed):
        tokens.create_link(served.app.caller(scopes=TOKEN_SCOPES))
    code = tokens.create_link(served.owner)
    with served.app.database.writing() as unit:
        unit.execute("UPDATE state_meta SET value = '1.0 owner' WHERE key LIKE 'sign_in:%'")
    assert served.client("").get("/sign-in", params={"link": code}).status_code == 403


def test_a_program_cannot_have_the_name_of_browsers(served):
    """The name decides that a token is a cookie."""
    with pytest.raises(UsageError):
        tokens.create_token(served.owner, name=tokens.BROWSER)


# bad tokens


def test_bad_tokens_cost_no_reading_of_the_database(served):
    """A repeated one is looked up once a minute, different ones 30 times; valid ones go on."""
    good = served.token()
    assert served.client(good).get("/api/memory").status_code == 200
    with served.client("") as client:
        told = [
            client.get("/api/memory", headers={"Authorization": f"Bearer kept_{number:08d}_x"}).status_code
            for number in range(200)
        ]
    assert (told[0], told[-1]) == (401, 429)
    assert told.count(401) < FAILURES_PER_MINUTE + 10
    assert served.client(good).get("/api/memory").status_code == 200
    assert served.client().get("/api/memory").status_code == 200
    assert served.client("kept_00000000_x").get("/api/memory").status_code == 401


def test_a_token_in_the_wrong_place_stays_good_in_its_own(served):
    """A browser's is refused as a program's and a program's as a browser's, and neither is signed out by that."""
    program, page = served.token(), served.browser()
    cookie = page.cookies["kept_session"]
    with served.client("", Cookie=f"kept_session={program}") as swapped, served.client(cookie) as other:
        assert swapped.get("/memory").status_code == 401
        assert other.get("/api/memory").status_code == 401
    assert served.client(program).get("/api/memory").status_code == 200
    assert page.get("/memory").status_code == 200


def test_a_short_secret_of_signed_users_is_refused(home):
    """It could be guessed from one signed header."""
    with pytest.raises(ConfigError, match="KEPT_JWT_SECRET"), serve(home, {"KEPT_JWT_SECRET": "short"}):
        pass


@pytest.mark.parametrize("name", ["owner\u200b", "ｏwner", "OWNER", "оwner", "an\u202ena", "ｊｏ"])
def test_a_new_user_cannot_look_like_another(served, name):
    """Invisible and wide characters are refused, and whatever a person would read as the owner."""
    assert served.client().post("/api/users", json={"user_id": name}).status_code == 400
    assert served.client().post("/api/users", json={"user_id": "müller@example.org"}).status_code == 201


def test_the_start_up_token_does_not_speak_for_the_person(served):
    """Every program of the account can read it; a token that the person created is for a program in which they type."""
    for name, client in (("Jule", served.client()), ("Mara", served.client(served.token()))):
        body = {"message": f"Remember that my sister is {name}", "stream": False, "model": "extractive"}
        assert client.post("/api/chat", json=body).status_code == 200

    with served.client() as client:
        question = {"message": "Who is my sister?", "stream": False, "model": "extractive"}
        assert "Mara" in client.post("/api/chat", json=question).text
    entries = "\n".join(text for text in served.owner.space.memory.load().values() if text).split("\n§\n")
    assert [entry for entry in entries if "Mara" in entry and "[unverified" not in entry]
    assert not [entry for entry in entries if "Jule" in entry and "[unverified" not in entry]
