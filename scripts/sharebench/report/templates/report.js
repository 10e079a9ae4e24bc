"use strict";
// What is known of one combination of strategy and tenants, when it is chosen in a matrix. The page reads without it.
(() => {
  const details = JSON.parse(document.getElementById("details").textContent);
  const WIDTH = 440, HEIGHT = 170, LEFT = 52, BOTTOM = 34, TOP = 8, RIGHT = 10;
  const GROWTH = 2 ** (1 / 64), SMALLEST_MS = 1e-3;

  const fill = (node, attributes, children) => {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const make = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
  const draw = (tag, attributes = {}, ...children) =>
    fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
  const plain = (value) => String(Number(Number(value).toPrecision(3)));
  const upperMs = (bucket) => SMALLEST_MS * GROWTH ** bucket;

  // Round numbers between two, at most about `wanted`: steps of 1, 2 or 5.
  function ticks(low, high, wanted) {
    const rough = (high - low) / wanted || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
    const found = [];
    for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i += 1) found.push(i * step);
    return found;
  }

  // An empty plot with its axes; `x` and `y` say where a value is.
  function plot(label, xTicks, yTicks, x, y, xTitle, yTitle) {
    const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label });
    for (const value of yTicks) {
      svg.append(
        draw("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value), class: "grid" }),
        draw("text", { x: LEFT - 5, y: y(value) + 3.5, "text-anchor": "end" }, plain(value)),
      );
    }
    for (const value of xTicks) {
      svg.append(draw("text", { x: x(value), y: HEIGHT - BOTTOM + 13, "text-anchor": "middle" }, plain(value)));
    }
    const middle = (TOP + HEIGHT - BOTTOM) / 2;
    svg.append(
      draw("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 5, "text-anchor": "middle" }, xTitle),
      draw("text", { transform: `translate(11 ${middle}) rotate(-90)`, "text-anchor": "middle" }, yTitle),
    );
    return svg;
  }

  const across = (low, high) => (value) => LEFT + ((value - low) / (high - low || 1)) * (WIDTH - LEFT - RIGHT);
  const upwards = (low, high) => (value) => HEIGHT - BOTTOM - ((value - low) / (high - low || 1)) * (HEIGHT - BOTTOM - TOP);

  function histogram([name, first, perBar, bars]) {
    const total = bars.reduce((sum, count) => sum + count, 0);
    const largest = Math.max(...bars);
    const low = upperMs(first - 1), high = upperMs(first - 1 + perBar * bars.length);
    const place = across(Math.log(low), Math.log(high)), x = (ms) => place(Math.log(ms)), y = upwards(0, largest / total);
    const mode = upperMs(first - 1 + perBar * (bars.indexOf(largest) + 0.5));
    const label = `Histogram of ${total} latencies of ${name}, from ${plain(low)} to ${plain(high)} ms, most around ${plain(mode)} ms`;
    const decades = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.log10(high); power += 1)
      for (const factor of [1, 2, 5]) decades.push(factor * 10 ** power);
    const inside = decades.filter((value) => value >= low && value <= high);
    const shown = inside.length > 1 ? inside : ticks(low, high, 5).filter((value) => value > 0);
    const svg = plot(label, shown, ticks(0, largest / total, 4), x, y, "latency (ms)", "share");
    bars.forEach((count, i) => {
      const left = x(upperMs(first - 1 + perBar * i)), right = x(upperMs(first - 1 + perBar * (i + 1)));
      const top = y(count / total);
      if (count) svg.append(draw("rect", { x: left, y: top, width: Math.max(0.5, right - left - 0.4), height: HEIGHT - BOTTOM - top, class: "bar" }));
    });
    return make("figure", {}, svg, make("figcaption", {}, `${name}: ${total} iterations`));
  }

  function timeline(detail) {
    const values = detail.timelines.flat().filter((value) => value !== null);
    if (!values.length) return "";
    const end = detail.slot_seconds * detail.timelines[0].length;
    const low = Math.min(...values), high = Math.max(...values), air = 0.1 * (high - low || high);
    const x = across(0, end), y = upwards(low - air, high + air);
    const shown = detail.timelines.length;
    const label = `Mean latency over the window of ${plain(end)} s for ${shown} tenants, between ${plain(low)} and ${plain(high)} ms`;
    const svg = plot(label, ticks(0, end, 5), ticks(low - air, high + air, 4), x, y, "time in the window (s)", "latency (ms)");
    detail.timelines.forEach((line, tenant) => {
      let path = "", isDrawing = false;
      line.forEach((value, slot) => {
        if (value !== null) path += `${isDrawing ? "L" : "M"}${x((slot + 0.5) * detail.slot_seconds).toFixed(1)} ${y(value).toFixed(1)}`;
        isDrawing = value !== null;
      });
      svg.append(draw("path", { d: path, class: "line", opacity: 1 - (0.65 * tenant) / shown }));
    });
    const which = shown < detail.tenants ? `the first ${shown} of ${detail.tenants} tenants` : "one line per tenant";
    return make("figure", {}, svg, make("figcaption", {}, `Repeat ${detail.shown} over its window, ${which}`));
  }

  function table(caption, titles, rows) {
    const head = make("tr", {}, ...titles.map((title) => make("th", { scope: "col" }, title)));
    const body = rows.map(([mark, first, ...rest]) =>
      make("tr", mark ? { class: mark } : {}, make("th", { scope: "row" }, first), ...rest.map((text) => make("td", { class: "remarks" }, text))));
    const made = make("table", {}, make("caption", {}, caption), make("thead", {}, head), make("tbody", {}, ...body));
    return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, made);
  }

  function contents(key) {
    const detail = details[key];
    if (!detail) return [make("p", {}, `Not in this file; see cells/${key.replace(/\/(\d+)$/, "/n$1")}/r1/raw.json.`)];
    const parts = [make("p", {}, detail.repeats.map(([repeat, outcome]) => `Repeat ${repeat}: ${outcome}.`).join(" "))];
    parts.push(make("div", { class: "plots" }, ...detail.histograms.map(histogram), timeline(detail)));
    if (detail.gates.length) {
      const rows = detail.gates.map(([name, severity, value, limit, passed, message]) =>
        [passed ? "" : severity, name, severity, value === null ? "not judged" : plain(value), limit === null ? "" : plain(limit), passed ? "passed" : "failed", message]);
      parts.push(table(`Gates of repeat ${detail.shown}`, ["Gate", "Severity", "Value", "Limit", "Verdict", "Message"], rows));
    }
    if (detail.evidence.length) {
      const rows = detail.evidence.map(([name, expected, observed, holds, times]) =>
        [holds ? "" : "invalid", name, expected, observed, holds ? "yes" : "no", String(times)]);
      parts.push(table(`Evidence of repeat ${detail.shown}`, ["Looked at", "Expected", "Observed", "As expected", "Times"], rows));
    }
    return parts;
  }

  function enliven(matrix, number) {
    const grid = [...matrix.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")].map((cell) => {
      if (!cell.dataset.key) return null;
      const button = make("button", { type: "button", tabindex: -1, "aria-expanded": false, "aria-controls": `detail-${number}` }, ...cell.childNodes);
      cell.append(button);
      return button;
    }));
    const buttons = grid.flat().filter(Boolean);
    if (!buttons.length) return;
    const heading = make("h4", { "aria-live": "polite" });
    const close = make("button", { type: "button", class: "close" }, "Close");
    const body = make("div");
    const panel = make("div", { id: `detail-${number}`, class: "detail", hidden: "" }, close, heading, body);
    matrix.append(panel);
    buttons[0].tabIndex = 0;
    let chosen = null;

    const choose = (button) => {
      if (chosen) chosen.setAttribute("aria-expanded", "false");
      chosen = button === chosen ? null : button;
      panel.hidden = !chosen;
      if (!chosen) return;
      chosen.setAttribute("aria-expanded", "true");
      const key = chosen.parentNode.dataset.key;
      const [strategy, workload, tenants] = key.split("/");
      heading.textContent = `${workload}: ${strategy}, ${tenants} ${tenants === "1" ? "tenant" : "tenants"}`;
      body.replaceChildren(...contents(key));
    };
    const goTo = (button) => {
      for (const each of buttons) each.tabIndex = each === button ? 0 : -1;
      button.focus();
    };
    const leave = () => {
      const last = chosen;
      choose(chosen);
      if (last) goTo(last);
    };
    const move = (button, down, right) => {
      let row = grid.findIndex((each) => each.includes(button)), column = grid[row].indexOf(button);
      do {
        row += down;
        column += right;
      } while (grid[row] && column < grid[row].length && column >= 0 && !grid[row][column]);
      const next = grid[row] && grid[row][column];
      if (next) goTo(next);
    };
    const keys = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    for (const button of buttons) {
      button.addEventListener("click", () => {
        goTo(button);
        choose(button);
      });
      button.addEventListener("keydown", (event) => {
        if (!keys[event.key]) return;
        event.preventDefault();
        move(button, ...keys[event.key]);
      });
    }
    close.addEventListener("click", leave);
    matrix.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && chosen) leave();
    });
  }

  // A link to a collapsed section, or into it, opens it; on paper all are open.
  const reveal = () => {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (!target) return;
    const folded = target.querySelector(":scope > details") || target.closest("details");
    if (folded) folded.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", reveal);
  addEventListener("beforeprint", () => document.querySelectorAll("section > details").forEach((each) => { each.open = true; }));
  reveal();

  document.querySelectorAll(".matrix").forEach(enliven);
  const hint = document.getElementById("choose");
  if (hint) hint.hidden = false;
})();
