// The conversation: sends it, streams the answer in, stops it, keeps it for this tab.

import { Renderer } from "./render.js";
import { Announcer } from "./announce.js";
import { store } from "./settings.js";
import { ApiError, call, events, to_error } from "./stream.js";

const by_id = (id) => document.getElementById(id);
const count = new Intl.NumberFormat("en");

const make = (name, class_name = "", text = "") => {
  const node = document.createElement(name);
  if (class_name) node.className = class_name;
  if (text) node.textContent = text;
  return node;
};
const button = (text, label, act) => {
  const node = make("button", "link", text);
  node.type = "button";
  if (label) node.setAttribute("aria-label", label);
  node.addEventListener("click", act);
  return node;
};

export class Chat {
  #turns = [];
  #running = null;  // AbortController of the answer that comes in
  #cleared = null;
  #follow = true;  // the log stays at its end
  #stats = {};

  constructor(settings) {
    this.settings = settings;
    this.log = by_id("log");
    this.prompt = by_id("prompt");
    this.announcer = new Announcer(by_id("announcer"));

    by_id("composer").addEventListener("submit", (e) => {
      e.preventDefault();
      this.submit();
    });
    this.prompt.addEventListener("keydown", (e) => {
      // An Enter that ends a word of an input method is not ours.
      if (e.key !== "Enter" || e.shiftKey || e.ctrlKey || e.altKey || e.metaKey || e.isComposing || e.keyCode === 229) return;
      e.preventDefault();
      this.submit();
    });
    this.prompt.addEventListener("input", () => this.#fit());
    document.addEventListener("keydown", (e) => {
      if (e.key === "Escape" && this.#running && !this.settings.dialog.open) this.stop();
    });
    by_id("stop").addEventListener("click", () => this.stop());
    by_id("reset").addEventListener("click", () => this.reset());
    by_id("undo").addEventListener("click", () => this.#undo());
    by_id("starters").addEventListener("click", (e) => {
      if (!e.target.matches("button")) return;
      this.prompt.value = e.target.textContent;
      this.submit();
    });
    this.log.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.log.addEventListener("click", (e) => {
      if (e.target.dataset?.copy !== "code") return;
      copy(e.target, e.target.closest("figure").querySelector("code").textContent);
    });
    by_id("latest").addEventListener("click", () => {
      this.#follow = true;
      this.#to_end();
      this.prompt.focus();
    });
    this.#restore();
  }

  told(stats) {
    this.#stats = stats;
    by_id("empty-note").textContent = stats.engine?.chat === false
      ? "This model has no chat template: it continues what you write."
      : "Answers come from the model on this server, and go nowhere else.";
    this.#show_context();
  }

  get busy() { return this.#running !== null; }

  submit() {
    const text = this.prompt.value;
    if (this.#running) {
      this.announcer.say("The answer is still coming. Escape stops it.");
      return;
    }
    if (!text.trim()) {
      this.prompt.focus();
      return;
    }
    const wrong = this.settings.problem();
    if (wrong) {
      this.settings.open("A setting is not right yet.", wrong);
      return;
    }
    this.prompt.value = "";
    this.#fit();
    this.#add({ role: "user", content: text });
    this.#answer();
  }

  stop() { this.#running?.abort(); }

  reset() {
    this.stop();
    if (this.#turns.length) this.#cleared = this.#turns;
    this.#turns = [];
    by_id("turns").replaceChildren();
    this.#changed();
    this.announcer.forget();
    this.announcer.say("The conversation is empty.");
    this.prompt.focus();
  }

  #undo() {
    for (const turn of this.#cleared ?? []) this.#add(turn);
    this.#cleared = null;
    this.#changed();
    this.#to_end();
    this.prompt.focus();
  }

  // ---- a request ----

  #messages() {
    const out = this.settings.system ? [{ role: "system", content: this.settings.system }] : [];
    // An exchange that failed before its first word is not part of the conversation.
    this.#turns.forEach(({ role, content, failed }, i) => {
      const answer = role === "user" ? this.#turns[i + 1] : null;
      if ((failed && !content) || (answer?.failed && !answer.content)) return;
      out.push({ role, content });
    });
    return out;
  }

  async #answer() {
    const body = this.settings.body();
    let path = "v1/chat/completions";
    if (this.#stats.engine?.chat === false) {
      path = "v1/completions";
      body.prompt = this.#turns.map((t) => t.content).join("");
    } else {
      body.messages = this.#messages();
    }
    const turn = this.#add({ role: "assistant", content: "" });
    const view = turn.view;
    const running = new AbortController();
    this.#running = running;
    this.#follow = true;
    this.#busy(true);
    view.begin();
    this.#to_end();
    try {
      const response = await call(path, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(body),
        signal: running.signal,
      });
      let over = false;
      for await (const data of events(response)) {
        if (data === "[DONE]") {
          over = true;
          break;
        }
        over = this.#take(turn, parse(data)) || over;
      }
      if (!over) throw new ApiError("The stream broke off before the answer was complete.", 0);
    } catch (error) {
      if (running.signal.aborted) turn.finish = "stopped";
      else this.#failed(turn, error);
    }
    view.end();
    if (this.#running === running) {
      this.#running = null;
      this.#busy(false);
    }
    if (this.#turns.includes(turn)) {
      this.#end_words(turn);
      this.#changed();
      if (this.#follow) this.#to_end();
    }
  }

  // One chunk of the stream; true if it says why the answer ended.
  #take(turn, chunk) {
    if (chunk.error) throw to_error(chunk.error, Number(chunk.error.code) || 0);
    if (chunk.usage) turn.usage = chunk.usage;
    const choice = chunk.choices?.[0];
    if (!choice) return false;
    const delta = choice.delta ?? {};
    const thought = delta.reasoning_content ?? delta.reasoning;
    if (thought) {
      if (!turn.reasoning) this.announcer.say("Reasoning.");
      turn.reasoning = (turn.reasoning ?? "") + thought;
      turn.view.think(thought);
    }
    const text = delta.content ?? choice.text;
    if (text) {
      turn.content += text;
      turn.view.write(text);
      this.announcer.push(text);
    }
    if (choice.finish_reason) turn.finish = choice.finish_reason;
    return Boolean(choice.finish_reason);
  }

  #failed(turn, error) {
    const known = error instanceof ApiError;
    turn.failed = known ? error.message : "Something in this page went wrong.";
    if (!known) console.error(error);
    turn.unauthorized = known && error.status === 401;
  }

  #end_words(turn) {
    if (turn.failed) {
      const actions = turn.unauthorized
        ? [button("Enter the key", "", () => this.settings.open("", "s-key"))] : [];
      actions.push(button("Try again", "", () => this.#again(turn)));
      turn.view.fail(turn.failed, actions);
      this.announcer.end("");
      return;
    }
    turn.view.close(words_on(turn));
    this.announcer.end(turn.finish === "stopped" ? "Stopped." : turn.finish === "length" ? "Cut off." : "End of the answer.");
  }

  #again(turn) {
    if (this.#running) return;
    const at = this.#turns.indexOf(turn);
    if (at < 0) return;
    for (const old of this.#turns.splice(at)) old.view.node.remove();
    this.#answer();
    this.prompt.focus();
  }

  // ---- the view ----

  #add(turn) {
    const view = new TurnView(turn, {
      drawn: () => this.#follow && this.#to_end(),
      again: () => this.#again(turn),
    });
    turn.view = view;
    this.#turns.push(turn);
    by_id("turns").append(view.node);
    by_id("empty").hidden = true;
    if (turn.role === "assistant" && (turn.content || turn.failed)) turn.failed ? this.#end_words(turn) : view.close(words_on(turn));
    return turn;
  }

  #busy(on) {
    const had_focus = document.activeElement;
    by_id("send").hidden = on;
    by_id("stop").hidden = !on;
    const lost = had_focus === by_id("send") || had_focus === by_id("stop") || had_focus === document.body || had_focus?.closest("#empty");
    // On a touch screen the focus would bring the keyboard up.
    if (lost) (matchMedia("(pointer: coarse)").matches ? (on ? by_id("stop") : by_id("send")) : this.prompt).focus();
  }

  #changed() {
    by_id("empty").hidden = this.#turns.length > 0;
    by_id("undo-line").hidden = !this.#cleared;
    if (this.#turns.length) this.#cleared = null;
    const kept = this.#turns.map(({ role, content, reasoning, finish, usage, times, failed }) =>
      ({ role, content, reasoning, finish, usage, times, failed }));
    const text = JSON.stringify(kept);
    store.set("orlop.chat", kept.length && text.length < 2_000_000 ? text : "");
    this.#turns.forEach((turn, i) => turn.view.last(i === this.#turns.length - 1));
    this.#show_context();
  }

  #restore() {
    try {
      for (const turn of JSON.parse(store.get("orlop.chat")) ?? [])
        if (typeof turn.content === "string") this.#add(turn);
    } catch { /* not ours: start anew */ }
    this.#changed();
    this.#to_end();
  }

  #show_context() {
    const total = this.#turns.at(-1)?.usage?.total_tokens;
    const room = this.#stats.engine?.context;
    by_id("context-use").textContent =
      total ? `${count.format(total)}${room ? ` of ${count.format(room)}` : ""} tokens of context` : "";
  }

  #fit() {
    if (CSS.supports("field-sizing", "content")) return;
    this.prompt.style.height = "auto";
    this.prompt.style.height = `${this.prompt.scrollHeight + 2}px`;
  }

  // On a short screen it is the page that scrolls, not the log.
  get #scroller() {
    return getComputedStyle(this.log).overflowY === "visible" ? document.scrollingElement : this.log;
  }

  #scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this.#scroller;
    if (!clientHeight) return;  // the other view is shown
    this.#follow = scrollHeight - scrollTop - clientHeight < 40;
    by_id("latest").hidden = this.#follow;
  }

  #to_end() {
    this.#scroller.scrollTop = this.#scroller.scrollHeight;
    by_id("latest").hidden = true;
  }

  // The view is shown again.
  shown() {
    if (this.#follow) this.#to_end();
  }
}

function words_on(turn) {
  const words = [];
  const { usage, times } = turn;
  if (turn.finish === "stopped") words.push("stopped");
  if (turn.finish === "length") words.push("cut off at the most tokens allowed");
  if (usage?.completion_tokens) words.push(`${count.format(usage.completion_tokens)} tokens`);
  if (usage?.completion_tokens > 1 && times?.last > times?.first)
    words.push(`${((usage.completion_tokens - 1) / (times.last - times.first) * 1000).toFixed(1)} tokens/s`);
  if (times?.first) words.push(`first after ${duration(times.first)}`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (cached) words.push(`${count.format(cached)} of ${count.format(usage.prompt_tokens)} prompt tokens from the cache`);
  return words.join(" · ");
}

function parse(data) {
  try {
    return JSON.parse(data);
  } catch {
    throw new ApiError("The server sent something that this page does not understand.", 0);
  }
}

const duration = (ms) => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`);

// One turn's nodes. times: milliseconds from the request to the first and the last text.
class TurnView {
  #text = null;
  #thoughts = null;
  #due = 0;
  #cost = 0;
  #drawn_at = 0;
  #asked_at = 0;

  constructor(turn, hooks) {
    this.turn = turn;
    this.hooks = hooks;
    const mine = turn.role === "user";
    this.node = make("li", `turn ${mine ? "mine" : "theirs"}`);
    this.node.append(make("h2", "sr", mine ? "You" : "Answer"));
    this.body = make("div", "text");
    this.body.dir = "auto";
    if (mine) {
      this.body.textContent = turn.content;
      this.node.append(this.body);
      return;
    }
    this.reasoning = make("details", "reasoning");
    this.summary = make("summary", "", "Reasoning");
    this.thoughts = make("div", "thoughts");
    this.thoughts.dir = "auto";
    this.reasoning.append(this.summary, this.thoughts);
    this.reasoning.hidden = !turn.reasoning;
    this.foot = make("div", "foot");
    this.node.append(this.reasoning, this.body, this.foot);
    this.#text = new Renderer(this.body);
    this.#thoughts = document.createTextNode(turn.reasoning ?? "");
    this.thoughts.append(this.#thoughts);
    if (turn.content) this.#text.push(turn.content);
    this.#text.draw();
  }

  begin() {
    this.#asked_at = performance.now();
    this.node.classList.add("coming");
    this.node.setAttribute("aria-busy", "true");
  }

  #mark() {
    const now = performance.now() - this.#asked_at;
    this.turn.times = { first: this.turn.times?.first ?? now, last: now };
  }

  think(text) {
    this.#mark();
    this.reasoning.hidden = false;
    this.summary.textContent = "Reasoning …";
    this.#thoughts.appendData(text);
    this.#soon();
  }

  write(text) {
    this.#mark();
    if (this.turn.reasoning && this.summary.textContent !== "Reasoning") this.summary.textContent = "Reasoning";
    this.#text.push(text);
    this.#soon();
  }

  // Long texts cost more to draw: never more than a quarter of the time.
  #soon() {
    if (this.#due) return;
    const frame = (now) => {
      if (now - this.#drawn_at < 3 * this.#cost) {
        this.#due = requestAnimationFrame(frame);
        return;
      }
      this.#due = 0;
      this.#draw();
    };
    this.#due = requestAnimationFrame(frame);
  }

  #draw() {
    const start = performance.now();
    this.#text.draw();
    this.hooks.drawn();
    this.#drawn_at = performance.now();
    this.#cost = this.#drawn_at - start;
  }

  end() {
    cancelAnimationFrame(this.#due);
    this.#due = 0;
    this.#draw();
    this.summary.textContent = "Reasoning";
    this.node.classList.remove("coming");
    this.node.removeAttribute("aria-busy");
  }

  close(words) {
    const tools = make("span", "tools");
    tools.append(button("Copy", "Copy the answer", (e) => copy(e.currentTarget, this.turn.content)));
    this.retry = button("Again", "Answer again", this.hooks.again);
    tools.append(this.retry);
    this.foot.replaceChildren(tools);
    if (words) this.foot.append(make("span", "soft", words));
    if (!this.turn.content && !this.turn.reasoning)
      this.body.append(make("p", "soft", this.turn.finish === "stopped" ? "Stopped before the first word." : "The answer is empty."));
  }

  fail(words, actions) {
    const alert = make("p", "alert", words);
    alert.setAttribute("role", "alert");
    const tools = make("span", "tools");
    tools.append(...actions);
    this.retry = tools;
    this.foot.replaceChildren(alert, tools);
  }

  // Only the last answer can be asked for again.
  last(is) {
    if (this.retry) this.retry.hidden = !is;
  }
}

async function copy(from, text) {
  let done = true;
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // no clipboard without TLS, but for this machine: the older way
    const area = make("textarea", "sr");
    area.value = text;
    document.body.append(area);
    area.select();
    done = document.execCommand("copy");
    area.remove();
    from.focus();
  }
  const before = from.dataset.before ?? from.textContent;
  from.dataset.before = before;
  from.textContent = done ? "Copied" : "Not copied";
  setTimeout(() => { from.textContent = before; }, 1500);
}
