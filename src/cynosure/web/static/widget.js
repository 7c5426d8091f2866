// The page's picture in a notebook: tokens one can hold, answered by the kernel. `cynosure.widget`
// puts this file behind dom.js and scene.js in one module.
import { draw, make, perFrame, short } from "./dom.js";
import { Scene } from "./scene.js";

function render({ model, el }) {
  el.classList.add("cynosure");
  const bar = make("div", el, "", "bar"), badge = make("span", bar, "", "badge"), said = make("span", bar, "");
  const svg = draw("svg", make("div", el, "", "stage"), { viewBox: "0 0 800 560", role: "application", "aria-label": "tokens; drag one, double-click adds one" });
  const line = make("label", el, "α ", "slider"), alphaSaid = make("output", line), alpha = make("input", line, "", "", { type: "range", min: -3, max: 3, step: 0.02, "aria-label": "alpha, logarithmic" });
  const scene = new Scene(svg, { editable: false }), colours = new Map();
  let z = model.get("z"), found = null, hand = null, busy = false, next = false;

  // One question at a time, and of those asked meanwhile only the last.
  function ask() {
    if (busy) { next = true; return; }
    busy = true;
    model.send({ z, alpha: model.get("alpha") });
  }
  model.on("msg:custom", (answer) => {
    busy = false;
    if (answer.problem) said.textContent = answer.problem;
    else if (answer.found.points.length === z.length) { found = answer.found; tell(); redraw(); }
    if (next) { next = false; ask(); }
  });

  function tell() {
    badge.dataset.certified = String(found.certified);
    badge.textContent = found.certified ? "proved" : `${found.undecided.length} undecided`;
    said.textContent = `${found.leaders.length} of ${z.length} tokens lead`;
    for (const i of found.leaders) if (!colours.has(i)) colours.set(i, colours.size);
  }

  const redraw = perFrame(() => {
    alphaSaid.textContent = short(model.get("alpha"), 3);
    const known = found && found.points.length === z.length ? found : null, undecided = new Set(known?.undecided);
    scene.draw({
      points: z, arrows: true, limits: known?.points, hull: known?.hull?.vertices, polytope: known?.polytope?.vertices,
      group: (i) => (known ? colours.get(known.follows[i]) ?? -1 : -1),
      leads: (i) => (known ? known.born[i] >= 0 : false), open: (i) => undecided.has(i), chosen: new Set(hand ? [hand.i] : []),
    });
  });

  function keep() { model.set("z", z); model.save_changes(); }

  svg.addEventListener("pointerdown", (event) => {
    const place = scene.toWorld(event), i = scene.at(place);
    if (i === undefined || z[0].length !== 2) return;
    svg.setPointerCapture(event.pointerId);
    hand = { i, by: [z[i][0] - place[0], z[i][1] - place[1]] };
  });
  svg.addEventListener("pointermove", (event) => {
    if (!hand) return;
    const place = scene.toWorld(event);
    z = [...z];
    z[hand.i] = [place[0] + hand.by[0], place[1] + hand.by[1]];
    redraw();
    ask();
  });
  const release = () => { if (hand) { hand = null; keep(); ask(); } };
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", release);
  svg.addEventListener("dblclick", (event) => {
    const place = scene.toWorld(event);
    if (z[0].length !== 2 || scene.at(place) !== undefined) return;
    z = [...z, place];
    keep();
    ask();
  });
  alpha.addEventListener("input", () => {
    model.set("alpha", Number(Math.exp(Number(alpha.value)).toPrecision(3)));
    model.save_changes();
  });
  model.on("change:alpha", () => { alpha.value = Math.log(model.get("alpha")); redraw(); ask(); });
  model.on("change:z", () => { if (model.get("z") !== z) { z = model.get("z"); scene.fit(z); redraw(); ask(); } });
  alpha.value = Math.log(model.get("alpha"));
  scene.fit(z);
  redraw();
  ask();
}

export default { render };
