// Drop a file of texts: label them in batches, see how far it is, take the labels home.
import { post } from "./api.js";
import { say } from "./app.js";
import { make, save } from "./dom.js";

const BATCH = 100, MOST = 50_000_000;

// CSV as RFC 4180 has it: quotes, doubled quotes, line ends inside them.
export function parseCsv(text) {
  const rows = [];
  let row = [], cell = "", quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[i + 1] === '"') { cell += '"'; i++; }
      else quoted = false;
    } else if (c === '"' && !cell) quoted = true;
    else if (c === ",") { row.push(cell); cell = ""; }
    else if (c === "\n" || c === "\r") {
      if (c === "\r" && text[i + 1] === "\n") i++;
      row.push(cell);
      if (row.length > 1 || row[0]) rows.push(row);
      row = [];
      cell = "";
    } else cell += c;
  }
  row.push(cell);
  if (row.length > 1 || row[0]) rows.push(row);
  return rows;
}

const COLUMN = /^(text|texts|review|reviews|content|sentence|body|comment)$/i;

// The texts of a file: a column named text (or the like), else the longest; a JSON line each; or plain lines.
export function textsOf(name, data) {
  if (/\.jsonl$|\.ndjson$/i.test(name)) {
    return data.split("\n").filter((line) => line.trim()).map((line) => {
      const value = JSON.parse(line);
      const text = typeof value === "string" ? value : Object.entries(value).find(([k, v]) => COLUMN.test(k) && typeof v === "string")?.[1];
      if (text === undefined) throw new Error('each line: expected a text or an object with "text"');
      return text;
    });
  }
  if (!/\.csv$/i.test(name)) return data.split(/\r?\n/).filter((line) => line.trim());
  const rows = parseCsv(data), head = rows[0] || [];
  let at = head.findIndex((cell) => COLUMN.test(cell.trim()));
  if (at >= 0) return rows.slice(1).map((row) => row[at] ?? "");
  const size = head.map((_, j) => rows.reduce((sum, row) => sum + (row[j] || "").length, 0));
  at = size.indexOf(Math.max(...size));
  return rows.map((row) => row[at] ?? "");
}

// A cell that begins like a formula would be run by a spreadsheet: a quote in front keeps it a text.
const cell = (x) => {
  const text = /^[=+\-@\t\r]/.test(String(x)) && typeof x === "string" ? `'${x}` : String(x ?? "");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

export function labelFile(home, model) {
  make("h2", home, "Label a file");
  make("p", home, "A column named text (review, comment, …), else the longest; of a text the first 100,000 characters. You get a CSV back: text, label, probability, decision.", "note");
  const drop = make("div", home, "", "drop", { id: "label-drop" });
  make("label", drop, `Drop a .csv, .jsonl or .txt of up to ${MOST / 1e6} MB here, or choose `).append(
    make("input", null, "", "", { type: "file", accept: ".csv,.jsonl,.ndjson,.txt", id: "label-file" }));
  const bar = make("progress", home, "", "", { max: 1, value: 0, "aria-label": "texts labelled" });
  const said = make("p", home, "", "note", { "aria-live": "polite", id: "label-said" });
  const buttons = make("div", home, "", "bar");
  const stop = make("button", buttons, "Stop", "", { type: "button" });
  const take = make("button", buttons, "Download labels", "", { type: "button", id: "label-take" });
  bar.hidden = stop.hidden = take.hidden = true;
  let wanted = null;

  async function go(file) {
    if (file.size > MOST) throw new Error(`at most ${MOST / 1e6} MB, got ${(file.size / 1e6).toFixed(1)} MB`);
    const texts = textsOf(file.name, await file.text());
    if (!texts.length) throw new Error(`${file.name}: no text found`);
    const rows = [], mine = { on: true };
    wanted = mine;
    bar.hidden = stop.hidden = false;
    take.hidden = true;
    // By size as well as by number: a request holds a megabyte.
    let failed = null;
    for (let at = 0; at < texts.length && mine.on && !failed;) {
      let end = at, size = 0;
      while (end < texts.length && end - at < BATCH && (size += texts[end].length) < 150_000) end++;
      end = Math.max(end, at + 1);
      const part = texts.slice(at, end).map((text) => text.slice(0, 100_000));
      try { rows.push(...(await post("predict", { texts: part, model: model() || null })).predictions); }
      catch (error) { failed = error; } // what is labelled by now can still be taken home
      at = end;
      bar.value = rows.length / texts.length;
      said.textContent = `${rows.length} of ${texts.length} texts`;
    }
    const count = new Map();
    for (const row of rows) count.set(row.label ?? "without a verdict", (count.get(row.label ?? "without a verdict") || 0) + 1);
    said.textContent = `${rows.length} of ${texts.length} texts: ${[...count].map(([label, n]) => `${n} ${label}`).join(", ")}` + (failed ? `; then ${failed.message}` : "");
    stop.hidden = true;
    take.hidden = false;
    take.onclick = () => {
      const lines = rows.map((row, i) => [texts[i], row.label, row.probability, row.decision].map(cell).join(","));
      save("labels.csv", `text,label,probability,decision\n${lines.join("\n")}\n`, "text/csv");
    };
  }
  const start = (file) => { if (file) go(file).catch((error) => { said.textContent = error.message; say(error); }); };
  stop.addEventListener("click", () => { if (wanted) wanted.on = false; });
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    start(event.dataTransfer.files[0]);
  });
  drop.querySelector("input").addEventListener("change", (event) => start(event.target.files[0]));
}
