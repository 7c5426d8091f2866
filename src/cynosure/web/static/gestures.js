// Hands and keys on the stage: drag, add, delete, duplicate, turn, zoom, drop a file.
import { say } from "./app.js";
import { $ } from "./dom.js";

export function gestures(play) {
  const svg = $("stage"), scene = play.scene, tip = $("tip");
  const indexOf = (event) => {
    const node = event.target.closest?.("[data-token]"), held = node && svg.contains(node);
    // Of tokens that overlap the nearest is meant, not the one on top.
    const near = event.clientX !== undefined && (held || svg.matches(".many")) ? scene.at(scene.toWorld(event)) : undefined;
    return near ?? (held ? Number(node.dataset.token) : undefined);
  };
  const fingers = new Map(); // pointers that are down: two of them zoom
  let hand = null, held = false; // what a pointer, or a key, has hold of

  function apart() {
    const [[x0, y0], [x1, y1]] = fingers.values();
    return { size: Math.hypot(x1 - x0, y1 - y0) || 1, middle: { clientX: (x0 + x1) / 2, clientY: (y0 + y1) / 2 } };
  }

  function zoom(at, scale) {
    const before = scene.toWorld(at);
    scene.scale = Math.min(1e7, Math.max(1e-5, scale));
    const after = scene.toWorld(at);
    scene.centre = [scene.centre[0] + before[0] - after[0], scene.centre[1] + before[1] - after[1]];
    play.draw();
    play.idle();
  }

  function toStart() {
    if (play.time.timer) play.time.stop();
    if (play.state.k !== 0) play.time.goTo(0);
  }

  // All tokens that are chosen go together; in space in the plane of the screen.
  function moved(by) {
    const z = [...play.state.z], [a, b] = scene.turn, [u, v] = by;
    const step = play.d < 3 ? by : [Math.cos(a) * u - Math.sin(a) * Math.sin(b) * v, Math.cos(b) * v, -Math.sin(a) * u - Math.cos(a) * Math.sin(b) * v];
    for (const i of play.chosen) z[i] = z[i].map((x, j) => x + step[j]);
    return z;
  }

  function showTip(i, x, y) {
    const other = play.hovered !== i;
    play.hovered = i;
    if (other && play.state.show.scores) play.redraw();
    const text = play.claims.hover();
    tip.hidden = i === undefined || !text;
    if (tip.hidden) return;
    tip.textContent = text;
    tip.style.left = `${Math.max(4, Math.min(x + 14, innerWidth - 310))}px`;
    tip.style.top = `${Math.min(y + 14, innerHeight - 130)}px`;
  }

  // A finger on a token moves it, elsewhere it scrolls the page (touch-action of a part of a picture is not heard).
  svg.addEventListener("touchstart", (event) => {
    if (play.editable && indexOf(event.touches[0]) !== undefined) event.preventDefault();
  }, { passive: false });

  // --- pointer ----------------------------------------------------------------------------------

  svg.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    const i = indexOf(event), at = scene.toWorld(event);
    svg.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (fingers.size === 2) {
      if (hand?.moved) play.settle();
      hand = { kind: "pinch", size: apart().size, scale: scene.scale };
      return;
    }
    play.hovered = undefined;
    if (i !== undefined) play.scored = i;
    tip.hidden = true;
    scene.hideHalf();
    if (i !== undefined && play.choosing) {
      if (!play.chosen.delete(i)) play.chosen.add(i);
      play.draw();
      return;
    }
    if (i !== undefined && play.editable) {
      toStart();
      if (!event.shiftKey && !play.chosen.has(i)) play.chosen.clear();
      play.chosen.add(i);
      play.buttons();
      hand = { kind: "token", i, at };
      play.draw();
      scene.nodes.get(i)?.g.focus({ preventScroll: true });
    } else {
      if (!play.choosing) { play.chosen.clear(); play.buttons(); play.draw(); }
      hand = { kind: play.d > 2 ? "turn" : "pan", at, x: event.clientX, y: event.clientY, centre: [...scene.centre], turn: [...scene.turn] };
    }
  });

  svg.addEventListener("pointermove", (event) => {
    if (!hand) { hover(event); return; }
    if (fingers.has(event.pointerId)) fingers.set(event.pointerId, [event.clientX, event.clientY]);
    if (hand.kind === "pinch") {
      if (fingers.size === 2) zoom(apart().middle, (hand.scale * apart().size) / hand.size);
      return;
    }
    const at = scene.toWorld(event);
    if (hand.kind === "token") {
      const by = [at[0] - hand.at[0], at[1] - hand.at[1]];
      hand.at = at;
      hand.moved = true;
      play.change({ z: moved(by) });
      return;
    }
    if (hand.kind === "turn") {
      scene.turn = [hand.turn[0] + (event.clientX - hand.x) / 120, hand.turn[1] + (event.clientY - hand.y) / 120];
      play.other.turn = scene.turn;
    } else {
      scene.centre = [scene.centre[0] - (at[0] - hand.at[0]), scene.centre[1] - (at[1] - hand.at[1])];
    }
    play.draw();
  });

  const release = (event) => {
    fingers.delete(event.pointerId);
    if (hand?.moved) play.settle();
    else if (hand?.kind === "token") showTip(hand.i, event.clientX, event.clientY); // a finger cannot hover
    if (hand && hand.kind === "pan") play.idle();
    hand = null;
  };
  svg.addEventListener("pointerup", release);
  svg.addEventListener("pointercancel", release);

  function hover(event) {
    const i = indexOf(event);
    if (i === play.hovered && i === undefined) return;
    showTip(i, event.clientX, event.clientY);
  }
  svg.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "touch") return; // a finger leaves with every tap
    play.hovered = undefined;
    scene.hideHalf();
    tip.hidden = true;
  });

  svg.addEventListener("dblclick", (event) => {
    if (indexOf(event) !== undefined || play.d !== 2) return;
    toStart();
    add(scene.toWorld(event));
  });

  svg.addEventListener("wheel", (event) => {
    event.preventDefault();
    zoom(event, scene.scale * Math.exp(-event.deltaY * 0.0015));
  }, { passive: false });

  // --- tokens -----------------------------------------------------------------------------------

  function add(place) {
    const row = Array.from({ length: play.d }, (_, j) => place[j] ?? 0);
    play.change({ z: [...play.state.z, row], ...worded([""]) });
    play.chosen = new Set([play.n - 1]);
    play.settle();
    play.draw();
  }

  const worded = (more) => (play.state.words ? { words: [...play.state.words, ...more] } : {});

  function drop() {
    if (!play.chosen.size || play.chosen.size >= play.n) return;
    const exact = play.state.exact?.filter((_, i) => !play.chosen.has(i)) ?? null;
    play.found = null;
    const next = { z: play.state.z.filter((_, i) => !play.chosen.has(i)) };
    if (play.state.words) next.words = play.state.words.filter((_, i) => !play.chosen.has(i));
    play.chosen.clear();
    if (exact) next.exact = exact;
    play.change(next);
    play.settle();
  }

  function twice() {
    const copies = [...play.chosen].map((i) => [...play.state.z[i]]);
    if (!copies.length) return;
    const first = play.n, names = [...play.chosen].map((i) => play.name(i));
    play.change({ z: [...play.state.z, ...copies], ...worded(names) });
    play.chosen = new Set(copies.map((_, i) => first + i));
    play.settle();
    play.draw();
  }

  $("add").addEventListener("click", () => { toStart(); add(scene.centre); });
  $("delete").addEventListener("click", drop);
  $("duplicate").addEventListener("click", twice);

  // --- keys -------------------------------------------------------------------------------------

  svg.addEventListener("focusin", (event) => {
    const i = indexOf(event);
    if (i === undefined) return;
    scene.rover = i;
    play.redraw();
    if (play.choosing || hand) return;
    play.chosen = new Set([i]);
    play.buttons();
    play.draw();
    const box = event.target.getBoundingClientRect();
    showTip(i, box.right, box.bottom); // keys cannot hover either
  });
  svg.addEventListener("focusout", () => { tip.hidden = true; held = false; scene.hideHalf(); });

  svg.addEventListener("keydown", (event) => {
    const i = indexOf(event), step = (event.shiftKey ? 2 : 12) / scene.scale;
    const by = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] }[event.key];
    if (by && i !== undefined && !held) {
      event.preventDefault();
      const next = scene.towards(i, [Math.sign(by[0]), -Math.sign(by[1])]);
      if (next !== undefined) scene.nodes.get(next).g.focus();
    } else if (event.key === "Enter" && i !== undefined && !play.choosing && play.editable) {
      event.preventDefault();
      held = !held;
      tip.textContent = held ? `token ${i} is held: arrows move it, Shift moves it less, Enter lets it go` : `token ${i} is let go`;
    } else if (event.key === "Escape") held = false;
    else if (by && i !== undefined && play.editable) {
      event.preventDefault();
      toStart();
      play.chosen.add(i);
      play.change({ z: moved(by) });
      play.settle();
    } else if ((event.key === "Enter" || event.key === " ") && i !== undefined && play.choosing) {
      event.preventDefault();
      event.stopPropagation();
      if (!play.chosen.delete(i)) play.chosen.add(i);
      play.draw();
    } else if (event.key === "Delete" || event.key === "Backspace") { event.preventDefault(); drop(); }
    else if (event.key === "d" && !event.ctrlKey && !event.metaKey) twice();
    else if (event.key === "a" && !event.ctrlKey && !event.metaKey) { toStart(); add(scene.centre); }
  });

  addEventListener("keydown", (event) => {
    if ($("room-play").hidden) return;
    const typing = event.target.closest?.("input, textarea, select, button, summary, a");
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !typing?.matches("textarea")) {
      event.preventDefault();
      play.travel(event.shiftKey ? play.past.redo() : play.past.undo());
    } else if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "y") {
      event.preventDefault();
      play.travel(play.past.redo());
    } else if (event.key === " " && !typing) { event.preventDefault(); play.time.playStop(); }
  });

  // --- files ------------------------------------------------------------------------------------

  function take(text) {
    try { play.reset({ ...play.state, ...tokensOf(text), words: undefined, from: undefined, A: null, beside: null, k: 0 }); } catch (error) { say(error); }
  }
  const room = $("room-play"); // all of it: nobody aims
  room.addEventListener("dragover", () => svg.classList.add("over"));
  room.addEventListener("dragleave", () => svg.classList.remove("over"));
  room.addEventListener("drop", async (event) => {
    event.preventDefault();
    svg.classList.remove("over");
    const file = event.dataTransfer.files[0];
    take(file ? await file.text() : event.dataTransfer.getData("text"));
  });
  $("csv").addEventListener("change", async (event) => {
    const file = event.target.files[0];
    if (file) take(await file.text());
  });
  $("paste-take").addEventListener("click", () => take($("paste").value));
}

const value = (word) => {
  const [top, bottom] = word.split("/");
  return bottom === undefined ? Number(top) : Number(top) / Number(bottom);
};

// One token per line; a first line without numbers is a header. Fractions stay what they are.
export function tokensOf(text) {
  const rows = text.split(/\r?\n/).map((line) => line.split(/[,;\t ]+/).filter(Boolean)).filter((row) => row.length);
  if (rows.length && rows[0].some((word) => !Number.isFinite(value(word)))) rows.shift();
  if (!rows.length) throw new Error("expected one token per line, such as 1, 0.5");
  const d = rows[0].length, z = rows.map((row) => row.map(value));
  const bad = z.findIndex((row) => row.length !== d || !row.every(Number.isFinite));
  if (bad >= 0) throw new Error(`line ${bad + 1} of the tokens: expected ${d} numbers, got "${rows[bad].join(", ").slice(0, 60)}"`);
  if (z.length > 5000 || d > 64) throw new Error(`at most 5000 tokens of dimension 64; got ${z.length} of ${d}`);
  const exact = rows.every((row) => row.every((word) => /^-?\d+(\/\d+)?$/.test(word))) ? rows : null;
  return { z, exact };
}
