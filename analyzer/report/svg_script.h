// SPDX-License-Identifier: Apache-2.0
#ifndef DSTRACE_ANALYZER_REPORT_SVG_SCRIPT_H_
#define DSTRACE_ANALYZER_REPORT_SVG_SCRIPT_H_

namespace dstrace::report {

// Zoom and search of the flame graph. Plain ES5 on the SVG's own elements.
inline constexpr char kSvgScript[] = R"js(
(function () {
  "use strict";
  var svg = document.documentElement;
  var left = +svg.getAttribute("data-x"), width = +svg.getAttribute("data-w");
  var character = +svg.getAttribute("data-c");
  var details = document.getElementById("details").firstChild;
  var found = document.getElementById("found").firstChild;
  var back = document.getElementById("back");
  var frames = [].map.call(document.querySelectorAll(".f"), function (g) {
    var rect = g.querySelector("rect");
    return {
      g: g, rect: rect, text: g.querySelector("text"),
      title: g.querySelector("title").textContent,
      x: (+rect.getAttribute("x") - left) / width,
      w: +rect.getAttribute("width") / width,
      depth: +g.getAttribute("data-d"), bytes: +g.getAttribute("data-b")
    };
  });
  function name(frame) { return frame.title.split("\n")[0]; }
  function label(frame, w) {
    var room = Math.floor((w - 6) / character), text = name(frame);
    if (room < 3) return "";
    return text.length <= room ? text : text.slice(0, room - 1) + "\u2026";
  }
  function zoom(to) {
    back.setAttribute("visibility", to.depth ? "visible" : "hidden");
    frames.forEach(function (f) {
      var tiny = 1e-9;
      var above = f.depth < to.depth && f.x <= to.x + tiny && f.x + f.w >= to.x + to.w - tiny;
      var inside = f.depth >= to.depth && f.x >= to.x - tiny && f.x + f.w <= to.x + to.w + tiny;
      f.g.style.display = above || inside ? "" : "none";
      f.g.classList.toggle("above", above);
      if (!above && !inside) return;
      var x = above ? left : left + (f.x - to.x) / to.w * width;
      var w = above ? width : f.w / to.w * width;
      f.rect.setAttribute("x", x);
      f.rect.setAttribute("width", w);
      f.text.setAttribute("x", x + 3);
      f.text.textContent = label(f, w);
    });
  }
  function bytes(n) {
    var units = ["B", "KiB", "MiB", "GiB", "TiB"], i = 0;
    for (; n >= 1024 && i < 4; ++i) n /= 1024;
    return n.toFixed(i === 0 ? 0 : i < 3 ? 1 : 2) + " " + units[i];
  }
  function search() {
    var term = window.prompt("Show frames that contain (or match /regex/):", "");
    if (term === null) return;
    var regex = /^\/(.*)\/$/.exec(term), test;
    try { test = regex ? new RegExp(regex[1]) : null; } catch (e) { return; }
    var sum = 0, last = null;
    frames.forEach(function (f) {
      var hit = term !== "" && (test ? test.test(name(f)) : name(f).indexOf(term) >= 0);
      f.g.classList.toggle("hit", hit);
      if (!hit) return;
      // Frames come parents first: one inside the last hit is counted already.
      if (last && f.depth > last.depth && f.x >= last.x - 1e-9 && f.x + f.w <= last.x + last.w + 1e-9) return;
      last = f;
      sum += f.bytes;
    });
    found.nodeValue = term === "" ? " " :
      "found " + bytes(sum) + ", " + (100 * sum / frames[0].bytes).toFixed(1) + " %";
  }
  frames.forEach(function (f) {
    f.g.addEventListener("click", function () { zoom(f); });
    f.g.addEventListener("mouseover", function () { details.nodeValue = f.title.replace("\n", "   "); });
    f.g.addEventListener("mouseout", function () { details.nodeValue = " "; });
  });
  if (!frames.length) return;
  back.addEventListener("click", function () { zoom(frames[0]); });
  document.getElementById("search").addEventListener("click", search);
  window.addEventListener("keydown", function (event) {
    if (event.key === "Escape") zoom(frames[0]);
    if ((event.ctrlKey || event.metaKey) && event.key === "f") { event.preventDefault(); search(); }
  });
})();
)js";

}  // namespace dstrace::report

#endif  // DSTRACE_ANALYZER_REPORT_SVG_SCRIPT_H_
