// Uses openapi-fetch with the types that openapi-typescript generated from docs/openapi.json.
//
// Lists destinations, sends the README's message and reads events; prints what it got, a line each.

import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };
const [baseUrl, token] = process.argv.slice(2);

// Lists can also be exported as CSV; this client reads JSON.
type Json = "application/json" | "application/problem+json";

function client(token: string | undefined) {
  return createClient<paths, Json>({ baseUrl, headers: { authorization: `Bearer ${token}` } });
}

const api = client(token);

const destinations = await api.GET("/api/v1/destinations");
console.log("destinations:", ...(destinations.data?.data.map((destination) => destination.name) ?? []));

const send = () =>
  api.POST("/api/v1/messages", {
    params: { header: { "Idempotency-Key": "order-7" } },
    body: { destination: "whatsapp", to: "+5511987654321", text: "Hello" },
  });
const accepted = await send();
const repeated = await send();
console.log("message sent once:", accepted.data !== undefined && accepted.data.id === repeated.data?.id);

const events = await api.GET("/api/v1/events", { params: { query: { source: "outbox" } } });
console.log("events:", ...(events.data?.data.map((event) => event.id === accepted.data?.id) ?? []));

const refused = await client("wrong").GET("/api/v1/destinations");
console.log("problem:", refused.error?.code);
