// What the page does. It reads nothing but the page, and asks nobody for anything: the policy in the head sees to that.
"use strict";
(() => {
  const root = document.documentElement;
  const main = document.querySelector("main");
  const aside = document.querySelector("aside");
  const search = document.getElementById("search");
  const status = aside.querySelector(".status");
  const hits = aside.querySelector(".hits");
  const nav = aside.querySelector("nav");
  const dialog = document.querySelector("dialog");
  const menu = document.getElementById("menu");
  // The only markup that is put in is what the renderer made, and it comes from this file.
  const own = { createHTML: (html) => html };
  const policy = window.trustedTypes ? window.trustedTypes.createPolicy("page", own) : own;
  const unfolded = { thinking: false, tool: false };
  root.classList.add("js");

  // ---- chunks: inert JSON that is put in when it comes near

  const chunks = [...document.querySelectorAll(".chunk")];
  const blob = (chunk) => document.getElementById(`chunk-${chunk.dataset.chunk}`);
  const isWaiting = (chunk) => chunk.dataset.chunk !== undefined && !chunk.firstChild;

  function fill(chunk) {
    const inert = isWaiting(chunk) && blob(chunk);
    if (!inert) return false; // it is there, or the file is still being read
    chunk.innerHTML = policy.createHTML(JSON.parse(inert.textContent).join(""));
    chunk.style.minHeight = "";
    near.unobserve(chunk);
    dress(chunk);
    return true;
  }

  const near = new IntersectionObserver(
    (seen) => seen.forEach((entry) => entry.isIntersecting && fill(entry.target)),
    { rootMargin: "1500px 0px" },
  );

  function dress(part) {
    for (const [kind, isOpen] of Object.entries(unfolded)) {
      if (isOpen) for (const details of part.querySelectorAll(`details.${kind}`)) details.open = true;
    }
  }

  // ---- copying: a block and a message have their button when somebody comes near

  function offer(place) {
    if (!place || place.querySelector(":scope > .copy")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy";
    button.textContent = "Copy";
    place.insertBefore(button, place.querySelector(":scope > .link"));
  }

  for (const near of ["pointerover", "focusin"]) {
    document.addEventListener(near, (event) => {
      offer(event.target.closest(".block"));
      offer(event.target.closest("article")?.querySelector(":scope > header"));
    });
  }

  async function copy(button) {
    const article = button.parentElement.tagName === "HEADER" ? button.closest("article") : null;
    const said = article
      ? [...article.children].slice(1).map((part) => part.innerText.trim()).join("\n\n")
      : button.parentElement.querySelector("pre").textContent;
    await put(said, button);
  }

  async function put(said, button) {
    try {
      await navigator.clipboard.writeText(said);
    } catch {
      const area = document.createElement("textarea"); // where the clipboard is refused, as in some files
      area.value = said;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    if (!button) return;
    const label = button.textContent;
    button.textContent = "Copied";
    button.classList.add("done");
    setTimeout(() => {
      button.textContent = label;
      button.classList.remove("done");
    }, 1200);
  }

  // ---- places

  function find(id) {
    const there = document.getElementById(id);
    if (there || !/^(g\d+-)?\d+$/.test(id)) return there;
    for (const chunk of chunks) {
      const inert = isWaiting(chunk) && blob(chunk);
      if (inert && inert.textContent.includes(`id=\\"${id}\\"`) && fill(chunk)) {
        const found = document.getElementById(id);
        if (found) return found;
      }
    }
    return null;
  }

  function go(id, { focus = true } = {}) {
    const place = find(id);
    if (!place) return null;
    for (let at = place.parentElement; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    const target = place.closest("article") || place;
    if (focus && target.tabIndex === -1) target.focus({ preventScroll: true });
    place.scrollIntoView({ block: "start" });
    // What stands above gets its true height only now that it is near.
    requestAnimationFrame(() => place.scrollIntoView({ block: "start" }));
    return place;
  }

  const goToHash = () => location.hash.length > 1 && go(decodeURIComponent(location.hash.slice(1)));

  function here() {
    if (document.activeElement?.tagName === "ARTICLE") return document.activeElement;
    const box = main.getBoundingClientRect();
    for (const y of [40, 120, 240, 400]) {
      const article = document.elementFromPoint(box.left + box.width / 2, y)?.closest("article");
      if (article) return article;
    }
    return null;
  }

  function step(direction) {
    const from = here();
    const chunk = from && from.closest(".chunk");
    const neighbour = chunk && chunks[chunks.indexOf(chunk) + direction];
    if (neighbour) fill(neighbour);
    const articles = [...main.querySelectorAll("article")].filter((article) => article.checkVisibility());
    const next = from ? articles[articles.indexOf(from) + direction] : articles[0];
    if (next) go(next.id);
  }

  const links = [...nav.querySelectorAll("a")];
  const numbers = links.map((link) => Number(link.hash.slice(1)));

  function promptAt(seq) {
    let low = 0;
    let high = numbers.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (numbers[middle] <= seq) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  function stepPrompt(direction) {
    const from = here();
    const at = from ? promptAt(Number(from.id)) : -1;
    const back = direction < 0 && from && !from.matches(".prompt") ? 0 : direction;
    const link = links[Math.max(0, at + back)];
    if (link && at + back < links.length) go(link.hash.slice(1));
  }

  let marked = null;
  function mark() {
    const article = here();
    const link = article && links[promptAt(Number(article.id))];
    if (!link || link === marked) return;
    marked?.removeAttribute("aria-current");
    link.setAttribute("aria-current", "true");
    marked = link;
    const top = link.offsetTop - nav.offsetTop;
    if (top < nav.scrollTop || top > nav.scrollTop + nav.clientHeight - 60) nav.scrollTop = top - nav.clientHeight / 2;
  }

  let pending = 0;
  addEventListener("scroll", () => {
    pending ||= setTimeout(() => {
      pending = 0;
      mark();
    }, 150);
  }, { passive: true });

  // ---- search: in what is on the page, and in what waits

  const MOST_HITS = 200;
  const texts = new Map();
  const entities = { "&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&#x27;": "'", "&nbsp;": " " };
  let searching = 0;

  function textOf(html) {
    return html
      .replace(/<header>.*?<\/header>|<span class="(?:name|about|note|state|peek)">/g, " ")
      .replace(/<\/?(?:span|a|code|em|strong|s|del)\b[^>]*>/g, "")
      .replace(/<[^>]*>/g, " ")
      .replace(/&(?:lt|gt|amp|quot|#x27|nbsp);/g, (entity) => entities[entity])
      .replace(/\s+/g, " ");
  }

  function textsOf(chunk) {
    if (!texts.has(chunk)) {
      const pieces = blob(chunk)
        ? JSON.parse(blob(chunk).textContent)
        : [...chunk.children].map((child) => child.outerHTML);
      const found = pieces.map((html) => ({ id: / id="([^"]+)"/.exec(html)?.[1], text: textOf(html) }));
      texts.set(chunk, found.filter((piece) => piece.id));
    }
    return texts.get(chunk);
  }

  async function look() {
    const turn = ++searching;
    const words = search.value.trim().replace(/\s+/g, " ");
    const wanted = words.toLowerCase();
    hits.hidden = !wanted;
    nav.hidden = Boolean(wanted);
    hits.replaceChildren();
    status.textContent = "";
    CSS.highlights?.clear();
    if (!wanted) return;
    let count = 0;
    let rested = performance.now();
    for (const chunk of chunks) {
      for (const { id, text } of textsOf(chunk)) {
        const at = text.toLowerCase().indexOf(wanted);
        if (at >= 0 && ++count <= MOST_HITS) hits.append(hit(id, text, at, wanted.length));
      }
      if (performance.now() - rested > 30) {
        status.textContent = `${count} so far`;
        await new Promise((resolve) => setTimeout(resolve));
        if (turn !== searching) return;
        rested = performance.now();
      }
    }
    const shown = count > MOST_HITS ? `, the first ${MOST_HITS} here` : "";
    status.textContent = count ? `${count} ${count === 1 ? "message" : "messages"}${shown}` : "No message has this";
  }

  function hit(id, text, at, length) {
    const item = document.createElement("li");
    const link = document.createElement("a");
    const found = document.createElement("mark");
    link.href = `#${id}`;
    found.textContent = text.slice(at, at + length);
    const begin = Math.max(0, at - 40);
    const label = document.createElement("span");
    label.append(`${begin ? "…" : ""}${text.slice(begin, at)}`, found, text.slice(at + length, at + length + 80));
    link.append(label);
    item.append(link);
    return item;
  }

  function highlight(place) {
    const wanted = search.value.trim().toLowerCase();
    if (!wanted || !CSS.highlights || !place) return;
    const ranges = [];
    const walker = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      const said = node.data.toLowerCase();
      for (let at = said.indexOf(wanted); at >= 0; at = said.indexOf(wanted, at + wanted.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + wanted.length);
        ranges.push(range);
      }
    }
    for (const range of ranges) {
      for (let up = range.startContainer.parentElement; up && up !== place; up = up.parentElement) {
        if (up.tagName === "DETAILS") up.open = true;
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
    ranges[0]?.startContainer.parentElement.scrollIntoView({ block: "center" });
  }

  // ---- what a person does

  function unfoldAll(kind) {
    unfolded[kind] = !unfolded[kind];
    const stay = here();
    for (const details of main.querySelectorAll(`details.${kind}`)) details.open = unfolded[kind];
    stay?.scrollIntoView({ block: "start" });
  }

  function openMenu(isOpen) {
    root.classList.toggle("menu", isOpen);
    menu.setAttribute("aria-expanded", String(isOpen));
  }

  const keys = {
    j: () => step(1),
    k: () => step(-1),
    n: () => stepPrompt(1),
    p: () => stepPrompt(-1),
    t: () => unfoldAll("thinking"),
    o: () => unfoldAll("tool"),
    "/": () => {
      openMenu(true);
      search.focus();
      search.select();
    },
    "?": () => dialog.showModal(),
  };

  addEventListener("keydown", (event) => {
    const writes = event.target.matches?.("input:not([type=checkbox]), textarea");
    if (event.key === "Escape") openMenu(false);
    if (event.key === "Escape" && writes) {
      search.value = "";
      look();
      search.blur();
    }
    if (event.key === "Enter" && event.target === search) hits.querySelector("a")?.click();
    if (writes || event.ctrlKey || event.metaKey || event.altKey || dialog.open || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  document.addEventListener("click", (event) => {
    const target = event.target;
    if (target.matches(".copy")) copy(target);
    const image = target.closest(".image");
    if (image) image.classList.toggle("full");
    const link = target.closest("a[href^='#']");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    const id = decodeURIComponent(link.hash.slice(1));
    const place = go(id);
    if (!place) return;
    event.preventDefault();
    history.replaceState(null, "", link.hash);
    if (link.closest("aside")) openMenu(false);
    if (link.closest(".hits")) highlight(place.closest("article") || place);
    if (link.matches(".link")) put(link.href, null);
  });

  menu.addEventListener("click", () => openMenu(!root.classList.contains("menu")));
  document.getElementById("keys").addEventListener("click", () => dialog.showModal());
  search.addEventListener("input", look);
  for (const box of aside.querySelectorAll("[data-show]")) {
    box.addEventListener("change", () => root.classList.toggle(`show-${box.dataset.show}`, box.checked));
    root.classList.toggle(`show-${box.dataset.show}`, box.checked); // some browsers keep it over a reload
  }

  const theme = document.getElementById("theme");
  const themes = ["system", "light", "dark"];
  function choose(name) {
    if (name === "system") delete root.dataset.theme;
    else root.dataset.theme = name;
    theme.textContent = `Theme: ${name}`;
  }
  function remember(name) {
    try {
      localStorage.setItem("transcript-store-theme", name);
    } catch { /* a browser that keeps nothing for files */ }
  }
  function remembered() {
    try {
      return localStorage.getItem("transcript-store-theme");
    } catch {
      return null;
    }
  }
  theme.addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "system") + 1) % themes.length];
    choose(next);
    remember(next);
  });
  choose(themes.includes(remembered()) ? remembered() : "system");

  let openedToPrint = [];
  addEventListener("beforeprint", () => {
    chunks.forEach(fill);
    openedToPrint = [...main.querySelectorAll("details:not([open])")];
    for (const details of openedToPrint) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of openedToPrint) details.open = false;
  });

  for (const chunk of chunks) {
    if (isWaiting(chunk)) chunk.style.minHeight = `${chunk.dataset.height}px`;
  }
  // The chunks' JSON stands behind this script, so that the first messages are seen before it is read.
  document.addEventListener("DOMContentLoaded", () => {
    for (const chunk of chunks) if (isWaiting(chunk)) near.observe(chunk);
    goToHash();
    mark();
  });
  addEventListener("hashchange", goToHash);
})();
