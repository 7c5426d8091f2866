// Gallery: every experiment with its picture, its text and its command; run one, watch it, read its report.
import { get, post, remove } from "./api.js";
import { say } from "./app.js";
import { make } from "./dom.js";

export async function open(home) {
  const waiting = make("p", home, "reading the experiments …", "note");
  const found = await get("experiments");
  waiting.remove();
  const intro = make("p", home, `${found.experiments.length} experiments: figures of the papers and questions of our own. Each runs here, quickly or in full, and leaves a report.`);
  intro.id = "gallery-intro";
  const filter = make("input", home, "", "", { type: "search", placeholder: "find, e.g. softmax", "aria-label": "find an experiment" });
  const none = make("p", home, "No experiment has this word.", "note", { role: "status" });
  none.hidden = true;
  const report = make("div", home);
  const tiles = [], chapters = [];
  let chapter = null, grid = null;
  for (const one of found.experiments) {
    if (one.chapter !== chapter) {
      chapter = one.chapter;
      const title = make("h2", home, chapter, "chapter");
      grid = make("div", home, "", "tiles");
      chapters.push([title, grid]);
    }
    tiles.push([tile(grid, one, report), `${one.name} ${one.title} ${one.about}`.toLowerCase()]);
  }
  const show = () => {
    const wanted = filter.value.toLowerCase();
    for (const [node, text] of tiles) node.hidden = !text.includes(wanted);
    for (const [title, all] of chapters) title.hidden = !all.querySelector(".tile:not([hidden])");
    none.hidden = !!home.querySelector(".tile:not([hidden])");
  };
  filter.addEventListener("input", () => {
    show();
    history.replaceState(null, "", filter.value ? `#gallery=${encodeURIComponent(filter.value)}` : "#gallery");
  });
  for (const run of found.runs) follow(home.querySelector(`[data-experiment="${run.name}"]`), report, run);
  // By a link: #gallery=softmax shows what has this word.
  return { visit(link) { filter.value = decodeURIComponent(link); show(); } };
}

function tile(grid, one, report) {
  const card = make("article", grid, "", "tile", { "data-experiment": one.name });
  if (one.picture) make("img", card, "", "", { alt: "", loading: "lazy", src: one.picture });
  make("h3", card, one.title);
  const first = one.about.split("\n\n")[0];
  make("p", card, first, "note");
  make("code", card, one.command);
  const form = make("details", card), fields = {};
  make("summary", form, "Parameters");
  const quick = make("input", make("label", form, ""), "", "", { type: "checkbox" });
  quick.checked = true;
  quick.parentNode.append(" quick (seconds instead of minutes)");
  const rows = make("div", form, "", "fields");
  const fill = () => {
    rows.replaceChildren();
    for (const [name, value] of Object.entries(quick.checked ? one.quick : one.params)) {
      make("label", rows, name, "", { for: `${one.name}-${name}` });
      const box = make("input", rows, "", "", { id: `${one.name}-${name}` });
      box.value = JSON.stringify(value);
      fields[name] = [box, JSON.stringify(value)];
    }
  };
  quick.addEventListener("change", fill);
  fill();
  const go = make("button", card, "Run", "main", { type: "button", "data-run": one.name });
  go.addEventListener("click", async () => {
    go.disabled = true;
    try {
      const params = {};
      for (const [name, [box, was]] of Object.entries(fields)) {
        if (box.isConnected && box.value !== was) {
          try { params[name] = JSON.parse(box.value); } catch { throw new Error(`${name}: expected a value like ${was}, got ${box.value}`); }
        }
      }
      follow(card, report, await post(`experiments/${one.name}`, { quick: quick.checked, params }));
    } catch (error) { say(error); }
    go.disabled = false;
  });
  return card;
}

// A run and its bar, in the tile of its experiment: there one has just pressed Run.
function follow(home, report, run) {
  if (!home) return;
  const card = make("div", home, "", "card", { "data-run-id": run.id, "data-state": run.state });
  const line = make("div", card, "", "bar");
  make("b", line, run.name);
  const said = make("span", line, run.state, "grow", { role: "status" });
  const stop = make("button", line, "Cancel", "", { type: "button" }), open_ = make("button", line, "Report", "main", { type: "button" });
  open_.hidden = true;
  const bar = make("progress", card, "", "", { max: 1, value: 0, "aria-label": `progress of ${run.name}` });
  const events = new EventSource(`/api/v1/experiments/runs/${run.id}/events`);
  const show = (state) => {
    card.dataset.state = state.state;
    bar.value = state.done;
    said.textContent = state.state === "done" ? `done. ${state.verdict}` : `${state.state}${state.what ? `: ${state.what}` : ""}`;
    if (["done", "failed", "cancelled"].includes(state.state)) {
      events.close();
      stop.hidden = bar.hidden = true;
      open_.hidden = state.state !== "done";
    }
    if (state.state === "done") {
      open_.onclick = () => {
        report.replaceChildren();
        make("iframe", report, "", "frame", { src: state.report, title: `report of ${state.name}`, sandbox: "" });
        report.scrollIntoView({ block: "start" });
      };
    }
  };
  events.onmessage = (message) => show(JSON.parse(message.data));
  events.onerror = () => { if (events.readyState === EventSource.CLOSED) said.textContent = "the server is gone"; };
  stop.addEventListener("click", async () => {
    stop.disabled = true;
    said.textContent = "cancelling …";
    try { show(await remove(`experiments/runs/${run.id}`)); } catch (error) { say(error); }
  });
}
