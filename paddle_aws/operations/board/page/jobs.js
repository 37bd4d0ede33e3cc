// The page of all jobs of a namespace.
import {clock, dollars, duration, element, number, sentence, write} from "./format.js";

const PAUSE = 5000, NONE = "–";

// A cell without a value says why to whoever hovers over it.
function cell(text, className, title = "") {
  return element("td", {textContent: text || NONE, className, title: text ? "" : title});
}

function row(job) {
  const name = element("td", {}, element("a", {href: `job/${encodeURIComponent(job.job)}/`, textContent: job.job}));
  const state = element("span", {className: "state", textContent: job.state});
  state.dataset.state = job.state;
  const unread = "its log has none: open the job, which reads its folder";
  const pods = job.pods === null ? "" : `${job.pods}${job.processes > 1 ? ` × ${job.processes} processes` : ""}`;
  return element("tr", {}, name, element("td", {}, state), cell(pods, "", "its training has not begun"), cell(number(job.loss), "number", unread), cell(job.goodput === null ? "" : `${job.goodput} %`, "number", unread),
    cell(job.seconds === null ? "" : duration(job.seconds), "number", "its training has not begun"), cell(job.usd === null ? "" : dollars(job.usd), "number", "no price was read, or it does not train"),
    element("td", {className: "words", textContent: [job.reason || (job.state === "running" ? job.progress : ""), job.slow && `slow: ${job.slow}`].filter(Boolean).join("; ")}));
}

async function follow() {
  try {
    const answer = await fetch("data");
    if (!answer.ok) throw new Error(await answer.text());
    const list = await answer.json();
    write("title", `Jobs in namespace ${list.namespace}`);
    document.title = `${list.namespace}: ${list.jobs.length} jobs - paddle-aws board`;
    document.getElementById("jobs").hidden = !list.jobs.length;
    document.querySelector("#jobs tbody").replaceChildren(...list.jobs.map(row));
    sentence("notice", list.jobs.length ? "" : `There is no job in namespace ${list.namespace}. \`paddle-aws submit\` starts the job of job.yaml, \`paddle-aws list --all-namespaces\` shows those of all namespaces, and \`paddle-aws board --namespace NAME\` opens another one.`);
    sentence("price", !list.jobs.length ? "" : list.priced ? "Cost so far is the time of a job's pods, a node each, at the price of the first node group in cluster.yaml." : "What jobs cost is unknown here: `paddle-aws lock prices` reads AWS's prices, beside cluster.yaml.");
    write("live", `live: renewed every ${PAUSE / 1000} s, last at ${clock(list.now)}`);
    document.body.dataset.shown = "yes";
  } catch (error) {
    write("live", `not up to date: ${error.message}. This page is alive while the command paddle-aws board runs.`);
  }
  setTimeout(follow, PAUSE);
}
follow();
