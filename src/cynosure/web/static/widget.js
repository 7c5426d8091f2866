// The page's picture in a notebook: tokens one can hold, answered by the kernel. `cynosure.widget`
// puts this file behind dom.js and scene.js in one module.
import { draw, make, perFrame, short } from "./dom.js";
import { Scene } from "./scene.js";

function render({ model, el }) {
  el.classList.add("cynosure");
  const bar = make("div", el, "", "bar"), badge = make("span", bar, "", "badge"), said = make("span", bar, "");
  const svg = draw("svg", make("div", el, "", "stage"), { viewBox: "0 0 800 560", role: "application", "aria-label": "tokens; drag one, double-click adds one" });
  const line = make("label", el, "α ", "slider"), alphaSaid = make("output", line), alpha = make("input", line, "", "", { type: "range", min: -3, max: 3, step: 0.02, "aria-label": "alpha, logarithmic" });
  const steps = make("div", el, "", "slider"), play = make("button", steps, "▶", "", { type: "button", "aria-label": "play" });
  const layer = make("input", steps, "", "", { type: "range", min: 0, max: 30, step: 1, value: 0, "aria-label": "layer" }), layerSaid = make("output", steps);
  const scene = new Scene(svg, { editable: false }), colours = new Map();
  const told = model.get("walk") || null; // a run that is shown as it is
  let z = told ? told.states[0] : model.get("z"), found = null, hand = null, busy = false, next = false;
  let walk = told, k = 0, timer = null, wanted = null;
  line.hidden = badge.hidden = Boolean(told);

  // One question at a time, and of those asked meanwhile only the last.
  function ask() {
    if (told) return;
    if (busy) { next = true; return; }
    busy = true;
    model.send({ z, alpha: model.get("alpha") });
  }
  model.on("msg:custom", (answer) => {
    if (answer.walk) { walk = answer.walk; arrived(); return; }
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

  // The run of these tokens is asked for when somebody wants to see it, and forgotten when they change.
  function forget() { if (!told) { walk = null; stop(); go(0); } }
  function stop() { clearInterval(timer); timer = null; play.textContent = "▶"; play.ariaLabel = "play"; }
  function go(to) { k = to; layer.value = to; redraw(); }
  function want(then) { wanted = then; if (walk) arrived(); else model.send({ walk: true, z, alpha: model.get("alpha") }); }
  function arrived() { layer.max = walk.states.length - 1; const then = wanted; wanted = null; then?.(); redraw(); }
  function start() {
    if (k >= walk.states.length - 1) go(0);
    play.textContent = "❚❚";
    play.ariaLabel = "pause";
    timer = setInterval(() => { if (k < walk.states.length - 1) go(k + 1); else stop(); }, 250);
  }
  play.addEventListener("click", () => (timer ? stop() : want(start)));
  layer.addEventListener("input", () => { const to = Number(layer.value); stop(); want(() => go(Math.min(to, walk.states.length - 1))); });

  const redraw = perFrame(() => {
    alphaSaid.textContent = short(model.get("alpha"), 3);
    layerSaid.textContent = walk ? `${walk.unit} ${short(walk.t[k], 3)}` : "layer 0";
    if (walk && (told || k > 0)) {
      scene.draw({
        points: walk.states[k], group: (i) => walk.group[i], leads: (i) => walk.born[i] >= 0 && walk.born[i] <= walk.t[k],
        open: () => false, chosen: new Set(), names: Boolean(walk.words), name: (i) => walk.words[i], trails: walk.states.slice(0, k + 1),
      });
      return;
    }
    const known = found && found.points.length === z.length ? found : null, undecided = new Set(known?.undecided);
    scene.draw({
      points: z, ends: known?.points, hull: known?.hull?.vertices, polytope: known?.polytope?.vertices,
      group: (i) => (known ? colours.get(known.follows[i]) ?? -1 : -1),
      leads: (i) => (known ? known.born[i] >= 0 : false), open: (i) => undecided.has(i), chosen: new Set(hand?.by ? [hand.i] : []),
    });
  });

  function keep() { model.set("z", z); model.save_changes(); }

  svg.addEventListener("pointerdown", (event) => {
    const place = scene.toWorld(event), i = scene.at(place);
    if (z[0].length === 3) { // the stage is turned
      svg.setPointerCapture(event.pointerId);
      hand = { turn: [...scene.turn], from: [event.clientX, event.clientY] };
      return;
    }
    if (i === undefined || z[0].length !== 2 || told) return;
    forget();
    svg.setPointerCapture(event.pointerId);
    hand = { i, by: [z[i][0] - place[0], z[i][1] - place[1]] };
  });
  svg.addEventListener("pointermove", (event) => {
    if (!hand) return;
    if (hand.turn) {
      scene.turn = [hand.turn[0] - (event.clientX - hand.from[0]) / 150, hand.turn[1] + (event.clientY - hand.from[1]) / 150];
      redraw();
      return;
    }
    const place = scene.toWorld(event);
    z = [...z];
    z[hand.i] = [place[0] + hand.by[0], place[1] + hand.by[1]];
    redraw();
    ask();
  });
  const release = () => { const moved = hand && !hand.turn; if (hand?.turn) scene.fit(told ? told.states.flat() : z); hand = null; if (moved) { keep(); ask(); } };
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", release);
  svg.addEventListener("dblclick", (event) => {
    const place = scene.toWorld(event);
    if (z[0].length !== 2 || told || scene.at(place) !== undefined) return;
    forget();
    z = [...z, place];
    keep();
    ask();
  });
  alpha.addEventListener("input", () => {
    model.set("alpha", Number(Math.exp(Number(alpha.value)).toPrecision(3)));
    model.save_changes();
  });
  model.on("change:alpha", () => { forget(); alpha.value = Math.log(model.get("alpha")); redraw(); ask(); });
  model.on("change:z", () => { if (!told && model.get("z") !== z) { z = model.get("z"); forget(); scene.fit(z); redraw(); ask(); } });
  alpha.value = Math.log(model.get("alpha"));
  scene.fit(told ? told.states.flat() : z);
  if (told) { said.textContent = told.about; arrived(); }
  redraw();
  ask();
}

export default { render };
