// Take it with you: the link, the picture, the numbers, and the Python that makes them again.
import { say } from "./app.js";
import { $, code, draw, make, save, set, short } from "./dom.js";
import { edits } from "./state.js";

const list = (rows) => `[${rows.map((row) => `[${row.join(", ")}]`).join(", ")}]`;

const call = (params) => Object.entries(params).map(([key, value]) => `${key}=${JSON.stringify(value)}`).join(", ");

// The configuration and what was changed of it; null where the tokens have no such name.
async function named(play) {
  const { from, z } = play.state, base = await play.base(), changed = base && from[0] !== "words" && edits(z, base.z);
  return changed && { ...changed, exact: base.exact, same: !changed.moved.length && !changed.gone.length && !changed.added.length };
}

// The start in Python: a configuration and what was changed of it, or the tokens themselves.
function startLines({ state }, changed) {
  const { z, from, exact, rational } = state;
  if (rational && exact) {
    if (from?.[0] === "golden" && changed && !changed.gone.length) return [`z0 = cy.configurations.golden_exact("${from[1].name}")`];
    return ["from fractions import Fraction as F", `z0 = [${exact.map((row) => `[${row.map((x) => `F("${x}")`).join(", ")}]`).join(", ")}]`];
  }
  if (!changed) return [`z0 = ${list(z)}`];
  const { moved, gone, added } = changed, lines = [`z0 = cy.configurations.${from[0]}(${call(from[1])})`, ...moved.map(([i, row]) => `z0[${i}] = [${row.join(", ")}]`)];
  if (gone.length) lines.push(`z0 = np.delete(z0, [${gone.join(", ")}], axis=0)`);
  if (added.length) lines.push(`z0 = np.vstack([z0, ${list(added)}])`);
  return gone.length + added.length ? ["import numpy as np", "", ...lines] : lines;
}

export async function python(play) {
  const { A, alpha, rational, beside, exact } = play.state, lines = ["import cynosure as cy", ...startLines(play, await named(play))];
  const attention = A ? `cy.Hardmax(${list(A)})` : "cy.Hardmax()";
  lines.push(`dynamics = cy.PureAttention(${attention}, alpha=${rational ? `"${play.rationalAlpha()}"` : alpha})`,
    `li = cy.limit(dynamics, z0${rational ? ", exact=True" : ""})`,
    "print(li.leaders, li.certified)", "for i in range(len(z0)):", "    print(i, li.points[i], li.in_words(i))");
  const start = rational && exact ? "[[float(x) for x in row] for row in z0]" : "z0";
  lines.push(`tr = cy.simulate(dynamics, ${start}, layers=${play.time.last})`, "for c in cy.check(tr):", "    print(c)");
  if (beside) lines.push("", `beside = ${expression(beside, play.forms)}`, `print(cy.simulate(beside, ${start}, ${play.forms.dynamics[beside.name].in_time ? "time" : "layers"}=${beside.clock}))`);
  return lines.join("\n") + "\n";
}

const printed = (rows, name) => `printf '${rows.map((row) => row.join(",")).join("\\n")}\\n' > ${name}\n`;

// The same for a shell: a configuration has a name there, other tokens go into a file.
async function command(play) {
  const { state } = play, { A, rational, exact } = state, plain = (await named(play))?.same;
  const values = plain ? Object.entries(state.from[1]).map(([key, value]) => (key === "name" ? value : `${key}=${value}`)) : [];
  return (plain ? "" : printed(rational && exact ? exact : state.z, "tokens.csv")) + (A ? printed(A, "A.csv") : "") +
    `cynosure limit ${plain ? [state.from[0], values.join(",")].filter(Boolean).join(":") : "tokens.csv"} --alpha ${rational ? play.rationalAlpha() : state.alpha}${A ? " --A A.csv" : ""}${rational ? " --exact" : ""}\n`;
}

// The same as a request: a configuration is fetched, edited by jq and sent on.
async function curl(play) {
  const { state } = play, { A, alpha, rational, exact } = state, changed = await named(play);
  const api = `${location.origin}/api/v1`, to = `curl -s ${api}/limit -H 'Content-Type: application/json'`;
  const body = { alpha: rational ? play.rationalAlpha() : alpha, ...(A ? { A } : {}), ...(rational ? { exact: true } : {}) };
  if (!changed || (rational && (changed.moved.length || changed.added.length))) {
    return `${to} \\\n  -d '${JSON.stringify({ tokens: rational && exact ? exact : state.z, ...body })}'\n`;
  }
  const { moved, gone, added } = changed, [name, params] = state.from;
  const steps = [...moved.map(([i, row]) => `.tokens[${i}] = ${JSON.stringify(row)}`), ...(gone.length ? [`del(.tokens[${gone}])`] : []),
    ...(added.length ? [`.tokens += ${JSON.stringify(added)}`] : [])];
  if (rational && changed.exact) steps.unshift(".tokens = .exact");
  return `curl -s '${api}/configurations/${name}?${new URLSearchParams(params)}' |\n  jq -c '${[...steps, `{tokens} + ${JSON.stringify(body)}`].join(" | ")}' |\n  ${to} -d @-\n`;
}

function expression(spec, forms) {
  const parts = Object.entries(spec).filter(([key]) => key !== "name" && key !== "clock").map(([key, value]) => {
    if (value && value.name) return `${key}=cy.attention.ATTENTIONS["${value.name}"](${expression(value, forms).replace(/^[^(]*\(|\)$/g, "")})`;
    if (Array.isArray(value)) {
      return value.length && value[0].name ? `${key}=[${value.map((one) => expression(one, forms)).join(", ")}]` : `${key}=${list(value)}`;
    }
    return `${key}=${JSON.stringify(value)}`;
  });
  return `cy.dynamics.DYNAMICS["${spec.name}"](${parts.join(", ")})`;
}

function csv(play) {
  const { z } = play.state, { found } = play, d = play.d;
  const head = ["token", ...z[0].map((_, j) => `z${j}`), ...z[0].map((_, j) => `limit${j}`), "rule", "follows", "leads since", "settled at"];
  const rows = z.map((row, i) => [i, ...row, ...(found ? found.points[i] : Array(d).fill("")), found?.rule?.[i] ?? "",
    found && found.follows[i] >= 0 ? found.follows[i] : "", found && found.born[i] >= 0 ? found.born[i] : "",
    found && found.settled_at[i] >= 0 ? found.settled_at[i] : ""]);
  return [head, ...rows].map((row) => row.join(",")).join("\n") + "\n";
}

const HEAD = 44, FOOT = 40, WIDE = 800, HIGH = 560; // of a picture that is taken home

// The stage with what it is, its layer and its legend.
export function picture(play) {
  const copy = $("stage").cloneNode(true), ink = getComputedStyle(document.body).color, paper = getComputedStyle(document.documentElement).getPropertyValue("--paper");
  const { k, alpha, A } = play.state, all = { x: 0, y: -HEAD, width: WIDE, height: HEAD + HIGH + FOOT };
  set(copy, { xmlns: "http://www.w3.org/2000/svg", width: WIDE, height: all.height, viewBox: `0 ${-HEAD} ${WIDE} ${all.height}`, color: ink, "font-family": "sans-serif" });
  const ground = draw("rect", null, { ...all, fill: paper });
  copy.prepend(ground);
  for (const text of copy.querySelectorAll("text")) set(text, { fill: ink, stroke: paper, "stroke-width": 4, "paint-order": "stroke" }); // as style.css has it
  const many = $("stage").parentNode.querySelector("canvas:not([hidden])");
  if (many) ground.after(draw("image", null, { width: WIDE, height: HIGH, href: many.toDataURL() }));
  draw("text", copy, { x: 14, y: -16, "font-size": 19, fill: ink }, `${$("preset").textContent}: layer ${k === "inf" ? "∞" : k}, α = ${short(alpha)}${A ? ", A as given" : ""}`);
  draw("text", copy, { x: WIDE - 14, y: -16, "font-size": 15, fill: ink, "text-anchor": "end" }, $("badge").textContent);
  const items = [...document.querySelectorAll(".legend li")], pen = make("canvas").getContext("2d");
  pen.font = "14px sans-serif";
  const widths = items.map((item) => 42 + pen.measureText(item.textContent).width), small = Math.min(1, (WIDE - 24) / widths.reduce((a, b) => a + b, 0));
  let x = 24;
  for (const [i, item] of items.entries()) {
    const mark = draw("g", copy, { transform: `translate(${x.toFixed(1)} ${HIGH + FOOT / 2}) scale(${small.toFixed(3)})`, class: "legend" });
    for (const part of item.querySelector("svg").children) mark.append(part.cloneNode());
    draw("text", mark, { x: 14, y: 5, "font-size": 14, fill: ink }, item.textContent);
    x += small * widths[i];
  }
  for (const node of copy.querySelectorAll("[tabindex], [role], [aria-label]")) for (const name of ["tabindex", "role", "aria-label"]) node.removeAttribute(name);
  return new XMLSerializer().serializeToString(copy);
}

async function png(play) {
  const image = new Image();
  image.src = `data:image/svg+xml;base64,${btoa(unescape(encodeURIComponent(picture(play))))}`;
  await image.decode();
  const canvas = make("canvas", null, "", "", { width: 2 * WIDE, height: 2 * (HEAD + HIGH + FOOT) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

export function exporting(play) {
  const { box, shown, take, tell } = code($("exports").parentNode);
  shown.id = "python";
  box.hidden = true;
  const actions = {
    link: async () => {
      const link = `${location.href.split("#")[0]}${await play.address()}`;
      tell(link);
      await take();
    },
    curl: async () => tell(await curl(play)),
    python: async () => tell(await python(play)),
    command: async () => tell(await command(play)),
    svg: async () => save("tokens.svg", picture(play), "image/svg+xml"),
    png: async () => save("tokens.png", await png(play), "image/png"),
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
