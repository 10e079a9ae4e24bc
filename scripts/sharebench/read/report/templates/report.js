// Sorts tables by a column, and filters their rows by workload and strategy. The page is whole without it.
"use strict";
const keys = ["Workload", "Strategy"];
const chosen = {};
const word = (cell) => (cell?.dataset.key ?? cell?.textContent ?? "").trim();
const written = (node) => [...node.childNodes].find((each) => each.nodeType === Node.TEXT_NODE && each.data.trim());
const number = (cell) => parseFloat((cell && written(cell)?.data.replace(/\s/g, "")) || "NaN");
const tables = [...document.querySelectorAll("table:has(thead)")].map((table) => {
  const heads = [...table.tHead.rows[0].cells];
  const places = keys.map((key) => heads.findIndex((head) => word(head) === key));
  return { table, heads, places, rows: [...table.tBodies[0].rows] };
});

function sort({ table, heads, rows }, head) {
  const order = head.ariaSort === "ascending" ? "descending" : "ascending";
  heads.forEach((each) => each.removeAttribute("aria-sort"));
  head.ariaSort = order;
  const [value, sign] = [head.matches(".number") ? number : word, order === "ascending" ? 1 : -1];
  const values = new Map(rows.map((row) => [row, value(row.cells[head.cellIndex])]));
  const compare = (a, b) => (a < b ? -sign : a > b ? sign : 0);
  // A row without a number comes last.
  const isBlank = (row) => Number(Number.isNaN(values.get(row)));
  rows.sort((a, b) => isBlank(a) - isBlank(b) || compare(values.get(a), values.get(b)));
  table.tBodies[0].append(...rows);
}

function filter() {
  const isOther = (key, found) => Boolean(chosen[key] && found && chosen[key] !== found);
  for (const { table, places, rows } of tables) {
    for (const row of rows) {
      row.hidden = keys.some((key, i) => places[i] >= 0 && isOther(key, word(row.cells[places[i]])));
    }
    const isElsewhere = isOther("Workload", table.dataset.workload) || rows.every((row) => row.hidden);
    table.closest(".scroll").hidden = rows.length > 0 && isElsewhere;
  }
}

for (const each of tables) {
  for (const head of each.heads) {
    const button = document.createElement("button");
    button.append(...head.childNodes);
    button.onclick = () => sort(each, head);
    head.append(button);
  }
}
const choices = keys.map((key, i) => {
  const inRows = ({ places, rows }) => (places[i] < 0 ? [] : rows.map((row) => word(row.cells[places[i]])));
  const whole = ({ table }) => (key === "Workload" && table.dataset.workload ? [table.dataset.workload] : []);
  const names = new Set(tables.flatMap((each) => [...whole(each), ...inRows(each)]).filter(Boolean));
  const [label, select] = [document.createElement("label"), document.createElement("select")];
  select.append(new Option("all", ""), ...[...names].map((name) => new Option(name)));
  select.onchange = () => {
    chosen[key] = select.value;
    filter();
  };
  label.append(`${key} in tables `, select);
  return label;
});
const bar = document.createElement("form");
bar.className = "filters";
bar.append(...choices);
tables.find(({ table }) => !table.closest("#cards"))?.table.closest("section").before(bar);
