// What is wider than its place can be moved with the arrow keys: it takes the focus. And while
// there is more of it at the right, its edge says so.
(function () {
  var wide = ".math, mjx-container, table, pre, .rcl-figure, .rcl-wide, .rcl-table > div, [data-frame]";
  function more(e) {
    e.toggleAttribute("data-beyond", e.scrollLeft + e.clientWidth < e.scrollWidth - 8);
  }
  function mark() {
    document.querySelectorAll("article :is(" + wide + ")").forEach(function (e) {
      var moves = e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "visible";
      if (moves && !e.hasAttribute("tabindex")) {
        e.tabIndex = 0;
        e.dataset.moves = "";
      } else if (!moves && "moves" in e.dataset) {
        e.removeAttribute("tabindex");
        delete e.dataset.moves;
      }
      if (!moves || e.matches("span, mjx-container")) return e.removeAttribute("data-beyond");
      more(e);
      e.onscroll = more.bind(null, e);
    });
  }
  window.addEventListener("load", function () {
    mark();
    document.querySelectorAll("summary[aria-label]").forEach(function (e) {
      e.removeAttribute("aria-label"); // what is read out is what is written there
    });
    if (window.MathJax && MathJax.startup) MathJax.startup.promise.then(mark);
  });
  window.addEventListener("resize", mark);
  document.addEventListener("click", function () {
    setTimeout(mark, 400); // something may have been unfolded
  });
})();
