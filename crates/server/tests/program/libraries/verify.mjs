// Verifies requests as a receiver written in JavaScript would.
//
// Reads a list of {"with", "secret", "headers", "body"} from standard input, the body in base64, and
// writes a list of true and false. Only a library's own refusal counts as false: anything else it
// throws ends the program, and the test with it.
//
// The libraries lie in the folder that is given as the first argument.

import crypto from "node:crypto";
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const folder = path.resolve(process.argv[2]);
const require = createRequire(path.join(folder, "package.json"));
const { Webhook, WebhookVerificationError } = require("standardwebhooks");
const Stripe = require("stripe").default ?? require("stripe");
const octokit = await import(
  pathToFileURL(
    path.join(folder, "node_modules/@octokit/webhooks-methods/dist-node/index.js"),
  ).href
);

function standardwebhooks(secret, headers, body) {
  try {
    new Webhook(secret).verify(body.toString(), headers, { jsonParse: false });
    return true;
  } catch (error) {
    if (error instanceof WebhookVerificationError) return false;
    throw error;
  }
}

function signedContent(headers, body) {
  const head = `${headers["webhook-id"]}.${headers["webhook-timestamp"]}.`;
  return Buffer.concat([Buffer.from(head), body]);
}

function signatures(headers, version) {
  return headers["webhook-signature"]
    .split(" ")
    .map((pair) => pair.split(","))
    .filter(([name]) => name === version)
    .map(([, text]) => Buffer.from(text, "base64"));
}

// The specification by hand, for bodies that are no text: the libraries take text only.
function hmac(secret, headers, body) {
  const key = Buffer.from(secret.replace(/^whsec_/, ""), "base64");
  const expected = crypto
    .createHmac("sha256", key)
    .update(signedContent(headers, body))
    .digest();
  return signatures(headers, "v1").some(
    (given) => given.length === expected.length && crypto.timingSafeEqual(given, expected),
  );
}

// The specification by hand: no official library speaks v1a.
function ed25519(publicKey, headers, body) {
  const x = Buffer.from(publicKey.replace(/^whpk_/, ""), "base64").toString("base64url");
  const key = crypto.createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x }, format: "jwk" });
  const content = signedContent(headers, body);
  return signatures(headers, "v1a").some((given) => crypto.verify(null, content, key, given));
}

function stripe(secret, headers, body) {
  try {
    // The key is for calls to Stripe, of which there are none.
    new Stripe("sk_test_unused").webhooks.constructEvent(body, headers["stripe-signature"], secret);
    return true;
  } catch (error) {
    if (error.type === "StripeSignatureVerificationError") return false;
    throw error;
  }
}

function github(secret, headers, body) {
  return octokit.verify(secret, body.toString(), headers["x-hub-signature-256"]);
}

const verifiers = { standardwebhooks, hmac, ed25519, stripe, github };
const verdicts = [];
for (const check of JSON.parse(fs.readFileSync(0, "utf8"))) {
  const body = Buffer.from(check.body, "base64");
  verdicts.push(await verifiers[check.with](check.secret, check.headers, body));
}
console.log(JSON.stringify(verdicts));
