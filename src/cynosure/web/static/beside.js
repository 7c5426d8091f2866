// The same tokens under another dynamics, beside the hardmax layers.
import { post } from "./api.js";
import { say } from "./app.js";
import { $, later, latest, short, write } from "./dom.js";
import { dynamicsForm } from "./forms.js";
import { Scene } from "./scene.js";
import { telling } from "./story.js";

export class Beside {
  constructor(play) {
    this.play = play;
    this.scene = new Scene($("beside"), { editable: false });
    this.run = null;
    this.ask = latest((body) => post("simulate", body), (run) => this.take(run), (error) => { $("beside-caption").textContent = error.message; });
    // Which tokens are proved to follow hardmax until which layer; asked for once all is at rest.
    this.proof = null;
    this.askProof = latest((body) => post("shadow", body), (found) => this.takeProof(found), (error) => write($("beside-proof"), `Not proved: ${error.message}`));
    this.soonProof = later(250, () => { if (this.provable) { write($("beside-proof"), "Proving …"); this.askProof({ tokens: this.play.state.z, dynamics: this.body().dynamics }); } });
    $("soft").addEventListener("click", () => this.toggle());
  }

  get spec() { return this.play.state.beside; }

  // Layers that are asked for here, which the slider must reach; 0 of a flow.
  get layers() { return this.spec && !this.play.forms.dynamics[this.spec.name]?.in_time ? this.spec.clock : 0; }

  body(brief) {
    const { clock, ...dynamics } = this.spec, { play } = this;
    const body = { tokens: play.state.z, dynamics, recognise: !brief && play.n <= 200 };
    body[play.forms.dynamics[dynamics.name].in_time ? "time" : "layers"] = clock;
    return body;
  }

  // Softmax layers have a proof; beside hardmax layers of the same step and form, where they agree. The story shows clusters.
  get provable() {
    const { spec, play } = this;
    return !!spec && !telling() && !play.local && play.n <= 100 && play.d <= 10 && spec.name === "pure_attention" && spec.attention?.name === "softmax";
  }

  get alike() {
    const { alpha, A } = this.play.state, same = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
    return Number(this.spec.alpha) === alpha && same(this.spec.attention.A, A);
  }

  follow(brief = false) {
    if (!this.spec) return;
    this.ask(this.body(brief));
    this.proof = null;
    write($("beside-proof"), "");
    this.soonProof();
  }

  takeProof(found) {
    if (!this.provable || found.agrees_until.length !== this.play.n) return;
    this.proof = found;
    write($("beside-proof"), this.proved(found));
    this.play.redraw();
  }

  proved({ agrees_until, tolerance, plateaus, layers }) {
    const count = (x) => (x < 1e6 ? Math.floor(x).toLocaleString("en") : x === null || x >= 1e300 ? "10³⁰⁰" : x.toExponential(1).replace("e+", "·10^"));
    const most = Math.max(...agrees_until), least = Math.min(...agrees_until), last = plateaus.at(-1);
    const many = agrees_until.filter((k) => k >= 0.99 * most).length, n = agrees_until.length;
    const agree = this.alike ? `Proved: each token within ${short(tolerance, 2)} of its hardmax place up to layer ${count(least)}` +
      (many < n && most > least ? `, ${many} of ${n} up to layer ${count(most)}` : "") + "; rings: no longer proved. " : "";
    if (!last) return `${agree}No lasting clusters within ${layers} layers.`;
    const { clusters, since, log10_lasts: log } = last, k = clusters.length;
    if (k === 1) return `${agree}Proved: one cluster from layer ${since} on.`;
    return `${agree}Proved: ${k} clusters from layer ${since} for at least ${log < 6 ? count(10 ** log) : `10^${short(log, 3)}`} layers.`;
  }

  // Softmax layers with the step and the form of the stage: the one comparison everybody wants first.
  toggle() {
    const { alpha, A } = this.play.state, attention = { name: "softmax", beta: 5, ...(A ? { A } : {}) };
    this.play.change({ beside: this.spec ? null : { name: "pure_attention", attention, alpha, clock: this.play.time.last } });
    this.fill();
    if (this.spec) $("beside-form").parentNode.open = true;
    this.play.settle();
  }

  // Step and form of both stay the same until somebody parts them.
  together({ alpha, A }) {
    const { spec, play } = this, { attention } = spec || {};
    if (!spec) return;
    const same = (a, b) => JSON.stringify(a ?? null) === JSON.stringify(b ?? null);
    if (alpha && spec.alpha === play.state.alpha) play.state.beside = { ...spec, alpha };
    if (A !== undefined && attention && same(attention.A, play.state.A)) {
      const { A: _, ...rest } = attention;
      play.state.beside = { ...spec, attention: A ? { ...rest, A } : rest };
    }
    this.stale = play.state.beside !== spec;
  }

  // The form shows what was changed elsewhere, once that has come to rest.
  settle() { if (this.stale) this.fill(true); }

  fill(kept = false) {
    const { play } = this, again = (done = true) => {
      try { play.change({ beside: this.read() }); if (done) play.settle(); } catch (error) { say(error); }
    };
    this.stale = false;
    if (!kept) this.run = null;
    this.read = dynamicsForm($("beside-form"), play.forms, play.d, this.spec, again,
      () => ({ alpha: play.state.alpha, A: play.state.A }));
  }

  take(run) {
    if (!this.run) this.scene.fit(this.play.visible(this.play.state.z));
    this.run = run;
    const { attention } = this.spec || {}, of = attention ? ` with ${attention.name}${attention.beta ? `, β = ${short(attention.beta)}` : ""}` : "";
    const { code, message } = run.status; // clusters of the end are named at the end
    this.tends = run.tends_to ? ` It tends to: ${run.tends_to}` : code === "clusters" ? ` ${message}` : "";
    const status = ["done", "moving", "settled", "clusters"].includes(code) ? "" : ` ${code}: ${message}`;
    this.said = `${run.dynamics}${of}.${status}`;
    this.play.redraw();
  }

  draw(group) {
    const { run, play } = this;
    $("beside-box").hidden = !this.spec;
    $("soft").setAttribute("aria-pressed", String(!!this.spec));
    if (!this.spec || !run || run.z[0].length !== play.n) return;
    const states = run.view || run.z, { k } = play.state, end = states.length - 1;
    const at = k === "inf" ? end : run.in_time ? Math.round((k / play.time.last) * end) : Math.min(k, end);
    const until = this.provable && this.alike && this.proof?.agrees_until, now = k === "inf" ? Infinity : k;
    this.scene.draw({ points: states[at], group, leads: () => false, open: (i) => !!until && until[i] < now, paths: states.length < 200 && play.n <= 200 ? states.slice(0, at + 1) : null });
    $("beside-caption").textContent = `${run.in_time ? "time" : "layer"} ${short(run.t[at])} · ${this.said}${at === end ? this.tends : ""}`;
  }
}
