// The page of several jobs: a chart for each metric, with a curve for each job.
import {colour, draw, plain} from "./charts.js";
import {element, number, sentence, write} from "./format.js";

const PAUSE = 5000, COLOURS = 8;

function table(jobs, differing, metrics) {
  const head = ["job", "state", ...differing, ...metrics.map((metric) => `last ${metric}`)];
  const row = (job) => [job.job, job.state, ...job.settings, ...metrics.map((metric) => number(job.metrics[metric]?.at(-1)?.[1]))];
  document.querySelector("#jobs thead tr").replaceChildren(...head.map((text) => element("th", {scope: "col", textContent: text})));
  document.querySelector("#jobs tbody").replaceChildren(...jobs.map((job) => element("tr", {}, ...row(job).map((text) => element("td", {className: "words", textContent: text})))));
  document.getElementById("jobs").hidden = false;
}

function chart(metric, jobs, place) {
  const id = `metric-${place}`;
  if (!document.getElementById(id)) document.getElementById("charts").append(element("figure", {className: "card"}, element("header", {}, element("h2", {textContent: metric})), element("div", {id, className: "chart", role: "img"})));
  const traces = jobs.map((job, index) => ({job, index})).filter(({job}) => job.metrics[metric]).map(({job, index}) => ({
    x: job.metrics[metric].map(([step]) => step), y: job.metrics[metric].map(([, value]) => value), name: plain(job.job), mode: job.metrics[metric].length > 4 ? "lines" : "lines+markers",
    line: {width: 2, color: colour(`rank-${index % COLOURS + 1}`), dash: index < COLOURS ? "solid" : "dash"}, hovertemplate: `%{y:.5~g}<extra>${plain(job.job)}, step %{x}</extra>`}));
  draw(id, traces, `${metric} by step of ${jobs.map((job) => job.job).join(", ")}`, {showlegend: true, xaxis: {title: {text: "step"}}});
}

async function follow() {
  try {
    const answer = await fetch("data");
    if (!answer.ok) throw new Error(await answer.text());
    const {jobs, differing} = await answer.json();
    const metrics = [...new Set(jobs.flatMap((job) => Object.keys(job.metrics)))].sort();
    write("title", jobs.map((job) => job.job).join(" · "));
    document.title = `${jobs.length} jobs - paddle-aws board`;
    table(jobs, differing, metrics);
    metrics.forEach((metric, place) => chart(metric, jobs, place));
    sentence("notice", metrics.length ? "" : "None of these jobs has reported a metric: set `metrics.step` and `metrics.loss` in their job files.");
    write("live", `live: renewed every ${PAUSE / 1000} s`);
    document.body.dataset.shown = "yes";
  } catch (error) {
    write("live", `not up to date: ${error.message}. This page is alive while the command paddle-aws board runs.`);
  }
  setTimeout(follow, PAUSE);
}
follow();
