//! Tests with the real Qwen Code and a scripted model: what the daemon reads of its transcripts, and what a
//! resume of a damaged one sends. They check what the model received.
//!
//! npm installs the agent (about 250 MB, once), so a plain `cargo test` skips these tests.

// Clippy exempts only test functions, not the functions they call.
#![allow(clippy::expect_used)]

mod damage;

use std::fs;

use bridge_protocol::ConversationId;
use bridge_protocol::conversation::Settings;
use bridge_protocol::error::ErrorKind;
use bridge_protocol::link::{Fidelity, Via};

use crate::reading::{prompts, said};
use crate::support::model_server::Said;
use crate::support::qwen::{Qwen, QwenLab};

type Bridge = crate::bridge_of::Bridge<Qwen>;

impl Bridge {
    /// Returns `None` and prints the reason if the agent cannot be installed.
    fn start() -> Option<Bridge> {
        Some(Bridge::of(QwenLab::new()?, |_| {}))
    }

    /// The messages that the model received before a prompt.
    fn sent_before(&self, prompt: &str) -> Vec<Said> {
        let mut sent = self.lab.model.asked(prompt);
        sent.pop().expect("the prompt");
        sent
    }

    /// Checks that the history consists of what the model received before the last turn, and of that turn.
    fn tells_what_was_sent(&self, id: ConversationId, prompt: &str) {
        let told = said(&self.history(id));
        let sent = self.sent_before(prompt);
        assert_eq!(told[..sent.len()], sent, "before {prompt}");
        assert_eq!(told.len(), sent.len() + 2, "{told:?}");
    }
}

mod smoke {
    use super::*;

    /// The session is read, resumed after a restart, and restored from a backup. A move is refused, because
    /// the agent would refuse the session afterwards.
    #[test]
    #[ignore = "installs the real adapter"]
    fn a_session_of_qwen_code_is_read_resumed_and_restored() {
        let mut bridge = or_skip!(Bridge::start());
        let id = bridge.conversation(Settings::default());
        let note = bridge.lab.project().join("note.txt");
        let tool = format!(
            r#"second [[tool write_file {{"file_path":{:?},"content":"one"}}]] [[text written]]"#,
            note.to_str().expect("a path in UTF-8")
        );
        bridge.prompted(id, "the first words");
        bridge.prompted(id, &tool);
        assert_eq!(fs::read_to_string(&note).expect("the note"), "one");
        bridge.saved_until(id, &tool);
        bridge.stop_daemon();
        bridge.start_daemon();
        let resumed = bridge.prompted(id, "the third").resumed.expect("a resume");
        assert_eq!((resumed.fidelity, resumed.missing_turns), (Fidelity::Full, 0));
        bridge.saved_until(id, "the third");
        bridge.tells_what_was_sent(id, "the third");
        assert_eq!(
            prompts(&bridge.checkpoints(id)),
            ["the first words", &tool, "the third"]
        );
        let head = bridge.head(id);
        assert_eq!(bridge.found(&head), []);
        let listed = bridge.listed_of(&head);
        assert_eq!(
            (listed.title.as_str(), listed.cwd.as_str()),
            ("the first words", bridge.lab.project().to_str().expect("a path"))
        );

        // While an agent process has the session open, the move would be refused as busy.
        bridge.stop_daemon();
        bridge.start_daemon();
        let elsewhere = bridge.lab.scratch().join("elsewhere");
        fs::create_dir_all(&elsewhere).expect("a folder");
        let moved = bridge.move_to(id, &elsewhere);
        assert_eq!(moved.expect_err("a refusal").kind, ErrorKind::Unsupported);
        bridge.keep(id);
        let transcript = bridge.lab.transcript(&head).expect("the transcript");
        let whole = fs::read(&transcript).expect("the transcript");
        fs::remove_file(&transcript).expect("the transcript");
        let resumed = bridge.prompted(id, "the fourth").resumed.expect("a resume");
        assert_eq!((resumed.via, resumed.fidelity), (Via::Archive, Fidelity::Full));
        assert!(fs::read(&transcript).expect("the transcript").starts_with(&whole));
        bridge.saved_until(id, "the fourth");
        bridge.tells_what_was_sent(id, "the fourth");
        assert_eq!(bridge.foreign_writers(id), 0);
    }
}
