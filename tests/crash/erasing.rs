//! Kills a daemon while it erases a conversation. Afterwards the conversation must either exist or be
//! deleted; if it is deleted, no file may contain its text.

use std::fs;

use serde_json::json;

use super::client::Client;
use super::home::{Daemon, Home};
use crate::carrying::files_below;
use crate::random::Random;
use crate::signs::Watched;

/// The daemon is killed after fewer changes on disk than this; an erasure makes fewer than this.
const CHANGES_OF_AN_ERASURE: usize = 100;

/// A conversation whose deletion with its transcripts was requested but not answered.
#[derive(Debug)]
pub(super) struct Doomed {
    id: String,
    /// A word that is in the title, in a setting stored as a separate file, and in the prompt, and nowhere
    /// else.
    word: String,
}

impl Doomed {
    /// Creates such a conversation, requests its deletion, and kills the daemon meanwhile.
    pub(super) fn of_killed(home: &Home, daemon: &mut Daemon, number: usize, random: &mut Random) -> Self {
        let mut client = Client::connect(&home.socket()).unwrap();
        let word = format!("doomed-{number}-word");
        let id = client.new_conversation(&json!({
            "agent": "loopback",
            "cwd": home.project(),
            "title": word,
            "settings": {"systemPrompt": format!("{word} ").repeat(1_000)},
        }));
        // The prompt may fail, because another client's prompt may kill the shared agent.
        let prompt = json!({"conversationId": id, "prompt": word, "requestId": word});
        drop(client.ask("conversation/prompt", &prompt).unwrap());
        let watched = Watched::below(home.path());
        let delete = json!({"conversationId": id, "transcripts": "delete"});
        client.send("conversation/delete", &delete).unwrap();
        daemon.kill_after(&watched, random.below(CHANGES_OF_AN_ERASURE));
        Self { id, word }
    }

    /// Checks that the conversation either exists or is deleted, and that no file contains its word once it
    /// is deleted. Returns whether it still existed.
    pub(super) fn verify(self, home: &Home, told: &str) -> bool {
        let mut client = Client::connect(&home.socket()).unwrap();
        let this = json!({"conversationId": self.id});
        let mut is_there = match client.ask("conversation/get", &this).unwrap() {
            Ok(view) => {
                assert_eq!(view["conversation"]["title"], self.word, "{told}");
                true
            }
            Err(error) => {
                assert_eq!(error["code"], 1001, "{told}: {error}");
                assert!(error["data"]["deletedAt"].is_string(), "{told}: {error}");
                false
            }
        };
        if is_there {
            let delete = json!({"conversationId": self.id, "transcripts": "delete"});
            let watched = Watched::below(home.path());
            match client.ask("conversation/delete", &delete).unwrap() {
                Ok(answer) => assert_eq!(answer, json!({}), "{told}"),
                // The daemon itself is finishing the deletion that it had begun.
                Err(error) => {
                    assert!(
                        [1001, 1003].contains(&error["code"].as_i64().unwrap()),
                        "{told}: {error}"
                    );
                    is_there = false;
                    watched.wait_for("the end of the deletion", || {
                        let view = client.ask("conversation/get", &this).unwrap();
                        view.err().filter(|error| error["data"]["deletedAt"].is_string())
                    });
                }
            }
        }
        if !is_there {
            // The store completes an erasure before it accepts the next change.
            client.new_conversation(&json!({"agent": "loopback", "cwd": home.project()}));
        }
        let word = self.word.as_bytes();
        for file in files_below(&home.data()) {
            // A deletion may leave a transcript if its agent had exited; the answer that says so was lost.
            let is_transcript = ["loopback", "kept"]
                .iter()
                .any(|name| file.starts_with(home.data().join(name)));
            // The agent may delete its files meanwhile.
            let text = fs::read(&file).unwrap_or_default();
            assert!(
                is_transcript && !is_there || !text.windows(word.len()).any(|part| part == word),
                "{told}: {} is in {}",
                self.word,
                file.display()
            );
        }
        is_there
    }
}
