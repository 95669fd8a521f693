// Prints what the vendor's own library reads from the transcripts below CLAUDE_CONFIG_DIR, as one JSON object.
// node sdk.mjs LIBRARY all              -> {sessions, messages: {id: [...]}, subagents: {id: [...]}}
// node sdk.mjs LIBRARY rename ID TITLE  -> {}; gives the session this title
// node sdk.mjs LIBRARY fork ID UUID     -> {sessionId} of a fork up to and including this record

import { pathToFileURL } from "node:url";

const [library, command, id, what] = process.argv.slice(2);
const sdk = await import(pathToFileURL(library).href);
const told = {};
if (command === "rename") {
  await sdk.renameSession(id, what);
} else if (command === "fork") {
  told.sessionId = (await sdk.forkSession(id, { upToMessageId: what })).sessionId;
} else {
  told.sessions = await sdk.listSessions();
  told.messages = {};
  told.subagents = {};
  for (const { sessionId } of told.sessions) {
    told.messages[sessionId] = await sdk.getSessionMessages(sessionId);
    told.subagents[sessionId] = await sdk.listSubagents(sessionId);
  }
}
console.log(JSON.stringify(told));
