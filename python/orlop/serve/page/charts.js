// Small charts out of plain nodes. Colours are the style sheet's; each chart says in words what it shows.

const svg = (name, attributes = {}) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  return node;
};
const div = (class_name) => {
  const node = document.createElement("div");
  node.className = class_name;
  return node;
};

// lines: [{points: [{x, y or null}], name: the colour's class}], on one scale from 0.
export function spark(node, lines, words) {
  const width = 240;
  const height = 44;
  const most = Math.max(1e-9, ...lines.flatMap((l) => l.points.map((p) => p.y ?? 0)));
  const at = (p) => `${(p.x * width).toFixed(1)} ${(height - 2 - (p.y / most) * (height - 6)).toFixed(1)}`;
  node.setAttribute("viewBox", `0 0 ${width} ${height}`);
  node.setAttribute("preserveAspectRatio", "none");
  node.replaceChildren(svg("path", { class: "base", d: `M0 ${height - 1}H${width}` }));
  for (const { points, name } of lines) {
    let line = "";
    let area = "";
    let run = [];
    const flush = () => {
      if (run.length) {
        const d = "M" + run.map(at).join("L");
        line += d;
        area += `${d}V${height - 1}H${(run[0].x * width).toFixed(1)}Z`;
      }
      run = [];
    };
    for (const p of points) p.y === null ? flush() : run.push(p);
    flush();
    node.append(svg("path", { class: `area ${name}`, d: area }), svg("path", { class: `line ${name}`, d: line }));
  }
  node.setAttribute("aria-label", words);
}

// parts: [{name, share 0 to 1}]
export function stack(node, parts) {
  parts.forEach((part, i) => {
    const piece = node.children[i] ?? node.appendChild(div(""));
    piece.className = `piece ${part.name}`;
    piece.style.flexGrow = String(part.share);
    piece.hidden = !(part.share > 0);
  });
  while (node.children.length > parts.length) node.lastElementChild.remove();
  node.classList.toggle("none", !parts.some((p) => p.share > 0));
}

export const fill = (node, share) => { node.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`; };

// rows: [{name: the colour's class or "", term, value, more}]
export function list(node, rows) {
  rows.forEach((row, i) => {
    let place = node.children[i];
    if (!place) {
      place = div("");
      place.append(document.createElement("dt"), document.createElement("dd"));
      node.append(place);
    }
    if (place.className !== (row.name ?? "")) place.className = row.name ?? "";
    set(place.firstChild, row.term);
    set(place.lastChild, row.value);
  });
  while (node.children.length > rows.length) node.lastElementChild.remove();
}

export function set(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// A pool of pages, a cell for each or for some of them. parts: [{name, pages}], the rest is free.
export function grid(node, total, parts, words) {
  const columns = 40;
  const cells = Math.min(total, columns * 8);
  const rows = Math.max(1, Math.ceil(cells / columns));
  if (node.childElementCount !== cells) {
    node.setAttribute("viewBox", `0 0 ${columns * 10} ${rows * 10}`);
    node.replaceChildren();
    for (let i = 0; i < cells; ++i)
      node.append(svg("rect", { x: (i % columns) * 10 + 1, y: Math.floor(i / columns) * 10 + 1, width: 8, height: 8, rx: 1.5 }));
  }
  const names = [];
  let pages = 0;
  for (const part of parts) {
    pages += part.pages;
    // Some pages are at least one cell.
    const end = Math.max(names.length + (part.pages > 0 ? 1 : 0), Math.round((pages / total) * cells));
    while (names.length < Math.min(end, cells)) names.push(part.name);
  }
  [...node.children].forEach((cell, i) => {
    const name = names[i] ?? "free";
    if (cell.getAttribute("class") !== name) cell.setAttribute("class", name);
  });
  node.setAttribute("aria-label", words);
}

// bars: [{count, label, from, to}]; label stands under the bar's right edge.
export function histogram(node, bars, words) {
  if (node.childElementCount !== bars.length * 2) {
    node.replaceChildren();
    for (let i = 0; i < bars.length; ++i) node.append(div("column"));
    for (let i = 0; i < bars.length; ++i) node.append(div("tick"));
    for (let i = 0; i < bars.length; ++i) node.children[i].append(div("rise"));
    node.style.gridTemplateColumns = `repeat(${bars.length}, minmax(0, 1fr))`;
  }
  const most = Math.max(1, ...bars.map((b) => b.count));
  bars.forEach((bar, i) => {
    const column = node.children[i];
    column.title = `${bar.words}: ${bar.count}`;
    column.firstChild.style.height = bar.count ? `max(2px, ${(bar.count / most) * 100}%)` : "0";
    set(node.children[bars.length + i], bar.label);
  });
  node.setAttribute("aria-label", words);
}
