// Read: why a text gets its label, as one types; strike words and watch the verdict be computed again.
import { get, post } from "./api.js";
import { say } from "./app.js";
import { later, latest, make, signed } from "./dom.js";
import { labelFile } from "./labels.js";
import { shared } from "./state.js";
import { telling } from "./story.js";
import { MOST_KEPT, Versions } from "./versions.js";

const MOST = 100_000, LINKED = 4000; // characters of a text, and of one that a link carries
const EXAMPLES = [
  "A slow film, but what a wonderful ending! I left the cinema smiling.",
  "The plot is a mess, the acting is awful and the jokes are worse. A waste of two hours.",
  "I wanted to like it. The first half is dull, but the last act is brilliant and the music superb.",
  "Not bad at all: not the worst film of the year, and the cast is excellent.",
];

// One number, of the predicted label, wherever a verdict is written.
export function verdict(found) {
  const share = found.prediction === found.label ? found.probability : 1 - found.probability;
  return unheard(found) ? "No verdict" : `${found.prediction} ${(100 * share).toFixed(1)} %`;
}

// Whether nothing in the text is evidence: then there is a prior, and no verdict.
export const unheard = (found) => !found.leaders.some((l) => l.offsets.length) && !found.words.some(([word]) => found.spans.some((s) => s[0] === word));

// The text as a picture: passages in the colour of what they add, in bold the words that make it, the rest plain.
// Words are buttons where `wire` says what they do. Offsets count code points.
export function paint(home, found, struck, wire) {
  const points = Array.from(found.text), scale = Math.max(1e-12, ...found.passages.map((p) => Math.abs(p.contribution)));
  const starts = new Map(found.words.map((w, i) => [w[1], i])), covering = found.words.map(() => []);
  for (const span of found.spans) { // a term covers the words from its start to its end
    for (let i = starts.get(span[1]); i < found.words.length && found.words[i][1] < span[2]; i++) covering[i].push(span);
  }
  home.replaceChildren();
  let at = 0, here = null, box = home;
  for (const [i, [word, start, stop]] of found.words.entries()) {
    const passage = found.passages.find((p) => p.start <= start && start < p.stop) ?? null, gap = points.slice(at, start).join("");
    (passage === here ? box : home).append(gap);
    if (passage !== here) {
      here = passage;
      box = passage ? make("span", home, null, "passage") : home;
      if (passage) {
        const deep = Math.sqrt(Math.abs(passage.contribution) / scale).toFixed(3);
        box.style.backgroundColor = `rgba(var(${passage.contribution > 0 ? "--for" : "--against"}), calc(var(--deep) * ${deep}))`;
        box.dataset.adds = passage.contribution;
        box.title = `this passage adds ${signed(passage.contribution)}`;
      }
    }
    const gone = struck.has(word), read = !!passage?.read.some(([a, b]) => a <= start && start < b);
    const node = make(wire ? "button" : "span", box, points.slice(start, stop).join(""), "word", wire ? { type: "button", "aria-pressed": String(gone) } : {});
    node.dataset.word = word;
    node.classList.toggle("struck", gone);
    node.classList.toggle("leads", read && !gone);
    if (wire) {
      node.title = gone ? "struck; click to take it back" : covering[i].map((s) => `${s[0]} ${signed(s[4])}, follows ${found.leaders[found.cluster[s[3]]].text}`).join("\n") || "unknown to the model";
      node.dataset.clusters = covering[i].map((s) => found.cluster[s[3]]).join(" ");
      wire(node, word);
    }
    at = stop;
  }
  home.append(points.slice(at).join(""));
}

export async function open(home) {
  const room = new Read(home);
  await room.start();
  return room;
}

class Read {
  constructor(home) {
    this.home = home;
    this.struck = new Set();
    this.ask = latest((body) => post("explain", body), (found, body) => this.take(found, body), say);
    this.soon = later(60, () => this.explain());
  }

  async start() {
    const { home } = this, two = make("div", home, "", "two");
    const left = make("div", two), right = make("div", two);
    const bar = make("div", left, "", "bar read-bar");
    this.model = make("select", make("label", bar, "Model "), "", "", { "aria-label": "model" });
    this.example = make("select", make("label", bar, "Example "), "", "", { "aria-label": "example" });
    make("option", this.example, "choose one …", "", { value: "" });
    EXAMPLES.forEach((text, i) => make("option", this.example, text.slice(0, 40) + "…", "", { value: i }));
    this.text = make("textarea", left, "", "", { rows: 6, "aria-label": "text to read", id: "read-text", spellcheck: "false" });
    this.text.value = shared.text;
    this.verdict = make("p", left, "", "verdict", { id: "verdict", "aria-live": "polite" });
    this.note = make("p", left, "", "note");
    this.shown = make("div", left, "", "text card", { id: "words" });
    const tools = make("div", left, "", "bar read-bar");
    this.all = this.button(tools, "Unstrike all", () => { this.struck.clear(); this.explain(); });
    this.button(tools, "Keep this version to compare", () => {
      this.versions.keep({ text: this.text.value, struck: [...this.struck], found: this.found });
      this.versions.show(this.found, this.struck);
      this.link();
    });
    make("p", left, "Click a word to strike it out: the verdict is computed without it. Bold words are read, and their passage has the colour of what they add: blue for the label, orange against it, the deeper the more. Point at a word to see its cluster.", "hint", { "data-more": "" });
    this.versions = new Versions(make("div", left, "", "", { id: "versions" }), (one) => {
      this.text.value = one.text;
      this.struck = new Set(one.struck);
      this.explain();
    }, () => this.link());

    const board = make("div", right, "", "card");
    make("h2", board, "Leaders and their clusters");
    this.table = make("div", board, "", "scroll");
    this.play = make("a", make("p", board), "See these words as tokens in Play: they run there as in the model");
    make("p", board, "Contributions and the intercept add up to the decision. Untick a cluster to strike its words.", "note");
    labelFile(make("div", right, "", "card"), () => this.model.value);
    this.card = make("details", right, "", "", { id: "card" });
    make("summary", this.card, "The model's card: all it knows");
    this.settings = make("p", this.card, "", "note");
    this.frame = make("iframe", this.card, "", "frame", { title: "card of the model", sandbox: "" });
    this.about = make("pre", this.card);
    this.card.addEventListener("toggle", () => this.showCard());

    this.example.addEventListener("change", () => { if (this.example.value) this.tell(EXAMPLES[this.example.value]); });
    this.text.addEventListener("input", () => { shared.text = this.text.value; this.example.value = ""; this.soon(); });
    this.model.addEventListener("change", () => { this.struck.clear(); this.showCard(); this.explain(); });
    this.models = (await get("models")).models;
    for (const model of this.models) make("option", this.model, model.name, "", { value: model.name });
    this.showCard();
  }

  // From another room, or by a link: #read=text=...&model=...&struck=...&kept=...&without=...
  async visit(link) {
    const given = new URLSearchParams(link);
    if (this.models.some((one) => one.name === given.get("model"))) this.model.value = given.get("model");
    const without = given.getAll("without"), kept = given.getAll("kept").slice(0, MOST_KEPT).map((text, i) => ({ text: text.slice(0, MOST), struck: without[i]?.split(" ").filter(Boolean).slice(0, 100) ?? [] }));
    this.tell(given.get("text") ?? shared.text, given.getAll("struck"));
    if (!kept.length) return;
    for (const one of kept) one.found = await post("explain", { ...one, model: this.model.value || null });
    this.versions.kept = kept;
    if (this.found) { this.versions.show(this.found, this.struck); this.link(); }
  }

  tell(text, struck = []) {
    shared.text = this.text.value = text.slice(0, MOST);
    this.struck = new Set(struck.slice(0, 100));
    this.example.value = EXAMPLES.indexOf(text) < 0 ? "" : EXAMPLES.indexOf(text);
    this.explain();
  }

  strikeStrongest() {
    const [first] = this.found.leaders.filter((l) => l.offsets.length).sort((a, b) => Math.abs(b.contribution) - Math.abs(a.contribution));
    for (const word of first?.text.split(" ") || []) this.struck.add(word);
    this.explain();
  }

  // The address says what is read, unless it says where the story is.
  link() {
    if (this.home.hidden || telling()) return;
    const link = new URLSearchParams({ text: this.text.value, ...(this.model.selectedIndex > 0 ? { model: this.model.value } : {}) });
    for (const word of this.struck) link.append("struck", word);
    for (const one of this.versions.kept) { link.append("kept", one.text); link.append("without", one.struck.join(" ")); }
    history.replaceState(null, "", `${link}`.length > 2 * LINKED ? "#read" : `#read=${link}`);
  }

  button(parent, text, action) {
    const node = make("button", parent, text, "", { type: "button" });
    node.addEventListener("click", action);
    return node;
  }

  showCard() {
    const model = this.models.find((one) => one.name === this.model.value);
    this.settings.textContent = `${model.name}: ${model.labels.join(" or ")}, ${model.terms} terms`;
    this.about.textContent = model.card;
    this.about.hidden = !model.card;
    const page = `/api/v1/models/${encodeURIComponent(model.name)}/card.html`;
    if (this.card.open && this.frame.getAttribute("src") !== page) this.frame.src = page;
  }

  explain() {
    this.ask({ text: this.text.value, model: this.model.value || null, struck: [...this.struck] });
  }

  take(found, body) {
    this.found = found;
    this.link();
    const none = unheard(found), same = found.prediction === found.label;
    this.verdict.replaceChildren(verdict(found));
    make("small", this.verdict, none ? " no word of this text is evidence" : ` log-odds ${signed(same ? found.decision : -found.decision)}` +
      (body.struck.length ? `, without ${body.struck.length} struck ${body.struck.length === 1 ? "word" : "words"}` : ""));
    this.all.disabled = !body.struck.length;
    this.verdict.dataset.label = none ? "" : found.prediction;
    this.verdict.dataset.decision = found.decision;
    this.note.textContent = found.note;
    this.play.href = `#play=words&${new URLSearchParams({ text: this.text.value, of: this.model.value })}`;
    this.words();
    this.leaders();
    this.versions.show(found, this.struck);
  }

  words() {
    paint(this.shown, this.found, this.struck, (node, word) => {
      node.addEventListener("click", () => { if (!this.struck.delete(word)) this.struck.add(word); this.explain(); });
      node.addEventListener("pointerenter", () => this.kin(node.dataset.clusters.split(" ")));
      node.addEventListener("pointerleave", () => this.kin([]));
    });
  }

  kin(clusters) {
    const neutral = String(this.found.cluster[0]), wanted = clusters.filter((c) => c && c !== neutral);
    for (const node of this.shown.querySelectorAll(".word")) {
      node.classList.toggle("kin", node.dataset.clusters.split(" ").some((c) => wanted.includes(c)));
    }
  }

  leaders() {
    const { found } = this, table = make("table", null), head = make("tr", make("thead", table));
    for (const name of ["", "leader", "words", "", "adds"]) make(name ? "th" : "td", head, name);
    const body = make("tbody", table), scale = Math.max(1e-12, ...found.leaders.map((l) => Math.abs(l.contribution)));
    for (const leader of found.leaders) {
      const row = make("tr", body), neutral = !leader.offsets.length;
      const cell = make("td", row);
      if (!neutral) {
        const tick = make("input", cell, "", "", { type: "checkbox", "aria-label": `cluster of ${leader.text}` });
        tick.checked = true;
        tick.addEventListener("change", () => {
          for (const term of [leader, ...leader.followers]) for (const word of term.text.split(" ")) this.struck.add(word);
          this.explain();
        });
      }
      make("td", row, leader.text);
      make("td", row, leader.followers.map((w) => w.text).slice(0, 8).join(", ") + (leader.followers.length > 8 ? ` … ${leader.followers.length} in all` : ""));
      const bar = make("div", make("td", row, "", "barcell"));
      bar.style.width = `${(100 * Math.abs(leader.contribution)) / scale}%`;
      bar.style.background = `rgb(var(${leader.contribution >= 0 ? "--for" : "--against"}))`;
      make("td", row, signed(leader.contribution), "number");
    }
    for (const [name, value] of [["intercept", found.intercept], ["decision", found.decision]]) {
      const row = make("tr", body);
      make("td", row); make("th", row, name); make("td", row); make("td", row); make("td", row, signed(value), "number");
    }
    this.table.replaceChildren(table);
  }
}
