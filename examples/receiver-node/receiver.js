// Receives webhooks: verifies the signature, then processes each webhook-id once.
//
//     npm install
//     WEBHOOK_SECRET=whsec_… PORT=8421 node receiver.js

const http = require("node:http");
const { Webhook, WebhookVerificationError } = require("standardwebhooks");

const MAX_BODY_BYTES = 1024 * 1024;
const MAX_REMEMBERED_IDS = 100_000;

const webhook = new Webhook(process.env.WEBHOOK_SECRET);
// In production: a table with a unique column, written in the same transaction as the effect of the event.
const processedIds = new Set();

/** Returns the body as it was sent. The signature covers these bytes: parsed and serialised again they would differ. */
async function readBody(request) {
  const chunks = [];
  let size = 0;
  for await (const chunk of request) {
    size += chunk.length;
    if (size > MAX_BODY_BYTES) return null;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString("utf8");
}

/** Handles one webhook and returns the status code. */
async function receive(request) {
  const body = await readBody(request);
  if (body === null) return 413;
  let payload;
  try {
    // Also rejects a timestamp that is more than five minutes off, so that an old request cannot be sent again.
    payload = webhook.verify(body, request.headers);
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    console.log(`rejected: ${error.message}`);
    return 401;
  }
  const id = request.headers["webhook-id"];
  // Deliveries arrive at least once: after a lost response, or by a replay, the same webhook-id comes again.
  if (processedIds.has(id)) {
    console.log(`duplicate ${id}`);
    return 204;
  }
  console.log(`received ${id} ${request.headers["posthaste-event-type"]} ${JSON.stringify(payload)}`);
  processedIds.add(id);
  if (processedIds.size > MAX_REMEMBERED_IDS) processedIds.delete(processedIds.values().next().value);
  return 204;
}

const server = http.createServer((request, response) => {
  receive(request)
    .catch((error) => {
      // 5xx: posthaste tries again later.
      console.error(error);
      return 500;
    })
    .then((status) => response.writeHead(status).end());
});
server.listen(Number(process.env.PORT ?? 8421), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
