// The four rooms, the theme, and the place where problems are said.
import { isLocal } from "./api.js";
import { $ } from "./dom.js";

const ROOMS = { play: "./play.js", ...(isLocal ? {} : { read: "./read.js", look: "./look.js", gallery: "./gallery.js" }) };
const opened = new Map();

let hiding = 0;
export function say(error, about = "") {
  const box = $("problem");
  box.dataset.about = about;
  box.textContent = error.message || String(error);
  box.hidden = false;
  clearTimeout(hiding);
  hiding = setTimeout(() => { box.hidden = true; }, 8000);
}

// What was wrong with something is over once that something is answered.
export function calm(about) {
  if ($("problem").dataset.about === about) $("problem").hidden = true;
}

async function enter() {
  const [, name, rest] = location.hash.match(/^#?([^=]*)=?(.*)$/s);
  const story = await import("./story.js"), step = name === "story" ? story.tell(rest) : null;
  if (!step) story.untell();
  const room = step ? step.room : ROOMS[name] ? name : "play";
  for (const link of document.querySelectorAll("[data-room]")) {
    if (link.dataset.room === room) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const each of Object.keys(ROOMS)) $(`room-${each}`).hidden = each !== room;
  try {
    if (!opened.has(room)) opened.set(room, import(ROOMS[room]).then((m) => m.open($(`room-${room}`))));
    const live = await opened.get(room);
    if (step) await step.begin(live);
    else if (live?.visit) await live.visit(rest);
  } catch (error) { say(error); }
}

// Small things about the reader; storage may be forbidden, then they last as long as the page.
export function remembered(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}
export function remember(key, value) {
  try { localStorage.setItem(key, value); } catch { /* then not */ }
}

function theme() {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = remembered("theme");
  const show = () => {
    document.documentElement.dataset.theme = chosen || (system.matches ? "dark" : "light");
    document.dispatchEvent(new Event("theme"));
  };
  system.addEventListener("change", show);
  $("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    remember("theme", chosen);
    show();
  });
  show();
}

theme();
// A file dropped beside its place would take the browser away from the page.
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
addEventListener("hashchange", enter);
enter();
