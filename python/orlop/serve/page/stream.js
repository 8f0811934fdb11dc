// The API from the page's side: requests with the key, errors in words, server-sent events.

let key = "";
export const set_key = (value) => { key = value; };

export class ApiError extends Error {
  constructor(message, status, details = {}) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.details = details;
  }
}

// URLs are relative to the page, so that it works behind a proxy that adds a path in front.
export async function call(path, options = {}) {
  const headers = { ...options.headers };
  if (key) headers.Authorization = `Bearer ${key}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "same-origin" });
  } catch (error) {
    if (error.name === "AbortError" || error.name === "TimeoutError") throw error;
    throw new ApiError("The server cannot be reached. Is it still running?", 0);
  }
  if (!response.ok) throw await error_of(response);
  return response;
}

async function error_of(response) {
  let error = null;
  try {
    error = (await response.json()).error;
  } catch { /* not JSON: the status has to do */ }
  return to_error(error, response.status, response.headers.get("Retry-After"));
}

// An error in OpenAI's form, in words for a person.
export function to_error(error, status, retry_after = null) {
  const said = typeof error === "string" ? error : error?.message;
  if (status === 401)
    return new ApiError(key ? "The server does not accept this API key." : "The server asks for an API key.",
                        status, { said });
  if (status === 429 || status === 503) {
    const wait = retry_after && /^\d+$/.test(retry_after) ? ` Try again in ${retry_after} s.` : "";
    return new ApiError((said || "The server is busy.") + wait, status);
  }
  return new ApiError(said || `The server answered with status ${status}.`, status,
                      { param: error?.param, code: error?.code });
}

// The data of each server-sent event of a response. https://html.spec.whatwg.org/multipage/server-sent-events.html
export async function* events(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let data = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      rest += done ? decoder.decode() : decoder.decode(value, { stream: true });
      let from = 0;
      for (;;) {
        const end = line_end(rest, from, done);
        if (end < 0) break;
        const line = rest.slice(from, end);
        from = end + (rest[end] === "\r" && rest[end + 1] === "\n" ? 2 : 1);
        if (line === "") {
          if (data.length) yield data.join("\n");
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        }
      }
      rest = rest.slice(from);
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});  // whoever stops listening hangs up
  }
}

// Where the line that begins at `from` ends; -1: not there yet. A \r at the very end may be half a \r\n.
function line_end(text, from, last) {
  for (let i = from; i < text.length; ++i) {
    if (text[i] === "\n") return i;
    if (text[i] === "\r" && (last || i + 1 < text.length)) return i;
  }
  return -1;
}
