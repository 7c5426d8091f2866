// Versions of a text that were kept, each side by side with the one that is typed now: verdicts, words that
// came and went, and what every term adds in one and in the other.
import { make, signed } from "./dom.js";
import { paint, verdict } from "./read.js";

export const MOST_KEPT = 4; // versions
const ROWS = 10, LONGEST = 600; // terms of a table; words that are compared one by one

const terms = (found) => new Map(found.spans.map((span) => [span[0], span[4]]));

// Words of both in order, each with whether it is kept (0), gone (-1) or new (+1): the longest common
// subsequence.
export function changes(before, after) {
  const a = before.split(/\s+/).filter(Boolean), b = after.split(/\s+/).filter(Boolean);
  if (a.length > LONGEST || b.length > LONGEST) return null;
  const best = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + 1 : Math.max(best[i + 1][j], best[i][j + 1]);
  }
  const out = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) { out.push([a[i++], 0]); j++; }
    else if (j >= b.length || (i < a.length && best[i + 1][j] >= best[i][j + 1])) out.push([a[i++], -1]);
    else out.push([b[j++], 1]);
  }
  return out;
}

export class Versions {
  constructor(home, bringBack, forgotten) {
    Object.assign(this, { home, bringBack, forgotten });
    this.kept = [];
  }

  keep(version) {
    this.kept.unshift(version);
    this.kept.length = Math.min(this.kept.length, MOST_KEPT);
  }

  // Again with each answer: the text is being typed.
  show(now, without) {
    this.home.replaceChildren();
    this.kept.forEach((one, at) => this.card(one, now, without, at === 0));
  }

  card(one, now, without, whole) {
    const { found, struck } = one, card = make("div", this.home, "", "card version"), bar = make("div", card, "", "bar tight"), line = make("span", bar, "", "grow");
    make("b", line, `Log-odds of ${now.label} ${signed(now.decision - found.decision)}`, "", { "data-change": now.decision - found.decision });
    const back = make("button", bar, "Bring back", "", { type: "button" }), away = make("button", bar, "×", "", { type: "button", "aria-label": "forget this version" });
    back.addEventListener("click", () => this.bringBack(one));
    away.addEventListener("click", () => { this.kept = this.kept.filter((other) => other !== one); this.show(now, without); this.forgotten(); });
    const text = make("p", card, "", "note diff"), words = changes(found.text, now.text);
    if (!words) text.textContent = `${found.text.slice(0, 200)} …`;
    else for (const [word, kind] of words) { make(kind < 0 ? "del" : kind > 0 ? "ins" : "span", text, word); text.append(" "); }
    const texts = make("div", card, "", "texts");
    for (const [name, shown, gone] of [["kept", found, new Set(struck)], ["now", now, without]]) {
      const side = make("div", texts, "", "", { "data-side": name });
      make("h4", side, `${name}: ${verdict(shown)}`);
      paint(make("div", side, "", "text"), shown, gone);
      if (gone.size) make("p", side, `without ${[...gone].join(", ")}`, "note");
    }
    if (whole) this.table(card, terms(found), terms(now));
  }

  table(card, before, after) {
    const rows = [...new Set([...before.keys(), ...after.keys()])].map((term) => [term, before.get(term), after.get(term)]);
    rows.sort((x, y) => Math.abs((y[2] ?? 0) - (y[1] ?? 0)) - Math.abs((x[2] ?? 0) - (x[1] ?? 0)));
    const changed = rows.filter(([, x, y]) => Math.abs((y ?? 0) - (x ?? 0)) >= 5e-4).slice(0, ROWS);
    if (!changed.length) { make("p", card, "Every term adds the same in both.", "note"); return; }
    const table = make("table", card), head = make("tr", make("thead", table));
    for (const name of ["term", "kept", "now", "change"]) make("th", head, name, name === "term" ? "" : "number");
    const body = make("tbody", table);
    for (const [term, x, y] of changed) {
      const row = make("tr", body);
      make("td", row, term);
      for (const value of [x, y]) make("td", row, value === undefined ? "–" : signed(value), "number");
      make("td", row, signed((y ?? 0) - (x ?? 0)), "number");
    }
  }
}
