// The engine's events, for as long as somebody can see the page.

import { serverEvents } from "./api.js";
import { request } from "./key.js";

const FIRST_RETRY_MS = 1000;
const LONGEST_RETRY_MS = 15000;

// Calls onEvent for each event; the first after every (re)connection is a snapshot. onLost: the stream ended, and will be tried again.
export function listen(onEvent, onLost) {
  let control = null;
  let retry = FIRST_RETRY_MS;
  let timer = 0;

  async function connect() {
    clearTimeout(timer);
    control?.abort();
    if (document.hidden) return;
    const mine = control = new AbortController();
    try {
      const response = await request("engine/events", { signal: mine.signal });
      if (response.status === 401) return; // the page asks for the key, and says when it has one
      if (!response.ok) throw new Error(`the server answered ${response.status}`);
      for await (const data of serverEvents(response.body)) {
        onEvent(JSON.parse(data));
        retry = FIRST_RETRY_MS;
      }
    } catch { /* gone, or an event was missing: begin again with a snapshot */ }
    mine.abort();
    if (mine !== control || document.hidden) return; // another connection has taken its place, or nobody looks
    onLost();
    timer = setTimeout(connect, retry);
    retry = Math.min(2 * retry, LONGEST_RETRY_MS);
  }

  document.addEventListener("visibilitychange", connect);
  document.addEventListener("minillm:key", connect);
  connect();
}
