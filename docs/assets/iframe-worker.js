// Search runs in a worker, which pages that are opened as files may not start. Here a hidden frame
// takes the worker's place.
if (location.protocol === "file:") {
  window.IFrameWorker = window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inner = this.inner = frame.contentWindow;
      inner.postMessage = data => {
        const event = new MessageEvent("message", {data});
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const load = source => new Promise(done => {
        const script = inner.document.createElement("script");
        script.src = source;
        script.onload = done;
        inner.document.body.append(script);
      });
      inner.importScripts = (...sources) =>
        sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
      load(url).then(() => {
        const held = this.waiting;
        this.waiting = null;
        held.forEach(data => this.postMessage(data));
      });
    }
    postMessage(data) {
      if (this.waiting) this.waiting.push(data);
      else this.inner.dispatchEvent(new MessageEvent("message", {data}));
    }
    terminate() { this.inner.frameElement.remove(); }
  };
}
