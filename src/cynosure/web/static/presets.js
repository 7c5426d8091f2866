// Where to start: pictures of named configurations with what to look for, and the words of a sentence.
import { following, get, isLocal, post } from "./api.js";
import { say } from "./app.js";
import { $, colour, make, waiting, write } from "./dom.js";
import { local } from "./hardmax.js";
import { fresh, shared } from "./state.js";

const SMALL = [132, 92]; // pixels of a picture
const LAYERS_DRAWN = 200, MOST_RUN = 60; // layers run for a picture; tokens beyond which one is run less

// Title, configuration, parameters, what to look for; in the order of a lesson. Whatever else there is comes last.
const CHAPTERS = await (await fetch(new URL("./presets.json", import.meta.url))).json();

// Tokens of a sentence as a model has them: of a transformer its words along two principal
// directions, of a classifier the plane in which it runs its own hardmax layers.
async function wordsOf({ text, of }) {
  const { transformers } = await get("transformers");
  if (transformers.includes(of)) {
    const bar = waiting($("preset-bar"), `reading ${of}`);
    try {
      const found = await following("trace", { transformer: of, text, words: true }, bar.tell);
      return { tokens: found.start, names: found.words };
    } finally { bar.end(); }
  }
  const { models } = await get("models"), model = models.find((one) => one.name === of) || models[0];
  const found = await post("explain", { text, model: model.name });
  return { tokens: found.layers[0], names: found.names, alpha: model.settings.alpha };
}

const known = {};
const asked = new Map(); // tokens by configuration and parameters: asked for once

function tokensOf(name, params) {
  const key = JSON.stringify([name, params]);
  if (!asked.has(key)) {
    const found = name === "words" ? wordsOf(params) : get(`configurations/${name}?${new URLSearchParams(params)}`);
    asked.set(key, found);
    found.catch(() => asked.delete(key));
  }
  return asked.get(key);
}

// The start of a configuration: what it does not name is as fresh.
export async function startOf(name, params) {
  const { tokens, exact = null, names, alpha } = await tokensOf(name, params);
  const state = { ...fresh(), z: tokens.map((row) => [...row]), exact, from: [name, params], ...(names ? { words: names } : {}), ...(alpha ? { alpha } : {}) };
  if (name === "golden" && params.name === "G4") state.alpha = 0.1;
  return state;
}

// Tokens as they start, in the colours of those they end at; stars are who leads then.
function picture(home, z, alpha) {
  const [w, h] = SMALL, canvas = make("canvas", home, "", "", { width: 2 * w, height: 2 * h, "aria-hidden": "true" }), pen = canvas.getContext("2d");
  const found = local(z, alpha, null, z.length > MOST_RUN ? 20 : LAYERS_DRAWN), turn = (p) => (p.length < 3 ? p : [p[0] + 0.35 * p[2], p[1] + 0.25 * p[2]]);
  const seen = z.map(turn), reach = (j) => [Math.min(0, ...seen.map((p) => p[j] ?? 0)), Math.max(0, ...seen.map((p) => p[j] ?? 0))];
  const [[x0, x1], [y0, y1]] = [reach(0), reach(1)], scale = Math.min(w / (1.25 * (x1 - x0) || 1), h / (1.25 * (y1 - y0) || 1));
  const slot = new Map(found.leaders.map((i, at) => [i, at]));
  pen.scale(2, 2);
  for (const stars of [false, true]) {
    seen.forEach((p, i) => {
      if (slot.has(i) !== stars) return;
      const [x, y] = [w / 2 + scale * (p[0] - (x0 + x1) / 2), h / 2 - scale * ((p[1] ?? 0) - (y0 + y1) / 2)];
      pen.fillStyle = colour(slot.get(found.follows[i]) ?? -1);
      pen.beginPath();
      if (stars) for (let k = 0; k < 10; k++) pen.lineTo(x + (k % 2 ? 2.6 : 6) * Math.sin((Math.PI * k) / 5), y - (k % 2 ? 2.6 : 6) * Math.cos((Math.PI * k) / 5));
      else pen.arc(x, y, z.length > 100 ? 1.3 : 2.6, 0, 7);
      pen.fill();
    });
  }
}

export async function presets(play) {
  Object.assign(known, await get("configurations"));
  const named = Object.values(CHAPTERS).flat(), open = $("preset"), home = $("presets");
  const more = Object.keys(known).filter((name) => !named.some((row) => row[1] === name));
  const chapters = { ...CHAPTERS, More: more.map((name) => [name.replaceAll("_", " "), name, {}, known[name].about]) };
  let latest = null, filled = false;

  // `kept`: another seed or n of it changes the tokens only.
  async function load(name, params, kept = false) {
    const mine = (latest = Symbol(name));
    try {
      const state = await startOf(name, params), { alpha, A, show, rational, beside } = play.state;
      if (mine !== latest) return; // another was chosen meanwhile
      if (kept) Object.assign(state, { alpha, show, rational }, play.d === state.z[0].length ? { A, beside } : {});
      play.reset(state);
    } catch (error) { say(error); }
  }

  function shut(back = false) {
    home.hidden = true;
    open.setAttribute("aria-expanded", "false");
    if (back) open.focus();
  }

  async function fill() {
    filled = true;
    if (!isLocal) sentence();
    for (const [title, rows] of Object.entries(chapters)) {
      if (!rows.length) continue;
      make("h2", home, title);
      const grid = make("div", home, "", "presets");
      for (const [label, name, params, about] of rows) {
        const one = make("button", grid, "", "preset", { type: "button", "data-preset": label }), drawn = make("span", one, "", "drawn");
        make("b", one, label);
        make("span", one, about);
        one.addEventListener("click", () => { shut(true); load(name, params); });
        startOf(name, params).then(({ z, alpha }) => picture(drawn, z, alpha), say);
      }
    }
  }

  async function sentence() {
    const form = make("form", home, "", "bar"), text = make("input", make("label", form, "Words of "), "", "sentence", { "aria-label": "sentence", maxlength: 4000, id: "preset-text" });
    const of = make("select", make("label", form, "as in "), "", "", { "aria-label": "model of the words" });
    text.value = shared.text;
    make("button", form, "Take its words", "main", { type: "submit" });
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      shared.text = text.value;
      shut();
      load("words", { text: text.value, of: of.value });
    });
    const [{ transformers }, { models }] = await Promise.all([get("transformers"), get("models")]);
    for (const name of transformers) make("option", of, `${name}, its embedding`, "", { value: name });
    for (const { name } of models) make("option", of, `the classifier ${name}`, "", { value: name });
  }

  // What is on the stage, by name, with the parameters of its configuration as small inputs.
  function show(from) {
    const [name, params] = from || [null, {}], row = named.find((one) => one[1] === name && JSON.stringify(one[2]) === JSON.stringify(params));
    write(open, row ? row[0] : name === "words" ? `“${params.text.slice(0, 24)}…”` : name ? name.replaceAll("_", " ") : "your tokens");
    const box = $("preset-fields");
    if (box.dataset.of === JSON.stringify(from || null)) return;
    box.dataset.of = JSON.stringify(from || null);
    box.replaceChildren();
    if (!known[name]) return;
    for (const [key, value] of Object.entries({ ...known[name].params, ...params })) {
      if (typeof value !== "number" || key === "case") continue;
      const input = make("input", make("label", box, `${key} `), "", "short", { type: "number", step: "any", "aria-label": key });
      input.value = Number(Number(value).toPrecision(6));
      input.addEventListener("change", () => {
        if (input.value === "" || !input.checkValidity()) { input.value = value; return; }
        load(name, { ...params, [key]: Number(input.value) }, true);
      });
    }
  }

  open.addEventListener("click", () => {
    if (!home.hidden) { shut(); return; }
    if (!filled) fill();
    if ($("preset-text")) $("preset-text").value = shared.text;
    home.hidden = false;
    open.setAttribute("aria-expanded", "true");
  });
  addEventListener("keydown", (event) => { if (event.key === "Escape" && !home.hidden) shut(true); });
  addEventListener("pointerdown", (event) => { if (!home.hidden && !home.contains(event.target) && event.target !== open) shut(); });
  open.disabled = false;
  return { load, show };
}
