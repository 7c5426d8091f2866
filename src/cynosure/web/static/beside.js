// The same tokens under another dynamics, beside the hardmax layers.
import { latest, post } from "./api.js";
import { say } from "./app.js";
import { $, short } from "./dom.js";
import { dynamicsForm } from "./forms.js";
import { LAYERS } from "./state.js";
import { Scene } from "./scene.js";

export class Beside {
  constructor(play) {
    this.play = play;
    this.scene = new Scene($("beside"), { editable: false });
    this.run = null;
    this.ask = latest((body) => post("simulate", body), (run) => this.take(run), (error) => { $("beside-caption").textContent = error.message; });
    $("soft").addEventListener("click", () => this.toggle());
  }

  get spec() { return this.play.state.beside; }

  body(brief) {
    const { clock, ...dynamics } = this.spec, { play } = this;
    const body = { tokens: play.state.z, dynamics, recognise: !brief && play.n <= 200 };
    body[play.forms.dynamics[dynamics.name].in_time ? "time" : "layers"] = clock;
    return body;
  }

  follow(brief = false) { if (this.spec) this.ask(this.body(brief)); }

  // Softmax layers with the step and the form of the stage: the one comparison everybody wants first.
  toggle() {
    const { alpha, A } = this.play.state, attention = { name: "softmax", beta: 5, ...(A ? { A } : {}) };
    this.play.change({ beside: this.spec ? null : { name: "pure_attention", attention, alpha, clock: LAYERS } });
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
    const tends = run.tends_to ? ` It tends to: ${run.tends_to}` : "";
    const status = ["done", "moving", "settled"].includes(run.status.code) ? "" : ` ${run.status.code}: ${run.status.message}`;
    this.said = `${run.dynamics}${of}.${status}${tends}`;
    this.play.redraw();
  }

  draw(group) {
    const { run, play } = this;
    $("beside-box").hidden = !this.spec;
    $("soft").setAttribute("aria-pressed", String(!!this.spec));
    if (!this.spec || !run || run.z[0].length !== play.n) return;
    const states = run.view || run.z, share = play.state.k === "inf" ? 1 : play.state.k / LAYERS;
    const at = Math.round(share * (states.length - 1));
    this.scene.draw({ points: states[at], group, leads: () => false, open: () => false, paths: states.length < 200 && play.n <= 200 ? states.slice(0, at + 1) : null });
    $("beside-caption").textContent = `${run.in_time ? "time" : "layer"} ${short(run.t[at])} · ${this.said}`;
  }
}
