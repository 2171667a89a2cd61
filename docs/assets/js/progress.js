/* What the reader has marked as read, kept in this browser only, and what `labs` found passed, read from its file.

   localStorage["course.progress"] = {"version": 1, "read": {"2.3": "2026-11-29"}, "passed": {"2.3": 2}}
   read: the day a module was marked; passed: how many of its exercises. */
(() => {
  "use strict";

  const KEY = "course.progress";
  const empty = () => ({ version: 1, read: {}, passed: {} });
  let kept = true; // false where the browser keeps nothing (private windows, some file:// pages): then it lasts as long as the page
  let state = load();

  function load() {
    try {
      const { version, read, passed } = JSON.parse(localStorage.getItem(KEY) ?? "{}") ?? {};
      return version === 1 ? { version, read: { ...read }, passed: { ...passed } } : empty();
    } catch (error) {
      kept = !(error instanceof DOMException);
      return empty();
    }
  }

  function save() {
    try {
      localStorage.setItem(KEY, JSON.stringify(state));
    } catch {
      kept = false;
    }
    draw();
  }

  /** How many exercises passed in each module, from the text of .labs/progress.json. Throws an Error that a person can read. */
  function passedIn(text) {
    let file;
    try {
      file = JSON.parse(text);
    } catch {
      throw new Error("This file is not JSON. `labs` keeps its progress in .labs/progress.json.");
    }
    if (file?.version !== 1 || typeof file.passed !== "object" || file.passed === null) {
      throw new Error("This is not a progress file of `labs`, or one of another version.");
    }
    const passed = {};
    for (const key of Object.keys(file.passed)) {
      const id = moduleOf(key);
      if (id) passed[id] = (passed[id] ?? 0) + 1;
    }
    return passed;
  }

  /** "c2/m03_kv_cache:ContiguousKV" is an exercise of module "2.3", "start/m00_the_map:ridge_point" one of "start". */
  function moduleOf(key) {
    const [, folder, number] = /^([a-z0-9]+)\/m(\d\d)_\w+:\w+$/.exec(key) ?? [];
    const series = /^c(\d+)$/.exec(folder ?? "");
    return series ? `${series[1]}.${Number(number)}` : folder;
  }

  function draw() {
    for (const button of document.querySelectorAll(".mark-read")) {
      const read = button.dataset.module in state.read;
      button.hidden = false;
      button.setAttribute("aria-pressed", String(read));
      button.textContent = read ? "Read" : "Mark as read";
      if (!kept) button.title = "This browser keeps nothing for this page: it lasts until you leave it.";
    }
    for (const item of document.querySelectorAll("li[data-module]")) {
      const id = item.dataset.module;
      item.classList.toggle("is-read", id in state.read);
      mark(item, id in state.read ? "read" : "", state.passed[id] ?? 0);
    }
    document.querySelectorAll(".progress[data-modules]").forEach(bar);
  }

  function mark(item, read, passed) {
    const place = item.querySelector(".module-facts");
    place.querySelector(".module-mark")?.remove();
    const words = [read, passed ? `${passed} ${passed === 1 ? "exercise" : "exercises"} passed` : ""].filter(Boolean);
    if (!words.length) return;
    const note = document.createElement("span");
    note.className = "module-mark";
    note.textContent = words.join(", ");
    place.append(note);
  }

  function bar(place) {
    const modules = place.dataset.modules.split(" ").map((pair) => pair.split(":"));
    const read = modules.filter(([id]) => id in state.read).length;
    const exercises = modules.reduce((sum, [, count]) => sum + Number(count), 0);
    const passed = modules.reduce((sum, [id, count]) => sum + Math.min(Number(count), state.passed[id] ?? 0), 0);
    const words = [`${read} of ${modules.length} read`];
    if (passed) words.push(`${passed} of ${exercises} exercises passed`);
    const track = document.createElement("span");
    track.className = "progress-track";
    track.style.setProperty("--share", `${(100 * read) / modules.length}%`);
    const text = document.createElement("span");
    text.textContent = words.join(", ");
    place.replaceChildren(track, text);
    place.hidden = false;
  }

  for (const button of document.querySelectorAll(".mark-read")) {
    button.addEventListener("click", () => {
      const id = button.dataset.module;
      if (id in state.read) delete state.read[id];
      else state.read[id] = new Date().toISOString().slice(0, 10);
      save();
    });
  }

  const importer = document.querySelector(".progress-import");
  if (importer) {
    const said = importer.querySelector("output");
    importer.hidden = false;
    importer.querySelector("input").addEventListener("change", async (event) => {
      const [file] = event.target.files;
      if (!file) return;
      try {
        state.passed = passedIn(await file.text());
        const sum = Object.values(state.passed).reduce((a, b) => a + b, 0);
        save();
        said.textContent = `${sum} passed ${sum === 1 ? "exercise" : "exercises"} found.`;
      } catch (error) {
        said.textContent = error.message;
      }
      event.target.value = "";
    });
    importer.querySelector("button").addEventListener("click", () => {
      state = empty();
      save();
      said.textContent = "Nothing is marked any more.";
    });
  }

  addEventListener("storage", (event) => {
    if (event.key !== KEY) return;
    state = load();
    draw();
  });
  draw();
})();
