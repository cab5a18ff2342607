// A table that is wider than its page becomes a list of cards, each with the names of its columns.
const watch = new ResizeObserver((changes) => {
  for (const { target } of changes)
    if (target.scrollWidth > target.clientWidth) target.classList.add("as-cards");
});

document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll(".bd-article table")) {
    const names = [...table.querySelectorAll("thead th")].map((name) => name.textContent.trim());
    for (const row of table.querySelectorAll("tbody tr"))
      [...row.cells].forEach((cell, k) => {
        if (names[k]) cell.dataset.label = names[k];
      });
    watch.observe(table);
  }
});
