// Forms made from what /dynamics says: a dynamics entered in Python has one here the same day.
import { make } from "./dom.js";

function matrixField(parent, d, value, changed) {
  const box = make("div", parent, "", "matrix");
  box.style.gridTemplateColumns = `repeat(${d}, minmax(0, 1fr))`;
  const cells = [];
  for (let i = 0; i < d; i++) {
    for (let j = 0; j < d; j++) {
      const cell = make("input", box, "", "", { type: "number", step: "any", "aria-label": `row ${i + 1}, column ${j + 1}` });
      cell.value = value ? value[i][j] : i === j ? 1 : 0;
      cell.addEventListener("change", () => changed());
      cells.push(cell);
    }
  }
  const read = () => Array.from({ length: d }, (_, i) =>
    Array.from({ length: d }, (_, j) => Number(cells[i * d + j].value) || 0));
  const plain = () => read().every((row, i) => row.every((x, j) => x === (i === j ? 1 : 0)));
  return () => (plain() ? null : read());
}

// A positive number on a logarithmic slider too, answered while it moves.
function slider(parent, box, name, changed) {
  const range = make("input", parent, "", "", { type: "range", min: -3, max: 6, step: 0.05, "aria-label": `${name}, logarithmic` });
  const show = () => { range.value = Math.log(Number(box.value) || 1); };
  show();
  box.addEventListener("input", show);
  range.addEventListener("input", () => { box.value = Number(Math.exp(Number(range.value)).toPrecision(3)); changed(false); });
  range.addEventListener("change", () => changed());
}

function option(select, name) { make("option", select, name.replaceAll("_", " "), "", { value: name }); }

// Returns () => the spec as /simulate takes it. `begin` gives values to begin with: alpha and A of the stage.
export function dynamicsForm(parent, forms, d, spec, changed, begin = () => ({})) {
  parent.replaceChildren();
  const line = make("label", parent, "Dynamics ");
  const choice = make("select", line, "", "", { "aria-label": "dynamics", id: "beside-dynamics" });
  make("option", choice, "none", "", { value: "" });
  for (const name of Object.keys(forms.dynamics)) option(choice, name);
  choice.value = spec?.name && forms.dynamics[spec.name] ? spec.name : "";
  const about = make("p", parent, "", "note");
  const rows = make("div", parent, "", "fields");
  let readers = {};

  function fieldsOf(form, given, into, home) {
    for (const field of form.fields) {
      const id = `field-${field.name}-${home.children.length}`;
      make("label", home, field.name, "", { for: id });
      const value = given?.[field.name] ?? begin()[field.name];
      if (field.kind === "attention") {
        const pick = make("select", home, "", "", { id, "aria-label": field.name });
        for (const name of Object.keys(forms.attentions)) option(pick, name);
        pick.value = value?.name || field.default;
        const inner = {}, sub = make("div", home, "", "fields");
        sub.style.gridColumn = "1 / -1";
        const fill = (old) => {
          sub.replaceChildren();
          for (const key of Object.keys(inner)) delete inner[key];
          fieldsOf(forms.attentions[pick.value], old, inner, sub);
        };
        pick.addEventListener("change", () => { fill(null); changed(); });
        fill(value);
        into[field.name] = () => ({ name: pick.value, ...valuesOf(inner) });
      } else if (field.kind === "matrix") {
        if (d > 4) { make("span", home, "identity", "note", { id }); continue; }
        const box = make("div", home, "", "", { id });
        into[field.name] = matrixField(box, d, value, changed);
      } else if (field.kind === "list") {
        const area = make("textarea", home, "", "", { id, rows: 3, spellcheck: "false" });
        area.value = value ? JSON.stringify(value) : "";
        area.placeholder = '[{"name": "pure_attention"}]';
        area.addEventListener("change", () => changed());
        into[field.name] = () => (area.value.trim() ? JSON.parse(area.value) : null);
      } else {
        const sliding = ["alpha", "beta"].includes(field.name), pair = sliding ? make("span", home, "", "pair") : home;
        const box = make("input", pair, "", "", { id, type: field.kind === "text" ? "text" : "number", step: field.kind === "whole" ? 1 : "any" });
        box.value = value ?? field.default ?? "";
        box.addEventListener("change", () => changed());
        if (sliding) slider(pair, box, field.name, changed);
        into[field.name] = () => (box.value === "" ? null : field.kind === "text" ? box.value : Number(box.value));
      }
    }
  }

  function fill(given) {
    rows.replaceChildren();
    readers = {};
    const form = forms.dynamics[choice.value];
    about.textContent = form ? form.about : "The same tokens under softmax, a flow or any other dynamics, side by side.";
    if (!form) return;
    fieldsOf(form, given, readers, rows);
    make("label", rows, form.in_time ? "time" : "layers", "", { for: "field-clock" });
    const clock = make("input", rows, "", "", { id: "field-clock", type: "number", min: 0, step: form.in_time ? "any" : 1 });
    clock.value = given?.clock ?? (form.in_time ? 10 : 30);
    clock.addEventListener("change", () => changed());
    readers.clock = () => Number(clock.value) || (form.in_time ? 10 : 30);
  }

  choice.addEventListener("change", () => { fill(null); changed(); });
  fill(spec);
  return () => (choice.value ? { name: choice.value, ...valuesOf(readers) } : null);
}

function valuesOf(readers) {
  const out = {};
  for (const [name, read] of Object.entries(readers)) {
    const value = read();
    if (value !== null) out[name] = value;
  }
  return out;
}
