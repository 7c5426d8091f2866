// The reference, drawn from openapi.json: no library, nothing fetched from elsewhere.
import { make } from "./dom.js";

const home = document.getElementById("routes");

function kind(schema, all) {
  if (!schema) return "";
  if (schema.$ref) return kind(all[schema.$ref.split("/").pop()], all);
  if (schema.anyOf) return schema.anyOf.map((one) => kind(one, all)).filter((x) => x !== "null").join(" or ");
  if (schema.enum) return schema.enum.map((x) => JSON.stringify(x)).join(", ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${kind(schema.items, all) || "anything"}`;
  return schema.type || "anything";
}

function limits(schema) {
  const said = [];
  const from = schema.minimum ?? schema.exclusiveMinimum, to = schema.maximum ?? schema.exclusiveMaximum;
  if (from !== undefined || to !== undefined) said.push(`${from ?? "…"} to ${to ?? "…"}`);
  if (schema.maxItems) said.push(`at most ${schema.maxItems}`);
  if (schema.maxLength) said.push(`at most ${schema.maxLength} characters`);
  return said.join(", ");
}

function fields(parent, schema, all) {
  const table = make("table", parent);
  const head = make("tr", make("thead", table));
  for (const name of ["field", "what", "default", "about"]) make("th", head, name);
  const body = make("tbody", table);
  for (const [name, field] of Object.entries(schema.properties || {})) {
    const row = make("tr", body);
    make("code", make("th", row), name + ((schema.required || []).includes(name) ? " *" : ""));
    make("td", row, [kind(field, all), limits(field)].filter(Boolean).join("; "));
    make("td", row, field.default === undefined ? "" : JSON.stringify(field.default));
    make("td", row, field.description || "");
  }
}

async function draw() {
  const api = await (await fetch("/openapi.json")).json();
  const all = api.components?.schemas || {};
  home.textContent = "";
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, route] of Object.entries(methods)) {
      const part = make("section", home, undefined, "route");
      const title = make("h2", part);
      make("span", title, method.toUpperCase(), "method");
      make("code", title, path);
      make("p", part, route.description || "");
      const body = route.requestBody?.content?.["application/json"]?.schema;
      const name = body?.$ref?.split("/").pop();
      if (name) fields(part, all[name], all);
    }
  }
}

draw().catch((error) => { home.textContent = `openapi.json could not be read: ${error.message}`; });
