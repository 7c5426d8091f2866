// What is on the stage: one plain object. Every change goes through `change`, which keeps the past.

export const LAYERS = 30; // shown at least; a late birth needs more
export const ARROWS = ["step", "limit", "none"];
// The sentence that all rooms are about: typed in one of them, found in the others.
export const shared = { text: "The film was slow but the ending is wonderful." };

const SETTINGS = ["move", "gone", "add", "alpha", "A", "k", "exact", "beside", "turned", "arrows"];
const FARTHEST = 100_000;
const MOST_KEPT = 200;

export const fresh = () => ({
  z: [], exact: null, alpha: 0.5, A: null, k: 0, rational: false, beside: null,
  show: { hull: true, polytope: true, arrows: "step", names: false, scores: false, basins: false, cells: false, trails: false },
});

const copy = (x) => JSON.parse(JSON.stringify(x));

const short = (x) => Number(x.toPrecision(12));
const same = (x, y) => x.length === y.length && x.every((v, j) => v === y[j]);

// What became of the tokens of a configuration: some moved, some gone, some added. Null if there is more to tell.
export function edits(z, base) {
  const gone = [], moved = [], there = new Set(z.map(String));
  let at = 0;
  for (const [i, row] of base.entries()) {
    if (at < z.length && same(z[at], row)) at++;
    else if (z.length - at < base.length - i && !there.has(String(row))) gone.push(i);
    else if (at < z.length) moved.push([i, z[at++]]);
    else return null;
  }
  const added = z.slice(at);
  return moved.length > 20 || gone.length > 200 || added.length > 20 ? null : { moved, gone, added };
}

const rowsOf = (text) => text.split(";").map((row) => row.split(",").map(Number));

// gaussian&n=40&seed=2&move=3:0.5,1: a configuration, what was changed of it, and settings that are not fresh.
export function toLink(state, base) {
  const changed = base && edits(state.z, base.z);
  if (!changed || (state.from[0] === "words" ? changed.gone.length || changed.added.length : state.words)) return whole(state);
  const [name, params] = state.from, { moved, gone, added } = changed, link = new URLSearchParams(params);
  const show = Object.keys(base.show).filter((key) => key !== "arrows" && state.show[key] !== base.show[key]);
  const said = { move: moved.map(([i, row]) => `${i}:${row.map(short)}`).join(";"), gone: String(gone), add: added.map((row) => row.map(short)).join(";"),
    alpha: state.alpha === base.alpha ? "" : state.alpha, A: state.A ? state.A.join(";") : "", k: state.k || "",
    exact: state.rational ? 1 : "", beside: state.beside ? JSON.stringify(state.beside) : "", turned: String(show), arrows: state.show.arrows === base.show.arrows ? "" : state.show.arrows };
  for (const [key, value] of Object.entries(said)) if (value !== "") link.set(key, value);
  return [name, String(link)].filter(Boolean).join("&");
}

async function edited(text, startOf) {
  const [name, ...rest] = text.split("&"), link = new URLSearchParams(rest.join("&")), params = {};
  for (const [key, value] of link) if (!SETTINGS.includes(key)) params[key] = name === "words" || value === "" || !Number.isFinite(Number(value)) ? value : Number(value);
  const state = await startOf(name, params), get = (key) => link.get(key), d = state.z[0].length;
  const row = (numbers) => { if (numbers.length !== d || !numbers.every(Number.isFinite)) throw new Error("tokens are rows of numbers"); return numbers; };
  for (const part of get("move")?.split(";") || []) {
    const [i, numbers] = part.split(":");
    if (!state.z[i]) throw new Error("no such token");
    state.z[i] = row(numbers.split(",").map(Number));
  }
  const gone = new Set(get("gone")?.split(",").map(Number));
  if (gone.size) for (const key of ["z", "exact", "words"]) state[key] = state[key]?.filter((_, i) => !gone.has(i));
  if (get("add")) state.z.push(...rowsOf(get("add")).map(row));
  if (get("move") || get("add")) state.exact = null;
  return settled(state, { alpha: Number(get("alpha") ?? state.alpha), A: get("A") ? rowsOf(get("A")) : null, k: get("k") === "inf" ? "inf" : Number(get("k")), rational: get("exact") === "1",
    beside: get("beside") ? JSON.parse(get("beside")) : null,
    show: { ...state.show, arrows: get("arrows"), ...Object.fromEntries((get("turned")?.split(",") || []).map((key) => [key, !state.show[key]])) } });
}

// JSON in the link, in letters that survive in one.
function whole(state) {
  const kept = { ...state, from: undefined, z: state.z.map((row) => row.map((x) => Number(x.toPrecision(12)))) };
  const bytes = new TextEncoder().encode(JSON.stringify(kept));
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

const isMatrix = (m, d) => Array.isArray(m) && m.length === d &&
  m.every((row) => Array.isArray(row) && row.length === d && row.every(Number.isFinite));

// A link may have been typed by anyone: what does not fit is left out.
export async function fromLink(text, startOf) {
  if (/^[a-z0-9_]+(&|$)/.test(text) && text.split("&")[0].length < 30) return edited(text, startOf);
  const bytes = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
  const given = JSON.parse(new TextDecoder().decode(bytes));
  const state = fresh();
  if (!Array.isArray(given.z) || !given.z.length || given.z.length > 5000) throw new Error("no tokens");
  const d = given.z[0].length;
  if (!given.z.every((row) => Array.isArray(row) && row.length === d && row.every(Number.isFinite))) {
    throw new Error("tokens are rows of numbers");
  }
  state.z = given.z;
  if (Array.isArray(given.exact) && given.exact.length === given.z.length &&
    given.exact.every((row) => Array.isArray(row) && row.length === d && row.every((x) => /^-?\d+(\/\d+)?$/.test(x)))) {
    state.exact = given.exact;
  }
  if (Array.isArray(given.words) && given.words.length === given.z.length) state.words = given.words.map((word) => String(word).slice(0, 40));
  return settled(state, given);
}

function settled(state, given) {
  const d = state.z[0].length;
  if (Number.isFinite(given.alpha) && given.alpha > 0) state.alpha = given.alpha;
  if (isMatrix(given.A, d)) state.A = given.A;
  if (given.k === "inf" || (Number.isInteger(given.k) && given.k >= 0 && given.k <= FARTHEST)) state.k = given.k;
  state.rational = given.rational === true;
  if (given.beside && typeof given.beside === "object") state.beside = given.beside;
  for (const name of Object.keys(state.show)) state.show[name] = given.show?.[name] === true;
  state.show.arrows = ARROWS.includes(given.show?.arrows) ? given.show.arrows : "step";
  return state;
}

// The past of what is on the stage. Where the slider stands is no part of it: one press, one step.
const past = (state) => { const { k, ...rest } = copy(state); return rest; };
export class Past {
  constructor(state) { this.back = []; this.ahead = []; this.now = past(state); }
  keep(state) {
    const now = past(state);
    if (JSON.stringify(now) === JSON.stringify(this.now)) return;
    this.back.push(this.now);
    if (this.back.length > MOST_KEPT) this.back.shift();
    this.now = now;
    this.ahead = [];
  }
  undo() {
    if (!this.back.length) return null;
    this.ahead.push(this.now);
    this.now = this.back.pop();
    return { ...copy(this.now), k: 0 };
  }
  redo() {
    if (!this.ahead.length) return null;
    this.back.push(this.now);
    this.now = this.ahead.pop();
    return { ...copy(this.now), k: 0 };
  }
}
