// What is claimed about the tokens on the stage: the badge, the sentence below, and a token's own words.
// While the answer for the tokens that are shown is not there, nothing is claimed.
import { $, short, write } from "./dom.js";

const PATIENCE = 150; // milliseconds in which an answer is not missed: a drag is answered faster
const DEADLINES = [3, 8, 18]; // seconds; whoever was cut off is asked for again, with more

export class Claims {
  constructor(play) {
    this.play = play;
    this.timer = 0;
    this.tries = 0;
    $("badge").addEventListener("click", () => this.explain($("proof").hidden));
    addEventListener("keydown", (event) => { if (event.key === "Escape" && !$("proof").hidden) this.explain(false); });
    $("proof-close").addEventListener("click", () => { this.explain(false); $("badge").focus(); });
  }

  explain(open) {
    $("proof").hidden = !open;
    $("badge").setAttribute("aria-expanded", String(open));
  }

  get deadline() { return DEADLINES[Math.min(this.tries, DEADLINES.length - 1)]; }

  // Something changed. `anew`: other tokens, about which the last answer says nothing.
  pending(anew) {
    this.tries = 0;
    for (const id of ["badge", "said"]) $(id).dataset.stale = "true";
    if (anew) this.wait();
    else if (!this.timer) this.timer = setTimeout(() => this.wait(), PATIENCE);
  }

  wait() {
    const { n } = this.play;
    $("badge").removeAttribute("data-certified");
    write($("badge"), "checking …");
    write($("said"), `Looking for the ${n === 1 ? "limit of the token" : `limits of ${n} tokens`} …`);
    write($("proof-here"), "");
  }

  // An answer; `current` if it is about the tokens that are shown. True if it must be asked again.
  take(found, body, current) {
    clearTimeout(this.timer);
    this.timer = 0;
    const cut = current && !this.play.local && !found.certified && found.layers < (body.max_layers ?? 100_000);
    this.tell(found, cut && this.tries < DEADLINES.length - 1);
    for (const id of ["badge", "said"]) if (current) delete $(id).dataset.stale;
    if (!cut || this.tries >= DEADLINES.length - 1) return false;
    this.tries += 1;
    return true;
  }

  tell(found, again) {
    const badge = $("badge"), open = found.undecided.length, { n, local } = this.play;
    const lead = found.leaders.length, last = Math.max(0, ...found.settled_at);
    const late = found.leaders.filter((i) => found.born[i] > 0);
    if (badge.dataset.certified !== String(found.certified)) badge.dataset.certified = String(found.certified);
    write(badge, local ? "not proved: float64" : found.certified ? "proved" : `${open} undecided`);
    write($("proof-here"), `Here: ${found.layers} layers were run and ${found.exact_decisions} ties decided in exact arithmetic.`);
    write($("said"), `${lead} of ${n} ${n === 1 ? "token leads" : "tokens lead"}` +
      (local ? `, as ${found.layers} layers in float64 show.` :
        found.certified ? `; every limit is proved ${last ? `by layer ${last}` : "at layer 0"}.` :
          again ? `; ${open} not proved yet, the server looks on …` : `; ${open} not proved after ${found.layers} layers.`) +
      (late.length ? ` Token ${late[0]} becomes a leader at layer ${found.born[late[0]]}.` : "") +
      (lead > 10 ? " Colours repeat beyond ten leaders; numbers tell them apart." : ""));
    write($("cautions"), found.cautions.join(". "));
  }

  // Of the token under the pointer: where it is, whom it follows, where it ends and why.
  hover() {
    const { play } = this, { found, state, hovered: i } = play;
    if (i === undefined || !found?.words || !play.current || i >= play.n) { play.scene.hideHalf(); return ""; }
    const set = found.followed?.[i], z = state.z[i], numbers = (row) => row.map((x) => short(x)).join(", ");
    const limit = found.exact_points ? found.exact_points[i].map((x, j) => (x.length > 24 ? "≈" + short(found.points[i][j], 8) : x)).join(", ") : numbers(found.points[i]);
    if (set && state.k === 0 && play.d === 2) {
      const A = state.A || [[1, 0], [0, 1]], to = state.z[set[0]];
      const normal = [A[0][0] * z[0] + A[0][1] * z[1], A[1][0] * z[0] + A[1][1] * z[1]];
      play.scene.showHalf(normal, normal[0] * to[0] + normal[1] * to[1], z);
    }
    const given = state.rational && state.exact ? state.exact[i].join(", ") : numbers(z), name = play.name(i);
    return `token ${i}${name ? ` "${name}"` : ""} at ${given}\n${found.words[i]}` +
      (set ? `\nscores highest at layer 0: token ${set.slice(0, 12).join(", ")}${set.length > 12 ? ", …" : ""}` : "") + `\nlimit ${limit}` +
      (found.margin[i] === null ? "" : `\nsmallest gap ${short(found.margin[i], 3)}`);
  }
}
