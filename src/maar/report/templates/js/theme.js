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

  function show(name) {
    if (name === "light" || name === "dark") root.dataset.theme = name;
    for (const button of document.querySelectorAll(".theme")) {
      button.setAttribute("aria-pressed", String(isDark()));
    }
    for (const listener of listeners) listener();
  }

  root.classList.add("js");
  show(stored());
  dark.addEventListener("change", () => show());
  document.addEventListener("DOMContentLoaded", () => {
    show();
    for (const button of document.querySelectorAll(".theme")) {
      button.addEventListener("click", () => {
        show(isDark() ? "light" : "dark");
        store(root.dataset.theme);
      });
    }
  });

  return {
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
