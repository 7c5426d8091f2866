// What is on the stage: one plain object. Every change goes through `change`, which keeps the past.

export const LAYERS = 30;
const MOST_KEPT = 200;

export const fresh = () => ({
  z: [], exact: null, alpha: 0.5, A: null, k: 0, rational: false, beside: null,
  show: { hull: true, polytope: true, arrows: true, names: false, basins: false, cells: false },
});

const copy = (x) => JSON.parse(JSON.stringify(x));

// JSON in the link, in letters that survive in one.
export function toLink(state) {
  const kept = { ...state, z: state.z.map((row) => row.map((x) => Number(x.toPrecision(12)))) };
  const bytes = new TextEncoder().encode(JSON.stringify(kept));
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

const isMatrix = (m, d) => Array.isArray(m) && m.length === d &&
  m.every((row) => Array.isArray(row) && row.length === d && row.every(Number.isFinite));

// A link may have been typed by anyone: what does not fit is left out.
export function fromLink(text) {
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
  if (Number.isFinite(given.alpha) && given.alpha > 0) state.alpha = given.alpha;
  if (isMatrix(given.A, d)) state.A = given.A;
  if (given.k === "inf" || (Number.isInteger(given.k) && given.k >= 0 && given.k <= LAYERS)) state.k = given.k;
  state.rational = given.rational === true;
  if (given.beside && typeof given.beside === "object") state.beside = given.beside;
  for (const name of Object.keys(state.show)) state.show[name] = given.show?.[name] === true;
  return state;
}

export class Past {
  constructor(state) { this.back = []; this.ahead = []; this.now = copy(state); }
  keep(state) {
    if (JSON.stringify(state) === JSON.stringify(this.now)) return;
    this.back.push(this.now);
    if (this.back.length > MOST_KEPT) this.back.shift();
    this.now = copy(state);
    this.ahead = [];
  }
  undo() {
    if (!this.back.length) return null;
    this.ahead.push(this.now);
    this.now = this.back.pop();
    return copy(this.now);
  }
  redo() {
    if (!this.ahead.length) return null;
    this.back.push(this.now);
    this.now = this.ahead.pop();
    return copy(this.now);
  }
}
