// Where to start: every named configuration, with its parameters as small inputs.
import { get } from "./api.js";
import { say } from "./app.js";
import { $, make } from "./dom.js";
import { fresh } from "./state.js";

const NAMED = [
  ["figure2", { case: 1 }, "figure 2: triangle"], ["figure2", { case: 2 }, "figure 2: a leader is born"],
  ["figure2", { case: 3 }, "figure 2: square"], ["figure2", { case: 4 }, "figure 2: clusters without a leader"],
  ...["G1", "G2", "G2a", "G2b", "G2c", "G3", "G4"].map((name) => ["golden", { name }, `golden case ${name}`]),
  ["gaussian", { n: 40, seed: 2 }, "gaussian"], ["ball", {}, "ball"], ["box", {}, "box"], ["sphere", {}, "sphere"],
  ["polygon", { n: 6, interior: 20 }, "polygon"], ["grid", {}, "grid"], ["rotated_square", {}, "rotated square"],
  ["gaussian", { n: 200, seed: 1 }, "200 tokens"], ["gaussian", { n: 2000, seed: 1 }, "2,000 tokens"],
  ["gaussian", { n: 40, d: 3 }, "in space (d = 3)"], ["gaussian", { n: 40, d: 8 }, "in eight dimensions"],
];

export async function presets(play) {
  const known = await get("configurations"), pick = $("preset"), home = $("preset-fields");
  const rows = NAMED.filter(([name]) => known[name]);
  for (const name of Object.keys(known)) if (!rows.some((row) => row[0] === name)) rows.push([name, {}, name.replaceAll("_", " ")]);
  rows.forEach((row, at) => make("option", pick, row[2], "", { value: at }));

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
        play.found = play.run = play.side = null;
        play.scene.fit(play.visible(state.z));
        if (!same) play.fillBeside();
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
