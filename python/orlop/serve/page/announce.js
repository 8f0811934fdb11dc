// What a screen reader hears of a streamed answer: sentences when they are complete, not tokens.

const least_gap = 1200;  // milliseconds; faster would cut words off
const most_kept = 12;

export class Announcer {
  #text = "";
  #last = 0;
  #fenced = false;

  constructor(region) { this.region = region; }

  push(piece) {
    this.#text += piece;
    if (performance.now() - this.#last < least_gap) return;
    const end = last_end(this.#text);
    if (end <= 0) return;
    this.#speak(this.#text.slice(0, end));
    this.#text = this.#text.slice(end);
  }

  // The rest of the answer, then how it ended.
  end(words) {
    this.#speak(this.#text);
    this.forget();
    if (words) this.say(words);
  }

  forget() {
    this.#text = "";
    this.#fenced = false;
  }

  say(words) {
    const line = document.createElement("p");
    line.textContent = words;
    this.region.append(line);
    while (this.region.childElementCount > most_kept) this.region.firstElementChild.remove();
  }

  #speak(text) {
    const out = [];
    for (const line of text.split("\n")) {  // code is named, not read
      if (/^\s*(```|~~~)/.test(line)) {
        this.#fenced = !this.#fenced;
        if (this.#fenced) out.push("Code.");
      } else if (!this.#fenced) {
        out.push(line.replace(/^\s*(#{1,6}|>|[-*+])\s+/, "").replace(/[*`]/g, "").trim());
      }
    }
    const words = out.filter(Boolean).join(" ");
    if (!words) return;
    this.#last = performance.now();
    this.say(words);
  }
}

// Where the last complete sentence or line ends.
function last_end(text) {
  for (let i = text.length - 1; i > 0; --i) {
    if (text[i] === "\n") return i + 1;
    if (/\s/.test(text[i]) && /[.!?:;…。！？]/.test(text[i - 1])) return i + 1;
    if (/[。！？]/.test(text[i])) return i + 1;
  }
  return 0;
}
