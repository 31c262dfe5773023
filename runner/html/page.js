// The charts and tables of `collrun report`, from the JSON of #data (page.c).
// Nothing of the data becomes markup: it is set as text, or as an attribute that holds no markup, script, style or address. The files of a run
// directory may hold anything: the functions list, text and number check the types.
"use strict";

// ---- values ----

const list = (v) => (Array.isArray(v) ? v : []);
const object = (v) => (v && typeof v === "object" ? v : {});
const text = (v) => (typeof v === "string" ? v : typeof v === "number" ? String(v) : "");
const number = (v) => (typeof v === "number" && isFinite(v) ? v : 0);

function scaled(value, most, by, units) {
  let unit = 0;
  while (unit < units.length - 1 && value >= most) { value /= by; unit++; }
  return [value, units[unit], unit];
}
function duration(us) { // "12.3 µs", "4.0 ms"
  const [value, unit, n] = scaled(number(us) * 1e3, 999.5, 1e3, ["ns", "µs", "ms", "s"]);
  return value.toFixed(n === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2) + " " + unit;
}
function size(bytes) { // "64 KiB"
  const [value, unit, n] = scaled(number(bytes), 1023.5, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
  return value.toFixed(n === 0 || value >= 99.95 || value === Math.floor(value) ? 0 : 1) + " " + unit;
}
function rate(bytes) { // "1.2 GB/s", in powers of 1000, as bandwidths are given
  const [value, unit] = scaled(number(bytes), 999.5, 1e3, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]);
  return Number(value.toPrecision(4)) + " " + unit;
}
const count = (n) => number(n).toLocaleString("en");

// ---- elements ----

const drawings = new Set(["svg", "rect", "line", "path", "title", "text"]);

function el(tag, attributes, ...inside) {
  const e = drawings.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...inside);
  return e;
}
function section(id, title, ...inside) {
  const s = el("section", { id, "aria-labelledby": id + "-title" }, el("h2", { id: id + "-title" }, title), ...inside);
  document.getElementById("drawn").append(s);
}
const note = (...inside) => el("p", { class: "note" }, ...inside);
const empty = (...inside) => el("p", { class: "empty" }, ...inside);
const leftOut = (n, what) => (n ? [note(count(n) + " further " + what + " are left out.")] : []);

// A column is "name", or "#name" for numbers. A cell is a text, a node, or {class, title, text}. The first one is the head of its row.
function table(columns, rows, kind) {
  const numeric = columns.map((c) => c.startsWith("#"));
  const cell = (c, i) => {
    const e = el(i === 0 ? "th" : "td", numeric[i] ? { class: "n" } : {});
    if (i === 0) e.setAttribute("scope", "row");
    if (c instanceof Node || typeof c === "string") { e.append(c); return e; }
    if (c.class) e.className = c.class;
    if (c.title) e.title = c.title;
    e.append(c.text || "");
    return e;
  };
  const head = columns.map((c, i) => el("th", numeric[i] ? { class: "n" } : {}, c.replace("#", "")));
  return el("div", { class: "scroll" }, el("table", kind ? { class: kind } : {}, el("thead", {}, el("tr", {}, ...head)),
    el("tbody", {}, ...rows.map((r) => el("tr", {}, ...r.map(cell))))));
}
function meter(value, most) {
  const percent = most > 0 ? (100 * value) / most : 0;
  return el("meter", { min: 0, max: 100, value: percent.toFixed(1) }, percent.toFixed(0) + " %");
}

// ---- charts ----

const LEFT = 76, TOP = 16, WIDTH = 640, HEIGHT = 220, RIGHT = 28, BOTTOM = 40;

function chart(label, ...inside) {
  return el("div", { class: "scroll" }, el("svg", { class: "chart", viewBox: `0 0 ${LEFT + WIDTH + RIGHT} ${TOP + HEIGHT + BOTTOM}`,
    role: "img", "aria-label": label }, ...inside));
}
const lineY = (y, words) => [el("line", { class: "grid", x1: LEFT, x2: LEFT + WIDTH, y1: y, y2: y }),
  el("text", { class: "left", x: LEFT - 8, y: y + 4 }, words)];
const lineX = (x, words) => [el("line", { class: "grid", y1: TOP, y2: TOP + HEIGHT, x1: x, x2: x }),
  el("text", { class: "below", x, y: TOP + HEIGHT + 18 }, words)];

function histogram(d) { // how often which duration, over a logarithmic axis
  const first = d.buckets[0][2], last = d.buckets[d.buckets.length - 1][2], most = Math.max(...d.buckets.map((b) => b[1]));
  const width = Math.min(200 / (last - first + 1), 12);
  const bars = d.buckets.map(([us, n, at]) => {
    const height = 2 + (32 * n) / most;
    return el("rect", { x: (at - first) * width, y: 35 - height, width: Math.max(width - 0.5, 0.5), height },
      el("title", {}, count(n) + " from " + duration(us)));
  });
  return el("svg", { class: "histogram", viewBox: "0 0 200 36", role: "img",
    "aria-label": `histogram of durations, from ${duration(d.least)} to ${duration(d.most)}, logarithmic` },
    ...bars, el("line", { x1: 0, x2: 200, y1: 35.5, y2: 35.5 }));
}

function overTime(slices, us) { // bytes per second
  const each = slices.map((bytes) => bytes / (us / 1e6)), most = Math.max(...each), n = each.length;
  const unit = Math.pow(10, Math.floor(Math.log10(most))), part = [1, 2, 5, 10].find((p) => p * unit >= most) || 10;
  const top = part * unit, steps = part === 2 ? 4 : 5, lines = [];
  for (let i = 0; i <= steps; i++) lines.push(...lineY(TOP + HEIGHT * (1 - i / steps), rate((top * i) / steps)));
  for (let i = 0; i <= 5; i++) lines.push(...lineX(LEFT + (WIDTH * i) / 5, duration((i * n * us) / 5)));
  const points = each.map((v, i) => {
    const y = TOP + HEIGHT * (1 - v / top);
    return `L${LEFT + (WIDTH * i) / n} ${y}L${LEFT + (WIDTH * (i + 1)) / n} ${y}`;
  });
  return chart("bytes per second over time", ...lines,
    el("path", { class: "area", d: `M${LEFT} ${TOP + HEIGHT}${points.join("")}L${LEFT + WIDTH} ${TOP + HEIGHT}Z` }));
}

// Lines over logarithmic axes. A curve is {name, colour, other, points: [[x, y]]}; points that are not above 0 are left out.
function logLog(title, curves, valueY, valueX = size, unit = "bytes") {
  const drawn = (c) => c.points.filter((p) => p[0] > 0 && p[1] > 0);
  const all = curves.flatMap(drawn).map((p) => p.map(Math.log10));
  if (!all.length) return [];
  const low = [0, 1].map((k) => Math.min(...all.map((p) => p[k]))), high = [0, 1].map((k) => Math.max(...all.map((p) => p[k])));
  low[1] = Math.floor(low[1]);
  high[1] = Math.max(Math.ceil(high[1]), low[1] + 1);
  high[0] = Math.max(high[0], low[0] + 0.1);
  const share = (v, k) => (Math.log10(v) - low[k]) / (high[k] - low[k]);
  const x = (v) => LEFT + WIDTH * share(v, 0), y = (v) => TOP + HEIGHT * (1 - share(v, 1));
  const lines = [], step = Math.ceil((high[1] - low[1]) / 6);
  for (let e = low[1]; e <= high[1]; e += step) lines.push(...lineY(y(Math.pow(10, e)), valueY(Math.pow(10, e))));
  const power = Math.round(low[0] * Math.log2(10)), end = Math.round(high[0] * Math.log2(10));
  for (let e = power; e <= end; e += Math.max(1, Math.floor((end - power + 7) / 8))) lines.push(...lineX(x(Math.pow(2, e)), valueX(Math.pow(2, e))));
  lines.push(el("text", { class: "axis", x: LEFT + WIDTH / 2, y: TOP + HEIGHT + 36 }, unit));
  const looks = (c) => `line s${c.colour % 8} d${Math.floor(c.colour / 8) % 3}${c.other ? " other" : ""}`;
  const paths = curves.map((c) => el("path", { class: looks(c), d: drawn(c).map((p, i) => (i ? "L" : "M") + x(p[0]) + " " + y(p[1])).join("") },
    el("title", {}, c.name)));
  const legend = curves.map((c) => el("li", {}, el("svg", { class: "sample", viewBox: "0 0 22 8", "aria-hidden": "true" },
    el("path", { class: looks(c), d: "M0 4H22" })), c.name));
  return [el("h4", {}, title), chart(title, ...lines, ...paths), el("ul", { class: "legend" }, ...legend)];
}

// ---- benchmark ----

const CURVES = 24, BENCH_ROWS = 600;

function benchRows(files) {
  return list(files).flatMap((file) => list(object(file).results).map((row) => {
    row = object(row);
    const form = object(row.out_of_place || row.in_place);
    return { group: text(object(file).group), operation: text(row.operation), type: text(row.type), size: number(row.size), form,
      together: row.phase === "together" };
  }));
}
function curvesOf(rows, other, curves) {
  let missed = 0;
  for (const r of rows) {
    const key = [r.group, r.operation, r.type].join(" ") + (r.together ? " together" : "");
    let c = curves.find((k) => k.key === key && k.other === other);
    if (!c) {
      const same = curves.find((k) => k.key === key), named = curves.filter((k) => !k.other).length;
      if (curves.length === 2 * CURVES || (!other && named === CURVES)) { missed++; continue; }
      c = { key, other, name: key + (other ? " (compared)" : ""), colour: same ? same.colour : named, time: [], bandwidth: [] };
      curves.push(c);
    }
    c.time.push([r.size, number(r.form.p50)]);
    c.bandwidth.push([r.size, 1e9 * number(r.form.bus_bw)]);
  }
  return missed;
}
function benchmark(data) {
  const rows = benchRows(data.bench), curves = [];
  if (!rows.length) return;
  const missed = curvesOf(rows, false, curves) + curvesOf(benchRows(data.other_bench), true, curves);
  const of = (what) => curves.map((c) => ({ ...c, points: c[what] }));
  const cells = rows.slice(0, BENCH_ROWS).map((r) => [r.group, r.operation, r.type, size(r.size),
    ...["p50", "p90", "p99", "max"].map((k) => duration(r.form[k])), number(r.form.alg_bw).toFixed(3), number(r.form.bus_bw).toFixed(3)]);
  section("bench", "Benchmark", ...logLog("Duration (p50) over size", of("time"), duration),
    ...logLog("Bus bandwidth over size", of("bandwidth"), rate), ...(missed ? [note(`At most ${CURVES} curves are drawn.`)] : []),
    el("details", {}, el("summary", {}, "as a table"), table(["group", "operation", "type", "#size", "#p50", "#p90", "#p99", "#max",
      "#algbw GB/s", "#busbw GB/s"], cells), ...leftOut(rows.length - cells.length, "rows")));
}

// ---- matrix ----

// A curve for each metric: over the first axis that has numbers, for each combination of the others.
function matrixCurves(runs, axis, metric) {
  const curves = [];
  for (const r of runs) {
    const y = number(object(r.metrics)[metric]), others = Object.entries(object(r.values)).filter(([name]) => name !== axis);
    const name = others.map(([k, v]) => k + "=" + text(v)).join(", ") || metric;
    let c = curves.find((k) => k.name === name);
    if (!c && curves.length < CURVES) curves.push(c = { name, colour: curves.length, points: [] });
    if (c) c.points.push([Number(text(r.values[axis])), y]);
  }
  for (const c of curves) c.points.sort((a, b) => a[0] - b[0]);
  return curves;
}
function matrixOf(m) {
  const runs = list(m.combinations).map(object), axes = list(m.axes).map(object).map((a) => ({ name: text(a.name), values: list(a.values) }));
  const metrics = [...new Set(runs.flatMap((r) => Object.keys(object(r.metrics))))].slice(0, CURVES);
  const axis = axes.find((a) => a.values.length > 1 && a.values.every((v) => Number(v) > 0));
  const short = (v) => (typeof v === "number" ? String(Number(v.toPrecision(6))) : "");
  const rows = runs.slice(0, BENCH_ROWS).map((r) => [...axes.map((a) => text(object(r.values)[a.name])),
    { class: r.class === "ok" ? "ok" : "bad", text: text(r.class), title: text(object(r.verdict).text) }, number(r.seconds).toFixed(3),
    ...metrics.map((k) => short(object(r.metrics)[k])), text(r.dir)]);
  section("matrix", "Runs", table([...axes.map((a) => a.name), "end", "#seconds", ...metrics.map((k) => "#" + k), "folder"], rows),
    ...leftOut(runs.length - rows.length, "runs"));
  if (axis && metrics.length) section("curves", "Metrics",
    ...metrics.flatMap((k) => logLog(k, matrixCurves(runs, axis.name, k), short, short, axis.name)));
}

// ---- operations ----

function sourceOf(t) {
  const shown = t.ops.length / 7;
  let words = count(t.n) + (t.from_trace ? " operations, from trace.json."
    : " operations, from the flight records: the last ones of each rank before the run failed, by the clock of each host.");
  if (t.dropped) words += " " + count(t.dropped) + (t.from_trace ? " more were overwritten before they were read." : " earlier ones were overwritten.");
  if (shown < t.n)
    words += ` Shown are ${count(shown)}: of each group, one operation in ${count(t.stride)}, and those that did not end well; ` +
      `${count(t.n - shown)} are left out.`;
  return note(words);
}
function timeline(t) {
  if (!t) {
    section("timeline", "Timeline", empty("No timeline, durations, bandwidth and waits: the run directory holds no operations. It has no " +
      "trace.json, and no flight records, which collrun saves when a run fails. ", el("code", {}, "logging: {trace: true}"),
      " in job.yaml writes a trace."));
    return;
  }
  const canvas = el("canvas", { id: "drawing" }), pointed = el("output", { id: "pointed", "aria-live": "polite" }, "\u00a0");
  const view = el("div", { class: "canvas", id: "view", tabindex: 0, role: "application",
    "aria-label": "timeline of operations; the arrow keys move it, plus and minus zoom it" }, canvas);
  const button = (what, words, label) => el("button", { type: "button", "data-do": what, "aria-label": label }, words);
  const key = (kind, words) => el("li", {}, el("span", { class: "key " + kind }), words);
  section("timeline", "Timeline", sourceOf(t), el("div", { class: "tools" }, button("in", "+", "zoom in"), button("out", "\u2212", "zoom out"),
    button("all", "all", "all"), el("span", { class: "hint" }, "drag or \u2190 \u2192 to move, Ctrl+wheel or + \u2212 to zoom, Home for all")),
    view, pointed, el("ul", { class: "legend" }, ...t.kinds.slice(0, 32).map((k, i) => key("s" + (i % 8), k)), key("bad", "not done")));
  drawTimeline(t, view, canvas, pointed);
}
const nothingEnded = () => empty("No operation ended well.");
function durations(all) {
  const rows = all.map((d) => [d.group, d.kind, count(d.n), size(d.bytes), duration(d.p50), duration(d.p90), duration(d.p99), duration(d.most),
    histogram(d)]);
  section("latency", "Durations", ...(all.length ? [
    note("From the call to its end, on all ranks, of operations that ended well. Percentiles are exact to 5 %."),
    table(["group", "operation", "#count", "#bytes", "#p50", "#p90", "#p99", "#max", "histogram (log)"], rows)] : [nothingEnded()]));
}
function bandwidth(b) {
  section("bandwidth", "Bandwidth", ...(b.slices.some((v) => v > 0) ? [
    note(`Bytes of the operations that ended, summed over all ranks, per ${duration(b.slice_us)}.`), overTime(b.slices, b.slice_us)]
    : [nothingEnded()]));
}
function matrix(w) {
  const n = w.last.length, most = Math.max(...w.waited, 1e-9), ranks = [...Array(n).keys()];
  const rows = ranks.map((i) => [String(i), ...ranks.map((k) => {
    const us = w.waited[i * n + k];
    return { class: "h" + Math.ceil((9 * us) / most), title: `${i} for ${k}: ${duration(us)}` };
  })]);
  return [el("h3", {}, "How long each rank (row) waited in collectives for the rank that came last (column)"),
    note(`The darkest field is ${duration(most)}.`), table(["", ...ranks.map(String)], rows, "matrix")];
}
function waits(w, stragglers) {
  const inside = [];
  if (w && w.compared) {
    const rows = w.last.flatMap((n, i) => (n ? [[String(i), count(n), ((100 * n) / w.compared).toFixed(1) + " %", duration(w.others[i]),
      meter(n, w.compared)]] : []));
    inside.push(el("h3", {}, "Who called a collective last, and how long the others waited"),
      table(["#rank", "#last", "#share", "#others waited", ""], rows),
      ...(w.waited.length ? matrix(w) : [empty("The matrix is drawn for at most 64 ranks.")]));
  } else if (w) {
    inside.push(empty("No collective was called by all of its members."));
  }
  const late = list(stragglers).flatMap((g) => list(object(g).ranks).map((r) => [text(object(g).group), text(object(r).rank),
    count(object(r).last), count(object(g).compared), duration(1e3 * number(object(r).late_ms)), (100 * number(object(r).cost)).toFixed(1) + " %"]));
  if (late.length)
    inside.push(el("h3", {}, "Late ranks, as collrun counted them during the run"),
      table(["group", "#rank", "#last in", "#of", "#late by", "#cost"], late));
  if (inside.length) section("waiting", "Who waited for whom", ...inside);
}

// ---- job ----

function metrics(of) {
  const words = Object.entries(object(of)).map(([name, v]) => name + " " + (typeof v === "number" ? Number(v.toPrecision(6)) : text(v)));
  return el("span", {}, ...words.flatMap((w, i) => (i ? [el("br"), w] : [w])));
}
function ranks(data) {
  const all = data.ranks.map(object);
  const seconds = (r) => number(r.user_s) + number(r.system_s), most = (of) => Math.max(...all.map(of), 1e-9);
  const longest = most(seconds), largest = most((r) => number(r.max_rss_bytes));
  const rows = all.map((r) => [text(r.rank), text(r.host), text(r.pid), { class: r.class === "ok" ? "ok" : "bad",
    text: text(r.class) + (r.signal ? ", signal " + text(r.signal) : "") }, duration(1e6 * seconds(r)), meter(seconds(r), longest),
    size(r.max_rss_bytes), meter(number(r.max_rss_bytes), largest), metrics(r.metrics), text(r.error)]);
  section("ranks", "Ranks", ...(rows.length ? [table(["#rank", "host", "#pid", "end", "#CPU time", "", "#peak memory", "", "metrics", "error"],
    rows), ...leftOut(data.ranks_left_out, "ranks")] : [empty("No result.json: what became of the ranks is not known.")]));
}
function plan(data) {
  const counted = new Map(data.counted.map((g) => [text(object(g).name), object(g)]));
  const groups = data.groups.map(object).map((g) => {
    const of = list(g.ranks), done = counted.get(text(g.name));
    return [text(g.name), text(g.backend), count(of.length), of.slice(0, 256).map(text).join(" ") + (of.length > 256 ? " ..." : ""),
      done ? count(done.operations) : "", done ? size(done.bytes) : ""];
  });
  const places = data.places.map(object).map((r) => [text(r.rank), text(r.host), text(r.cpus),
    el("span", {}, ...list(r.groups).flatMap((g) => [el("span", { class: "chip" }, text(g)), " "]))]);
  section("plan", "Plan", el("h3", {}, "Groups"), table(["group", "backend", "#size", "ranks", "#operations", "#bytes"], groups),
    ...leftOut(data.groups_left_out, "groups"), el("h3", {}, "Ranks on hosts"), table(["#rank", "host", "cpus", "groups"], places),
    ...leftOut(data.places_left_out, "ranks"));
}
function events(data) {
  const rows = list(data.events).map(object).map(({ t, event, attempt, ...rest }) => {
    const words = JSON.stringify(rest).slice(1, -1);
    return [number(t).toFixed(6) + " s", text(attempt), text(event), el("code", {}, words.slice(0, 400) + (words.length > 400 ? " ..." : ""))];
  });
  const missed = data.events_left_out ? `; in the middle ${count(data.events_left_out)} are left out` : "";
  section("events", "Events", el("details", {}, el("summary", {}, `${rows.length} event${rows.length === 1 ? "" : "s"}, from events.jsonl${missed}`),
    table(["#at", "#attempt", "event", ""], rows)));
}

// ---- the timeline: a canvas with a row for each rank and group, drawn, or set as textContent ----

function drawTimeline(data, view, canvas, pointed) {
  const pen = canvas.getContext("2d");
  const ROW = data.rows.length > 96 ? 12 : 18, AXIS = 26, EACH = 7;
  const count = data.ops.length / EACH;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  let colours, gutter, width, begin, end;

  const instants = (data.instants || []).map((i) => ({ at: (i[0] - data.begin_us) * 1e3, rank: i[1], name: i[2], text: i[3] }));
  let last = 1;
  for (let i = 0; i < count; i++) last = Math.max(last, data.ops[i * EACH + 1] + data.ops[i * EACH + 2]);
  for (const i of instants) last = Math.max(last, i.at);

  function duration(ns) {
    const [value, unit] = scaled(Math.abs(ns), 999.5, 1e3, ["ns", "µs", "ms", "s"]);
    return Number(Math.sign(ns) * value.toPrecision(4)) + " " + unit;
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
}

function run(data) {
  benchmark(data);
  timeline(data.timeline);
  if (data.timeline) {
    durations(data.durations);
    bandwidth(data.bandwidth);
  }
  waits(data.waits, data.stragglers);
  ranks(data);
  plan(data);
  events(data);
}

{
  const data = JSON.parse(document.getElementById("data").textContent);
  if (data.matrix) matrixOf(data.matrix);
  else run(data);
}
