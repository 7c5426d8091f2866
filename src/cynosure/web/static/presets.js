// Where to start: every named configuration, with its parameters as small inputs.
import { get } from "./api.js";
import { say } from "./app.js";
import { $, make } from "./dom.js";
import { fresh } from "./state.js";

// Label, configuration, parameters; by what one wants to see. Whatever else there is comes last.
const NAMED = {
  "First looks": [
    ["40 random tokens", "gaussian", { n: 40, seed: 2 }], ["a leader is born late", "figure2", { case: 2 }],
    ["in space (d = 3)", "gaussian", { n: 40, d: 3 }], ["in eight dimensions", "gaussian", { n: 40, d: 8 }],
  ],
  "Figure 2 of arXiv 2407.01602": [
    ["figure 2: triangle", "figure2", { case: 1 }], ["figure 2: emerging leader", "figure2", { case: 2 }],
    ["figure 2: square", "figure2", { case: 3 }], ["figure 2: clusters without a leader", "figure2", { case: 4 }],
  ],
  Shapes: [
    ["ball", "ball", {}], ["box", "box", {}], ["sphere", "sphere", {}], ["polygon", "polygon", { n: 6, interior: 20 }],
    ["grid (ties)", "grid", {}], ["rotated square", "rotated_square", {}],
  ],
  "Golden cases (computed by hand)": ["G1", "G2", "G2a", "G2b", "G2c", "G3", "G4"].map((name) => [`golden case ${name}`, "golden", { name }]),
  Many: [["200 tokens", "gaussian", { n: 200, seed: 1 }], ["2,000 tokens", "gaussian", { n: 2000, seed: 1 }]],
};

export async function presets(play) {
  const known = await get("configurations"), pick = $("preset"), home = $("preset-fields");
  const rows = [], more = Object.keys(known).filter((name) => !Object.values(NAMED).flat().some((row) => row[1] === name));
  const groups = { ...NAMED, More: more.map((name) => [name.replaceAll("_", " "), name, {}]) };
  for (const [title, ones] of Object.entries(groups)) {
    if (!ones.length) continue;
    const group = make("optgroup", pick, null, "", { label: title });
    for (const [label, name, params] of ones) {
      if (known[name]) make("option", group, label, "", { value: rows.push([name, params]) - 1, title: known[name].about });
    }
  }

  async function load(name, params) {
    const at = rows.findIndex((row) => row[0] === name && JSON.stringify(row[1]) === JSON.stringify(params));
    if (at >= 0) pick.value = at;
    fields(name, params);
    try {
      const query = new URLSearchParams(params).toString();
      const found = await get(`configurations/${name}?${query}`);
      const state = { ...fresh(), z: found.tokens, exact: found.exact };
      if (play.n) { Object.assign(state, { alpha: play.state.alpha, show: play.state.show, rational: play.state.rational }); }
      if (name === "golden" && params.name === "G4") state.alpha = 0.1;
      else if (name === "golden" || name === "figure2") state.alpha = 0.5;
      if (play.timer) play.stop();
      if (play.past) {
        const same = play.d === state.z[0].length;
        if (same) Object.assign(state, { A: play.state.A, beside: play.state.beside });
        play.state = state;
        play.chosen.clear();
        play.found = play.run = play.beside.run = null;
        play.scene.fit(play.visible(state.z));
        if (!same) play.beside.fill();
        play.refresh();
        play.settle();
      } else play.reset(state);
    } catch (error) { say(error); }
  }

  function fields(name, params) {
    home.replaceChildren();
    const given = { ...known[name].params, ...params };
    for (const [key, value] of Object.entries(given)) {
      if (typeof value !== "number" || key === "case") continue;
      const label = make("label", home, `${key} `), box = make("input", label, "", "short", { type: "number", step: "any", "aria-label": key });
      box.value = Number(Number(value).toPrecision(6));
      box.addEventListener("change", () => load(name, { ...params, [key]: box.value }));
    }
  }

  pick.addEventListener("change", () => { const [name, params] = rows[Number(pick.value)]; load(name, params); });
  return { load };
}
