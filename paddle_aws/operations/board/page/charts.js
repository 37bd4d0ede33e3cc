// Draws with Plotly, in the page's colours.
import {ascending, duration, local, mean, zone} from "./format.js";

const FEW = 8, BINS = 300, LABELLED = 8;
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
// Plotly reads tags in a text; what a program wrote has none.
export const plain = (text) => String(text).replace(/[&<>]/g, (sign) => ({"&": "&amp;", "<": "&lt;", ">": "&gt;"})[sign]);
const folded = (text) => plain(text.replace(/(.{40,70}?)[ ]/g, "$1\n")).replaceAll("\n", "<br>");

// A chart keeps what a reader has zoomed into while new points arrive.
export function draw(id, traces, label, layout = {}) {
  const place = document.getElementById(id), text = colour("text"), quiet = colour("quiet");
  const axis = {gridcolor: colour("grid"), linecolor: colour("border"), tickfont: {color: quiet}, title: {font: {color: quiet, size: 12}, standoff: 8}, zeroline: false, automargin: true};
  place.setAttribute("aria-label", label);
  const {xaxis = {}, yaxis = {}, ...rest} = layout;
  Plotly.react(place, traces, {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: {family: "system-ui, sans-serif", color: text, size: 12},
    margin: {l: 50, r: 12, t: 28, b: 40}, hoverlabel: {bgcolor: colour("surface"), bordercolor: colour("border"), font: {color: text}, align: "left"},
    // Above the plot, never on it.
    legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: {color: quiet}, bgcolor: "rgba(0,0,0,0)"}, showlegend: false, uirevision: id,
    xaxis: {...axis, ...xaxis, title: {...axis.title, ...xaxis.title}}, yaxis: {...axis, ...yaxis, title: {...axis.title, ...yaxis.title}}, ...rest,
  }, {displayModeBar: false, responsive: true});
}

const why = (attempt) => folded(attempt.runs ? "running" : attempt.cause);
const marks = (points) => ({x: points.map((point) => point.x), y: points.map(() => 1), yaxis: "y2", mode: "markers", cliponaxis: false, showlegend: false, hoverinfo: "text",
  marker: {symbol: "triangle-down", size: 10, color: colour("boundary")}, text: points.map((point) => point.text)});
const above = {overlaying: "y", visible: false, range: [0, 1], fixedrange: true};
const boundary = (x) => ({type: "line", xref: "x", yref: "paper", x0: x, x1: x, y0: 0, y1: 1, line: {color: colour("boundary"), width: 1}, layer: "below"});
const label = (attempt, x, all) => (all.length > LABELLED ? [] : [{x, y: 0.98, yref: "paper", yanchor: "top", xanchor: "left", text: `attempt ${attempt.number}`, showarrow: false, bgcolor: colour("background"), borderpad: 1, font: {color: colour("quiet"), size: 11}}]);

// Attempts over time: all in one colour with a thin line at each end, and what ended it on hover.
export function overTime(attempts) {
  return {
    traces: [marks(attempts.map((attempt) => ({x: local(attempt.ended), text: `attempt ${attempt.number}, ${duration(attempt.ended - attempt.started)}: ${why(attempt)}`})))],
    layout: {
      shapes: attempts.flatMap((attempt) => [{type: "rect", xref: "x", yref: "paper", x0: local(attempt.started), x1: local(attempt.ended), y0: 0, y1: 1, fillcolor: colour("band"), line: {width: 0}, layer: "below"}, boundary(local(attempt.started)), boundary(local(attempt.ended))]),
      annotations: attempts.flatMap((attempt) => label(attempt, local(attempt.started), attempts)),
      xaxis: {title: {text: `time (${zone})`}, type: "date"}, yaxis2: above,
    },
  };
}

// Attempts over steps, which may overlap: a line where a later one took up the training, and what ended the earlier one on hover.
export function overSteps(attempts) {
  const first = (attempt) => Math.min(...Object.values(attempt.points).flatMap((points) => points.slice(0, 1).map((point) => point.step)));
  const later = attempts.filter((attempt, place) => place > 0 && Number.isFinite(first(attempt)));
  const before = (attempt) => attempts[attempts.indexOf(attempt) - 1];
  return {
    traces: [marks(later.map((attempt) => ({x: first(attempt), text: `attempt ${attempt.number} trains from step ${first(attempt)}<br>attempt ${before(attempt).number} ended: ${why(before(attempt))}`})))],
    layout: {
      shapes: later.map((attempt) => boundary(first(attempt))), annotations: later.flatMap((attempt) => label(attempt, first(attempt), later)),
      xaxis: {title: {text: "step"}}, yaxis2: above,
    },
  };
}

const BY = {step: (point) => point.step, time: (point) => local(point.time)};
const value = (point, metric) => point.metrics[metric];

// Each value's mean with as many before and after it, which does not lag behind; a gap stays one.
function smoothed(values, neighbours) {
  return values.map((value, place) => {
    if (value === null || !neighbours) return value;
    let from = place, until = place;
    while (from > Math.max(0, place - neighbours) && values[from - 1] !== null) from--;
    while (until < Math.min(values.length - 1, place + neighbours) && values[until + 1] !== null) until++;
    const reach = Math.min(place - from, until - place);
    return mean(values.slice(place - reach, place + reach + 1));
  });
}

// A metric's curves. Of few ranks a line each, of many the median and the range, or one `only`; dotted is what was lost and done again.
export function curvesOf(attempts, across, metric, {only = "", smooth = 0} = {}) {
  const ranks = [...new Set(attempts.flatMap((attempt) => Object.keys(attempt.points)))].filter((rank) => attempts.some((attempt) => attempt.points[rank]?.some((point) => typeof value(point, metric) === "number")));
  const lost = attempts.some((attempt) => Object.values(attempt.points).flat().some((point) => point.lost));
  const chosen = ranks.includes(only) ? [only] : ranks, few = ranks.length <= FEW;
  const traces = few ? [] : range(attempts, across, metric, ranks, smooth);
  if (few || chosen.length === 1) traces.push(...chosen.flatMap((rank) => lines(attempts, across, metric, rank, colour(few ? `rank-${ranks.indexOf(rank) + 1}` : "rank-2"), smooth)));
  if (lost) traces.push({x: [null], y: [null], mode: "lines", name: "dotted: lost, and trained again", line: {color: colour("quiet"), dash: "dot", width: 1.5}});
  return {traces, ranks};
}

function lines(attempts, across, metric, rank, stroke, smooth) {
  const kept = [], lost = [];
  for (const attempt of attempts) {
    const points = (attempt.points[rank] || []).filter((point) => typeof value(point, metric) === "number"), from = points.findIndex((point) => point.lost);
    const until = from < 0 ? points.length : from;
    kept.push(...points.slice(0, until), null);
    // A dotted line begins where the solid one ends.
    if (from >= 0) lost.push(...points.slice(Math.max(0, from - 1)), null);
  }
  const trace = (points, dash) => ({x: points.map((point) => point && BY[across](point)), y: smoothed(points.map((point) => point && value(point, metric)), smooth), mode: kept.length > 4 ? "lines" : "lines+markers",
    name: `rank ${plain(rank)}`, showlegend: dash === "solid", legendgroup: rank, line: {width: dash === "solid" ? 2 : 1.5, color: stroke, dash}, hovertemplate: `%{y:.5~g}<extra>rank ${plain(rank)}, ${across} %{x}</extra>`});
  return [trace(kept, "solid"), ...(lost.length ? [trace(lost, "dot")] : [])];
}

function range(attempts, across, metric, ranks, smooth) {
  const all = attempts.flatMap((attempt) => Object.values(attempt.points).flat()).filter((point) => typeof value(point, metric) === "number"), traces = [];
  const sort = across === "time" ? (point) => point.time : BY.step;
  for (const lost of [true, false]) {
    const points = all.filter((point) => Boolean(point.lost) === lost);
    if (!points.length) continue;
    const low = points.reduce((least, point) => Math.min(least, sort(point)), Infinity), high = points.reduce((most, point) => Math.max(most, sort(point)), -Infinity);
    const bins = Array.from({length: BINS}, () => []);
    for (const point of points) bins[Math.min(BINS - 1, Math.floor(((sort(point) - low) / (high - low || 1)) * BINS))].push(point);
    const full = bins.filter((bin) => bin.length), x = full.map((bin) => BY[across](bin[0]));
    const pick = (of) => full.map((bin) => of(ascending(bin.map((point) => value(point, metric)))));
    const middle = {x, y: smoothed(pick((values) => values[Math.floor((values.length - 1) / 2)]), smooth), mode: "lines", line: {width: 2, color: colour("rank-1"), dash: lost ? "dot" : "solid"}};
    if (!lost) {
      traces.push({x, y: pick((values) => values[0]), mode: "lines", line: {width: 0}, showlegend: false, hoverinfo: "skip"});
      traces.push({x, y: pick((values) => values.at(-1)), mode: "lines", line: {width: 0}, fill: "tonexty", fillcolor: `${colour("rank-1")}33`, name: `least to greatest of ${ranks.length} ranks`, hoverinfo: "skip"});
    }
    traces.push({...middle, name: `median of ${ranks.length} ranks`, showlegend: !lost});
  }
  return traces;
}
