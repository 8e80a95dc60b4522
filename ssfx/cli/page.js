"use strict";
(async () => {
  const of = (id) => document.getElementById(`play-${id}`);
  const tables = JSON.parse(of("data").textContent);
  const WORDS = ["dense", "recorded", "published", "unknown", "worse"];
  const LIGHT = ["#3d3d3d", "#00785a", "#0064a8", "#a35a00", "#b3005e"];
  const DARK = ["#d0d0d0", "#2ec795", "#64b9f2", "#f0a23c", "#ff7eb6"];
  const night = matchMedia("(prefers-color-scheme: dark)");
  const colours = () => (night.matches ? DARK : LIGHT);

  // ---- prices: a table over rates, log-log in between; exactly linear in passes ------------------------------------
  function step(table, method, gbps, passes) {
    const { rates } = table;
    let i = rates.findIndex((rate) => rate >= gbps);
    i = Math.min(Math.max(i < 0 ? rates.length - 1 : i, 1), rates.length - 1);
    if (!method.first[i] || !method.first[i - 1]) return null;
    const w = Math.min(1, Math.max(0, Math.log(gbps / rates[i - 1]) / Math.log(rates[i] / rates[i - 1])));
    const [low, high] = [i - 1, i].map((k) => method.first[k].map((s, p) => s + (passes - 1) * method.further[k][p]));
    const total = (parts) => parts.reduce((a, b) => a + b);
    const whole = Math.exp((1 - w) * Math.log(total(low)) + w * Math.log(total(high)));
    const [compute, compression] = low.map((s, p) => (1 - w) * s + w * high[p]);
    return { whole, parts: [compute, compression, Math.max(0, whole - compute - compression)],
      word: method.words[w < 0.5 ? i - 1 : i] };
  }
  const alone = (table, passes) => table.alone[0] + (passes - 1) * table.alone[1];
  const work = (table, found, passes) => (table.ranks * alone(table, passes)) / found.whole;

  /** Where `ahead(gbps)` holds, in words: the last rate up to which it does, or from which on. */
  function edge(table, ahead, up) {
    const [first, last] = [table.rates[0], table.rates.at(-1)];
    const n = 400, at = (k) => first * (last / first) ** (k / n);
    const held = Array.from({ length: n + 1 }, (_, k) => ahead(at(k)));
    if (held.every(Boolean)) return "always";
    if (!held.some(Boolean)) return "never";
    const k = up ? n - [...held].reverse().findIndex((one) => !one) + 1 : held.lastIndexOf(true);
    if (k > n) return `not at ${number(last)}`;
    return `${number(at(k))} Gbit/s`;
  }
  const number = (value, digits = 2) =>
    (value >= 10 ** digits ? Math.round(value) : Number(value.toPrecision(digits))).toString();
  const time = (s) => (s >= 1 ? `${Number(s.toPrecision(3))} s` : `${Number((1e3 * s).toPrecision(3))} ms`);
  const escaped = (text) => text.replace(/[&<>]/g, (one) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[one]);

  // ---- what is asked -----------------------------------------------------------------------------------------------
  const keys = [...new Set(tables.flatMap((table) => Object.keys(table.choice)))];
  const form = of("form");
  const selects = keys.map((key) => {
    const label = document.createElement("label");
    const select = document.createElement("select");
    select.id = `play-${key}`;
    for (const value of new Set(tables.map((table) => table.choice[key]))) select.add(new Option(value, value));
    label.append(key, select);
    form.insertBefore(label, of("gbps").closest("label"));
    return select;
  });
  const rate = of("gbps"), passes = of("passes");
  const PASSES = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128];
  rate.min = 100 * Math.log10(Math.min(...tables.map((table) => table.rates[0])));
  rate.max = 100 * Math.log10(Math.max(...tables.map((table) => table.rates.at(-1))));
  passes.max = PASSES.length - 1;

  const current = () => tables.find((table) => keys.every((key, i) => table.choice[key] === selects[i].value));
  function asAsked() {
    const table = current();
    rate.value = 100 * Math.log10(table.gbps);
    const i = PASSES.findIndex((n) => n >= table.accumulate);
    passes.value = i < 0 ? PASSES.length - 1 : i;
  }
  function asked() {
    const table = current();
    const own = 100 * Math.log10(table.gbps);
    const gbps = Math.abs(rate.value - own) < 0.8 ? table.gbps : 10 ** (rate.value / 100);
    return { table, gbps, n: PASSES[passes.value] };
  }

  // ---- what is shown -----------------------------------------------------------------------------------------------
  function shown() {
    const { table, gbps, n } = asked();
    const found = table.methods
      .map((method) => ({ method, step: step(table, method, gbps, n) }))
      .filter((one) => one.step);
    const tuned = found.find((one) => one.method.kind === "tuned");
    const now = found.find((one) => one.method.kind === "now");
    const known = found.filter((one) => one.step.word <= 1 && one.method.kind !== "unchecked")
      .reduce((a, b) => (b.step.whole < a.step.whole * 0.999 ? b : a), tuned);
    const place = (one) => ["now", "tuned"].indexOf(one.method.kind) + 1 || 2 + one.step.word;
    const unchecked = (one) => one.method.kind === "unchecked";
    found.sort((a, b) => place(a) - place(b) || unchecked(a) - unchecked(b) || a.step.whole - b.step.whole);
    return { table, gbps, n, found, tuned, now, known };
  }

  function say({ table, gbps, n, found, tuned, now, known }) {
    const does = (one) => number(work(table, one.step, n));
    of("gbps-said").textContent = `${number(gbps)} Gbit/s`;
    rate.setAttribute("aria-valuetext", `${number(gbps)} Gbit/s`);
    of("passes-said").textContent = n;
    passes.setAttribute("aria-valuetext", `${n} passes`);
    of("title").textContent = table.title;
    const best = work(table, known.step, n);
    const one = `one ${table.device} alone: ${number((table.batch * n) / alone(table, n), 3)} samples/s`;
    const lost = best < 1
      ? ` NO: one alone is ${number(1 / best)} times as fast as all ${table.ranks} with the best known way.` : "";
    of("said").textContent =
      `${table.ranks} ${table.unit} do the work of ${does(now)} with ${now.method.label}, ${does(tuned)} with tuned ` +
      `dense, ${does(known)} with the best known way (${known.method.label}); ${one}.${lost}`;
    const rows = found.map(({ method, step: s }) => {
      const under = (g) => [method, tuned.method].map((m) => step(table, m, g, n)?.whole ?? Infinity);
      const dense = ["now", "tuned"].includes(method.kind) ? "" : edge(table, (g) => {
        const [mine, theirs] = under(g);
        return mine < theirs * 0.995;
      }, false);
      const single = edge(table, (g) => {
        const at = step(table, method, g, n);
        return at && work(table, at, n) >= 1;
      }, true);
      const cells = [time(s.whole), number((table.ranks * table.batch * n) / s.whole, 3), number(work(table, s, n)),
        dense, single];
      const word = `<b style="color:${colours()[s.word]}">${WORDS[s.word]}</b>`;
      return `<tr><td>${escaped(method.label)}<td>${word}<td>${cells.join("<td>")}`;
    });
    of("rows").innerHTML = rows.join("");
  }

  const look = () => {
    const ink = getComputedStyle(of("said")).color;
    return { paper_bgcolor: "transparent", plot_bgcolor: "transparent", font: { color: ink, size: 13 },
      grid: night.matches ? "#444" : "#ddd", ink };
  };
  const still = { displayModeBar: false, responsive: true };

  function bars({ table, n, found, known }) {
    const { grid, ink, ...base } = look();
    const most = Math.max(...found.map((one) => one.step.whole));
    const [unit, scale] = most >= 2 ? ["s", 1] : ["ms", 1e3];
    const y = found.map((_, i) => i);
    const tint = found.map((one) => colours()[one.step.word]);
    const trace = (part, name, marker) => ({ type: "bar", orientation: "h", y, name, width: 0.42, marker,
      x: found.map((one) => scale * one.step.parts[part]),
      hovertemplate: `${name} %{x:.4g} ${unit}<extra></extra>` });
    const narrow = of("bars").clientWidth < 600;
    const neutral = night.matches ? "#777" : "#b5b5b5";
    const hatched = { color: tint, pattern: { shape: "/", fgcolor: tint, fillmode: "replace" } };
    const traces = [trace(0, "compute", { color: neutral }), trace(1, "compression", hatched),
      trace(2, "exposed exchange", { color: tint })];
    const annotations = found.map((one, i) => ({
      x: 0, y: i, yshift: 17, xanchor: "left", showarrow: false, align: "left",
      text: `<b>${escaped(one.method.label)}</b> ${time(one.step.whole)}, ` +
        (narrow ? "" : `work of ${number(work(table, one.step, n))}, `) +
        `<span style="color:${tint[i]}"><b>${WORDS[one.step.word]}</b></span>${one === known ? " \u25c0 best known" : one.method.kind === "unchecked" ? ", time unchecked" : ""}`,
    }));
    Plotly.react(of("bars"), traces, { ...base, barmode: "stack", annotations, showlegend: false, bargap: 0.5,
      height: 46 * found.length + 60, margin: { l: 8, r: 12, t: 22, b: 38 },
      yaxis: { visible: false, range: [found.length - 0.6, -0.9], fixedrange: true },
      xaxis: { title: { text: `${unit} a step` }, range: [0, scale * most * 1.02], gridcolor: grid, zeroline: false,
        fixedrange: true } }, still);
  }

  function lines({ table, gbps, n, found }) {
    const { grid, ink, ...base } = look();
    const seen = new Set();
    const drawn = found.filter((one) => {
      const kind = ["now", "tuned"].includes(one.method.kind) ? one.method.kind : WORDS[one.step.word];
      return !seen.has(kind) && seen.add(kind);
    });
    const dash = { now: "dot", tuned: "solid" };
    const [first, last] = [table.rates[0], table.rates.at(-1)];
    const x = Array.from({ length: 121 }, (_, k) => first * (last / first) ** (k / 120));
    const traces = drawn.map(({ method, step: s }) => ({
      type: "scatter", mode: "lines", name: `${method.label} (${WORDS[s.word]})`, x,
      y: x.map((g) => { const at = step(table, method, g, n); return at ? work(table, at, n) : null; }),
      line: { color: colours()[s.word], width: 2.5, dash: dash[method.kind] ?? "solid" },
      hovertemplate: "%{x:.3g} Gbit/s: work of %{y:.3g}<extra>%{fullData.name}</extra>",
    }));
    const log = { type: "log", gridcolor: grid, fixedrange: true, dtick: 1 };
    Plotly.react(of("lines"), traces, { ...base, height: 450, margin: { l: 46, r: 12, t: 10, b: 40 },
      legend: { orientation: "h", y: -0.25, yanchor: "top" },
      xaxis: { ...log, title: { text: "Gbit/s of the slowest link" } },
      yaxis: { ...log, title: { text: `${table.unit}' worth of work`, standoff: 4 } },
      shapes: [
        { type: "line", xref: "x", yref: "paper", x0: gbps, x1: gbps, y0: 0, y1: 1, line: { color: ink, width: 1.5 } },
        { type: "line", xref: "paper", yref: "y", x0: 0, x1: 1, y0: 1, y1: 1, line: { color: ink, dash: "dash" } },
      ],
      annotations: [{ xref: "paper", x: 1, y: 0, yref: "y", xanchor: "right", yanchor: "bottom", showarrow: false,
        text: `one ${table.device} alone` }] }, still);
  }

  let waiting = false;
  function draw() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => {
      waiting = false;
      const all = shown();
      say(all);
      bars(all);
      lines(all);
    });
  }

  const packed = Uint8Array.from(atob(of("library").textContent.trim()), (one) => one.charCodeAt(0));
  const opened = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const library = document.createElement("script");
  library.textContent = await new Response(opened).text();
  document.head.append(library);
  asAsked();
  form.addEventListener("input", draw);
  form.addEventListener("submit", (event) => event.preventDefault());
  of("reset").addEventListener("click", () => { asAsked(); draw(); });
  night.addEventListener("change", draw);
  draw();
})();
