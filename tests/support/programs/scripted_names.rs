//! What the scripted agent and the tests that configure it agree on.

/// The variable with the path of the log.
pub(crate) const LOG: &str = "SCRIPTED_AGENT_LOG";

/// The variable with its capabilities as JSON; optional.
pub(crate) const CAPABILITIES: &str = "SCRIPTED_AGENT_CAPABILITIES";

/// A file in the home of the test, at whose sight the agent dies once instead of loading a session.
pub(crate) const CRASH_ON_LOAD: &str = "crash-on-load";

/// A file in the home of the test with the error that the agent answers to `session/load` while it is there.
pub(crate) const REFUSE_LOAD: &str = "refuse-load";

/// A file in the home of the test with a path. While there is no file at that path, the agent answers to `session/load` that it
/// does not know the session.
pub(crate) const LOAD_NEEDS: &str = "load-needs";

/// A file in the home of the test. While it is there, the agent does not answer `session/load`.
pub(crate) const SILENT_ON_LOAD: &str = "silent-on-load";

/// A file in the home of the test with the id of a process. While that lives the agent opens no session: as
/// Codex does not open what another process still holds.
pub(crate) const HELD_BY: &str = "held-by";

/// What Codex answers for a session that somebody else writes to.
pub(crate) const HELD: &str =
    r#"{"code":-32600,"message":"Invalid request","data":{"reason":"thread_active_writer"}}"#;

/// A file in the home of the test with the error that the agent answers to `session/new` while it is there.
pub(crate) const REFUSE_NEW: &str = "refuse-new";

/// A file in the home of the test with what the agent answers to requests that open a session or set something, as JSON: by the
/// method and what is set (`session/set_mode full`, `session/set_config_option fast=true`), or by the method alone. `result` or
/// `error` is the answer; the updates in `before` and `after` are sent around it.
pub(crate) const ANSWERS: &str = "answers.json";

/// A file in the home of the test with the id, as JSON, that the agent gives to each new session while it is
/// there.
pub(crate) const NEXT_SESSION: &str = "next-session";

/// A file in the home of the test with a script that the agent plays before it answers `session/new`, `session/load` or
/// `session/resume`, while it is there.
pub(crate) const BEFORE_OPENING: &str = "before-opening";
