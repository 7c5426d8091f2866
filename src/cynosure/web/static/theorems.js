// The theorems on what is on the stage: ✓ with its margin, ✗, or · with the hypothesis that is missing.
import { $, make, short } from "./dom.js";

export function showTheorems(made, play) {
  const home = $("theorems");
  home.replaceChildren();
  if (made === null || made instanceof Error) {
    $("theorem-count").textContent = "";
    make("p", home, made ? made.message : `${play.n} tokens: checking takes a while.`, "note");
    make("button", home, "Check now", "", { type: "button" }).addEventListener("click", () => {
      home.textContent = "checking …";
      play.check();
    });
    return;
  }
  const apply = made.checks.filter((c) => c.applies), apart = made.checks.filter((c) => !c.applies);
  $("theorem-count").textContent = `${apply.filter((c) => c.holds).length} of ${apply.length} hold`;
  for (const check of apply) row(home, check, check.holds ? "✓" : "✗", check.holds ? "yes" : "no", `margin ${short(check.margin, 3)}`);
  const more = make("details", home);
  make("summary", more, `${apart.length} do not apply`);
  for (const check of apart) {
    const missing = check.hypotheses.filter((h) => !h.holds).map((h) => h.name).join(", ");
    row(more, check, "·", "apart", `missing: ${missing}`);
  }
}

const GREEK = { alpha: "α", beta: "β", eta: "η", rho: "ρ", sigma: "σ", theta: "θ", phi: "φ" };

// Formulas as the library writes them, K_{k+1} and |z_i|_A², with their indices set low and powers high.
export function formula(home, text) {
  const plain = text.replace(/\b[a-z]+\b/g, (word) => GREEK[word] ?? word).replace(/<([^<>]*,[^<>]*)>/g, "⟨$1⟩")
    .replace(/!=|>=|<=/g, (mark) => ({ "!=": "≠", ">=": "≥", "<=": "≤" })[mark]).replaceAll(" - ", " − ");
  for (const [, before, mark, braced, bare] of plain.matchAll(/([^_^]*)(?:([_^])(?:\{([^}]*)\}|([A-Za-z]|\d+)?))?/g)) {
    home.append(before);
    if (braced ?? bare) make(mark === "_" ? "sub" : "sup", home, braced ?? bare);
    else home.append(mark ?? "");
  }
}

function row(parent, check, mark, className, why) {
  const line = make("div", parent, "", "theorem");
  make("span", line, mark, className);
  make("span", line, check.theorem, "", { title: check.reference });
  formula(make("span", line), check.statement);
  make("span", line, why, "why");
}
