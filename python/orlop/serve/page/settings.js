// What a request says beside its messages. Kept for this tab alone, the API key too.

import { set_key } from "./stream.js";

const by_id = (id) => document.getElementById(id);
const numbers = { temperature: "Temperature", top_p: "Top p", top_k: "Top k", min_p: "Min p", max_tokens: "Max tokens", seed: "Seed" };
const sources = {
  json_schema: ["Schema", "A JSON Schema.",
    '{\n  "type": "object",\n  "properties": {\n    "title": {"type": "string"},\n    "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3}\n  },\n  "required": ["title", "tags"]\n}'],
  regex: ["Regular expression", "The whole answer matches it.", "(yes|no), because [a-z ,]+\\."],
  choice: ["Choices", "One on each line.", "yes\nno\nperhaps"],
  grammar: ["Grammar", "In GBNF; the answer is a root.", 'root ::= "The answer is " number "."\nnumber ::= [0-9]+'],
};
const initial = { model: "", system: "", temperature: "", top_p: "", top_k: "", min_p: "", max_tokens: "1024", seed: "", guide: "", sources: {} };

const calmer = { temperature: 0.7, top_p: 0.95 };

const store = {
  get(name) {
    try { return sessionStorage.getItem(name); } catch { return null; }
  },
  set(name, value) {
    try { value ? sessionStorage.setItem(name, value) : sessionStorage.removeItem(name); } catch { /* private mode: for this page only */ }
  },
};
export { store };

export class Settings {
  #values = { ...initial };
  #opener = null;
  #calmer = {};

  // changed(what): after any change; what: "key" or "values"
  constructor(changed) {
    this.changed = changed;
    this.dialog = by_id("settings");
    this.form = by_id("settings-form");
    try {
      const kept = JSON.parse(store.get("orlop.settings"));
      for (const name of Object.keys(initial))
        if (typeof kept?.[name] === typeof initial[name] && kept[name]) this.#values[name] = kept[name];
    } catch { /* not ours: start anew */ }
    by_id("s-key").value = store.get("orlop.key") ?? "";
    set_key(by_id("s-key").value);
    this.#show();

    this.form.addEventListener("input", (e) => this.#take(e.target));
    by_id("s-key").addEventListener("change", () => this.#take_key());
    by_id("open-settings").addEventListener("click", () => this.open());
    by_id("defaults").addEventListener("click", () => {
      this.#values = { ...initial, model: this.#values.model, sources: {} };
      this.#show();
      this.#keep();
    });
    this.dialog.addEventListener("click", (e) => {  // beside the form: the dialog's own backdrop
      if (e.target === this.dialog) this.dialog.close();
    });
    this.dialog.addEventListener("close", () => {
      this.#take_key();
      by_id("settings-alert").hidden = true;
      this.#opener?.focus();
    });
  }

  get api_key() { return by_id("s-key").value; }

  // alert: why it opens; field: the id of what to fill in
  open(alert = "", field = "") {
    this.#opener = document.activeElement;
    by_id("settings-alert").textContent = alert;
    by_id("settings-alert").hidden = !alert;
    this.dialog.showModal();
    if (field) by_id(field).focus();
  }

  // What the server told: names of models, what requests get that say nothing, whether guides are allowed.
  told(stats) {
    const names = stats.models ?? [];
    const select = by_id("s-model");
    if (names.join("\n") !== [...select.options].map((o) => o.value).join("\n")) {
      select.replaceChildren(...names.map((name) => new Option(name, name)));
      by_id("model-field").hidden = names.length < 2;
      if (names.includes(this.#values.model)) select.value = this.#values.model;
      else this.#values.model = "";
    }
    this.fallback_model = stats.model ?? "";
    const sampling = stats.engine?.sampling ?? {};
    // A model that states nothing is drawn from as it is, which makes small ones ramble.
    this.#calmer = sampling.temperature === 1 && sampling.top_p === 1 && !sampling.top_k && !sampling.min_p ? calmer : {};
    for (const name of ["temperature", "top_p", "top_k", "min_p"]) {
      const value = this.#calmer[name] ?? sampling[name];
      by_id(`s-${name}`).placeholder = value == null ? "" : String(Math.round(value * 1e4) / 1e4);
    }
    by_id("s-max_tokens").placeholder = "Until the context is full";
    const guided = stats.engine?.guided !== false;
    by_id("s-guide").disabled = !guided;
    by_id("s-guide").title = guided ? "" : "The server was started without guided decoding.";
  }

  // The fields that were not understood; the first one's id, or "".
  problem() {
    for (const name of Object.keys(numbers)) if (!this.#check(name)) return `s-${name}`;
    return this.#check_source() ? "" : "s-source";
  }

  get system() { return this.#values.system.trim() ? this.#values.system : ""; }

  // The request's fields, but for the messages.
  body() {
    const v = this.#values;
    const out = { stream: true, stream_options: { include_usage: true }, ...this.#calmer };
    const model = v.model || this.fallback_model;
    if (model) out.model = model;
    for (const name of Object.keys(numbers)) if (v[name] !== "") out[name] = Number(v[name]);
    const source = this.#source();
    if (v.guide === "json_object") out.response_format = { type: "json_object" };
    else if (v.guide === "json_schema")
      out.response_format = { type: "json_schema", json_schema: { name: "answer", schema: JSON.parse(source), strict: true } };
    else if (v.guide === "regex") out.guided_regex = source;
    else if (v.guide === "grammar") out.guided_grammar = source;
    else if (v.guide === "choice") out.guided_choice = lines_of(source);
    return out;
  }

  // A few words on what differs from the defaults.
  summary() {
    const v = this.#values;
    const words = [];
    if (this.system) words.push("system prompt");
    for (const name of Object.keys(numbers))
      if (v[name] !== initial[name]) words.push(`${numbers[name].toLowerCase()} ${v[name] || "unset"}`);
    if (v.guide) words.push(v.guide === "json_object" ? "JSON" : (sources[v.guide][0]).toLowerCase());
    return words.join(", ");
  }

  #take(field) {
    if (field.id === "s-key") return;
    if (field.id === "s-source") this.#values.sources = { ...this.#values.sources, [this.#values.guide]: field.value };
    // A number that the browser cannot read shows up as an empty value: that is not the default.
    else if (field.name in initial) this.#values[field.name] = field.validity.badInput ? "?" : field.value;
    if (field.name === "guide") this.#show_source();
    if (field.name in numbers) this.#check(field.name);
    if (field.id === "s-source" || field.name === "guide") this.#check_source();
    this.#keep();
  }

  #take_key() {
    const key = by_id("s-key").value.trim();
    if (key === (store.get("orlop.key") ?? "")) return;
    store.set("orlop.key", key);
    set_key(key);
    this.changed("key");
  }

  #keep() {
    store.set("orlop.settings", JSON.stringify(this.#values));
    by_id("active-settings").textContent = this.summary();
    this.changed("values");
  }

  #show() {
    for (const name of Object.keys(initial)) {
      const field = by_id(`s-${name}`);
      if (field && name !== "model") field.value = this.#values[name];
    }
    this.#show_source();
    for (const name of Object.keys(numbers)) this.#check(name);
    by_id("active-settings").textContent = this.summary();
  }

  #show_source() {
    const [label, hint, example] = sources[this.#values.guide] ?? [];
    by_id("source-field").hidden = !label;
    if (!label) return;
    by_id("source-label").textContent = label;
    by_id("source-hint").textContent = hint;
    by_id("s-source").placeholder = example;
    by_id("s-source").value = this.#values.sources[this.#values.guide] ?? "";
    this.#check_source();
  }

  // An empty source takes the example that stands in the field.
  #source() {
    const guide = this.#values.guide;
    return this.#values.sources[guide] || sources[guide]?.[2] || "";
  }

  #check(name) {
    const field = by_id(`s-${name}`);
    const v = field.validity;
    let words = "";
    if (v.badInput || v.stepMismatch) words = field.step === "1" ? "A whole number, please." : "A number, please.";
    else if (v.rangeUnderflow) words = `At least ${field.min}.`;
    else if (v.rangeOverflow) words = `At most ${field.max}.`;
    return told(field, by_id(`e-${name}`), words);
  }

  #check_source() {
    let words = "";
    if (this.#values.guide === "json_schema") {
      try {
        JSON.parse(this.#source());
      } catch (error) {
        words = `Not JSON: ${error.message}`;
      }
    }
    return told(by_id("s-source"), by_id("e-source"), words);
  }
}

const lines_of = (text) => text.split("\n").map((l) => l.trimEnd()).filter((l) => l);

function told(field, place, words) {
  place.textContent = words;
  place.hidden = !words;
  words ? field.setAttribute("aria-invalid", "true") : field.removeAttribute("aria-invalid");
  return !words;
}
