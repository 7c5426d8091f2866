// One picture of tokens: stars lead, circles follow. Nodes are kept and only what changed is set.
import { colour, draw, set } from "./dom.js";

const W = 800, H = 560;
const CIRCLE = "M6 0A6 6 0 1 1 -6 0A6 6 0 1 1 6 0Z";
const STAR = Array.from({ length: 10 }, (_, i) => {
  const r = i % 2 ? 4.2 : 10.5, a = (Math.PI * i) / 5 - Math.PI / 2;
  return `${i ? "L" : "M"}${(r * Math.cos(a)).toFixed(2)} ${(r * Math.sin(a)).toFixed(2)}`;
}).join("") + "Z";

export class Scene {
  constructor(svg, { editable = true } = {}) {
    this.svg = svg;
    this.editable = editable;
    this.centre = [0, 0];
    this.scale = 180;
    this.turn = [0.5, 0.4];
    this.layers = {};
    for (const name of ["ground", "axes", "hull", "polytope", "arrows", "half", "tokens"]) {
      this.layers[name] = draw("g", svg, { class: name });
    }
    this.nodes = [];
    // Asking for the width while drawing would make the browser lay the page out each time.
    new ResizeObserver(([box]) => { this.width = box.contentRect.width; }).observe(svg);
    this.width = svg.clientWidth;
    this.axisX = draw("line", this.layers.axes, { stroke: "#8884", "stroke-width": 1 });
    this.axisY = draw("line", this.layers.axes, { stroke: "#8884", "stroke-width": 1 });
    this.hull = draw("polygon", this.layers.hull, { fill: "none", stroke: "#8a8f98", "stroke-dasharray": "5 4" });
    this.polytope = draw("polygon", this.layers.polytope, { fill: "#d55e0022", stroke: "#d55e00", "stroke-width": 1.5,
      "stroke-linejoin": "round" });
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
    if (this.nodes[i]) return this.nodes[i];
    const g = draw("g", this.layers.tokens, { class: "token", "data-token": i, "data-role": "follower" });
    if (this.editable) set(g, { tabindex: 0, role: "img" });
    const ring = draw("circle", g, { class: "ring", r: 14, fill: "transparent", stroke: "none" });
    const shape = draw("path", g, { d: CIRCLE, stroke: "#0006", "stroke-width": 1 });
    const name = draw("text", g, { x: 9, y: -8, "font-size": 13, fill: "currentColor", "pointer-events": "none" });
    const arrow = draw("path", this.layers.arrows, { fill: "#88909a", stroke: "#88909a", "stroke-opacity": 0.65 });
    this.nodes[i] = { g, ring, shape, name, arrow, was: {} };
    return this.nodes[i];
  }

  put(node, key, value, apply) {
    if (node.was[key] === value) return;
    node.was[key] = value;
    apply(value);
  }

  // what: points, leads(i), group(i), open(i), label(i), arrows, limits, hull, polytope, names, chosen
  draw(what) {
    const { points } = what, n = points.length, near = Math.min(1.9, Math.max(1, 640 / (this.width || W)));
    const small = (n > 400 ? 0.55 : n > 120 ? 0.75 : 1) * near; // a narrow picture needs larger tokens
    for (let i = this.nodes.length - 1; i >= n; i--) {
      this.nodes[i].g.remove();
      this.nodes[i].arrow.remove();
      this.nodes.pop();
    }
    for (let i = 0; i < n; i++) {
      const node = this.token(i), [x, y] = this.toScreen(points[i]), leads = what.leads(i), open = what.open(i);
      this.put(node, "place", `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${small})`,
        (v) => node.g.setAttribute("transform", v));
      this.put(node, "role", leads ? "leader" : "follower", (v) => {
        node.g.setAttribute("data-role", v);
        node.shape.setAttribute("d", leads ? STAR : CIRCLE);
      });
      this.put(node, "fill", open ? "none" : colour(what.group(i)), (v) => set(node.shape, { fill: v,
        stroke: open ? "#c98a00" : "#0006", "stroke-dasharray": open ? "3 2" : null, "stroke-width": open ? 2 : 1 }));
      this.put(node, "chosen", String(!!what.chosen?.has(i)), (v) => node.g.setAttribute("data-chosen", v));
      this.put(node, "arrow", what.arrows ? this.arrow(points[i], what.limits?.[i]) : "", (v) => node.arrow.setAttribute("d", v));
      this.put(node, "name", what.names ? String(what.name ? what.name(i) : i) : "", (v) => { node.name.textContent = v; });
      if (this.editable && what.label) this.put(node, "label", what.label(i), (v) => node.g.setAttribute("aria-label", v));
    }
    this.polygon(this.hull, what.hull);
    this.polygon(this.polytope, what.polytope);
    const [ox, oy] = this.toScreen([0, 0]), flat = !n || points[0].length < 3;
    const origin = `${ox} ${oy} ${flat}`;
    if (origin === this.origin) return;
    this.origin = origin;
    set(this.axisX, { x1: 0, x2: flat ? W : 0, y1: oy, y2: oy });
    set(this.axisY, { y1: 0, y2: flat ? H : 0, x1: ox, x2: ox });
  }

  // An arrow of its own for each token: only those that changed are painted again.
  arrow(p, end) {
    if (!p || !end) return "";
    const [x, y] = this.toScreen(p), [u, v] = this.toScreen(end), length = Math.hypot(u - x, v - y);
    if (length < 10) return "";
    const [ex, ey] = [(u - x) / length, (v - y) / length], [hx, hy] = [u - 9 * ex, v - 9 * ey];
    return `M${x.toFixed(1)} ${y.toFixed(1)}L${hx.toFixed(1)} ${hy.toFixed(1)}` +
      `M${u.toFixed(1)} ${v.toFixed(1)}L${(hx - 4 * ey).toFixed(1)} ${(hy + 4 * ex).toFixed(1)}` +
      `L${(hx + 4 * ey).toFixed(1)} ${(hy - 4 * ex).toFixed(1)}Z`;
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
