// The search of pages that were opened from the disk, where browsers start no worker: a hidden frame runs its script.
(() => {
  if (location.protocol !== "file:") return;
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.inner = frame.contentWindow;
      window.addEventListener("message", ({ source, data }) => {
        if (source !== this.inner) return;
        const copy = new MessageEvent("message", { data });
        this.dispatchEvent(copy);
        this.onmessage?.(copy);
      });
      this.inner.document.open();
      this.loaded = new Promise((resolve) => { this.inner.addEventListener("load", resolve); });
      this.inner.document.write(
        '<script>postMessage = (data) => parent.postMessage(data, "*");' +
        "importScripts = (...urls) => urls.reduce((done, url) => done.then(() => new Promise((resolve) => {" +
        'const script = document.createElement("script"); script.src = url; script.onload = resolve;' +
        "document.body.append(script); })), Promise.resolve());</script>" +
        `<script src="${url}"></script>`
      );
      this.inner.document.close();
    }
    postMessage(data) {
      const copy = structuredClone(data); // as a worker gets it: what it changes is its own
      this.loaded.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data: copy })));
    }
    terminate() {
      this.inner.frameElement.remove();
    }
  };
})();
