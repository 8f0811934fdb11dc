// What the engine does, out of /stats (fields: ../stats.py).

import { fill, grid, histogram, list, set, spark, stack } from "./charts.js";
import { History } from "./history.js";

const by_id = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const none = "–";

const rate = (v) => (v === null ? none : v > 0 && v < 10 ? v.toFixed(1) : whole.format(v));
const percent = (share) =>
  (share > 0 && share < 0.01 ? "< 1 %" : share > 0.99 && share < 1 ? "> 99 %" : `${Math.round(share * 100)} %`);
const plural = (n, word) => `${whole.format(n)} ${word}${n === 1 ? "" : "s"}`;

export function seconds(v) {
  if (v === null || v === undefined || !Number.isFinite(v)) return none;
  if (v === 0) return "0 ms";
  if (v < 0.001) return `${Math.round(v * 1e6)} µs`;
  if (v < 1) return `${(v * 1000).toFixed(v < 0.01 ? 1 : 0)} ms`;
  if (v < 90) return `${v.toFixed(v < 10 ? 1 : 0)} s`;
  return v < 5400 ? `${Math.round(v / 60)} min` : `${(v / 3600).toFixed(1)} h`;
}

function bytes(v) {
  if (!v) return none;
  const units = ["B", "kB", "MB", "GB", "TB"];
  const i = Math.min(units.length - 1, Math.floor(Math.log10(v) / 3));
  const n = v / 1000 ** i;
  return `${n < 10 && i ? n.toFixed(1) : Math.round(n)} ${units[i]}`;
}

// Tokens a second between two answers of /stats; null: not known.
const per_second = (key) => (now, before) => {
  if (!now.stats || !before?.stats) return null;
  const time = now.uptime - before.uptime;
  return time > 0 ? Math.max(0, now.stats[key] - before.stats[key]) / time : null;
};
const generated = per_second("generated_tokens");
const prompts = per_second("prompt_tokens");

export class Dashboard {
  #history = new History();
  #span = 60;

  constructor() {
    const group = document.querySelectorAll("[data-span]");
    for (const button of group)
      button.addEventListener("click", () => {
        this.#span = Number(button.dataset.span);
        for (const b of group) b.setAttribute("aria-pressed", String(b === button));
        this.draw();
      });
  }

  notice(text) {
    by_id("engine-notice").hidden = !text;
    set(by_id("engine-notice"), text);
  }

  push(stats) {
    this.#history.push(performance.now() / 1000, stats);
    this.draw();
  }

  draw() {
    const now = this.#history.last;
    if (!now?.stats) return;
    by_id("cards").hidden = false;
    this.base = this.#history.base(this.#span);
    this.#rates(now);
    this.#requests(now);
    this.#pages(now);
    this.#hits(now);
    this.#steps(now);
    this.#latency("ttft", now.latency?.ttft, this.base?.stats?.latency?.ttft, "request", "requests");
    this.#latency("itl", now.latency?.inter_token, this.base?.stats?.latency?.inter_token, "gap", "gaps");
    this.#facts(now);
  }

  // How much a counter of `stats` grew in the span; null: not known yet.
  #grew(key) {
    if (!this.base) return null;
    const now = this.#history.last.stats[key];
    return now - (this.base.stats?.stats?.[key] ?? 0);
  }
  get #when() {
    if (!this.#span) return "since the start";
    return !this.base || this.base.seconds > 55 ? "in the last minute" : `in the last ${Math.max(1, Math.round(this.base.seconds))} s`;
  }

  #rates(now) {
    for (const [name, value, key, what] of [["out", generated, "generated_tokens", "Generated"], ["in", prompts, "prompt_tokens", "Prompt"]]) {
      const points = this.#history.series(value);
      const current = this.#history.before ? value(now, this.#history.before) : null;
      const most = Math.max(0, ...points.map((p) => p.y ?? 0));
      set(by_id(`${name}-rate`), rate(current));
      spark(by_id(`${name}-spark`), [{ points, name: name === "out" ? "shared" : "used" }],
            `${what} tokens per second, last two minutes: now ${rate(current)}, at most ${rate(most)}`);
      const grew = this.#grew(key);
      set(by_id(`${name}-note`), grew === null ? "" : `${short.format(grew)} ${this.#when}`);
    }
  }

  #requests(now) {
    const s = now.stats;
    set(by_id("running"), whole.format(s.requests_running));
    set(by_id("waiting"), whole.format(s.requests_waiting));
    set(by_id("paused"), whole.format(s.requests_paused));
    set(by_id("finished"), short.format(s.requests_finished));
    const running = this.#history.series((r) => r.stats?.requests_running ?? null);
    const waiting = this.#history.series((r) => r.stats?.requests_waiting ?? null);
    spark(by_id("req-spark"), [{ points: waiting, name: "cached" }, { points: running, name: "shared" }],
          `Requests, last two minutes: ${s.requests_running} run, ${s.requests_waiting} wait`);
    const r = now.requests ?? {};
    const words = [];
    if (r.cancelled) words.push(`${whole.format(r.cancelled)} cancelled`);
    if (r.failed) words.push(`${whole.format(r.failed)} failed`);
    if (r.rejected) words.push(`${whole.format(r.rejected)} refused, the queue was full`);
    if (s.preemptions) words.push(`${plural(s.preemptions, "preemption")}`);
    set(by_id("req-note"), words.join(", "));
    const max = now.engine?.max_running;
    by_id("running").title = max ? `at most ${whole.format(max)}` : "";
    this.#live(now);
  }

  // Each live request's pages: those that it found in the prefix cache, and its own.
  #live(now) {
    const most_rows = 8;
    const page = now.engine?.block_size ?? 16;
    const live = now.live ?? [];
    const rows = live.slice(0, most_rows).map((r) => {
      const tokens = r.prompt_tokens + r.generated_tokens;
      return { r, pages: Math.ceil(tokens / page), found: Math.floor(r.cached_tokens / page) };
    });
    const most = Math.max(1, ...rows.map((row) => row.pages));
    const place = by_id("live");
    rows.forEach(({ r, pages, found }, i) => {
      let node = place.children[i];
      if (!node) {
        node = document.createElement("li");
        const strip = document.createElement("div");
        strip.className = "strip";
        strip.setAttribute("aria-hidden", "true");
        node.append(document.createElement("span"), strip);
        place.append(node);
      }
      const many = r.samples > 1 ? `, ${r.samples} samples` : "";
      set(node.firstChild, r.state === "waiting" ? `waits for ${seconds(r.age)}${many}`
        : `${plural(pages, "page")}${found ? `, ${whole.format(found)} from the cache` : ""}, ${seconds(r.age)}${many}`);
      stack(node.lastChild, [{ name: "cached", share: found / most }, { name: "used", share: Math.max(0, pages - found) / most },
                             { name: "rest", share: 1 - Math.max(pages, found) / most }]);
    });
    while (place.children.length > rows.length) place.lastElementChild.remove();
    const more = live.length - rows.length + (now.live_more ?? 0);
    set(by_id("live-note"), more > 0 ? `and ${whole.format(more)} more` : "");
    by_id("live-part").hidden = !rows.length;
  }

  #pages(now) {
    const s = now.stats;
    const page = now.engine?.block_size;
    const cells = Math.ceil(s.pages_total / Math.min(s.pages_total, 320));
    const shared = s.pages_shared ?? 0;
    const rows = [["shared", "In use, shared", shared], ["used", "In use, alone", s.pages_used - shared],
                  ["cached", "Cached", s.pages_cached], ["free", "Free", s.pages_free]];
    grid(by_id("pages"), s.pages_total, rows.slice(0, 3).map(([name, , pages]) => ({ name, pages })),
         `${plural(s.pages_total, "KV page")}: ${rows.map(([, term, n]) => `${whole.format(n)} ${term.toLowerCase()}`).join(", ")}`);
    list(by_id("pages-legend"), rows.map(([name, term, n]) => ({ name, term, value: whole.format(n) })));
    set(by_id("pages-note"), `${plural(s.pages_total, "page")}${page ? ` of ${page} tokens` : ""}${cells > 1 ? `, about ${cells} a square` : ""}`);
    by_id("tier").hidden = !s.host_pages_total;
    if (s.host_pages_total) {
      fill(by_id("tier-fill"), s.host_pages_used / s.host_pages_total);
      set(by_id("tier-note"), `In host memory: ${whole.format(s.host_pages_used)} of ${plural(s.host_pages_total, "page")}, ${short.format(s.host_pages_in)} came back`);
    }
  }

  #hits(now) {
    const looked = this.#grew("prefix_lookup_tokens");
    const found = this.#grew("prefix_hit_tokens");
    const share = looked > 0 ? found / looked : null;
    set(by_id("hit-rate"), share === null ? none : percent(share));
    fill(by_id("hit-fill"), share ?? 0);
    set(by_id("hit-note"), now.engine?.prefix_cache === false ? "The prefix cache is off."
      : share === null ? `No prompt ${this.#when}` : `${short.format(found)} of ${short.format(looked)} prompt tokens ${this.#when}`);
  }

  #steps() {
    const steps = this.#grew("steps");
    const time = this.#grew("step_seconds");
    set(by_id("step-time"), steps > 0 ? seconds(time / steps) : none);
    const tokens = this.#grew("generated_tokens");
    set(by_id("step-note"), steps > 0
      ? `${plural(steps, "step")}, ${(tokens / steps).toFixed(1)} tokens out of each` : `No step ${this.#when}`);
    const parts = ["plan", "forward", "sample", "commit"].map((name) => ({ name, time: Math.max(0, this.#grew(`${name}_seconds`) ?? 0) }));
    const other = Math.max(0, (time ?? 0) - parts.reduce((sum, p) => sum + p.time, 0));
    if (time > 0 && other / time >= 0.005) parts.push({ name: "other", time: other });
    stack(by_id("split-stack"), parts.map(({ name, time: t }) => ({ name, share: time > 0 ? t / time : 0 })));
    list(by_id("split-legend"), parts.map(({ name, time: t }) => ({
      name, term: name, value: steps > 0 && time > 0 ? `${percent(t / time)}, ${seconds(t / steps)}` : none })));
  }

  #latency(id, now, before, one, many) {
    if (!now) return;
    const { le, counts: all } = now.histogram;
    const counts = all.map((n, i) => Math.max(0, n - (this.#span ? before?.histogram.counts[i] ?? (this.base ? 0 : n) : 0)));
    const total = counts.reduce((sum, n) => sum + n, 0);
    const quantiles = [0.5, 0.9, 0.99].map((q) => (this.#span ? within(le, counts, total, q) : now[`p${q * 100}`]));
    list(by_id(`${id}-quantiles`), ["Median", "90 %", "99 %"].map((term, i) => ({ term, value: total ? seconds(quantiles[i]) : none })));
    histogram(by_id(`${id}-bars`), counts.map((count, i) => ({
      count,
      label: [0.001, 0.01, 0.1, 1, 10].includes(le[i]) ? seconds(le[i]).replace(".0", "") : "",
      words: le[i] === null ? `over ${seconds(le[i - 1])}` : `${i ? seconds(le[i - 1]) : "0"} to ${seconds(le[i])}`,
    })), total ? `${total} ${total === 1 ? one : many} ${this.#when}: median ${seconds(quantiles[0])}, 99 % within ${seconds(quantiles[2])}`
               : `No ${one} ${this.#when}`);
    set(by_id(`${id}-note`), total
      ? `${short.format(total)} ${total === 1 ? one : many} ${this.#when}${this.#span ? "" : "; quantiles of the latest 1,000"}`
      : `No ${one} ${this.#when}`);
  }

  #facts(now) {
    const e = now.engine ?? {};
    const rows = [
      ["Architecture", [e.arch, e.layers && `${e.layers} layers`, e.dim && `width ${whole.format(e.dim)}`].filter(Boolean).join(", ")],
      ["Weights", [e.quant === "none" ? "as stored" : e.quant, bytes(e.weight_bytes)].filter(Boolean).join(", ")],
      ["Computes in", e.compute],
      ["Device", [e.device, e.threads && plural(e.threads, "thread")].filter(Boolean).join(", ")],
      ["Kernels", e.kernels],
      ["KV cache", [e.kv_dtype, bytes(e.kv_bytes)].filter(Boolean).join(", ")],
      ["Context", e.context && `${whole.format(e.context)} tokens`],
      ["At once", e.max_running && plural(e.max_running, "request")],
      ["Up for", seconds(now.uptime)],
      ["Version", now.version],
    ];
    list(by_id("facts"), rows.filter(([, value]) => value).map(([term, value]) => ({ term, value: String(value) })));
  }
}

// A quantile out of a histogram, on a straight line within its bucket.
function within(le, counts, total, q) {
  if (!total) return null;
  let left = q * total;
  for (let i = 0; i < counts.length; ++i) {
    if (left <= counts[i] && counts[i]) {
      const from = i ? le[i - 1] : 0;
      return le[i] === null ? from : from + (le[i] - from) * (left / counts[i]);
    }
    left -= counts[i];
  }
  return le.at(-2);
}
