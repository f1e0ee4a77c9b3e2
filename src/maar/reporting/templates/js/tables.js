// Sorting and filtering of the long tables. A row and its details move and hide together.
"use strict";

(() => {
  const collator = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  // Each record is one <tbody>: the row itself, and below it the details if there are any.
  const records = (table) => [...table.tBodies];
  const tidy = (text) => text.replace(/\s+/g, " ").trim();
  const cell = (record, column) => record.rows[0].cells[column];

  function compare(a, b, isNumeric, sign) {
    // What is not there comes last in both directions.
    if (a === "" || b === "") return (a === "") - (b === "");
    return sign * (isNumeric ? Number(a) - Number(b) : collator.compare(a, b));
  }

  function sort(table, header) {
    const column = header.cellIndex;
    const isNumeric = header.classList.contains("number");
    const before = header.getAttribute("aria-sort");
    // The first click on a number shows the greatest first: that is what one looks for.
    const first = isNumeric ? "descending" : "ascending";
    const second = isNumeric ? "ascending" : "descending";
    const order = before === first ? second : first;
    for (const other of header.parentElement.cells) {
      if (other.querySelector(".sort")) other.setAttribute("aria-sort", "none");
    }
    header.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const sorted = records(table)
      .map((record) => [cell(record, column).dataset.value ?? "", record])
      .sort(([a], [b]) => compare(a, b, isNumeric, sign));
    table.append(...sorted.map(([, record]) => record));
  }

  function filter(table, form) {
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const choices = [...form.querySelectorAll("select")].filter((select) => select.value);
    let shown = 0;
    for (const record of records(table)) {
      const text = record.rows[0].textContent.toLowerCase();
      const fits =
        words.every((word) => text.includes(word)) &&
        choices.every((s) => tidy(cell(record, s.dataset.column).textContent) === tidy(s.value));
      record.hidden = !fits;
      shown += fits;
    }
    form.querySelector("output").value = `${shown} of ${records(table).length} rows`;
  }

  function toggle(button) {
    const row = document.getElementById(button.getAttribute("aria-controls"));
    const isShown = row.classList.toggle("shown");
    row.querySelector("details").open = isShown;
    button.setAttribute("aria-expanded", String(isShown));
  }

  for (const table of document.querySelectorAll("table.long")) {
    for (const button of table.querySelectorAll(".open")) {
      button.addEventListener("click", () => toggle(button));
    }
    for (const button of table.querySelectorAll(".sort")) {
      button.addEventListener("click", () => sort(table, button.closest("th")));
    }
    const form = document.querySelector(`form[data-table="${table.id}"]`);
    if (!form) continue;
    form.addEventListener("input", () => filter(table, form));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", () => setTimeout(() => filter(table, form)));
    filter(table, form); // a reloaded page keeps what was typed
  }
})();
