// Time on the stage: the layer slider, its steps, its speed, trails, and a mark where a leader is born.
import { $, make, set, write } from "./dom.js";
import { LAYERS } from "./state.js";

const AFTER = 4; // layers shown after the last birth
const MOST_NUMBERS = 1_000_000; // of a run that the page asks for
const MOST_MARKS = 12;
const PACE = 420; // milliseconds a layer at speed 1
const MOST_TRAILS = 60; // layers of a trail: what is older has stopped moving, or is left out

export class Timeline {
  constructor(play) {
    this.play = play;
    this.timer = 0;
    this.last = LAYERS;
    $("layer").addEventListener("input", (e) => this.goTo(Number(e.target.value)));
    $("layer").addEventListener("change", () => play.link());
    $("run").addEventListener("click", () => this.playStop());
    $("back").addEventListener("click", () => this.step(-1));
    $("next").addEventListener("click", () => this.step(1));
    $("trails").addEventListener("change", () => { play.state.show.trails = $("trails").checked; play.draw(); play.link(); });
    $("speed").addEventListener("change", () => { if (this.timer) { this.stop(); this.playStop(); } });
  }

  get k() { return this.play.state.k; }
  get stop_() { return this.k === "inf" ? this.last + 1 : this.k; }

  // As many layers as the last birth needs, if an answer can hold them.
  reach() {
    const { found, n, d } = this.play, most = Math.max(LAYERS, Math.floor(MOST_NUMBERS / (n * d)) - 1);
    const late = found ? Math.max(-1, ...found.born) : -1;
    this.last = Math.min(most, Math.max(LAYERS, late > LAYERS ? late + AFTER : 0, this.play.beside.layers));
    if (this.k !== "inf" && this.k > this.last) this.play.state.k = this.last;
    this.show();
  }

  // Where leaders are born after layer 0; a mark takes the slider there.
  births() {
    const { found } = this.play, at = new Map();
    for (const i of found?.leaders || []) {
      const born = found.born[i];
      if (born > 0 && born <= this.last) at.set(born, [...(at.get(born) || []), i]);
    }
    const home = $("births"), wanted = JSON.stringify([[...at], this.last]);
    if (home.dataset.marks === wanted) return;
    home.dataset.marks = wanted;
    home.replaceChildren();
    for (const [layer, who] of [...at].sort((x, y) => x[0] - y[0]).slice(0, MOST_MARKS)) {
      const said = `layer ${layer}: token ${who.slice(0, 5).join(", ")}${who.length > 5 ? " and others" : ""} becomes a leader`;
      const mark = make("button", home, "★", "birth", { type: "button", title: said, "aria-label": said, "data-layer": layer });
      mark.style.left = `${(100 * layer) / (this.last + 1)}%`;
      mark.addEventListener("click", () => this.goTo(layer));
    }
  }

  show() {
    const stop = this.stop_;
    if ($("layer").max !== String(this.last + 1)) set($("layer"), { max: this.last + 1 });
    $("layer").value = stop;
    $("layer").setAttribute("aria-valuetext", this.k === "inf" ? "infinity" : `layer ${this.k}`);
    write($("at"), this.k === "inf" ? "∞" : String(this.k));
    $("trails").checked = this.play.state.show.trails;
    $("back").disabled = stop === 0;
    $("next").disabled = this.k === "inf";
    this.births();
  }

  goTo(stop) {
    const { play } = this;
    play.state.k = stop > this.last ? "inf" : Math.max(0, stop);
    if (!play.run && stop > 0) play.askRun(play.runBody());
    play.draw();
    this.show();
    play.link();
  }

  step(by) { this.stop(); this.goTo(Math.max(0, Math.min(this.last + 1, this.stop_ + by))); }

  // Whoever takes hold of something has seen enough of the movie.
  stop() {
    clearInterval(this.timer);
    this.timer = 0;
    $("run").textContent = "▶";
    $("run").setAttribute("aria-label", "play");
  }

  // Every layer up to 12; later ones change little, so they go faster, but no birth is passed over.
  after(k) {
    if (k < 12) return k + 1;
    const { found } = this.play, births = (found?.leaders || []).map((i) => found.born[i]);
    const next = Math.min(...births.filter((b) => b > k), this.last + (k === this.last ? 1 : 0));
    if (births.some((b) => b > 0 && Math.abs(b - k) <= 2)) return k + 1;
    return Math.min(k + Math.max(2, Math.round(this.last / 20)), Math.max(k + 1, next - 2 > k ? next - 2 : next));
  }

  playStop() {
    if (this.timer) { this.stop(); return; }
    if (this.k === "inf") this.goTo(0);
    $("run").textContent = "❚❚";
    $("run").setAttribute("aria-label", "pause");
    this.timer = setInterval(() => {
      if (this.k === "inf") this.stop();
      else this.goTo(this.after(this.k));
    }, PACE / Number($("speed").value));
  }

  // The places so far, of the tokens as they are seen.
  trail() {
    const { run, n, state } = this.play;
    if (!state.show.trails || !run || n > 400) return null;
    const end = state.k === "inf" ? run.z.length - 1 : Math.min(state.k, run.z.length - 1);
    return Array.from({ length: Math.min(end, MOST_TRAILS) + 1 }, (_, j) => end - Math.min(end, MOST_TRAILS) + j)
      .map((k) => this.play.visible(run.z[k], k));
  }
}
