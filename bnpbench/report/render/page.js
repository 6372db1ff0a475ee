"use strict";
(() => {
  const methods = JSON.parse(document.getElementById("methods").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const roomy = matchMedia("(hover: hover)").matches;
  let printing = false;
  const FONT = "system-ui, sans-serif";

  /* Plotly reads a little HTML and TeX in its texts: what comes from files has none. */
  const text = (words) => String(words).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;").replace(/\$/g, "&#36;");
  const number = (value) => (value === null ? "–" : Number(value.toPrecision(4)).toLocaleString("en", { maximumSignificantDigits: 4 }));
  const look = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const pen = document.createElement("canvas").getContext("2d");
  const faded = (colour) => colour + "2b";

  /* As many letters as so many pixels have room for. */
  function clipped(words, width, size = 13) {
    pen.font = `${size}px ${FONT}`;
    if (pen.measureText(words).width <= width) return words;
    let [fits, last] = [0, words.length];
    while (last - fits > 1) {
      const middle = (fits + last) >> 1;
      if (pen.measureText(words.slice(0, middle) + "…").width <= width) fits = middle; else last = middle;
    }
    return words.slice(0, fits) + "…";
  }

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  async function unpacked(name) {
    const bytes = Uint8Array.from(atob(document.getElementById("script-" + name).textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return new Response(stream).text();
  }

  /* Tables: sorted by a click on a heading, filtered by a word. */
  async function enhanceTables() {
    const address = URL.createObjectURL(new Blob([await unpacked("tables")], { type: "text/javascript" }));
    const { default: DataTable } = await import(address);
    URL.revokeObjectURL(address);
    for (const table of document.querySelectorAll("table.sortable")) {
      const rows = table.tBodies[0].rows.length;
      const long = rows > (table.classList.contains("gains") ? 20 : 5);
      const caption = table.caption.textContent;
      const scroll = table.closest(".scroll");
      if (rows > 1) new DataTable(table, {
        paging: false, order: [], info: long, searching: long, autoWidth: false,
        layout: { topStart: long ? "search" : null, topEnd: null, bottomStart: long ? "info" : null, bottomEnd: null },
        language: { search: "Filter: ", info: "_TOTAL_ rows", infoEmpty: "no rows", infoFiltered: "of _MAX_", zeroRecords: "no row holds these words" },
      });
      const input = table.closest(".dt-container")?.querySelector("input");
      if (input) input.setAttribute("aria-label", "Filter the table: " + caption);
      showMore(scroll);
    }
  }

  /* A line above a table that is wider than its place. */
  function showMore(scroll) {
    const cue = element("p", { class: "cue", "aria-hidden": "true", hidden: "" }, "More to the right →");
    scroll.before(cue);
    const look = () => { cue.hidden = scroll.scrollWidth <= scroll.clientWidth + 1; };
    new ResizeObserver(look).observe(scroll);
    scroll.addEventListener("scroll", () => { cue.textContent = scroll.scrollLeft < 4 ? "More to the right →" : scroll.scrollLeft + scroll.clientWidth > scroll.scrollWidth - 4 ? "← More to the left" : "← More on both sides →"; }, { passive: true });
  }

  /* The menu shows the sections of the part that is read; a link into what is folded opens it. */
  function followReading() {
    const items = [...document.querySelectorAll(".menu > li")];
    const parts = [...document.querySelectorAll(".part")];
    const mark = () => {
      const read = parts.findLastIndex((part) => part.getBoundingClientRect().top < innerHeight / 3);
      items.forEach((item, i) => item.classList.toggle("here", i === Math.max(read, 0) && parts.length > 0));
    };
    addEventListener("scroll", mark, { passive: true });
    mark();
  }

  /* Figures. */
  const wholeStep = (last) => { const rough = last / 7; const unit = 10 ** Math.floor(Math.log10(Math.max(rough, 1))); return Math.max(1, [1, 2, 5, 10].find((step) => step * unit >= rough) * unit); };

  /* Ticks that are round numbers, few enough to be read, at 1, 2 and 5 of each decade or less. */
  function logTicks(values) {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const decades = Math.log10(high / low);
    const steps = decades > 2.5 ? [1] : decades > 0.7 ? [1, 2, 5] : [1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9];
    const every = Math.ceil(decades / 6) || 1;
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high) + 1e-9; power++) {
      if (decades > 2.5 && power % every) continue;
      found.push(...steps.map((step) => Number((step * 10 ** power).toPrecision(3))));
    }
    return found.filter((tick) => tick >= low * 0.9 && tick <= high * 1.1);
  }
  function tickText(tick) {
    if (tick >= 1e-3 && tick < 1e4) return String(tick);
    const [factor, power] = tick.toExponential().split("e");
    return (factor === "1" ? "" : factor + "·") + "10<sup>" + Number(power) + "</sup>";
  }

  function axis(given, colours, values) {
    const made = { title: { text: text(given.label), standoff: 6 }, type: given.log ? "log" : "linear", gridcolor: colours.rule,
      linecolor: colours.faint, zeroline: false, automargin: true, ticks: "outside", tickcolor: colours.faint, nticks: 6, exponentformat: "power" };
    if (given.at.length) Object.assign(made, { tickmode: "array", tickvals: given.at, ticktext: given.at.map(String) });
    else if (given.log && values.length) {
      const ticks = logTicks(values);
      Object.assign(made, { tickmode: "array", tickvals: ticks, ticktext: ticks.map(tickText) });
    } else if (given.whole) Object.assign(made, { tickmode: "linear", tick0: 0, dtick: wholeStep(Math.max(...values)) });
    return made;
  }

  function layout(colours, height, width) {
    return { height, width, autosize: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: colours.ink, size: 12, family: FONT }, margin: { l: 8, r: 8, t: 32, b: 8 },
      showlegend: false, hovermode: "closest", dragmode: roomy ? "zoom" : false,
      hoverlabel: { bgcolor: colours.shade, bordercolor: colours.faint, font: { color: colours.ink } } };
  }

  function traces(panel, hidden) {
    const found = [];
    for (const curve of panel.curves) {
      if (hidden.has(curve.method)) continue;
      const method = methods[curve.method];
      const colour = dark.matches && !printing ? method.dark : method.light;
      const common = { x: curve.x, type: "scatter" };
      if (curve.low && !curve.bars) {
        const edge = { ...common, mode: "lines", line: { width: 0 }, hoverinfo: "skip" };
        found.push({ ...edge, y: curve.low }, { ...edge, y: curve.high, fill: "tonexty", fillcolor: faded(colour) });
      }
      const few = curve.x.length <= 25;
      found.push({ ...common, y: curve.y, mode: few ? "lines+markers" : "lines", name: text(method.label),
        line: { color: colour, width: 2, dash: curve.dashed ? "dash" : "solid" }, marker: { color: colour, size: 7, symbol: method.symbol },
        ...(curve.low && curve.bars ? { error_y: { type: "data", symmetric: false, thickness: 1.2, width: 3, color: colour,
          array: curve.high.map((high, i) => high - curve.y[i]), arrayminus: curve.low.map((low, i) => curve.y[i] - low) } } : {}),
        text: curve.x.map((x, i) => `<b>${text(method.label)}</b><br>${text(panel.x.label)} ${number(x)}<br>${text(curve.quantity)} ${number(curve.y[i])}`
          + (curve.low ? `<br>from ${number(curve.low[i])} to ${number(curve.high[i])}` : "")),
        hovertemplate: "%{text}<extra></extra>" });
    }
    return found;
  }

  const heights = (panels) => panels.flatMap((panel) => panel.curves.flatMap((c) => [...c.y, ...(c.low ? [...c.low, ...c.high] : [])]));

  /* Room for all values, on a logarithmic axis in powers of ten. */
  function range(values, log) {
    const all = log ? values.map(Math.log10) : values;
    const [low, high] = [Math.min(...all), Math.max(...all)];
    const pad = 0.05 * (high - low) || 0.05 * Math.abs(high) || 0.1;
    return [low - pad, high + pad];
  }

  function drawPanel(place, panel, hidden, colours, sisters) {
    const made = layout(colours, 280, printing ? 336 : place.clientWidth);
    if (panel.title) made.title = { text: text(clipped(panel.title, made.width - 20)), font: { size: 13 }, x: 0.5, y: 0.98, yanchor: "top" };
    made.xaxis = axis(panel.x, colours, panel.curves.flatMap((curve) => curve.x));
    const left = heights(sisters);
    made.yaxis = { ...axis(panel.y, colours, left), range: range(left, panel.y.log) };
    const dashes = { predicted: "dot", counted: "dashdot" };
    made.shapes = panel.marks.map((mark) => ({ type: "line", xref: "x", yref: "paper", x0: mark.x, x1: mark.x, y0: 0, y1: 1,
      line: { color: colours.faint, width: 1.5, dash: dashes[mark.text] || "dash" } }));
    return Plotly.react(place, traces(panel, hidden), made, { displayModeBar: false });
  }

  /* Costs along, gains upwards; the baseline where the two lines meet. */
  function drawCrosses(place, panel, hidden, colours) {
    const made = layout(colours, 290, printing ? 460 : place.clientWidth);
    const margin = made.margin = { l: 72, r: 10, t: panel.title ? 28 : 8, b: 42 };
    const upright = broken(panel.y.label, made.height - margin.t - margin.b);
    margin.l += 16 * (upright.length - 1);
    const [wide, high] = [made.width - margin.l - margin.r, made.height - margin.t - margin.b];
    if (panel.title) made.title = { text: text(clipped(panel.title, made.width - 20)), font: { size: 13 }, x: 0.5, y: 0.98, yanchor: "top" };
    const [across, up] = [panel.x, panel.y].map((one) => (one.log ? Math.log10 : (value) => value));
    const [left, right] = panel.x.limits.map(across);
    const [bottom, top] = panel.y.limits.map(up);
    made.xaxis = { ...axis(panel.x, colours, panel.x.limits), range: [left, right], automargin: false, layer: "below traces" };
    made.yaxis = { ...axis(panel.y, colours, panel.y.limits), range: [bottom, top], automargin: false };
    made.xaxis.title = { text: text(clipped(panel.x.label, wide, 12)), standoff: 4, font: { size: 12 } };
    made.yaxis.title = { text: upright.map((line) => text(clipped(line, high, 12))).join("<br>"), standoff: 4, font: { size: 12 } };
    const rule = { type: "line", layer: "below", line: { color: colours.faint, width: 1 } };
    const based = panel.base !== null;
    made.shapes = based ? [{ ...rule, xref: "x", yref: "paper", x0: 1, x1: 1, y0: 0, y1: 1 }, { ...rule, xref: "paper", yref: "y", x0: 0, x1: 1, y0: 0, y1: 0 }] : [];
    const [along, upwards] = crossWords(panel);
    const shown = panel.crosses.filter((cross) => !hidden.has(cross.method));
    const ink = (index) => (dark.matches && !printing ? methods[index].dark : methods[index].light);
    const arm = (cross, key, own) => (cross[own] ? cross[own].map((end) => Math.abs(end - cross[key])) : [0, 0]);
    const told = (cross, own) => (cross[own] ? `from ${number(cross[own][0])} to ${number(cross[own][1])}` : "no interval");
    const data = [...new Set(shown.map((cross) => cross.method))].map((index) => {
      const own = shown.filter((cross) => cross.method === index);
      const bars = (key, ends) => ({ type: "data", symmetric: false, thickness: 1.5, width: 0, color: ink(index),
        array: own.map((cross) => arm(cross, key, ends)[1]), arrayminus: own.map((cross) => arm(cross, key, ends)[0]) });
      return { type: "scatter", mode: "markers", x: own.map((cross) => cross.x), y: own.map((cross) => cross.y),
        error_x: bars("x", "xs"), error_y: bars("y", "ys"),
        marker: { color: ink(index), size: 10, line: { width: own.map((cross) => (cross.xs && cross.ys ? 0 : 2)), color: ink(index) }, symbol: own.map((cross) => methods[index].symbol + (cross.xs && cross.ys ? "" : "-open")) },
        text: own.map((cross) => `<b>${text(methods[index].label)}</b> ${text(cross.label)}<br>${text(along)} ${number(cross.x)}, ${told(cross, "xs")}<br>${text(upwards)} ${number(cross.y)}, ${told(cross, "ys")}`),
        hovertemplate: "%{text}<extra></extra>" };
    });
    if (panel.front) data.unshift({ type: "scatter", mode: "lines", x: panel.front.map(([x]) => x), y: panel.front.map(([, y]) => y),
      line: { color: colours.faint, width: 1, dash: "dash" }, hoverinfo: "skip" });
    if (based) {
      const base = methods[panel.base];
      data.push({ type: "scatter", mode: "markers", x: [1], y: [0], marker: { color: ink(panel.base), size: 10, symbol: base.symbol },
        text: [`<b>${text(base.label)}</b>, the baseline`], hovertemplate: "%{text}<extra></extra>" });
    }
    const at = (x, y) => [((across(x) - left) / (right - left)) * wide, ((up(y) - bottom) / (top - bottom)) * high];
    made.annotations = beside(shown, at, wide, high, based).map(({ cross, dx, dy, anchor }) => ({ x: across(cross.x), y: up(cross.y), xref: "x", yref: "y", showarrow: false,
      text: text(cross.label), font: { size: 11, color: ink(cross.method) }, xanchor: anchor, yanchor: "middle", xshift: dx, yshift: dy, borderpad: 0 }));
    return Plotly.react(place, data, made, { displayModeBar: false });
  }

  /* What the two numbers of a point are. */
  const crossWords = (panel) => (panel.base !== null ? ["cost", "gain"] : [panel.x.label, panel.y.label]);

  /* In two lines where one has no room. */
  function broken(words, room) {
    pen.font = `12px ${FONT}`;
    if (pen.measureText(words).width <= room) return [words];
    const parts = words.split(" ");
    let first = parts.shift();
    while (parts.length && first.length + parts[0].length < words.length / 2) first += " " + parts.shift();
    return [first, parts.join(" ")];
  }

  /* For each label the quarter beside its point that touches no other label and no point, and the fewest arms. */
  function beside(crosses, at, wide, high, based) {
    const touch = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
    const spots = crosses.map((cross) => at(cross.x, cross.y));
    const taken = [...spots, ...(based ? [at(1, 0)] : [])].map(([x, y]) => [x - 6, y - 6, x + 6, y + 6]);
    const arms = crosses.flatMap((cross, i) => [
      ...(cross.xs ? [[at(cross.xs[0], cross.y)[0], spots[i][1] - 1, at(cross.xs[1], cross.y)[0], spots[i][1] + 1]] : []),
      ...(cross.ys ? [[spots[i][0] - 1, at(cross.x, cross.ys[0])[1], spots[i][0] + 1, at(cross.x, cross.ys[1])[1]]] : [])]);
    const found = [];
    crosses.forEach((cross, i) => {
      if (!cross.label) return;
      pen.font = `11px ${FONT}`;
      const [long, [x, y]] = [pen.measureText(cross.label).width + 4, spots[i]];
      const places = [0, 1].flatMap((far) => [[1, 1], [-1, 1], [1, -1], [-1, -1]].map(([h, v]) => {
        const from = h > 0 ? x + 6 : x - 6 - long;
        const middle = y + v * (11 + 15 * far);
        return { h, middle, box: [from, middle - 8, from + long, middle + 8] };
      })).filter(({ box }) => box[0] >= 0 && box[2] <= wide && box[1] >= 0 && box[3] <= high && !taken.some((other) => touch(box, other)));
      if (!places.length) return;
      const crossed = ({ box }) => arms.filter((arm) => touch(box, arm)).length; // of equal ones the first, nearest
      const best = places.reduce((one, other) => (crossed(other) < crossed(one) ? other : one));
      taken.push(best.box);
      found.push({ cross, dx: best.h * 7, dy: best.middle - y, anchor: best.h > 0 ? "left" : "right" });
    });
    return found;
  }

  function drawForest(place, panel, colours) {
    const width = printing ? 676 : place.clientWidth;
    const made = layout(colours, 46 * panel.rows.length + 80, width);
    const log = panel.axis.log;
    const back = (value) => (log ? 10 ** value : value);
    const [low, high] = panel.axis.limits.map((end) => (log ? Math.log10(end) : end));
    made.xaxis = { ...axis(panel.axis, colours, panel.axis.limits), range: [low, high] };
    made.yaxis = { range: [panel.rows.length - 0.4, -0.75], visible: false, fixedrange: true };
    made.margin.t = 4;
    made.shapes = panel.rows.map((row, i) => ({ type: "rect", layer: "below", fillcolor: colours.asked, line: { width: 0 },
      x0: row.bounds[0] ?? back(low), x1: row.bounds[1] ?? back(high), y0: i - 0.22, y1: i + 0.22 }));
    made.annotations = panel.rows.map((row, i) => ({ xref: "paper", x: 0, xanchor: "left", y: i - 0.3, yanchor: "bottom", showarrow: false, borderpad: 0,
      align: "left", text: text(clipped(`${row.outcome}: ${row.says}` + (row.detail ? ` (${row.detail})` : ""), width - 20, 12)), font: { size: 11.5 } }));
    const symbols = { holds: "circle", fails: "x", undecided: "circle-open" };
    const at = (row) => (row.value !== null ? row.value : back(row.sign > 0 ? high : low));
    const bars = panel.rows.map((row) => [log && row.low <= 0 && row.low !== null ? back(low) : row.low ?? at(row), row.high ?? at(row)]);
    const data = [{ type: "scatter", mode: "markers", x: panel.rows.map(at), y: panel.rows.map((_, i) => i), cliponaxis: false,
      marker: { color: colours.ink, size: 11, line: { width: 2 }, symbol: panel.rows.map((row) => (row.value === null ? (row.sign > 0 ? "triangle-right" : "triangle-left") : symbols[row.outcome] || "circle-open")) },
      error_x: { type: "data", symmetric: false, color: colours.ink, thickness: 2, width: 4,
        array: bars.map(([, end], i) => end - at(panel.rows[i])), arrayminus: bars.map(([start], i) => at(panel.rows[i]) - start) },
      text: panel.rows.map((row) => `<b>${text(row.outcome)}</b>: ${text(row.text)}<br>${text(clipped(row.says, 280))}<br>${text(clipped(row.detail, 280))}`),
      hovertemplate: "%{text}<extra></extra>" }];
    return Plotly.react(place, data, made, { displayModeBar: false });
  }

  class Chart {
    constructor(figure) {
      this.data = JSON.parse(figure.querySelector("script").textContent);
      this.hidden = new Set();
      this.forest = this.data.kind === "claims";
      this.crosses = "crosses" in this.data.panels[0];
      const panels = figure.querySelector(".panels");
      panels.classList.toggle("single", this.data.panels.length === 1);
      panels.classList.toggle("threes", ![1, 2, 4].includes(this.data.panels.length));
      panels.classList.toggle("forest", this.forest);
      this.places = this.data.panels.map((panel) => {
        const words = this.forest ? panel.axis.label : [panel.title, panel.y.label].filter(Boolean).join(", ");
        return panels.appendChild(element("div", { role: "img", "aria-label": `${this.data.title}: ${words}; the numbers stand below the figure` }));
      });
      this.legend(figure.querySelector(".legend"));
      const numbers = figure.querySelector(".numbers");
      numbers.addEventListener("toggle", () => { if (numbers.open && numbers.children.length === 1) this.numbers(numbers); });
    }

    legend(place) {
      if (this.forest) return place.remove();
      const { panels, spread } = this.data;
      if (this.crosses) for (const base of new Set(panels.map((panel) => panel.base).filter((one) => one !== null))) {
        place.append(element("span", { class: "key" }, element("span", { "aria-hidden": "true", "data-method": base }, "● "), methods[base].label + ", the baseline"));
      }
      for (const index of new Set(panels.flatMap((panel) => (panel.crosses ?? panel.curves).map((one) => one.method)))) {
        const swatch = element("span", { "aria-hidden": "true", "data-method": index }, "■ ");
        const button = element("button", { type: "button", "aria-pressed": "true", title: methods[index].label }, swatch, methods[index].label);
        button.addEventListener("click", () => {
          const shown = !this.hidden.delete(index);
          if (shown) this.hidden.add(index);
          button.setAttribute("aria-pressed", String(!shown));
          this.draw();
        });
        place.append(button);
      }
      if (spread) place.append(element("span", { class: "key" }, `${this.crosses ? "┼" : panels.some((panel) => panel.curves.some((curve) => curve.bars)) ? "│" : "▒"} ${spread}`));
      if (panels.some((panel) => panel.front)) place.append(element("span", { class: "key" }, "┄┄ front"));
      if (this.crosses) return;
      const styles = new Map(this.data.panels.filter((panel) => new Set(panel.curves.map((c) => c.dashed)).size > 1).flatMap((panel) => panel.curves.map((c) => [c.quantity, c.dashed])));
      for (const [quantity, dashed] of styles) place.append(element("span", { class: "key" }, `${dashed ? "┄┄" : "──"} ${quantity}`));
    }

    async draw() {
      const colours = Object.fromEntries(["ink", "faint", "rule", "shade", "asked"].map((name) => [name, look("--" + name)]));
      for (const [i, place] of this.places.entries()) {
        const panel = this.data.panels[i];
        const sisters = this.data.shared ? this.data.panels.filter((one) => one.y?.label === panel.y?.label) : [panel];
        await (this.forest ? drawForest(place, panel, colours) : this.crosses ? drawCrosses(place, panel, this.hidden, colours) : drawPanel(place, panel, this.hidden, colours, sisters));
      }
    }

    numbers(place) {
      const spread = (ends) => (ends ? `${number(ends[0])} to ${number(ends[1])}` : "–");
      const panels = this.data.panels;
      const [names, rows] = this.forest
        ? [["quantity", "claim", "where", "verdict", "estimate and interval"],
          panels.flatMap((panel) => panel.rows.map((row) => [panel.axis.label, row.says, row.detail, row.outcome, row.text]))]
        : this.crosses
          ? [["panel", "method", "label", "along", "number", "95 % interval", "upwards", "number", "95 % interval"],
            panels.flatMap((panel) => panel.crosses.map((one) => { const [along, upwards] = crossWords(panel);
              return [panel.title, methods[one.method].label, one.label, along, number(one.x), spread(one.xs), upwards, number(one.y), spread(one.ys)]; }))]
          : [["panel", "method", "quantity", panels[0].x.label, "value", "spread"],
            panels.flatMap((panel) => panel.curves.flatMap((curve) => curve.x.map((x, i) =>
              [panel.title, methods[curve.method].label, curve.quantity, number(x), number(curve.y[i]), curve.low ? spread([curve.low[i], curve.high[i]]) : "–"])))];
      const head = element("thead", {}, element("tr", {}, ...names.map((name) => element("th", { scope: "col" }, name))));
      const body = element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell) => element("td", {}, cell)))));
      const caption = element("caption", {}, this.data.title);
      place.append(element("div", { class: "scroll", role: "group", tabindex: "0", "aria-label": "Numbers of: " + this.data.title }, element("table", {}, caption, head, body)));
    }
  }

  async function start() {
    const charts = [...document.querySelectorAll("figure")].map((figure) => new Chart(figure));
    const paint = () => {
      for (const swatch of document.querySelectorAll("[data-method]")) {
        const method = methods[swatch.dataset.method];
        swatch.style.color = dark.matches && !printing ? method.dark : method.light;
      }
      return Promise.all(charts.map((chart) => chart.draw()));
    };
    followReading();
    await enhanceTables();
    document.head.append(element("script", {}, await unpacked("plotly")));
    await paint();
    dark.addEventListener("change", paint);
    let waiting;
    addEventListener("resize", () => { clearTimeout(waiting); waiting = setTimeout(() => { if (!printing) paint(); }, 150); });
    let folded = [];
    addEventListener("beforeprint", () => {
      folded = [...document.querySelectorAll("main details:not(.numbers):not([open])")];
      folded.forEach((details) => { details.open = true; });
      printing = true;
      paint();
    });
    addEventListener("afterprint", () => {
      folded.forEach((details) => { details.open = false; });
      printing = false;
      paint();
    });
    document.documentElement.dataset.ready = "true";
  }

  if (typeof DecompressionStream === "undefined") {
    document.querySelector("header").append(element("p", {}, "Figures and sorting need a browser of 2023 or later."));
  } else {
    start();
  }
})();
