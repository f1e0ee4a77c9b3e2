// The rest of the page: notes on hovering and focus, the place in the navigation.
"use strict";

(() => {
  // Titles become notes that the keyboard can reach too; without JavaScript they stay titles.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.id = "tip";
  tip.role = "tooltip";
  tip.hidden = true;
  document.body.append(tip);

  let current = null;
  function show(owner) {
    current = owner;
    tip.textContent = owner.dataset.tip;
    tip.hidden = false;
    owner.setAttribute("aria-describedby", "tip");
    const at = owner.getBoundingClientRect();
    const left = Math.min(at.left, innerWidth - tip.offsetWidth - 12);
    const isBelow = at.bottom + tip.offsetHeight + 12 < innerHeight;
    tip.style.left = `${Math.max(12, left)}px`;
    tip.style.top = `${isBelow ? at.bottom + 6 : at.top - tip.offsetHeight - 6}px`;
  }
  function hide() {
    current = null;
    tip.hidden = true;
  }
  // A page that is still coming to rest must not take away what the pointer is on.
  const follow = () => (current?.matches(":hover, :focus") ? show(current) : hide());

  for (const owner of document.querySelectorAll("main [title]")) {
    owner.dataset.tip = owner.title;
    owner.removeAttribute("title");
    for (const event of ["mouseenter", "focus"]) owner.addEventListener(event, () => show(owner));
    for (const event of ["mouseleave", "blur"]) owner.addEventListener(event, hide);
  }
  addEventListener("keydown", (event) => event.key === "Escape" && hide());
  addEventListener("scroll", follow, { passive: true, capture: true });

  const links = new Map(
    [...document.querySelectorAll(".bar nav a")].map((a) => [a.hash.slice(1), a]),
  );
  const seen = new IntersectionObserver(
    (entries) => {
      const entry = entries.find((one) => one.isIntersecting);
      if (!entry) return;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(entry.target.id)?.setAttribute("aria-current", "location");
    },
    { rootMargin: "-20% 0px -70% 0px" },
  );
  for (const section of document.querySelectorAll("main > section")) seen.observe(section);
})();
