//! A thousand conversations that continue at the same moment, compared with as many ordinary prompts.

use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::Outcome;
use crate::daemon::{Home, SocketClient};
use crate::options::Options;
use crate::report::{Limit, Report, Row};
use crate::sample::{median, timed_us};

/// Conversations in one run.
const CONVERSATIONS: u64 = 1_000;

/// Ordinary prompts in flight at the same time: as many as the daemon continues at the same time.
const AT_ONCE: usize = 8;

/// The limit as a multiple of the floor. A continuation takes longer than an ordinary prompt because it also
/// searches the transcript and records more.
const WORTH_OF_FLOORS: f64 = 3.0;

/// How long before the due time the continuations are scheduled.
const AHEAD: SignedDuration = SignedDuration::from_secs(4);

/// The beginning of the text that is sent in place of the prompt if the agent already has the prompt.
const GO_ON: &str = "Your last turn was cut short.";

/// Runs this scenario.
pub(crate) fn run(options: &Options, report: &mut Report) -> Outcome<()> {
    let conversations = usize::try_from(options.rounds(CONVERSATIONS))?;
    let (mut ours, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..options.runs {
        let home = Home::new()?;
        let daemon = home.start()?;
        let mut client = daemon.connect()?;
        let ids = limited(&mut client, home.path(), conversations)?;
        let mut events = daemon.connect()?;
        events.call("conversation/subscribe", &json!({}))?;
        let at = Timestamp::now() + AHEAD;
        for id in &ids {
            client.call(
                "conversation/continue",
                &json!({"conversationId": id, "at": at.to_string()}),
            )?;
        }
        let left = at.duration_until(Timestamp::now()).as_secs_f64();
        if left >= 0.0 {
            return Err(
                format!("the moment had passed by {left:.1} s when all were told to wait for it").into(),
            );
        }
        for _ in &ids {
            events.until_event("\"type\":\"turnEnded\"")?;
        }
        ours.push(at.duration_until(Timestamp::now()).as_secs_f64());
        let gone_on = prompts_that_go_on(&home.data().join("loopback"))?;
        if gone_on != conversations {
            return Err(
                format!("{gone_on} of {conversations} went on, each of which was to go on once").into(),
            );
        }
        floors.push(ordinary_seconds(&mut client, &ids)?);
    }
    let floor = median(&floors);
    report.add(Row {
        what: format!("{conversations} limited conversations go on at one moment, until the last has"),
        ours: median(&ours),
        floor: Some(floor),
        limit: Limit::AtMost(WORTH_OF_FLOORS * floor),
        unit: "s",
        note: format!("each exactly once; floor: as many ordinary prompts, {AT_ONCE} at once"),
    });
    Ok(())
}

/// Creates conversations whose last prompt met a limit that has ended since.
fn limited(client: &mut SocketClient, cwd: &Path, conversations: usize) -> Outcome<Vec<Value>> {
    let mut ids = Vec::new();
    for _ in 0..conversations {
        let made = client.call("conversation/new", &json!({"agent": "loopback", "cwd": cwd}))?;
        let id = made["conversation"]["id"].clone();
        let turn = client.call(
            "conversation/prompt",
            &json!({"conversationId": id, "prompt": "[[limit 0.001]]"}),
        )?;
        if turn["failure"]["kind"] != "rateLimited" {
            return Err(format!("it is not limited: {turn}").into());
        }
        ids.push(id);
    }
    Ok(ids)
}

/// How long a prompt to each of these conversations takes in total.
fn ordinary_seconds(client: &mut SocketClient, ids: &[Value]) -> Outcome<f64> {
    let (all, took_us) = timed_us(|| {
        for some in ids.chunks(AT_ONCE) {
            for id in some {
                client.send(
                    "conversation/prompt",
                    &json!({"conversationId": id, "prompt": "ordinary"}),
                )?;
            }
            for _ in some {
                client.skip_answer()?;
            }
        }
        Outcome::Ok(())
    });
    all?;
    Ok(took_us / 1e6)
}

/// How many prompts in the transcripts below a folder are texts of a continuation.
fn prompts_that_go_on(folder: &Path) -> Outcome<usize> {
    let mut found = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found += prompts_that_go_on(&path)?;
        } else if path.extension().is_some_and(|extension| extension == "jsonl") {
            let text = fs::read_to_string(&path)?;
            let is_one = |line: &&str| line.contains("\"type\":\"user\"") && line.contains(GO_ON);
            found += text.lines().filter(is_one).count();
        }
    }
    Ok(found)
}
