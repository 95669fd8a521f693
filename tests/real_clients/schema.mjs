// Checks the messages of an agent against the protocol's own schema:
// node schema.mjs AJV FOLDER MESSAGES
// FOLDER contains the schemas. MESSAGES is a file with one message per line: {"method": …, "message": …}. The method of
// a response is that of its request. Prints the messages that do not fit the schema.

import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [library, folder, messages] = process.argv.slice(2);
const { default: Ajv } = await import(pathToFileURL(library).href);

// The unstable schema is used only for methods that the stable one lacks.
const schemas = ["schema.json", "schema.unstable.json"].map((name) => {
  const document = JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
  const ajv = new Ajv({ strict: false, validateFormats: false }).addSchema(document, "acp");
  const find = (method, kind) =>
    Object.keys(document.$defs).find((name) => document.$defs[name]["x-method"] === method && name.endsWith(kind));
  return { ajv, find };
});

function misfit(method, kind, value) {
  for (const { ajv, find } of schemas) {
    const name = kind === "Error" ? kind : find(method, kind);
    if (name) {
      const validate = ajv.getSchema(`acp#/$defs/${name}`);
      return validate(value) ? undefined : `${name}: ${ajv.errorsText(validate.errors).slice(0, 2000)}`;
    }
  }
  // The protocol no longer has this method, but agents still do.
  return method === "session/set_model" ? undefined : `no ${kind} of ${method}`;
}

for (const line of readFileSync(messages, "utf8").trimEnd().split("\n")) {
  const { method, message } = JSON.parse(line);
  const [kind, value] =
    "method" in message
      ? ["id" in message ? "Request" : "Notification", message.params]
      : "error" in message
        ? ["Error", message.error]
        : ["Response", message.result];
  const why = message.jsonrpc === "2.0" ? misfit(method, kind, value) : "jsonrpc is not 2.0";
  if (why) console.log(`${why}\n  ${JSON.stringify(message)}`);
}
