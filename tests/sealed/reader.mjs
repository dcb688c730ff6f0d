// A reader of sealed conversations in another language, written from docs/format.md alone: node's own modules, nothing of this library.
//
//   node reader.mjs FOLDER        the key in 64 hex digits on standard input
//
// Prints one JSON object: what is sealed of the metadata and what is in sight of it, the messages that count, and each record. Whatever is not
// as the page says ends it with exit code 1 and one line that says what.

import { createDecipheriv, createHash, createHmac, hkdfSync, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const refuse = (what) => {
  throw new Error(what);
};
const requireThat = (holds, what) => holds || refuse(what);
const sha = (bytes) => createHash("sha256").update(bytes).digest("hex").slice(0, 32);
const hmac = (key, bytes) => createHmac("sha256", key).update(bytes).digest();

const HASH_BYTES = ',"hash":"0123456789abcdef0123456789abcdef"}'.length;
const CHECK = Buffer.from(',"check":"');
const PLAINTEXT_MEMBERS = new Set([
  "id", "created_at", "updated_at", "provider", "model", "compaction_count", "generation", "forked_from", "replaced", "seals", "gone",
]);

function unseal(key, text, place) {
  const bytes = Buffer.from(text, "base64");
  requireThat(bytes.toString("base64") === text && bytes.length >= 28, `${place}: not base64 of something sealed`);
  const cipher = createDecipheriv("aes-256-gcm", key, bytes.subarray(0, 12), { authTagLength: 16 });
  cipher.setAAD(Buffer.from(place, "ascii"));
  cipher.setAuthTag(bytes.subarray(-16));
  return Buffer.concat([cipher.update(bytes.subarray(12, -16)), cipher.final()]);
}

// A file that ends in `,"hash":"…"}` LF, over the bytes before it.
function hashed(path) {
  const bytes = readFileSync(path);
  const body = bytes.subarray(0, -HASH_BYTES - 1);
  requireThat(bytes.subarray(body.length).toString() === `,"hash":"${sha(body)}"}\n`, `${path}: its hash does not match`);
  return { body, members: JSON.parse(bytes.toString()) };
}

// true, false, or null if there is no check: over the bytes before `,"check":`.
function isGenuine(checkKey, body, members) {
  if (members.check === undefined) return null;
  const at = body.lastIndexOf(CHECK);
  return timingSafeEqual(hmac(checkKey, body.subarray(0, at)), Buffer.from(members.check, "hex"));
}

function read(folder, userKey) {
  // ---- the data key
  const keyFile = hashed(join(folder, "key.json")).members;
  requireThat(keyFile.format === "transcript-store-key" && keyFile.version === 1, "key.json: of another format or version");
  requireThat(keyFile.shredded_at === undefined, "key.json: the key was destroyed");
  const keyId = "aes-256-gcm:" + hmac(userKey, "transcript-store/1/key-id").toString("hex").slice(0, 16);
  requireThat(keyFile.key_id === keyId, "key.json: wrapped with another key");
  const dataKey = unseal(userKey, keyFile.wrapped, `transcript-store/1/key/${keyId}`);
  const checkKey = Buffer.from(hkdfSync("sha256", dataKey, Buffer.alloc(0), "transcript-store/1/check", 32));

  // ---- the lines, and the chain of their hashes
  const bytes = readFileSync(join(folder, "transcript.jsonl"));
  const lines = [];
  let head = "0".repeat(32);
  for (let start = 0, end; (end = bytes.indexOf(10, start)) >= 0; start = end + 1) {
    const body = bytes.subarray(start, end - HASH_BYTES);
    const next = sha(Buffer.concat([Buffer.from(head), body]));
    if (bytes.subarray(start + body.length, end).toString() !== `,"hash":"${next}"}`) break; // judged below, by the mark
    head = next;
    lines.push({ body, members: JSON.parse(bytes.subarray(start, end).toString()), head, offset: end + 1 });
  }
  requireThat(lines.length > 0, "transcript.jsonl: its first line is damaged");
  const { body: headerBody, members: header } = lines[0];
  requireThat(header.format === "transcript-store" && header.version === 1, "transcript.jsonl: of another format or version");
  const features = header.requires ?? [];
  requireThat(features.every((one) => one === "retract" || one === "sealed"), `a feature that this reader does not know: ${features}`);
  requireThat(features.includes("sealed"), "it is not sealed");
  requireThat(keyFile.conversation === header.conversation, "key.json: of another conversation");

  // ---- metadata.json, and who wrote it
  const { body: documentBody, members: document } = hashed(join(folder, "metadata.json"));
  requireThat(document.id === header.conversation, "metadata.json: of another conversation");
  const ofHeader = isGenuine(checkKey, headerBody, header);
  const ofDocument = isGenuine(checkKey, documentBody, document);
  requireThat(ofHeader !== false && ofDocument !== false, "not genuine: a check does not hold");
  const isOfThisGeneration = document.generation === header.generation;
  requireThat(document.generation <= header.generation, "metadata.json: of a later generation");
  const isGenuinelyOurs = isOfThisGeneration ? ofDocument === true && (ofHeader === true || document.mark !== null) : ofHeader === true;
  requireThat(isGenuinelyOurs, "it was repaired without its key");
  const shown = isOfThisGeneration ? document : header.metadata;
  const place = `transcript-store/1/metadata/${header.conversation}`;
  const metadata = JSON.parse(unseal(dataKey, shown.sealed, place).toString());
  for (const name of PLAINTEXT_MEMBERS) if (name in shown) metadata[name] = shown[name];

  // ---- the mark, the torn tail
  let records = lines.slice(1);
  const mark = isOfThisGeneration ? document.mark : null;
  const marked = mark === null ? 0 : mark.seq;
  requireThat(records.length >= marked, "damaged, or cut off, before the mark");
  if (mark !== null) requireThat(lines[marked].head === mark.head && lines[marked].offset === mark.offset, "rewritten before the mark");
  requireThat(records.length >= (header.begins_with ?? 0), "cut off: it began with more records");
  while (records.length) { // the last append may not be complete
    const [k, n] = records.at(-1).members.batch ?? [1, 1];
    if (k === n) break;
    records.pop();
  }

  // ---- the records
  let last = [-1, 0];
  const isAfter = (one, other) => one[0] > other[0] || (one[0] === other[0] && one[1] > other[1]);
  records = records.map(({ members: stored }, index) => {
    const seq = index + 1;
    requireThat(stored.seq === seq && typeof stored.sealed === "string", `record ${seq}: not genuine: it is plain, or numbered otherwise`);
    const isCopy = stored.sealed_at !== undefined;
    requireThat(!isCopy || seq <= (header.kept_sealed ?? 0), `record ${seq}: not genuine: no repair copied it`);
    const where = stored.sealed_at ?? [header.generation, seq];
    requireThat(isAfter(where, last), `record ${seq}: not genuine: it stands out of its order`);
    last = where;
    const recordPlace = `transcript-store/1/record/${header.conversation}/${where[0]}/${where[1]}/${stored.at}`;
    const members = JSON.parse(unseal(dataKey, stored.sealed, recordPlace).toString());
    const retracts = isCopy ? stored.retracts : members.retracts;
    requireThat(isCopy || JSON.stringify(members.retracts) === JSON.stringify(stored.retracts), `record ${seq}: not genuine: what it takes back`);
    return { seq, at: stored.at, ...members, ...(retracts === undefined ? {} : { retracts }) };
  });

  const takenBack = new Set();
  if (features.includes("retract"))
    for (const { retracts } of records)
      if (retracts?.length) for (let seq = retracts[0]; seq <= retracts[1]; seq++) takenBack.add(seq);
  const messages = records.filter((one) => one.message !== undefined && !takenBack.has(one.seq)).map((one) => one.message);
  return { metadata, messages, records };
}

try {
  const key = Buffer.from(readFileSync(0, "ascii").trim(), "hex");
  requireThat(key.length === 32, "a key is 64 hex digits");
  process.stdout.write(JSON.stringify(read(process.argv[2], key)) + "\n");
} catch (error) {
  process.stderr.write(`${error.message}\n`);
  process.exitCode = 1;
}
