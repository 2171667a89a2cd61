// The header: which model, how busy the engine is, and whether the server is there at all.

import { $, element, number } from "./dom.js";
import { request } from "./key.js";

const HEALTH_EVERY_MS = 5000;

function showEngine(state, text) {
  $("engine").dataset.state = state;
  if ($("engine-text").textContent !== text) $("engine-text").textContent = text;
}

export async function checkHealth() {
  try {
    const response = await fetch("health");
    const health = await response.json();
    if (!response.ok) showEngine("gone", health.status === "dead" ? "engine stopped: restart the server" : "server is shutting down");
    else showEngine("ok", `${health.running} running, ${health.waiting} waiting`);
    if (response.ok && !$("model").textContent) await showModel();
    if (response.ok) showOwnParts(health.own_parts);
  } catch {
    showEngine("gone", "server not reachable");
  }
}

// They cannot change while a server runs, but the server may be another one by now.
function showOwnParts(names) {
  const text = names.map((name) => `yours: ${name}`);
  if ($("own-parts").textContent === text.join("")) return;
  $("own-parts").replaceChildren(...text.map((words) => element("li", "", words)));
  $("own-parts").hidden = !names.length;
}

async function showModel() {
  const response = await request("v1/models");
  if (!response.ok) return; // it wants a key first
  const { data } = await response.json();
  $("model").textContent = data[0].id;
  document.title = `${data[0].id} · minillm`;
  $("context").textContent = `Prompt and answer together: at most ${number(data[0].max_model_len)} tokens.`;
}

document.addEventListener("minillm:key", checkHealth);
document.addEventListener("visibilitychange", () => { if (!document.hidden) checkHealth(); });
setInterval(() => { if (!document.hidden) checkHealth(); }, HEALTH_EVERY_MS);
checkHealth();
