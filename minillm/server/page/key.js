// The API key, where the server wants one: asked for once, kept for this tab, sent with every request.

import { $ } from "./dom.js";

const STORE = "minillm.key";
let key = null;
try {
  key = sessionStorage.getItem(STORE);
} catch { /* no storage here: the key lasts as long as the page */ }

// fetch(), with the key. A 401 brings up the question for it.
export async function request(path, options = {}) {
  const headers = { ...options.headers, ...(key && { authorization: `Bearer ${key}` }) };
  const response = await fetch(path, { ...options, headers });
  if (response.status === 401) $("key-bar").hidden = false;
  return response;
}

$("key-bar").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim() || null;
  $("key").value = "";
  $("key-bar").hidden = true;
  try {
    sessionStorage.setItem(STORE, key ?? "");
  } catch { /* as above */ }
  document.dispatchEvent(new Event("minillm:key"));
});
