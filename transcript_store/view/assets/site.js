// The index of a site: what is typed leaves the pages that have all of its words.
"use strict";
(() => {
  document.documentElement.classList.add("js");
  const search = document.getElementById("search");
  const rows = [...document.querySelectorAll("li")];
  const texts = rows.map((row) => `${row.textContent} ${row.dataset.said}`.toLowerCase());
  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let left = 0;
    rows.forEach((row, at) => {
      row.hidden = !words.every((word) => texts[at].includes(word));
      left += row.hidden ? 0 : 1;
    });
    for (const section of document.querySelectorAll("section")) section.hidden = !section.querySelector("li:not([hidden])");
    document.querySelector(".count").textContent = left === 1 ? "1 conversation" : `${left.toLocaleString("en")} conversations`;
  }
  search.addEventListener("input", show);
  search.form.addEventListener("submit", (event) => event.preventDefault());
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.target === search || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    search.focus();
  });
  show();
})();
