// One picture of tokens: stars lead, circles follow. Nodes are kept and only what changed is set.
import { colour, draw, make, set } from "./dom.js";

const W = 800, H = 560;
export const MANY = 400; // tokens; beyond, a browser is too slow with a node for each, and a canvas has the rest
export const everyTh = (n) => Math.ceil(n / MANY); // of so many tokens one has an arrow
const SCORED = 8; // scores that are written, the largest
const LEGIBLE = 23; // pixels of a letter in a lecture hall
const CIRCLE = "M6 0A6 6 0 1 1 -6 0A6 6 0 1 1 6 0Z";
const STAR = Array.from({ length: 10 }, (_, i) => {
  const r = i % 2 ? 4.2 : 10.5, a = (Math.PI * i) / 5 - Math.PI / 2;
  return `${i ? "L" : "M"}${(r * Math.cos(a)).toFixed(2)} ${(r * Math.sin(a)).toFixed(2)}`;
}).join("") + "Z";

// An arrow from (x, y) to (u, v): start, head, tip and its two sides; null where it would be all head.
function shaft(x, y, u, v) {
  const length = Math.hypot(u - x, v - y);
  if (!(length >= 10)) return null;
  const [ex, ey] = [(u - x) / length, (v - y) / length], [hx, hy] = [u - 9 * ex, v - 9 * ey];
  return [x, y, hx, hy, u, v, hx - 4 * ey, hy + 4 * ex, hx + 4 * ey, hy - 4 * ex];
}

const equal = (a, b) => a?.length === b.length && b.every((x, i) => Object.is(x, a[i]));

export class Scene {
  constructor(svg, { editable = true } = {}) {
    this.svg = svg;
    this.editable = editable;
    this.centre = [0, 0];
    this.scale = 180;
    this.turn = [0.5, 0.4];
    this.layers = {};
    for (const name of ["ground", "axes", "hull", "polytope", "trails", "arrows", "half", "scores", "tokens"]) {
      this.layers[name] = draw("g", svg, { class: name });
    }
    this.nodes = new Map();
    // Asking for the width while drawing would make the browser lay the page out each time.
    new ResizeObserver(([box]) => {
      const width = Math.min(box.contentRect.width, (box.contentRect.height * W) / H);
      if (this.width === width) return;
      this.width = width;
      this.again();
    }).observe(svg);
    this.width = svg.clientWidth;
    document.addEventListener("present", () => this.again());
    this.axisX = draw("line", this.layers.axes, { stroke: "#8884", "stroke-width": 1 });
    this.axisY = draw("line", this.layers.axes, { stroke: "#8884", "stroke-width": 1 });
    this.hull = draw("polygon", this.layers.hull, { fill: "none", stroke: "#8a8f98", "stroke-dasharray": "5 4" });
    this.polytope = draw("polygon", this.layers.polytope, { fill: "currentColor", "fill-opacity": 0.06, stroke: "currentColor", "stroke-width": 1.5,
      "stroke-linejoin": "round" });
    this.axisZ = draw("line", this.layers.axes, { stroke: "#8884", "stroke-width": 1 });
    this.letters = ["x", "y", "z"].map((name) => draw("text", this.layers.axes, { "font-size": 13, fill: "#8a8f98", "text-anchor": "middle" }, name));
    for (const letter of this.letters) letter.style.display = "none"; // until it has a place
    this.wire = draw("path", this.layers.polytope, { fill: "none", stroke: "currentColor", "stroke-width": 1.5 });
    this.half = draw("path", this.layers.half, { fill: "#0072b214", stroke: "#0072b2", "stroke-dasharray": "6 4" });
    this.halfArrow = draw("line", this.layers.half, { stroke: "#0072b2", "stroke-width": 1.5 });
  }

  // --- where things are -----------------------------------------------------------------------

  flat(p) {
    if (p.length === 1) return [p[0], 0];
    if (p.length === 2) return p;
    const [a, b] = this.turn, [x, y, z] = p;
    const u = Math.cos(a) * x - Math.sin(a) * z, w = Math.sin(a) * x + Math.cos(a) * z;
    return [u, Math.cos(b) * y - Math.sin(b) * w];
  }

  // How much larger what is in front is drawn.
  near(p) {
    if (p.length < 3) return 1;
    const [a, b] = this.turn, w = Math.sin(a) * p[0] + Math.cos(a) * p[2];
    return 1 + 0.3 * Math.max(-1, Math.min(1, ((Math.sin(b) * p[1] + Math.cos(b) * w) * this.scale) / 220));
  }

  toScreen(p) {
    const [x, y] = this.flat(p);
    const limit = (v) => Math.max(-1e5, Math.min(1e5, v));
    return [limit(W / 2 + this.scale * (x - this.centre[0])), limit(H / 2 - this.scale * (y - this.centre[1]))];
  }

  toWorld(event) {
    const m = this.svg.getScreenCTM(); // the picture may be letterboxed in its element
    const x = (event.clientX - m.e) / m.a, y = (event.clientY - m.f) / m.d;
    return [(x - W / 2) / this.scale + this.centre[0], (H / 2 - y) / this.scale + this.centre[1]];
  }

  corners() {
    return [[this.centre[0] - W / 2 / this.scale, this.centre[1] - H / 2 / this.scale],
      [this.centre[0] + W / 2 / this.scale, this.centre[1] + H / 2 / this.scale]];
  }

  fit(points) {
    const seen = points.map((p) => this.flat(p));
    if (!seen.length) return;
    const xs = [0, ...seen.map((p) => p[0])], ys = [0, ...seen.map((p) => p[1])];
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    this.centre = [(x0 + x1) / 2, (y0 + y1) / 2];
    this.scale = Math.min(W / (1.25 * (x1 - x0) || 2), H / (1.25 * (y1 - y0) || 2));
  }

  // --- drawing --------------------------------------------------------------------------------

  polygon(node, vertices) {
    const shown = vertices && vertices.length > 1 && vertices[0].length <= 2;
    const text = shown ? vertices.map((v) => this.toScreen(v).map((x) => x.toFixed(1)).join()).join(" ") : "";
    if (node.getAttribute("points") !== text) node.setAttribute("points", text);
  }

  token(i) {
    if (this.nodes.has(i)) return this.nodes.get(i);
    const g = draw("g", this.layers.tokens, { class: "token", "data-token": i, "data-role": "follower" });
    if (this.editable) set(g, { role: "img" });
    const ring = draw("circle", g, { class: "ring", r: 14, fill: "none", "pointer-events": "all" });
    const shape = draw("path", g, { d: CIRCLE, stroke: "#0006", "stroke-width": 1 });
    const name = draw("text", g, { x: 9, y: -8, "font-size": 13, fill: "currentColor", "pointer-events": "none" });
    const arrow = draw("path", this.layers.arrows, { fill: "#88909a", stroke: "#88909a", "stroke-opacity": 0.65 });
    this.nodes.set(i, { g, ring, shape, name, arrow, was: {} });
    return this.nodes.get(i);
  }

  // Names over no other, over no other token, inside the frame: above or below their token, right or left. One with tokens
  // on its spot says how many; one without a place is left to the pointer.
  names(which, points, name, small, alone) {
    const spots = [], taken = (this.taken = []), out = [], pen = (this.pen ??= this.measure());
    for (const i of which) {
      const [x, y] = this.toScreen(points[i]), size = small * this.near(points[i]), under = spots.find((one) => Math.hypot(one.x - x, one.y - y) < 5 * small);
      taken.push([x - 7 * size, y - 7 * size, x + 7 * size, y + 7 * size, i]);
      if (under) under.all.push(i);
      else spots.push({ i, x, y, size, all: [i] });
    }
    for (const { i, x, y, size, all } of spots) {
      const text = all.length > 1 && !alone ? `${name(i)} +${all.length - 1}` : name(i), wide = pen.measureText(text).width * size;
      for (const [side, down] of [["start", -8], ["end", -8], ["start", 17], ["end", 17]]) {
        const left = side === "start" ? x + 9 * size : x - 9 * size - wide, top = y + (down - 12) * size, right = left + wide, low = top + 16 * size;
        if (left < 0 || top < 0 || right > W || low > H) continue;
        if (taken.some(([a, b, c, d, j]) => a < right && left < c && b < low && top < d && !all.includes(j))) continue;
        taken.push([left, top, right, low, -1]);
        out[i] = { text, side, down };
        break;
      }
    }
    return out;
  }

  // Once: asking for a style while drawing would make the browser compute all of them.
  measure() {
    const pen = make("canvas").getContext("2d");
    pen.font = `13px ${getComputedStyle(this.svg).fontFamily || "sans-serif"}`;
    return pen;
  }

  // Tokens that have come to their leader, and how many there are under each star.
  under(what) {
    const gone = new Set(), at = new Map();
    if (!what.follows) return { gone, at };
    what.points.forEach((p, i) => {
      const j = what.follows[i];
      if (j === undefined || j < 0 || j === i || what.leads(i) || !what.points[j]) return;
      const [x, y] = this.toScreen(p), [u, v] = this.toScreen(what.points[j]);
      if (Math.hypot(x - u, y - v) >= 3) return;
      gone.add(i);
      if (what.leads(j)) at.set(j, (at.get(j) || 0) + 1);
    });
    return { gone, at };
  }

  drawTrails({ trails, group, points }) {
    const lines = new Map();
    if (trails && trails.length > 1) {
      points.forEach((_, i) => { const ink = colour(group(i)); lines.set(ink, (lines.get(ink) || "") + this.path(trails, i)); });
    }
    const home = this.layers.trails, wanted = JSON.stringify([...lines]);
    if (this.trailed === wanted) return;
    this.trailed = wanted;
    home.replaceChildren();
    for (const [ink, d] of lines) draw("path", home, { d, fill: "none", stroke: ink, "stroke-width": 1.2, "stroke-opacity": 0.55 });
  }

  // Lines from a token to those it scores, the best in bold, and the largest scores in numbers, over no name and no
  // other number where there is room beside their line.
  drawScores({ scores, points }) {
    const home = this.layers.scores;
    home.replaceChildren();
    if (!scores || points.length > MANY) return;
    const { i, values, best } = scores, [x, y] = this.toScreen(points[i]), size = 14 * this.grown, taken = [...this.taken || []];
    const told = new Set([...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, SCORED));
    values.forEach((value, j) => {
      const [u, v] = this.toScreen(points[j]), top = value === best, own = i === j;
      if (!own) draw("line", home, { x1: x, y1: y, x2: u, y2: v, stroke: "currentColor", "stroke-opacity": top ? 0.9 : 0.25, "stroke-width": top ? 3 : 1.2 });
    });
    for (const j of [...told]) {
      const [u, v] = this.toScreen(points[j]), places = [], text = values[j].toFixed(2).replace("-", "−"), half = 0.33 * text.length * size;
      for (const right of [0, 1.8, -1.8, 3.5, -3.5]) {
        for (const down of [0, 1.3, -1.3, -3.4]) {
          for (const share of [0.6, 0.5, 0.7, 0.4, 0.8, 0.3]) places.push([x + share * (u - x) + right * size, y + share * (v - y) + (j === i ? down + 2 : down) * size]);
        }
      }
      const box = ([a, b]) => [a - half, b - size, a + half, b + 0.3 * size];
      const free = ([a, b, c, d]) => a > 0 && b > 0 && c < W && d < H && !taken.some(([left, top, right, low]) => left < c && a < right && top < d && b < low);
      const [a, b] = places.find((one) => free(box(one))) ?? places[0];
      taken.push(box([a, b]));
      draw("text", home, { x: a, y: b, "font-size": size, "font-weight": values[j] === best ? 700 : 400, "text-anchor": "middle", class: "score", "data-score": j }, text);
    }
  }

  again() { if (this.what) this.draw(this.what); }

  put(node, key, value, apply) {
    if (node.was[key] === value) return;
    node.was[key] = value;
    apply(value);
  }

  // what: points, leads(i), group(i), open(i), label(i), hull, polytope, names, named(i), chosen;
  // ends: where arrows end; follows: tokens that have come to their leader are drawn inside its star,
  // which counts them; paths: by layer the places so far, instead of arrows; trails: the same, with arrows
  draw(what) {
    this.what = what;
    const { points } = what, n = points.length, wide = this.width || W, hall = "present" in document.body.dataset;
    const near = (this.grown = Math.max(hall ? (LEGIBLE * W) / (13 * wide) : 1, Math.min(1.9, 640 / wide)));
    const small = (n > 400 ? 0.55 : n > 120 ? 0.75 : 1) * near; // a narrow picture needs larger tokens
    this.reach = 14 * small;
    const kept = this.many(what, small);
    for (const [i, node] of this.nodes) {
      if (i < n && (!kept || kept.has(i))) continue;
      node.g.remove();
      node.arrow.remove();
      this.nodes.delete(i);
    }
    const some = [...(kept || points.keys())].filter((i) => !what.named || what.named(i));
    const names = what.names ? this.names(some, points, what.name || String, small, what.named) : [], under = this.under(what);
    this.drawTrails(what);
    this.drawScores(what);
    if (!(this.rover < n) || (kept && !kept.has(this.rover))) this.rover = kept ? Math.min(...kept) : 0;
    for (const i of kept || points.keys()) {
      const node = this.token(i), [x, y] = this.toScreen(points[i]), leads = what.leads(i), open = what.open(i);
      this.put(node, "place", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${(small * this.near(points[i])).toFixed(3)})`,
        (v) => node.g.setAttribute("transform", v));
      this.put(node, "role", leads ? "leader" : "follower", (v) => {
        node.g.setAttribute("data-role", v);
        node.shape.setAttribute("d", leads ? STAR : CIRCLE);
      });
      this.put(node, "fill", open ? "none" : colour(what.group(i)), (v) => set(node.shape, { fill: v,
        stroke: open ? "#c98a00" : "#0006", "stroke-dasharray": open ? "3 2" : null, "stroke-width": open ? 2 : 1 }));
      this.put(node, "there", under.gone.has(i), (v) => set(node.shape, { transform: v ? "scale(0.5)" : null }));
      if (this.editable) this.put(node, "tab", i === this.rover ? 0 : -1, (v) => node.g.setAttribute("tabindex", v)); // one Tab stop
      this.put(node, "chosen", String(!!what.chosen?.has(i)), (v) => node.g.setAttribute("data-chosen", v));
      const line = what.paths ? this.path(what.paths, i) : what.ends ? this.arrow(points[i], what.ends[i]) : "";
      this.put(node, "arrow", line, (v) => node.arrow.setAttribute("d", v));
      if (what.paths) this.put(node, "path", colour(what.group(i)), (v) => set(node.arrow, { fill: "none", stroke: v, "stroke-width": 1.5, "data-path": i }));
      const { text: name = "", side = "start", down = -8 } = names[i] || {}, count = under.at.get(i);
      const text = count ? `${name.replace(/ \+\d+$/, "")} +${count}`.trim() : name;
      this.put(node, "side", `${side} ${down}`, () => set(node.name, { x: side === "end" ? -9 : 9, y: down, "text-anchor": side }));
      this.put(node, "name", text, (v) => { node.name.textContent = v; });
      if (this.editable && what.label) this.put(node, "label", what.label(i), (v) => node.g.setAttribute("aria-label", v));
    }
    this.polygon(this.hull, what.hull);
    this.polygon(this.polytope, what.polytope);
    const [ox, oy] = this.toScreen([0, 0]), flat = !n || points[0].length < 3;
    const corners = what.edges?.vertices?.map((p) => this.toScreen(p).map((c) => c.toFixed(1)).join(" "));
    const wire = corners && what.edges.edges ? what.edges.edges.map(([i, j]) => `M${corners[i]}L${corners[j]}`).join("") : "";
    if (wire !== this.wired) set(this.wire, { d: (this.wired = wire) });
    const origin = flat ? `${ox} ${oy}` : `${ox} ${oy} ${this.turn}`;
    if (origin === this.origin) return;
    this.origin = origin;
    if (flat) {
      set(this.axisX, { x1: 0, x2: W, y1: oy, y2: oy });
      set(this.axisY, { y1: 0, y2: H, x1: ox, x2: ox });
    }
    set(this.axisZ, { x1: 0, x2: 0, y1: 0, y2: 0 });
    [this.axisX, this.axisY, this.axisZ].forEach((line, j) => {
      this.letters[j].style.display = flat ? "none" : "";
      if (flat) return;
      const [x, y] = this.toScreen([0, 1, 2].map((i) => (i === j ? 200 / this.scale : 0)));
      set(line, { x1: ox, y1: oy, x2: x, y2: y });
      set(this.letters[j], { x: x + (x - ox) / 20, y: y + (y - oy) / 20 + 4 });
    });
  }

  // Of many tokens those that are chosen and the first that lead have nodes, which are given back; the
  // others are painted below. Null where each has its own node.
  many(what, small) {
    const { points } = what, n = points.length;
    this.svg.classList.toggle("many", n > MANY);
    if (this.canvas) this.canvas.hidden = n <= MANY;
    if (n <= MANY) return null;
    const kept = new Set(what.chosen);
    for (let i = 0; i < n && kept.size < MANY; i++) if (what.leads(i)) kept.add(i);
    if (!this.canvas) {
      this.canvas = make("canvas", null, "", "", { "aria-hidden": "true" });
      this.svg.before(this.canvas);
    }
    this.paint(what, small, kept);
    return kept;
  }

  // Arrows (of some) and tokens without a node. While one is dragged a copy of the others is kept.
  paint(what, small, kept) {
    const { points, ends } = what, n = points.length, each = everyTh(n), { canvas } = this;
    const sharp = Math.min(2, (devicePixelRatio * (this.width || W)) / W), size = [W, H].map((x) => Math.round(x * sharp));
    const spots = new Float64Array(5 * n + 3).fill(NaN), shafts = [];
    spots.set([...size, small], 5 * n);
    for (let i = 0; i < n; i++) {
      if (kept.has(i)) continue;
      const [x, y] = this.toScreen(points[i]), end = i % each === 0 ? ends?.[i] : null, s = end && shaft(x, y, ...this.toScreen(end));
      [spots[5 * i], spots[5 * i + 1], spots[5 * i + 2], spots[5 * i + 3], spots[5 * i + 4]] = [x, y, what.group(i), what.leads(i), what.open(i)];
      if (s) shafts.push(...s);
    }
    const moved = !equal(this.spots, spots);
    if (!moved && equal(this.shafts, shafts)) return;
    if (moved) this.copy = this.stamp(spots, n, size, sharp, small, kept);
    [this.spots, this.shafts] = [spots, shafts];
    if (moved) [canvas.width, canvas.height] = size;
    const pen = canvas.getContext("2d");
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, ...size);
    pen.scale(sharp, sharp);
    pen.lineWidth = 1 / sharp; // one pixel: much faster than a little more
    pen.strokeStyle = pen.fillStyle = "#88909aa6";
    for (let at = 0; at < shafts.length; at += 10) {
      pen.beginPath();
      pen.moveTo(shafts[at], shafts[at + 1]);
      pen.lineTo(shafts[at + 2], shafts[at + 3]);
      pen.stroke();
      pen.beginPath();
      for (const to of [4, 6, 8]) pen.lineTo(shafts[at + to], shafts[at + to + 1]);
      pen.fill();
    }
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.drawImage(this.copy, 0, 0);
  }

  // The tokens without a node, on a canvas of their own.
  stamp(spots, n, [width, height], sharp, small, kept) {
    const canvas = make("canvas", null, "", "", { width, height }), pen = canvas.getContext("2d"), star = new Path2D(STAR);
    pen.scale(sharp, sharp);
    pen.lineWidth = 1 / sharp;
    for (let i = 0; i < n; i++) {
      if (kept.has(i)) continue;
      const [x, y, group, leads, open] = spots.subarray(5 * i, 5 * i + 5);
      pen.fillStyle = colour(group);
      pen.strokeStyle = open ? "#c98a00" : "#0006";
      pen.beginPath();
      if (leads) {
        pen.setTransform(sharp * small, 0, 0, sharp * small, sharp * x, sharp * y);
        pen.fill(star);
        pen.setTransform(sharp, 0, 0, sharp, 0, 0);
        continue;
      }
      pen.arc(x, y, 6 * small, 0, 7);
      if (!open) pen.fill();
      pen.stroke();
    }
    return canvas;
  }

  // The token at a place of the world, the nearest within reach of a finger.
  at(place) {
    const [x, y] = this.toScreen(place);
    let best = this.reach ** 2, found;
    this.what.points.forEach((p, i) => {
      const [u, v] = this.toScreen(p), apart = (u - x) ** 2 + (v - y) ** 2;
      if (apart < best) [best, found] = [apart, i];
    });
    return found;
  }

  // The next token from one in a direction of the screen: near, and not too far to the side.
  towards(i, [dx, dy]) {
    const [x, y] = this.toScreen(this.what.points[i]);
    let best = Infinity, found;
    for (const j of this.nodes.keys()) {
      const [u, v] = this.toScreen(this.what.points[j]), along = (u - x) * dx + (v - y) * dy, across = Math.abs((u - x) * dy - (v - y) * dx);
      if (j === i || along <= 0 || across > 2 * along || along + 2 * across >= best) continue;
      [best, found] = [along + 2 * across, j];
    }
    return found;
  }

  // An arrow of its own for each token: only those that changed are painted again.
  arrow(p, end) {
    const s = p && end ? shaft(...this.toScreen(p), ...this.toScreen(end)) : null;
    if (!s) return "";
    const [x, y, hx, hy, u, v, ax, ay, bx, by] = s.map((c) => c.toFixed(1));
    return `M${x} ${y}L${hx} ${hy}M${u} ${v}L${ax} ${ay}L${bx} ${by}Z`;
  }

  path(states, i) {
    return states.map((z, k) => `${k ? "L" : "M"}${this.toScreen(z[i]).map((c) => c.toFixed(1)).join(" ")}`).join("");
  }

  // The half-space of a token: all y with <n, y> at most that of the tokens it follows.
  showHalf(normal, level, from) {
    const size = Math.hypot(...normal);
    if (!size || normal.length !== 2) { this.hideHalf(); return; }
    const e = normal.map((x) => x / size), t = level / size, far = 4000 / this.scale;
    const foot = e.map((x) => x * t), along = [-e[1] * far, e[0] * far];
    const a = this.toScreen([foot[0] + along[0], foot[1] + along[1]]);
    const b = this.toScreen([foot[0] - along[0], foot[1] - along[1]]);
    const c = this.toScreen([foot[0] - along[0] - e[0] * far, foot[1] - along[1] - e[1] * far]);
    const d = this.toScreen([foot[0] + along[0] - e[0] * far, foot[1] + along[1] - e[1] * far]);
    set(this.half, { d: `M${a}L${b}L${c}L${d}Z` });
    const [x, y] = this.toScreen(from), [u, v] = this.toScreen([from[0] + (e[0] * 40) / this.scale, from[1] + (e[1] * 40) / this.scale]);
    set(this.halfArrow, { x1: x, y1: y, x2: u, y2: v });
  }

  hideHalf() {
    set(this.half, { d: "" });
    set(this.halfArrow, { x1: 0, x2: 0, y1: 0, y2: 0 });
  }

  // Squares of a grid of basins between two corners of the world.
  showGround(found, group) {
    const home = this.layers.ground;
    home.replaceChildren();
    if (!found) return;
    const { side, basin, corner, opposite } = found, paths = new Map();
    const step = [(opposite[0] - corner[0]) / (side - 1), (opposite[1] - corner[1]) / (side - 1)];
    const [w, h] = [step[0] * this.scale, step[1] * this.scale];
    basin.forEach((label, at) => {
      const [x, y] = this.toScreen([corner[0] + (at % side) * step[0], corner[1] + Math.floor(at / side) * step[1]]);
      const key = label === -1 ? "own" : label === -2 ? "none" : label === -3 ? "open" : colour(group(label));
      paths.set(key, (paths.get(key) || "") + `M${(x - w / 2).toFixed(1)} ${(y - h / 2).toFixed(1)}h${w.toFixed(1)}v${h.toFixed(1)}h${(-w).toFixed(1)}Z`);
    });
    for (const [key, d] of paths) {
      if (key === "own" || key === "open") continue;
      draw("path", home, { d, fill: key === "none" ? "#8888" : key, opacity: key === "none" ? 0.35 : 0.18, "shape-rendering": "crispEdges" });
    }
  }
}
