// Keys, countdowns and the sign that the page is live. Every page works without it.
(() => {
  "use strict";

  const cards = () => [...document.querySelectorAll("[data-card]")];

  function moveFocus(step) {
    const all = cards();
    if (!all.length) return;
    const at = all.findIndex((card) => card.contains(document.activeElement));
    const next = all[Math.min(Math.max(at + step, 0), all.length - 1)];
    next.focus();
    next.scrollIntoView({ block: "nearest" });
  }

  // The key of an answer goes to the reason first: nobody approves by a slip of a finger.
  function beginAnswer(key) {
    const card = document.activeElement?.closest("[data-card]") ?? (cards().length === 1 ? cards()[0] : null);
    const button = card?.querySelector(`button[data-key="${key}"]`);
    if (!button) return;
    const reason = button.form.querySelector('input[name="reason"]');
    if (reason.value.trim()) button.form.requestSubmit(button);
    else {
      button.form.dataset.answer = key;
      reason.focus();
    }
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.matches("input:not([type=checkbox]):not([type=radio]), select, textarea");
    if (typing && event.key === "Enter" && event.target.form?.dataset.answer) {
      event.preventDefault();
      const button = event.target.form.querySelector(`button[data-key="${event.target.form.dataset.answer}"]`);
      event.target.form.requestSubmit(button);
      return;
    }
    if (event.key === "Escape" && typing) event.target.blur();
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "j") moveFocus(1);
    else if (event.key === "k") moveFocus(-1);
    else if (event.key === "a" || event.key === "d") beginAnswer(event.key);
    else return;
    event.preventDefault();
  });

  // Without an answer chosen by a key, Enter in the reason would press the first button, which is a yes.
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches(".decide") && form.querySelectorAll("button[name]").length > 1 && !event.submitter) {
      event.preventDefault();
    }
  });

  function showCountdowns() {
    for (const time of document.querySelectorAll("[data-countdown]")) {
      const left = Math.round(Number(time.dataset.countdown) - Date.now() / 1000);
      const text = left <= 0 ? "now" : left < 120 ? `in ${left} s` : left < 7200 ? `in ${Math.round(left / 60)} m` : `in ${Math.round(left / 3600)} h`;
      if (time.textContent !== text) time.textContent = text;
    }
  }
  setInterval(showCountdowns, 1000);

  function showLive(isLive) {
    const sign = document.getElementById("live-state");
    if (!sign) return;
    sign.textContent = isLive ? "live" : "not live";
    sign.classList.toggle("on", isLive);
    document.body.classList.toggle("stale", !isLive);
  }
  let wasLive = false;
  document.addEventListener("htmx:sse:after:connection", () => {
    if (wasLive) htmx.trigger("#stream", "changed");
    wasLive = true;
    showLive(true);
  });
  for (const name of ["htmx:sse:error", "htmx:sse:close"]) document.addEventListener(name, () => showLive(false));
})();
