"use strict";
// Sends a form's request and shows the response as it arrives, so that streams can be watched, too.
const token = document.getElementById("token");
token.value = sessionStorage.getItem("token") || "";
token.addEventListener("input", () => sessionStorage.setItem("token", token.value));

function request(form) {
  const values = new FormData(form);
  const query = new URLSearchParams();
  const headers = {};
  let path = form.dataset.path;
  for (const field of form.querySelectorAll("[data-in]")) {
    const value = values.get(field.name);
    if (field.dataset.in === "path") path = path.replace(`{${field.dataset.name}}`, encodeURIComponent(value));
    else if (value && field.dataset.in === "query") query.set(field.dataset.name, value);
    else if (value) headers[field.dataset.name] = value;
  }
  if (token.value) headers.Authorization = `Bearer ${token.value}`;
  const body = values.get("body");
  if (body) headers["Content-Type"] = form.dataset.media;
  const url = document.body.dataset.prefix + path + (query.size ? `?${query}` : "");
  return [url, { method: form.dataset.method, headers, body: body || undefined }];
}

function pretty(text, media) {
  if (!media.includes("json")) return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; }
}

async function send(form) {
  const shown = form.querySelector("output pre");
  const stop = new AbortController();
  form.stop?.abort();
  form.stop = stop;
  const begun = performance.now();
  const [url, options] = request(form);
  try {
    const answer = await fetch(url, { ...options, signal: stop.signal });
    const head = `${answer.status} ${answer.statusText} · ${Math.round(performance.now() - begun)} ms\n` +
      [...answer.headers].map(([name, value]) => `${name}: ${value}`).join("\n") + "\n\n";
    const media = answer.headers.get("content-type") || "";
    let text = "";
    const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
    for (let part = await reader?.read(); part && !part.done; part = await reader.read()) {
      text += part.value;
      if (media.includes("event-stream")) shown.textContent = head + text;
    }
    shown.textContent = head + pretty(text, media);
  } catch (error) {
    shown.textContent += `\n${error}`;
  }
}

for (const form of document.querySelectorAll("form")) {
  form.addEventListener("submit", (event) => { event.preventDefault(); send(form); });
}
