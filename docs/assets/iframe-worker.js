// A worker in a frame, for pages opened as files, where browsers refuse workers; the theme's search runs in it.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.waiting = []
      this.frame = document.body.appendChild(Object.assign(document.createElement("iframe"), { hidden: true }))
      const inside = this.frame.contentDocument
      const load = "importScripts = (...urls) => urls.reduce((before, url) => before.then(() => new Promise(done => {" +
        "const script = document.createElement('script'); script.src = url; script.onload = done;" +
        "document.body.appendChild(script) })), Promise.resolve()); postMessage = parent.postMessage.bind(parent)"
      inside.open()
      inside.write(`<body><script>${load}<\/script><script src="${url}"><\/script></body>`)
      inside.close()
      window.addEventListener("message", event => {
        if (event.source === this.frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data: event.data }))
      })
      this.frame.onload = () => { this.ready = true; this.waiting.splice(0).forEach(data => this.postMessage(data)) }
    }
    postMessage(data) {
      if (this.ready) this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }))
      else this.waiting.push(data)
    }
    terminate() { this.frame.remove() }
  }
}
