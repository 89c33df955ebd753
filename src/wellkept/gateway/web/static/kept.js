// Keys, toasts, drafts and live news. Every page works without this file; it only makes them quicker to use.
(() => {
  "use strict";
  const UNDO_SECONDS = 10;
  const CHORD_MILLISECONDS = 1200;
  const RETRY_MILLISECONDS = 2000;
  let chordUntil = 0;

  // what was typed survives a dead server and a closed tab
  const drafts = {
    read: (field) => { try { return sessionStorage.getItem("draft:" + field.dataset.draft); } catch { return null; } },
    write: (field) => { try { sessionStorage.setItem("draft:" + field.dataset.draft, field.value); } catch { /* full or forbidden */ } },
    drop: (field) => { try { sessionStorage.removeItem("draft:" + field.dataset.draft); } catch { /* forbidden */ } },
  };

  function prepare(root) {
    for (const field of root.querySelectorAll("[data-draft]")) {
      const kept = drafts.read(field);
      if (kept && !field.value) field.value = kept;
    }
    for (const button of root.querySelectorAll("[data-close]")) button.hidden = false;
    for (const button of root.querySelectorAll(".no-script")) button.hidden = true;
    if (root.querySelector("#log .message") && !location.hash) window.scrollTo(0, document.documentElement.scrollHeight);
    const toast = document.querySelector("[data-toast]:not(.bad)");
    if (toast) setTimeout(() => toast.remove(), UNDO_SECONDS * 1000);
  }

  // items of lists, for j and k
  const items = () => [...document.querySelectorAll("main [data-item]")].filter((one) => one.offsetParent);
  const current = () => document.activeElement?.closest?.("[data-item]");

  function move(step) {
    const all = items();
    if (!all.length) return;
    const place = all.indexOf(current());
    const next = all[Math.max(0, Math.min(all.length - 1, place < 0 ? (step > 0 ? 0 : all.length - 1) : place + step))];
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  }

  function press(key) {
    const inside = current()?.querySelector(`[data-key="${key}"]`);
    const found = inside || document.querySelector(`#toasts [data-key="${key}"]`);
    if (!found) return false;
    found.click();
    const box = found.closest("details")?.querySelector("textarea");
    if (box && found.tagName === "SUMMARY") setTimeout(() => { box.focus(); box.setSelectionRange(box.value.length, box.value.length); }, 0);
    return true;
  }

  function go(key) {
    const found = [...document.querySelectorAll("[data-go]")].find((one) => one.dataset.go === key);
    if (found) location.assign(found.href);
    return Boolean(found);
  }

  const isTyping = (target) => target.closest?.("input:not([type=checkbox]):not([type=range]), textarea, select, [contenteditable]");

  function onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape" && isTyping(event.target)) { event.target.blur(); return; }
    if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
    const key = event.key;
    let used = true;
    if (Date.now() < chordUntil) { chordUntil = 0; used = go(key); }
    else if (key === "g") chordUntil = Date.now() + CHORD_MILLISECONDS;
    else if (key === "/") document.getElementById("find")?.focus();
    else if (key === "?") document.getElementById("keys")?.showModal();
    else if (key === "j" || key === "k") move(key === "j" ? 1 : -1);
    else if (key === "t" && document.body.dataset.here === "memory") used = go("t");
    else if (key === "[" || (key === "ArrowLeft" && document.querySelector("[data-steps]"))) document.querySelector("a[rel=prev]")?.click();
    else if (key === "]" || (key === "ArrowRight" && document.querySelector("[data-steps]"))) document.querySelector("a[rel=next]")?.click();
    else if (key === "Enter" && event.target === current()) (current().querySelector("[data-open]") || current().querySelector("a"))?.click();
    else used = "yeumxoc".includes(key) && key.length === 1 && press(key);
    if (used) event.preventDefault();
  }

  // tell the person that the server does not answer, and try again
  let lost = null;
  function tellLost() {
    if (lost) return;
    lost = document.createElement("div");
    lost.className = "lost";
    lost.setAttribute("role", "alert");
    lost.textContent = "kept does not answer. What you typed stays here; trying again…";
    document.body.append(lost);
    const again = setInterval(async () => {
      try {
        if (!(await fetch("/healthz", { cache: "no-store" })).ok) return;
      } catch { return; }
      clearInterval(again);
      lost?.remove();
      lost = null;
      listen();
    }, RETRY_MILLISECONDS);
  }

  // news of other processes: a count and a button, never a page that moves by itself
  let source = null;
  let pulse = null;
  function listen() {
    source?.close();
    source = null;
    if (document.hidden || !document.querySelector("[data-waiting]")) return;
    source = new EventSource("/live");
    source.addEventListener("pulse", (event) => {
      const now = JSON.parse(event.data);
      for (const badge of document.querySelectorAll("[data-waiting]")) badge.textContent = now.waiting || "";
      if (pulse && JSON.stringify(now) !== JSON.stringify(pulse)) announce();
      pulse = now;
    });
    source.onerror = () => { if (source?.readyState !== EventSource.OPEN) { source?.close(); source = null; tellLost(); } };
  }

  function announce() {
    if (!["home", "memory", "receipts", "sessions"].includes(document.body.dataset.here) || document.querySelector(".news")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "news";
    button.textContent = "Something new: show it";
    button.addEventListener("click", () => location.reload());
    document.getElementById("toasts").append(button);
  }

  document.addEventListener("keydown", onKey);
  document.addEventListener("visibilitychange", listen);
  document.addEventListener("click", (event) => event.target.closest?.("[data-close]")?.closest("[data-toast]").remove());
  document.addEventListener("input", (event) => { if (event.target.dataset?.draft) drafts.write(event.target); });
  document.addEventListener("change", (event) => {
    if (event.target.matches?.("[data-submit-on-change]")) event.target.form.requestSubmit();
  });
  document.addEventListener("htmx:error", tellLost);
  document.addEventListener("htmx:after:request", (event) => {
    const { sourceElement, response } = event.detail.ctx || {};
    if (sourceElement?.tagName === "FORM" && response && response.status < 400) {
      for (const field of sourceElement.querySelectorAll("[data-draft]")) drafts.drop(field);
      pulse = null;
    }
  });
  document.addEventListener("htmx:after:swap", () => prepare(document));
  document.addEventListener("DOMContentLoaded", () => { prepare(document); listen(); });
  window.addEventListener("pagehide", () => source?.close());
})();

// the chat: the form is sent as a stream, and a page without this script sends it as a form
(() => {
  "use strict";
  const speakers = { user: "You", assistant: "Agent", tool: "Tool" };

  function add(log, role, text) {
    log.querySelector("[data-hint]")?.remove();
    const box = document.createElement("article");
    box.className = "message " + role;
    const who = document.createElement("span");
    who.className = "who";
    who.textContent = speakers[role];
    const said = document.createElement("p");
    said.className = "said";
    said.textContent = text;
    box.append(who, said);
    log.append(box);
    return box;
  }

  // the composer is sticky and so always in view: the page itself is scrolled, unless the person reads further up
  const NEAR_END_PIXELS = 80;
  const isAtEnd = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - NEAR_END_PIXELS;
  const goToEnd = () => window.scrollTo(0, document.documentElement.scrollHeight);

  async function* readEvents(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      let end;
      while ((end = rest.indexOf("\n\n")) >= 0) {
        const lines = rest.slice(0, end).split("\n");
        rest = rest.slice(end + 2);
        const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
        const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
        if (name && data) yield [name, JSON.parse(data)];
      }
    }
  }

  const handlers = {
    session: (state, data) => { state.key = data.key; state.form.elements.session.value = data.session_id; history.replaceState(null, "", "/chat?session=" + encodeURIComponent(data.session_id)); },
    text: (state, data) => { state.box ||= add(state.log, "assistant", ""); state.box.querySelector(".said").textContent += data.text; },
    tool_started: (state, data) => { const call = document.createElement("div"); call.className = "call"; call.textContent = data.name + " " + data.arguments; state.log.append(call); state.box = null; },
    warning: (state, data) => { const note = document.createElement("p"); note.className = "notice warn"; note.textContent = data.message; state.log.append(note); },
    done: (state, data) => {
      state.box ||= add(state.log, "assistant", "");
      if (data.text) state.box.querySelector(".said").textContent = data.text;
      state.box.insertAdjacentHTML("beforeend", data.html);
      window.htmx?.process(state.box);
    },
    error: (state, data) => { const note = document.createElement("p"); note.className = "notice bad"; note.textContent = data.error + ". " + data.next; state.log.append(note); },
  };

  async function send(form) {
    const log = document.getElementById("log");
    const field = form.elements.message;
    const text = field.value.trim();
    if (!text || form.dataset.busy) return;
    const body = new URLSearchParams(new FormData(form));
    const status = form.querySelector("[data-state]");
    const stop = form.querySelector("[data-interrupt]");
    const state = { form, log, box: null, key: "" };
    form.dataset.busy = "1";
    status.textContent = "Thinking…";
    stop.hidden = false;
    stop.onclick = () => fetch(form.dataset.stop, { method: "POST", body: new URLSearchParams({ form_token: form.elements.form_token.value, key: state.key }) });
    const own = add(log, "user", text);
    goToEnd();
    try {
      const response = await fetch(form.dataset.stream, { method: "POST", body });
      if (!response.ok) throw new Error(String(response.status));
      field.value = "";
      field.dispatchEvent(new Event("input", { bubbles: true }));
      for await (const [name, data] of readEvents(response)) {
        const follows = isAtEnd();
        handlers[name]?.(state, data);
        if (follows) goToEnd();
      }
      status.textContent = "";
    } catch {
      own.remove();
      status.textContent = "The message was not sent. It is still here: try again.";
      document.dispatchEvent(new Event("htmx:error"));
    }
    delete form.dataset.busy;
    stop.hidden = true;
    field.focus();
  }

  document.addEventListener("submit", (event) => {
    if (event.target.id !== "composer") return;
    event.preventDefault();
    send(event.target);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.target.id !== "message") return;
    event.preventDefault();
    event.target.form.requestSubmit();
  });
})();
