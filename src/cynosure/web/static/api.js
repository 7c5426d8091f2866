// Questions to the server. A problem becomes an Error that says what was expected and what came.

const BASE = "/api/v1/";
export const isLocal = false; // true in local.js, which has this place on a page without a server

async function answer(response) {
  if (response.ok) return response;
  let said = `the server answered ${response.status}`;
  try { said = (await response.json()).detail || said; } catch { /* not JSON: the status is all */ }
  const error = new Error(said);
  error.status = response.status;
  throw error;
}

async function reach(path, options) {
  let response;
  try { response = await fetch(BASE + path, options); }
  catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server cannot be reached; is `cynosure serve` still running?");
  }
  return answer(response);
}

export const get = async (path) => (await reach(path)).json();
export const remove = async (path) => (await reach(path, { method: "DELETE" })).json();
const sending = (body, signal) => ({
  method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal,
});
export const post = async (path, body, signal) => (await reach(path, sending(body, signal))).json();
export const fetchFile = async (path, body) => (await reach(path, sending(body))).blob();

// A question that says how far it is: a line of JSON for each step, the last has the answer.
export async function following(path, body, tell) {
  const how = sending(body);
  how.headers.Accept = "application/x-ndjson";
  const reader = (await reach(path, how)).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "", end = 0; ;) {
    const { value, done } = await reader.read();
    text += value || "";
    while ((end = text.indexOf("\n")) >= 0) {
      const said = JSON.parse(text.slice(0, end));
      text = text.slice(end + 1);
      if (said.answer) return said.answer;
      if (said.problem) throw new Error(said.problem.detail);
      tell(said);
    }
    if (done) throw new Error("the server ended before it answered");
  }
}
