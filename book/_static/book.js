// What is wider than its place can be moved with the arrow keys: it takes the focus. And while
// there is more of it at the right, its edge says so.
(function () {
  var wide = ".math, mjx-container, table, pre, .output, .rcl-figure, .rcl-wide, [data-frame], " +
    ".rcl-table > div";
  function more(e) {
    return e.scrollLeft + e.clientWidth < e.scrollWidth - 8;
  }
  function look(e) {
    var moves = e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).overflowX != "visible";
    return [e, moves, moves && !e.matches("span, mjx-container") && more(e)];
  }
  function mark() {
    // all is read before anything is written: else each element would be laid out anew
    [...document.querySelectorAll("article :is(" + wide + ")")].map(look).forEach(function (seen) {
      var e = seen[0];
      if (seen[1] && e.tabIndex < 0) { // the theme says -1 of what did not move a moment ago
        e.tabIndex = 0;
        e.dataset.moves = "";
      } else if (!seen[1] && "moves" in e.dataset) {
        e.removeAttribute("tabindex");
        delete e.dataset.moves;
      }
      e.toggleAttribute("data-beyond", seen[2]);
      e.onscroll = seen[1] ? function () { e.toggleAttribute("data-beyond", more(e)); } : null;
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
