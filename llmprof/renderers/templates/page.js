"use strict";
(() => {
  const root = document.documentElement;
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

  for (const row of document.querySelectorAll("tr[data-mark]")) {
    const mark = document.getElementById(row.dataset.mark);
    if (!mark) continue;
    const light = (on) => { row.classList.toggle("lit", on); mark.classList.toggle("lit", on); };
    for (const element of [row, mark]) {
      element.addEventListener("pointerenter", () => light(true));
      element.addEventListener("pointerleave", () => light(false));
    }
    row.addEventListener("focus", () => light(true));
    row.addEventListener("blur", () => light(false));
  }
})();
