// Reads a classifier that cynosure wrote as JSON, without any library:
//   const read = reader(JSON.parse(text));  read("A slow film, but what a wonderful ending!")
// gives { label, probability, decisions, read }: label is null where no term of the text was read.

const SIGNS = /[\p{So}!?！？؟\u2E80-\u303F\u3040-\u30FF\u31F0-\u31FF\u3400-\u4DBF\u4E00-\u9FFF\uF900-\uFAFF\u{20000}-\u{2FFFF}]/u;
const LETTER = 1, DIGIT = 2, SIGN = 3, APOSTROPHE = 4, STOP = 5, GAP = 0;

function kind(c) {
  if ("'’ʼ＇".includes(c)) return APOSTROPHE;
  if ('.,;:()[]{}"“”„«»…—–。、，；：（）「」'.includes(c)) return STOP;
  if ("!?！？؟".includes(c)) return SIGN;
  const letter = /[\p{L}\p{M}]/u.test(c) || c.codePointAt(0) >= 0x30000;
  if (letter) return c.codePointAt(0) < 0x30000 && SIGNS.test(c) ? SIGN : LETTER;
  if (/\p{Nd}/u.test(c)) return DIGIT;
  return /\p{So}/u.test(c) ? SIGN : GAP;
}

// The place after the markup tag that opens at i, or i where none does.
function pastTag(text, i) {
  const after = text[i + 1];
  if (after === undefined || !(after === "/" || after === "!" || kind(after) === LETTER)) return i;
  for (let j = i + 1; j < Math.min(text.length, i + 200); j++) {
    if (text[j] === ">") return j + 1;
    if (text[j] === "<") return i;
  }
  return i;
}

function opens(text, i, name) {
  const said = text.slice(i, i + name.length).join("").toLowerCase(), after = text[i + name.length];
  return said === name && after !== undefined && !/[a-z]/i.test(after);
}

// The place after the script or style that the tag at i opens, 0 where it never closes.
function pastBody(text, i, past) {
  for (const name of ["script", "style"]) {
    if (!opens(text, i + 1, name)) continue;
    for (let j = past; j < text.length - 2; j++) {
      if (text[j] === "<" && text[j + 1] === "/" && opens(text, j + 2, name)) return pastTag(text, j);
    }
    return 0;
  }
  return past;
}

// Words of a text, in order; those behind a negator are spelled "not_word".
export function words(given, tokenizer) {
  const text = Array.from(given), out = [], negators = new Set(tokenizer.negators);
  let i = 0, begins = true, bodies = true, left = 0;
  while (i < text.length) {
    const k = kind(text[i]);
    if (k === GAP || k === APOSTROPHE || k === STOP) {
      let past = text[i] === "<" ? pastTag(text, i) : i;
      if (past > i && bodies) {
        const body = pastBody(text, i, past);
        bodies = body > 0;
        past = Math.max(past, body);
      }
      begins = begins || k === STOP || past > i;
      i = past > i ? past : i + 1;
      continue;
    }
    const start = i++;
    while (k !== SIGN && i < text.length) {
      const inside = kind(text[i]);
      if (inside === k || (k === LETTER && inside === APOSTROPHE && i + 1 < text.length && kind(text[i + 1]) === LETTER)) i++;
      else break;
    }
    const fold = (c) => (kind(c) === APOSTROPHE ? "'" : tokenizer.lowercase ? Array.from(c.toLowerCase())[0] : c);
    const word = text.slice(start, i).map(fold).join("");
    if (begins || k === SIGN) left = 0;
    begins = k === SIGN;
    if (negators.has(word)) { left = tokenizer.reach; out.push(word); }
    else out.push(left-- > 0 ? `not_${word}` : word);
  }
  return out;
}

// The level up to which the terms stay silent: a plane reads by itself, or all read together until
// the first class is ahead of the second.
function silentIn(planes, terms, together) {
  const levelOf = (j) => planes[0].level[planes[0].ray[j]], sums = new Map(), said = planes.map(() => 0);
  for (const j of terms) {
    const h = levelOf(j), own = planes.map((plane) => plane.value[plane.ray[j]]);
    const [sum, square] = sums.get(h) || [said.map(() => 0), 0];
    const more = own.reduce((total, x) => total + x * x, 0) / planes.length;
    sums.set(h, [sum.map((x, c) => x + own[c]), square + more]);
  }
  const levels = [...sums.keys()].filter((h) => h > 0).sort((a, b) => b - a);
  let unread = levels.reduce((total, h) => total + sums.get(h)[1], 0);
  for (const h of planes[0].kappa === null ? [] : levels) {
    sums.get(h)[0].forEach((x, c) => { said[c] += x; });
    unread = Math.max(0, unread - sums.get(h)[1]);
    const [second, first] = [...said].sort((a, b) => a - b).slice(-2);
    const ahead = together ? (first - second) / Math.SQRT2 : Math.abs(said[0]);
    if (ahead >= planes[0].kappa * Math.sqrt(unread)) return h - 1;
  }
  return 0;
}

// The decision of one plane on the terms of a text, and the terms that were read.
function decide(plane, terms, silent) {
  if (!terms.length) return { decision: plane.prior, read: [] };
  const read = terms.filter((j) => plane.level[plane.ray[j]] > silent), longest = new Map();
  for (const j of read) longest.set(plane.ray[j], Math.max(plane.radius[j], longest.get(plane.ray[j]) || 0));
  const score = (j, radius) => radius * plane.score[plane.ray[j]];
  let total = 0;
  for (const j of terms) total += plane.left * score(j, plane.radius[j]);
  for (const j of read) total += (1 - plane.left) * score(j, longest.get(plane.ray[j]));
  return { decision: plane.intercept + total / (terms.length + plane.count), read };
}

export function reader(model) {
  const index = new Map(model.terms.map((term, j) => [term, j])), [low, high] = model.tokenizer.ngrams;
  return (text) => {
    const said = words(text, model.tokenizer), found = new Set();
    for (let i = 0; i < said.length; i++) {
      for (let n = low; n <= high && i + n <= said.length; n++) {
        const j = index.get(said.slice(i, i + n).join(" "));
        if (j !== undefined) found.add(j);
      }
    }
    const terms = [...found], all = model.planes, joint = model.together ? silentIn(all, terms, true) : null;
    const planes = all.map((plane) => decide(plane, terms, joint ?? silentIn([plane], terms, false)));
    const decisions = planes.map((one) => one.decision), two = model.classes.length === 2;
    const odds = decisions.map((x) => (model.shared ? Math.exp(x - Math.max(...decisions)) : 1 / (1 + Math.exp(-x))));
    const total = odds.reduce((sum, x) => sum + x, 0);
    const p = two ? [1 - odds[0], odds[0]] : odds.map((x) => x / total);
    const best = two ? Number(decisions[0] > 0) : decisions.indexOf(Math.max(...decisions));
    const heard = planes.some((one) => one.read.length > 0), read = planes[two ? 0 : best].read;
    return {
      label: heard ? model.classes[best] : null, probability: heard ? p[best] : null, decisions,
      read: read.map((j) => model.terms[j]),
    };
  };
}
