"use strict";
// What it shows is reckoned here from the raw files: attempts.json, each rank's steps-*.jsonl, the split's counts, VisualDL's files.
const PARTS = {waiting: "#bbb", starting: "#e3c567", data: "#8fb8de", training: "#3a9d5d", saving: "#7d6b91", slowest: "#e08e45", lost: "#c44"};
const COLOURS = ["#dbe9f6", "#fde8cd", "#e2f0d9", "#eadcf2", "#fbdada"], RANKS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#17becf"];
const SLOW = 1.5, MINUTE = 60, FEW = 8, BINS = 300, MOST = 4000, PIECE = 4 << 20;
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0), mean = (numbers) => (numbers.length ? sum(numbers) / numbers.length : 0);
const sorted = (numbers) => [...numbers].sort((a, b) => a - b);
const middle = (numbers) => sorted(numbers)[Math.floor((numbers.length - 1) / 2)];
const span = (s) => (s < 120 ? `${s.toFixed(s < 10 ? 1 : 0)} s` : s < 7200 ? `${(s / 60).toFixed(1)} min` : `${(s / 3600).toFixed(1)} h`);
const number = (n, digits = 4) => (n === undefined || n === null ? "" : n.toLocaleString("en", {maximumSignificantDigits: digits}));
// Plotly reads tags in a text; what a program wrote has none.
const plain = (text) => String(text).replace(/[&<>]/g, (sign) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;"})[sign]);
const put = (id, text) => { document.getElementById(id).textContent = text; };

// A line that was cut short is none.
function parsed(lines) {
  const whole = (one) => one && one.metrics && [one.attempt, one.step, one.time].every(Number.isFinite);
  return lines.flatMap((line) => { try { const one = JSON.parse(line); return whole(one) ? [one] : []; } catch { return []; } });
}

// VisualDL's and TensorBoard's files: records behind their lengths, in each a message of protobuf.
function fields(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength), found = [];
  let at = 0;
  const varint = () => { let value = 0, scale = 1, byte; do { byte = view.getUint8(at++); value += (byte & 127) * scale; scale *= 128; } while (byte > 127); return value; };
  while (at < bytes.length) {
    const key = varint(), kind = key & 7, field = key >>> 3;
    if (kind === 0) found.push([field, varint()]);
    else if (kind === 1) { found.push([field, view.getFloat64(at, true)]); at += 8; }
    else if (kind === 5) { found.push([field, view.getFloat32(at, true)]); at += 4; }
    else if (kind === 2) { const size = varint(); found.push([field, bytes.subarray(at, at + size)]); at += size; }
    else break;
  }
  return found;
}
// Into curves that are thinned as they grow; returns how many bytes are done with, a record beyond the piece's end among them.
function scalars(buffer, tensorboard, series) {
  const bytes = new Uint8Array(buffer), view = new DataView(buffer);
  const text = (part) => new TextDecoder().decode(part), sums = tensorboard ? 4 : 0;
  const add = (tag, step, time, value) => {
    if (!tag || typeof value !== "number") return;
    const own = (series[tag] ??= {seen: 0, every: 1, points: []});
    own.last = {step: step || 0, time, value};
    if (own.seen++ % own.every === 0) own.points.push(own.last);
    if (own.points.length > MOST) { own.every *= 2; own.points = own.points.filter((_, place) => place % 2 === 0); }
  };
  let at = 0;
  while (at + 8 <= bytes.length) {
    const size = Number(view.getBigUint64(at, true)), begin = at + 8 + sums;
    if (begin + size > bytes.length) return at || bytes.length < PIECE ? at : begin + size + sums;
    try {
      const record = fields(bytes.subarray(begin, begin + size));
      if (tensorboard) {
        const event = Object.fromEntries(record.filter(([, value]) => typeof value === "number"));
        for (const [, summary] of record.filter(([field, value]) => field === 5 && typeof value !== "number"))
          for (const [, value] of fields(summary)) { const one = Object.fromEntries(fields(value)); add(one[1] && text(one[1]), event[2], event[1], one[2]); }
      } else for (const [field, value] of record)
        if (field === 1) { const one = Object.fromEntries(fields(value)); add(one[2] && text(one[2]), one[1], one[3] / 1000, one[4]); }
    } catch { break; }
    at = begin + size + sums;
  }
  return at;
}
// By event file: how far it was read, how long it was then, its curves. It grows at its end; a piece of it is read at a time.
const events = {};
async function curves({name, bytes}) {
  if (!events[name] || bytes < events[name].at) events[name] = {at: 0, known: -1, series: {}};
  const own = events[name];
  if (own.known === bytes) return own.series;
  const answer = await fetch(`events?path=${encodeURIComponent(name)}&offset=${own.at}`);
  if (!answer.ok) return own.series;
  const more = scalars(await answer.arrayBuffer(), name.includes("tfevents"), own.series);
  own.at += more;
  own.known = more && own.at < bytes ? -1 : bytes;
  return own.series;
}

// The parts of the paid time by attempt: as recorded; of one that runs, by what its ranks told last. Of one that nobody ended, who knows?
function account(attempts, ranks, now, going) {
  attempts.forEach((one, place) => {
    one.points = Object.fromEntries(Object.entries(ranks).map(([rank, points]) => [rank, points.filter((p) => p.attempt === one.number)]));
    const all = Object.values(one.points).filter((points) => points.length), told = all.map((points) => points.at(-1)).filter((p) => p.spent);
    const before = attempts[place - 1], open = one.cause === null;
    one.runs = open && place === attempts.length - 1 && going(one);
    if (!one.ended) one.ended = Math.max(one.started, ...all.map((points) => points.at(-1).time), one.runs ? now : 0);
    if (one.runs) {
      const part = (name) => mean(told.map((p) => p.spent[name] || 0)), rest = one.ended - one.started;
      // Who tells nothing of it is taken to train, from its first metrics on.
      const first = Math.min(...all.map((points) => points[0].time)), starting = first > one.started && first < one.ended ? first - one.started : 0;
      const untold = one.counted === false || (all.length && !told.length);
      one.seconds = untold ? {starting, training: rest - starting} : {data: part("data"), training: part("training"), saving: part("saving"), slowest: part("slowest")};
      one.seconds.starting ??= Math.max(0, rest - sum(Object.values(one.seconds)));
      one.seconds.waiting = before && before.run === one.run ? Math.max(0, one.started - before.ended) : 0;
    } else if (open) Object.assign(one, {seconds: {}, cause: "nobody recorded its end"});
    one.lost = one.runs || one.cause === "done" ? 0 : sum(Object.entries(one.points).map(([rank, points]) => {
      const last = points.at(-1), next = (ranks[rank] || []).find((p) => p.attempt > one.number);
      if (!last) return 0;
      // Steps that nobody numbered but by counting begin anew in each attempt.
      if (last.counted || next?.counted) return NaN;
      return Math.max(0, last.step - Math.max(0, last.kept ?? (next ? next.step - 1 : last.step)));
    }));
  });
  const parts = Object.fromEntries(Object.keys(PARTS).map((part) => [part, sum(attempts.map((one) => one.seconds?.[part] || 0))]));
  const paid = sum(Object.values(parts));
  return {parts, paid, share: paid ? parts.training / paid : 0};
}

// Seconds of its own that a step took each rank in the last minute of an attempt, and how many times the median that is.
function paces(attempt) {
  const found = {};
  for (const [rank, points] of Object.entries(attempt ? attempt.points : {})) {
    const last = points.findLast((p) => p.spent), first = last && points.findLast((p) => p.spent && p.time <= last.time - MINUTE);
    const begin = first || points.find((p) => p.spent);
    if (last && begin && last.step > begin.step)
      found[rank] = {pace: (last.spent.data + last.spent.training - begin.spent.data - begin.spent.training) / (last.step - begin.step), minute: Boolean(first)};
  }
  const usual = middle(Object.values(found).map((one) => one.pace));
  for (const one of Object.values(found)) one.times = usual ? one.pace / usual : 1;
  return found;
}

// Of few ranks a line each, of many the middle and the extremes; x is a point's step or time, y a function of it.
function lines(attempts, x, name, named = name) {
  const ranks = [...new Set(attempts.flatMap((one) => Object.keys(one.points)))], traces = [];
  const newest = attempts.findLast((one) => Object.values(one.points).some((points) => points.length));
  const earlier = attempts.filter((one) => one !== newest);
  // An attempt that was given up is dotted.
  for (const group of [earlier, newest ? [newest] : []]) {
    const dash = group === earlier ? "dot" : "solid", of = (rank) => group.map((one) => (one.points[rank] || []).filter((p) => typeof p.metrics[name] === "number"));
    if (ranks.length <= FEW) {
      ranks.forEach((rank, place) => {
        const points = of(rank).flatMap((each) => (each.length ? [...each, null] : []));
        if (points.length) traces.push({x: points.map((p) => p && x(p)), y: points.map((p) => p && p.metrics[name]), name: `${plain(named)} of rank ${rank}`, mode: "lines", showlegend: group !== earlier, line: {width: 1.5, color: RANKS[place], dash}});
      });
      continue;
    }
    const all = ranks.flatMap((rank) => of(rank).flat());
    if (!all.length) continue;
    const xs = all.map((p) => +x(p)), low = xs.reduce((a, b) => Math.min(a, b), Infinity), high = xs.reduce((a, b) => Math.max(a, b), -Infinity);
    const bins = Array.from({length: BINS}, () => []);
    all.forEach((p, place) => bins[Math.min(BINS - 1, Math.floor(((xs[place] - low) / (high - low || 1)) * BINS))].push([x(p), p.metrics[name]]));
    const full = bins.filter((bin) => bin.length), across = full.map((bin) => bin[0][0]), at = (pick) => full.map((bin) => pick(sorted(bin.map(([, value]) => value))));
    const what = `${plain(named)}, ${group === earlier ? "earlier attempts, " : ""}`;
    traces.push({x: across, y: at((v) => v[0]), name: "least", mode: "lines", line: {width: 0.5, color: "#999"}, showlegend: false});
    traces.push({x: across, y: at((v) => v.at(-1)), name: `${what}least to greatest of ${ranks.length} ranks`, mode: "lines", line: {width: 0.5, color: "#999"}, fill: "tonexty", fillcolor: "rgba(120,120,160,.2)"});
    traces.push({x: across, y: at((v) => v[Math.floor((v.length - 1) / 2)]), name: `${what}the middle`, mode: "lines", line: {width: 2, dash}});
  }
  return traces;
}

const at = (seconds) => new Date(seconds * 1000), clock = (seconds) => at(seconds).toISOString().slice(11, 19);
function draw(id, traces, title, layout = {}) {
  if (!traces.some((trace) => trace.x.length)) return;
  Plotly.react(id, traces, {title: {text: title, font: {size: 14}}, margin: {l: 55, r: 15, t: 35, b: 40}, height: 300, legend: {font: {size: 10}}, ...layout}, {displayModeBar: false, responsive: true});
}

async function show() {
  const answer = await fetch("data");
  if (!answer.ok) throw new Error(await answer.text());
  const told = await answer.json();
  const ranks = {};
  for (const [file, raw] of Object.entries(told.lines)) {
    const [, pod, rank] = file.match(/node_(.*)\/steps-(\d+)/), points = parsed(raw), theirs = new Set((ranks[rank] || []).map((p) => p.attempt));
    // Where each pod counts its own ranks from 0, two have the same at once.
    (ranks[points.some((p) => theirs.has(p.attempt)) ? `${rank} of pod ${pod}` : rank] ??= []).push(...points);
  }
  // An earlier attempt may have had a rank in another pod, and so in another file.
  for (const points of Object.values(ranks)) points.sort((a, b) => a.attempt - b.attempt);
  const attempts = told.attempts, last = attempts.at(-1), first = told.pods.findLast((pod) => pod.component === "trainer" && pod.rank === 0);
  // A younger pod of trainer 0 has not begun an attempt yet.
  const good = account(attempts, ranks, told.now, (one) => told.state === "running" && !(Date.parse(first?.created) / 1000 > one.started + 5));
  const stretches = attempts.map((one, place) => ({type: "rect", xref: "x", yref: "paper", x0: at(one.started), x1: at(one.ended), y0: 0, y1: 1, fillcolor: COLOURS[place % COLOURS.length], line: {width: 0}, layer: "below"}));
  const ends = {x: attempts.map((one) => at(one.ended)), y: attempts.map(() => 0), yaxis: "y2", mode: "markers", marker: {symbol: "x", size: 9, color: attempts.map((one) => (one.runs || one.cause === "done" ? "#3a9d5d" : "#c44"))}, text: attempts.map((one) => `attempt ${one.number}: ${plain(one.runs ? "runs" : one.cause)}`), hoverinfo: "text", name: "ends of attempts"};
  const names = [...new Set(Object.values(ranks).flat().flatMap((p) => Object.keys(p.metrics)))], main = names.includes("loss") ? "loss" : names[0];

  document.title = `${told.job} - paddle-aws board`;
  put("job", told.job); put("state", told.state.replace("unknown", "not begun")); put("reason", told.reason);
  put("goodput", good.paid ? `${Math.round(100 * good.share)} %` : "");
  const latest = attempts.findLast((one) => Object.values(one.points).some((points) => points.length));
  const newest = Object.values(latest?.points || {}).map((points) => points.findLast((p) => typeof p.metrics[main] === "number")).filter(Boolean);
  put("loss", newest.length ? number(mean(newest.map((p) => p.metrics[main]))) : ""); put("loss-name", `${main || "no metric yet"}, newest`);
  const lost = sum(attempts.map((one) => one.lost));
  put("lost", Number.isNaN(lost) ? "unknown" : String(lost));
  if (told.evaluation) { put("held-out", number(told.evaluation.value)); put("held-out-name", `${told.evaluation.metric} on ${told.evaluation.records} records that no trainer saw (${told.evaluation.baseline_of}: ${told.evaluation.baseline})`); }

  const price = told.usd_per_hour;
  draw("parts", Object.entries(good.parts).filter(([, seconds]) => seconds > 0).map(([part, seconds]) => ({x: [seconds], y: [""], name: `${part} ${span(seconds)}${price ? `, ${(price * seconds / 3600).toFixed(2)} USD` : ""}`, type: "bar", orientation: "h", marker: {color: PARTS[part]}})),
    `where ${span(good.paid)} of each pod went`, {barmode: "stack", height: 150, yaxis: {visible: false}, margin: {l: 15, r: 15, t: 35, b: 60}, legend: {orientation: "h", traceorder: "normal", y: -0.4}});
  draw("by-step", lines(attempts, (p) => p.step, main), `${plain(main)} by step`, {xaxis: {title: {text: "step"}}});
  draw("by-time", [...lines(attempts, (p) => at(p.time), main), ends], `${plain(main)} by time; a stretch is an attempt`, {shapes: stretches, showlegend: false, yaxis2: {overlaying: "y", visible: false, range: [-0.02, 1]}});

  const many = Object.fromEntries(attempts.map((one) => [one.number, Object.values(one.points).filter((points) => points.length > 1).length]));
  const rates = (pick) => attempts.flatMap((one) => Object.entries(one.points).flatMap(([rank, points]) => points.slice(1).map((p, place) => ({time: p.time, many: many[one.number], value: pick(points[place], p, told.shards[rank] || 0)})))).filter((one) => one.value !== null).sort((a, b) => a.time - b.time);
  const binned = (values) => { const low = values[0]?.time, wide = ((values.at(-1)?.time - low) || 1) / 100, bins = {}; for (const one of values) (bins[Math.floor((one.time - low) / wide)] ??= []).push(one.value * one.many); return Object.entries(bins).map(([bin, all]) => [at(low + (+bin + 0.5) * wide), mean(all)]); };
  // A point counts the records of its own pass.
  const all = (p, shard) => p.pass * shard + p.records;
  const records = binned(rates((a, b, shard) => (all(b, shard) >= all(a, shard) && b.time > a.time ? (all(b, shard) - all(a, shard)) / (b.time - a.time) : null)));
  const steps = binned(rates((a, b) => (b.step >= a.step && b.time > a.time ? (b.step - a.step) / (b.time - a.time) : null)));
  const speed = records.length ? records : steps, unit = records.length ? "records" : "steps";
  put("speed-name", `${unit} a second, newest`); put("speed", speed.length ? number(mean(speed.slice(-10).map((one) => one[1])), 3) : "");
  draw("speeds", [{x: speed.map((one) => one[0]), y: speed.map((one) => one[1]), mode: "lines", name: unit}, ...(records.length ? [{x: steps.map((one) => one[0]), y: steps.map((one) => one[1]), yaxis: "y2", mode: "lines", line: {dash: "dot", width: 1}, name: "steps (right)"}] : [])], `${unit} a second, all ranks`, {shapes: stretches, showlegend: true, legend: {x: 0, y: 0.1, font: {size: 10}}, yaxis: {rangemode: "tozero"}, yaxis2: {overlaying: "y", side: "right", rangemode: "tozero", tickmode: "auto", showgrid: false}, margin: {l: 55, r: 40, t: 35, b: 40}});

  const pace = paces(last), nodes = Object.fromEntries(told.pods.filter((pod) => pod.component === "trainer").map((pod) => [pod.rank, pod.node]));
  const slow = Object.entries(pace).filter(([, one]) => one.minute && one.times > SLOW);
  put("slow", slow.length ? `slow: ${slow.map(([rank, one]) => `rank ${rank}${nodes[rank] ? ` on ${nodes[rank]}` : ""}, ${one.times.toFixed(1)} times the median`).join("; ")}` : "");
  draw("paces", [{x: Object.keys(pace), y: Object.values(pace).map((one) => 1000 * one.pace), type: "bar", marker: {color: Object.values(pace).map((one) => (one.minute && one.times > SLOW ? "#c44" : "#3a9d5d"))}}], "milliseconds of its own that a step takes each rank", {xaxis: {title: {text: "rank"}, type: "category"}});
  if (told.shards.length > 1) draw("balance", [{x: told.shards.map((_, index) => index), y: told.shards, type: "bar", marker: {color: "#8fb8de"}}], "records of each shard", {xaxis: {title: {text: "shard"}, dtick: told.shards.length > 20 ? undefined : 1}});

  const more = names.filter((name) => name !== main).flatMap((name) => lines(attempts, (p) => p.step, name));
  for (const file of told.events) {
    try {
      for (const [tag, {points, last}] of Object.entries(await curves(file))) more.push({x: [...points, last].map((p) => p.step), y: [...points, last].map((p) => p.value), name: plain(tag), mode: "lines"});
    } catch { /* Another kind of file, or of name: the others are shown all the same. */ }
  }
  draw("others", more, "other metrics by step", {xaxis: {title: {text: "step"}}});

  const table = document.getElementById("attempts");
  table.replaceChildren(...attempts.map((one) => {
    const all = Object.values(one.points).flat(), row = document.createElement("tr"), low = all.reduce((a, p) => Math.min(a, p.step), Infinity), high = all.reduce((a, p) => Math.max(a, p.step), 0);
    const cells = [one.number, clock(one.started), span(one.ended - one.started), all.length ? `${low} to ${high}` : "", Number.isNaN(one.lost) ? "unknown" : one.lost, span(one.seconds?.training || 0), span(one.seconds?.lost || 0), one.made, one.runs ? "it runs" : one.cause];
    row.append(...cells.map((cell) => { const made = document.createElement("td"); made.textContent = cell; return made; }));
    return row;
  }));
  const count = (number, word) => `${number} ${word}${number === 1 ? "" : "s"}`;
  put("foot", `${count(Object.keys(ranks).length, "rank")}, ${count(attempts.length, "attempt")}, read ${clock(told.now)} UTC`);
  // What was drawn first had another width.
  for (const chart of document.querySelectorAll(".js-plotly-plot")) Plotly.Plots.resize(chart);
  document.body.dataset.shown = "yes";
}

async function follow() {
  try { await show(); } catch (error) { put("foot", `this page is not up to date: ${error.message}`); }
  setTimeout(follow, 5000);
}
follow();
