// What is wider than its place can be moved with the arrow keys: it takes the focus.
(function () {
  var wide = ".math, mjx-container, table, pre, .rcl-figure, .rcl-wide, [data-frame]";
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
    });
  }
  window.addEventListener("load", function () {
    mark();
    if (window.MathJax && MathJax.startup) MathJax.startup.promise.then(mark);
  });
  window.addEventListener("resize", mark);
  document.addEventListener("click", function () {
    setTimeout(mark, 400); // something may have been unfolded
  });
})();
