"use strict";
// Draws timelines on a canvas and tells why an operation runs when it does.
//
// The page has variants, one for every combination of the values of its `sliders`, the last of which varies fastest.
// A variant (see piper_dsl/draw/html_data.py) has one entry an operation in every column of `operations`: where it is
// (row, part of parts of its slot), when (start, end), what it is (name, kind, chunk), what it waited for (cause,
// -1 for nothing), and its place in the text (site). Or it has only a `refusal`: why there is no such schedule.

const { sliders, variants } = JSON.parse(document.getElementById("timeline").textContent);
let data, operations, rows, panels, theme, byRow;  // of the variant that is shown
const element = (id) => document.getElementById(id);
const lanes = element("lanes"), axis = element("axis"), tip = element("tip"), reasons = element("reasons");
const MARGIN = 76, RIGHT = 8, TITLE = 30, LINE = 15, LANE = 26, GAP = 6, MEMORY = 18, MARK = 2, AXIS = 26;
const MOST_ARROWS = 2000, MOST_REASONS = 60, LEAST_LABEL = 6.5;
const FACTS = "12px system-ui, sans-serif", DASHES = { dashed: [4, 3], dotted: [1.5, 2] };

// The facts of every panel in lines, and the room that titles and facts take down to its lanes.
const state = { from: 0, to: 1, selected: -1, width: 0, transfers: false, path: false, memory: false, facts: [],
  headings: [] };

// --- where things are ------------------------------------------------------------------------------------------

const same = () => (data.end - data.start) * 1e-9;  // times nearer to each other than this are one
const across = () => state.width - MARGIN - RIGHT;
const x = (time) => MARGIN + (time - state.from) / (state.to - state.from) * across();
const timeAt = (px) => state.from + (px - MARGIN) / across() * (state.to - state.from);
const pitch = () => LANE + GAP + (state.memory ? MEMORY : 0);
const top = (row) => row * pitch() + state.headings[rows[row].panel] + GAP;
const height = () => top(rows.length - 1) + pitch() + GAP;
const rowAt = (y) => rows.findIndex((_, row) => y >= top(row) && y < top(row) + LANE);

function box(i) {
  const parts = operations.parts[i], part = LANE / parts;
  return { left: x(operations.start[i]), right: x(operations.end[i]),
    top: top(operations.row[i]) + part * operations.part[i], height: part };
}

// The first operation of a row that has not ended at a time.
function firstAfter(row, time) {
  const own = byRow[row];
  let low = 0, high = own.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (operations.end[own[middle]] > time) high = middle; else low = middle + 1;
  }
  return low;
}

function visible(row) {
  const own = byRow[row], found = [];
  for (let at = firstAfter(row, state.from - same()); at < own.length && operations.start[own[at]] <= state.to; at++) {
    found.push(own[at]);
  }
  return found;
}

function operationAt(px, py) {
  const row = rowAt(py), time = timeAt(px);
  if (row < 0 || px < MARGIN) return -1;
  const own = byRow[row];
  for (let at = firstAfter(row, time); at < own.length && operations.start[own[at]] <= time; at++) {
    const { top: upper, height: tall } = box(own[at]);
    if (py >= upper && py < upper + tall) return own[at];
  }
  return -1;
}

// --- drawing ---------------------------------------------------------------------------------------------------

function sized(canvas, tall) {
  const sharp = window.devicePixelRatio || 1;
  canvas.width = state.width * sharp;
  canvas.height = tall * sharp;
  canvas.style.height = `${tall}px`;
  const brush = canvas.getContext("2d");
  brush.scale(sharp, sharp);
  return brush;
}

function draw() {
  state.width = Math.max(300, lanes.clientWidth);
  state.facts = panels.map(({ facts }) => wrapped(facts));
  state.headings = [0];  // the first has its words above the lanes
  for (const lines of state.facts.slice(1)) state.headings.push(state.headings.at(-1) + TITLE + LINE * lines.length);
  const brush = sized(lanes, height());
  lanes.dataset.window = `${state.from} ${state.to}`;
  drawGrid(brush);
  rows.forEach((_, row) => drawRow(brush, row));
  element("note").textContent = "";
  if (state.transfers) drawTransfers(brush);
  brush.save();
  brush.beginPath();
  brush.rect(MARGIN, 0, state.width - MARGIN, height());
  brush.clip();
  if (state.path) outline(brush, data.critical, theme.path, 2);
  outline(brush, data.moved, theme.alarm, 1.5, theme.moved_line);
  outline(brush, data.changed, theme.changed, 1.5, theme.changed_line);
  if (state.selected >= 0) outline(brush, chain(state.selected), theme.ink, 2.5);
  brush.restore();
  drawAxis();
}

// Words in lines that fit between the margins.
function wrapped(words) {
  const brush = lanes.getContext("2d"), lines = [];
  brush.font = FACTS;
  for (const word of words) {
    const longer = lines.length ? `${lines.at(-1)} · ${word}` : word;
    if (lines.length && brush.measureText(longer).width <= across()) lines[lines.length - 1] = longer;
    else lines.push(word);
  }
  return lines;
}

function ticks() {
  const least = (state.to - state.from) * 70 / (state.width - MARGIN) || 1;
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= least);
  const found = [];
  for (let k = Math.ceil(state.from / step); k * step <= state.to; k++) found.push(k * step);
  return found;
}

const number = (value) => String(Number(value.toPrecision(6)));

function drawGrid(brush) {
  brush.fillStyle = theme.grid;
  ticks().forEach((time) => brush.fillRect(x(time), 0, 1, height()));
}

function drawAxis() {
  const brush = sized(axis, AXIS);
  brush.fillStyle = theme.muted;
  brush.font = "11px system-ui, sans-serif";
  brush.textAlign = "center";
  ticks().forEach((time) => {
    brush.fillRect(x(time), 0, 1, 4);
    brush.fillText(number(time), x(time), 17);
  });
}

function drawRow(brush, row) {
  const { name, stages, panel, first } = rows[row];
  if (first && panel) {
    brush.font = "bold 13px system-ui, sans-serif";
    brush.textAlign = "left";
    brush.fillStyle = theme.ink;
    const lines = state.facts[panel], upper = top(row) - LINE * lines.length;
    brush.fillText(panels[panel].title, MARGIN, upper - 8);
    brush.font = FACTS;
    lines.forEach((line, k) => brush.fillText(line, MARGIN, upper + LINE * k + 8));
  }
  brush.fillStyle = theme.lane;
  brush.fillRect(MARGIN, top(row), across(), LANE);
  brush.strokeStyle = theme.lane_edge;
  brush.strokeRect(MARGIN + 0.5, top(row) + 0.5, across() - 1, LANE - 1);
  brush.fillStyle = theme.ink;
  brush.textAlign = "right";
  brush.font = "12px system-ui, sans-serif";
  brush.fillText(name, MARGIN - 8, top(row) + (stages ? 12 : 17));
  brush.font = "9px system-ui, sans-serif";
  if (stages) brush.fillText(stages, MARGIN - 8, top(row) + 23);
  brush.save();
  brush.beginPath();
  brush.rect(MARGIN, 0, across(), height());
  brush.clip();
  drawBoxes(brush, row);
  if (state.memory) drawMemory(brush, row);
  brush.restore();
}

function drawBoxes(brush, row) {
  brush.textAlign = "center";
  let drawn = -1;
  for (const i of visible(row)) {
    const { left, right, top: upper, height: tall } = box(i);
    const width = Math.max(right - left, MARK);
    if (right - left < 0.5 && left + width < drawn + 0.3) continue;  // too thin to be seen beside one that is drawn
    drawn = Math.max(drawn, left + width);
    const { fill, ink } = data.paints[operations.paint[i]];
    brush.fillStyle = fill;
    brush.fillRect(left, upper, width > 3 ? width - 1 : width, tall);
    const label = operations.label[i];
    if (width > label.length * LEAST_LABEL + 3) {
      brush.fillStyle = ink;
      brush.font = `${tall < LANE ? 10 : 12}px system-ui, sans-serif`;
      brush.fillText(label, left + width / 2, upper + tall / 2 + 4);
    }
  }
  brush.strokeStyle = theme.alarm;
  brush.setLineDash([4, 3]);
  for (const head of data.heads.filter((stuck) => stuck.row === row)) {
    brush.strokeRect(x(head.start), top(row) + 1, Math.max(x(head.end) - x(head.start), 6), LANE - 2);
    brush.fillStyle = theme.alarm;
    brush.fillText(head.label, (x(head.start) + x(head.end)) / 2, top(row) + 17);
  }
  brush.setLineDash([]);
}

function drawMemory(brush, row) {
  const { times, held } = rows[row];
  brush.fillStyle = theme.memory;
  const floor = top(row) + LANE + MEMORY;
  brush.beginPath();  // one path, or there would be seams between the steps
  times.forEach((time, k) => {
    const upper = floor - held[k] / data.most * (MEMORY - 3);
    brush.lineTo(x(time), k ? floor - held[k - 1] / data.most * (MEMORY - 3) : floor);
    brush.lineTo(x(time), upper);
  });
  if (times.length) {
    brush.lineTo(x(data.end), floor - held.at(-1) / data.most * (MEMORY - 3));  // what is stuck holds it for ever
    brush.lineTo(x(data.end), floor);
  }
  brush.fill();
}

function drawTransfers(brush) {
  brush.strokeStyle = theme.arrow;
  brush.fillStyle = theme.arrow;
  const shown = data.arrows.filter(([, , leaves, arrives]) => leaves >= state.from && arrives <= state.to);
  if (shown.length <= MOST_ARROWS) shown.forEach((message) => arrow(brush, ...message));
  else element("note").textContent = `${shown.length} transfers are too many to draw: zoom in`;
}

function arrow(brush, source, target, leaves, arrives) {
  const down = operations.row[source] < operations.row[target] ? 1 : -1;
  const from = { x: x(leaves) - 2, y: top(operations.row[source]) + (down > 0 ? LANE : 0) };
  const to = { x: x(arrives) + 2, y: top(operations.row[target]) + (down > 0 ? 0 : LANE) };
  brush.beginPath();
  brush.moveTo(from.x, from.y);
  brush.lineTo(to.x, to.y);
  brush.stroke();
  brush.beginPath();
  brush.moveTo(to.x, to.y);
  brush.lineTo(to.x - 3, to.y - 5 * down);
  brush.lineTo(to.x + 3, to.y - 5 * down);
  brush.fill();
}

function outline(brush, indices, color, width, line = "") {
  brush.setLineDash(DASHES[line] ?? []);
  brush.strokeStyle = color;
  for (const i of indices) {
    const { left, right, top: upper, height: tall } = box(i);
    brush.lineWidth = Math.max(0.5, Math.min(width, (right - left) / 4));
    if (right >= MARGIN && left <= state.width) {
      brush.strokeRect(left + 1, upper + 1, Math.max(right - left - 3, 1), tall - 2);
    }
  }
  brush.lineWidth = 1;
  brush.setLineDash([]);
}

// --- reasons ---------------------------------------------------------------------------------------------------

// An operation, what it waited for, what that waited for, and so on.
function chain(i) {
  const found = [i];
  while (operations.start[i] > 0 && operations.cause[i] >= 0) found.push(i = operations.cause[i]);
  return found;
}

function described(i) {
  const start = operations.start[i], end = operations.end[i], cause = operations.cause[i];
  const { place, line } = data.sites[operations.site[i]];
  const waited = start > 0 && cause >= 0
    ? `waited for ${operations.name[cause]} on ${rows[operations.row[cause]].name}, which ended at `
      + number(operations.end[cause])
    : "waited for nothing";
  return [
    `${operations.name[i]}: ${data.kinds[operations.kind[i]]} on ${rows[operations.row[i]].name}`,
    `${number(start)} to ${number(end)}, takes ${number(end - start)}`,
    waited,
    `${place}  ${line}`,
  ].join("\n");
}

function select(i) {
  state.selected = i;
  reasons.replaceChildren();
  if (i >= 0) {
    reasons.append(described(i), listed(chain(i)));
    show(i);
  }
  draw();
}

function listed(indices) {
  const list = document.createElement("ol");
  for (const i of indices.slice(0, MOST_REASONS)) {
    const item = document.createElement("li"), button = document.createElement("button");
    button.textContent = operations.name[i];
    button.title = described(i);
    button.addEventListener("click", () => { select(i); lanes.focus(); });
    item.append(button);
    list.append(item);
  }
  if (indices.length > MOST_REASONS) {
    const item = document.createElement("li");
    item.textContent = `… ${indices.length - MOST_REASONS} more`;
    list.append(item);
  }
  return list;
}

// --- moving ----------------------------------------------------------------------------------------------------

function look(from, to) {
  const least = (data.end - data.start) / 1e6, length = Math.min(Math.max(to - from, least), data.end - data.start);
  state.from = Math.min(Math.max(from, data.start), data.end - length);
  state.to = state.from + length;
  draw();
}

const zoom = (factor, time = (state.from + state.to) / 2) =>
  look(time - (time - state.from) * factor, time + (state.to - time) * factor);
const pan = (share) => look(state.from + (state.to - state.from) * share, state.to + (state.to - state.from) * share);
const fit = () => look(data.start, data.end);

// Moves the window, without drawing, so that an operation is in it.
function show(i) {
  const length = state.to - state.from;
  if (operations.start[i] >= state.from && operations.end[i] <= state.to) return;
  state.from = Math.min(Math.max(operations.start[i] - length / 3, data.start), data.end - length);
  state.to = state.from + length;
}

function neighbour(step) {
  if (state.selected < 0) return byRow.find((own) => own.length)?.[0] ?? -1;
  const own = byRow[operations.row[state.selected]], at = own.indexOf(state.selected) + step;
  return own[Math.min(Math.max(at, 0), own.length - 1)];
}

function otherRow(step) {
  if (state.selected < 0) return neighbour(0);
  for (let row = operations.row[state.selected] + step; row >= 0 && row < rows.length; row += step) {
    const own = byRow[row], at = firstAfter(row, operations.start[state.selected]);
    if (own.length) return own[Math.min(at, own.length - 1)];
  }
  return state.selected;
}

function toggle(what) {
  state[what] = !state[what];
  element(what).checked = state[what];
  draw();
}

const KEYS = {
  "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), "0": fit, Escape: () => select(-1),
  ArrowRight: () => select(neighbour(1)), ArrowLeft: () => select(neighbour(-1)),
  ArrowDown: () => select(otherRow(1)), ArrowUp: () => select(otherRow(-1)),
  Enter: () => { if (state.selected >= 0) select(chain(state.selected)[1] ?? state.selected); },
  t: () => toggle("transfers"), c: () => toggle("path"), m: () => toggle("memory"),
  ShiftArrowRight: () => pan(0.25), ShiftArrowLeft: () => pan(-0.25),
};

lanes.addEventListener("keydown", (event) => {
  const act = !(event.ctrlKey || event.metaKey || event.altKey)
    && KEYS[event.shiftKey && event.key.startsWith("Arrow") ? `Shift${event.key}` : event.key];
  if (!act) return;
  event.preventDefault();
  act();
});

lanes.addEventListener("wheel", (event) => {
  event.preventDefault();
  if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) pan(event.deltaX / 600);
  else zoom(1.0015 ** event.deltaY, timeAt(event.offsetX));
}, { passive: false });

let dragged = null;
lanes.addEventListener("pointerdown", (event) => {
  dragged = { x: event.offsetX, from: state.from, to: state.to, far: false };
  lanes.setPointerCapture(event.pointerId);
});
lanes.addEventListener("pointerup", (event) => {
  if (dragged && !dragged.far) select(operationAt(event.offsetX, event.offsetY));
  dragged = null;
});
lanes.addEventListener("pointercancel", () => { dragged = null; });
lanes.addEventListener("pointerleave", () => { tip.hidden = true; });
lanes.addEventListener("pointermove", (event) => {
  if (dragged) {
    dragged.far ||= Math.abs(event.offsetX - dragged.x) > 4;
    const moved = (dragged.x - event.offsetX) / across() * (dragged.to - dragged.from);
    if (dragged.far) look(dragged.from + moved, dragged.to + moved);
    return;
  }
  const head = data.heads.find((stuck) => stuck.row === rowAt(event.offsetY)
    && event.offsetX >= x(stuck.start) && event.offsetX <= Math.max(x(stuck.end), x(stuck.start) + 6));
  const i = operationAt(event.offsetX, event.offsetY);
  tip.hidden = i < 0 && !head;
  if (tip.hidden) return;
  tip.textContent = i < 0 ? head.said : described(i);
  tip.style.left = `${Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, window.innerHeight - tip.offsetHeight - 8)}px`;
});

element("closer").addEventListener("click", () => zoom(0.5));
element("wider").addEventListener("click", () => zoom(2));
element("fit").addEventListener("click", fit);
for (const what of ["transfers", "path", "memory"]) {
  element(what).addEventListener("change", () => toggle(what));
}
window.addEventListener("resize", () => { if (!refused()) draw(); });

// --- variants --------------------------------------------------------------------------------------------------

const chosen = sliders.map(() => 0);
const variant = () => variants[sliders.reduce((index, { values }, k) => index * values.length + chosen[k], 0)];
const refused = () => variant().refusal;

function open() {
  element("refusal").textContent = refused() ?? "";
  element("shown").hidden = Boolean(refused());
  if (refused()) return;
  data = variant();
  ({ operations, rows, panels, theme } = data);
  byRow = rows.map(() => []);
  operations.row.forEach((row, i) => { if (!operations.transfer[i]) byRow[row].push(i); });
  Object.assign(state, { from: data.from, to: data.to });
  element("title").textContent = panels[0].title;
  element("facts").textContent = panels[0].facts.join(" · ");
  element("legend").replaceChildren(...data.legend.flatMap(({ fill, edge, line, said }) => [swatch(fill, edge, line), said]));
  select(-1);
}

function swatch(fill, edge, line) {
  const found = document.createElement("span");
  found.className = "swatch";
  found.style.background = fill;
  found.style.outline = `2px ${line || "solid"} ${edge}`;
  return found;
}

function slider({ name, values }, k) {
  const label = document.createElement("label"), range = document.createElement("input"), said = new Text();
  const write = () => {
    said.data = `${name} = ${values[chosen[k]]} `;
    range.setAttribute("aria-valuetext", said.data.trim());
  };
  Object.assign(range, { type: "range", id: `slider-${name}`, min: 0, max: values.length - 1, value: 0 });
  range.addEventListener("input", () => {
    chosen[k] = Number(range.value);
    write();
    open();
  });
  write();
  label.append(said, range);
  return label;
}

element("sliders").append(...sliders.map(slider));
for (const what of ["transfers", "path", "memory"]) {
  element(what).checked = state[what] = Boolean(variants.find(({ refusal }) => !refusal)?.[what]);
}
open();
