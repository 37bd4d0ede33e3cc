// The page of one job: asks for it every few seconds, and shows what is new.
import {PARTS, account, byRank, paces, speed} from "./attempts.js";
import {colour, curvesOf, draw, overSteps, overTime, plain} from "./charts.js";
import {curves} from "./events.js";
import {bytes, clock, count, dollars, duration, element, local, mean, number, percent, sentence, sum, write, zone} from "./format.js";

const PAUSE = {running: 5000, ended: 30000}, MOST_CHARTS = 24, MOST_CAUSES = 5, UNEVEN = 1.1;
const ENDED = new Set(["done", "failed", "cancelled"]);
let shown = null, opened = null;

function tile(id, value, note) {
  document.getElementById(id).closest(".tile").hidden = !value;
  write(id, value);
  write(`${id}-note`, note);
}

function chosen(name) { return document.querySelector(`input[name=${name}]:checked`).value; }

// Adds a card for a chart; it stays where it is as the page is renewed.
function card(id, title) {
  if (!document.getElementById(id)) document.getElementById("charts").append(element("figure", {className: "card"}, element("header", {}, element("h2", {id: `${id}-title`})), element("div", {id, className: "chart", role: "img"})));
  write(`${id}-title`, title);
  return id;
}

async function read() {
  const answer = await fetch("data");
  if (!answer.ok) throw new Error(await answer.text());
  const job = await answer.json(), ranks = byRank(job.lines), attempts = job.attempts;
  const first = job.pods.findLast((pod) => pod.component === "trainer" && pod.rank === 0);
  // A younger pod of trainer 0 has not begun an attempt yet.
  const paid = account(attempts, ranks, job.now, (attempt) => job.state === "running" && !(Date.parse(first?.created) / 1000 > attempt.started + 5));
  const names = [...new Set(Object.values(ranks).flat().flatMap((point) => Object.keys(point.metrics)))], main = names.includes("loss") ? "loss" : names[0];
  const events = [];
  for (const file of job.events) {
    try { events.push(...Object.entries(await curves(file))); } catch { /* Another kind of file: the others are shown all the same. */ }
  }
  return {job, ranks, attempts, paid, names, main, events};
}

function head({job, ranks, attempts}) {
  document.title = `${job.job}: ${job.state} - paddle-aws board`;
  document.getElementById("back").hidden = !job.listed;
  write("job", job.job);
  write("state", job.state.replace("unknown", "not begun"));
  document.getElementById("state").dataset.state = job.state;
  const {pods, processes} = job.world, reporting = Object.values(ranks).filter((points) => points.length).length, all = pods * processes;
  const shards = job.shards.length > 1 ? `${count(job.shards.length, "shard")} of ${sum(job.shards) === job.shards[0] * job.shards.length ? number(job.shards[0], 9) : `about ${number(mean(job.shards), 3)}`} records` : "";
  const world = pods ? `${count(pods, "pod")}${processes > 1 ? ` with ${count(processes, "process").replace("processs", "processes")} each` : ""}` : "";
  write("world", [world, reporting && reporting < all ? `metrics come from ${reporting} of ${all} processes` : "", shards, attempts.length ? count(attempts.length, "attempt") : ""].filter(Boolean).join(" · "));
  write("live", ENDED.has(job.state) ? `read at ${clock(job.now)}` : `live: renewed every ${PAUSE.running / 1000} s, last at ${clock(job.now)}`);
}

// What a reader can do where there is nothing to see yet, or where something went wrong.
function advise({job, attempts, names, events}) {
  const reason = job.reason ? ` ${job.reason}.` : "";
  if (job.state === "failed") return sentence("notice", `It failed:${reason || " nobody said why."} \`paddle-aws logs ${job.job}\` shows what its pods wrote, \`paddle-aws resume ${job.job}\` takes it up again.`, true);
  if (!attempts.length && ENDED.has(job.state)) return sentence("notice", `No attempt was recorded, so there is nothing to draw. \`paddle-aws results ${job.job}\` lists what it wrote.${reason}`);
  if (!attempts.length) return sentence("notice", `No attempt has begun: the pods are not all there yet.${reason} \`paddle-aws status ${job.job}\` says what each pod waits for. This page shows the training as soon as it begins.`);
  if (!names.length && !events.length) return sentence("notice", "No metrics yet. A program on `paddle_node.fleet` reports its loss within seconds of its first step. A `command` does once its job file has `metrics: {step: 'step ([0-9]+)', loss: 'loss ([0-9.]+)'}`, patterns for the lines that it prints, or once it calls `paddle_node.report(loss=...)`.");
  return sentence("notice", reason.trim());
}

function numbers({job, attempts, paid, main, rates}) {
  const cause = attempts.findLast((attempt) => Object.values(attempt.points).some((points) => points.length));
  const newest = Object.values(cause?.points || {}).map((points) => points.findLast((point) => typeof point.metrics[main] === "number")).filter(Boolean);
  tile("goodput", paid.paid ? percent(paid.share) : "", `${duration(paid.parts.training)} of ${duration(paid.paid)} became training that was kept`);
  write("loss-title", main ? main[0].toUpperCase() + main.slice(1) : "");
  tile("loss", newest.length ? number(mean(newest.map((point) => point.metrics[main]))) : "", newest.length > 1 ? `newest, mean of ${newest.length} ranks` : `newest, step ${number(newest[0]?.step, 9)}`);
  tile("speed", rates.rates.length ? number(mean(rates.rates.slice(-10).map((rate) => rate.value)), 3) : "", `${rates.unit} a second, ${rates.unit === "records" ? "all ranks, " : ""}newest`);
  tile("lost", paid.paid ? duration(paid.parts.lost) : "", paid.parts.lost ? `of each pod, ${percent(paid.parts.lost / paid.paid)} of its time: trained, not saved, done again` : "nothing was trained twice");
  const perSecond = (job.usd_per_hour / 3600) * job.world.pods;
  tile("cost", !paid.paid ? "" : job.usd_per_hour ? dollars(perSecond * paid.paid) : job.usd_per_hour === null ? "unknown" : "", job.usd_per_hour ? `${count(job.world.pods, "node")} at ${dollars(job.usd_per_hour)} an hour` : "paddle-aws lock prices reads AWS's prices");
  const score = job.evaluation;
  write("held-out-title", score ? score.metric[0].toUpperCase() + score.metric.slice(1) : "");
  tile("held-out", score ? number(score.value) : "", score ? `on ${number(score.records, 9)} records that no trainer saw (${score.baseline_of}: ${score.baseline})` : "");
}

function time({job, paid}) {
  const section = document.getElementById("time"), spent = Object.entries(paid.parts).filter(([, seconds]) => seconds >= 0.05);
  section.hidden = !spent.length;
  write("time-title", `Where ${duration(paid.paid)} of each pod went`);
  const bar = document.getElementById("bar");
  bar.setAttribute("aria-label", spent.map(([part, seconds]) => `${part} ${percent(seconds / paid.paid)}`).join(", "));
  const swatch = (part, style = "") => { const mark = element("i", {title: PARTS[part]}); mark.style = `background: var(--${part}); ${style}`; return mark; };
  bar.replaceChildren(...spent.map(([part, seconds]) => swatch(part, `flex: ${seconds / paid.paid}`)));
  const usd = (seconds) => (job.usd_per_hour ? `, ${dollars((job.usd_per_hour / 3600) * job.world.pods * seconds)}` : "");
  document.getElementById("parts").replaceChildren(...spent.map(([part, seconds]) => element("li", {title: PARTS[part]}, swatch(part), `${part} ${duration(seconds)} (${percent(seconds / paid.paid)}${usd(seconds)})`)));
}

function charts({job, attempts, names, main, events, rates}) {
  const across = chosen("across"), scale = chosen("scale"), when = overTime(attempts), rankChoice = document.getElementById("rank"), smooth = Number(document.getElementById("smooth").value);
  document.getElementById("main").hidden = !main;
  if (main) {
    const {traces, ranks} = curvesOf(attempts, across, main, {only: rankChoice.value, smooth}), around = across === "step" ? overSteps(attempts) : when;
    const values = Object.values(attempts).flatMap((attempt) => Object.values(attempt.points).flat()).map((point) => point.metrics[main]).filter((value) => typeof value === "number");
    for (const rank of ranks) if (![...rankChoice.options].some((option) => option.value === rank)) rankChoice.append(element("option", {value: rank, textContent: rank}));
    rankChoice.parentElement.hidden = ranks.length < 2;
    write("loss-heading", `${main[0].toUpperCase()}${main.slice(1)} by ${across}`);
    draw("loss-chart", [...traces, ...around.traces], `${main} by ${across}, from ${number(values[0])} to ${number(values.at(-1))}, in ${count(attempts.length, "attempt")}`,
      {...around.layout, showlegend: ranks.length > 1 || traces.length > 1, uirevision: `${across} ${scale}`, yaxis: {type: scale, title: {text: plain(main)}, ...(scale === "log" ? {dtick: "D2", tickformat: ".3~g"} : {rangemode: "tozero"})}});
    write("loss-key", [smooth ? `Smoothed: the mean of a value, ${smooth} before it and ${smooth} after it.` : "", attempts.length > 1 ? `A thin line is the ${across === "step" ? "step at which an attempt took up the training" : "beginning or end of an attempt"}.` : ""].filter(Boolean).join(" "));
    const ended = attempts.filter((attempt) => !attempt.runs && attempt.cause !== "done");
    document.getElementById("causes").replaceChildren(...ended.slice(0, MOST_CAUSES).map((attempt) => element("li", {textContent: `attempt ${attempt.number} ended: ${attempt.cause}`})), ...(ended.length > MOST_CAUSES ? [element("li", {textContent: `and ${count(ended.length - MOST_CAUSES, "attempt")} more, in the table below`})] : []));
  }
  if (rates.rates.length > 1) {
    // No line leads from an attempt to the next.
    const broken = rates.rates.flatMap((rate, place) => (place && rates.rates[place - 1].attempt !== rate.attempt ? [null, rate] : [rate]));
    const x = broken.map((rate) => rate && local(rate.time)), y = broken.map((rate) => rate && rate.value);
    draw(card("speeds", `${rates.unit === "records" ? "Records" : "Steps"} a second${rates.unit === "records" ? ", all ranks" : ""}`), [{x, y, mode: "lines", line: {color: colour("rank-1"), width: 2}, hovertemplate: "%{y:.4~g}<extra>%{x}</extra>"}, ...when.traces],
      `${rates.unit} a second over time, newest ${number(y.at(-1), 3)}`, {...when.layout, annotations: [], yaxis: {rangemode: "tozero"}});
  }
  const pace = paces(attempts.at(-1)), nodes = Object.fromEntries(job.pods.filter((pod) => pod.component === "trainer").map((pod) => [pod.rank, pod.node]));
  const slow = Object.entries(pace).filter(([, rank]) => rank.slow);
  sentence("slow", slow.length ? `slow: ${slow.map(([rank, its]) => `rank ${rank}${nodes[rank] ? ` on ${nodes[rank]}` : ""}, ${its.times.toFixed(1)} times the median`).join("; ")}` : "", true);
  if (Object.keys(pace).length > 1)
    draw(card("paces", "Time of a step by rank, without waiting for others (ms)"), [{x: Object.keys(pace), y: Object.values(pace).map((rank) => 1000 * rank.seconds), type: "bar", marker: {color: Object.values(pace).map((rank) => colour(rank.slow ? "lost" : "rank-1"))}, text: Object.values(pace).map((rank) => (rank.slow ? "slow" : "")), hovertemplate: "%{y:.4~g} ms<extra>rank %{x}</extra>"}],
      Object.entries(pace).map(([rank, its]) => `rank ${rank}: ${number(1000 * its.seconds, 3)} ms`).slice(0, 16).join(", "), {xaxis: {title: {text: "rank"}, type: "category", tickangle: 0, nticks: 16}, yaxis: {rangemode: "tozero"}, bargap: 0.5});
  if (job.shards.length > 1 && Math.max(...job.shards) > UNEVEN * Math.min(...job.shards))
    draw(card("balance", "Records of each shard"), [{x: job.shards.map((_, shard) => shard), y: job.shards, type: "bar", marker: {color: colour("rank-1")}, hovertemplate: "%{y} records<extra>shard %{x}</extra>"}],
      `${count(job.shards.length, "shard")}, ${Math.min(...job.shards)} to ${Math.max(...job.shards)} records`, {xaxis: {title: {text: "shard"}, type: "category"}, yaxis: {rangemode: "tozero"}, bargap: 0.5});

  const others = [
    ...names.filter((name) => name !== main).map((name) => ({name, ...curvesOf(attempts, "step", name)})),
    ...events.map(([name, {points, last}]) => ({name, ranks: [], traces: [{x: [...points, last].map((point) => point.step), y: [...points, last].map((point) => point.value), mode: points.length > 1 ? "lines" : "markers", line: {color: colour("rank-1"), width: 2}, marker: {color: colour("rank-1")}}]})),
  ];
  for (const [place, {name, traces, ranks}] of others.slice(0, MOST_CHARTS).entries())
    draw(card(`other-${place}`, `${name} by step`), traces, `${name} by step`, {showlegend: ranks.length > 1, xaxis: {title: {text: "step"}}});
  // What was drawn first had another width.
  for (const chart of document.querySelectorAll(".js-plotly-plot")) Plotly.Plots.resize(chart);
}

function table({attempts}) {
  document.getElementById("attempts").hidden = !attempts.length;
  document.querySelector("#attempts caption").textContent = `Attempts (times in ${zone})`;
  document.querySelector("#attempts tbody").replaceChildren(...attempts.map((attempt) => {
    const points = Object.values(attempt.points).flat(), steps = points.map((point) => point.step), known = Object.keys(attempt.seconds || {}).length;
    const low = steps.reduce((least, step) => Math.min(least, step), Infinity), high = steps.reduce((most, step) => Math.max(most, step), 0);
    const {newest, interrupted, pass} = attempt.resume || {}, resumed = newest ?? interrupted ?? (pass === undefined ? "the beginning" : `pass ${pass}`);
    const cells = [
      [attempt.number, "number"], [clock(attempt.started)], [duration(attempt.ended - attempt.started), "number"], [resumed], [steps.length ? `${low} to ${high}` : ""],
      [known ? duration(attempt.seconds.training || 0) : "unknown", "number"], [known ? duration(attempt.seconds.lost || 0) : "unknown", "number"], [attempt.made], [attempt.runs ? "running" : attempt.cause, "words"],
    ];
    return element("tr", {}, ...cells.map(([text, className = ""]) => element("td", {textContent: text, className})));
  }));
}

function pods({job}) {
  const usage = job.usage || {}, used = Object.values(usage), has = (name) => used.some((pod) => name in pod);
  const columns = [
    ["pod", (pod) => pod.component + (pod.rank === null ? "" : ` ${pod.rank}`)], ["state", (pod) => pod.state], ["node", (pod) => pod.node],
    ...(has("cores") ? [["cores", (pod, its) => number(its.cores, 2), "number"], ["memory", (pod, its) => (its.bytes ? bytes(its.bytes) : ""), "number"]] : []),
    ...(has("gpu_percent") ? [["GPU", (pod, its) => ("gpu_percent" in its ? `${Math.round(its.gpu_percent)} %` : ""), "number"], ["GPU memory", (pod, its) => (its.gpu_mib ? bytes(its.gpu_mib * 2 ** 20) : ""), "number"]] : []),
    ["why", (pod) => pod.reason, "words"],
  ];
  document.getElementById("pods").hidden = !job.pods.length;
  document.querySelector("#pods thead tr").replaceChildren(...columns.map(([name, , className = ""]) => element("th", {scope: "col", textContent: name, className})), element("th", {scope: "col", textContent: "log"}));
  document.querySelector("#pods tbody").replaceChildren(...job.pods.map((pod) => {
    const name = columns[0][1](pod), button = element("button", {type: "button", textContent: "log", ariaLabel: `log of ${name}`});
    button.addEventListener("click", () => { opened = {name, of: pod.part, rank: pod.rank}; log(); });
    return element("tr", {}, ...columns.map(([, text, className = ""]) => element("td", {textContent: text(pod, usage[pod.pod] || {}), className})), element("td", {}, button));
  }));
}

// The log of the pod that was asked for; it stays at its end while it grows.
async function log() {
  if (!opened) return;
  const answer = await fetch(`log?of=${opened.of}&rank=${opened.rank ?? ""}`), text = await answer.text(), place = document.getElementById("log-text");
  document.getElementById("log").hidden = false;
  write("log-title", `Log of ${opened.name}, newest lines`);
  write("log-text", text || "It has written nothing yet.");
  place.scrollTop = place.scrollHeight;
}

function settings({job}) {
  document.getElementById("settings").hidden = !Object.keys(job.settings).length;
  const first = (name) => (/command/i.test(name) ? 0 : 1);
  const rows = Object.entries(job.settings).sort(([a], [b]) => first(a) - first(b) || a.localeCompare(b));
  document.querySelector("#settings tbody").replaceChildren(...rows.map(([name, value]) => element("tr", {}, element("th", {scope: "row", textContent: name}), element("td", {className: "words", textContent: value}))));
}

// All points as they were reported, for a spreadsheet or pandas.
function csv() {
  const {ranks, names, job} = shown, cell = (value) => { const text = String(value ?? ""); return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text; };
  const rows = Object.entries(ranks).flatMap(([rank, points]) => points.map((point) => [rank, point.attempt, point.step, point.time, point.lost ? 1 : 0, ...names.map((name) => point.metrics[name])]));
  const text = [["rank", "attempt", "step", "time", "lost", ...names], ...rows].map((row) => row.map(cell).join(",")).join("\n");
  const link = element("a", {href: URL.createObjectURL(new Blob([`${text}\n`], {type: "text/csv"})), download: `${job.job}.csv`});
  link.click();
  URL.revokeObjectURL(link.href);
}

function show(page) {
  shown = page;
  page.rates = speed(page.attempts, page.job.shards);
  for (const part of [head, advise, numbers, time, charts, table, pods, settings]) part(page);
  document.body.dataset.shown = "yes";
}

async function follow() {
  let pause = PAUSE.running;
  try {
    show(await read());
    await log();
    pause = ENDED.has(shown.job.state) ? PAUSE.ended : PAUSE.running;
  } catch (error) {
    write("live", `not up to date: ${error.message}. This page is alive while the command paddle-aws board runs.`);
  }
  setTimeout(follow, pause);
}

// The address remembers the switches.
const selects = ["smooth", "rank"].map((id) => document.getElementById(id));
for (const part of location.hash.slice(1).split(",")) {
  const input = [...document.querySelectorAll("fieldset input")].find((option) => option.value === part), [name, value] = part.split("=");
  if (input) input.checked = true;
  if (name === "rank") selects[1].append(element("option", {value, textContent: value}));
  for (const select of selects) if (select.id === name) select.value = value;
}
for (const input of [...document.querySelectorAll("fieldset input"), ...selects])
  input.addEventListener("change", () => { history.replaceState(null, "", `#${[chosen("across"), chosen("scale"), ...selects.filter((select) => Number(select.value) || select.value === "0" && select.id === "rank").map((select) => `${select.id}=${select.value}`)].join(",")}`); if (shown) charts(shown); });
document.getElementById("csv").addEventListener("click", () => { if (shown) csv(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { if (shown) charts(shown); });
follow();
