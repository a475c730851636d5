"use strict";

// Left and right go to the newer and the older neighbour, unless somebody is typing, selecting or scrolling cards.
document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.shiftKey || event.defaultPrevented) return;
  if (event.target instanceof Element && event.target.closest("input, select, textarea, .cards, .scroll")) return;
  const direction = { ArrowLeft: "prev", k: "prev", ArrowRight: "next", j: "next" }[event.key];
  const link = direction && document.querySelector(`a[rel="${direction}"]`);
  if (link) link.click();
});
