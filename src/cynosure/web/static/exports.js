// Take it with you: the link, the picture, the numbers, and the Python that makes them again.
import { say } from "./app.js";
import { $, save } from "./dom.js";
import { LAYERS, toLink } from "./state.js";

const list = (rows) => `[${rows.map((row) => `[${row.join(", ")}]`).join(", ")}]`;

export function python(play) {
  const { z, A, alpha, exact, rational, beside } = play.state, lines = ["import cynosure as cy", ""];
  if (rational && exact) {
    lines.push("from fractions import Fraction as F", `z0 = [${exact.map((row) => `[${row.map((x) => `F("${x}")`).join(", ")}]`).join(", ")}]`);
  } else lines.push(`z0 = ${list(z)}`);
  const attention = A ? `cy.Hardmax(${list(A)})` : "cy.Hardmax()";
  lines.push(`dynamics = cy.PureAttention(${attention}, alpha=${rational ? `"${play.rationalAlpha()}"` : alpha})`,
    `li = cy.limit(dynamics, z0${rational ? ", exact=True" : ""})`,
    "print(li.leaders, li.certified)", "for i in range(len(z0)):", "    print(i, li.points[i], li.in_words(i))");
  const start = rational && exact ? list(z) : "z0";
  lines.push(`tr = cy.simulate(dynamics, ${start}, layers=${LAYERS})`, "for c in cy.check(tr):", "    print(c)");
  if (beside) lines.push("", `beside = ${expression(beside, play.forms)}`, `print(cy.simulate(beside, ${start}, ${play.forms.dynamics[beside.name].in_time ? "time" : "layers"}=${beside.clock}))`);
  return lines.join("\n") + "\n";
}

function expression(spec, forms) {
  const parts = Object.entries(spec).filter(([key]) => key !== "name" && key !== "clock").map(([key, value]) => {
    if (value && value.name) return `${key}=cy.ATTENTIONS["${value.name}"](${expression(value, forms).replace(/^[^(]*\(|\)$/g, "")})`;
    if (Array.isArray(value)) {
      return value.length && value[0].name ? `${key}=[${value.map((one) => expression(one, forms)).join(", ")}]` : `${key}=${list(value)}`;
    }
    return `${key}=${JSON.stringify(value)}`;
  });
  return `cy.DYNAMICS["${spec.name}"](${parts.join(", ")})`;
}

function csv(play) {
  const { z } = play.state, { found } = play, d = play.d;
  const head = ["token", ...z[0].map((_, j) => `z${j}`), ...z[0].map((_, j) => `limit${j}`), "rule", "follows", "leads since", "settled at"];
  const rows = z.map((row, i) => [i, ...row, ...(found ? found.points[i] : Array(d).fill("")), found?.rule?.[i] ?? "",
    found && found.follows[i] >= 0 ? found.follows[i] : "", found && found.born[i] >= 0 ? found.born[i] : "",
    found && found.settled_at[i] >= 0 ? found.settled_at[i] : ""]);
  return [head, ...rows].map((row) => row.join(",")).join("\n") + "\n";
}

export function picture() {
  const copy = $("stage").cloneNode(true), paper = getComputedStyle($("stage")).backgroundColor;
  const ink = getComputedStyle(document.body).color;
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", 800);
  copy.setAttribute("height", 560);
  copy.setAttribute("color", ink);
  const ground = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [k, v] of Object.entries({ width: 800, height: 560, fill: paper })) ground.setAttribute(k, v);
  copy.prepend(ground);
  const many = $("stage").parentNode.querySelector("canvas:not([hidden])");
  if (many) {
    const image = document.createElementNS("http://www.w3.org/2000/svg", "image");
    for (const [k, v] of Object.entries({ width: 800, height: 560, href: many.toDataURL() })) image.setAttribute(k, v);
    ground.after(image);
  }
  for (const node of copy.querySelectorAll("[tabindex], [role], [aria-label]")) for (const name of ["tabindex", "role", "aria-label"]) node.removeAttribute(name);
  return new XMLSerializer().serializeToString(copy);
}

async function png() {
  const image = new Image();
  image.src = `data:image/svg+xml;base64,${btoa(unescape(encodeURIComponent(picture())))}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = 1600;
  canvas.height = 1120;
  canvas.getContext("2d").drawImage(image, 0, 0, 1600, 1120);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function exporting(play) {
  const shown = $("python"), actions = {
    link: async () => {
      const link = `${location.origin}/#play=${toLink(play.state)}`;
      try { await navigator.clipboard.writeText(link); shown.textContent = "The link is in the clipboard."; }
      catch { shown.textContent = link; }
      shown.hidden = false;
    },
    curl: async () => {
      const body = JSON.stringify(play.limitBody()).replaceAll("'", "");
      shown.textContent = `curl -s ${location.origin}/api/v1/limit -H 'Content-Type: application/json' \\\n  -d '${body}'\n`;
      shown.hidden = false;
    },
    python: async () => { shown.textContent = python(play); shown.hidden = false; },
    svg: async () => save("tokens.svg", picture(), "image/svg+xml"),
    png: async () => save("tokens.png", await png(), "image/png"),
    csv: async () => save("tokens.csv", csv(play), "text/csv"),
    npz: async () => save("run.npz", await play.file("npz"), "application/octet-stream"),
    html: async () => save("report.html", await play.file("html"), "text/html"),
  };
  for (const button of document.querySelectorAll("[data-export]")) {
    button.addEventListener("click", async () => {
      button.disabled = true;
      try { await actions[button.dataset.export](); } catch (error) { say(error); }
      button.disabled = false;
    });
  }
}
