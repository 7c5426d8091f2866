// Read: why a text gets its label, as one types; strike words and watch the verdict be computed again.
import { get, latest, post } from "./api.js";
import { say } from "./app.js";
import { colour, draw, later, make, set, signed } from "./dom.js";
import { labelFile } from "./labels.js";
import { Versions } from "./versions.js";

const EXAMPLES = [
  "A slow film, but what a wonderful ending! I left the cinema smiling.",
  "The plot is a mess, the acting is awful and the jokes are worse. A waste of two hours.",
  "I wanted to like it. The first half is dull, but the last act is brilliant and the music superb.",
  "Not bad at all: not the worst film of the year, and the cast is excellent.",
];

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
    const bar = make("div", left, "", "bar");
    this.model = make("select", make("label", bar, "Model "), "", "", { "aria-label": "model" });
    this.example = make("select", make("label", bar, "Example "), "", "", { "aria-label": "example" });
    EXAMPLES.forEach((text, i) => make("option", this.example, text.slice(0, 40) + "…", "", { value: i }));
    this.text = make("textarea", left, "", "", { rows: 6, "aria-label": "text to read", id: "read-text", spellcheck: "false" });
    this.text.value = EXAMPLES[0];
    this.verdict = make("p", left, "", "verdict", { id: "verdict", "aria-live": "polite" });
    this.note = make("p", left, "", "note");
    this.shown = make("div", left, "", "text card", { id: "words" });
    const tools = make("div", left, "", "bar");
    this.all = this.button(tools, "Unstrike all", () => { this.struck.clear(); this.explain(); });
    this.button(tools, "Keep this version to compare", () => {
      this.versions.keep({ text: this.text.value, struck: [...this.struck], found: this.found });
      this.versions.show(this.found);
    });
    make("p", left, "Click a word to strike it out: the verdict is computed without it. Bold words lead, the others follow one of them. Blue speaks for the label, orange against it, and the deeper the more. Point at a word to see its cluster.", "hint");
    this.versions = new Versions(make("div", left, "", "", { id: "versions" }), (one) => {
      this.text.value = one.text;
      this.struck = new Set(one.struck);
      this.explain();
    });

    const board = make("div", right, "", "card");
    make("h2", board, "Leaders and their clusters");
    this.table = make("div", board, "", "scroll");
    make("p", board, "Contributions and the intercept add up to the decision. Untick a cluster to strike its words.", "note");
    const picture = make("div", right, "", "card");
    make("h2", picture, "Its words as tokens, layer by layer");
    this.plane = draw("svg", picture, { viewBox: "0 0 420 240", width: "100%", role: "img", "aria-label": "tokens of the text in the plane" });
    const line = make("label", picture, "layer ", "slider");
    this.layer = make("input", line, "", "", { type: "range", min: 0, value: 0, "aria-label": "layer of the text" });
    this.layer.addEventListener("input", () => this.drawPlane());
    this.axis = make("p", picture, "", "note");
    labelFile(make("div", right, "", "card"), () => this.model.value);
    this.card = make("details", right, "", "", { id: "card" });
    make("summary", this.card, "The model's card: all it knows");
    this.settings = make("p", this.card, "", "note");
    this.frame = make("iframe", this.card, "", "frame", { title: "card of the model", sandbox: "" });
    this.about = make("pre", this.card);
    this.card.addEventListener("toggle", () => this.showCard());

    this.example.addEventListener("change", () => { this.text.value = EXAMPLES[this.example.value]; this.struck.clear(); this.explain(); });
    this.text.addEventListener("input", () => this.soon());
    this.model.addEventListener("change", () => { this.struck.clear(); this.showCard(); this.explain(); });
    this.models = (await get("models")).models;
    for (const model of this.models) make("option", this.model, model.name, "", { value: model.name });
    this.showCard();
    this.explain();
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
    const percent = found.prediction === found.label ? found.probability : 1 - found.probability;
    this.verdict.replaceChildren(`${found.prediction} ${(100 * percent).toFixed(1)} %`);
    make("small", this.verdict, ` log-odds of ${found.label} ${signed(found.decision)}` +
      (body.struck.length ? `, without ${body.struck.length} struck ${body.struck.length === 1 ? "word" : "words"}` : ""));
    this.all.disabled = !body.struck.length;
    this.verdict.dataset.label = found.prediction;
    this.verdict.dataset.decision = found.decision;
    this.note.textContent = found.note;
    this.layer.max = found.layers.length - 1;
    this.words();
    this.leaders();
    this.drawPlane();
    this.versions.show(found);
  }

  // The text itself, each word a button. Offsets count code points.
  words() {
    const { found } = this, points = Array.from(found.text);
    const leads = new Set(found.leaders.map((l) => l.text)), scale = Math.max(1e-12, ...found.spans.map((s) => Math.abs(s[4])));
    this.shown.replaceChildren();
    const where = new Map(found.words.map((w, i) => [w[1], i])), covering = found.words.map(() => []);
    for (const span of found.spans) { // a term covers the words from its start to its end
      for (let i = where.get(span[1]); i < found.words.length && found.words[i][1] < span[2]; i++) covering[i].push(span);
    }
    let at = 0;
    for (const [i, [word, start, stop]] of found.words.entries()) {
      if (start > at) this.shown.append(points.slice(at, start).join(""));
      const over = covering[i];
      const sum = over.reduce((total, s) => total + s[4], 0), node = make("button", this.shown, points.slice(start, stop).join(""), "word", { type: "button" });
      const gone = this.struck.has(word), top = over.find((s) => leads.has(s[0]));
      node.dataset.word = word;
      node.classList.toggle("struck", gone);
      node.classList.toggle("leads", !!top && !gone);
      node.setAttribute("aria-pressed", String(gone));
      const strength = Math.sqrt(Math.abs(sum) / scale);
      if (strength > 0.05) node.style.backgroundColor = `rgba(var(${sum > 0 ? "--for" : "--against"}), calc(var(--deep) * ${Math.min(1, strength).toFixed(3)}))`;
      node.title = gone ? "struck; click to take it back" : over.map((s) => `${s[0]} ${signed(s[4])}, follows ${found.leaders[found.cluster[s[3]]].text}`).join("\n") || "unknown to the model";
      node.dataset.clusters = over.map((s) => found.cluster[s[3]]).join(" ");
      node.addEventListener("click", () => { if (!this.struck.delete(word)) this.struck.add(word); this.explain(); });
      node.addEventListener("pointerenter", () => this.kin(node.dataset.clusters.split(" ")));
      node.addEventListener("pointerleave", () => this.kin([]));
      at = stop;
    }
    this.shown.append(points.slice(at).join(""));
  }

  kin(clusters) {
    const neutral = String(this.found.cluster[0]), wanted = clusters.filter((c) => c && c !== neutral);
    for (const node of this.shown.querySelectorAll(".word")) {
      node.classList.toggle("kin", node.dataset.clusters.split(" ").some((c) => wanted.includes(c)));
    }
  }

  leaders() {
    const { found } = this, table = make("table", null), head = make("tr", make("thead", table));
    for (const name of ["", "leader", "words", "", "adds"]) make("th", head, name);
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

  drawPlane() {
    const { found } = this, svg = this.plane, k = Math.min(Number(this.layer.value), found.layers.length - 1);
    svg.replaceChildren();
    const every = found.layers.flat();
    if (!every.length) return;
    const sx = 190 / Math.max(1e-9, ...every.map((p) => Math.abs(p[0]))), heights = every.map((p) => p[1]);
    const [low, high] = [Math.min(0, ...heights), Math.max(0, ...heights)], sy = 200 / Math.max(1e-9, high - low), zero = 220 + sy * low;
    const at = (p) => [210 + sx * p[0], zero - sy * p[1]];
    draw("line", svg, { x1: 10, x2: 410, y1: zero, y2: zero, stroke: "#8884" });
    draw("line", svg, { x1: 210, x2: 210, y1: 10, y2: 230, stroke: "#8884" });
    const leaders = new Set(found.leaders.map((l) => l.text)), none = found.cluster[0];
    const side = (i) => (found.cluster[i] === none ? colour(-1) : `rgb(var(${found.leaders[found.cluster[i]].contribution >= 0 ? "--for" : "--against"}))`);
    this.axis.textContent = `Right is towards ${found.label}, left away from it; up is the direction in which the words spread most. Large dots lead, grey ones follow the neutral token.`;
    const named = [], taken = [];
    found.layers[k].forEach((p, i) => {
      const [x, y] = at(p), [x0, y0] = at(found.layers[0][i]), fill = side(i);
      draw("line", svg, { x1: x0, y1: y0, x2: x, y2: y, stroke: fill, "stroke-opacity": 0.5 });
      const node = draw("circle", svg, { cx: x, cy: y, r: leaders.has(found.names[i]) ? 6 : 3.5, fill });
      draw("title", node, {}, found.names[i]);
      taken.push(node.getBBox());
      if (leaders.has(found.names[i]) && i) named.push([x, y, found.names[i]]);
    });
    // Names from the top down, each below what it would lie on, with a line to its dot if it is far.
    for (const [x, y, name] of named.sort((a, b) => a[1] - b[1])) {
      const left = x > 320, text = draw("text", svg, { x: x + (left ? -8 : 8), "font-size": 11, fill: "currentColor", "text-anchor": left ? "end" : "start" }, name);
      let down = -6, box;
      for (; down < 200; down += 13) {
        set(text, { y: y + down });
        box = text.getBBox();
        if (!taken.some((b) => box.x < b.x + b.width && b.x < box.x + box.width && box.y < b.y + b.height && b.y < box.y + box.height)) break;
      }
      taken.push(box);
      if (down > 10) draw("line", svg, { x1: x, y1: y, x2: x + (left ? -7 : 7), y2: y + down - 4, stroke: "#8888" });
    }
    set(svg, { "data-layer": k });
  }
}
