// Elements, made with text only: what a user typed is never read as HTML.

export const $ = (id) => document.getElementById(id);

export function make(tag, parent, text, className, attributes) {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (className) node.className = className;
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (parent) parent.append(node);
  return node;
}

const SVG = "http://www.w3.org/2000/svg";

export function draw(tag, parent, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  set(node, attributes);
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

export function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined) node.removeAttribute(name);
    else node.setAttribute(name, value);
  }
}

// Only what changed is written: an equal text, too, would be laid out and read aloud again.
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function save(name, data, type) {
  const blob = data instanceof Blob ? data : new Blob([data], { type });
  const link = make("a", null, "", "", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Code with a button that takes it to the clipboard, or selects it where that is not allowed.
export function code(parent, text = "") {
  const box = make("div", parent, "", "code"), copy = make("button", box, "Copy", "", { type: "button" }), shown = make("pre", box, text, "", { tabindex: 0, role: "group", "aria-label": "code" });
  const take = async () => {
    try { await navigator.clipboard.writeText(shown.textContent); copy.textContent = "Copied"; }
    catch { getSelection().selectAllChildren(shown); copy.textContent = "Press Ctrl+C"; }
  };
  copy.addEventListener("click", take);
  return { box, shown, take, tell: (said) => { shown.textContent = said; copy.textContent = "Copy"; box.hidden = false; } };
}

export const short = (x, digits = 4) =>
  x === null || x === undefined ? "–" : String(Number(Number(x).toPrecision(digits)));

export const signed = (x) => (x >= 0 ? "+" : "−") + Math.abs(x).toFixed(3);

// Colours that the colour-blind tell apart; a leader's colour fills all that follow it.
const PALETTE = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#b2a100",
  "#a6761d", "#1b7f8c"];
export const colour = (i) => (i < 0 ? "#9aa0a6" : PALETTE[i % PALETTE.length]);

export function later(delay, action) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...args), delay);
  };
}

// However often it is asked for, once for each picture the browser shows.
export function perFrame(action) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; action(); });
  };
}

// A bar for what takes seconds: the share that is done, once it is told, what is being done, and the
// seconds that have gone by. `end()` takes it away.
export function waiting(node, what) {
  const box = make("div", null, "", "wait"), start = performance.now();
  const bar = make("progress", box, "", "", { "aria-label": what, max: 1 }), said = make("span", box);
  let doing = what;
  const show = () => {
    const seconds = Math.round((performance.now() - start) / 1000), share = bar.hasAttribute("value") ? `${Math.round(100 * bar.value)} %, ` : "";
    said.textContent = `${share}${doing} …${seconds ? ` ${seconds} s` : ""}`;
  };
  node.before(box);
  show();
  const timer = setInterval(show, 1000);
  return {
    tell: (step) => { bar.value = step.done; doing = step.what || what; show(); },
    end: () => { clearInterval(timer); box.remove(); },
  };
}

// One question at a time, and of those asked meanwhile only the last: a drag asks faster than
// anything can answer, and nobody wants the answers in between.
export function latest(ask, take, fail) {
  let busy = false, next = null;
  const go = async (args) => {
    busy = true;
    try { take(await ask(...args), ...args); }
    catch (error) { if (error.name !== "AbortError") fail(error, ...args); }
    busy = false;
    if (next) { const wanted = next; next = null; go(wanted); }
  };
  return (...args) => { if (busy) next = args; else go(args); };
}
