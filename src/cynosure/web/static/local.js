// The page without a server: `cynosure serve --export` puts this file in the place of api.js. Layers are
// run in the browser, in float64, and nothing that is found here is called proved.
import { followed, layer, local, softLayer } from "./hardmax.js";

export const isLocal = true;
const kept = fetch(new URL("./configurations.json", import.meta.url)).then((response) => response.json());
const none = (what) => { throw new Error(`${what} needs the server: pip install "cynosure[web]", then cynosure serve`); };

export async function get(path) {
  const { dynamics, tokens } = await kept, [name, query] = path.split("?");
  if (name === "configurations") return {};
  if (name === "dynamics") return dynamics;
  const found = tokens[decodeURIComponent(`${name.split("/")[1]}?${query}`)];
  return found || none(`${name.split("/")[1]}`);
}

function simulate({ tokens, alpha, A, layers = 30, dynamics }) {
  const spec = dynamics || { alpha, attention: { name: "hardmax", A } }, { name, beta = 1, A: form } = spec.attention, z = [tokens];
  for (let k = 0; k < layers; k++) z.push(name === "softmax" ? softLayer(z[k], spec.alpha, beta, form) : layer(z[k], spec.alpha, form));
  return { dynamics: "PureAttention", z, t: z.map((_, k) => k), in_time: false, status: { code: "done", message: "" } };
}

const told = (found) => ({ ...found, margin: found.born.map(() => null), words: found.follows.map((j, i) => (
  j === i ? `leads from layer ${found.born[i]} on` : j >= 0 ? `ends at leader ${j}` : "ends where no token leads")) });

export async function post(path, body) {
  if (path === "limit") return { ...told(local(body.tokens, body.alpha, body.A, body.max_layers)), followed: body.followed ? followed(body.tokens, body.A) : undefined };
  return path === "simulate" ? simulate(body) : none(path);
}

export const fetchFile = async (path) => none(path);
export const following = async (path) => none(path);
export const remove = async (path) => none(path);
