"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

  // Theme: the system's until a person chooses.
  const read = () => { try { return localStorage.getItem("llmprof-theme"); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem("llmprof-theme", theme); } catch { /* private */ } };
  const isDark = () =>
    (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const saved = read();
  if (saved === "dark" || saved === "light") root.dataset.theme = saved;
  const button = document.getElementById("theme");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    keep(root.dataset.theme);
  });

  // One tooltip for marks of figures and for words: on hover, on focus, away with Escape.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.append(tip);
  let owner = null;
  const place = (x, y) => {
    const room = 12, box = tip.getBoundingClientRect();
    const left = Math.max(room, Math.min(x + room, root.clientWidth - box.width - room));
    const below = y + room + box.height < root.clientHeight;
    tip.style.left = `${left}px`;
    tip.style.top = `${below ? y + room : Math.max(room, y - box.height - room)}px`;
  };
  const show = (element, x, y) => {
    hide();
    owner = element;
    tip.textContent = element.dataset.tip;
    tip.hidden = false;
    element.setAttribute("aria-describedby", "tip");
    place(x, y);
  };
  const hide = () => {
    if (owner) owner.removeAttribute("aria-describedby");
    owner = null;
    tip.hidden = true;
  };
  const explain = (element, text, describe) => {
    element.dataset.tip = text;
    element.setAttribute("tabindex", "0");
    describe(element);
    element.addEventListener("pointerenter", (event) => show(element, event.clientX, event.clientY));
    element.addEventListener("pointermove", (event) => { if (owner === element) place(event.clientX, event.clientY); });
    element.addEventListener("pointerleave", hide);
    element.addEventListener("focus", () => {
      const box = element.getBoundingClientRect();
      show(element, box.left + box.width / 2, box.bottom);
    });
    element.addEventListener("blur", hide);
  };
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  for (const word of all("abbr[title]")) {
    explain(word, word.title, (element) => element.removeAttribute("title"));
  }
  for (const title of all("figure svg g > title")) {
    const mark = title.parentElement, text = title.textContent;
    title.remove();   // or the browser shows its own beside ours
    mark.closest("svg").setAttribute("role", "group");
    explain(mark, text, (element) => {
      element.setAttribute("role", "img");
      element.setAttribute("aria-label", text);
    });
  }

  // A row and its mark light up together.
  for (const row of all("tr[data-mark]")) {
    const mark = document.getElementById(row.dataset.mark);
    if (!mark) continue;
    const light = (on) => { row.classList.toggle("lit", on); mark.classList.toggle("lit", on); };
    for (const element of [row, mark]) {
      for (const [event, on] of [["pointerenter", true], ["pointerleave", false], ["focus", true], ["blur", false]]) {
        element.addEventListener(event, () => light(on));
      }
    }
  }

  // What belongs together in a figure can be faded.
  for (const figure of all("figure")) {
    const layers = new Map();
    for (const part of all("[data-layer]", figure)) {
      const name = part.dataset.layer;
      layers.set(name, [...(layers.get(name) || []), part]);
    }
    if (layers.size < 2) continue;
    const bar = document.createElement("p");
    bar.className = "toggles";
    bar.setAttribute("role", "group");
    bar.setAttribute("aria-label", "Show in the chart");
    for (const [name, parts] of layers) {
      const toggle = document.createElement("button");
      toggle.type = "button";
      toggle.textContent = name.replaceAll("-", " ");
      toggle.setAttribute("aria-pressed", "true");
      toggle.addEventListener("click", () => {
        const on = toggle.getAttribute("aria-pressed") !== "true";
        toggle.setAttribute("aria-pressed", String(on));
        for (const part of parts) part.classList.toggle("off", !on);
      });
      bar.append(toggle);
    }
    figure.querySelector("figcaption").before(bar);
  }
})();
