// The live page: joins the chat, the settings and the dashboard, and asks /stats once a second.

import { Chat } from "./chat.js";
import { Dashboard } from "./dashboard.js";
import { Settings } from "./settings.js";
import { ApiError, call } from "./stream.js";

const by_id = (id) => document.getElementById(id);

const settings = new Settings((what) => {
  if (what === "key") poll_now();
});
const chat = new Chat(settings);
const dashboard = new Dashboard();

// ---- state of the server ----

const states = { ready: "ready", loading: "loading", draining: "shutting down", failed: "failed to load" };

function show_state(state, words) {
  const node = by_id("state");
  if (node.dataset.state === state && by_id("state-text").textContent === words) return;
  node.dataset.state = state;
  by_id("state-text").textContent = words;
}

function told(stats) {
  let words = states[stats.state] ?? stats.state;
  const { done, total } = stats.progress ?? {};
  if (stats.state === "loading" && total) words = `loading ${Math.floor((done / total) * 10) * 10} %`;
  show_state(stats.state, words);
  dashboard.notice(stats.state === "failed" ? stats.error ?? "The model could not be loaded."
    : stats.state === "loading" ? "The model is being loaded." : "");
  if (stats.model) {
    by_id("model-name").textContent = stats.model;
    document.title = `orlop · ${stats.model}`;
  }
  settings.told(stats);
  chat.told(stats);
  dashboard.push(stats);
}

// ---- /stats, while anyone looks ----

const every = 1000;  // milliseconds
const at_most = 10_000;  // after failures
let timer = 0;
let failures = 0;
let paused = false;
let asking = false;

const watched = () => document.visibilityState === "visible" && !paused;

function poll_now() {
  failures = 0;
  clearTimeout(timer);
  if (!asking) poll();
}

async function poll() {
  if (!watched()) return;
  asking = true;
  const start = performance.now();
  const limit = new AbortController();
  const late = setTimeout(() => limit.abort(), 5000);
  try {
    const response = await call("stats", { signal: limit.signal });
    told(await response.json());
    failures = 0;
  } catch (error) {
    ++failures;
    failed(error);
  }
  clearTimeout(late);
  asking = false;
  const wait = failures ? Math.min(at_most, every * 2 ** failures) : every;
  clearTimeout(timer);
  if (watched()) timer = setTimeout(poll, Math.max(100, wait - (performance.now() - start)));
}

function failed(error) {
  if (error instanceof ApiError && error.status === 401) {
    show_state("locked", "needs an API key");
    dashboard.notice("The server asks for an API key: it goes into the settings.");
  } else if (error instanceof ApiError && error.status > 0) {
    show_state("lost", `status ${error.status}`);
    dashboard.notice(error.message);
  } else if (error instanceof ApiError || error.name === "AbortError") {
    show_state("lost", "no connection");
    dashboard.notice("The server does not answer; these are the last numbers that it gave.");
  } else {
    console.error(error);
    dashboard.notice("The server's numbers could not be read.");
  }
}

document.addEventListener("visibilitychange", () => watched() && poll_now());
by_id("pause").addEventListener("click", () => {
  paused = !paused;
  by_id("pause").setAttribute("aria-pressed", String(paused));
  if (!paused) poll_now();
});

// ---- on a narrow screen: the chat or the engine ----

const views = document.querySelectorAll("[data-show]");
for (const button of views)
  button.addEventListener("click", () => {
    document.body.dataset.view = button.dataset.show;
    for (const b of views) b.setAttribute("aria-pressed", String(b === button));
    if (button.dataset.show === "chat") chat.shown();
  });

poll();
if (matchMedia("(pointer: fine)").matches) by_id("prompt").focus();
