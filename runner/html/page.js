// The timeline of `collrun report`: a canvas with a row for each rank and group. Its data are the JSON of #operations:
// ops has seven numbers for each operation: row, begin, length (ns), kind, state, number, bytes.
// Nothing of the data becomes markup: it is drawn, or set as textContent.
(function () {
  "use strict";
  const element = document.getElementById("operations");
  if (!element) return;
  const data = JSON.parse(element.textContent);
  const view = document.getElementById("view"), canvas = document.getElementById("drawing");
  const pointed = document.getElementById("pointed"), pen = canvas.getContext("2d");
  const ROW = data.rows.length > 96 ? 12 : 18, AXIS = 26, EACH = 7;
  const count = data.ops.length / EACH;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let colours, gutter, width, begin, end;

  const instants = (data.instants || []).map((i) => ({ at: (i[0] - data.begin_us) * 1e3, rank: i[1], name: i[2], text: i[3] }));
  let last = 1;
  for (let i = 0; i < count; i++) last = Math.max(last, data.ops[i * EACH + 1] + data.ops[i * EACH + 2]);
  for (const i of instants) last = Math.max(last, i.at);

  function duration(ns) {
    const units = ["ns", "µs", "ms", "s"];
    let unit = 0;
    while (unit < 3 && Math.abs(ns) >= 999.5) { ns /= 1e3; unit++; }
    return Number(ns.toPrecision(4)) + " " + units[unit];
  }

  function readColours() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue("--" + name).trim();
    colours = { kinds: [0, 1, 2, 3, 4, 5, 6, 7].map((i) => of("s" + i)), back: of("back"), panel: of("panel"), ink: of("ink"),
      soft: of("soft"), rule: of("rule"), bad: of("bad") };
  }

  const x = (ns) => gutter + ((ns - begin) / (end - begin)) * (width - gutter);
  const state = (i) => data.states[data.ops[i * EACH + 4]];

  function step(range) { // of the axis: 1, 2 or 5 times a power of ten
    const raw = range / Math.max(2, (width - gutter) / 110), unit = Math.pow(10, Math.floor(Math.log10(raw)));
    return unit * [1, 2, 5, 10].find((n) => n * unit >= raw);
  }

  function drawRows() {
    let rank = -1, shade = false;
    data.rows.forEach((row, i) => {
      const top = AXIS + i * ROW;
      if (row[0] !== rank) { rank = row[0]; shade = !shade; }
      if (shade) { pen.fillStyle = colours.panel; pen.fillRect(0, top, width, ROW); }
    });
  }

  function drawLabels() {
    let rank = -1;
    pen.fillStyle = colours.back;
    pen.fillRect(0, 0, gutter, AXIS);
    data.rows.forEach((row, i) => {
      const top = AXIS + i * ROW;
      pen.fillStyle = colours.panel;
      pen.fillRect(0, top, gutter - 4, ROW);
      pen.fillStyle = colours.ink;
      if (row[0] !== rank) pen.fillText(String(row[0]), 8, top + ROW / 2);
      rank = row[0];
      pen.fillStyle = colours.soft;
      pen.fillText(row[1], 40, top + ROW / 2, gutter - 48);
    });
  }

  function drawAxis(height) {
    const by = step(end - begin);
    pen.textAlign = "center";
    for (let t = Math.ceil(begin / by) * by; t <= end; t += by) {
      pen.fillStyle = colours.rule;
      pen.fillRect(Math.round(x(t)), AXIS - 4, 1, height);
      pen.fillStyle = colours.soft;
      pen.fillText(duration(t), Math.min(Math.max(x(t), gutter + 24), width - 28), AXIS / 2);
    }
    pen.textAlign = "left";
  }

  function drawOperations() {
    let drawn = 0, bad = 0;
    for (let i = 0; i < count; i++) {
      const at = i * EACH, from = data.ops[at + 1], to = from + data.ops[at + 2], good = state(i) === "done";
      if (to < begin || from > end) continue;
      const left = Math.max(x(from), gutter), top = AXIS + data.ops[at] * ROW + 2;
      pen.fillStyle = good ? colours.kinds[data.ops[at + 3] % 8] : colours.bad;
      pen.fillRect(left, top, Math.max(Math.min(x(to), width) - left, 1), ROW - 4);
      drawn++;
      if (!good) bad++;
    }
    view.dataset.drawn = drawn; // what tests look at
    view.dataset.bad = bad;
  }

  function drawInstants(height) {
    pen.fillStyle = colours.bad;
    for (const i of instants) {
      if (i.at < begin || i.at > end) continue;
      const row = i.rank < 0 ? -1 : data.rows.findIndex((r) => r[0] === i.rank);
      const top = row < 0 ? AXIS - 6 : AXIS + row * ROW;
      pen.fillRect(Math.round(x(i.at)) - 1, top, 2, row < 0 ? height : ROW);
    }
  }

  function draw() {
    const height = AXIS + data.rows.length * ROW + 4, scale = window.devicePixelRatio || 1;
    width = view.clientWidth;
    gutter = width < 560 ? 96 : 150;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = height + "px";
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.font = (ROW > 14 ? 12 : 10) + "px system-ui, sans-serif";
    pen.textBaseline = "middle";
    pen.fillStyle = colours.back;
    pen.fillRect(0, 0, width, height);
    drawRows();
    drawAxis(height);
    drawOperations();
    drawInstants(height);
    drawLabels();
    view.dataset.rows = data.rows.length;
    view.dataset.begin = Math.round(begin);
    view.dataset.end = Math.round(end);
  }

  let due = false;
  function drawSoon() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => { due = false; draw(); });
  }

  function show(from, to) { // at least 100 ns, within the run
    const length = Math.min(Math.max(to - from, 100), last * 1.02);
    begin = Math.min(Math.max(from, 0), last * 1.02 - length);
    end = begin + length;
    drawSoon();
  }
  function zoom(factor, share) {
    const middle = begin + (end - begin) * share;
    show(middle - (middle - begin) * factor, middle + (end - middle) * factor);
  }
  const move = (share) => show(begin + (end - begin) * share, end + (end - begin) * share);
  const all = () => show(0, last * 1.02);
  const actions = { in: () => zoom(0.5, 0.5), out: () => zoom(2, 0.5), all };

  function describe(i) {
    const at = i * EACH, row = data.rows[data.ops[at]];
    return "rank " + row[0] + ", " + row[1] + ": " + data.kinds[data.ops[at + 3]] + " #" + data.ops[at + 5] + ", " +
      data.ops[at + 6].toLocaleString("en") + " bytes, " + duration(data.ops[at + 2]) + " from " + duration(data.ops[at + 1]) +
      ", " + state(i);
  }
  function find(px, py) {
    const row = Math.floor((py - AXIS) / ROW), slack = ((end - begin) / (width - gutter)) * 2;
    const ns = begin + ((px - gutter) / (width - gutter)) * (end - begin);
    const near = instants.find((i) => Math.abs(i.at - ns) < slack);
    if (near && (near.rank < 0 || (data.rows[row] || [])[0] === near.rank)) return near.name + ": " + near.text;
    for (let i = 0; i < count; i++) {
      const at = i * EACH;
      if (data.ops[at] === row && data.ops[at + 1] - slack <= ns && ns <= data.ops[at + 1] + data.ops[at + 2] + slack) return describe(i);
    }
    return " ";
  }

  const pointers = new Map(); // one moves, two zoom
  view.addEventListener("pointerdown", (e) => { pointers.set(e.pointerId, e.clientX); view.setPointerCapture(e.pointerId); });
  for (const name of ["pointerup", "pointercancel"]) view.addEventListener(name, (e) => pointers.delete(e.pointerId));
  view.addEventListener("pointermove", (e) => {
    const box = canvas.getBoundingClientRect();
    if (!pointers.has(e.pointerId)) { pointed.textContent = find(e.clientX - box.left, e.clientY - box.top); return; }
    const before = [...pointers.values()];
    pointers.set(e.pointerId, e.clientX);
    const after = [...pointers.values()];
    if (after.length === 1) move((before[0] - after[0]) / (width - gutter));
    else zoom(Math.abs(before[0] - before[1]) / Math.max(Math.abs(after[0] - after[1]), 1), 0.5);
  });
  view.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && !e.metaKey) return; // the page scrolls
    e.preventDefault();
    zoom(e.deltaY > 0 ? 1.25 : 0.8, Math.max(0, (e.offsetX - gutter) / (width - gutter)));
  }, { passive: false });
  view.addEventListener("keydown", (e) => {
    const key = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": actions.in, "=": actions.in, "-": actions.out,
      Home: all }[e.key];
    if (!key || e.ctrlKey || e.metaKey) return;
    e.preventDefault();
    key();
  });
  for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => actions[button.dataset.do]());
  window.addEventListener("resize", drawSoon);
  dark.addEventListener("change", () => { readColours(); drawSoon(); });

  readColours();
  begin = 0;
  end = last * 1.02;
  draw();
})();
