
  // ---- what is new: the page's own server says it, as long as the page is open. (A served page has this part; a file has not.)

  const PIECES_OF_A_CHUNK = 100;
  const NEAR_THE_END = 120;
  const end = main.querySelector(":scope > .end");
  const told = document.createElement("p");
  told.className = "live";
  told.setAttribute("role", "status");
  aside.querySelector(".foot").before(told);
  const news = document.createElement("button");
  news.type = "button";
  news.className = "news";
  news.hidden = true;
  document.body.append(news);
  let unseen = 0;
  let firstUnseen = null;

  const isAtEnd = () => root.scrollHeight - scrollY - innerHeight < NEAR_THE_END;

  // A piece is one element; the day stands before its first.
  function piecesOf(chunk) {
    const pieces = [];
    for (const child of chunk.children) {
      const last = pieces.at(-1);
      if (last?.at(-1).matches(".day")) last.push(child);
      else pieces.push([child]);
    }
    return pieces;
  }

  function chunkAt(place) {
    const there = main.querySelectorAll(":scope > .chunk");
    if (place < there.length) return there[place];
    const chunk = document.createElement("div");
    chunk.className = "chunk";
    const gap = end.previousElementSibling;
    (gap?.matches(".gap") ? gap : end).before(chunk);
    chunks.push(chunk);
    return chunk;
  }

  // Puts a piece in; returns its last element if it is new. What was unfolded in the piece before stays unfolded.
  function place(number, html) {
    const chunk = chunkAt(Math.floor(number / PIECES_OF_A_CHUNK));
    fill(chunk);
    blob(chunk)?.remove(); // it is not what it was
    texts.delete(chunk);
    const template = document.createElement("template");
    template.innerHTML = policy.createHTML(html);
    dress(template.content);
    const element = template.content.lastElementChild;
    const before = piecesOf(chunk)[number % PIECES_OF_A_CHUNK];
    if (!before) {
      chunk.append(template.content);
      return element;
    }
    const were = before.flatMap((each) => [...each.querySelectorAll("details")]);
    template.content.querySelectorAll("details").forEach((each, at) => {
      if (were[at]) each.open = were[at].open;
    });
    const isFocused = before.some((each) => each === document.activeElement);
    before[0].before(template.content);
    for (const each of before) each.remove();
    if (isFocused) element.focus({ preventScroll: true });
    return null;
  }

  function outline(first, prompts) {
    prompts.forEach(([anchor, label, note], at) => {
      if (links[first + at]) return;
      const link = document.createElement("a");
      const text = document.createElement("span");
      const below = document.createElement("small");
      link.href = `#${anchor}`;
      text.textContent = label;
      below.textContent = note;
      link.append(text, below);
      const item = document.createElement("li");
      item.append(link);
      nav.querySelector("ol").append(item);
      links.push(link);
      numbers.push(Number(anchor));
    });
  }

  function toEnd() {
    end.scrollIntoView({ block: "end" });
    requestAnimationFrame(() => end.scrollIntoView({ block: "end" })); // what is near has its true height only now
  }

  function change({ replaced, pieces, firstPrompt, prompts, facts }) {
    if (replaced) {
      location.reload();
      return;
    }
    const follows = isAtEnd();
    for (const gap of main.querySelectorAll(":scope > .gap")) gap.remove(); // a torn tail, which a writer has cut
    const added = pieces.map(([number, html]) => place(number, html)).filter(Boolean);
    outline(firstPrompt, prompts);
    main.querySelector(".top dl").innerHTML = policy.createHTML(facts);
    end.textContent = "End of the conversation";
    if (follows) {
      toEnd();
    } else if (added.length) {
      unseen += added.length;
      firstUnseen ||= added[0];
      news.textContent = `${unseen} new`;
      news.hidden = false;
    }
  }

  function seen() {
    unseen = 0;
    firstUnseen = null;
    news.hidden = true;
  }

  news.addEventListener("click", () => {
    (firstUnseen?.isConnected ? firstUnseen : end).scrollIntoView({ block: "start" });
    seen();
  });
  addEventListener("scroll", () => unseen && isAtEnd() && seen(), { passive: true });

  // The browser connects again by itself, and says where it was. A window that nobody sees gives its connection to the others: a
  // browser has six for a server.
  let events = null;
  let position = root.dataset.position;

  function listen() {
    events = new EventSource(`events?after=${position}`);
    events.addEventListener("open", () => { told.textContent = "Live"; });
    events.addEventListener("message", (event) => {
      position = event.lastEventId;
      change(JSON.parse(event.data));
    });
    events.addEventListener("gone", () => {
      events.close();
      told.textContent = "The conversation was deleted, or cannot be read any more";
    });
    events.addEventListener("error", () => {
      told.textContent = "Not connected: transcript-store serve has ended, or is busy";
    });
  }

  document.addEventListener("visibilitychange", () => {
    if (document.hidden) events?.close();
    else if (events?.readyState === EventSource.CLOSED) listen();
  });
  listen();
