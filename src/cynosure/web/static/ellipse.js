// A as the ellipse <Ax, x> = 1, with a handle on each axis; drawn for symmetric positive definite A.
import { $, draw, make, set } from "./dom.js";

const REACH = 1.45;

export function axes(A) {
  const [[a, b], [c, d]] = A, m = (b + c) / 2, mean = (a + d) / 2, r = Math.hypot((a - d) / 2, m);
  const angle = Math.atan2(m, (a - d) / 2) / 2; // of the larger eigenvalue
  return { values: [mean + r, mean - r], angle };
}

export const isDefinite = (A) => {
  if (!A) return true;
  if (A.some((row, i) => row.some((x, j) => x !== A[j][i]))) return false;
  if (A.length !== 2) return true; // the server says; here only what is drawn
  return axes(A).values[1] > 0;
};

function matrixOf(p, q, angle) {
  const [c, s] = [Math.cos(angle), Math.sin(angle)], round = (x) => Number(x.toPrecision(6));
  const off = round((p - q) * c * s);
  return [[round(p * c * c + q * s * s), off], [off, round(p * s * s + q * c * c)]];
}

export class FormView {
  constructor(changed, done) {
    this.changed = changed;
    this.done = done;
    this.svg = $("ellipse");
    draw("line", this.svg, { x1: -2, x2: 2, y1: 0, y2: 0, stroke: "#8884", "stroke-width": 0.015 });
    draw("line", this.svg, { y1: -2, y2: 2, x1: 0, x2: 0, stroke: "#8884", "stroke-width": 0.015 });
    draw("circle", this.svg, { r: 1, fill: "none", stroke: "#8888", "stroke-width": 0.015, "stroke-dasharray": "0.06 0.05" });
    this.shape = draw("ellipse", this.svg, { fill: "#0072b222", stroke: "#0072b2", "stroke-width": 0.03 });
    this.text = draw("text", this.svg, { x: 0, y: 0.1, "font-size": 0.28, "text-anchor": "middle", fill: "currentColor" });
    this.handles = [0, 1].map((i) => this.handle(i));
    for (const node of this.handles) node.style.display = "none"; // until there is an A to hold
    this.cells = [];
  }

  handle(i) {
    const node = draw("circle", this.svg, { r: 0.13, fill: i ? "#d55e00" : "#0072b2", tabindex: 0, role: "slider", "aria-valuenow": 1,
      "data-handle": i, "aria-label": `axis ${i + 1} of the ellipse of A; arrows change it` });
    node.style.cursor = "grab";
    node.addEventListener("pointerdown", (event) => {
      node.setPointerCapture(event.pointerId);
      const move = (e) => this.drag(i, e);
      const up = () => {
        node.removeEventListener("pointermove", move);
        node.removeEventListener("pointerup", up);
        this.done();
      };
      node.addEventListener("pointermove", move);
      node.addEventListener("pointerup", up);
    });
    node.addEventListener("keydown", (event) => {
      const turn = { ArrowLeft: 0.08, ArrowRight: -0.08 }[event.key] || 0;
      const grow = { ArrowUp: 1.1, ArrowDown: 1 / 1.1 }[event.key] || 1;
      if (!turn && grow === 1) return;
      event.preventDefault();
      const { values, angle } = axes(this.A);
      values[i] = Math.min(1e4, Math.max(1e-4, values[i] / grow ** 2));
      this.changed(matrixOf(values[0], values[1], angle + turn));
      this.done();
    });
    return node;
  }

  drag(i, event) {
    const box = this.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * 3.2 - 1.6, y = 1.6 - ((event.clientY - box.top) / box.height) * 3.2;
    const length = Math.max(0.08, Math.hypot(x, y) * this.zoom);
    const { values } = axes(this.A);
    const angle = Math.atan2(y, x) - (i ? Math.PI / 2 : 0);
    const next = [...values];
    next[i] = 1 / length ** 2;
    this.changed(matrixOf(next[0], next[1], angle));
  }

  show(A, d) {
    this.A = A || [[1, 0], [0, 1]];
    this.matrix(A, d);
    const drawn = d === 2 && isDefinite(A);
    for (const node of [this.shape, ...this.handles]) node.style.display = drawn ? "" : "none";
    this.text.textContent = drawn ? "" : d === 2 ? "not definite" : `d = ${d}`;
    if (!drawn) return;
    const { values, angle } = axes(this.A), [p, q] = values.map((v) => 1 / Math.sqrt(v));
    this.zoom = Math.max(1, Math.max(p, q) / REACH);
    const [a, b] = [p / this.zoom, q / this.zoom];
    set(this.shape, { rx: a, ry: b, transform: `rotate(${(-angle * 180) / Math.PI})` });
    values.forEach((value, i) => set(this.handles[i], { "aria-valuenow": value.toPrecision(3) }));
    set(this.handles[0], { cx: a * Math.cos(angle), cy: -a * Math.sin(angle) });
    set(this.handles[1], { cx: -b * Math.sin(angle), cy: -b * Math.cos(angle) });
  }

  matrix(A, d) {
    const home = $("matrix");
    if (d > 4) { home.replaceChildren(); this.cells = []; return; }
    if (this.cells.length !== d * d) {
      home.replaceChildren();
      home.style.gridTemplateColumns = `repeat(${d}, minmax(0, 1fr))`;
      this.cells = Array.from({ length: d * d }, (_, at) => {
        const cell = make("input", home, "", "", { type: "number", step: "any", "aria-label": `A, row ${Math.floor(at / d) + 1}, column ${(at % d) + 1}` });
        cell.addEventListener("change", () => { this.changed(this.read(d)); this.done(); });
        return cell;
      });
    }
    this.cells.forEach((cell, at) => {
      const [i, j] = [Math.floor(at / d), at % d], value = A ? A[i][j] : i === j ? 1 : 0;
      cell.exact = value; // four digits are seen, all are kept
      if (document.activeElement !== cell || Number(cell.value) !== value) cell.value = Number(value.toPrecision(4));
    });
  }

  valueOf(cell) {
    const typed = Number(cell.value) || 0;
    return typed === Number(cell.exact?.toPrecision(4)) ? cell.exact : typed;
  }

  read(d) {
    return Array.from({ length: d }, (_, i) => Array.from({ length: d }, (_, j) => this.valueOf(this.cells[i * d + j])));
  }
}
