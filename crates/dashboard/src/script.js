// What a page does beyond what a browser does by itself: it stays current, says how long ago things were,
// and copies. Without it everything can still be read and done.
"use strict";

(() => {
  // Times: "3 min ago", "in 12 s".
  const UNITS = [
    [86400, "d"],
    [3600, "h"],
    [60, "min"],
    [1, "s"],
  ];
  const inWords = (seconds) => {
    const size = Math.abs(seconds);
    if (size < 1) return "now";
    const [length, unit] = UNITS.find(([length]) => size >= length) ?? UNITS.at(-1);
    const words = `${Math.floor(size / length)} ${unit}`;
    return seconds < 0 ? `${words} ago` : `in ${words}`;
  };
  const tellTimes = () => {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = Date.parse(time.dateTime);
      // In one piece, whatever the line's end.
      if (!Number.isNaN(at)) time.dataset.relative = inWords((at - now) / 1000).replaceAll(" ", "\u00a0");
    }
  };

  // Copying.
  const showCopying = (within) => {
    for (const button of within.querySelectorAll("button[data-copy]")) button.hidden = false;
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest?.("button[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      say("Copied.");
      button.classList.add("did");
      setTimeout(() => button.classList.remove("did"), 1200);
    } catch {
      say("Copying is not allowed in this browser. Select the text and copy it.");
    }
  });

  // What cannot be undone is asked about first, by the page itself: browsers let no frame of another site ask.
  const ask = (question) =>
    new Promise((answer) => {
      const dialog = document.createElement("dialog");
      dialog.setAttribute("aria-labelledby", "question");
      const form = dialog.appendChild(document.createElement("form"));
      form.method = "dialog";
      const words = form.appendChild(document.createElement("p"));
      words.id = "question";
      words.textContent = question;
      const buttons = form.appendChild(document.createElement("div"));
      buttons.className = "actions";
      for (const [word, kind] of [["Yes", "primary"], ["No", "quiet"]]) {
        const button = buttons.appendChild(document.createElement("button"));
        button.value = word;
        button.className = kind;
        button.textContent = word;
      }
      dialog.addEventListener("close", () => {
        dialog.remove();
        answer(dialog.returnValue === "Yes");
      });
      document.body.append(dialog);
      dialog.showModal();
    });
  const agreed = new WeakSet();
  document.addEventListener("submit", async (event) => {
    const form = event.target;
    const question = event.submitter?.dataset.ask ?? form.dataset.ask;
    if (!question || agreed.delete(form)) return;
    event.preventDefault();
    if (!(await ask(question))) return;
    // The page may have been kept current meanwhile; what was agreed to is what is sent.
    if (!form.isConnected) {
      form.hidden = true;
      document.body.append(form);
    }
    agreed.add(form);
    form.requestSubmit(event.submitter);
  });

  // Whoever writes a policy out means it to count.
  const CHOOSES = { retry_policy: "policy", policy: "preset" };
  document.addEventListener("input", (event) => {
    const written = event.target.closest?.("textarea[name]");
    const choice = written?.form?.elements[CHOOSES[written.name]];
    if (choice?.matches?.("select") && written.value.trim()) choice.selectedIndex = choice.options.length - 1;
  });

  // Previews while typing: the page of the button Preview, of which only the preview is taken.
  const PREVIEW_AFTER_MS = 300;
  let fetching = null;
  let typing = 0;
  const preview = async (form) => {
    fetching?.abort();
    fetching = new AbortController();
    try {
      const body = new URLSearchParams(new FormData(form));
      const response = await fetch(form.dataset.preview, { method: "POST", body, signal: fetching.signal });
      const page = new DOMParser().parseFromString(await response.text(), "text/html");
      const fresh = page.getElementById("preview");
      const shown = document.getElementById("preview");
      if (!fresh || !shown) return;
      shown.replaceChildren(...fresh.childNodes);
      tellTimes();
    } catch {
      // A later input aborted it, or the server is away. The next input tries again.
    }
  };
  document.addEventListener("input", (event) => {
    const form = event.target.closest?.("form[data-preview]");
    if (!form) return;
    clearTimeout(typing);
    typing = setTimeout(() => preview(form), PREVIEW_AFTER_MS);
  });

  // One box that ticks all boxes of its form.
  document.addEventListener("change", (event) => {
    const all = event.target.closest?.("input[data-all]");
    if (!all) return;
    for (const box of all.form.querySelectorAll(`input[name="${all.dataset.all}"]`)) box.checked = all.checked;
  });

  // Staying current.
  const state = document.getElementById("live-state");
  const say = (words) => {
    if (state) state.textContent = words;
  };
  const inUse = (element) => {
    const active = document.activeElement;
    return active && element.contains(active) && active.matches("input, select, textarea");
  };
  const open = (element) => new Set([...element.querySelectorAll("details[id][open]")].map((one) => one.id));
  const waiting = new Map();
  const put = ({ id, print, html }) => {
    const section = document.getElementById(id);
    if (!section || section.dataset.print === print) return;
    // Nobody's typing is taken away; what came meanwhile is put when they are done.
    if (inUse(section)) {
      waiting.set(id, { id, print, html });
      return;
    }
    const ticked = new Set([...section.querySelectorAll("input:checked")].map((box) => box.value));
    const chosen = [...section.querySelectorAll("select[id]")].map((one) => [one.id, one.value]);
    const wasOpen = open(section);
    const active = section.contains(document.activeElement) ? document.activeElement : null;
    const focus = active && (active.id || active.getAttribute("href") || active.form?.getAttribute("action"));
    section.innerHTML = html;
    section.dataset.print = print;
    for (const id of wasOpen) document.getElementById(id)?.setAttribute("open", "");
    for (const box of section.querySelectorAll("input[type=checkbox]")) {
      if (ticked.has(box.value)) box.checked = true;
    }
    for (const [id, value] of chosen) {
      const select = document.getElementById(id);
      if (select && [...select.options].some((option) => option.value === value)) select.value = value;
    }
    if (focus) {
      const again = [...section.querySelectorAll("a, button, summary, input")].find(
        (one) => (one.id || one.getAttribute("href") || one.form?.getAttribute("action")) === focus,
      );
      again?.focus({ preventScroll: true });
    }
    showCopying(section);
    tellTimes();
  };
  document.addEventListener("focusout", () => {
    setTimeout(() => {
      for (const [id, change] of waiting) {
        waiting.delete(id);
        put(change);
      }
    });
  });
  let stream = null;
  const leave = () => {
    stream?.close();
    stream = null;
  };
  const follow = () => {
    if (stream || document.hidden || !document.body.hasAttribute("data-live")) return;
    if (document.body.dataset.live === "ended") return;
    stream = new EventSource(location.href);
    stream.addEventListener("open", () => {
      document.body.dataset.live = "on";
    });
    stream.addEventListener("section", (event) => put(JSON.parse(event.data)));
    stream.addEventListener("ended", () => {
      leave();
      document.body.dataset.live = "ended";
      say("Your session or link has ended. Reload the page to continue.");
    });
    stream.addEventListener("error", () => {
      document.body.dataset.live = "off";
      // A browser tries again by itself after a broken connection, and not after a refusal.
      if (stream?.readyState === EventSource.CLOSED) {
        leave();
        setTimeout(follow, 5000);
      }
    });
  };
  // A page that nobody looks at is not kept current: a browser has few connections, and so have we.
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", follow);

  tellTimes();
  setInterval(tellTimes, 1000);
  showCopying(document);
  follow();
})();
