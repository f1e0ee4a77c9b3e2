// The lightbox: a picture's card, large, with the arrow keys for the one before and after.
"use strict";

(() => {
  const dialog = document.querySelector("dialog.lightbox");
  if (!dialog) return;
  const view = dialog.querySelector(".view");
  const count = dialog.querySelector(".count");
  let cards = [];
  let at = 0;

  function show(index) {
    at = (index + cards.length) % cards.length;
    view.replaceChildren(...[...cards[at].children].map((child) => child.cloneNode(true)));
    dialog.classList.toggle("single", view.querySelectorAll("img").length === 1);
    count.textContent = `${at + 1} of ${cards.length}`;
  }

  for (const gallery of document.querySelectorAll(".cards")) {
    const own = [...gallery.querySelectorAll(".gallery button")];
    for (const [index, card] of own.entries()) {
      card.addEventListener("click", () => {
        cards = own;
        show(index);
        dialog.showModal();
      });
    }
  }
  const steps = { ArrowLeft: () => at - 1, ArrowRight: () => at + 1, Home: () => 0, End: () => -1 };
  dialog.addEventListener("keydown", (event) => {
    if (!(event.key in steps)) return;
    event.preventDefault();
    show(steps[event.key]());
  });
  dialog.querySelector(".before").addEventListener("click", () => show(at - 1));
  dialog.querySelector(".after").addEventListener("click", () => show(at + 1));
  dialog.querySelector(".close").addEventListener("click", () => dialog.close());
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  // Esc and close give the focus back to the card last looked at, not to the first one.
  dialog.addEventListener("close", () => {
    const folded = cards[at].closest("details");
    if (folded) folded.open = true;
    cards[at].focus();
  });
})();
