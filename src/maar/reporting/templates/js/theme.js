// Light, dark, or what the system says: kept in the page's root, remembered where that is allowed.
"use strict";

const theme = (() => {
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const listeners = [];

  const stored = () => {
    try {
      return localStorage.getItem("maar-theme");
    } catch {
      return null; // storage is closed to this page: then nothing is remembered
    }
  };
  const store = (name) => {
    try {
      localStorage.setItem("maar-theme", name);
    } catch {
      // as above
    }
  };

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);

  function changed() {
    document.querySelector(".theme").setAttribute("aria-pressed", String(isDark()));
    for (const listener of listeners) listener();
  }

  root.classList.add("js");
  if (["light", "dark"].includes(stored())) root.dataset.theme = stored();
  dark.addEventListener("change", changed);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector(".theme");
    button.setAttribute("aria-pressed", String(isDark()));
    button.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      store(root.dataset.theme);
      changed();
    });
  });

  // Paper is light, whatever the screen is.
  let isPrinting = false;
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    isPrinting = true;
    changed();
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    isPrinting = false;
    changed();
  });

  return {
    isPrinting: () => isPrinting,
    onChange: (listener) => listeners.push(listener),
    // The value that a custom colour has now. The browser resolves it, as a script cannot.
    colour(name) {
      const probe = document.createElement("i");
      probe.style.color = `var(--${name})`;
      document.body.append(probe);
      const value = getComputedStyle(probe).color;
      probe.remove();
      return value;
    },
  };
})();
