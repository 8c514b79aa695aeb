// Uses the generated TypeScript client: creates a tenant, an endpoint and an event, and reads the delivery.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.d.ts";

const { SERVER_URL, POSTHASTE_KEY, RECEIVER_URL } = process.env;
assert(SERVER_URL && POSTHASTE_KEY && RECEIVER_URL);

const client = createClient<paths>({
  baseUrl: SERVER_URL,
  headers: { Authorization: `Bearer ${POSTHASTE_KEY}` },
});
const tenant = "typescript";

const created = await client.POST("/v1/tenants", { body: { id: tenant, name: "TypeScript" } });
assert.equal(created.data?.id, tenant);

const retryPolicy: components["schemas"]["RetryPolicy"] = {
  backoff: { kind: "exponential", base: "1s", factor: 2, cap: "1h" },
  jitter: { kind: "proportional", fraction: 0.2 },
  rules: [{ on: "404", then: "fail" }],
};
const endpoint = await client.POST("/v1/tenants/{tenant}/endpoints", {
  params: { path: { tenant } },
  body: { url: RECEIVER_URL, event_types: ["invoice.*"], retry_policy: retryPolicy, auth: { kind: "bearer", token: "t" } },
});
assert(endpoint.data, JSON.stringify(endpoint.error));
assert.match(endpoint.data.secret, /^whsec_/);

const event = await client.POST("/v1/tenants/{tenant}/events", {
  params: { path: { tenant } },
  body: { type: "invoice.paid", payload: { amount: 42 } },
});
const delivery = event.data?.deliveries[0].id;
assert(delivery, JSON.stringify(event.error));

let status: components["schemas"]["DeliveryStatus"] | undefined;
const end = Date.now() + 10_000;
while (status !== "succeeded" && Date.now() < end) {
  const read = await client.GET("/v1/tenants/{tenant}/deliveries/{delivery}", {
    params: { path: { tenant, delivery } },
  });
  status = read.data?.status;
}
assert.equal(status, "succeeded");

const refused = await client.POST("/v1/tenants/{tenant}/events", {
  params: { path: { tenant } },
  body: { type: "not a type", payload: null },
});
const code: components["schemas"]["ErrorCode"] | undefined = refused.error?.code;
assert.equal(code, "invalid");
console.log("TypeScript client: delivered", delivery);
