// What the list of conversations does: it asks again while somebody types. Without it the form has a button.
"use strict";
(() => {
  const root = document.documentElement;
  const form = document.querySelector("form");
  const own = { createHTML: (html) => html };
  const policy = window.trustedTypes ? window.trustedTypes.createPolicy("page", own) : own;
  let turn = 0;
  let pause = 0;
  root.classList.add("js");
  try {
    const theme = localStorage.getItem("transcript-store-theme");
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
  } catch { /* a browser that keeps nothing */ }

  function address() {
    const asked = new URLSearchParams(new FormData(form));
    for (const [name, value] of [...asked]) if (!value) asked.delete(name);
    return `?${asked}`;
  }

  // The server's own page comes back, in which every text is escaped already.
  async function ask(wanted) {
    const mine = ++turn;
    const answer = await fetch(wanted);
    const html = await answer.text();
    if (mine !== turn || !answer.ok) return;
    const focused = document.activeElement?.getAttribute("href");
    const page = new DOMParser().parseFromString(policy.createHTML(html), "text/html");
    document.querySelector("main").replaceWith(document.importNode(page.querySelector("main"), true));
    if (focused) [...document.querySelectorAll(".row")].find((row) => row.getAttribute("href") === focused)?.focus();
    history.replaceState(null, "", wanted);
    askAgain();
  }

  // There may be more, which is being looked at: the answer says so until there is not. What is asked for is this very page of the list.
  function askAgain() {
    if (document.querySelector(".count[data-unfinished]")) pause = setTimeout(() => ask(location.search || "?"), 700);
  }

  form.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => ask(address()), 150);
  });
  askAgain();
  addEventListener("keydown", (event) => {
    if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
    const rows = [...document.querySelectorAll(".row")];
    const step = { j: 1, k: -1 }[event.key];
    if (event.key === "/") form.elements.q.focus();
    else if (step && rows.length) {
      const at = rows.indexOf(document.activeElement);
      rows[Math.min(rows.length - 1, Math.max(0, at + (at < 0 && step < 0 ? 1 : step)))].focus();
    } else return;
    event.preventDefault();
  });
})();
