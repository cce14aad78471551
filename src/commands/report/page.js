"use strict";
const form = document.getElementById("filter");
if (form) {
  const rows = Array.from(document.querySelectorAll("#journal tbody tr"));
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const shown = document.getElementById("shown");
  const apply = () => {
    const words = form.elements.words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const effects = form.elements.effects.checked;
    let count = 0;
    rows.forEach((row, at) => {
      const wanted = (!effects || row.className.includes("effect")) && words.every((word) => texts[at].includes(word));
      row.hidden = !wanted;
      count += wanted;
    });
    shown.textContent = count + " of " + rows.length;
  };
  form.hidden = false;
  form.addEventListener("input", apply);
  form.addEventListener("submit", (event) => event.preventDefault());
  apply();
}
