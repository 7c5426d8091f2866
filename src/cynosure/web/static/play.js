// Play: tokens one can hold. The page sends tokens and draws answers; every claim is the server's.
import { fetchFile, get, isLocal, post } from "./api.js";
import { calm, remember, remembered, say } from "./app.js";
import { Beside } from "./beside.js";
import { Claims } from "./claims.js";
import { $, later, latest, perFrame, short, write } from "./dom.js";
import { FormView, isDefinite } from "./ellipse.js";
import { exporting } from "./exports.js";
import { gestures } from "./gestures.js";
import { followed, layer, scoresOf } from "./hardmax.js";
import { presets, startOf } from "./presets.js";
import { everyTh, Scene } from "./scene.js";
import { fresh, fromLink, Past, toLink } from "./state.js";
import { telling } from "./story.js";
import { showTheorems } from "./theorems.js";
import { Timeline } from "./timeline.js";

const GROUNDS = {
  basins: "One more token there is proved to tend to the leader of that colour; white: it would lead itself; grey: no leader.",
  cells: "The leader of that colour has the largest score there: a power diagram.",
};
const LONGEST_LINK = 100_000; // characters that an address bar holds
const MOST_CHECKED = 300; // tokens; beyond, the theorems are checked when asked

export async function open() {
  const play = new Play();
  await play.start();
  return play;
}

class Play {
  constructor() {
    this.state = fresh();
    this.local = isLocal; // whether answers are the browser's own, which proves nothing
    this.scene = new Scene($("stage"));
    this.beside = new Beside(this);
    this.other = this.beside.scene;
    this.chosen = new Set();
    this.choosing = false;
    this.found = null; // the limit, for the tokens it was asked for
    this.run = null; // states by layer
    this.colours = new Map();
    this.form = new FormView((A) => this.change({ A }), () => this.settle());
    this.version = 0; // of what is on the stage: an answer says which it is about
    this.ran = -1;
    this.current = false; // whether `found` is about what is shown
    this.time = new Timeline(this);
    this.claims = new Claims(this);
    this.askLimit = latest((body) => post("limit", body), (...answer) => this.take(...answer), (error) => say(error, "limit"));
    this.askRun = latest((body) => post("simulate", body), (...answer) => this.takeRun(...answer), say);
    this.askCheck = latest((body) => post("check", body), (made) => showTheorems(made, this), (e) => showTheorems(e, this));
    this.askBasins = latest((body) => post("basins", body), (found, body) => this.takeBasins(found, body), (error, body) => this.missBasins(error, body));
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
      try { this.reset(await fromLink(link, startOf)); return; }
      catch { say(new Error("this link holds no tokens; here is a start instead")); }
    }
    if (!this.n) await this.presets.load("gaussian", { n: 40, seed: 2 });
    else this.draw();
  }

  // --- changes ----------------------------------------------------------------------------------

  // Other tokens altogether; undo goes back to those before.
  reset(state) {
    if (this.time.timer) this.time.stop();
    this.state = state;
    this.chosen.clear();
    this.found = this.run = this.ground = this.scored = null;
    this.scene.showGround(null);
    this.scene.fit(this.visible(state.z));
    this.beside.fill();
    this.refresh();
    if (this.past) this.settle(); else this.past = new Past(state);
    this.buttons();
  }

  change(parts) {
    this.beside.together(parts);
    if (parts.z && !parts.exact) parts.exact = null; // moved tokens are floats again
    const only = Object.keys(parts).every((key) => ["z", "exact", "words"].includes(key));
    Object.assign(this.state, parts);
    this.refresh(!only, true);
  }

  // The end of a gesture is what undo goes back to, and what is answered in words.
  settle() {
    if (this.brief) this.askLimit(this.limitBody(), this.version);
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
    const anew = !this.found || this.found.points.length !== this.n;
    if (anew) this.found = null;
    if (this.run && this.run.z[0].length !== this.n) this.run = null;
    this.version += 1;
    this.current = false;
    this.claims.pending(anew);
    if (brief) this.redraw(); else this.draw();
    if (controls) this.controls();
    this.askLimit(this.limitBody(brief), this.version);
    if (this.state.k !== 0) this.askRun(this.runBody(), this.version);
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
    const body = { tokens: this.tokens(), alpha: exact ? this.rationalAlpha() : alpha, exact, brief, followed: !brief && this.n <= 300, deadline: this.claims.deadline };
    if (A) body.A = A;
    if (!isDefinite(A)) body.max_layers = 2000;
    return body;
  }

  // 0.1 on the slider means one tenth when decisions are rational.
  rationalAlpha() { return String(Number(this.state.alpha.toPrecision(3))); }

  runBody(layers = this.time.last) {
    const { A, alpha, z } = this.state, body = { tokens: z, alpha, layers };
    if (A) body.A = A;
    return body;
  }

  follow() {
    if (this.ran !== this.version) this.askRun(this.runBody(), this.version);
    this.beside.follow();
  }

  rest() {
    if (this.ran !== this.version) this.askRun(this.runBody(), this.version);
    if (this.local) return;
    if (this.n <= MOST_CHECKED) this.check(); else showTheorems(null, this);
    if (this.background) this.basins(); else this.scene.showGround(null);
  }

  get background() { return ["basins", "cells"].find((kind) => this.state.show[kind]); }

  check() { this.askCheck(this.runBody()); }

  basins() {
    if (this.d !== 2) { write($("ground-said"), "Backgrounds need tokens of the plane."); return; }
    const [corner, opposite] = this.scene.corners();
    const [most, numbers] = this.background === "cells" ? [100, 1000000] : [60, 400000]; // cells cost little
    const side = Math.max(12, Math.min(most, Math.floor(Math.sqrt(numbers / this.n))));
    const { z, alpha, A } = this.state, body = { tokens: z, alpha, corner, opposite, side, kind: this.background };
    if (A) body.A = A;
    write($("ground-said"), `Computing the ${this.background} of ${side} × ${side} places …`);
    this.askBasins(body);
  }

  takeBasins(found, body) {
    this.missed = 0;
    if (body.kind !== this.background) return;
    write($("ground-said"), "");
    this.ground = { ...found, corner: body.corner, opposite: body.opposite };
    this.draw();
  }

  // A server that has just started may be stopped while it compiles: it is asked again.
  missBasins(error, body) {
    if (body.kind !== this.background) { write($("ground-said"), ""); return; }
    this.missed = (this.missed || 0) + 1;
    const again = this.missed < 4 && [422, 503].includes(error.status) && /stopped|busy|again/.test(error.message);
    write($("ground-said"), again ? `${error.message}. Asking again …` : error.message);
    if (again) setTimeout(() => { if (body.kind === this.background) this.basins(); }, 500);
    else this.missed = 0;
  }

  // --- answers ----------------------------------------------------------------------------------

  take(found, body, version) {
    if (found.points.length !== this.n || found.points[0].length !== this.d) return;
    this.found = found;
    this.current = version === this.version;
    this.paint(found.leaders);
    calm("limit");
    this.time.reach();
    this.redraw();
    if (this.claims.take(found, body, this.current)) this.askLimit(this.limitBody(), this.version);
    if (this.run && this.run.z.length <= this.time.last) this.askRun(this.runBody(), this.version);
    this.claims.hover();
  }

  takeRun(run, body, version) {
    if (run.z[0].length !== this.n) return;
    this.run = run;
    this.ran = version;
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
    if (k === "inf") return this.found && this.d <= 3 ? this.found.points : this.visible(this.run ? this.run.z.at(-1) : z, Infinity);
    if (k === 0 || !this.run) return this.visible(z, 0);
    return this.visible(this.run.z[Math.min(k, this.run.z.length - 1)], k);
  }

  // Where the arrows end: after one more layer, or in the limit.
  ends() {
    const { show, k, z, alpha, A } = this.state, { run, found } = this;
    if (k === "inf" || show.arrows === "none" || this.d > 3) return null;
    if (show.arrows === "limit") return found?.points ?? null;
    if (k > 0) return run?.z[k + 1] ?? null;
    if (run && this.ran === this.version) return run.z[1];
    const each = everyTh(this.n);
    return layer(z, alpha, A, followed(z, A, (i) => i % each === 0 || this.chosen.has(i)));
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

  // A star from the layer on at which it is born; before, it moves like any other.
  leads(i) {
    const born = this.found?.born[i] ?? -1;
    return born >= 0 && (this.state.k === "inf" || born <= this.state.k);
  }

  name(i) { return this.state.words?.[i] ?? ""; }

  // What the token that was pointed at last scores each token with, where they are now.
  scores() {
    const i = this.hovered ?? this.scored, z = this.state.k === 0 ? this.state.z : this.d <= 3 ? this.now() : null;
    if (!this.state.show.scores || !z || i === undefined || i === null || i >= z.length) return null;
    this.scored = i;
    const values = scoresOf(z, this.state.A, i);
    return { i, values, best: Math.max(...values) };
  }

  draw() {
    const plain = Number(document.body.dataset.story) < 4; // of the story: nobody was called a leader yet
    const { found, state } = this, group = plain ? () => 0 : this.groups(), ends = this.ends();
    const undecided = new Set((!plain && found?.undecided) || []), leads = (i) => !plain && this.leads(i);
    const flat = this.d <= 2, show = state.show, crowd = (found?.leaders.length || 0) > 10;
    if (this.background && this.ground && flat) this.scene.showGround(this.ground, (i) => group(i));
    this.scene.draw({
      points: this.now(), group, chosen: this.chosen, names: show.names || crowd || !!state.words,
      named: show.names || state.words ? null : leads, name: (i) => this.name(i) || String(i),
      leads, open: (i) => undecided.has(i), follows: plain || state.k === 0 ? null : found?.follows,
      label: found?.words ? (i) => `token ${i}: ${found.words[i]}` : null,
      hull: show.hull && flat && state.k === 0 ? found?.hull?.vertices : null,
      polytope: show.polytope && flat ? found?.polytope?.vertices : null,
      edges: show.polytope && this.d === 3 ? found?.polytope : null,
      ends, trails: this.time.trail(), scores: this.scores(),
    });
    this.beside.draw(group);
    write($("stage-caption"), this.caption(flat, ends));
  }

  caption(flat, ends) {
    const { state, n, d } = this, arrows = state.show.arrows === "limit" ? "arrows: to the limit" : "arrows: the next step";
    if (flat && this.ground && this.background) return GROUNDS[this.background];
    const said = [state.k === "inf" ? "in the limit" : `layer ${state.k}`];
    if (state.beside) said.push(`hardmax layers, α = ${short(state.alpha)}`);
    if (d > 2) said.push(d > 3 ? `d = ${d}: along the three principal components; drag to turn` : "d = 3: drag the ground to turn");
    if (ends) said.push(everyTh(n) > 1 ? `${arrows}, of every ${everyTh(n)}th token` : arrows);
    return said.join(" · ");
  }

  // --- controls ---------------------------------------------------------------------------------

  controls() {
    this.presets?.show(this.state.from);
    const { alpha, A, show, rational } = this.state;
    $("alpha").value = Math.log(alpha);
    $("alpha-shown").textContent = short(alpha, 3);
    this.time.show();
    $("exact").checked = rational;
    for (const box of document.querySelectorAll("[data-show]")) box.checked = show[box.dataset.show];
    $("arrows").value = show.arrows;
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
          write($("ground-said"), "");
          this.rest();
          this.controls();
        }
        this.draw();
        this.settle();
      });
    }
    $("arrows").addEventListener("change", (e) => { this.state.show.arrows = e.target.value; this.draw(); this.settle(); });
    $("intro").hidden = remembered("intro") === "read";
    $("intro-close").addEventListener("click", () => { $("intro").hidden = true; remember("intro", "read"); });
    $("choose").addEventListener("click", () => this.choose());
    $("steer").addEventListener("click", () => this.steer());
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
        $("control-said").textContent = `${leaders.length === 1 ? "Token" : "Tokens"} ${leaders.join(", ")} ${leaders.length === 1 ? "leads" : "lead"} under this A (margin ${short(found.margin, 3)}, condition ${short(found.condition, 3)}): ${found.words}.`;
      } else $("control-said").textContent = `No such A: ${found.words}.`;
    } catch (error) { $("control-said").textContent = error.message; }
  }

  // The address: the configuration and what was changed of it, or all tokens.
  async address() { return `#play=${toLink(this.state, await this.base())}`; }

  base() { return this.state.from ? startOf(...this.state.from).catch(() => null) : null; }

  async writeLink() {
    const version = this.version, hash = await this.address();
    if (version !== this.version) return; // a newer one is on its way
    if (!$("room-play").hidden && !telling() && hash.length < LONGEST_LINK) history.replaceState(null, "", hash);
    $("stage").dataset.link = "written";
  }

  file(format) { return fetchFile("simulate", { ...this.runBody(), format }); }
}
