"""One weight to play with: drag the data, watch what is believed. Plain script."""

from __future__ import annotations

import html
from collections.abc import Sequence

from IPython.display import display

from .page import FIGURE, Page, numbered, under
from .player import BUTTON

PLAYGROUND = """<figure class="rcl-play" id="rcl-one-weight" FIGURE>
<div style="display:flex;flex-wrap:wrap;gap:0.5em 1.5em">
<svg role="group" aria-label="Points that can be moved, and lines drawn from the belief"
 viewBox="0 0 320 240" style="flex:1 1 17em;max-width:24em" font-size="14" fill="currentColor">
<path d="M10 120H310M160 10V230" stroke="currentColor" opacity=".35"/>
<text x="300" y="136">x</text><text x="166" y="18">y</text>
<g data-lines></g><g data-points></g></svg>
<svg role="img" aria-label="Prior and posterior of the weight" viewBox="0 0 320 240"
 style="flex:1 1 17em;max-width:24em" font-size="14" fill="currentColor">
<path d="M10 215H310" stroke="currentColor"/><path data-prior fill="none" stroke="currentColor"
 stroke-dasharray="2 3"/><path data-belief fill="#0072B2" fill-opacity=".25" stroke="#0072B2"
 stroke-width="2"/><path d="M160 15V215" stroke="currentColor" opacity=".35"/>
<text x="164" y="26">0</text><text x="248" y="232">weight w</text>
<text x="14" y="190">dotted: prior</text></svg></div>
<div style="display:flex;flex-wrap:wrap;gap:0.5em 1em;align-items:center;margin-top:0.3em">
<button type="button" data-more STYLE>One more point</button>
<button type="button" data-fewer STYLE>One fewer</button>
<label>noise of a point <input type="range" min="0.2" max="2" step="0.1" value="0.7"></label>
<output aria-live="polite" style="flex:1 1 16em"></output></div>
CAPTION
<script>(function(){var b=document.getElementById("rcl-one-weight");if(!b||b.ready)return;
b.ready=1;var at=function(s){return b.querySelector(s)},NS="http://www.w3.org/2000/svg",
data=POINTS,n=START,g=at("[data-points]"),svg=g.ownerSVGElement,dots=[],r=at("input"),
z=[-1.6,-1,-.6,-.2,.2,.6,1,1.6];
function el(name,into){return into.appendChild(document.createElementNS(NS,name))}
var lines=z.map(function(){var l=el("path",at("[data-lines]"));
l.setAttribute("stroke","#0072B2");l.setAttribute("opacity",".55");return l});
function bell(m,s){for(var d="",i=0;i<=120;i++){var w=-2.5+i/24;
d+=(i?"L":"M")+(160+60*w).toFixed(1)+" "+(215-46*Math.exp(-.5*Math.pow((w-m)/s,2))/s/2.507
).toFixed(1)}return d}
function draw(){var s2=Math.pow(+r.value,2),p=1,q=0;
for(var i=0;i<n;i++){p+=data[i][0]*data[i][0]/s2;q+=data[i][0]*data[i][1]/s2}
var m=q/p,s=Math.sqrt(1/p),t=Math.abs(m)/s;
lines.forEach(function(l,k){var w=m+s*z[k];
l.setAttribute("d","M6 "+(120+w*61.6)+"L314 "+(120-w*61.6))});
at("[data-prior]").setAttribute("d",bell(0,1));at("[data-belief]").setAttribute("d",bell(m,s));
dots.forEach(function(c,k){var d=data[k];c.style.display=k<n?"":"none";
c.setAttribute("cx",160+70*d[0]);c.setAttribute("cy",120-28*d[1]);
c.setAttribute("aria-valuenow",d[1].toFixed(1));
c.setAttribute("aria-valuetext","x "+d[0].toFixed(1)+", y "+d[1].toFixed(1))});
at("output").textContent=n+" points: μ = "+m.toFixed(2)+", σ = "+s.toFixed(2)+
", SNR = "+t.toFixed(2)+(t<.1?", next to nothing":"")}
function move(k,x,y){data[k]=[Math.max(-2.1,Math.min(2.1,x)),Math.max(-3.9,Math.min(3.9,y))];draw()}
data.forEach(function(d,k){var c=el("circle",g),keep=function(e){if(e.buttons){
var o=svg.getBoundingClientRect(),f=320/o.width;
move(k,((e.clientX-o.left)*f-160)/70,(120-(e.clientY-o.top)*f)/28)}};dots.push(c);
[["r",9],["tabindex",0],["role","slider"],["aria-label","height of point "+(k+1)],
["aria-valuemin",-4],["aria-valuemax",4]].forEach(function(a){c.setAttribute(a[0],a[1])});
c.style.cssText="cursor:grab;touch-action:none;fill:currentColor";
c.addEventListener("pointerdown",function(e){c.setPointerCapture(e.pointerId);c.focus()});
c.addEventListener("pointermove",keep);
c.addEventListener("keydown",function(e){var s={ArrowLeft:[-.1,0],ArrowRight:[.1,0],
ArrowUp:[0,.2],ArrowDown:[0,-.2]}[e.key];if(s){e.preventDefault();
move(k,data[k][0]+s[0],data[k][1]+s[1])}})});
at("[data-more]").addEventListener("click",function(){n=Math.min(n+1,data.length);draw()});
at("[data-fewer]").addEventListener("click",function(){n=Math.max(n-1,0);draw()});
r.addEventListener("input",draw);draw()})()</script></figure>"""


def one_weight(points: Sequence[tuple[float, float]], start: int, caption: str) -> None:
    """y = w x plus noise, with points to drag; Tab chooses one, arrow keys move it."""
    words = numbered("Figure", caption, "drawing; the formulas above, computed in your browser")
    data = "[" + ",".join(f"[{x:.2f},{y:.2f}]" for x, y in points) + "]"
    code = PLAYGROUND.replace("FIGURE", FIGURE).replace("STYLE", BUTTON)
    code = code.replace("POINTS", data).replace("START", str(start))
    display(Page(code.replace("CAPTION", under(words)), f"[playground] {html.escape(words)}"))
