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
  // Times are UTC. On request they are shown in the viewer's zone, which the browser knows.
  const ZONE = "posthaste-zone";
  const remembered = () => {
    try {
      return localStorage.getItem(ZONE);
    } catch {
      // In a frame of another site nothing may be remembered.
      return null;
    }
  };
  let isLocal = remembered() === "local";
  const two = (number, width = 2) => String(number).padStart(width, "0");
  const local = (at, utc) => {
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
    // As exact as the time on the page: hours and minutes, seconds, or milliseconds.
    if (utc.length <= 5) return clock;
    const seconds = `${day} ${clock}:${two(at.getSeconds())}`;
    return utc.includes(".") ? `${seconds}.${two(at.getMilliseconds(), 3)}` : seconds;
  };
  const tellTimes = () => {
    const now = Date.now();
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = Date.parse(time.dateTime);
      if (Number.isNaN(at)) continue;
      // In one piece, whatever the line's end.
      time.dataset.relative = inWords((at - now) / 1000).replaceAll(" ", "\u00a0");
      time.dataset.utc ??= time.textContent;
      const text = isLocal ? local(new Date(at), time.dataset.utc) : time.dataset.utc;
      if (time.textContent !== text) time.textContent = text;
    }
  };
  const zoneButton = document.getElementById("zone");
  const zoneName = document.getElementById("zone-name");
  const tellZone = () => {
    if (!zoneButton || !zoneName) return;
    zoneName.textContent = `Times in ${isLocal ? Intl.DateTimeFormat().resolvedOptions().timeZone : "UTC"}`;
    zoneButton.textContent = isLocal ? "Use UTC" : "Use my time zone";
    zoneButton.hidden = false;
  };
  zoneButton?.addEventListener("click", () => {
    isLocal = !isLocal;
    try {
      localStorage.setItem(ZONE, isLocal ? "local" : "utc");
    } catch {
      // It holds for this page only.
    }
    tellZone();
    tellTimes();
  });

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

  // A policy that is written out is the one to use.
  const CHOOSES = { retry_policy: "policy", policy: "preset" };
  document.addEventListener("input", (event) => {
    const written = event.target.closest?.("textarea[name]");
    const choice = written?.form?.elements[CHOOSES[written.name]];
    if (choice?.matches?.("select") && written.value.trim()) choice.selectedIndex = choice.options.length - 1;
  });

  // Fields that belong to one choice are shown with it: data-when="field:value".
  const showChosen = () => {
    for (const part of document.querySelectorAll("[data-when]")) {
      const [name, value] = part.dataset.when.split(":");
      const choice = part.closest("form")?.elements[name];
      part.hidden = Boolean(choice) && choice.value !== value && !part.querySelector("[aria-invalid=true]");
    }
  };
  document.addEventListener("change", showChosen);
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
  // Lists do not move under the cursor: rows that are there are updated in place, and what would move them waits.
  const keyed = (root) => new Map([...root.querySelectorAll("[data-key]")].map((row) => [row.dataset.key, row]));
  const held = new Map();
  let pointedAt = 0;
  document.addEventListener("pointermove", () => (pointedAt = Date.now()), { passive: true });
  const isPointed = (section) => section.matches(":hover") && Date.now() - pointedAt < 5000;
  const holdsStill = (section) => {
    const list = section.querySelector("[data-list]");
    if (!list) return false;
    return list.dataset.list === "hold" || isPointed(section) || section.querySelector(":focus-visible") !== null;
  };
  const hold = (section, { id, print, html }) => {
    const next = document.createElement("div");
    next.innerHTML = html;
    const [before, after] = [keyed(section), keyed(next)];
    if (before.size === 0 || !holdsStill(section)) return false;
    if ([...before.keys()].join() === [...after.keys()].join()) return false;
    for (const [key, row] of before) {
      const changed = after.get(key);
      const boxes = (of) => [...of.querySelectorAll("input[type=checkbox]")];
      if (!changed || row.contains(document.activeElement)) continue;
      const copy = changed.cloneNode(true);
      boxes(copy).forEach((box, index) => (box.checked = boxes(row)[index]?.checked ?? false));
      row.replaceWith(copy);
    }
    held.set(id, { id, print, html });
    section.dataset.print = print;
    const fresh = [...after.keys()].filter((key) => !before.has(key)).length;
    let news = section.querySelector("button.news");
    if (!news) {
      news = document.createElement("button");
      news.type = "button";
      news.className = "news";
      news.addEventListener("click", () => letGo(id));
      section.querySelector("[data-list]").before(news);
    }
    news.textContent = fresh > 0 ? `${fresh} new – show` : "The list has changed – show";
    showCopying(section);
    tellTimes();
    return true;
  };
  const letGo = (id) => {
    const change = held.get(id);
    const section = document.getElementById(id);
    held.delete(id);
    if (!change || !section) return;
    delete section.dataset.print;
    put(change, true);
  };
  const put = ({ id, print, html }, moves = false) => {
    const section = document.getElementById(id);
    if (!section || section.dataset.print === print) return;
    // A section is not replaced while the visitor types in it; the newest update is put in place afterwards.
    if (inUse(section)) {
      waiting.set(id, { id, print, html });
      return;
    }
    if (!moves && hold(section, { id, print, html })) return;
    held.delete(id);
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
  // What moves rows of a list without a button waits only while the pointer or the focus is there.
  setInterval(() => {
    for (const id of [...held.keys()]) {
      const section = document.getElementById(id);
      if (section && !holdsStill(section)) letGo(id);
    }
  }, 1000);
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
  // A hidden page is not kept current: a browser has few connections, and so has the server.
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", follow);

  // On a narrow screen the navigation scrolls; the current page is in sight.
  for (const current of document.querySelectorAll("nav a[aria-current=page]")) {
    const list = current.closest("ul");
    if (list) list.scrollLeft = current.offsetLeft - list.offsetLeft - list.clientWidth / 3;
  }
  showChosen();
  tellZone();
  tellTimes();
  setInterval(tellTimes, 1000);
  showCopying(document);
  follow();
})();
