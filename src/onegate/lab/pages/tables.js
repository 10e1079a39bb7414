"use strict";
// Lets a reader sort tables and filter the long ones. Without it the tables are whole, in the order of the page.
(() => {
  const FEWEST_SORTED = 4, FEWEST_FILTERED = 10, FEWEST_COLUMNS = 3;
  const make = (name, className, parent) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (parent) parent.append(element);
    return element;
  };

  // What a cell is sorted by: the number that it holds for programs, else its text. A dash is nothing.
  function key(row, column) {
    const cell = row.cells[column], number = cell.querySelector("data");
    const text = cell.textContent.trim();
    return number ? Number(number.value) : text === "\u2013" ? null : text;
  }

  function compared(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }

  // Cells without a value stay at the end in both directions.
  function sorted(rows, column, direction) {
    if (!direction) return rows;
    const keyed = rows.map(row => [key(row, column), row]);
    const known = keyed.filter(([value]) => value !== null), rest = keyed.filter(([value]) => value === null);
    known.sort(([a], [b]) => direction * compared(a, b));
    return [...known, ...rest].map(([, row]) => row);
  }

  function makeSortable(table) {
    const body = table.tBodies[0], rows = [...body.rows], headings = [...table.tHead.rows].at(-1).cells;
    const order = ["none", "ascending", "descending"];
    [...headings].forEach((heading, column) => {
      const button = make("button", "sort");
      button.type = "button";
      button.append(...heading.childNodes);
      heading.append(button);
      heading.setAttribute("aria-sort", "none");
      button.addEventListener("click", () => {
        const next = order[(order.indexOf(heading.getAttribute("aria-sort")) + 1) % order.length];
        for (const other of headings) other.setAttribute("aria-sort", "none");
        heading.setAttribute("aria-sort", next);
        body.append(...sorted(rows, column, { none: 0, ascending: 1, descending: -1 }[next]));
      });
    });
  }

  // Rows that hold every word; the count says how many are left.
  function makeFiltered(table) {
    const rows = [...table.tBodies[0].rows], box = table.closest(".scroll");
    const label = make("label", "filter"), field = make("input", "", label), count = make("output", "", label);
    label.prepend("Filter ");
    field.type = "search";
    field.placeholder = "words of a row";
    box.before(label);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every(word => text.includes(word));
        left += !row.hidden;
      }
      count.textContent = words.length ? `${left} of ${rows.length} rows` : "";
    });
  }

  for (const table of document.querySelectorAll(".scroll > table")) {
    const { length } = table.tBodies[0].rows;
    if ([...table.tHead.rows].at(-1).cells.length < FEWEST_COLUMNS) continue; // facts of one thing
    if (length >= FEWEST_SORTED) makeSortable(table);
    if (length >= FEWEST_FILTERED) makeFiltered(table);
  }
})();
