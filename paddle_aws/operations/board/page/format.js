// Numbers, times and elements of both pages.
export const sum = (numbers) => numbers.reduce((total, value) => total + value, 0);
export const mean = (numbers) => (numbers.length ? sum(numbers) / numbers.length : 0);
export const ascending = (numbers) => [...numbers].sort((a, b) => a - b);
export const median = (numbers) => ascending(numbers)[Math.floor((numbers.length - 1) / 2)];

export function duration(seconds) {
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(1)} min`;
  return seconds < 172800 ? `${(seconds / 3600).toFixed(1)} h` : `${(seconds / 86400).toFixed(1)} days`;
}
export const number = (value, digits = 4) => (Number.isFinite(value) ? value.toLocaleString("en", {maximumSignificantDigits: digits}) : "");
export const dollars = (usd) => (usd < 0.005 ? "under $0.01" : `$${usd.toLocaleString("en", {minimumFractionDigits: 2, maximumFractionDigits: 2})}`);
export const bytes = (size) => (size < 2 ** 30 ? `${(size / 2 ** 20).toFixed(0)} MiB` : `${(size / 2 ** 30).toFixed(1)} GiB`);
export const percent = (share) => (share > 0 && share < 0.005 ? "under 1 %" : `${Math.round(100 * share)} %`);
export const count = (total, noun) => `${total.toLocaleString("en")} ${noun}${total === 1 ? "" : "s"}`;
// The reader's own time. Plotly takes a time without a zone as it is.
export const local = (seconds) => { const time = new Date(seconds * 1000); return new Date(time - time.getTimezoneOffset() * 60000).toISOString().slice(0, -1); };
export const clock = (seconds) => local(seconds).slice(11, 19);
export const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;

// Texts are set as text alone: what a program wrote never becomes HTML. `commands` are shown as code.
export function element(name, properties = {}, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}
export function write(id, text) {
  const place = document.getElementById(id);
  if (place.textContent !== text) place.textContent = text;
}
// A sentence in which `words in backticks` are code; empty hides it.
export function sentence(id, text, bad = false) {
  const place = document.getElementById(id);
  place.hidden = !text;
  place.classList.toggle("bad", bad);
  place.replaceChildren(...text.split("`").map((part, index) => (index % 2 ? element("code", {textContent: part}) : part)));
}
