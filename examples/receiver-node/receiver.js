// Receives webhooks with Express: verifies the signature, and processes each webhook once, in a transaction of PostgreSQL.
//
//     npm install
//     WEBHOOK_SECRET=whsec_… DATABASE=postgres://postgres@127.0.0.1/postgres PORT=8421 node receiver.js
//
// WEBHOOK_SECRET may hold several secrets, separated by spaces, while the secret is rotated. CRASH=before-commit or
// CRASH=after-commit ends the process there, to see that nothing is lost or processed twice.

const express = require("express");
const { Pool } = require("pg");
const { Webhook, WebhookVerificationError } = require("standardwebhooks");

const MAX_BODY_BYTES = 1024 * 1024;
const MAX_CONNECTIONS = 5;
// For as long as posthaste can send a webhook again.
const REMEMBERED = "30 days";
const CRASH = process.env.CRASH;

const webhooks = process.env.WEBHOOK_SECRET.split(" ").map((secret) => new Webhook(secret));
const database = new Pool({ connectionString: process.env.DATABASE, max: MAX_CONNECTIONS });
// An idle connection was lost. The pool opens another one.
database.on("error", (error) => console.error(`the database failed: ${error.message}`));

async function prepare() {
  await database.query(`
    CREATE TABLE IF NOT EXISTS payments (webhook text NOT NULL, amount bigint NOT NULL);
    CREATE TABLE IF NOT EXISTS webhook_inbox (id text PRIMARY KEY, processed_at timestamptz NOT NULL DEFAULT now());
    CREATE INDEX IF NOT EXISTS webhook_inbox_processed_at ON webhook_inbox (processed_at);
    DELETE FROM webhook_inbox WHERE processed_at < now() - interval '${REMEMBERED}'`);
}

/** Returns the payload if one of the secrets signed it. `body` is what was sent, byte for byte: the signature covers these bytes. */
function verify(body, headers) {
  let failure;
  for (const webhook of webhooks) {
    try {
      // Also rejects a timestamp that is more than five minutes off, so that an old request cannot be sent again.
      return webhook.verify(body, headers);
    } catch (error) {
      failure = error;
    }
  }
  throw failure;
}

/** Processes a webhook once: the payment and the mark in the inbox are committed together. Returns what happened. */
async function processOnce(id, payload) {
  const client = await database.connect();
  let failure;
  try {
    await client.query("BEGIN");
    // A second attempt may arrive while the first is still in progress. The lock ends with the transaction.
    const lock = await client.query("SELECT pg_try_advisory_xact_lock(hashtextextended($1, 0)) AS locked", [id]);
    if (!lock.rows[0].locked) return "in progress";
    const mark = await client.query("INSERT INTO webhook_inbox (id) VALUES ($1) ON CONFLICT (id) DO NOTHING", [id]);
    if (mark.rowCount === 0) return "duplicate";
    await client.query("INSERT INTO payments (webhook, amount) VALUES ($1, $2)", [id, payload.amount]);
    if (CRASH === "before-commit") process.exit(1);
    await client.query("COMMIT");
    if (CRASH === "after-commit") process.exit(1);
    return "received";
  } catch (error) {
    failure = error;
    throw error;
  } finally {
    if (!failure) await client.query("ROLLBACK").catch((error) => (failure = error));
    // A connection with an error is closed, which also ends its transaction.
    client.release(failure);
  }
}

const app = express();

app.post("/hooks", express.raw({ type: () => true, limit: MAX_BODY_BYTES }), async (request, response) => {
  const id = request.headers["webhook-id"];
  let payload;
  try {
    payload = verify(request.body, request.headers);
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    console.log(`rejected: ${error.message}`);
    return response.status(401).end();
  }
  const outcome = await processOnce(id, payload);
  if (outcome === "in progress") return response.status(409).set("retry-after", "1").end();
  const details = outcome === "received" ? ` ${request.headers["posthaste-event-type"]} ${payload.amount}` : "";
  console.log(`${outcome} ${id}${details}`);
  response.status(200).end();
});

/** Shows what was processed: the number of payments and their sum. */
app.get("/payments", async (_request, response) => {
  const sums = await database.query("SELECT count(*)::int, coalesce(sum(amount), 0)::int AS sum FROM payments");
  response.json([sums.rows[0].count, sums.rows[0].sum]);
});

app.use((error, _request, response, _next) => {
  // A body that is too large has its own status. Everything else is 503: posthaste tries again later.
  if (error.status === 413) return response.status(413).end();
  console.error(error);
  response.status(503).set("retry-after", "1").end();
});

prepare().then(() => {
  const server = app.listen(Number(process.env.PORT ?? 8421), "127.0.0.1", () => {
    console.log(`listening on http://127.0.0.1:${server.address().port}`);
  });
});
