// Text of a model as nodes. The text is anybody's: only elements named here are made, words go in
// as text nodes, and a link leads to http, https or mail. It is a small Markdown: paragraphs,
// headings, lists, quotes, tables, rules, fenced code; bold, italic, struck, code and links.
// Time is linear in the text but for nesting, which is bounded.

const max_depth = 8;

const make = (name, class_name = "") => {
  const node = document.createElement(name);
  if (class_name) node.className = class_name;
  return node;
};

// Renders a growing text: blocks that are over stay as they are, the last one is made anew.
export class Renderer {
  constructor(root) {
    this.root = root;
    this.text = "";
    this.settled = 0;  // text before this is in nodes that stay
    this.tail = null;
  }
  push(piece) { this.text += piece; }
  draw() {
    const blocks = split(this.text.slice(this.settled));
    if (!blocks.length) return;
    const last = blocks.pop();
    let tail = this.tail;
    for (const block of blocks) {
      tail = this.#place(tail, block);
      tail = null;
    }
    this.tail = this.#place(tail, last);
    this.settled += last.start;
  }
  // A code block that grows keeps its node, and so the selection and focus in it.
  #place(old, block) {
    if (old?.code && block.kind === "code" && block.lang === old.lang) {
      const text = block.lines.join("\n");
      if (old.code.data.length <= text.length && text.startsWith(old.code.data))
        old.code.appendData(text.slice(old.code.data.length));
      else
        old.code.data = text;
      return old;
    }
    const built = build(block, 0);
    if (old) old.node.replaceWith(built.node);
    else this.root.append(built.node);
    return built;
  }
}

// ---- blocks ----

const indent_of = (line) => {
  let n = 0;
  for (const c of line) {
    if (c === " ") n += 1;
    else if (c === "\t") n += 4 - (n % 4);
    else break;
  }
  return n;
};
const blank = (line) => line.trim() === "";
const fence_of = (line) => {
  const m = /^ {0,3}(`{3,}|~{3,})([^`]*)$/.exec(line);
  return m && { mark: m[1], lang: m[2].trim().split(/\s/, 1)[0] };
};
const heading_of = (line) => /^ {0,3}(#{1,6})[ \t]+(\S.*)$/.exec(line);
// Hashes may close a heading, too.
const without_closing = (words) => {
  const text = words.trimEnd();
  let end = text.length;
  while (text[end - 1] === "#") --end;
  return end < text.length && (end === 0 || text[end - 1] === " ") ? text.slice(0, end).trimEnd() : text;
};
const is_rule = (line) => {
  const marks = line.replace(/[ \t]/g, "");
  return marks.length >= 3 && "-*_".includes(marks[0]) && indent_of(line) < 4
    && marks === marks[0].repeat(marks.length);
};
const is_quote = (line) => /^ {0,3}>/.test(line);
const item_of = (line) => {
  const m = /^([ \t]*)([-*+•]|(\d{1,9})[.)])([ \t]+|$)/.exec(line);
  if (!m || is_rule(line)) return null;
  return { indent: indent_of(m[1]), ordered: m[3] !== undefined, number: Number(m[3] ?? 0),
           skip: m[0].length, width: indent_of(m[1]) + m[2].length + 1 };
};
const is_delimiters = (line) => line.includes("-") && line.includes("|") && /^[ \t|:-]+$/.test(line);
const begins_block = (line) => fence_of(line) || heading_of(line) || is_rule(line) || is_quote(line)
  || item_of(line);

// [{kind, start, lines, ...}]; start: offset of the block's first line.
function split(text) {
  const lines = text.split("\n");
  const starts = [];
  let at = 0;
  for (const line of lines) {
    starts.push(at);
    at += line.length + 1;
  }
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (blank(lines[i])) {
      ++i;
      continue;
    }
    const block = take(lines, i);
    block.start = starts[i];
    i = block.end;
    blocks.push(block);
  }
  return blocks;
}

function take(lines, i) {
  const line = lines[i];
  const fence = fence_of(line);
  if (fence) {
    const closes = (l) => {
      const t = l.trim();
      return t.length >= fence.mark.length && indent_of(l) < 4 && t === fence.mark[0].repeat(t.length);
    };
    let end = i + 1;
    while (end < lines.length && !closes(lines[end])) ++end;
    return { kind: "code", lang: fence.lang, lines: lines.slice(i + 1, end), end: Math.min(end + 1, lines.length) };
  }
  const heading = heading_of(line);
  if (heading)
    return { kind: "heading", level: heading[1].length, lines: [without_closing(heading[2])], end: i + 1 };
  if (is_rule(line)) return { kind: "rule", lines: [], end: i + 1 };
  if (is_quote(line)) {
    let end = i;
    while (end < lines.length && is_quote(lines[end])) ++end;
    return { kind: "quote", lines: lines.slice(i, end).map((l) => l.replace(/^ {0,3}> ?/, "")), end };
  }
  if (item_of(line)) return take_list(lines, i);
  if (line.includes("|") && i + 1 < lines.length && is_delimiters(lines[i + 1])) {
    let end = i + 2;
    while (end < lines.length && lines[end].includes("|")) ++end;
    return { kind: "table", lines: lines.slice(i, end), end };
  }
  let end = i + 1;
  while (end < lines.length && !blank(lines[end]) && !begins_block(lines[end])) {
    if (lines[end].includes("|") && end + 1 < lines.length && is_delimiters(lines[end + 1])) break;
    ++end;
  }
  return { kind: "paragraph", lines: lines.slice(i, end), end };
}

function take_list(lines, i) {
  const first = item_of(lines[i]);
  const items = [];
  let width = first.width;
  let gap = false;
  let end = i;
  let fence = null;  // inside an item's fenced code, lines are its own whatever they look like
  for (let at = i; at < lines.length; ++at) {
    const line = lines[at];
    if (blank(line)) {
      gap = true;
      items.at(-1).push("");
      continue;
    }
    const item = fence ? null : item_of(line);
    if (item && item.indent < width - 1 && (items.length === 0 || item.indent + 1 >= first.indent)) {
      if (item.ordered !== first.ordered) break;
      items.push([line.slice(item.skip)]);
      width = item.width;
    } else if (indent_of(line) > first.indent + 1 || fence) {
      items.at(-1).push(outdent(line, width));
    } else if (!gap && !begins_block(line)) {
      items.at(-1).push(line.trim());
    } else {
      break;
    }
    const mark = fence_of(items.at(-1).at(-1));
    if (mark) fence = !fence ? mark.mark : mark.mark.startsWith(fence) && !mark.lang ? null : fence;
    gap = false;
    end = at + 1;
  }
  return { kind: "list", ordered: first.ordered, number: first.number, items, lines: [], end };
}

function outdent(line, width) {
  let n = 0;
  let i = 0;
  for (; i < line.length && n < width; ++i) {
    if (line[i] === " ") n += 1;
    else if (line[i] === "\t") n += 4;
    else break;
  }
  return line.slice(i);
}

function build(block, depth) {
  switch (block.kind) {
    case "code": return build_code(block);
    case "heading": {
      const node = make(`h${Math.min(block.level + 2, 6)}`);
      inline(node, block.lines[0]);
      return { node };
    }
    case "rule": return { node: make("hr") };
    case "quote": {
      const node = make("blockquote");
      fill(node, block.lines, depth + 1);
      return { node };
    }
    case "list": {
      const node = make(block.ordered ? "ol" : "ul");
      if (block.ordered && block.number !== 1) node.start = block.number;
      for (const lines of block.items) {
        const item = make("li");
        fill(item, lines, depth + 1);
        node.append(item);
      }
      return { node };
    }
    case "table": return build_table(block);
    default: {
      const node = make("p");
      inline(node, block.lines.join("\n"));
      return { node };
    }
  }
}

// The blocks of a quote or a list's item; an only paragraph goes without <p>.
function fill(node, lines, depth) {
  const text = lines.join("\n").trimEnd();
  if (depth > max_depth) {
    node.append(text);
    return;
  }
  const blocks = split(text);
  blocks.forEach((block, i) => {
    if (block.kind === "paragraph" && i === 0 && node.localName === "li") inline(node, block.lines.join("\n"));
    else node.append(build(block, depth).node);
  });
}

function build_code(block) {
  const node = make("figure", "code");
  const bar = make("figcaption");
  const lang = make("span");
  lang.textContent = block.lang || "code";
  const copy = make("button", "link");
  copy.type = "button";
  copy.textContent = "Copy";
  copy.dataset.copy = "code";
  copy.setAttribute("aria-label", `Copy the ${block.lang ? block.lang + " " : ""}code`);
  bar.append(lang, copy);
  const pre = make("pre");
  pre.tabIndex = 0;
  const code = make("code");
  const text = document.createTextNode(block.lines.join("\n"));
  code.append(text);
  pre.append(code);
  node.append(bar, pre);
  return { node, code: text, lang: block.lang };
}

function build_table(block) {
  const cells = (line) => {
    const parts = line.trim().replace(/^\|/, "").replace(/\|$/, "").split("|");
    return parts.slice(0, 50).map((p) => p.trim());
  };
  const node = make("div", "table");
  node.tabIndex = 0;
  const table = make("table");
  const sides = cells(block.lines[1]).map((d) => (d.endsWith(":") ? (d.startsWith(":") ? "center" : "right") : ""));
  const row = (line, name) => {
    const tr = make("tr");
    cells(line).forEach((text, i) => {
      const cell = make(name, sides[i] ?? "");
      if (name === "th") cell.scope = "col";
      inline(cell, text);
      tr.append(cell);
    });
    return tr;
  };
  const head = make("thead");
  head.append(row(block.lines[0], "th"));
  const body = make("tbody");
  for (const line of block.lines.slice(2)) body.append(row(line, "td"));
  table.append(head, body);
  node.append(table);
  return { node };
}

// ---- words ----

const marks = [["**", "strong"], ["__", "strong"], ["~~", "del"], ["*", "em"], ["_", "em"]];
const is_space = (c) => c === undefined || c === "" || /\s/.test(c);
const is_word = (c) => c !== undefined && /[\p{L}\p{N}]/u.test(c);

function inline(parent, text, depth = 0) {
  const none = new Set();  // closers that do not come any more
  let plain = "";
  const flush = () => {
    if (plain) parent.append(plain);
    plain = "";
  };
  for (let i = 0; i < text.length;) {
    const c = text[i];
    let taken = null;
    if (c === "\n") taken = { node: make("br"), end: i + 1 };
    else if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
      continue;
    } else if (c === "`") taken = code_at(text, i, none);
    else if (c === "[") taken = link_at(text, i, none, depth);
    else if (c === "h" && /^https?:\/\/[^\s<>]/.test(text.slice(i, i + 9)) && !is_word(text[i - 1]))
      taken = url_at(text, i);
    else if ((c === "*" || c === "_" || c === "~") && depth < max_depth) taken = mark_at(text, i, none, depth);
    if (taken?.node) {
      flush();
      parent.append(taken.node);
      i = taken.end;
    } else {
      const end = taken ? taken.end : i + 1;
      plain += text.slice(i, end);
      i = end;
    }
  }
  flush();
}

function code_at(text, i, none) {
  let n = 1;
  while (text[i + n] === "`") ++n;
  if (none.has("`" + n)) return { end: i + n };
  for (let at = i + n; (at = text.indexOf("`", at)) >= 0;) {
    let m = 1;
    while (text[at + m] === "`") ++m;
    if (m === n) {
      const node = make("code");
      const inside = text.slice(i + n, at).replace(/\n/g, " ");
      node.textContent = /^ .* $/.test(inside) && inside.trim() ? inside.slice(1, -1) : inside;
      return { node, end: at + n };
    }
    at += m;
  }
  none.add("`" + n);
  return { end: i + n };
}

function mark_at(text, i, none, depth) {
  let n = 1;
  while (text[i + n] === text[i]) ++n;
  if (n > 3) return { end: i + n };  // a line of stars is no mark
  for (const [mark, name] of marks) {
    if (!text.startsWith(mark, i)) continue;
    if (none.has(mark) || is_space(text[i + mark.length])) continue;
    if (mark[0] === "_" && is_word(text[i - 1])) continue;
    for (let at = i + mark.length + 1; (at = text.indexOf(mark, at)) >= 0; at += mark.length) {
      if (is_space(text[at - 1])) continue;
      if (mark[0] === "_" && is_word(text[at + mark.length])) continue;
      if (mark.length === 1 && text[at + 1] === mark) {  // half of a double one
        ++at;
        continue;
      }
      if (mark.length === 2 && text[at + 2] === mark[0] && text[at + 3] !== mark[0]) ++at;  // ***both***
      const node = make(name);
      inline(node, text.slice(i + mark.length, at), depth + 1);
      return { node, end: at + mark.length };
    }
    none.add(mark);
  }
  return { end: i + n };
}

function link_at(text, i, none, depth) {
  if (none.has("]") || depth > 1) return null;
  const middle = text.indexOf("](", i + 1);
  if (middle < 0) {
    none.add("]");
    return null;
  }
  const end = text.indexOf(")", middle + 2);
  if (end < 0) {
    none.add("]");
    return null;
  }
  if (middle - i > 500 || end - middle > 2000 || text.slice(i + 1, middle).includes("\n")) return null;
  const node = link(text.slice(middle + 2, end).trim());
  if (!node || text[i - 1] === "!") return null;
  inline(node, text.slice(i + 1, middle), max_depth);
  return { node, end: end + 1 };
}

function url_at(text, i) {
  const ahead = text.slice(i, i + 2000);
  const end = ahead.search(/[\s<>"`]/);
  const url = (end < 0 ? ahead : ahead.slice(0, end)).replace(/[.,;:!?'"*_)\]]+$/, "");
  const node = link(url);
  if (!node) return null;
  node.textContent = url;
  return { node, end: i + url.length };
}

function link(target) {
  let url;
  try {
    url = new URL(target);
  } catch {
    return null;
  }
  if (!["http:", "https:", "mailto:"].includes(url.protocol)) return null;
  const node = make("a");
  node.href = url.href;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
  node.title = url.href;
  return node;
}
