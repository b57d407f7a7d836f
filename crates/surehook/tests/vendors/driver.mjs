// Signs and verifies webhooks with the vendors' own Node libraries. driver.py describes the protocol.
//
// It is run with `node --input-type=module --eval`, in the folder that has node_modules.

import { createInterface } from "node:readline";
import { readFileSync } from "node:fs";
import { createPrivateKey, createSign, randomUUID } from "node:crypto";

import adyenApi from "@adyen/api-library";
import { LinearWebhookClient } from "@linear/sdk/webhooks";
import { signWebhookPayload, verifyWebhookSignature } from "@notionhq/client";
import { Webhooks as OctokitWebhooks } from "@octokit/webhooks";
import sendgridWebhook from "@sendgrid/eventwebhook";
import "@shopify/shopify-api/adapters/web-api";
import { ApiVersion, shopifyApi } from "@shopify/shopify-api";
import { getHmac } from "@shopify/shopify-api/test-helpers";
import bolt from "@slack/bolt";
import { AwsLambdaReceiver } from "@zoom/rivet/meetings";
import { verifyKey } from "discord-interactions";
import { Bot, webhookCallback } from "grammy";
import jwt from "jsonwebtoken";
import { WebhookSignatureValidator } from "mercadopago";
import { Webhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as SvixWebhook } from "svix";
import twilio from "twilio";

// Some libraries print messages; stdout is for responses only.
for (const level of ["log", "info", "debug", "warn"]) console[level] = () => {};

const seconds = (call) => String(call.now);

// ---- github --------------------------------------------------------------------------------------

const github = {
  library: "@octokit/webhooks",
  sign: async (call) => {
    const signature = await new OctokitWebhooks({ secret: call.secret }).sign(call.text);
    return { headers: { "x-hub-signature-256": signature } };
  },
  verify: (call) =>
    new OctokitWebhooks({ secret: call.secret }).verify(call.text, call.headers["x-hub-signature-256"]),
};

// ---- adyen ---------------------------------------------------------------------------------------
// Standard webhooks carry a signature in each item, the others one in a header.

const adyenValidator = new adyenApi.hmacValidator();

const adyen = {
  library: "@adyen/api-library",
  sign: (call) => ({ headers: { hmacsignature: adyenValidator.calculateHmac(call.text, call.secret) } }),
  verify: (call) => {
    const signature = call.headers.hmacsignature;
    if (signature !== undefined) return adyenValidator.validateHMACSignature(call.secret, signature, call.text);
    const items = JSON.parse(call.text).notificationItems;
    return items.every((item) => adyenValidator.validateHMAC(item.NotificationRequestItem, call.secret));
  },
};

// ---- notion --------------------------------------------------------------------------------------

const notion = {
  library: "@notionhq/client",
  sign: async (call) => {
    const signature = await signWebhookPayload({ body: call.text, verificationToken: call.secret });
    return { headers: { "x-notion-signature": signature } };
  },
  verify: (call) =>
    verifyWebhookSignature({
      body: call.text,
      signature: call.headers["x-notion-signature"],
      verificationToken: call.secret,
    }),
};

// ---- sendgrid ------------------------------------------------------------------------------------
// Its library only verifies; Node signs. `secret` is {"public_key"}, and "private_key" to sign with, both
// in base64.

const sendgrid = {
  library: "@sendgrid/eventwebhook",
  sign: (call) => {
    const key = createPrivateKey({
      key: Buffer.from(call.secret.private_key, "base64"),
      format: "der",
      type: "pkcs8",
    });
    const signature = createSign("sha256").update(seconds(call)).update(call.body).sign(key, "base64");
    return {
      headers: {
        "x-twilio-email-event-webhook-signature": signature,
        "x-twilio-email-event-webhook-timestamp": seconds(call),
      },
    };
  },
  verify: (call) => {
    const webhook = new sendgridWebhook.EventWebhook();
    return webhook.verifySignature(
      webhook.convertPublicKeyToECDSA(call.secret.public_key),
      call.text,
      call.headers["x-twilio-email-event-webhook-signature"],
      call.headers["x-twilio-email-event-webhook-timestamp"],
    );
  },
};

// ---- linear --------------------------------------------------------------------------------------

const linear = {
  library: "@linear/sdk",
  // Also requires `webhookTimestamp` in the body to be less than a minute old.
  verify: (call) => new LinearWebhookClient(call.secret).verify(call.body, call.headers["linear-signature"]),
};

// ---- shopify -------------------------------------------------------------------------------------

const shopify = {
  library: "@shopify/shopify-api",
  sign: (call) => ({ headers: { "x-shopify-hmac-sha256": getHmac(call.text, call.secret) } }),
  verify: async (call) => {
    const api = shopifyApi({
      apiKey: "key",
      apiSecretKey: call.secret,
      apiVersion: Object.values(ApiVersion).at(-1),
      hostName: "shop.example",
      isEmbeddedApp: false,
      logger: { log: () => {} },
    });
    const rawRequest = new Request(call.url, { method: "POST", headers: call.headers, body: call.body });
    const result = await api.webhooks.validate({ rawBody: call.text, rawRequest });
    if (!result.valid) throw new Error(`${result.reason} ${result.missingHeaders ?? ""}`);
    return true;
  },
};

// ---- slack ---------------------------------------------------------------------------------------

const slack = {
  library: "@slack/bolt",
  verify: (call) => {
    bolt.verifySlackRequest({ signingSecret: call.secret, body: call.text, headers: call.headers });
    return true;
  },
};

// ---- zoom ----------------------------------------------------------------------------------------

const zoom = {
  library: "@zoom/rivet",
  // Parses and re-serializes the body before signing, so only compact JSON without escapes works.
  verify: async (call) => {
    const receive = new AwsLambdaReceiver({ webhooksSecretToken: call.secret }).start();
    const answer = await receive({ body: call.text, headers: call.headers, isBase64Encoded: false }, {});
    if (answer.statusCode !== 200) throw new Error(answer.body);
    return true;
  },
};

// ---- discord -------------------------------------------------------------------------------------

// Its library only verifies, with the WebCrypto of Node, which also signs.

const discord = {
  library: "discord-interactions",
  sign: async (call) => {
    const hex = (text) => Buffer.from(text, "hex").toString("base64url");
    const jwk = { kty: "OKP", crv: "Ed25519", d: hex(call.secret.private_key), x: hex(call.secret.public_key) };
    const key = await crypto.subtle.importKey("jwk", jwk, { name: "Ed25519" }, false, ["sign"]);
    const message = Buffer.concat([Buffer.from(seconds(call)), call.body]);
    const signature = Buffer.from(await crypto.subtle.sign("Ed25519", key, message)).toString("hex");
    return { headers: { "x-signature-ed25519": signature, "x-signature-timestamp": seconds(call) } };
  },
  verify: (call) =>
    verifyKey(
      call.body,
      call.headers["x-signature-ed25519"],
      call.headers["x-signature-timestamp"],
      call.secret.public_key,
    ),
};

// ---- telegram ------------------------------------------------------------------------------------
// Telegram has no library of its own; this is a widely used one.

const telegram = {
  library: "grammy",
  verify: async (call) => {
    const botInfo = { id: 1, is_bot: true, first_name: "bot", username: "bot" };
    const bot = new Bot("1:token", { botInfo });
    let unauthorized = false;
    const adapter = () => ({
      update: Promise.resolve(JSON.parse(call.text)),
      header: call.headers["x-telegram-bot-api-secret-token"],
      end: () => {},
      respond: () => {},
      unauthorized: () => {
        unauthorized = true;
      },
    });
    await webhookCallback(bot, adapter, { secretToken: call.secret })();
    return !unauthorized;
  },
};

// ---- evolution api: a JWT as it makes them, and with the library it makes them with --------------

const evolution = {
  library: "jsonwebtoken",
  sign: (call) => {
    const claims = { iat: call.now, exp: call.now + 600, app: "evolution", action: "webhook" };
    return { headers: { authorization: `Bearer ${jwt.sign(claims, call.secret, { algorithm: "HS256" })}` } };
  },
  verify: (call) => {
    const token = call.headers.authorization.replace(/^Bearer /, "");
    return Boolean(jwt.verify(token, call.secret, { algorithms: ["HS256"] }));
  },
};

// ---- mercado pago --------------------------------------------------------------------------------

const mercadoPago = {
  library: "mercadopago",
  verify: (call) => {
    WebhookSignatureValidator.validate({
      xSignature: call.headers["x-signature"],
      xRequestId: call.headers["x-request-id"],
      dataId: new URL(call.url).searchParams.get("data.id"),
      secret: call.secret,
    });
    return true;
  },
};

// ---- standard webhooks and svix ------------------------------------------------------------------

const standard = (library, Library, prefix) => ({
  library,
  sign: (call) => {
    const id = `msg_${randomUUID().replaceAll("-", "")}`;
    const signature = new Library(call.secret).sign(id, new Date(call.now * 1000), call.text);
    return {
      headers: { [`${prefix}-id`]: id, [`${prefix}-timestamp`]: seconds(call), [`${prefix}-signature`]: signature },
    };
  },
  verify: (call) => {
    new Library(call.secret).verify(call.text, call.headers);
    return true;
  },
});

// ---- stripe --------------------------------------------------------------------------------------

const stripe = {
  library: "stripe",
  sign: (call) => {
    const header = Stripe.webhooks.generateTestHeaderString({
      payload: call.text,
      secret: call.secret,
      timestamp: call.now,
    });
    return { headers: { "stripe-signature": header } };
  },
  verify: (call) => Boolean(Stripe.webhooks.constructEvent(call.body, call.headers["stripe-signature"], call.secret)),
};

// ---- twilio --------------------------------------------------------------------------------------

const form = (text) => {
  const params = new URLSearchParams(text);
  const entry = (name) => {
    const values = params.getAll(name);
    return [name, values.length === 1 ? values[0] : values];
  };
  return Object.fromEntries([...new Set(params.keys())].map(entry));
};

const isForm = (call) => (call.headers["content-type"] ?? "").startsWith("application/x-www-form-urlencoded");

const twilioVendor = {
  library: "twilio",
  sign: (call) => {
    if (isForm(call)) {
      const signature = twilio.getExpectedTwilioSignature(call.secret, call.url, form(call.text));
      return { headers: { "x-twilio-signature": signature } };
    }
    // The body is covered by its hash in the URL.
    const url = `${call.url}${call.url.includes("?") ? "&" : "?"}bodySHA256=${twilio.getExpectedBodyHash(call.text)}`;
    return { headers: { "x-twilio-signature": twilio.getExpectedTwilioSignature(call.secret, url, {}) }, url };
  },
  verify: (call) => {
    const signature = call.headers["x-twilio-signature"];
    return isForm(call)
      ? twilio.validateRequest(call.secret, signature, call.url, form(call.text))
      : twilio.validateRequestWithBody(call.secret, signature, call.url, call.text);
  },
};

// ---- one line at a time --------------------------------------------------------------------------

const vendors = {
  adyen,
  discord,
  "evolution-api": evolution,
  github,
  linear,
  "mercado-pago": mercadoPago,
  notion,
  sendgrid,
  shopify,
  slack,
  "standard-webhooks": standard("standardwebhooks", Webhook, "webhook"),
  stripe,
  svix: standard("svix", SvixWebhook, "svix"),
  telegram,
  twilio: twilioVendor,
  zoom,
};

const version = (library) => JSON.parse(readFileSync(`${process.cwd()}/node_modules/${library}/package.json`)).version;

const listed = () =>
  Object.entries(vendors).map(([vendor, { library, sign }]) => ({
    vendor,
    library,
    version: version(library),
    signs: sign !== undefined,
  }));

const answer = async (fields) => {
  if (fields.op === "list") return { libraries: listed() };
  const vendor = vendors[fields.vendor];
  const body = Buffer.from(fields.body_base64, "base64");
  const call = { headers: {}, url: "", ...fields, body, text: body.toString("utf8") };
  if (fields.op === "verify") {
    // A library rejects a webhook by throwing.
    try {
      return { ok: Boolean(await vendor.verify(call)), error: null };
    } catch (error) {
      return { ok: false, error: String(error) };
    }
  }
  if (vendor.sign === undefined) return { unsupported: `${vendor.library} only verifies` };
  return vendor.sign(call);
};

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
