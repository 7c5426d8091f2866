// The story: nine steps on the live rooms, one sentence and one thing to do each. #story=4 is the fourth.
import { isLocal } from "./api.js";
import { $, make, write } from "./dom.js";
import { fresh } from "./state.js";

const WORDS = ["the", "film", "was", "slow", "but", "wonderful"];
export const PLACES = [[0.1, -0.25], [0.55, -0.75], [-0.2, -0.3], [-1.05, 0.15], [-0.3, 0.35], [1.1, 0.75]];
const SENTENCE = "The film was slow but the ending is wonderful.";
const REVIEW = "The plot is dull, but the acting is superb and the music wonderful.";

const sentence = (scored, show = {}) => (play) => {
  play.reset({ ...fresh(), z: PLACES.map((row) => [...row]), words: WORDS, show: { ...fresh().show, hull: false, polytope: false, arrows: "none", ...show } });
  play.scored = scored;
  play.draw();
};
const next = (play) => { play.scored = ((play.scored ?? -1) + 1) % play.n; play.draw(); };
const run = (play) => play.time.playStop();

// One more token outside of all, each time in another direction.
function farOut(play) {
  const turn = 2.4 * play.n;
  play.change({ z: [...play.state.z, [1.45 * Math.cos(turn), 1.45 * Math.sin(turn)]] });
  play.settle();
}

async function soft(play) {
  await play.presets.load("gaussian", { n: 40, seed: 2 });
  play.change({ beside: { name: "pure_attention", alpha: play.state.alpha, attention: { name: "softmax", beta: 1.5 }, clock: 100 } });
  play.beside.fill();
  play.settle();
}

const EVERY = [
  { said: "A transformer reads a sentence as points, one a word. Attention gives each pair of words a score: the scalar product of their two vectors.",
    todo: "Drag “but” and watch the scores that it gives.", act: ["Scores of the next word", next], set: sentence(4, { scores: true }) },
  { said: "Hardmax attention hears one word only: the one with the highest score. “but” hears “slow”.",
    todo: "Drag “but” until it hears “wonderful”.", act: ["The next word", next], set: sentence(4, { scores: true }) },
  { said: "In a layer each word takes a step towards the word it scores highest. A transformer is many layers, one after another.",
    todo: "Go through the layers one by one.", act: ["One layer", (play) => play.time.step(1)], set: sentence(undefined, { arrows: "step" }) },
  { said: "After many layers a few tokens lead: the stars. A leader hears only itself, so it never moves again. Here all others end at a leader.",
    todo: "Press play and count what is left of 40 tokens.", act: ["Play", run], set: (play) => play.presets.load("gaussian", { n: 40, seed: 2 }) },
  { said: "The places where tokens end span a polytope, K. Its corners are leaders. It is proved, not guessed after many layers.",
    todo: "Drag a star outwards, and K follows.", act: ["Put a token far out", (play) => { farOut(play); }],
    set: async (play) => { await play.presets.load("polygon", { n: 6, interior: 20 }); play.change({ show: { ...play.state.show, arrows: "limit" } }); play.settle(); } },
  { said: "A leader may be born late. Here one token moves with the mean of two others for 60 layers. Then it scores itself highest, and leads.",
    todo: "Play, or press the ★ below the slider: it marks the birth.", act: ["Play to the birth", run], set: (play) => play.presets.load("golden", { name: "G4" }) },
  { said: "Transformers use softmax: every word hears all others, the more the higher the score. Clusters form, last for some layers, and merge.",
    todo: "Press play. Then make β larger: clusters last longer, as in hardmax attention.", act: ["Play", run], beta: true, set: soft },
  { room: "look", said: "The same with a real sentence in a real model: its words by layer, and what each head of its attention looks at.",
    todo: "Play the layers. Do the words come together?", act: ["Play", (look) => look.playStop()], set: (look) => look?.tell(SENTENCE) },
  { room: "read", said: "A classifier built of hardmax layers can say why. A few words of a review lead, and what they add is the verdict.",
    todo: "Strike a word, and the verdict is computed without it.", act: ["Strike the strongest word", (read) => read.strikeStrongest()], set: (read) => read.tell(REVIEW) },
];

export const STEPS = EVERY.filter((step) => !isLocal || !step.room);

let at = 0, live = null, wired = false;

const go = (to) => { if (to >= 0 && to < STEPS.length) location.hash = `story=${to + 1}`; };
const leave = () => { present(false); location.hash = STEPS[at].room || "play"; };

// Full screen where the browser allows it: nothing but the stage and the sentence.
function present(on) {
  const { body, documentElement: whole } = document;
  if (!!body.dataset.present === on) return;
  if (on) { body.dataset.present = "true"; whole.requestFullscreen?.().catch(() => {}); }
  else { delete body.dataset.present; if (document.fullscreenElement) document.exitFullscreen(); }
  $("story-present").setAttribute("aria-pressed", String(on));
  document.dispatchEvent(new Event("present"));
}

function wire() {
  wired = true;
  STEPS.forEach((_, i) => make("a", $("story-steps"), String(i + 1), "", { href: `#story=${i + 1}`, "aria-label": `step ${i + 1}` }));
  $("story-back").addEventListener("click", () => go(at - 1));
  $("story-next").addEventListener("click", () => go(at + 1));
  $("story-end").addEventListener("click", leave);
  $("story-present").addEventListener("click", () => present(!document.body.dataset.present));
  $("story-act").addEventListener("click", () => STEPS[at].act[1](live));
  $("story-beta").addEventListener("input", (event) => {
    const { beside } = live.state, beta = Number(Math.exp(Number(event.target.value)).toPrecision(2));
    live.change({ beside: { ...beside, attention: { ...beside.attention, beta } } });
    live.settle();
    said();
  });
  document.addEventListener("fullscreenchange", () => { if (!document.fullscreenElement) present(false); });
  addEventListener("keydown", (event) => {
    if (!telling() || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") { present(false); return; }
    if (event.target.closest?.("input, textarea, select, [data-token], [role=slider]")) return;
    const by = { ArrowRight: 1, PageDown: 1, ArrowLeft: -1, PageUp: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    go(at + by);
  });
  new ResizeObserver(() => document.body.style.setProperty("--told", `${$("story").offsetHeight}px`)).observe($("story"));
  let from = null;
  $("story").addEventListener("pointerdown", (event) => { from = [event.clientX, event.clientY]; });
  addEventListener("pointerup", (event) => {
    if (!from || !telling()) return;
    const [x, y] = [event.clientX - from[0], event.clientY - from[1]];
    from = null;
    if (Math.abs(x) > 60 && Math.abs(x) > 2 * Math.abs(y)) go(at - Math.sign(x));
  });
}

export const telling = () => "story" in document.body.dataset;

function said() {
  const beta = live?.state?.beside?.attention?.beta;
  write($("story-beta-said"), beta ? `β = ${beta}` : "");
  if (beta) $("story-beta").value = Math.log(beta);
}

// The step of a link: shown at once, acted out by `begin` when its room is open.
export function tell(rest) {
  if (!wired) wire();
  at = Math.min(Math.max(1, Number.parseInt(rest, 10) || 1), STEPS.length) - 1;
  const step = STEPS[at];
  document.body.dataset.story = at + 1;
  $("story").hidden = false;
  write($("story-said"), step.said);
  write($("story-todo"), step.todo);
  write($("story-act"), step.act[0]);
  $("story-beta").parentNode.hidden = !step.beta;
  $("story-back").disabled = at === 0;
  $("story-next").disabled = at === STEPS.length - 1;
  [...$("story-steps").children].forEach((link, i) => {
    if (i === at) link.setAttribute("aria-current", "step"); else link.removeAttribute("aria-current");
  });
  return { room: step.room || "play", begin: async (room) => {
    live = room;
    $("story-act").disabled = !room;
    if (!room) write($("story-todo"), "This server was started without a model: below is how to give it one. The next step needs none.");
    if (room?.time?.timer) room.time.stop();
    await step.set(room);
    said();
  } };
}

export function untell() {
  present(false);
  delete document.body.dataset.story;
  $("story").hidden = true;
}
