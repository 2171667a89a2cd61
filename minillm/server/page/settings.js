// Temperature and longest answer, kept in this browser.

import { $, number } from "./dom.js";

export function samplingFields() {
  const fields = { temperature: Number($("temperature").value) };
  const limit = Math.floor(Number($("max-tokens").value));
  if (limit > 0) fields.max_tokens = limit;
  return fields;
}

function restoreSettings() {
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem("minillm.settings")) ?? {};
  } catch { /* no storage here, or not ours: the defaults will do */ }
  $("temperature").value = kept.temperature ?? 0.7;
  $("max-tokens").value = kept.maxTokens ?? 512;
  $("temperature-value").textContent = number(Number($("temperature").value), 1);
}

function keepSettings() {
  $("temperature-value").textContent = number(Number($("temperature").value), 1);
  try {
    localStorage.setItem("minillm.settings", JSON.stringify({ temperature: $("temperature").value, maxTokens: $("max-tokens").value }));
  } catch { /* they last as long as the page, then */ }
}

$("settings").addEventListener("input", keepSettings);
restoreSettings();
