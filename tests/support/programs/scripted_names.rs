//! Names that the scripted agent and the tests that configure it share.

/// The environment variable with the path of the agent's log.
pub(crate) const LOG: &str = "SCRIPTED_AGENT_LOG";

/// The environment variable with the agent's capabilities as JSON; optional.
pub(crate) const CAPABILITIES: &str = "SCRIPTED_AGENT_CAPABILITIES";

/// A file in the test's home. If it exists when the agent receives `session/load`, the agent deletes it and
/// exits.
pub(crate) const CRASH_ON_LOAD: &str = "crash-on-load";

/// A file in the test's home with an error. While it exists, the agent answers `session/load` with this
/// error.
pub(crate) const REFUSE_LOAD: &str = "refuse-load";

/// A file in the test's home with a path. While no file exists at that path, the agent answers `session/load`
/// that it does not know the session.
pub(crate) const LOAD_NEEDS: &str = "load-needs";

/// A file in the test's home. While it exists, the agent does not answer `session/load`.
pub(crate) const SILENT_ON_LOAD: &str = "silent-on-load";

/// A file in the test's home with a process id. While that process lives, the agent refuses to open a
/// session, as Codex does while another process has the session open.
pub(crate) const HELD_BY: &str = "held-by";

/// The error that Codex returns for a session to which another process writes.
pub(crate) const HELD: &str =
    r#"{"code":-32600,"message":"Invalid request","data":{"reason":"thread_active_writer"}}"#;

/// A file in the test's home with an error. While it exists, the agent answers `session/new` with this error.
pub(crate) const REFUSE_NEW: &str = "refuse-new";

/// A file in the test's home with the agent's answers to requests that open a session or change a setting, as
/// JSON. A key is the method with what is set (`session/set_mode full`, `session/set_config_option
/// fast=true`), or the method alone. `result` or `error` is the answer; the updates in `before` and `after`
/// are sent before and after it. With `silent`, the request is not answered.
pub(crate) const ANSWERS: &str = "answers.json";

/// A file in the test's home with an id as JSON. While it exists, the agent gives this id to each new
/// session.
pub(crate) const NEXT_SESSION: &str = "next-session";

/// A file in the test's home with a script. While it exists, the agent plays it before it answers
/// `session/new`, `session/load` or `session/resume`.
pub(crate) const BEFORE_OPENING: &str = "before-opening";
