/* What a number rests on, what a term means, where a value comes from: shown on hover and focus, and by a click that pins it.
   Without this file a badge still opens its card by a click, and titles are the browser's own. */
(() => {
  "use strict";

  const DELAY = 120; // ms a pointer must rest before a card opens, and may be away before it closes
  const GAP = 6; // px between a card and what it belongs to

  /** Put a card below what it belongs to, above where there is no room, always within the window. */
  function place(card, owner) {
    const box = owner.getBoundingClientRect();
    Object.assign(card.style, { position: "fixed", inset: "auto", margin: "0" });
    const { offsetWidth: width, offsetHeight: height } = card;
    const below = box.bottom + GAP + height <= window.innerHeight || box.top < height + GAP;
    card.style.left = `${Math.max(GAP, Math.min(box.left, document.documentElement.clientWidth - width - GAP))}px`;
    card.style.top = `${Math.max(GAP, below ? box.bottom + GAP : box.top - height - GAP)}px`;
  }

  /** Open on hover and keyboard focus; stay open while the pointer is on either of the two. */
  function onApproach(owner, trigger, card, open, close, pinned = () => false) {
    let timer;
    const later = (action) => {
      clearTimeout(timer);
      timer = setTimeout(action, DELAY);
    };
    for (const element of [owner, card()]) {
      if (!element) continue;
      element.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && later(element === owner ? open : () => {}));
      element.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && later(() => pinned() || close()));
    }
    trigger.addEventListener("focus", () => trigger.matches(":focus-visible") && open());
    trigger.addEventListener("blur", () => pinned() || close());
  }

  /** One card serves every mention of its number: card.owner is the button that opened it last, card.pinned whether by a click. */
  function badge(number) {
    const button = number.querySelector(".evidence-badge");
    const card = document.getElementById(button.getAttribute("popovertarget"));
    if (!card?.showPopover) return;
    const isMine = () => card.matches(":popover-open") && card.owner === button;
    const open = () => {
      if (isMine()) return;
      if (card.matches(":popover-open")) card.hidePopover();
      card.owner?.setAttribute("aria-expanded", "false"); // its own toggle event comes too late, or not at all
      Object.assign(card, { owner: button, pinned: false });
      card.showPopover();
      place(card, number);
      button.setAttribute("aria-expanded", "true");
    };
    const close = () => {
      if (isMine()) card.hidePopover();
      button.setAttribute("aria-expanded", "false");
    };
    button.setAttribute("aria-expanded", "false");
    button.setAttribute("aria-details", card.id);
    card.addEventListener("toggle", () => button.setAttribute("aria-expanded", String(isMine())));
    button.addEventListener("click", (event) => {
      event.preventDefault(); // the browser would close what hovering has just opened
      if (isMine() && card.pinned) return close();
      open();
      card.pinned = true;
    });
    onApproach(number, button, () => card, open, close, () => card.pinned || card.contains(document.activeElement));
  }

  const tip = document.createElement("div");
  tip.id = "term-card";
  tip.className = "term-card";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;

  function title(element) {
    const text = element.title;
    element.removeAttribute("title");
    const open = () => {
      tip.textContent = text;
      tip.hidden = false;
      tip.owner = element;
      element.setAttribute("aria-describedby", tip.id);
      place(tip, element);
    };
    const close = () => {
      element.removeAttribute("aria-describedby");
      if (tip.owner === element) tip.hidden = true;
    };
    onApproach(element, element, () => null, open, close);
  }

  document.querySelectorAll(".evidence-number").forEach(badge);
  const titled = document.querySelectorAll("a.term[title], a.sourced[title], .cite[title]");
  if (titled.length) document.body.append(tip);
  titled.forEach(title);
  document.addEventListener("keydown", (event) => event.key === "Escape" && (tip.hidden = true));

  /** Cards move with what they belong to, and go when it has left the window. */
  function follow() {
    for (const card of [tip, ...document.querySelectorAll(".evidence-card:popover-open")]) {
      if (card === tip && tip.hidden) continue;
      const box = card.owner?.getBoundingClientRect();
      if (box && box.bottom > 0 && box.top < window.innerHeight) place(card, card.owner);
      else if (card === tip) tip.hidden = true;
      else if (box) card.hidePopover();
    }
  }
  window.addEventListener("scroll", follow, { passive: true, capture: true }); // of wide tables too
  window.addEventListener("resize", follow, { passive: true });
})();
