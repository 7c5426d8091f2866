// Hardmax layers in float64, in the browser: for arrows while a token is held, and for the page without
// a server. Nothing that is found here is called proved.
const NEAR = 1e-12;
const STILL = 1e-10, MET = 1e-3; // of a step that is none, and of tokens at one place

const dot = (x, y) => { let s = 0; for (let j = 0; j < x.length; j++) s += x[j] * y[j]; return s; };
const times = (A, x) => (A ? A.map((row) => dot(row, x)) : x);

// What token i scores each token with.
export const scoresOf = (z, A, i) => { const q = times(A, z[i]); return z.map((y) => dot(q, y)); };

// Indices on the convex hull of points of the plane, in order; all of them in other dimensions.
export function hullOf(z) {
  if (!z.length || z[0].length !== 2) return z.map((_, i) => i);
  const order = z.map((_, i) => i).sort((i, j) => z[i][0] - z[j][0] || z[i][1] - z[j][1]);
  const cross = (o, a, b) => (z[a][0] - z[o][0]) * (z[b][1] - z[o][1]) - (z[a][1] - z[o][1]) * (z[b][0] - z[o][0]);
  const half = (ones) => {
    const out = [];
    for (const i of ones) {
      while (out.length > 1 && cross(out.at(-2), out.at(-1), i) < 0) out.pop();
      out.push(i);
    }
    return out.slice(0, -1);
  };
  const found = [...new Set([...half(order), ...half([...order].reverse())])]; // ties on an edge count
  return found.length ? found : order.slice(0, 1);
}

// The tokens that token i scores highest, with equal scores; of all i, or of `wanted(i)` only.
export function followed(z, A, wanted) {
  const flat = z.length > 60 && z[0].length === 2, some = flat ? hullOf(z) : z.map((_, i) => i);
  return z.map((x, i) => {
    if (wanted && !wanted(i)) return null;
    const q = times(A, x), scores = some.map((j) => dot(q, z[j])), best = Math.max(...scores);
    const tol = NEAR * Math.sqrt(dot(q, q)) * Math.max(1e-300, ...some.map((j) => Math.abs(z[j][0]) + Math.abs(z[j][1] ?? 0)));
    return some.filter((_, m) => scores[m] >= best - tol);
  });
}

// z_i <- (z_i + alpha mean of the tokens it scores highest) / (1 + alpha); null where nobody asked for `sets`
export function layer(z, alpha, A, sets = followed(z, A)) {
  return z.map((x, i) => sets[i] && x.map((v, j) => {
    const pull = sets[i].reduce((s, m) => s + z[m][j], 0) / sets[i].length;
    return (v + alpha * pull) / (1 + alpha);
  }));
}

// Layers until nothing moves, in the shape of the server's answer: who leads since when, who ends where.
export function local(z0, alpha, A, most = 3000) {
  const n = z0.length, born = Array(n).fill(-1);
  let z = z0, k = 0;
  for (; k <= most; k++) {
    const sets = followed(z, A), next = layer(z, alpha, A, sets);
    let step = 0;
    for (let i = 0; i < n; i++) {
      // Who leads once leads for good; followers that come within rounding of it change nothing.
      if (born[i] < 0 && sets[i].every((j) => j === i || z[j].every((x, m) => x === z[i][m]))) born[i] = k;
      for (let j = 0; j < z[i].length; j++) step = Math.max(step, Math.abs(next[i][j] - z[i][j]));
    }
    z = next;
    if (step < STILL) break;
  }
  const leaders = born.flatMap((b, i) => (b >= 0 ? [i] : [])), apart = (x, y) => Math.max(...x.map((v, j) => Math.abs(v - y[j])));
  const follows = z.map((x, i) => {
    if (born[i] >= 0) return i;
    const near = leaders.reduce((best, j) => (best < 0 || apart(x, z[j]) < apart(x, z[best]) ? j : best), -1);
    return near >= 0 && apart(x, z[near]) < MET ? near : -1;
  });
  const outline = (points, some) => { const index = hullOf(some).map((m) => points[m]); return { index, vertices: index.map((i) => (some === z0 ? z0 : z)[i]) }; };
  const flat = z0[0].length === 2, all = z0.map((_, i) => i);
  return { points: z, leaders, born, settled_at: born.map((b) => Math.max(b, 0)), follows, certified: false, undecided: [], layers: k, exact_decisions: 0, cautions: [],
    hull: flat ? outline(all, z0) : null, polytope: flat ? outline(all, z) : null };
}

// The same with softmax weights exp(beta <A z_i, z_j>).
export function softLayer(z, alpha, beta, A) {
  return z.map((x) => {
    const q = times(A, x), scores = z.map((y) => beta * dot(q, y)), top = Math.max(...scores);
    const w = scores.map((s) => Math.exp(s - top)), all = w.reduce((s, v) => s + v, 0);
    return x.map((v, j) => (v + (alpha * w.reduce((s, p, m) => s + p * z[m][j], 0)) / all) / (1 + alpha));
  });
}
