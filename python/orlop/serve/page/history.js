// The last answers of /stats, and what changed between them.

const longest = 120;  // seconds kept

export class History {
  #rows = [];  // {t: seconds of this page's clock, stats}

  push(t, stats) {
    const last = this.#rows.at(-1);
    if (last && stats.uptime < last.stats.uptime) this.#rows = [];  // another server
    this.#rows.push({ t, stats });
    // One row beyond the span stays: the span's first difference needs it.
    while (this.#rows.length > 2 && this.#rows[1].t < t - longest) this.#rows.shift();
  }

  get last() { return this.#rows.at(-1)?.stats ?? null; }
  get before() { return this.#rows.at(-2)?.stats ?? null; }

  // [{x: 0 to 1 in the last two minutes, y}] of a value of each row, null where nobody looked.
  series(value) {
    const now = this.#rows.at(-1)?.t ?? 0;
    const out = [];
    let from = null;
    for (const row of this.#rows) {
      if (from && row.t - from.t > 5) out.push({ x: 1 + (row.t - 1 - now) / longest, y: null });
      const y = value(row.stats, from && row.t - from.t <= 5 ? from.stats : null);
      if (y !== null) out.push({ x: 1 + (row.t - now) / longest, y });
      from = row;
    }
    return out.filter((p) => p.x >= 0);
  }

  // What to subtract for the last `span` seconds: {stats, seconds}; span 0: since the server's start.
  base(span) {
    const now = this.#rows.at(-1);
    if (!now) return null;
    if (!span) return { stats: null, seconds: now.stats.uptime };
    let first = this.#rows[0];
    for (const row of this.#rows) {
      if (row.t > now.t - span) break;
      first = row;
    }
    if (first === now) return null;
    return { stats: first.stats, seconds: now.stats.uptime - first.stats.uptime };
  }
}
