//! Rounds with a daemon and an agent on a disk that is filled and freed at random moments. Each round ends
//! with a kill. Everything acknowledged must exist afterwards, and refused changes must not have been made.

use serde_json::{Value, json};

use super::client::Client;
use super::home::Home;
use super::room::Disk;
use super::rounds::number_from;
use crate::random::Random;

/// Number of rounds unless `CRASH_ROUNDS` is set; few enough for the normal test run.
const ROUNDS: u64 = 4;

/// Number of steps in a round.
const STEPS: usize = 14;

/// After this many steps, some step has certainly found the disk full.
const FULL_STEPS: usize = 500;

/// Number of conversations that are used at a time.
const ACTIVE: usize = 3;

/// Errors that are allowed while the disk is full: busy, agent unavailable, agent error, not resumable,
/// conflict, store failed.
const EXPECTED_ERRORS: [i64; 6] = [1003, 1006, 1007, 1011, 1012, 1015];

/// What the client knows of a conversation.
#[derive(Clone, Default)]
struct Expected {
    id: String,
    title: String,
    /// The prompts of the turns that ended well, in order.
    prompts: Vec<String>,
    /// The calls of these turns, with the ids of the turns.
    turns: Vec<(Value, Value)>,
}

struct Campaign {
    random: Random,
    talks: Vec<Expected>,
    project: String,
    /// How many calls were made; each has its own request id.
    calls: usize,
    refused: usize,
    acknowledged: usize,
}

impl Campaign {
    /// The result of a call, or `None` if the disk was too full.
    fn ask(&mut self, client: &mut Client, method: &str, params: &Value) -> Option<Value> {
        match client.ask(method, params).unwrap() {
            Ok(result) => {
                self.acknowledged += 1;
                Some(result)
            }
            Err(error) => {
                let code = error["code"].as_i64().unwrap();
                assert!(EXPECTED_ERRORS.contains(&code), "{method} {params}: {error}");
                self.refused += 1;
                None
            }
        }
    }

    fn step(&mut self, client: &mut Client) {
        self.calls += 1;
        let key = format!("key-{}", self.calls);
        let action = self.random.below(100);
        if self.talks.is_empty() || action < 10 {
            let title = format!("title {}", self.calls);
            let new = json!({"agent": "loopback", "cwd": self.project, "requestId": key, "title": title});
            if let Some(made) = self.ask(client, "conversation/new", &new) {
                let id = made["conversation"]["id"].as_str().unwrap().to_owned();
                self.talks.push(Expected {
                    id,
                    title,
                    ..Expected::default()
                });
            }
            return;
        }
        let oldest = self.talks.len().saturating_sub(ACTIVE);
        let talk = oldest + self.random.below(self.talks.len() - oldest);
        let mut params = json!({"conversationId": self.talks[talk].id, "requestId": key});
        match action {
            10..=64 => {
                // A long prompt is stored as a separate file.
                let words = if self.random.chance(20) { 2_000 } else { 1 };
                let text = format!("mark-{}; {}", self.calls, "word ".repeat(words));
                params["prompt"] = json!(text);
                let turn = self.ask(client, "conversation/prompt", &params);
                if let Some(turn) = turn.filter(|turn| turn["stopReason"] == "end_turn") {
                    self.talks[talk].prompts.push(text);
                    self.talks[talk].turns.push((params, turn["turnId"].clone()));
                }
            }
            65..=79 => {
                let title = format!("title {}", self.calls);
                params["title"] = json!(title);
                if self.ask(client, "conversation/update", &params).is_some() {
                    self.talks[talk].title = title;
                }
            }
            80..=89 => {
                if let Some(forked) = self.ask(client, "conversation/fork", &params) {
                    let conversation = &forked["conversation"];
                    let told = Expected {
                        id: conversation["id"].as_str().unwrap().to_owned(),
                        title: conversation["title"].as_str().unwrap_or_default().to_owned(),
                        prompts: self.talks[talk].prompts.clone(),
                        turns: Vec::new(),
                    };
                    self.talks.push(told);
                }
            }
            _ => {
                let close = json!({"conversationId": self.talks[talk].id});
                self.ask(client, "conversation/close", &close);
            }
        }
    }

    /// Checks, with a disk that has space, that everything acknowledged exists.
    fn verify(&self, client: &mut Client, told: &str) {
        for talk in &self.talks {
            let view = client.call("conversation/get", &json!({"conversationId": talk.id}));
            let title = view["conversation"]["title"].as_str().unwrap_or_default();
            assert_eq!(title, talk.title, "{told}: {view}");
            for (call, turn) in &talk.turns {
                let again = client.call("conversation/prompt", call);
                assert_eq!(
                    (&again["turnId"], &again["stopReason"]),
                    (turn, &json!("end_turn")),
                    "{told}: {again}"
                );
            }
            let history = json!({"conversationId": talk.id, "limit": 1_000});
            let history = client.call("conversation/history", &history);
            let messages = history["messages"].as_array().unwrap();
            let said = messages.iter().filter(|message| message["role"] == "user");
            let said: Vec<&str> = said
                .filter_map(|message| message["content"][0]["text"].as_str())
                .collect();
            let places = talk.prompts.iter().map(|prompt| {
                let mut found = said
                    .iter()
                    .enumerate()
                    .filter(|(_, said)| **said == prompt.trim_end() || **said == prompt);
                let place = found
                    .next()
                    .unwrap_or_else(|| panic!("{told}: {prompt:.20} is missing in the history: {history:#}"))
                    .0;
                assert!(
                    found.next().is_none(),
                    "{told}: the history has {prompt:.20} twice"
                );
                place
            });
            assert!(places.is_sorted(), "{told}: {said:?}");
        }
    }
}

#[test]
fn nothing_acknowledged_is_lost_on_a_disk_that_fills_up() {
    let seed = number_from("CRASH_SEED", u64::from(std::process::id()) << 20 ^ 0xf011);
    let rounds = number_from("CRASH_ROUNDS", ROUNDS);
    eprintln!("CRASH_SEED={seed} CRASH_ROUNDS={rounds}");
    let home = Home::new("");
    let Some(disk) = Disk::mount(&home, "size=96m") else {
        return;
    };
    let mut campaign = Campaign {
        random: Random::new(seed),
        talks: Vec::new(),
        project: home.project(),
        calls: 0,
        refused: 0,
        acknowledged: 0,
    };
    let mut fills = 0;
    for round in 0..rounds {
        let told = format!("round {round} of CRASH_SEED={seed} CRASH_ROUNDS={rounds}");
        disk.remove_unused_databases();
        let mut daemon = disk.spawn(&home);
        assert!(daemon.wait_ready(), "{told}: {}", home.last_words());
        let mut client = Client::connect(&home.socket()).unwrap();
        campaign.verify(&mut client, &told);
        // Only the newest conversations are checked again, because the others no longer change.
        let old = campaign.talks.len().saturating_sub(2 * ACTIVE);
        campaign.talks.drain(..old);
        let mut is_full = false;
        for _ in 0..STEPS {
            if is_full && campaign.random.chance(30) {
                disk.make_room();
                is_full = false;
            } else if !is_full && campaign.random.chance(30) {
                fills += 1;
                is_full = true;
                disk.fill();
                disk.free(campaign.random.below(12) as u64 * 4_096);
            }
            campaign.step(&mut client);
        }
        if round + 1 == rounds && campaign.refused == 0 {
            // A short campaign may not have had a refusal yet.
            if !is_full {
                fills += 1;
                is_full = true;
                disk.fill();
            }
            for _ in 0..FULL_STEPS {
                if campaign.refused > 0 {
                    break;
                }
                campaign.step(&mut client);
            }
        }
        if is_full && campaign.random.chance(50) {
            disk.make_room();
            is_full = false;
        }
        daemon.kill();
        if is_full {
            // The daemon starts, or reports that there is no space and leaves everything unchanged.
            let mut daemon = disk.spawn(&home);
            if daemon.wait_ready() {
                daemon.kill();
            } else {
                daemon.wait();
            }
            disk.make_room();
        }
    }
    let (daemon, mut client) = disk.start(&home);
    campaign.verify(&mut client, "the end");
    daemon.stop();
    home.assert_nobody_but(&[disk.keeper.id()]);
    let Campaign {
        calls,
        refused,
        acknowledged,
        ..
    } = campaign;
    eprintln!("{calls} calls, {acknowledged} acknowledged, {refused} refused, {fills} times full");
    assert!(acknowledged > 0 && refused > 0, "{acknowledged} {refused}");
}
