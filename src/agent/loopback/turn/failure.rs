//! Refusals and failures of the model's server, reported as Claude reports them.

use std::io;

use serde_json::json;
use uuid::Uuid;

use super::super::directive::FailKind;
use super::super::report;
use super::super::wire::RpcError;
use super::{Flow, Turn, TurnOutcome};

impl Turn<'_> {
    /// Refuses the prompt with a usage limit until `duration_ms` after it was first seen.
    pub(super) fn limit(&mut self, duration_ms: i64) -> io::Result<Flow> {
        let now_ms = jiff::Timestamp::now().as_millisecond();
        let first_ms = self
            .agent
            .persistent_state
            .first_seen_ms(&self.session.id, &self.message, now_ms)?;
        let ends_ms = first_ms.saturating_add(duration_ms);
        if now_ms >= ends_ms {
            return Ok(Flow::Continue(()));
        }
        // In whole seconds, rounded up, so that a client that waits that long is accepted.
        let resets_at = ends_ms.div_euclid(1_000) + i64::from(ends_ms.rem_euclid(1_000) > 0);
        let text = match jiff::Timestamp::from_second(resets_at) {
            Ok(at) => format!("You've hit your limit · resets {} (UTC)", at.strftime("%-I:%M%P")),
            Err(_) => "You've hit your limit".to_owned(),
        };
        let used = report::tokens(self.transcript.bytes());
        // The limit and its reset, in Claude's form and in the standard one.
        self.raw(
            &self.file_id,
            json!({
                "type": "rate_limit_event", "uuid": Uuid::new_v4(),
                "rate_limit_info": {
                    "status": "rejected", "resetsAt": resets_at, "rateLimitType": "five_hour",
                    "isUsingOverage": false,
                },
            }),
        );
        let meta = json!({ "_claude/rateLimit": { "status": "rejected", "resetsAt": resets_at } });
        report::usage(&self.agent.output, &self.session.id, used, &meta);
        self.refuse(&text, "rate_limit")
    }

    pub(super) fn fail(&mut self, kind: FailKind) -> io::Result<Flow> {
        match kind {
            FailKind::Overloaded => self.refuse(
                "API Error: 529 Overloaded. This is a server-side issue, usually temporary.",
                "server_error",
            ),
            FailKind::Network => self.refuse("API Error: Connection refused (ECONNREFUSED)", "server_error"),
            FailKind::Context => self.refuse("Prompt is too long", "invalid_request"),
            FailKind::Auth => {
                self.say_error("Invalid API key · Fix external API key")?;
                Ok(Flow::Break(TurnOutcome::Failed(RpcError::sign_in_needed())))
            }
        }
    }

    fn refuse(&mut self, text: &str, error_kind: &str) -> io::Result<Flow> {
        self.say_error(text)?;
        let error = RpcError::internal(text).with_data(json!({ "errorKind": error_kind }));
        Ok(Flow::Break(TurnOutcome::Failed(error)))
    }

    /// Writes an error to the transcript and sends it as a separate message.
    fn say_error(&mut self, text: &str) -> io::Result<()> {
        self.transcript.api_error(text)?;
        self.message_id = Uuid::new_v4().to_string();
        self.chunk(text);
        Ok(())
    }
}
