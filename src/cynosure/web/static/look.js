// Look inside: a sentence on its way through a real transformer, its heads, one of them run for ever.
import { following, get } from "./api.js";
import { say } from "./app.js";
import { $, draw, make, set, short, waiting } from "./dom.js";
import { Scene } from "./scene.js";

export async function open(home) {
  const { transformers } = await get("transformers");
  if (!transformers.length) {
    const card = make("div", home, "", "card");
    make("h2", card, "No transformer was given to this server");
    make("p", card, "Llama, Mistral, Qwen, Gemma, GPT-2, Pythia, BLOOM, OPT, BERT (MiniLM), ALBERT and others can be looked into, offline. Stop the server and start it with one:");
    make("pre", card, "pip install 'cynosure[models]'\ncynosure serve --transformer FOLDER\n# FOLDER has config.json and\n# model.safetensors");
    return null;
  }
  const room = new Look(home, transformers);
  room.trace();
  room.heads();
  return room;
}

class Look {
  constructor(home, names) {
    const bar = make("form", home, "", "bar");
    this.name = make("select", make("label", bar, "Transformer "), "", "", { "aria-label": "transformer" });
    for (const name of names) make("option", this.name, name, "", { value: name });
    this.text = make("input", bar, "", "grow sentence", { "aria-label": "sentence", id: "look-text", maxlength: 4000 });
    this.text.value = "The film was slow but the ending is wonderful.";
    this.words = make("input", make("label", bar, "", ""), "", "", { type: "checkbox", "aria-label": "group sub-words" });
    this.words.parentNode.append(" whole words");
    make("button", bar, "Walk it", "main", { type: "submit", id: "look-go" });
    bar.addEventListener("submit", (event) => { event.preventDefault(); this.trace(); });
    this.said = make("p", home, "", "said", { "aria-live": "polite", id: "look-said" });
    const two = make("div", home, "", "two"), left = make("div", two, "", "card"), right = make("div", two, "", "card");
    make("h2", left, "Tokens by layer");
    const stage = make("div", left, "", "stage");
    this.svg = draw("svg", stage, { viewBox: "0 0 800 560", role: "img", id: "look-stage", "aria-label": "tokens along principal components; drag to turn" });
    this.scene = new Scene(this.svg, { editable: false });
    this.turning();
    const line = make("label", left, "layer ", "slider");
    this.at = make("output", line, "0");
    this.layer = make("input", line, "", "", { type: "range", min: 0, value: 0, id: "look-layer", "aria-label": "layer" });
    this.layer.addEventListener("input", () => this.draw());
    this.layerSaid = make("p", left, "", "note");
    make("p", left, "A colour is a cluster; a star leads in some head; a line is the way from layer 0. Drag to turn.", "hint");
    make("h3", left, "Do the tokens come together?");
    this.chart = draw("svg", left, { viewBox: "0 0 420 150", role: "img", id: "look-chart" });
    make("h2", right, "Attention of one head");
    const pick = make("div", right, "", "bar");
    this.headLayer = make("input", make("label", pick, "layer "), "", "short", { type: "number", min: 0, value: 0, "aria-label": "layer of the head" });
    this.head = make("input", make("label", pick, "head "), "", "short", { type: "number", min: 0, value: 0, "aria-label": "head" });
    for (const box of [this.headLayer, this.head]) box.addEventListener("change", () => this.trace());
    this.heat = draw("svg", right, { class: "heat", id: "look-heat", role: "img", "aria-label": "attention matrix" });
    this.heat.addEventListener("pointermove", (event) => {
      const { found } = this, box = this.heat.querySelector("image")?.getBoundingClientRect(), n = found?.P.length;
      if (!box) return;
      const i = Math.floor(((event.clientY - box.top) / box.height) * n), j = Math.floor(((event.clientX - box.left) / box.width) * n);
      $("tip").hidden = true;
      if (found.P[i]?.[j] !== undefined) this.tip(event, `"${found.words[i]}" looks at "${found.words[j]}": ${short(found.P[i][j], 3)}`);
    });
    this.heat.addEventListener("pointerleave", () => { $("tip").hidden = true; });
    this.heatSaid = make("p", right, "", "note");
    this.leaders = make("div", right, "", "scroll");
    const below = make("div", home, "", "card");
    make("h2", below, "Heads, and how far each is from each hypothesis");
    this.headSaid = make("p", below, "", "note", { "aria-live": "polite" });
    this.which = make("select", make("label", below, "colour by ", "bar"), "", "", { "aria-label": "hypothesis", id: "look-which" });
    this.which.addEventListener("change", () => this.map());
    this.board = make("div", below, "", "scroll", { id: "look-map" });
    this.table = make("div", make("details", below), "", "scroll");
    this.table.before(make("summary", null, "All numbers"));
    this.iterated = make("div", home, "", "card", { id: "look-iterated" });
    this.iterated.hidden = true;
    this.name.addEventListener("change", () => { this.trace(); this.heads(); });
  }

  turning() {
    let hand = null;
    this.svg.addEventListener("pointerdown", (event) => { hand = [event.clientX, event.clientY, ...this.scene.turn]; this.svg.setPointerCapture(event.pointerId); });
    this.svg.addEventListener("pointermove", (event) => {
      if (!hand) { this.hover(event); return; }
      this.scene.turn = [hand[2] + (event.clientX - hand[0]) / 120, hand[3] + (event.clientY - hand[1]) / 120];
      this.draw();
    });
    this.svg.addEventListener("pointerup", () => { hand = null; });
    this.svg.addEventListener("pointerleave", () => { $("tip").hidden = true; });
  }

  // The word of the token, or of the path, under the pointer: names that would overlap are not drawn.
  hover(event) {
    const node = event.target.closest("[data-token], [data-path]");
    if (!node || !this.found) { $("tip").hidden = true; return; }
    const i = Number(node.dataset.token ?? node.dataset.path), k = Number(this.layer.value), at = Math.min(k, this.found.layers - 1);
    const here = this.found.tokens.filter((t) => t.layer === at)[i];
    this.tip(event, `"${this.found.words[i]}", token ${i}: leads in ${here.leads} of ${this.found.heads} heads of layer ${at}`);
  }

  tip(event, text) {
    const tip = $("tip");
    tip.hidden = false;
    tip.textContent = text;
    tip.style.left = `${Math.min(event.clientX + 14, innerWidth - 310)}px`;
    tip.style.top = `${Math.min(event.clientY + 14, innerHeight - 60)}px`;
  }

  async trace() {
    const mine = (this.asked = Symbol("trace"));
    const wait = waiting(this.said, "walking the sentence");
    try {
      const found = await following("trace", { transformer: this.name.value, text: this.text.value, words: this.words.checked,
        layer: Number(this.headLayer.value), head: Number(this.head.value) }, wait.tell);
      if (mine !== this.asked) return;
      this.found = found;
      this.layer.max = found.layers;
      this.headLayer.max = found.layers - 1;
      this.head.max = found.heads - 1;
      this.scene.fit(found.view.flat());
      const first = found.by_layer[0], last = found.by_layer.at(-1);
      this.said.textContent = `${found.words.length} tokens over ${found.layers} layers: mean cosine ${short(first.mean_cosine, 3)} → ${short(last.mean_cosine, 3)}, ` +
        `clusters ${first.clusters} → ${last.clusters}. ${found.notes.join(" ")}`;
      this.draw();
      this.attention();
    } catch (error) { if (mine === this.asked) this.said.textContent = error.message; }
    finally { wait.end(); }
  }

  // Mean cosine and clusters by layer: two lines, and where the slider stands.
  lines(k) {
    const { by_layer: rows } = this.found, svg = this.chart, n = this.found.words.length, last = rows.length - 1 || 1;
    svg.replaceChildren();
    const x = (i) => 34 + (352 * i) / last, y = (share) => 122 - 104 * share;
    for (const [name, at] of [["0", 0], ["1", 1]]) draw("text", svg, { x: 28, y: y(at) + 4, class: "tick", "text-anchor": "end" }, name);
    for (const i of rows.keys()) if (last <= 12 || i % 4 === 0) draw("text", svg, { x: x(i), y: 144, class: "tick", "text-anchor": "middle" }, String(i));
    draw("line", svg, { x1: x(0), x2: x(last), y1: y(0), y2: y(0), stroke: "#8886" });
    draw("line", svg, { x1: x(k), x2: x(k), y1: y(0), y2: y(1), stroke: "#8886", "stroke-dasharray": "3 3" });
    const cosine = rows.map((row) => Math.max(0, row.mean_cosine ?? 0)), share = rows.map((row) => row.clusters / n);
    for (const [name, values, className] of [["mean cosine", cosine, "for"], ["clusters / tokens", share, "against"]]) {
      draw("polyline", svg, { points: values.map((v, i) => `${x(i)},${y(v)}`).join(" "), class: `line ${className}` });
      const rises = values.at(-1) > values[0], at = rises ? last : 0; // its name above its higher end
      draw("text", svg, { x: x(at) + (rises ? 0 : 6), y: y(values[at]) - 7, class: `tick ${className}`, "text-anchor": rises ? "end" : "start" }, name);
    }
    set(svg, { "aria-label": `mean cosine by layer: ${cosine.map((v) => v.toFixed(2)).join(", ")}; clusters: ${rows.map((row) => row.clusters).join(", ")}` });
  }

  draw() {
    const { found } = this;
    if (!found) return;
    const k = Number(this.layer.value), row = found.by_layer[k], at = Math.min(k, found.layers - 1);
    const here = found.tokens.filter((t) => t.layer === at), most = here.reduce((a, b) => (b.leads > a.leads ? b : a), here[0]);
    this.at.textContent = k;
    this.scene.draw({ points: found.view[k], group: (i) => found.clusters[k][i], leads: (i) => here[i].leads > 0, open: () => false, names: true, name: (i) => found.words[i],
      paths: found.view.slice(0, k + 1) });
    this.lines(k);
    this.layerSaid.textContent = `mean cosine ${short(row.mean_cosine, 3)}, ${row.clusters} clusters, length ${short(row.length, 3)}; ` +
      `"${most.word}" leads in ${most.leads} of ${found.heads} heads of layer ${at}`;
  }

  // Rows look, columns are looked at, each with its word as long as words can be read.
  attention() {
    const { found } = this, n = found.P.length, canvas = make("canvas", null, "", "", { width: n, height: n }), named = n <= 40;
    const pen = canvas.getContext("2d"), image = pen.createImageData(n, n), cell = 400 / n, pad = named ? 78 : 4;
    found.P.flat().forEach((p, i) => {
      const q = Math.sqrt(p);
      image.data.set([255 - 255 * q, 255 - 141 * q, 255 - 77 * q, 255], 4 * i);
    });
    pen.putImageData(image, 0, 0);
    this.heat.replaceChildren();
    set(this.heat, { viewBox: `0 0 ${pad + 404} ${pad + 404}`, "data-tokens": n });
    draw("image", this.heat, { x: pad, y: pad, width: 400, height: 400, preserveAspectRatio: "none", href: canvas.toDataURL() });
    const size = Math.min(14, cell * 0.8), word = (i) => (found.words[i].length > 10 ? `${found.words[i].slice(0, 9)}…` : found.words[i]);
    for (let i = 0; named && i < n; i++) {
      const at = pad + (i + 0.5) * cell;
      draw("text", this.heat, { x: pad - 5, y: at + size / 3, "font-size": size, "text-anchor": "end", fill: "currentColor" }, word(i));
      draw("text", this.heat, { "font-size": size, fill: "currentColor", transform: `translate(${at + size / 3} ${pad - 5}) rotate(-90)` }, word(i));
    }
    const row = found.attention.find((r) => r.layer === found.layer && r.index === found.head);
    this.heatSaid.textContent = `rows look, columns are looked at; sink "${row.sink_word}" with ${(100 * row.sink_mass).toFixed(0)} % of all; ` +
      `largest weight ${short(row.argmax_mass, 3)} on average (1 is hardmax); ε-rank ${row.epsilon_rank}`;
    const table = make("table", null), head = make("tr", make("thead", table));
    for (const name of ["token", "looks most at", "weight", "leads here"]) make("th", head, name, name === "weight" ? "number" : "");
    const body = make("tbody", table);
    found.P.forEach((weights, i) => {
      const j = weights.indexOf(Math.max(...weights)), line = make("tr", body);
      make("td", line, found.words[i]); make("td", line, found.words[j]);
      make("td", line, short(weights[j], 3), "number"); make("td", line, row.leaders.includes(i) ? "★" : "");
    });
    this.leaders.replaceChildren(table);
  }

  async heads() {
    const wait = waiting(this.headSaid, "reading the weights of every head");
    try {
      const found = (this.every = await following("heads", { transformer: this.name.value }, wait.tell));
      this.headSaid.textContent = `${found.summary} Distances: 0 holds, 1 is as far as can be. Click a head to run it for ever.`;
      const names = Object.keys(found.hypotheses), table = make("table", null), head = make("tr", make("thead", table));
      this.which.replaceChildren();
      for (const name of names) make("option", this.which, `${name}: ${found.hypotheses[name]}`, "", { value: names.indexOf(name) });
      this.map();
      make("th", head, "head");
      for (const name of names) make("th", head, name, "", { title: found.hypotheses[name] });
      const body = make("tbody", table);
      for (const row of found.heads) {
        const line = make("tr", body);
        make("th", line, `L${row.layer}H${row.head}`);
        row.distances.forEach((x, j) => make("td", line, row.holds[j] ? "✓" : short(x, 2), row.holds[j] ? "yes number" : "number"));
      }
      this.table.replaceChildren(table);
    } catch (error) { this.headSaid.textContent = error.message; }
    finally { wait.end(); }
  }

  // Layers downwards, heads across: blue is near the hypothesis, and each is a button.
  map() {
    const { heads } = this.every, j = Number(this.which.value), grid = make("div", null, "", "map");
    const width = Math.max(...heads.map((row) => row.head)) + 1;
    grid.style.gridTemplateColumns = `3em repeat(${width}, minmax(26px, 44px))`;
    make("span", grid, "");
    for (let h = 0; h < width; h++) make("span", grid, `H${h}`);
    let layer = null;
    for (const row of heads) {
      if (row.layer !== layer) { layer = row.layer; make("span", grid, `L${layer}`); }
      const x = row.distances[j], said = row.holds[j] ? "holds" : x === null ? "unknown" : `distance ${short(x, 2)}`;
      const cell = make("button", grid, row.holds[j] ? "✓" : x === null ? "–" : x.toFixed(2).replace("0.", "."), "", { type: "button",
        "data-head": `L${row.layer}H${row.head}`, title: `L${row.layer}H${row.head}: ${said}`, "aria-label": `layer ${row.layer}, head ${row.head}: ${said}` });
      const near = row.holds[j] ? 1 : x === null ? 0 : Math.max(0, 1 - x);
      cell.style.backgroundColor = `rgba(var(--for), ${(0.7 * near).toFixed(2)})`;
      cell.addEventListener("click", () => this.iterate(row.layer, row.head));
    }
    this.board.replaceChildren(grid);
  }

  async iterate(layer, head) {
    const home = this.iterated, mine = (this.running = Symbol("iterate"));
    for (const cell of this.board.querySelectorAll("button")) cell.setAttribute("aria-pressed", String(cell.dataset.head === `L${layer}H${head}`));
    [this.headLayer.value, this.head.value] = [layer, head];
    this.trace();
    home.hidden = false;
    home.replaceChildren();
    make("h2", home, `L${layer}H${head} run 200 times over, beside its controls`);
    const said = make("p", home, "", "note", { "aria-live": "polite" }), wait = waiting(said, "running the head and two controls");
    home.scrollIntoView({ block: "nearest" });
    try {
      const found = await following("heads", { transformer: this.name.value, layer, head, iterate: 200, text: this.text.value }, wait.tell);
      if (mine !== this.running) return;
      const three = make("div", home, "", "three"), captions = {
        run: `head ${head} alone`, frozen: `frozen: its attention of the first run, for ever`, control: "silent: no head at all",
      };
      const scenes = Object.entries(captions).map(([kind, caption]) => {
        const box = make("div", three, "", "stage");
        const svg = draw("svg", box, { viewBox: "0 0 800 560", role: "img", "aria-label": caption, "data-kind": kind });
        make("p", box, caption, "caption");
        const scene = new Scene(svg, { editable: false });
        scene.fit([...found.run.flat(), ...found.frozen.flat(), ...found.control.flat()]);
        return [scene, found[kind]];
      });
      const line = make("label", home, "times run ", "slider"), at = make("output", line, "0");
      const slider = make("input", line, "", "", { type: "range", min: 0, max: found.t.length - 1, value: 0, "aria-label": "times run" });
      const show = () => {
        const k = Number(slider.value);
        at.textContent = found.t[k];
        for (const [scene, states] of scenes) scene.draw({ points: states[k], group: (i) => i, leads: () => false, open: () => false, paths: states.slice(0, k + 1), names: !!found.words, name: (i) => found.words[i] });
      };
      slider.addEventListener("input", show);
      slider.value = found.t.length - 1;
      show();
      const { run, control } = found.ends, all = found.t.at(-1);
      said.textContent = `Clusters at the end: ${run.clusters} (silent control ${control.clusters}), mean cosine ${short(run.mean_cosine, 3)} (silent ${short(control.mean_cosine, 3)}); ` +
        `cosine of a token with the same token of the silent control: ${short(found.agreement, 3)}. Norm and output bias act even when every head is silent: what that control does too is their work. ` +
        `Its attention, frozen, foretells ${found.foretold >= all ? `all ${all} runs` : `the first ${found.foretold} of ${all} runs`} to 10 %; at the end it is ${found.frozen_error < 1e-5 ? "less than 0.001" : short(100 * found.frozen_error, 3)} % off.`;
    } catch (error) { if (mine === this.running) { said.textContent = error.message; say(error); } }
    finally { wait.end(); }
  }
}
