// Play: tokens one can hold. The page sends tokens and draws answers; every claim is the server's.
import { fetchFile, get, latest, post } from "./api.js";
import { calm, remember, remembered, say } from "./app.js";
import { Beside } from "./beside.js";
import { $, later, perFrame, short, write } from "./dom.js";
import { FormView, isDefinite } from "./ellipse.js";
import { exporting } from "./exports.js";
import { gestures } from "./gestures.js";
import { presets } from "./presets.js";
import { MANY, Scene } from "./scene.js";
import { fresh, fromLink, LAYERS, Past, toLink } from "./state.js";
import { showTheorems } from "./theorems.js";

const GROUNDS = {
  basins: "One more token there is proved to tend to the leader of that colour; white: it would lead itself; grey: no leader.",
  cells: "The leader of that colour has the largest score there: a power diagram.",
};
const MOST_CHECKED = 300; // tokens; beyond, the theorems are checked when asked

export async function open() {
  const play = new Play();
  await play.start();
  return play;
}

class Play {
  constructor() {
    this.state = fresh();
    this.scene = new Scene($("stage"));
    this.beside = new Beside(this);
    this.other = this.beside.scene;
    this.chosen = new Set();
    this.choosing = false;
    this.found = null; // the limit, for the tokens it was asked for
    this.run = null; // states by layer
    this.colours = new Map();
    this.form = new FormView((A) => this.change({ A }), () => this.settle());
    this.askLimit = latest((body) => post("limit", body), (found) => this.take(found), (error) => say(error, "limit"));
    this.askRun = latest((body) => post("simulate", body), (run) => this.takeRun(run), say);
    this.askCheck = latest((body) => post("check", body), (made) => showTheorems(made, this), (e) => showTheorems(e, this));
    this.askBasins = latest((body) => post("basins", body), (found, body) => this.takeBasins(found, body), say);
    this.soon = later(120, () => this.follow());
    this.idle = later(600, () => this.rest());
    const soon = later(300, () => this.writeLink());
    this.link = () => { $("stage").dataset.link = "old"; soon(); };
    this.redraw = perFrame(() => this.draw());
  }

  get n() { return this.state.z.length; }
  get d() { return this.n ? this.state.z[0].length : 2; }
  get editable() { return this.d <= 3; }

  async start() {
    this.forms = await get("dynamics");
    this.presets = await presets(this);
    gestures(this);
    exporting(this);
    this.wire();
  }

  async visit(link) {
    if (link) {
      try { this.reset(fromLink(link)); return; }
      catch { say(new Error("this link holds no tokens; here is a start instead")); }
    }
    if (!this.n) await this.presets.load("gaussian", { n: 40, seed: 2 });
    else this.draw();
  }

  // --- changes ----------------------------------------------------------------------------------

  reset(state) {
    this.state = state;
    this.past = new Past(state);
    this.chosen.clear();
    this.scene.fit(this.visible(state.z));
    this.beside.fill();
    this.refresh();
  }

  change(parts) {
    this.beside.together(parts);
    if (parts.z && !parts.exact) parts.exact = null; // moved tokens are floats again
    const only = Object.keys(parts).every((key) => key === "z" || key === "exact");
    Object.assign(this.state, parts);
    this.refresh(!only, true);
  }

  // The end of a gesture is what undo goes back to, and what is answered in words.
  settle() {
    if (this.brief) this.askLimit(this.limitBody());
    this.beside.settle();
    this.past.keep(this.state);
    this.buttons();
    this.link();
  }

  travel(state) {
    if (!state) return;
    this.state = state;
    this.chosen.clear();
    this.beside.fill();
    this.refresh();
    this.buttons();
  }

  // While a token is dragged nothing but tokens changes, and that many times a second.
  refresh(controls = true, brief = false) {
    if (this.found && this.found.points.length !== this.n) this.found = null;
    if (this.run && this.run.z[0].length !== this.n) this.run = null;
    if (brief) this.redraw(); else this.draw();
    if (controls) this.controls();
    this.askLimit(this.limitBody(brief));
    if (this.state.k !== 0) this.askRun(this.runBody());
    this.beside.follow(brief);
    this.soon();
    this.idle();
    this.link();
  }

  tokens() { return this.state.rational && this.state.exact ? this.state.exact : this.state.z; }

  limitBody(brief = false) {
    this.brief = brief;
    const { A, alpha, rational } = this.state;
    const exact = rational && this.n <= 200;
    const body = { tokens: this.tokens(), alpha: exact ? this.rationalAlpha() : alpha, exact, brief, followed: !brief && this.n <= 300, deadline: 3 };
    if (A) body.A = A;
    if (!isDefinite(A)) body.max_layers = 2000;
    return body;
  }

  // 0.1 on the slider means one tenth when decisions are rational.
  rationalAlpha() { return String(Number(this.state.alpha.toPrecision(3))); }

  runBody(layers = LAYERS) {
    const { A, alpha, z } = this.state, body = { tokens: z, alpha, layers };
    if (A) body.A = A;
    return body;
  }

  follow() {
    if (!this.run || this.state.k !== 0) this.askRun(this.runBody());
    this.beside.follow();
  }

  rest() {
    this.askRun(this.runBody());
    if (this.n <= MOST_CHECKED) this.check(); else showTheorems(null, this);
    if (this.background) this.basins(); else this.scene.showGround(null);
  }

  get background() { return ["basins", "cells"].find((kind) => this.state.show[kind]); }

  check() { this.askCheck(this.runBody()); }

  basins() {
    if (this.d !== 2) return;
    const [corner, opposite] = this.scene.corners();
    const [most, numbers] = this.background === "cells" ? [100, 1000000] : [60, 400000]; // cells cost little
    const side = Math.max(12, Math.min(most, Math.floor(Math.sqrt(numbers / this.n))));
    const { z, alpha, A } = this.state, body = { tokens: z, alpha, corner, opposite, side, kind: this.background };
    if (A) body.A = A;
    this.askBasins(body);
  }

  takeBasins(found, body) {
    if (body.kind !== this.background) return;
    this.ground = { ...found, corner: body.corner, opposite: body.opposite };
    this.draw();
  }

  // --- answers ----------------------------------------------------------------------------------

  take(found) {
    if (found.points.length !== this.n) return;
    this.found = found;
    this.paint(found.leaders);
    calm("limit");
    this.redraw();
    this.tell();
  }

  takeRun(run) {
    if (run.z[0].length !== this.n) return;
    this.run = run;
    this.draw();
  }

  // --- drawing ----------------------------------------------------------------------------------

  // Tokens of more than three dimensions are seen along the principal components of the run.
  visible(points, k = 0) {
    if (this.d <= 3) return points;
    const view = this.run?.view;
    return view ? view[Math.min(k, view.length - 1)] : points.map((row) => row.slice(0, 3));
  }

  now() {
    const { k, z } = this.state;
    if (k === "inf") return this.found && this.d <= 3 ? this.found.points : this.visible(this.run ? this.run.z.at(-1) : z, LAYERS);
    if (k === 0 || !this.run) return this.visible(z, 0);
    return this.visible(this.run.z[Math.min(k, this.run.z.length - 1)], k);
  }

  // A leader keeps its colour as long as it leads, whoever comes and goes.
  paint(leaders) {
    const wanted = new Set(leaders);
    for (const i of this.colours.keys()) if (!wanted.has(i)) this.colours.delete(i);
    const taken = new Set(this.colours.values());
    for (const i of leaders) {
      if (this.colours.has(i)) continue;
      let slot = 0;
      while (taken.has(slot)) slot++;
      taken.add(slot);
      this.colours.set(i, slot);
    }
  }

  groups() { return (i) => (this.found ? this.colours.get(this.found.follows[i]) ?? -1 : -1); }

  leads(i) {
    const born = this.found?.born[i] ?? -1, k = this.state.k === "inf" ? Infinity : this.state.k;
    return born >= 0 && (born <= k || k === 0);
  }

  draw() {
    const { found, state } = this, group = this.groups();
    const undecided = new Set(found?.undecided || []);
    const flat = this.d <= 2, show = state.show;
    if (this.background && this.ground && flat) this.scene.showGround(this.ground, (i) => group(i));
    this.scene.draw({
      points: this.now(), group, chosen: this.chosen, names: show.names,
      leads: (i) => this.leads(i), open: (i) => undecided.has(i), follows: state.k === 0 ? null : found?.follows,
      label: found?.words ? (i) => `token ${i}: ${found.words[i]}` : null,
      hull: show.hull && flat && state.k === 0 ? found?.hull?.vertices : null,
      polytope: show.polytope && flat ? found?.polytope?.vertices : null,
      edges: show.polytope && this.d === 3 ? found?.polytope : null,
      arrows: show.arrows && state.k !== "inf", limits: this.d <= 3 ? found?.points : null,
    });
    this.beside.draw(group);
    const ground = flat && this.ground ? GROUNDS[this.background] : "";
    write($("stage-caption"), ground ? ground : this.n > MANY && show.arrows ? `${this.n} tokens; arrows of every ${Math.ceil(this.n / MANY)}th` : this.state.beside ? `Hardmax layers, α = ${short(state.alpha)}` :
      this.d > 3 ? `d = ${this.d}: along the three principal components; drag to turn` : this.d === 3 ? "d = 3: drag the ground to turn" : "");
  }

  tell() {
    const { found } = this, badge = $("badge"), open = found.undecided.length;
    if (badge.dataset.certified !== String(found.certified)) badge.dataset.certified = String(found.certified);
    write(badge, found.certified ? "proved" : `${open} undecided`);
    write($("proof-here"), `Here: ${found.layers} layers were walked and ${found.exact_decisions} ties decided in exact arithmetic.`);
    const lead = found.leaders.length, last = Math.max(0, ...found.settled_at);
    const late = found.leaders.filter((i) => found.born[i] > 0);
    write($("said"), `${lead} of ${this.n} ${this.n === 1 ? "token leads" : "tokens lead"}` +
      (found.certified ? `; every limit is proved ${last ? `by layer ${last}` : "at once"}.` :
        `; ${open} not proved after ${found.layers} layers.`) +
      (late.length ? ` Token ${late[0]} becomes a leader at layer ${found.born[late[0]]}.` : ""));
    write($("cautions"), found.cautions.join(". "));
    this.showHover();
  }

  showHover() {
    const i = this.hovered, { found } = this;
    if (i === undefined || !found?.words || i >= this.n) { this.scene.hideHalf(); return ""; }
    const set = found.followed?.[i], z = this.state.z[i];
    const exact = found.exact_points ? `\nlimit ${found.exact_points[i].map((x, j) => (x.length > 24 ? "≈" + short(found.points[i][j], 8) : x)).join(", ")}` :
      `\nlimit ${found.points[i].map((x) => short(x)).join(", ")}`;
    if (set && this.state.k === 0 && this.d === 2) {
      const A = this.state.A || [[1, 0], [0, 1]];
      const normal = [A[0][0] * z[0] + A[0][1] * z[1], A[1][0] * z[0] + A[1][1] * z[1]];
      const to = this.state.z[set[0]];
      this.scene.showHalf(normal, normal[0] * to[0] + normal[1] * to[1], z);
    }
    const given = this.state.rational && this.state.exact ? this.state.exact[i] : z.map((x) => short(x));
    return `token ${i} at ${given.join(", ")}\n${found.words[i]}` +
      (set ? `\nC = {${set.slice(0, 12).join(", ")}${set.length > 12 ? ", …" : ""}} at layer 0` : "") + exact +
      (found.margin[i] === null ? "" : `\nsmallest gap ${short(found.margin[i], 3)}`);
  }

  // --- controls ---------------------------------------------------------------------------------

  controls() {
    const { alpha, A, k, show, rational } = this.state;
    $("alpha").value = Math.log(alpha);
    $("alpha-shown").textContent = short(alpha, 3);
    $("layer").value = k === "inf" ? LAYERS + 1 : k;
    $("at").textContent = k === "inf" ? "∞" : k;
    $("exact").checked = rational;
    for (const box of document.querySelectorAll("[data-show]")) box.checked = show[box.dataset.show];
    this.form.show(A, this.d);
    this.buttons();
  }

  buttons() {
    $("undo").disabled = !this.past?.back.length;
    $("redo").disabled = !this.past?.ahead.length;
    for (const name of ["duplicate", "delete"]) $(name).disabled = !this.chosen.size;
    $("steer").hidden = !this.choosing;
    $("choose").setAttribute("aria-pressed", String(this.choosing));
  }

  wire() {
    $("alpha").addEventListener("input", (e) => this.change({ alpha: Number(Math.exp(Number(e.target.value)).toPrecision(3)) }));
    $("alpha").addEventListener("change", () => this.settle());
    $("identity").addEventListener("click", () => { this.change({ A: null }); this.settle(); });
    $("exact").addEventListener("change", (e) => { this.change({ rational: e.target.checked }); this.settle(); });
    $("undo").addEventListener("click", () => this.travel(this.past.undo()));
    $("redo").addEventListener("click", () => this.travel(this.past.redo()));
    $("fit").addEventListener("click", () => { this.scene.fit(this.now()); this.other.fit(this.now()); this.draw(); this.idle(); });
    for (const box of document.querySelectorAll("[data-show]")) {
      box.addEventListener("change", () => {
        this.state.show[box.dataset.show] = box.checked;
        if (["basins", "cells"].includes(box.dataset.show)) { // one background at a time
          this.state.show[box.dataset.show === "basins" ? "cells" : "basins"] = false;
          this.ground = null;
          this.rest();
          this.controls();
        }
        this.draw();
        this.settle();
      });
    }
    $("layer").addEventListener("input", (e) => this.goTo(Number(e.target.value)));
    $("layer").addEventListener("change", () => this.settle());
    $("run").addEventListener("click", () => this.playStop());
    $("badge").addEventListener("click", () => {
      const note = $("proof");
      note.hidden = !note.hidden;
      $("badge").setAttribute("aria-expanded", String(!note.hidden));
    });
    $("intro").hidden = remembered("intro") === "read";
    $("intro-close").addEventListener("click", () => { $("intro").hidden = true; remember("intro", "read"); });
    $("choose").addEventListener("click", () => this.choose());
    $("steer").addEventListener("click", () => this.steer());
  }

  goTo(stop) {
    this.state.k = stop > LAYERS ? "inf" : stop;
    if (!this.run && stop > 0) this.askRun(this.runBody());
    this.draw();
    this.controls();
    this.link();
  }

  // Whoever takes hold of something has seen enough of the movie.
  stop() {
    clearInterval(this.timer);
    this.timer = 0;
    $("run").textContent = "▶";
  }

  playStop() {
    const button = $("run");
    if (this.timer) { this.stop(); this.settle(); return; }
    if (this.state.k === "inf") this.goTo(0);
    button.textContent = "❚❚";
    this.timer = setInterval(() => {
      const k = this.state.k;
      if (k === "inf") { this.playStop(); return; }
      // Late layers change little: go faster, and end at infinity.
      this.goTo(k < 12 ? k + 1 : k < LAYERS ? Math.min(k + 3, LAYERS) : LAYERS + 1);
    }, 180);
  }

  choose() {
    this.choosing = !this.choosing;
    this.chosen.clear();
    $("control-said").textContent = this.choosing ? "Click the tokens that shall lead, then Find A." : "";
    this.draw();
    this.buttons();
  }

  async steer() {
    const leaders = [...this.chosen];
    if (!leaders.length) { $("control-said").textContent = "Click the tokens that shall lead first."; return; }
    $("control-said").textContent = "Looking for A …";
    try {
      const found = await post("control", { tokens: this.state.z, leaders });
      if (found.feasible) {
        this.change({ A: found.A });
        this.settle();
        $("control-said").textContent = `Tokens ${leaders.join(", ")} lead under this A (margin ${short(found.margin, 3)}, condition ${short(found.condition, 3)}): ${found.words}.`;
      } else $("control-said").textContent = `No such A: ${found.words}.`;
    } catch (error) { $("control-said").textContent = error.message; }
  }

  writeLink() {
    $("stage").dataset.link = "written";
    if ($("room-play").hidden || this.n > 1500) return;
    history.replaceState(null, "", `#play=${toLink(this.state)}`);
  }

  file(format) { return fetchFile("simulate", { ...this.runBody(), format }); }
}
