// Keyboard, confirmation, charts and errors. Everything else is HTML that htmx fetches.
"use strict";
(() => {
  const one = (selector) => document.querySelector(selector);

  // --- keyboard ---------------------------------------------------------------------------------
  function step(by) {
    const rows = [...document.querySelectorAll("[data-row]")];
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement);
    const to = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1);
    rows[to].focus();
    rows[to].scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || one("dialog[open]")) return;
    const field = event.target.closest("input, select, textarea");
    if (field) {
      if (event.key === "Escape") field.blur();
      return;
    }
    const onRow = event.target.matches("[data-row], body, main");
    if (event.key === "/") { one("#search")?.focus(); one("#search")?.select?.(); }
    else if (event.key === "?") one("#help").showModal();
    else if (event.key === "j" || (event.key === "ArrowDown" && onRow)) step(1);
    else if (event.key === "k" || (event.key === "ArrowUp" && onRow)) step(-1);
    else return;
    event.preventDefault();
  });

  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-help]")) one("#help").showModal();
  });

  // --- confirmation -----------------------------------------------------------------------------
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.dataset.confirm) return;
    event.preventDefault();
    const dialog = one("#confirm");
    one("#confirm-text").textContent = form.dataset.confirm;
    dialog.returnValue = "no";
    dialog.addEventListener("close", () => {
      if (dialog.returnValue !== "yes") return;
      if (!form.isConnected) { form.hidden = true; document.body.append(form); } // newer news took its place
      form.submit();
    }, { once: true });
    dialog.showModal();
  });

  document.addEventListener("change", (event) => {
    if (!event.target.matches("[data-all]")) return;
    for (const box of document.querySelectorAll("input[name=record]")) box.checked = event.target.checked;
  });

  // --- errors -----------------------------------------------------------------------------------
  function problem(text) {
    const place = one("#problem");
    place.hidden = !text;
    place.textContent = text;
  }
  document.addEventListener("htmx:responseError", (event) => problem(event.detail.xhr.responseText.slice(0, 1000)));
  document.addEventListener("htmx:sendError", () => problem("The console does not answer."));
  document.addEventListener("htmx:afterOnLoad", (event) => { if (event.detail.xhr.status < 400) problem(""); });
  const SILENT_MS = 20000;
  let heard = Date.now(), open = false;
  const live = (text) => { if (one("#live").textContent !== text) one("#live").textContent = text; };
  // Each tick says whether the figures are of now; a page that hears no tick says so by itself.
  function tell() {
    const silent = one("[sse-connect]") && Date.now() - heard > SILENT_MS;
    document.body.classList.toggle("old", Boolean(silent));
    if (silent) live(`not live: the console has said nothing since ${new Date(heard).toLocaleTimeString("en-GB")}`);
    else if (open) live(one("#state.old") ? "not live: no news" : "live");
  }
  setInterval(tell, 1000);
  document.addEventListener("htmx:sseOpen", () => { open = true; heard = Date.now(); tell(); });
  document.addEventListener("htmx:sseMessage", () => { heard = Date.now(); });
  document.addEventListener("htmx:sseError", () => { open = false; live("not live: the connection was lost"); });

  // --- charts -----------------------------------------------------------------------------------
  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const MOST = 300;

  function draw(place) {
    const points = JSON.parse(place.dataset.points);
    const data = [0, 1, 2, 3, 4].map((column) => points.map((point) => point[column]));
    const axis = (extra) => ({
      stroke: color("--faint"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false },
      font: "11px system-ui, sans-serif", ...extra,
    });
    const line = (label, name, scale, digits) => ({
      label, scale, stroke: color(name), width: 1.6, points: { show: false },
      fill: scale === "ready" ? color(name) + "22" : undefined,
      value: (_, value) => (value == null ? "–" : value.toLocaleString("en", { maximumFractionDigits: digits })),
    });
    const clock = (at) => new Date(at * 1000).toLocaleTimeString("en-GB");
    const short = (_, values) => values.map((value) => Intl.NumberFormat("en", { notation: "compact" }).format(value));
    const least = (low, high) => [0, Math.max(high ?? 0, 1) * 1.05];
    place.replaceChildren();
    const chart = new uPlot({
      width: place.clientWidth, height: 166, cursor: { y: false },
      scales: { ready: { range: (_, low, high) => least(low, high) }, rate: { range: (_, low, high) => least(low, high) } },
      axes: [axis({ size: 26, space: 90, values: (_, times) => times.map(clock) }), axis({ scale: "ready", size: 48, values: short }), axis({ scale: "rate", side: 1, size: 48, values: short, grid: { show: false } })],
      series: [{ value: (_, at) => (at == null ? "–" : clock(at)) },
        line("Ready", "--ready", "ready", 0), line("Added/s", "--added", "rate", 1),
        line("Acked/s", "--acked", "rate", 1), line("Evicted/s", "--evicted", "rate", 1)],
    }, data, place);
    place.chart = { plot: chart, data, points };
  }

  function add(place, point) {
    const { plot, data, points } = place.chart;
    if (points.length && point[0] <= points[points.length - 1][0]) return;
    points.push(point);
    if (points.length > MOST) points.shift();
    data.forEach((column, number) => { column.push(point[number]); if (column.length > MOST) column.shift(); });
    plot.setData(data);
  }

  document.addEventListener("htmx:sseMessage", (event) => {
    const point = JSON.parse(event.detail.data);
    const place = one(".chart");
    if (point && place?.chart) add(place, point);
  });
  document.addEventListener("DOMContentLoaded", () => {
    const places = document.querySelectorAll(".chart");
    const redraw = () => places.forEach((place) => { if (place.chart) place.dataset.points = JSON.stringify(place.chart.points); draw(place); });
    redraw();
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    let width = innerWidth;
    addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; redraw(); } });
  });
})();
