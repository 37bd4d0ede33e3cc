// What a job's attempts were worth, reckoned from the raw files: attempts.json and each rank's steps-*.jsonl.
import {mean, median, sum} from "./format.js";

export const PARTS = {
  training: "training that was kept", starting: "from all pods being there to the first step", waiting: "waiting for pods", data: "reading data",
  saving: "saving checkpoints and passes", slowest: "waiting for the slowest rank", lost: "trained, not saved before an attempt ended, and done again",
};
const SLOW = 1.5, MINUTE = 60;

// A line that was cut short is left out.
function parse(lines) {
  const whole = (point) => point && point.metrics && [point.attempt, point.step, point.time].every(Number.isFinite);
  return lines.flatMap((line) => { try { const point = JSON.parse(line); return whole(point) ? [point] : []; } catch { return []; } });
}

// Points by rank, oldest first.
export function byRank(lines) {
  const ranks = {};
  for (const [file, raw] of Object.entries(lines)) {
    const [, pod, rank] = file.match(/node_(.*)\/steps-(\d+)/), points = parse(raw), seen = new Set((ranks[rank] || []).map((point) => point.attempt));
    // Where each pod counts its own ranks from 0, two have the same at once.
    const name = points.some((point) => seen.has(point.attempt)) ? `${rank} of pod ${pod}` : rank;
    (ranks[name] ??= []).push(...points);
  }
  // An earlier attempt may have had a rank in another pod, and so in another file.
  for (const points of Object.values(ranks)) points.sort((a, b) => a.attempt - b.attempt);
  return ranks;
}

// Marks which of a rank's points an attempt lost: those beyond what was saved. Where steps are counted anew in each attempt, by their time.
function markLost(attempt, points, next) {
  const last = points.at(-1);
  if (!last || attempt.runs || attempt.cause === "done") return;
  const kept = Math.max(0, last.kept ?? (next ? next.step - 1 : last.step)), until = attempt.ended - (attempt.seconds.lost || 0);
  for (const point of points) point.lost = last.counted || next?.counted ? point.time > until : point.step > kept;
}

// Adds to each attempt its points by rank, whether it runs, its end, and its seconds by PARTS: as recorded; of a running one as its ranks last
// reported.
export function account(attempts, ranks, now, running) {
  attempts.forEach((attempt, place) => {
    attempt.points = Object.fromEntries(Object.entries(ranks).map(([rank, points]) => [rank, points.filter((point) => point.attempt === attempt.number)]));
    const reported = Object.values(attempt.points).filter((points) => points.length), newest = reported.map((points) => points.at(-1)).filter((point) => point.spent);
    const before = attempts[place - 1], open = attempt.cause === null;
    attempt.runs = open && place === attempts.length - 1 && running(attempt);
    if (!attempt.ended) attempt.ended = Math.max(attempt.started, ...reported.map((points) => points.at(-1).time), attempt.runs ? now : 0);
    if (attempt.runs) {
      const part = (name) => mean(newest.map((point) => point.spent[name] || 0)), whole = attempt.ended - attempt.started;
      // Who reports no times is taken to train from its first metrics on.
      const first = Math.min(...reported.map((points) => points[0].time)), starting = first > attempt.started && first < attempt.ended ? first - attempt.started : 0;
      const uncounted = attempt.counted === false || (reported.length && !newest.length);
      attempt.seconds = uncounted ? {starting, training: whole - starting} : {data: part("data"), training: part("training"), saving: part("saving"), slowest: part("slowest")};
      attempt.seconds.starting ??= Math.max(0, whole - sum(Object.values(attempt.seconds)));
      attempt.seconds.waiting = before && before.run === attempt.run ? Math.max(0, attempt.started - before.ended) : 0;
    } else if (open) Object.assign(attempt, {seconds: {}, cause: "nobody recorded its end"});
  });
  for (const attempt of attempts)
    for (const [rank, points] of Object.entries(attempt.points)) markLost(attempt, points, (ranks[rank] || []).find((point) => point.attempt > attempt.number));
  const parts = Object.fromEntries(Object.keys(PARTS).map((part) => [part, sum(attempts.map((attempt) => attempt.seconds?.[part] || 0))]));
  const paid = sum(Object.values(parts));
  return {parts, paid, share: paid ? parts.training / paid : 0};
}

// By rank: the seconds of its own that a step took it in the last minute of an attempt, and how many times the median that is.
export function paces(attempt) {
  const pace = {};
  for (const [rank, points] of Object.entries(attempt ? attempt.points : {})) {
    const last = points.findLast((point) => point.spent), minute = last && points.findLast((point) => point.spent && point.time <= last.time - MINUTE);
    const first = minute || points.find((point) => point.spent);
    if (last && first && last.step > first.step)
      pace[rank] = {seconds: (last.spent.data + last.spent.training - first.spent.data - first.spent.training) / (last.step - first.step), whole: Boolean(minute)};
  }
  const usual = median(Object.values(pace).map((rank) => rank.seconds));
  for (const rank of Object.values(pace)) { rank.times = usual ? rank.seconds / usual : 1; rank.slow = rank.whole && rank.times > SLOW; }
  return pace;
}

// Records a second of all ranks together over time; steps where nobody counts records.
export function speed(attempts, shards) {
  const reporting = (attempt) => Object.values(attempt.points).filter((points) => points.length > 1).length;
  const rates = (rate) => attempts.flatMap((attempt) => Object.entries(attempt.points).flatMap(([rank, points]) => points.slice(1).map((point, place) => (
    {time: point.time, attempt: attempt.number, ranks: reporting(attempt), value: rate(points[place], point, shards[rank] || 0)})))).filter((step) => step.value !== null).sort((a, b) => a.time - b.time);
  const per = (amount, seconds) => (amount >= 0 && seconds > 0 ? amount / seconds : null);
  // A point counts the records of its own pass.
  const all = (point, shard) => point.pass * shard + point.records;
  const records = rates((a, b, shard) => per(all(b, shard) - all(a, shard), b.time - a.time));
  // A step is one of all ranks.
  const values = records.length ? records : rates((a, b) => per(b.step - a.step, b.time - a.time)).map((step) => ({...step, ranks: 1}));
  const low = values[0]?.time, width = values.at(-1)?.time - low || 1, bins = new Map();
  for (const step of values) {
    const bin = Math.floor((100 * (step.time - low)) / width), name = `${bin} of ${step.attempt}`;
    if (!bins.has(name)) bins.set(name, {attempt: step.attempt, time: low + ((bin + 0.5) * width) / 100, found: []});
    bins.get(name).found.push(step.value * step.ranks);
  }
  return {unit: records.length ? "records" : "steps", rates: [...bins.values()].map(({attempt, time, found}) => ({attempt, time, value: mean(found)}))};
}
